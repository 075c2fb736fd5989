//! A rollback also replays runs from before the repair: a slot that links have filled gets another record, so every run is examined again,
//! and one that read the newest record of a log may now read another one.

use super::{Phase, ask, common, done, number, open_code, repairs::Ask};
use common::{Fixture, host_process, until};
use millrace_namespace::{
    Namespace,
    admission::{Publish, Room, Stage},
    names::log_name,
};
use std::fs;

/// Copies a record of a log into another log, as a relay within the namespace does.
fn copy(namespace: &Namespace, from: &str, seqno: u64, to: &str) {
    let mut payload = Vec::new();
    let source = namespace.journal().get(&namespace.log(from).unwrap(), seqno, &mut payload).unwrap();
    let cause = source.replaced.map_or(source.id, |replaced| replaced.origin);
    let inbox = log_name(&format!("_inbox/{}/relay/1/1", namespace.journal().namespace()));
    let copied = namespace.journal().commit(|tx| {
        if tx.catalog().log(&inbox).is_none() {
            tx.create_log(&inbox, 4)?;
        }
        let to = tx.catalog().log(to).cloned().unwrap();
        let stage = Stage { cause, ordinal: 0, room: Room::Outside, named: None, ending: None };
        Publish::new(namespace, tx).append(tx, &to, &payload, stage)
    });
    copied.unwrap();
}

/// A repair of the code of `f` is applied, and a run with the new code has ended since. The second run of `f` read that `x` had one record;
/// in the repair, it read none.
/// `f` appends the content of the file `word`: code that depends on more than its inputs gets the current value when it is replayed.
fn repaired() -> (Fixture, u64) {
    let fixture = Fixture::new();
    let word = fixture.dir.path().join("word");
    for log in ["in", "x", "out", "copy", "seen", "last"] {
        fixture.log(log);
    }
    fs::write(&word, "old").unwrap();
    let body = format!(
        "before = ctx.latest('x')\nctx.append('out', open({word:?}).read() + f' {{before}}')\nctx.append('x', record.data)"
    );
    fixture.python("f", &["in"], &body, |_| ());
    let is_today = "b'today' if record.data.startswith(b'today') else b'-'";
    fixture.python("g", &["out"], &format!("ctx.append('seen', {is_today})"), |_| ());
    let [go, began] = ["go", "began"].map(|name| fixture.dir.path().join(name));
    let body = format!(
        "if record.seqno == 2 and record.data == b'today':\n    open({began:?}, 'a').close()\n    \
         while not os.path.exists({go:?}): time.sleep(0.005)\nctx.append('last', record.data)"
    );
    fixture.python("h", &["seen"], &body, |_| ());
    let host = fixture.host();
    for value in ["1", "2"] {
        fixture.append("in", value);
        fixture.idle();
    }
    let body = "before = ctx.latest('x')\nctx.append('out', f'new {before}')\n\
                if record.data != b'1': ctx.append('x', record.data + b'!')";
    let repair = open_code(&fixture, "f", body, 0, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!(fixture.all("out"), ["new 0", "new 0"]);
    fixture.append("in", "3");
    fixture.idle();
    assert_eq!(fixture.all("out")[2], "new 2");
    copy(&fixture.namespace, "out", 3, "copy");
    drop(host);
    (fixture, repair)
}

#[test]
fn a_rollback_replays_runs_from_before_the_repair_with_the_code_that_they_had() {
    let (fixture, repair) = repaired();
    copy(&fixture.namespace, "out", 2, "copy");
    let host = fixture.host();
    assert_eq!(ask(&fixture, Ask::Rollback(repair, String::new())), Phase::Applied);
    assert_eq!(fixture.all("copy"), ["old 2", "old 1"], "copies follow their records");
    assert_eq!(fixture.all("out"), ["old 0", "old 1", "old 2"]);
    assert_eq!(fixture.all("x"), ["1", "2", "3"]);
    drop(host);
}

#[test]
fn a_rollback_whose_host_ends_goes_on_with_what_it_has_replayed() {
    let (fixture, repair) = repaired();
    let [word, go, began] = ["word", "go", "began"].map(|name| fixture.dir.path().join(name));
    fs::write(word, "today").unwrap();
    let mut host = host_process(&fixture.dir.path().join("ns"));
    let undone = number(Ask::Rollback(repair, String::new()).ask(&fixture.namespace).unwrap());
    until("it replays a run whose record comes from a replayed run from before the repair", || began.exists());
    host.kill().unwrap();
    host.wait().unwrap();
    fs::write(go, "").unwrap();
    let host = fixture.host();
    assert_eq!(done(&fixture, undone), Phase::Applied);
    assert_eq!(fixture.all("out"), ["old 0", "today 1", "today 2"]);
    assert_eq!(fixture.all("seen"), ["-", "today", "today"], "each is made from the record that there is");
    assert_eq!(fixture.all("last"), ["-", "today", "today"]);
    drop(host);
}
