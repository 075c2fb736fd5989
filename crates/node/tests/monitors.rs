//! Monitors: functions that share one run one at a time, in trigger order, whatever else happens.

mod common;

use common::{Fixture, LONG, name};
use millrace_node::{AppendOptions, Namespace, NewRecord};
use std::time::Duration;

const READ_MODIFY_APPEND: &str = "n = ctx.latest('counter')\n\
    last = int(ctx.get('counter', n).text()) if n else 0\n\
    ctx.append('counter', str(last + 1))";

const READ_MODIFY_APPEND_C: &str = "
    unsigned char text[16]; int64_t n = mr_latest(\"counter\"); long last = 0;
    if (n > 0) {
        int64_t size = mr_get(\"counter\", (uint64_t)n, text, sizeof text);
        if (size < 0) return 1;
        for (int64_t i = 0; i < size; i++) last = 10 * last + (text[i] - '0');
    }
    last++;
    int at = sizeof text;
    do { text[--at] = (unsigned char)('0' + last % 10); last /= 10; } while (last > 0);
    return mr_append(\"counter\", text + at, sizeof text - at);";

/// Ten functions that share a monitor, each triggered a hundred times.
fn ten_counters(f: &Fixture) {
    f.log("counter");
    for n in 0..10 {
        let (function, log) = (format!("count-{n}"), format!("in/{n}"));
        f.log(&log);
        let shared = |spec: &mut millrace_node::FunctionSpec| {
            spec.monitor = Some(name("counter"));
            // As open as can be: only the monitor keeps the runs apart.
            (spec.ordered, spec.concurrency) = (false, 4);
            spec.retries = 100;
        };
        match n % 2 {
            0 => f.python(&function, &[&log], READ_MODIFY_APPEND, shared),
            _ => f.wasm(&function, &[&log], READ_MODIFY_APPEND_C, shared),
        }
    }
}

fn thousand_records() -> impl Iterator<Item = NewRecord> {
    (0..1000).map(|n| NewRecord { log: format!("in/{}", n % 10), payload: vec![] })
}

fn check(f: &Fixture) {
    let expected: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    assert_eq!(f.all("counter"), expected);
}

#[test]
fn ten_functions_that_read_modify_and_append_end_at_exactly_1000() {
    let f = Fixture::new();
    ten_counters(&f);
    let host = f.host();
    f.namespace.append_many(thousand_records().map(Ok), AppendOptions::default(), |_| {}).unwrap();
    f.idle();
    check(&f);
    host.stop(LONG).unwrap();
}

#[test]
fn they_end_at_exactly_1000_although_hosts_are_killed_in_between() {
    let f = Fixture::new();
    ten_counters(&f);
    let mut storm = common::Storm::new(f.namespace.dir());
    let namespace: Namespace = f.namespace.clone();
    for records in thousand_records().collect::<Vec<_>>().chunks(50) {
        storm.next(Duration::from_millis(60));
        namespace.append_many(records.iter().cloned().map(Ok), AppendOptions::default(), |_| {}).unwrap();
    }
    storm.next(Duration::from_millis(100));
    f.idle();
    check(&f);
    assert!(storm.kills >= 20);
}
