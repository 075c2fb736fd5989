//! `millrace cap …`: capabilities are issued, narrowed, explained and ended.

mod audit;
mod file;
mod invite;
pub mod mqtt;
mod rules;
mod shown;

use crate::{
    args::{CapCommand, Global, IssueArgs, MergeArgs, RevokeArgs, RotateArgs},
    out::Out,
    place,
    report::Outcome,
    show,
};
pub use file::read;
use file::write;
pub use invite::{invite, join};
use millrace_node::{
    Act, Code, Namespace, Result,
    secrets::{self, Authority, NamespaceKeys},
    token::{self, Chain, Link, Peer, Proof, Rules, Token, TokenId, Way},
};
use serde_json::json;
use std::path::Path;

pub fn run(command: &CapCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        CapCommand::Issue(args) => issue(args, global, out),
        CapCommand::Attenuate(args) => {
            let rules = rules::of(&args.rules)?;
            write(&read(&args.file)?.attenuate(&rules)?, args.out.out.as_deref(), out)
        }
        CapCommand::Show(args) => shown::run(&read(&args.file)?, global, out),
        CapCommand::Squash(args) => squash(&args.file, args.out.out.as_deref(), global, out),
        CapCommand::Merge(args) => merge(args, out),
        CapCommand::Revoke(args) => revoke(args, global, out),
        CapCommand::Rotate(args) => rotate(args, global, out),
        CapCommand::Audit(args) => audit::run(args, global, out),
    }
}

fn issue(args: &IssueArgs, global: &Global, out: &mut Out) -> Outcome {
    let rules = rules::of(&args.rules)?;
    if rules.grants.is_empty() {
        let detail = "the capability would permit nothing; give --read, --append or --allow";
        return Err(Code::CapabilityRuleInvalid.error(detail).into());
    }
    let namespace = place::open(global)?;
    let token = Authority::ensure(namespace.dir())?.issue(&rules)?;
    audit::issued(&namespace, Act::Issue, &rules)?;
    write(&token, args.out.out.as_deref(), out)
}

fn merge(args: &MergeArgs, out: &mut Out) -> Outcome {
    let tokens = args.files.iter().map(|file| read(file)).collect::<Result<Vec<Token>>>()?;
    write(&Token::merge(&tokens)?, args.out.out.as_deref(), out)
}

/// The keys of the namespace here, as of now.
fn keys(namespace: &Namespace) -> Result<NamespaceKeys> {
    secrets::capability_keys(namespace)?
        .ok_or_else(|| Code::CapabilityRefused.error("this namespace has not issued any capability"))
}

fn issuer(keys: &NamespaceKeys) -> Result<&Authority> {
    keys.authority().ok_or_else(|| Code::CapabilityRefused.error("this namespace has not issued any capability"))
}

/// The rules of a token, if the namespace issued it and has not revoked it.
fn verified(token: &Token, keys: &NamespaceKeys) -> Result<std::sync::Arc<Chain>> {
    let recovered = token::recover(keys, token.body())?;
    let chain = recovered.chain.clone();
    let peer = Peer { way: Way::Unix, address: None, key: None };
    recovered.admit(keys, Proof::Bearer(token.signature()), peer)?;
    Ok(chain)
}

fn squash(file: &Path, to: Option<&Path>, global: &Global, out: &mut Out) -> Outcome {
    let token = read(file)?;
    let namespace = place::open(global)?;
    let keys = keys(&namespace)?;
    let chain = verified(&token, &keys)?;
    let rules = token::squash(&chain)?;
    audit::issued(&namespace, Act::Squash, &rules)?;
    write(&issuer(&keys)?.issue_as(chain.parts[0].generation, &rules)?, to, out)
}

