//! Which user holds the other end of a TCP connection within this machine. The kernel knows both ends of such a connection, and reports the
//! user of either to any process (`sock_diag(7)`).
//!
//! ```text
//!  client 127.0.0.1:41000 ───── 127.0.0.1:7070 host
//!      whose is 7070 ──> kernel <── whose is 41000
//! ```
//!
//! So a host recognizes its own user at a loopback address as it does at the Unix socket, and a client does not take another user's
//! program, which opened the port first, for the host.

use millrace_wire::{Code, Defence, Error, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect,
    netlink::{SOCK_DIAG, SocketAddrNetlink},
    recv, send, socket_with,
};
use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

/// `SOCK_DIAG_BY_FAMILY`: asks for one socket by its addresses, and is the type of the answer.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
/// A header of 16 bytes, then `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 72;
/// Where fields of the answer stand: behind a header of 16 bytes, `struct inet_diag_msg`.
const ANSWER_BYTES: usize = 88;
const FAMILY: usize = 16;
const STATE: usize = 17;
const PORTS: usize = 20;
const ADDRESSES: usize = 24;
const UID: usize = 80;
const INODE: usize = 84;

/// The states of a socket that is connected, or was until its program began to close it, as bits: `ESTABLISHED`, both of `FIN_WAIT`,
/// `CLOSE_WAIT`, `LAST_ACK` and `CLOSING`. A socket that still asks for a connection (`SYN_SENT`) has the addresses of one that it may never
/// get.
const CONNECTED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// How often the kernel is asked about one connection.
const ASKED_MAX: u32 = 3;

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This user made its socket.
    User(u32),
    /// One of the ends is closed, so the kernel does not report the user of the other one, and the sender of the received bytes is unknown.
    Nobody,
    /// The kernel does not report it, or this machine has no such socket.
    Unknown,
}

/// A conversation with the kernel about sockets.
#[derive(Debug)]
pub struct Loopback {
    kernel: OwnedFd,
    sequence: u32,
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// The question whose the socket at `theirs` is, which is connected to `ours`.
fn question(sequence: u32, theirs: SocketAddr, ours: SocketAddr) -> [u8; REQUEST_BYTES] {
    let family = if theirs.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16..18].copy_from_slice(&[family, TCP]);
    bytes[20..24].fill(0xff); // whatever its state
    bytes[24..26].copy_from_slice(&theirs.port().to_be_bytes());
    bytes[26..28].copy_from_slice(&ours.port().to_be_bytes());
    bytes[28..44].copy_from_slice(&octets(theirs.ip()));
    bytes[44..60].copy_from_slice(&octets(ours.ip()));
    bytes[64..72].fill(0xff); // no cookie
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn address_at(bytes: &[u8], at: usize, is_v4: bool) -> IpAddr {
    if is_v4 {
        return IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    }
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
}

/// The kernel's answer about the requested socket.
fn holder(answer: &[u8], theirs: SocketAddr, ours: SocketAddr) -> Holder {
    if answer.len() < ANSWER_BYTES || u16_at(answer, 4) != BY_FAMILY {
        return Holder::Unknown;
    }
    let is_v4 = answer[FAMILY] == AF_INET;
    let port = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
    let socket = SocketAddr::new(address_at(answer, ADDRESSES, is_v4), port(PORTS));
    let other = SocketAddr::new(address_at(answer, ADDRESSES + 16, is_v4), port(PORTS + 2));
    // Where there is no such connection, the kernel may show who listens at its address instead.
    if (socket, other) != (theirs, ours) {
        return Holder::Unknown;
    }
    // A socket without an inode has lost its owner. Older kernels then report user 0 for every socket.
    let is_connected = 1u32.checked_shl(answer[STATE].into()).is_some_and(|state| CONNECTED & state != 0);
    if u32_at(answer, INODE) == 0 || !is_connected { Holder::Nobody } else { Holder::User(u32_at(answer, UID)) }
}

impl Loopback {
    /// Begins the conversation.
    ///
    /// # Errors
    ///
    /// The kernel has no such service, or this process may not use it.
    pub fn new() -> io::Result<Self> {
        let kernel = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
        // From now on only messages of the kernel are received.
        connect(&kernel, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { kernel, sequence: 0 })
    }

