//! An invitation: the address of a namespace, the key of its host, and a token that can be redeemed once.
//!
//! ```text
//!  mri1_ base64url of   key (32)  length (1)  address, as mr://host:port/namespace without mr://  token
//! ```

use super::Token;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use millrace_wire::{Address, Code, Error, Peer, Result, SCHEME};
use std::str::FromStr;
use zeroize::Zeroizing;

/// What the text of an invitation begins with.
pub const INVITATION_PREFIX: &str = "mri1_";
/// Longer than any.
const TEXT_MAX_BYTES: usize = 4096;

/// An invitation of one machine for another one.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The namespace.
    pub peer: Peer,
    /// The SHA-256 of the host's public key.
    pub pin: [u8; 32],
    /// What is redeemed.
    pub token: Token,
}

impl Invitation {
    /// The invitation as text. It is secret: the first one who uses it redeems it.
    pub fn to_text(&self) -> Zeroizing<String> {
        let address = format!("{}/{}", self.peer.authority(), self.peer.namespace);
        let mut bytes = Zeroizing::new(Vec::with_capacity(1500));
        bytes.extend_from_slice(&self.pin);
        bytes.push(address.len() as u8); // a host of 253 bytes is refused when the address is read again
        bytes.extend_from_slice(address.as_bytes());
        bytes.extend_from_slice(&self.token.to_bytes());
        let mut text = Zeroizing::new(String::with_capacity(2048));
        text.push_str(INVITATION_PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string(&*bytes, &mut text);
        text
    }
}

impl FromStr for Invitation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // What is wrong is not quoted: it may be a secret.
        let wrong = || Code::InvitationInvalid.error("the text is not a complete invitation");
        let encoded =
            text.strip_prefix(INVITATION_PREFIX).filter(|_| text.len() <= TEXT_MAX_BYTES).ok_or_else(wrong)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_MAX_BYTES));
        BASE64_URL_SAFE_NO_PAD.decode_vec(encoded, &mut bytes).map_err(|_| wrong())?;
        let (pin, rest) = bytes.split_first_chunk::<32>().ok_or_else(wrong)?;
        let (length, rest) = rest.split_first().ok_or_else(wrong)?;
        let (address, token) = rest.split_at_checked(usize::from(*length)).ok_or_else(wrong)?;
        let address = std::str::from_utf8(address).map_err(|_| wrong())?;
        let address: Address = format!("{SCHEME}{address}").parse().map_err(|_| wrong())?;
        if address.log.is_some() {
            return Err(wrong());
        }
        Ok(Self { peer: address.peer, pin: *pin, token: Token::from_bytes(token).map_err(|_| wrong())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{AuthorityId, Grant, Key, Rights, Rules, TokenId};

    #[test]
    fn an_invitation_comes_back_as_it_was_and_nothing_else_does() {
        let rules = Rules {
            grants: vec![Grant::namespace(Rights::ALL)],
            ids: vec![TokenId([1; 8])],
            once: true,
            ..Rules::default()
        };
        let token = Token::issue(&Key::new(&[7; 32]), AuthorityId([2; 8]), 1, &rules).unwrap();
        let peer = "mr://[::1]:7070/farm".parse::<Address>().unwrap().peer;
        let text = Invitation { peer: peer.clone(), pin: [3; 32], token: token.clone() }.to_text();
        let back: Invitation = text.parse().unwrap();
        assert_eq!((back.peer, back.pin, back.token.to_bytes()), (peer, [3; 32], token.to_bytes()));
        for cut in 0..text.len() {
            let error = text[..cut].parse::<Invitation>().unwrap_err();
            assert_eq!(error.code(), Code::InvitationInvalid, "{cut}");
            assert!(!error.to_string().contains(&text[5..20]), "it quotes nothing");
        }
    }
}
