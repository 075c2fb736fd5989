//! The access check: the one place that decides which caller may do what. Every request from outside passes it.
//!
//! ```text
//!  connection --admit--> Caller (on whose behalf, how connected) --check--> Action { right, resource } --> allowed, or an error
//! ```
//!
//! A caller is the owner, or the holder of a capability. The owner is the user who runs the host, when connected to the namespace's Unix
//! socket. The owner may do everything, with two exceptions: no caller may write logs of the runtime (`_inbox/…`), and no caller may read
//! the log of idempotency keys, because a reader of it could pose as another client.
//!
//! Nothing here reads a file or a clock, so every decision can be tested by itself. What a capability permits is decided in
//! [`crate::token`].

use crate::token::{self, Action, Caller, Keys, Kind, Now, Peer, Rates, Resource, Right, Way};
use millrace_wire::{Address, Code, LogName, Result};
use std::net::IpAddr;

/// The log of idempotency keys.
const KEYS_LOG: &str = "_keys";
/// The log of persistent objects: a right to read logs is none to read objects.
const ENTITIES_LOG: &str = "_entities";
/// Sessions and users of MQTT.
const MQTT: &str = "_mqtt/";
/// Records that wait to be published: the rights to read them are those on their topic.
const WAITING: &str = "_publish/";
/// The kernel's overflow uid: it shows this for every user that the user namespace does not map, so it identifies nobody.
const OVERFLOW_USER: u32 = 65534;

/// Whether the user at the other end of the namespace's Unix socket is the owner: `user` as the kernel says, `own` as the host runs.
///
/// User 0 has no privilege here: it may be that of a container.
pub fn is_owner(user: u32, own: u32) -> bool {
    user == own && user != OVERFLOW_USER
}

/// The owner, for programs that open the namespace's files: these already give access to everything.
pub fn owner() -> Caller {
    Caller::owner(Peer { way: Way::Unix, address: None, key: None })
}

/// Whether an address is this machine's own.
pub fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether the caller may do this now.
pub fn check(caller: &Caller, keys: &dyn Keys, action: &Action<'_>, now: Now, rates: &dyn Rates) -> Result<()> {
    if caller.is_current(keys) {
        token::check(caller, action, now, rates)?;
    } else {
        let mut caller = caller.clone();
        caller.refresh(keys)?;
        token::check(&caller, action, now, rates)?;
    }
    let Resource { kind: Kind::Log, name } = action.on else { return Ok(()) };
    let reads = matches!(action.right, Right::Read | Right::Observe);
    if is_secret(name) || (!reads && LogName::is_internal(name)) {
        return Err(Code::LogInternal.error(format!("no client may {} log '{}'", action.right, name.escape_debug())));
    }
    Ok(())
}

/// The target of an append: a log here, or one of another namespace.
pub fn target(log: &str) -> Resource<'_> {
    if !Address::claims(log) {
        return Resource::log(log);
    }
    Resource { kind: Kind::Peer, name: log.split_once("://").map_or(log, |(_, name)| name) }
}

/// Whether no caller may read the records of this log.
pub fn is_secret(log: &str) -> bool {
    [KEYS_LOG, ENTITIES_LOG].contains(&log) || [WAITING, MQTT].iter().any(|prefix| log.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{AuthorityId, Grant, Key, Proof, Rate, Rights, Rules, Token, TokenId, admit};
    use std::cell::Cell;

    const PEER: Peer = Peer { way: Way::Unix, address: None, key: None };

    struct One {
        key: Key,
        revoked: Cell<bool>,
    }

    impl Keys for One {
        fn key(&self, _: AuthorityId, generation: u16) -> Option<&Key> {
            (generation == 1).then_some(&self.key)
        }

        fn is_revoked(&self, _: TokenId) -> bool {
            self.revoked.get()
        }

        fn epoch(&self) -> u64 {
            u64::from(self.revoked.get())
        }
    }

    struct Unlimited;

    impl Rates for Unlimited {
        fn take(&self, _: &[u8; 32], _: Rate) -> bool {
            true
        }
    }

    fn keys() -> One {
        One { key: Key::new(&[7; 32]), revoked: Cell::new(false) }
    }

    fn allowed(caller: &Caller, keys: &One, right: Right, on: Resource<'_>) -> Result<()> {
        check(caller, keys, &Action::new(right, on), Now::at(1), &Unlimited)
    }

    fn holder(keys: &One, grant: Grant) -> Caller {
        let rules = Rules { grants: vec![grant], ids: vec![TokenId([1; 8])], ..Rules::default() };
        let token = Token::issue(&keys.key, AuthorityId([2; 8]), 1, &rules).unwrap();
        admit(keys, token.body(), Proof::Bearer(token.signature()), PEER).unwrap()
    }

    #[test]
    fn only_the_hosts_own_user_is_the_owner() {
        assert!(is_owner(1000, 1000) && is_owner(0, 0));
        assert!(!is_owner(0, 1000), "root may be that of a container");
        assert!(!is_owner(1001, 1000) && !is_owner(65534, 65534));
        for (address, local) in [("127.8.8.8", true), ("::1", true), ("::ffff:127.0.0.1", true), ("10.0.0.1", false)] {
            assert_eq!(is_local(address.parse().unwrap()), local, "{address}");
        }
    }

    #[test]
    fn logs_of_the_runtime_are_read_only_for_everybody() {
        let keys = keys();
        for caller in [Caller::owner(PEER), holder(&keys, Grant::namespace(Rights::ALL))] {
            let code = |right, log| allowed(&caller, &keys, right, Resource::log(log)).err().map(|error| error.code());
            assert_eq!(code(Right::Read, "_links"), None);
            for right in [Right::Read, Right::Observe] {
                assert_eq!(code(right, "_keys"), Some(Code::LogInternal));
            }
            for right in [Right::Append, Right::Create, Right::Delete] {
                assert_eq!(code(right, "raw/_x"), None);
                assert_eq!(code(right, "_inbox/x"), Some(Code::LogInternal));
            }
        }
    }

    #[test]
    fn a_holder_is_told_the_same_of_a_log_of_the_runtime_as_of_any_other() {
        let keys = keys();
        let rights = [Right::Append].into_iter().collect();
        let caller = holder(&keys, Grant { kind: Kind::Log, name: Box::default(), subtree: true, rights });
        allowed(&caller, &keys, Right::Append, Resource::log("raw")).unwrap();
        for (right, log) in [(Right::Append, "_links"), (Right::Append, "_keys"), (Right::Read, "raw")] {
            let error = allowed(&caller, &keys, right, Resource::log(log)).unwrap_err();
            assert_eq!(error.code(), Code::CapabilityDenied, "{log}");
        }
    }

    #[test]
    fn a_revocation_ends_a_caller_that_was_admitted_before() {
        let keys = keys();
        let caller = holder(&keys, Grant::namespace(Rights::ALL));
        allowed(&caller, &keys, Right::Read, Resource::log("raw")).unwrap();
        keys.revoked.set(true);
        let error = allowed(&caller, &keys, Right::Read, Resource::log("raw")).unwrap_err();
        assert_eq!(error.code(), Code::CapabilityRefused);
    }

    #[test]
    fn an_append_to_another_namespace_takes_a_right_on_that() {
        assert_eq!(target("raw"), Resource::log("raw"));
        let elsewhere = Resource { kind: Kind::Peer, name: "edge:7070/farm/raw" };
        assert_eq!(target("mr://edge:7070/farm/raw"), elsewhere);
    }
}
