//! What two namespaces know of one another: neither may remember what the other one has forgotten.

use crate::{
    reported::{newest, number_of},
    streams,
};
use millrace_node::{Code, Namespace, links::Links};
use std::collections::{BTreeSet, HashMap};

/// Every record of a log as it is there now, by seqno, safe or not.
pub fn all(namespace: &Namespace, log: &str) -> Vec<String> {
    let Ok(log) = namespace.log(log) else { return Vec::new() };
    let (mut payload, mut records) = (Vec::new(), Vec::new());
    for seqno in log.earliest().max(1)..=log.latest() {
        match namespace.journal().get(&log, seqno, &mut payload) {
            Ok(_) => records.push(String::from_utf8_lossy(&payload).into_owned()),
            Err(error) if error.code() == Code::BelowHistory => {}
            Err(error) => panic!("record {seqno} of log '{}': {error}", log.name()),
        }
    }
    records
}

fn identity(namespace: &Namespace) -> String {
    namespace.journal().namespace().to_string()
}

/// The name of the other side's outbox here, if anything was ever sent there.
fn peer_of(namespace: &Namespace, other: &Namespace) -> Option<millrace_node::links::Peer> {
    let name = served_name(other);
    let peers = Links::of(namespace).peers().ok()?;
    peers.into_iter().find(|peer| &*peer.address.peer.namespace == name)
}

/// The name under which it is served: that of the wire's end, which its own relays do not lead to.
fn served_name(namespace: &Namespace) -> &'static str {
    let leads_to = |name: &str| {
        let relays = Links::of(namespace).relays().unwrap_or_default();
        relays.iter().any(|relay| relay.address().is_some_and(|address| &*address.peer.namespace == name))
    };
    if leads_to("b") { "a" } else { "b" }
}

/// Messages to the other side that are not acknowledged.
pub fn outbox_waits(namespace: &Namespace) -> u64 {
    let logs = namespace.logs().unwrap_or_default();
    let outboxes = logs.iter().filter(|log| is_outbox(&log.name));
    outboxes.map(|log| (log.latest + 1).saturating_sub(log.earliest.max(1))).sum()
}

/// An outbox to where somebody is.
fn is_outbox(log: &str) -> bool {
    log.starts_with("_outbox/") && (log.ends_with("_a") || log.ends_with("_b"))
}

/// How much has come from the other side, so that it can be seen that it grows.
pub fn heard(namespace: &Namespace) -> u64 {
    let logs = namespace.logs().unwrap_or_default();
    let records = logs.iter().filter(|log| log.name.starts_with("from_")).map(|log| log.latest);
    let inboxes = logs.iter().filter(|log| log.name.starts_with("_inbox/") && log.name.contains("/outbox/"));
    let news = newest(namespace, "_upstream").unwrap_or_default().matches("elsewhere-").count() as u64;
    records.sum::<u64>() + inboxes.map(|log| number_of(namespace, &log.name)).sum::<u64>() + news
}

/// What `other` has of `recovered` that `recovered` does not have.
pub fn lies(other: &Namespace, recovered: &Namespace) -> Vec<String> {
    let mut lies = Vec::new();
    for (log, source) in [("from_push", "push"), ("from_pull", "pull")] {
        let (there, here) = (all(other, log), all(recovered, source));
        if !here.starts_with(&there) {
            let at = there.iter().zip(&here).take_while(|(there, here)| there == here).count();
            lies.push(format!(
                "log '{log}' has {} records from log '{source}', which has {}; they differ from record {} on",
                there.len(),
                here.len(),
                at + 1
            ));
        }
    }
    // What the function sent, it also appended here, in the same run.
    let here: BTreeSet<String> = all(recovered, "out").into_iter().collect();
    let by_hand = ["a word before", "first and last"];
    for message in all(other, "from_box").iter().filter(|message| !by_hand.contains(&message.as_str())) {
        if !here.contains(message) {
            lies.push(format!("message '{message}' arrived, and was never sent"));
        }
    }
    lies.extend(streams::lies(recovered));
    lies.extend(streams::lies_there(other, recovered));
    lies.extend(acknowledged(other, recovered));
    lies.extend(of_outbox(other, recovered));
    let (there, here) = (newest(other, "_upstream"), newest(recovered, "_upstream").unwrap_or_default());
    let told_by_it = format!("elsewhere-{}-", served_name(recovered));
    for word in there.unwrap_or_default().split('"').filter(|word| word.starts_with(&told_by_it)) {
        if !here.contains(word) {
            lies.push(format!("it told that records come by '{word}', and knows nothing of it"));
        }
    }
    lies
}

