//! Runs that change two tables, while the owner and the replica are killed and the line between them is cut: whoever reads the replicas sees
//! only states that the owner had.

use crate::world::{Line, Site};
use millrace_tests::eventually;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Changes of one phase.
const CHANGES: usize = 30;
const PHASES: usize = 8;

/// Changes both tables at once: change `n` sets a key, or deletes it, and both tables say that it was the last one.
const OWNER: &str = "
def change(record, ctx):
    n = record.json()
    grades, totals = ctx.table('grades'), ctx.table('totals')
    key = f'k{n * 7 % 12}'
    if n % 5 == 0:
        grades.delete(key)
        totals.delete(key)
    else:
        grades[key] = n
        totals[key] = n
    grades['last'] = n
    totals['last'] = n
";
const REPLICA: &str = "
import json


def look(record, ctx):
    ctx.append('seen', json.dumps([dict(ctx.table('grades').scan()), dict(ctx.table('totals').scan())]))
";

/// The state after `n` changes.
fn state(n: usize) -> BTreeMap<String, Value> {
    let mut state = BTreeMap::new();
    for n in 1..=n {
        let key = format!("k{}", n * 7 % 12);
        if n % 5 == 0 {
            state.remove(&key)
        } else {
            state.insert(key, json!(n))
        };
        state.insert("last".into(), json!(n));
    }
    state
}

fn check(table: &Value) -> usize {
    let seen: BTreeMap<String, Value> = serde_json::from_value(table.clone()).unwrap();
    let last = seen.get("last").and_then(Value::as_u64).unwrap_or(0) as usize;
    assert_eq!(seen, state(last), "this was no state of the owner");
    last
}

#[test]
fn readers_of_two_replicas_see_only_states_of_their_owner() {
    let (mut owner, mut replica) = (Site::new("school"), Site::new("cloud"));
    owner.place.write("change.py", OWNER);
    owner.place.write(
        "millrace.toml",
        "[logs.changes]\n[tables.grades]\n[tables.totals]\nhistory = 5\n\
         [functions.change]\nruntime = \"python\"\ncode = \"change.py\"\nhandler = \"change:change\"\non = [\"changes\"]\nconcurrency = 1\n",
    );
    owner.place.run(["up"]).ok();
    let line = Line::to(owner.port.number);
    let from = |table: &str| format!("mr://127.0.0.1:{}/school/{table}", line.port);
    // The second one is loaded beside the first one.
    replica.place.run(["table", "mirror", "grades", "--from", &from("grades")]).ok();
    replica.follows("grades");
    replica.place.write("look.py", REPLICA);
    replica.place.write(
        "millrace.toml",
        &format!(
            "[tables.grades]\nfrom = \"{}\"\n[tables.totals]\nfrom = \"{}\"\n[logs.looks]\n[logs.seen]\n[functions.look]\n\
             runtime = \"python\"\ncode = \"look.py\"\nhandler = \"look:look\"\non = [\"looks\"]\n",
            from("grades"),
            from("totals")
        ),
    );
    replica.place.run(["up"]).ok();
    replica.follows("totals");
    let (mut changed, mut looks) = (0, 0);
    for phase in 0..PHASES {
        let lines: String = (0..CHANGES)
            .map(|_| {
                changed += 1;
                format!("{changed}\n")
            })
            .collect();
        owner.place.feed(["log", "append", "changes", "--lines"], lines.as_bytes()).ok();
        for _ in 0..4 {
            replica.place.run(["log", "append", "looks", "1"]).ok();
            looks += 1;
            // Two reads by somebody outside: the second one shows at least what the first one did.
            let read = |table: &str, after: &[&str]| {
                let command = ["--json", "table", "get", table, "last"].into_iter().chain(after.iter().copied());
                let ended = replica.place.run(command);
                (ended.code == 0).then(|| ended.object())
            };
            if let Some(first) = read("grades", &[]) {
                let token = first["token"].as_str().unwrap().to_owned();
                let second = read("totals", &["--after", &token]).expect("it has what it showed");
                let number = |answer: &Value| answer["data"].as_str().unwrap().parse::<u64>().unwrap();
                assert!(number(&second) >= number(&first), "{first} {second}");
            }
        }
        match phase % 4 {
            0 => line.cut(),
            1 => {
                replica.kill();
                replica.start();
            }
            2 => {
                owner.kill();
                owner.start();
            }
            _ => {
                line.cut();
                owner.kill();
                replica.kill();
                owner.start();
                replica.start();
            }
        }
    }
    owner.place.idle();
    let last = json!(changed.to_string());
    eventually("everything is here", || {
        ["grades", "totals"].iter().all(|table| replica.get(table, "last").is_some_and(|read| read["data"] == last))
    });
    replica.place.run(["log", "append", "looks", "1"]).ok();
    looks += 1;
    replica.place.idle();
    let failures = replica.place.run(["run", "failures"]);
    let seen = replica.place.records("seen");
    assert_eq!(seen.len(), looks, "{failures:#?}");
    assert_eq!(seen.len(), looks);
    let mut before = 0;
    for seen in seen {
        let both: Value = serde_json::from_str(&seen).unwrap();
        let last = check(&both[0]);
        assert_eq!(both[0], both[1], "the tables are of two moments");
        assert!(last >= before, "a state went back");
        before = last;
    }
    assert_eq!(before, changed);
    for table in ["grades", "totals"] {
        assert_eq!(replica.all(table), owner.all(table));
    }
    replica.place.run(["namespace", "check"]).ok();
}