/// The ids that end a capability and what was derived from it, and until when that has to be remembered.
fn ids_of(chain: &Chain) -> Result<(Vec<TokenId>, Option<u32>)> {
    let last = |links: &[Link]| links.iter().rev().find_map(|link| link.rules.ids.last().copied());
    let ids: Vec<TokenId> = match last(&chain.after) {
        Some(id) => vec![id],
        None => chain.parts.iter().filter_map(|part| last(&part.blocks)).collect(),
    };
    // A capability is expired when any block of it is; all of its parts are when the last one is.
    let expires = |links: &mut dyn Iterator<Item = &Link>| {
        // Blocks behind the one that is revoked may be missing in another capability that has it.
        let mut links: Vec<&Link> = links.collect();
        let end = links.iter().rposition(|link| link.rules.ids.iter().any(|id| ids.contains(id)));
        links.truncate(end.map_or(0, |end| end + 1));
        links.into_iter().filter_map(|link| link.rules.not_after).min()
    };
    let parts: Vec<Option<u32>> =
        chain.parts.iter().map(|part| expires(&mut part.blocks.iter().chain(&chain.after))).collect();
    let until = parts.iter().copied().collect::<Option<Vec<u32>>>().and_then(|ends| ends.into_iter().max());
    Ok((ids, until))
}

fn revoke(args: &RevokeArgs, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    let (ids, until) = match &args.file {
        Some(file) => {
            let chain = token::inspect(read(file)?.body())?;
            let issued = Authority::load(namespace.dir())?.map(|authority| authority.id());
            if !chain.parts.iter().any(|part| Some(part.authority) == issued) {
                return Err(Code::CapabilityRefused.error("this namespace did not issue the capability").into());
            }
            ids_of(&chain)?
        }
        None => (args.ids.clone(), None),
    };
    let new = secrets::revoke(&namespace, &ids, until)?;
    let ids: Vec<String> = ids.iter().map(TokenId::to_string).collect();
    let unknown = audit::unknown(&namespace, &args.ids)?;
    if out.json() {
        let until = until.map(shown::moment);
        return Ok(out.object(&json!({ "revoked": ids, "new": new, "kept_until": until, "unknown": unknown }))?);
    }
    match new {
        0 => out.line(format!("{} was already revoked", ids.join(", ")))?,
        _ => out.line(format!("revoked {}", ids.join(", ")))?,
    }
    if let Some(until) = until {
        out.line(format!(
            "the revocation is kept until {}, when the capability would have expired",
            shown::moment(until)
        ))?;
    }
    for id in unknown {
        out.line(format!("`millrace cap audit` lists no capability with the id {id}; check it"))?;
    }
    Ok(())
}

fn rotate(args: &RotateArgs, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    let before = match args.revoke_all {
        // The first generation that is not there yet: all there are are older.
        true => match Authority::load(namespace.dir())? {
            Some(authority) => authority.generation().checked_add(1),
            None => None,
        },
        false => args.revoke_before,
    };
    let authority = Authority::rotate(namespace.dir(), before)?;
    secrets::rotated(&namespace, authority.generation())?;
    let live: Vec<u16> = authority.generations().collect();
    if out.json() {
        let object =
            json!({ "authority": authority.id().to_string(), "generation": authority.generation(), "live": live });
        return Ok(out.object(&object)?);
    }
    let shown: Vec<String> = live.iter().map(u16::to_string).collect();
    out.line(format!("new capabilities are issued with generation {}", authority.generation()))?;
    let generations = if live.len() == 1 { "generation" } else { "generations" };
    Ok(out.line(format!("capabilities of {generations} {} are valid", shown.join(", ")))?)
}

/// A random id of a block, so that it can be revoked.
fn new_id() -> Result<TokenId> {
    Ok(TokenId(millrace_node::secrets::random_id()?))
}

/// How many blocks a chain has, for people.
fn blocks(chain: &Chain) -> String {
    show::count(chain.blocks().count() as u64, "block")
}

/// The id that a block is revoked by.
fn first_id(rules: &Rules) -> String {
    rules.ids.first().map(TokenId::to_string).unwrap_or_default()
}
