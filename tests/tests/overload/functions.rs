//! Functions that are too slow, stuck, or do too much, and those beside them.

use crate::{Peak, function, place};
use millrace_client::{AppendOptions, Options, blocking};
use millrace_node::Namespace;
use millrace_tests::{
    eventually,
    raw::{Client, framed},
};
use millrace_wire::protocol::{Append, Appended, Failure, Get, Record};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread,
};

const WAIT_MS: u32 = 120_000;

/// Appends to a log and waits for the record that a function makes of it.
fn round(client: &mut Client, log: &str, out: &str, number: u64) {
    client.send(2, &Append { log, data: number.to_string().as_bytes(), ..Append::default() });
    client.next(|frame| frame.message::<Appended>().expect("appended"));
    client.send(3, &Get { log: out, seqno: number, wait_ms: WAIT_MS, ..Get::default() });
    client.next(|frame| _ = frame.message::<Record<'_>>().expect("the function has run"));
}

/// Posts a record over HTTP; the whole answer.
fn post(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn in_range(after_ms: u64) -> bool {
    (100..200).contains(&after_ms)
}

/// Functions here wait for a file of the test's, which a sandbox would not show.
const OPEN: [&str; 2] = ["--sandbox", "none"];

/// One function that does as many records as the file `GO` has bytes; one that is quick.
const SLOW_AND_QUICK: &str = "
import os, time
def slow(record, ctx):
    while os.path.getsize(os.environ['GO']) < record.seqno: time.sleep(0.002)
    ctx.append('done', record.data)
def quick(record, ctx):
    ctx.append('echoed', record.data)
";

#[test]
fn producers_far_beyond_a_function_get_busy_and_others_continue() {
    let gate = tempfile::tempdir().unwrap();
    let go = gate.path().join("go");
    fs::write(&go, "").unwrap();
    let logs =
        "[logs.in]\nhistory = 100000\n[logs.other]\n[logs.done]\nhistory = 100000\n[logs.echoed]\nhistory = 100000";
    let env = format!("pending_max = 20\n[functions.slow.env]\nGO = {:?}", go.to_str().unwrap());
    // Both are bound to `in`; only one of them is behind.
    let functions = function("slow", "\"in\"", &env) + &function("quick", "\"in\", \"other\"", "");
    let place = place(logs, &functions, SLOW_AND_QUICK);
    let host = place.serve_tcp(OPEN);
    let port = host.port();
    let peak = Peak::of(&host);

    // Stuck: what there is room for is taken, no more, and whoever is refused is told by whom and until when.
    let mut client = Client::connect(port);
    let mut kept: Vec<String> = (0..20).map(|n| format!("first {n}")).collect();
    for data in &kept {
        client.send(2, &Append { log: "in", data: data.as_bytes(), ..Append::default() });
        client.next(|frame| frame.message::<Appended>().expect("there is room"));
    }
    client.send(2, &Append { log: "in", data: b"refused", ..Append::default() });
    let mut asked_ms = Vec::new();
    client.next(|frame| {
        let failure: Failure<'_> = frame.message().expect("a refusal");
        assert!(failure.code == "MR2019" && failure.detail.contains("function 'slow'"), "{}", failure.detail);
        asked_ms.push(u64::from(failure.retry_after_ms.expect("when to come again")));
    });
    let answer = post(port, "/v1/namespaces/main/logs/in/records");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.to_lowercase().contains("\r\nretry-after: 1\r\n"), "{answer}");
    let reported: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    asked_ms.push(reported["error"]["retry_after_ms"].as_u64().expect("in JSON as well"));
    let to = format!("mr://127.0.0.1:{port}/main").parse().unwrap();
    let rust = blocking::Client::connect(&to, &Options::default()).unwrap();
    let error = rust.append("in", b"refused", AppendOptions::default()).unwrap_err();
    asked_ms.push(error.retry_after_ms().expect("in Rust").into());
    let said = place.run(["--json", "log", "append", "in", "refused"]);
    assert_eq!(said.code, 75, "{said:#?}");
    let reported: Value = serde_json::from_str(&said.stderr).unwrap();
    asked_ms.push(reported["error"]["retry_after_ms"].as_u64().expect("on the command line"));
    assert!(asked_ms.iter().all(|ms| in_range(*ms)), "{asked_ms:?}");
    assert!(asked_ms.iter().any(|ms| *ms != asked_ms[0]), "all are to come back at once: {asked_ms:?}");
    for n in 1..=20 {
        round(&mut client, "other", "echoed", 20 + n); // the first 20 are those of `in`
    }

    // Slow: four producers offer five times what it may do, however fast or slow both are here.
    let produce_here = |producer| {
        let go = go.clone();
        thread::spawn(move || produce(port, producer, &go))
    };
    let producers: Vec<_> = (0..4).map(produce_here).collect();
    let mut refused = 0;
    for producer in producers {
        let (acknowledged, refusals) = producer.join().unwrap();
        kept.extend(acknowledged);
        refused += refusals;
    }
    // It may do 10 for each 50 that are offered, and 20 may wait.
    assert!(refused >= 4000 - 4000 / 5 - 20, "it was never too much: {refused} refusals");
    fs::write(&go, [0; 10_000]).unwrap();
    place.idle();
    // What was acknowledged is there once and was worked on once, in order; what was refused is not there at all.
    let (records, mut done) = (place.records("in"), place.records("done"));
    assert_eq!(records, done, "every record that was taken was worked on once, in order");
    done.sort_unstable();
    kept.sort_unstable();
    assert_eq!(done, kept);
    client.send(2, &Append { log: "in", data: b"after", ..Append::default() });
    client.next(|frame| frame.message::<Appended>().expect("there is room again"));
    peak.expect_within(64 << 20);
}

/// Offers 1000 records, 50 at a time unanswered, and lets the function do ten more after each 50; those that were
/// acknowledged, and how many were refused.
fn produce(port: u16, producer: usize, go: &Path) -> (Vec<String>, usize) {
    let mut go = fs::File::options().append(true).open(go).unwrap();
    let mut client = Client::connect(port);
    let (mut acknowledged, mut refused) = (Vec::new(), 0);
    for window in 0..20 {
        let data: Vec<String> = (0..50).map(|n| format!("{producer}.{window}.{n}")).collect();
        let mut bytes = Vec::new();
        for (n, data) in data.iter().enumerate() {
            let append = Append { log: "in", data: data.as_bytes(), ..Append::default() };
            bytes.extend(framed(10 + n as u64, &append));
        }
        client.stream.write_all(&bytes).unwrap();
        for _ in &data {
            client.next(|frame| match frame.message::<Failure<'_>>() {
                Ok(failure) => {
                    assert_eq!(failure.code, "MR2019");
                    assert!(failure.retry_after_ms.is_some_and(|ms| in_range(ms.into())));
                    refused += 1;
                }
                Err(_) => {
                    frame.message::<Appended>().expect("taken or refused");
                    acknowledged.push(data[frame.heading.request as usize - 10].clone());
                }
            });
        }
        go.write_all(&[0; 10]).unwrap();
    }
    (acknowledged, refused)
}

