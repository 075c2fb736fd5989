//! What others may change while a run is in progress.

use super::*;
use millrace_namespace::RunIsolation;
use millrace_wire::table::{Condition, TableOptions, TableRequest};

fn put(namespace: &Namespace, key: &str, value: &str) {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    let request = TableRequest::Put { key, value, condition: Condition::Always, ttl_ms: 0 };
    namespace.ask_table("t", &request, AppendOptions::default()).unwrap();
}

fn value(namespace: &Namespace, key: &str) -> Option<String> {
    let answer = namespace.ask_table("t", &TableRequest::Get { key: key.as_bytes() }, AppendOptions::default());
    let value = answer.unwrap().entries.pop()?.value?;
    Some(String::from_utf8(value).unwrap().trim_matches('"').to_owned())
}

/// A run reads something, and somebody else does something before the run ends. Returns how often it ran, and what it wrote, if it did.
fn tries(
    isolation: RunIsolation,
    read: &str,
    write: bool,
    meanwhile: impl FnOnce(&Namespace),
) -> (u64, Option<String>) {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    namespace.create_table(&"t".parse().unwrap(), 1000, TableOptions::default()).unwrap();
    for key in ["on/a", "on/b", "other"] {
        put(&namespace, key, "1");
    }
    let (tries, go) = (dir.path().join("tries"), dir.path().join("go"));
    let write = if write { "t['found'] = str(found)" } else { "pass" };
    let body = format!(
        "t = ctx.table('t')\n    found = {read}\n    open({tries:?}, 'a').write('x')\n    \
         while os.path.getsize({tries:?}) == 1 and not os.path.exists({go:?}): time.sleep(0.002)\n    {write}"
    );
    deploy(&namespace, &body, |spec| spec.isolation = isolation);
    let mut dispatcher = Dispatcher::start(namespace.clone(), None, None).unwrap();
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    let start = Instant::now();
    while !tries.exists() {
        assert!(start.elapsed() < LONG);
        thread::sleep(Duration::from_millis(2));
    }
    meanwhile(&namespace);
    std::fs::write(&go, "").unwrap();
    namespace.wait_idle(LONG).unwrap();
    dispatcher.stop(LONG).unwrap();
    (std::fs::metadata(&tries).unwrap().len(), value(&namespace, "found"))
}

const KEYS: &str = "[key for key, _ in t.scan(prefix='on/')]";

#[test]
fn a_serializable_run_is_as_if_it_had_run_alone() {
    let serializable = |read, meanwhile: &dyn Fn(&Namespace)| tries(RunIsolation::Serializable, read, true, meanwhile);
    let found = |text: &str| Some(text.to_owned());
    let delete = |namespace: &Namespace, key: &str| {
        let request = TableRequest::Delete { key: key.as_bytes(), condition: Condition::Always };
        namespace.ask_table("t", &request, AppendOptions::default()).unwrap();
    };
    assert_eq!(serializable("t.get('on/a')", &|namespace| put(namespace, "on/a", "2")), (2, found("2")));
    assert_eq!(serializable("t.get('on/c')", &|namespace| put(namespace, "on/c", "2")), (2, found("2")));
    assert_eq!(serializable(KEYS, &|namespace| put(namespace, "on/c", "2")), (2, found("['on/a', 'on/b', 'on/c']")));
    assert_eq!(serializable(KEYS, &|namespace| delete(namespace, "on/b")), (2, found("['on/a']")));
    // Beyond the records that are looked at first.
    let many = |namespace: &Namespace| {
        put(namespace, "on/c", "2");
        (0..1100).for_each(|n| put(namespace, &format!("many/{n}"), "1"));
    };
    assert_eq!(serializable(KEYS, &many), (2, found("['on/a', 'on/b', 'on/c']")));
    let append = |namespace: &Namespace| {
        namespace.append("out", b"x", AppendOptions::default()).unwrap();
    };
    assert_eq!(serializable("ctx.latest('out')", &append), (2, found("1")));
    // What it has not read may change.
    let elsewhere = |namespace: &Namespace| {
        put(namespace, "other", "2");
        (0..1100).for_each(|n| put(namespace, &format!("many/{n}"), "1"));
        append(namespace);
    };
    assert_eq!(serializable("(t.get('on/c'), [key for key, _ in t.scan(prefix='on/')])", &elsewhere).0, 1);
}

#[test]
fn a_run_with_a_snapshot_is_repeated_only_for_what_it_changes() {
    let snapshot = |read, meanwhile: &dyn Fn(&Namespace)| tries(RunIsolation::Snapshot, read, true, meanwhile).0;
    assert_eq!(snapshot("t.get('on/a')", &|namespace| put(namespace, "on/a", "2")), 1);
    assert_eq!(snapshot(KEYS, &|namespace| put(namespace, "on/c", "2")), 1);
    assert_eq!(snapshot("t.get('found')", &|namespace| put(namespace, "found", "2")), 2);
    // A run that changes nothing is as if it had run when it began.
    let reads = |namespace: &Namespace| put(namespace, "on/a", "2");
    assert_eq!(tries(RunIsolation::Serializable, "t.get('on/a')", false, reads).0, 1);
}

#[test]
fn serializable_runs_of_one_function_never_skew() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    namespace.create_table(&"t".parse().unwrap(), 1000, TableOptions::default()).unwrap();
    let people: Vec<String> = (0..40).map(|n| format!("on/{n:02}")).collect();
    people.iter().for_each(|person| put(&namespace, person, "1"));
    // Somebody may leave only while two others stay.
    let body = "t = ctx.table('t')\n    on = [key for key, _ in t.scan(prefix='on/')]\n    \
                time.sleep(0.003)\n    if len(on) > 2: del t[record.data.decode()]";
    deploy(&namespace, body, |spec| {
        (spec.ordered, spec.concurrency, spec.isolation) = (false, 4, RunIsolation::Serializable);
    });
    let mut dispatcher = Dispatcher::start(namespace.clone(), None, None).unwrap();
    for person in &people {
        namespace.append("in", person.as_bytes(), AppendOptions::default()).unwrap();
    }
    namespace.wait_idle(LONG).unwrap();
    dispatcher.stop(LONG).unwrap();
    let stay = people.iter().filter(|person| value(&namespace, person).is_some()).count();
    assert_eq!(stay, 2);
}