/// What `recovered` has acknowledged to `other` and lost.
fn acknowledged(other: &Namespace, recovered: &Namespace) -> Vec<String> {
    let (source, mut lies) = (identity(other), Vec::new());
    let mut check = |stream: String, acked: u64| {
        let number = number_of(recovered, &format!("_inbox/{source}/{stream}"));
        if number < acked {
            lies.push(format!("number {acked} of stream '{stream}' was acknowledged, and {number} is the last"));
        }
    };
    if let Some(peer) = peer_of(other, recovered)
        && let Ok(log) = other.log(&format!("_outbox/{}", peer.name))
    {
        check(format!("outbox/{}/{}", peer.name, peer.course.generation), log.earliest().saturating_sub(1));
    }
    if let Ok(relay) = Links::of(other).relay("push") {
        let acked = newest(other, &format!("_relay/{}", relay.id)).and_then(|text| text.parse().ok()).unwrap_or(0);
        check(format!("relay/{}/{}", relay.id, relay.course.generation), acked);
    }
    lies
}

/// What `recovered` must know once something of its outbox has come to `other`.
fn of_outbox(other: &Namespace, recovered: &Namespace) -> Vec<String> {
    let source = identity(recovered);
    let logs = other.logs().unwrap_or_default();
    let inbox = logs.iter().find(|log| log.name.starts_with(&format!("_inbox/{source}/outbox/")));
    let Some(inbox) = inbox else { return Vec::new() };
    let mut lies = Vec::new();
    let number = number_of(other, &inbox.name);
    let peer = peer_of(recovered, other);
    if number > 0 && peer.is_none_or(|peer| peer.course.namespace.is_none()) {
        lies.push(format!("{number} messages came, and their sender does not know to whom"));
    }
    // Each number that came is a record there, or its message is a dead letter here.
    let dead: BTreeSet<u64> = all(recovered, "dead/outbox")
        .iter()
        .filter_map(|letter| serde_json::from_str::<serde_json::Value>(letter).ok())
        .filter(|letter| letter["code"] == Code::RecordTooLong.id())
        .filter_map(|letter| letter["number"].as_u64())
        .collect();
    let arrived = (all(other, "from_box").len() + all(other, "from_parts").len()) as u64;
    let voids = number.saturating_sub(arrived);
    let dead_letters = dead.iter().filter(|letter| **letter <= number).count() as u64;
    if dead_letters < voids {
        lies.push(format!("{voids} messages were passed over, and {dead_letters} are dead letters"));
    }
    lies
}

/// Whether nothing is on its way any more.
pub fn has_arrived(from: &Namespace, to: &Namespace) -> bool {
    let count = |namespace: &Namespace, log: &str| namespace.log(log).map_or(0, |log| log.latest());
    outbox_waits(from) == 0
        && count(from, "push") == count(to, "from_push")
        && count(from, "pull") == count(to, "from_pull")
        && streams::has_arrived(from, to)
}

/// Whether everything arrived once and in order.
pub fn check_all(from: &Namespace, to: &Namespace) -> Result<(), String> {
    for (source, log) in [("push", "from_push"), ("pull", "from_pull")] {
        if all(from, source) != all(to, log) {
            return Err(format!("log '{log}' is not what log '{source}' is"));
        }
    }
    if let Some(lie) = streams::lies(from).into_iter().chain(streams::lies_there(to, from)).next() {
        return Err(lie);
    }
    let mut counts: HashMap<String, i64> = HashMap::new();
    let by_hand = ["a word before", "first and last"];
    all(from, "out").into_iter().for_each(|sent| *counts.entry(sent).or_default() += 1);
    let arrived = all(to, "from_box").into_iter().filter(|message| !by_hand.contains(&message.as_str()));
    arrived.for_each(|message| *counts.entry(message).or_default() -= 1);
    match counts.iter().find(|(_, count)| **count != 0) {
        Some((message, count)) => Err(format!("message '{message}': {count} are missing")),
        None => Ok(()),
    }
}