    /// The user of the other end of a connection. `ends` asks the connection's own socket for its addresses, theirs first; a socket whose
    /// connection is over has none. The kernel answers before `send` returns, so this never waits.
    pub fn holder(&mut self, ends: impl Fn() -> io::Result<(SocketAddr, SocketAddr)>) -> Holder {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let Ok((theirs, ours)) = ends() else { return Holder::Nobody };
        let (theirs, ours) = (plain(theirs), plain(ours));
        // A kernel that is short of memory may drop an answer.
        let mut found = (0..ASKED_MAX).map(|_| self.ask(theirs, ours).unwrap_or(Holder::Unknown));
        let found = found.find(|holder| *holder != Holder::Unknown).unwrap_or(Holder::Unknown);
        // After a reset, a socket of any user may connect from the same port, and the kernel reports that one. Two connections never have
        // the same addresses at once, so the answer is about this one if it still stands.
        if ends().is_err() && Defence::SameConnection.stands() { Holder::Nobody } else { found }
    }

    fn ask(&mut self, theirs: SocketAddr, ours: SocketAddr) -> io::Result<Holder> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.kernel, &question(self.sequence, theirs, ours), SendFlags::NOSIGNAL)?;
        let mut answer = [0; 512];
        // Answers to earlier requests are skipped.
        for _ in 0..8 {
            let (_, length) = recv(&self.kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
            let answer = &answer[..length.min(answer.len())];
            if answer.len() >= 20 && u32_at(answer, 8) == self.sequence {
                return Ok(if u16_at(answer, 4) == ERROR { Holder::Unknown } else { holder(answer, theirs, ours) });
            }
        }
        Ok(Holder::Unknown)
    }
}

/// How to speak to a host on this machine that left a token for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// Unencrypted: the kernel reports the user of each end to the other, and other users cannot read the bytes in between.
    InClear,
    /// Through the channel that the token opens.
    ByToken,
}

/// Whether it says that the kernel did not confirm, to the host or to this client, that both have one user. A token can confirm it.
pub(crate) fn is_unknown(error: &Error) -> bool {
    matches!(error.code(), Code::LoopbackRefused | Code::HostUnknown)
}

/// Checks that this user runs the host at the other end of an unencrypted connection. `ends` are the addresses of both ends, because a
/// broken connection no longer has them.
pub(crate) fn check(ends: impl Fn() -> io::Result<(SocketAddr, SocketAddr)>) -> Result<()> {
    let broken = |error: io::Error| Code::ConnectionLost.error(format!("the connection broke: {error}"));
    let (theirs, _) = ends().map_err(broken)?;
    let own = rustix::process::geteuid().as_raw();
    match Loopback::new().map_or(Holder::Unknown, |mut kernel| kernel.holder(&ends)) {
        Holder::User(user) if user == own => Ok(()),
        Holder::User(_) | Holder::Nobody if !Defence::HostUser.stands() => Ok(()),
        // Answers of another user's program may have come with the greeting.
        Holder::Nobody => Err(Code::ConnectionLost.error("the host closed the connection")),
        Holder::User(user) => {
            Err(Code::HostUnknown.error(format!("a process of user {user} listens at {theirs}, not one of user {own}")))
        }
        Holder::Unknown => {
            // The connection may have broken meanwhile.
            ends().map_err(broken)?;
            Err(Code::HostUnknown.error(format!("the kernel does not report whose process listens at {theirs}")))
        }
    }
}

