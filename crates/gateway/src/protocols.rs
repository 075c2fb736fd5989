//! The protocols that a host speaks, in one table.
//!
//! To add one, write a `pub(crate) const PROTOCOL: Protocol` in a module of its own, and add it here, before HTTP. The server calls its `serve`
//! for each connection that begins with bytes that it claims.

use crate::{
    Hosted, http, mqtt,
    server::{Protocol, Protocols, Server, ServerOptions},
    wire,
};
use millrace_wire::Result;
use std::sync::Arc;

/// Transports are not among them: TLS and the encrypted channel, within which the protocols are spoken, are the server's.
static PROTOCOLS: [Protocol; 4] = [wire::PROTOCOL, mqtt::PROTOCOL, http::http2::PROTOCOL, http::PROTOCOL];

impl Protocols {
    pub fn all() -> Self {
        Self(&PROTOCOLS)
    }
}

impl Server {
    /// Listens and serves.
    pub fn start(hosted: Arc<Hosted>, options: &ServerOptions) -> Result<Server> {
        let mut server = Self::bind(hosted, options)?;
        server.accept()?;
        Ok(server)
    }

    /// Listens. Connections wait until [`Server::accept`].
    pub fn bind(hosted: Arc<Hosted>, options: &ServerOptions) -> Result<Server> {
        Self::speaking(Protocols::all(), hosted, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_determine_the_protocol() {
        let of = |first: &[u8; 4]| Protocols::all().of(first).alpn;
        assert_eq!(of(b"MR/2"), b"millrace/2");
        assert_eq!(of(b"\x10\x25\0\x04"), b"mqtt");
        for first in [b"GET ", b"POST", b"MR/3", b"MR\0\0", b"M\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"PRI*"] {
            assert_eq!(of(first), b"http/1.1", "{first:x?}");
        }
        assert_eq!(of(b"PRI "), b"h2");
        assert_eq!(Protocols::all().within_channel().alpn, b"millrace/2");
    }
}
