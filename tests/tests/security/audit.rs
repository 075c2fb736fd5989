//! What is written down of who was given rights, whose ended, and who was refused.

use super::{Hub, attacks::append_with};
use millrace_tests::{Place, end, eventually};
use serde_json::Value;

/// The lines of the audit log.
fn lines(hub: &Hub) -> Vec<Value> {
    hub.place.run(["--json", "cap", "audit", "-l", "10000"]).ok().objects()
}

fn acts(hub: &Hub) -> Vec<String> {
    lines(hub).iter().map(|line| line["act"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn grants_and_revocations_are_audited() {
    let (hub, edge) = (Hub::new(), Place::empty());
    assert!(hub.place.run(["cap", "audit"]).ok().text().contains("no capability was issued"));
    let issued = hub.issue("one.cap", &["--append", "raw", "--label", "kitchen"]);
    hub.place.run(["cap", "squash", &issued, "--out", "two.cap"]).ok();
    edge.run(["join", &hub.invite("edge", &["--append", "raw"])]).ok();
    hub.place.run(["cap", "revoke", "--file", &issued]).ok();
    hub.place.run(["cap", "rotate"]).ok();
    hub.place.feed(["secret", "set", "api-key"], b"not to be told").ok();
    hub.place.run(["secret", "rm", "api-key"]).ok();
    let expected =
        ["cap.issue", "cap.squash", "cap.invite", "cap.redeem", "cap.revoke", "cap.rotate", "secret.set", "secret.rm"];
    assert_eq!(acts(&hub), expected);
    let lines = lines(&hub);
    assert_eq!((&lines[0]["by"], &lines[0]["about"]), (&"owner".into(), &"kitchen".into()));
    assert_eq!(lines[0]["ids"], lines[4]["ids"], "what was revoked is what was issued");
    assert_eq!(lines[3]["by"], lines[2]["ids"][0], "whoever was invited redeems");
    let shown = hub.place.run(["cap", "audit"]).ok().text().to_owned();
    assert!(shown.contains("api-key") && !shown.contains("not to be told"), "{shown}");
    // A revocation that changes nothing is none.
    hub.place.run(["cap", "revoke", "--file", &issued]).ok();
    assert_eq!(acts(&hub).len(), expected.len());
}

#[test]
fn refusals_of_holders_are_written_down_and_those_of_strangers_are_not() {
    let (hub, edge) = (Hub::new(), Place::empty());
    let mut reads = hub.issue("reader.cap", &["--read", "raw"]);
    let id = lines(&hub)[0]["ids"][0].clone();
    for _ in 0..5 {
        append_with(&edge, &hub, &reads).fails("MR6132", 1);
    }
    eventually("it is written", || acts(&hub).contains(&"denied".to_owned()));
    let denied = &lines(&hub)[1];
    assert_eq!((&denied["by"], &denied["code"]), (&id, &"MR6132".into()), "{denied}");
    assert_eq!(denied["about"], "append log 'raw'", "{denied}");
    // More of the same is counted first.
    append_with(&edge, &hub, &reads).fails("MR6132", 1);
    assert_eq!(acts(&hub), ["cap.issue", "denied"]);
    // Anyone who has no capability of this namespace leaves nothing here.
    let elsewhere = Hub::new();
    reads = elsewhere.issue("foreign.cap", &["--read", "raw"]);
    for _ in 0..5 {
        append_with(&edge, &hub, &reads).fails("MR6138", 1);
        let url = format!("https://127.0.0.1:{}/v1/namespaces/hub/logs", hub.port);
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sk", "--max-time", "100", &url]);
        assert!(end(curl, b"").text().contains("MR6131"));
    }
    assert_eq!(acts(&hub), ["cap.issue", "denied"]);
    // Nobody may write there.
    hub.place.run(["log", "append", "_audit", "x"]).fails("MR6022", 1);
}
