//! How many records flow between logs, functions and other namespaces.

use millrace_documents::{FlowDoc, FlowKind, FlowsDoc, rfc3339};
use millrace_node::{FLOWS_MAX, Hlc, Namespace, Way, links::Links};
use millrace_wire::Result;
use std::time::UNIX_EPOCH;

/// What was counted since the host started; the newest number of a relay's or outbox's records is counted since it exists.
pub(crate) fn of(namespace: &Namespace) -> Result<FlowsDoc> {
    let catalog = namespace.journal().catalog()?;
    let flows = namespace.flows();
    let mut edges = Vec::new();
    for (flow, records) in flows.now() {
        // A log or function that was removed has no name any more.
        let log = catalog.log_by_id(flow.log).map(|log| log.name().to_string());
        let function = catalog.function_by_id(flow.function).map(|function| function.name().to_string());
        if log.is_none() || function.is_none() {
            continue;
        }
        let (kind, letter) = match flow.way {
            Way::Runs => (FlowKind::Runs, 'r'),
            Way::Appends => (FlowKind::Appends, 'a'),
            Way::Reads => (FlowKind::Reads, 'g'),
        };
        let id = format!("{letter}{}.{}", flow.function, flow.log);
        edges.push(FlowDoc { id, kind, function, log, to: None, records });
    }
    for link in Links::of(namespace).view()? {
        let is_relay = link.kind == "relay";
        let (kind, records) = match is_relay {
            true => (FlowKind::Relays, (link.acked + 1).saturating_sub(link.start.max(1))),
            false => (FlowKind::Sends, link.sent),
        };
        let id = format!("{}/{}", link.kind, link.name);
        let log = is_relay.then_some(link.from);
        edges.push(FlowDoc { id, kind, function: None, log, to: Some(link.to), records });
    }
    let more = edges.len() > FLOWS_MAX;
    edges.truncate(FLOWS_MAX);
    let since = flows.since().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    Ok(FlowsDoc { since: rfc3339(Hlc::from_wall_us(since)), edges, more })
}
