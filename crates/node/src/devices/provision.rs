//! A new device gets its identity: a namespace, a key, and a capability for this host. The host keeps a capability that was made with the
//! device's key, and not the key: with it, the host may send commands, and ask the device for what its logs have.

use super::{State, check_unused, keep, read, remove};
use crate::{
    audit::{Act, Audited, audit},
    secrets::{Authority, DeviceSecrets, grant, random_id, revoke},
};
use millrace_device::{DeviceKey, Identity, KEY_BYTES};
use millrace_namespace::{Namespace, admission::devices};
use millrace_security::token::{AuthorityId, Grant, Key, LABEL_MAX_BYTES, Right, Rules, Token, TokenId};
use millrace_wire::{Code, NamespaceId, Result};

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let none = |error| Code::Io.error(format!("the operating system gives no random bytes: {error}"));
    getrandom::fill(&mut bytes).map_err(none).map(|()| bytes)
}

fn namespace_id() -> Result<NamespaceId> {
    loop {
        if let Some(id) = NamespaceId::new(u64::from_le_bytes(random()?) & NamespaceId::MAX) {
            return Ok(id);
        }
    }
}

/// The rules of a capability for or of a device, with an id of their own.
fn rules(device: &str, grants: Vec<Grant>) -> Result<Rules> {
    let mut label = format!("device {device}");
    label.truncate(LABEL_MAX_BYTES); // a name is ASCII
    Ok(Rules { grants, ids: vec![TokenId(random_id()?)], label: Some(label.as_bytes().into()), ..Rules::default() })
}

/// Whether a device can have this name. As a segment of a log's name, it has at most 64 bytes, as in the firmware.
pub fn check_name(device: &str) -> Result<()> {
    devices::state_of(device).map(drop)
}

/// Makes the identity of a new device. `host` is the address at which it reaches this host; none on a serial line.
///
/// # Errors
///
/// The name is taken (MR6341, MR6302), or none of a device.
pub fn provision(namespace: &Namespace, device: &str, host: Option<&str>) -> Result<Identity> {
    check_name(device)?;
    let of_device = format!("{device}/");
    let check = |catalog: &_| {
        if read(namespace, catalog, device)?.is_some() {
            return Err(Code::DeviceProvisioned.error(format!("there is a device '{device}' already")));
        }
        check_unused(catalog, device)
    };
    check(&*namespace.journal().catalog()?)?;
    let identity_of = namespace_id()?;
    let key = DeviceKey { authority: random_id()?, generation: 1, key: random::<KEY_BYTES>()? };
    let commands =
        rules(device, vec![Grant::namespace([Right::Link, Right::Append, Right::Read].into_iter().collect())])?;
    let commands = Token::issue(&Key::new(&key.key), AuthorityId(key.authority), key.generation, &commands)?;
    let shown = rules(device, vec![grant([Right::Append, Right::Create].into_iter().collect(), &of_device)?])?;
    let token = Authority::ensure(namespace.dir())?.issue(&shown)?;
    let identity = Identity {
        namespace: identity_of,
        name: device.to_owned(),
        key: Some(key),
        seed: random()?,
        token: Some(token.to_bytes().to_vec()),
        host: host.map(str::to_owned),
    };
    // Refused before anything was changed, if it is too long.
    identity.encode()?;
    audit(namespace, &Audited::by_owner(Act::Issue).of(&shown.ids).about(format!("device {device}")))?;
    let state = State {
        namespace: identity_of.get(),
        capability: shown.ids.first().map(TokenId::to_string),
        ..State::default()
    };
    // The name is taken before anything is stored under it: somebody else may provision a device of this name at the same time.
    namespace.journal().commit(|tx| {
        check(&tx.catalog().clone())?;
        keep(tx, device, &state)
    })?;
    if let Err(error) = DeviceSecrets::of(namespace.dir()).set(device, &commands) {
        // The identity was given to nobody.
        let _ = remove(namespace, device);
        return Err(error);
    }
    Ok(identity)
}

/// Ends what [`provision`] gave a device: its capability, and that for it.
pub(super) fn withdraw(namespace: &Namespace, device: &str, state: &State) -> Result<()> {
    if let Some(id) = &state.capability {
        revoke(namespace, &[id.parse()?], None)?;
    }
    DeviceSecrets::of(namespace.dir()).remove(device).map(drop)
}
