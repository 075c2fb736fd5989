//! Ports that hosts keep over their restarts.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
};

/// A port of the loopback interface that the system gives to nobody else while this lives. A host may listen there, end, and
/// be followed by another one.
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Bound and not listening: whoever sets SO_REUSEADDR and asks for this very port may bind it too, which a host does; no
    /// connection and no listener that asks for any port is given it.
    _reserved: TcpListener,
}

impl Port {
    /// Reserves a free port.
    pub fn reserve() -> Self {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("the option is known");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let reserved = TcpListener::from(socket);
        Self { number: reserved.local_addr().expect("it is bound").port(), _reserved: reserved }
    }
}

/// The number.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
