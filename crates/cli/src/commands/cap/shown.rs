//! `millrace cap show`: what a capability permits, in words.

use super::{blocks, verified};
use crate::{
    args::Global,
    out::{Out, Table},
    place,
    report::Outcome,
    show,
};
use jiff::Timestamp;
use millrace_node::{
    Code,
    application::units,
    secrets::{self, now_s},
    token::{self, Chain, Keys, Link, Principal, Rules, Token},
};
use millrace_wire::Hex;
use serde_json::{Value, json};
use std::time::Duration;

/// A second since 1970, as RFC 3339 has it.
pub fn moment(second: u32) -> String {
    Timestamp::from_second(second.into()).unwrap_or_default().to_string()
}

/// When the last part of a capability ends.
pub fn expires(chain: &Chain) -> Option<u32> {
    let after = chain.after.iter().filter_map(|link| link.rules.not_after).min();
    let ends = chain.parts.iter().map(|part| {
        let own = part.blocks.iter().filter_map(|link| link.rules.not_after).min();
        own.into_iter().chain(after).min()
    });
    ends.collect::<Option<Vec<u32>>>().and_then(|ends| ends.into_iter().max())
}

/// Whether the namespace here accepts the capability, or that this is unknown.
enum Standing {
    Valid,
    /// Why it is not.
    Invalid(String),
    /// Another namespace issued it, or none is here.
    Unknown,
}

fn standing(token: &Token, chain: &Chain, global: &Global) -> Result<Standing, crate::report::Failure> {
    let namespace = match place::open(global) {
        Ok(namespace) => namespace,
        // It is looked at somewhere else; a namespace that was named and cannot be opened is another matter.
        Err(error) if global.namespace.is_none() && error.code() == Code::NotANamespace => {
            return Ok(Standing::Unknown);
        }
        Err(error) => return Err(error.into()),
    };
    let Some(keys) = secrets::capability_keys(&namespace)? else { return Ok(Standing::Unknown) };
    let Some(authority) = keys.authority() else { return Ok(Standing::Unknown) };
    let own = |part: &token::Part| part.authority == authority.id();
    if !chain.parts.iter().all(own) {
        return Ok(Standing::Unknown);
    }
    if let Some(part) = chain.parts.iter().find(|part| !authority.generations().any(|live| live == part.generation)) {
        return Ok(Standing::Invalid(format!(
            "generation {} of the namespace's keys is no longer valid",
            part.generation
        )));
    }
    let ids = chain.blocks().flat_map(|link| &link.rules.ids);
    let ended: Vec<String> = ids.filter(|id| keys.is_revoked(**id)).map(|id| id.to_string()).collect();
    match verified(token, &keys) {
        Err(_) if ended.is_empty() => Ok(Standing::Invalid("its signature is wrong".into())),
        Err(_) => Ok(Standing::Invalid(format!("{} was revoked", ended.join(", ")))),
        Ok(_) => match expires(chain) {
            Some(end) if end < now_s() => Ok(Standing::Invalid(format!("it expired at {}", moment(end)))),
            _ => Ok(Standing::Valid),
        },
    }
}

