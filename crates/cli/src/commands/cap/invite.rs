//! `millrace invite` and `millrace join`: one line of text connects two machines.

use super::{audit, rules};
use crate::{
    args::{Global, InviteArgs, JoinArgs},
    out::Out,
    place::{
        self,
        contexts::{Context, Contexts},
        remote,
    },
    report::Outcome,
};
use millrace_client::{Credentials, Options, Place, blocking::Client, credentials};
use millrace_node::{
    Act, Address, Code, Name, Result, default_name,
    secrets::{self, Authority, HostKey, now_s, random_id},
    token::{Grant, Invitation, Right, Rules, TokenId},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{io::Read, sync::Arc};

/// The maximum length of an invitation.
const TEXT_MAX_BYTES: u64 = 4096;

/// The id with which all capabilities of an invited machine begin, so that its streams and keys continue if it is invited again.
fn id_of(authority: &Authority, name: &Name) -> TokenId {
    let digest = Sha256::digest([&authority.id().0[..], name.as_bytes()].concat());
    let mut id = TokenId([0; 8]);
    id.0.copy_from_slice(&digest[..8]);
    id
}

pub fn invite(args: &InviteArgs, global: &Global, out: &mut Out) -> Outcome {
    let mut rules = rules::of(&args.rules)?;
    if rules.grants.is_empty() {
        let detail = "the capability would permit nothing; give --append, --read or --allow";
        return Err(Code::CapabilityRuleInvalid.error(detail).into());
    }
    if rules.not_after.is_some() {
        let detail =
            "--expires: the capability lasts until it is revoked; --valid says how long the invitation can be used";
        return Err(Code::CapabilityRuleInvalid.error(detail).into());
    }
    // Relays and outboxes send records through streams; the other grants determine the logs to which they may append.
    rules.grants.push(Grant::namespace([Right::Link].into_iter().collect()));
    let namespace = place::open(global)?;
    let authority = Authority::ensure(namespace.dir())?;
    let pin = HostKey::ensure(namespace.dir())?.pin;
    let machine = id_of(&authority, &args.name);
    if secrets::revoked(&namespace)?.contains_key(&machine) {
        let name = &args.name;
        let detail = format!("all capabilities of a machine named '{name}' were revoked, with the id {machine}");
        return Err(Code::InvitationRefused.error(detail).into());
    }
    let expires = u32::try_from(args.valid.as_secs()).ok().and_then(|time| now_s().checked_add(time));
    let rules = Rules {
        once: true,
        not_after: expires,
        ids: vec![machine, TokenId(random_id()?)],
        label: rules.label.or_else(|| Some(args.name.as_bytes().iter().copied().take(32).collect())),
        ..rules
    };
    let named = args.served_as.clone().unwrap_or_else(|| default_name(namespace.dir()));
    let host = match &args.address {
        Some(address) => address.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let address: Address = format!("mr://{host}/{named}").parse()?;
    let invitation = Invitation { peer: address.peer, pin, token: authority.issue(&rules)? };
    audit::issued(&namespace, Act::Invite, &rules)?;
    let text = invitation.to_text();
    if out.json() {
        let address = invitation.peer.to_string();
        return Ok(out.object(&json!({ "invitation": &*text, "name": args.name, "address": address }))?);
    }
    Ok(out.line(&*text)?)
}

fn invitation(text: &str) -> Result<Invitation> {
    if text != "-" {
        return text.parse();
    }
    let mut text = String::new();
    let read = std::io::stdin().take(TEXT_MAX_BYTES).read_to_string(&mut text);
    read.map_err(|error| Code::InvitationInvalid.error(format!("standard input cannot be read: {error}")))?;
    text.trim().parse()
}

/// This user's key, created if it does not exist.
fn identity() -> Result<credentials::Identity> {
    let none = || Code::CredentialsUnusable.error("keys are stored below $XDG_STATE_HOME or $HOME, and neither is set");
    let path = credentials::identity_file().ok_or_else(none)?;
    let key = match credentials::read(&path)? {
        Some(bytes) => HostKey::from_bytes(&bytes)?,
        None => {
            let made = HostKey::generate()?;
            credentials::write(&path, &made.to_bytes())?;
            made
        }
    };
    Ok(credentials::Identity { certificate: key.certificate, key: key.key })
}

pub fn join(args: &JoinArgs, out: &mut Out) -> Outcome {
    let Invitation { peer, pin, token } = invitation(&args.invitation)?;
    // Checked before the invitation is redeemed, because it can be redeemed only once.
    let mut contexts = Contexts::load()?;
    let name = args.context.clone().unwrap_or_else(|| peer.namespace.clone());
    let identity = Some(Arc::new(identity()?));
    let credentials = Credentials { capability: Some(token), pin: Some(pin), identity, authorities: None };
    let options = Options { credentials: Some(Arc::new(credentials)), ..remote::options() };
    let place = Place::Tcp(peer.clone());
    let redeemed = Client::connect(&place, &options).and_then(|client| client.redeem());
    let capability = redeemed.map_err(|error| match error.code() {
        Code::CapabilityRefused | Code::CapabilityDenied | Code::ChannelRefused => {
            Code::InvitationRefused.error(error.detail())
        }
        _ => error,
    })?;
    let file = credentials::keep(&peer, &pin, &capability)?;
    contexts.contexts.insert(name.clone(), Context { address: peer.to_string(), ca: None });
    contexts.store()?;
    if out.json() {
        let object = json!({ "address": peer.to_string(), "context": name, "file": file });
        return Ok(out.object(&object)?);
    }
    out.line(format!("joined {peer} and stored its key"))?;
    Ok(out.line(format!("created context {name}; the capability is in {}", file.display()))?)
}
