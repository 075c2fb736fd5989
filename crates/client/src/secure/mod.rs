//! Secure connections: the channel, whose key is a capability, or TLS with a host whose public key is known.
//!
//! ```text
//!  Unix socket         the kernel reports the user                   nothing here
//!  TCP, key known      TLS 1.3, proof of the capability in HELLO     tls
//!  TCP, a capability   the channel                                   records
//! ```

mod records;
pub mod tls;

pub use records::{ChannelStream, Records};

use crate::credentials::Credentials;
use millrace_security::{
    channel::{Connecting, RECORD_MAX_BYTES},
    token::Binding,
};
use millrace_wire::{Code, Error, Result};

/// Begins a channel with the capability of these credentials.
pub(crate) fn begin(credentials: &Credentials) -> Result<Option<Connecting>> {
    let Some(token) = &credentials.capability else { return Ok(None) };
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce)
        .map_err(|error| Code::Io.error(format!("the operating system gives no random bytes: {error}")))?;
    Connecting::new(token, &nonce, RECORD_MAX_BYTES).map(Some)
}

/// A failure of the transport as one of a connection.
pub(crate) fn failed(error: &std::io::Error) -> Error {
    if let Some(reported) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return tls::failed(reported);
    }
    Code::ConnectionLost.error(format!("the connection broke: {error}"))
}

/// The proof of a client's capability on a connection with this binding.
pub(crate) fn proof(credentials: &Credentials, binding: Option<&Binding>) -> Option<[u8; 32]> {
    credentials.capability.as_ref().zip(binding).map(|(token, binding)| token.proof(binding))
}