pub fn run(token: &Token, global: &Global, out: &mut Out) -> Outcome {
    let chain = token::inspect(token.body())?;
    let standing = standing(token, &chain, global)?;
    if out.json() {
        return Ok(out.object(&object(token, &chain, &standing))?);
    }
    out.line(format!("capability   {}, {} bytes", blocks(&chain), token.to_bytes().len()))?;
    for part in &chain.parts {
        out.line(format!("issued by    authority {}, generation {}", part.authority, part.generation))?;
    }
    out.line(format!("acts as      {}", principal(&chain)))?;
    out.line(match &standing {
        Standing::Valid => "valid here   yes".into(),
        Standing::Invalid(why) => format!("valid here   no: {why}"),
        Standing::Unknown => "valid here   unknown: --namespace does not name the namespace that issued it".to_owned(),
    })?;
    out.line(match expires(&chain) {
        Some(end) => format!("expires      {} ({})", moment(end), distance(end)),
        None => "expires      never".into(),
    })?;
    let mut table = Table::new(&["block", "rule", "meaning"]);
    let many = chain.is_merged();
    for (number, part) in chain.parts.iter().enumerate() {
        for (at, link) in part.blocks.iter().enumerate() {
            let place = if many { format!("{}.{}", number + 1, at + 1) } else { (at + 1).to_string() };
            rows(&place, link, &mut table);
        }
    }
    for (at, link) in chain.after.iter().enumerate() {
        rows(&format!("all.{}", at + 1), link, &mut table);
    }
    out.line("")?;
    out.table(&table)?;
    out.line("")?;
    if many {
        return Ok(out.line(
            "An action is permitted if all blocks of one part (1, 2, …) permit it, and all blocks of 'all' do.",
        )?);
    }
    out.line("An action is permitted if every block permits it.")?;
    match token::squash(&chain) {
        Ok(rules) if chain.blocks().count() > 1 => {
            out.line("Together, the blocks grant:")?;
            rules.grants.iter().try_for_each(|grant| out.line(format!("  {grant}")))?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn principal(chain: &Chain) -> String {
    match chain.principal() {
        Principal::Holder { id, subject: Some(subject) } => {
            format!("{} (of {id})", subject.escape_ascii())
        }
        principal => principal.to_string(),
    }
}

/// The time until or since a moment.
fn distance(second: u32) -> String {
    let apart = |a: u32, b: u32| units::show_duration(Duration::from_secs((a - b).into()));
    match now_s() {
        now if now <= second => format!("in {}", apart(second, now)),
        now => format!("{} ago", apart(now, second)),
    }
}

/// The rules of a block: what each is called, and what it means.
fn meanings(rules: &Rules) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let list = |items: Vec<String>| items.join(" or ");
    let verb = if rules.grants.len() > 1 { "one of: " } else { "" };
    all.extend(rules.grants.iter().map(|grant| ("grants", format!("{verb}{grant}"))));
    all.extend(rules.not_after.map(|end| ("until", format!("{} ({})", moment(end), distance(end)))));
    all.extend(rules.not_before.map(|start| ("from", format!("{} ({})", moment(start), distance(start)))));
    all.extend(rules.record_max_bytes.map(|max| ("record", format!("at most {}", units::show_size(max.into())))));
    all.extend(rules.ways.map(|ways| ("way", format!("only by {}", ways.names().replace(',', " or ")))));
    if !rules.nets.is_empty() {
        all.push(("address", format!("only from {}", list(rules.nets.iter().map(ToString::to_string).collect()))));
    }
    if !rules.keys.is_empty() {
        let keys = rules.keys.iter().map(|key| Hex(key).to_string()).collect();
        all.push(("key", format!("only for the holder of TLS key {}", list(keys))));
    }
    all.extend(rules.rate.map(|rate| {
        (
            "rate",
            format!("{} per second, at most {} in a burst", show::count(rate.per_second.into(), "request"), rate.burst),
        )
    }));
    if !rules.sources.is_empty() {
        let sources = list(rules.sources.iter().map(ToString::to_string).collect());
        all.push(("source", format!("only deliveries from namespace {sources}")));
    }
    all.extend(rules.once.then(|| ("once", "can be used only once, to join".to_owned())));
    all.extend(rules.subject.as_ref().map(|subject| ("subject", text(subject))));
    all.extend(rules.label.as_ref().map(|label| ("label", text(label))));
    all.extend(rules.ids.iter().map(|id| ("id", id.to_string())));
    all
}

fn rows(place: &str, link: &Link, table: &mut Table) {
    let meanings = meanings(&link.rules);
    for (at, (rule, meaning)) in meanings.iter().enumerate() {
        table.row(vec![if at == 0 { place.to_owned() } else { String::new() }, (*rule).to_owned(), meaning.clone()]);
    }
    if meanings.is_empty() {
        table.row(vec![place.to_owned(), "none".into(), "adds no restriction".into()]);
    }
}

fn block(link: &Link) -> Value {
    let rules = &link.rules;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let grants = rules.grants.iter().map(|grant| {
        let rights: Vec<&str> = grant.rights.iter().map(token::Right::name).collect();
        json!({ "kind": grant.kind.name(), "name": text(&grant.name), "subtree": grant.subtree, "rights": rights })
    });
    let keys = rules.keys.iter().map(|key| Hex(key).to_string());
    json!({
        "grants": grants.collect::<Vec<_>>(),
        "not_after": rules.not_after.map(moment), "not_before": rules.not_before.map(moment),
        "record_max_bytes": rules.record_max_bytes,
        "ways": rules.ways.map(|ways| ways.names().split(',').map(String::from).collect::<Vec<_>>()),
        "nets": rules.nets.iter().map(ToString::to_string).collect::<Vec<_>>(), "keys": keys.collect::<Vec<_>>(),
        "rate": rules.rate.map(|rate| json!({ "per_second": rate.per_second, "burst": rate.burst })),
        "sources": rules.sources.iter().map(ToString::to_string).collect::<Vec<_>>(), "once": rules.once,
        "ids": rules.ids.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "subject": rules.subject.as_ref().map(|subject| text(subject)), "label": rules.label.as_ref().map(|label| text(label)),
    })
}

fn object(token: &Token, chain: &Chain, standing: &Standing) -> Value {
    let parts = chain.parts.iter().map(|part| {
        let blocks: Vec<Value> = part.blocks.iter().map(block).collect();
        json!({ "authority": part.authority.to_string(), "generation": part.generation, "blocks": blocks })
    });
    let (valid, why) = match standing {
        Standing::Valid => (Some(true), None),
        Standing::Invalid(why) => (Some(false), Some(why)),
        Standing::Unknown => (None, None),
    };
    json!({
        "parts": parts.collect::<Vec<_>>(), "after": chain.after.iter().map(block).collect::<Vec<_>>(),
        "principal": chain.principal().to_string(), "expires": expires(chain).map(moment),
        "valid_here": valid, "because": why, "bytes": token.to_bytes().len(),
    })
}