const WIDE: &str = "
def fan(record, ctx):
    for n in range(1000): ctx.append('wide', b'%d' % n)
def narrow(record, ctx): pass
def fan2(record, ctx):
    for n in range(1000): ctx.append('wide2', b'%d' % n)
def roomy(record, ctx): ctx.append('out', record.data)
def doubles(record, ctx):
    ctx.append('loop', record.data)
    ctx.append('loop', record.data)
def quick(record, ctx): ctx.append('echoed', record.data)
";

#[test]
fn multiplying_and_self_feeding_functions_are_bounded_and_do_not_disturb_others() {
    let logs = "[logs.in]\n[logs.wide]\n[logs.wide2]\n[logs.out]\n[logs.loop]\n[logs.other]\n[logs.echoed]";
    let retries = "retries = 1\nbackoff = \"1ms\"\n";
    let functions = [
        function("fan", "\"in\"", retries),
        function("narrow", "\"wide\"", "pending_max = 100"),
        function("fan2", "\"in\"", retries),
        function("roomy", "\"wide2\"", "pending_max = 600"),
        function("doubles", "\"loop\"", &format!("{retries}pending_max = 50")),
        function("quick", "\"other\"", ""),
    ];
    let place = place(logs, &functions.concat(), WIDE);
    let host = place.serve_tcp([] as [&str; 0]);
    let peak = Peak::of(&host);
    let mut client = Client::connect(host.port());
    client.send(2, &Append { log: "loop", data: b"x", ..Append::default() });
    client.next(|frame| frame.message::<Appended>().expect("appended"));
    client.send(2, &Append { log: "in", data: b"x", ..Append::default() });
    client.next(|frame| frame.message::<Appended>().expect("appended"));
    for n in 1..=50 {
        round(&mut client, "other", "echoed", n);
    }
    // A thousand runs wait where there is room for them; where there never will be, the run that makes them is given up.
    client.send(3, &Get { log: "out", seqno: 1000, wait_ms: WAIT_MS, ..Get::default() });
    client.next(|frame| _ = frame.message::<Record<'_>>().expect("all of the thousand"));
    client.send(3, &Get { log: "dead/fan", seqno: 1, wait_ms: 0, ..Get::default() });
    client.next(|_| ());
    eventually("the run that never fits is given up", || place.run(["log", "get", "dead/fan"]).code == 0);
    assert!(place.records("dead/fan")[0].contains("MR2") || place.records("dead/fan")[0].contains("MR3"));
    assert!(place.records("wide").is_empty(), "nothing of it is left");
    // The one that feeds itself has as many runs as it may have, and no more.
    let namespace = Namespace::open(&place.namespace()).unwrap();
    for _ in 0..200 {
        let stats = namespace.functions().unwrap();
        let doubles = stats.iter().find(|stat| &*stat.name == "doubles").unwrap();
        assert!(doubles.pending() <= 2 * 50, "{} pending", doubles.pending());
    }
    for n in 51..=60 {
        round(&mut client, "other", "echoed", n);
    }
    peak.expect_within(64 << 20);
}

/// How many batches of others may go before one is proven on the dispatcher's engine; here the whole of it is at work.
#[test]
fn a_backlog_of_thousands_lets_the_others_have_their_turn() {
    const BACKLOG: u64 = 20_000;
    let logs = "[logs.bulk]\nhistory = 100000\n[logs.a]\n[logs.b]\n[logs.seen]";
    let gate = tempfile::tempdir().unwrap();
    let go = gate.path().join("go");
    let code = "
import os, time
def big(record, ctx):
    while record.seqno == 2 and not os.path.exists(os.environ['GO']): time.sleep(0.01)
def one(record, ctx): ctx.append('seen', b'1')
def two(record, ctx): ctx.append('seen', b'2')
";
    let env = format!("[functions.big.env]\nGO = {:?}", go.to_str().unwrap());
    let functions = function("big", "\"bulk\"", &env) + &function("one", "\"a\"", "") + &function("two", "\"b\"", "");
    let place = place(logs, &functions, code);
    let host = place.serve_tcp(OPEN);
    let mut client = Client::connect(host.port());
    let mut both = |n: u64| {
        for log in ["a", "b"] {
            client.send(2, &Append { log, data: b"x", ..Append::default() });
            client.next(|frame| frame.message::<Appended>().expect("appended"));
        }
        client.send(3, &Get { log: "seen", seqno: n * 2, wait_ms: WAIT_MS, ..Get::default() });
        client.next(|frame| _ = frame.message::<Record<'_>>().expect("both have run"));
    };
    // Workers that run already, so that nobody waits for a start.
    place.run(["log", "append", "bulk", "x"]).ok();
    both(1);
    place.idle();
    let namespace = Namespace::open(&place.namespace()).unwrap();
    let big = namespace.journal().catalog().unwrap().function("big").unwrap().clone();
    let lines: String = (0..BACKLOG).map(|n| format!("{n}\n")).collect();
    place.feed(["log", "append", "bulk", "--lines", "--quiet"], lines.as_bytes()).ok();
    // All of it waits: the first of them waits for the test.
    fs::write(&go, "").unwrap();
    let mut rounds = 0;
    while big.pending() > 0 {
        rounds += 1;
        both(1 + rounds);
    }
    // Whoever had to wait for the backlog to end would have come round once.
    assert!(rounds >= 5, "the others had {rounds} turns while one did {BACKLOG} runs");
    place.idle();
    assert_eq!(big.done(), 1 + BACKLOG);
}

#[test]
fn a_full_outbox_refuses_messages_and_other_work_continues() {
    let logs = "[logs.in]\n[logs.other]\n[logs.echoed]";
    let to = "mr://127.0.0.1:9/nobody/there";
    let code = format!(
        "
def sends(record, ctx): ctx.append('{to}', b'x' * 8_000_000)
def quick(record, ctx): ctx.append('echoed', record.data)
"
    );
    let place = place(
        logs,
        &(function("sends", "\"in\"", &format!("pending_max = 100\nsends = [\"{to}\"]"))
            + &function("quick", "\"other\"", "")),
        &code,
    );
    let host = place.serve_tcp([] as [&str; 0]);
    let peak = Peak::of(&host);
    let mut client = Client::connect(host.port());
    let mut sent = 0;
    let data = vec![7; 8_000_000];
    loop {
        client.send(2, &Append { log: to, data: &data, ..Append::default() });
        let refused = client.next(|frame| match frame.message::<Failure<'_>>() {
            Ok(failure) => {
                assert_eq!(failure.code, "MR6061");
                assert!(failure.retry_after_ms.is_some());
                true
            }
            Err(_) => false,
        });
        if refused {
            break;
        }
        sent += 1;
        assert!(sent < 100, "the outbox has no bound");
    }
    // Runs may fill the other half; then they wait, and are not counted as tried.
    for _ in 0..sent + 10 {
        client.send(2, &Append { log: "in", data: b"x", ..Append::default() });
        client.next(|frame| frame.message::<Appended>().expect("appended"));
    }
    eventually("a run waits for room in the outbox", || place.run(["why", "sends"]).ok().text().contains("MR6061"));
    for n in 1..=20 {
        round(&mut client, "other", "echoed", n);
    }
    assert!(place.run(["log", "get", "dead/sends"]).code != 0, "nothing was given up");
    peak.expect_within(256 << 20);
}
