//! Tells a user what a command waits for while no group of the cluster answers.

use crate::{feed, out::Out};
use millrace_client::blocking::Client;
use millrace_node::{Result, cluster::PATIENCE};
use serde_json::Value;
use std::{sync::mpsc, thread, time::Duration};

/// How long a request may take before the command prints what it waits for.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Makes a request that a group has to decide. If the answer takes long, prints on standard error what it waits for, unless a program reads
/// it. The host answers within [`PATIENCE`].
pub fn patiently<T>(client: &Client, out: &Out, ask: impl FnOnce(&Client) -> Result<T>) -> Result<T> {
    if out.json() {
        return ask(client);
    }
    let (answered, is_answered) = mpsc::channel::<()>();
    let asking = client.clone();
    // The command does not wait for this thread: the host may not answer it either.
    let watch = move || {
        let is_answered = |within| is_answered.recv_timeout(within) != Err(mpsc::RecvTimeoutError::Timeout);
        if is_answered(SILENCE_MAX) {
            return;
        }
        let Some(text) = asking.show("cluster").ok().and_then(|text| waits_for(&text)) else { return };
        if !is_answered(Duration::ZERO) {
            feed::stderr(&format!("millrace: {text}\n"));
        }
    };
    // Without a thread, only the explanation is missing.
    let _ = millrace_threads::spawn(thread::Builder::new().name("millrace-patience".into()), watch);
    let answer = ask(client);
    drop(answered);
    answer
}

/// What a request waits for, from the host's document about the cluster.
fn waits_for(cluster: &str) -> Option<String> {
    let cluster: Value = serde_json::from_str(cluster).ok()?;
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("?").to_owned();
    let hosts = cluster["hosts"].as_array()?.iter().filter(|host| host["trouble"].is_string());
    let silent: Vec<String> =
        hosts.map(|host| format!("host {} at {} does not answer", text(host, "name"), text(host, "address"))).collect();
    let mut reasons = Vec::new();
    if cluster["leader"].is_null() {
        reasons.push(format!("group {} has no leader", text(&cluster, "group")));
    }
    reasons.extend(silent);
    if reasons.is_empty() {
        reasons.push("`millrace cluster why` lists known problems".into());
    }
    Some(format!("waiting up to {} s for a decision of the cluster: {}", PATIENCE.as_secs(), reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_hosts_that_do_not_answer_are_named() {
        let host = |name: &str, trouble: Value| json!({ "name": name, "address": "h:1", "trouble": trouble });
        let hosts = [host("a", Value::Null), host("b", json!("MR5001: refused"))];
        let lost = json!({ "group": "main", "leader": null, "hosts": hosts }).to_string();
        assert_eq!(
            waits_for(&lost).as_deref(),
            Some(
                "waiting up to 10 s for a decision of the cluster: group main has no leader; host b at h:1 does not answer"
            )
        );
        let well = json!({ "group": "main", "leader": "0a", "hosts": hosts[..1] }).to_string();
        assert!(waits_for(&well).is_some_and(|text| text.contains("`millrace cluster why`")));
    }
}