/// Refuses an unencrypted connection to a host that is not on this machine.
pub(crate) fn check_near(theirs: SocketAddr) -> Result<()> {
    if theirs.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Code::HostUnknown.error(format!("no key or capability is stored here for {theirs}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn own() -> Holder {
        Holder::User(rustix::process::geteuid().as_raw())
    }

    fn ends(stream: &TcpStream) -> (SocketAddr, SocketAddr) {
        (stream.peer_addr().unwrap(), stream.local_addr().unwrap())
    }

    #[test]
    fn both_ends_learn_whose_the_other_one_is() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let to = if address == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let client = TcpStream::connect((to, port)).unwrap();
            let (host, _) = listener.accept().unwrap();
            let mut kernel = Loopback::new().unwrap();
            for stream in [&client, &host] {
                assert_eq!(kernel.holder(|| Ok(ends(stream))), own(), "{address}");
                check(|| Ok(ends(stream))).unwrap();
            }
        }
    }

    #[test]
    fn a_closed_end_belongs_to_nobody_and_one_that_is_not_there_is_unknown() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (host, _) = listener.accept().unwrap();
        let (theirs, ours) = ends(&host);
        let mut kernel = Loopback::new().unwrap();
        drop(client);
        assert_eq!(kernel.holder(|| Ok((theirs, ours))), Holder::Nobody);
        // It could belong to any user.
        assert_eq!(check(|| Ok((theirs, ours))).unwrap_err().code(), Code::ConnectionLost);
        drop(host);
        // The listener has the address of the first, and is another socket.
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(kernel.holder(|| Ok((listener.local_addr()?, elsewhere))), Holder::Unknown);
        let unknown = check(|| Ok((listener.local_addr()?, elsewhere)));
        assert_eq!(unknown.unwrap_err().code(), Code::HostUnknown);
        let broken = check(|| Err(io::ErrorKind::NotConnected.into()));
        assert_eq!(broken.unwrap_err().code(), Code::ConnectionLost);
    }

    /// A connection from this port of 127.0.0.1, which a later one may use as well.
    fn from_port(port: u16, to: SocketAddr) -> TcpStream {
        use rustix::net::{bind, sockopt};
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        connect(&socket, &to).unwrap();
        socket.into()
    }

    #[test]
    fn a_later_connection_of_the_same_port_does_not_vouch_for_one_that_was_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let first = from_port(0, to);
        let port = first.local_addr().unwrap().port();
        let reset = rustix::net::sockopt::set_socket_linger(&first, Some(std::time::Duration::ZERO));
        reset.unwrap();
        drop(first);
        let second = from_port(port, to);
        let (of_first, theirs) = listener.accept().unwrap();
        let (of_second, same) = listener.accept().unwrap();
        assert_eq!(theirs, same);
        let mut kernel = Loopback::new().unwrap();
        // Had the reset come between the question and the answer, only the second look at the socket would show it.
        let looks = std::cell::Cell::new(0);
        let late = || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 { Ok((theirs, to)) } else { of_first.peer_addr().map(|_| (theirs, to)) }
        };
        assert_eq!(kernel.holder(late), Holder::Nobody);
        assert_eq!(looks.get(), 2);
        assert_eq!(kernel.holder(|| Ok(ends(&of_second))), own());
        assert_eq!(
            check(|| Ok((of_first.peer_addr()?, of_first.local_addr()?))).unwrap_err().code(),
            Code::ConnectionLost
        );
        drop(second);
    }

    #[test]
    fn nothing_is_spoken_in_clear_to_other_machines() {
        check_near("127.0.0.3:7070".parse().unwrap()).unwrap();
        check_near("[::ffff:127.0.0.1]:7070".parse().unwrap()).unwrap();
        for address in ["10.0.0.1:7070", "[2001:db8::1]:7070"] {
            assert_eq!(check_near(address.parse().unwrap()).unwrap_err().code(), Code::HostUnknown, "{address}");
        }
    }
}
