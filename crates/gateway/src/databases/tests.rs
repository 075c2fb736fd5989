//! The writers of databases, with a Redis.

use super::*;
use millrace_node::{AppendOptions, CreateOptions, Durability};
use millrace_tests::{
    Port, eventually,
    servers::{self, ServerProcess, answers},
};
use millrace_wire::{
    TableMode,
    table::{Condition, TableOptions, TableRequest},
};

const HISTORY: u64 = 1000;
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);
/// Commits that change no table, and how often there are so many.
const UNRELATED: usize = 2000;
const ROUNDS: usize = 5;

struct Site {
    namespace: Namespace,
    _redis: ServerProcess,
    _port: Port,
    _dir: tempfile::TempDir,
}

impl Site {
    /// A namespace whose tables `grades` and `events` are written to a Redis; no answer waits for `events`.
    fn new() -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), Port::reserve());
        let mut command = servers::redis(&port, dir.path());
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        let redis = ServerProcess::start(command);
        eventually("Redis answers", || answers(&port, b"PING\r\n") == Some(b'+'));
        let options =
            CreateOptions { durability: Durability::Memory, segment_bytes: 1 << 20, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
        let main: DatabaseName = "main".parse().unwrap();
        namespace.set_database(&DatabaseSettings::new(main, format!("redis://127.0.0.1:{port}"))).unwrap();
        let written = TableOptions { database: Some(main), ..TableOptions::default() };
        namespace.create_table(&"grades".parse().unwrap(), HISTORY, written).unwrap();
        let asynchronous = TableOptions { mode: TableMode::Asynchronous, ..written };
        namespace.create_table(&"events".parse().unwrap(), HISTORY, asynchronous).unwrap();
        namespace.create_log(&"other".parse().unwrap(), HISTORY).unwrap();
        Self { namespace, _redis: redis, _port: port, _dir: dir }
    }

    /// Returns once the answer leaves: for `grades`, when Redis has the value.
    fn put(&self, table: &str) {
        let put = TableRequest::Put { key: b"a", value: b"1", condition: Condition::Always, ttl_ms: 0 };
        self.namespace.ask_table_gated(table, &put, AppendOptions::default()).unwrap().wait().unwrap();
    }

    fn append(&self) {
        self.namespace.append("other", b"x", AppendOptions::default()).unwrap();
    }

    fn unwritten(&self) -> u64 {
        self.namespace.database_stats().unwrap()[0].lag.rows
    }
}

#[test]
fn unrelated_commits_do_not_wake_the_supervisor_and_an_answer_that_waits_does() {
    let site = Site::new();
    let pace = SupervisorPace { pause: NEVER, ..SupervisorPace::default() };
    let (looks, pauses) = (pace.looks.clone(), pace.pauses.clone());
    let _writers = DatabaseWriters::start_with(&site.namespace, pace).unwrap();
    site.put("grades");
    eventually("it pauses", || {
        site.append();
        pauses.load(Ordering::Acquire) > 0
    });
    let mut looked = 0;
    // The answer above may have woken it a moment before its first pause, which then ends at once.
    eventually("unrelated commits do not wake it", || {
        looked = looks.load(Ordering::Acquire);
        for _ in 0..ROUNDS {
            (0..UNRELATED).for_each(|_| site.append());
            thread::sleep(LOOK_EVERY / 10);
        }
        looks.load(Ordering::Acquire) == looked
    });
    // Nobody waits for this one, so it is written later.
    site.put("events");
    assert_eq!((looks.load(Ordering::Acquire), site.unwritten()), (looked, 1));
    site.put("grades");
    assert!(looks.load(Ordering::Acquire) > looked);
    assert_eq!(site.unwritten(), 0);
}

#[test]
fn what_nobody_waits_for_is_written_while_other_logs_grow() {
    let site = Site::new();
    let pace = SupervisorPace::default();
    let pauses = pace.pauses.clone();
    let _writers = DatabaseWriters::start_with(&site.namespace, pace).unwrap();
    site.put("grades");
    eventually("it pauses", || {
        site.append();
        pauses.load(Ordering::Acquire) > 0
    });
    site.put("events");
    eventually("it is written", || {
        site.append();
        site.unwritten() == 0
    });
}

#[test]
fn the_limits_that_changes_are_checked_with_are_those_of_the_engines() {
    for url in ["postgresql://x/y", "redis://x", "rediss://x", "etcd://x", "etcds://x", "dynamodb://eu-central-1"] {
        let options = Options { url: url.into(), secret: Some(Secret::new("a:b")), authorities: None };
        let limits = millrace_databases::engine(&options).unwrap().limits();
        let settings = DatabaseSettings::new("main".parse().unwrap(), url.into());
        settings.check().unwrap();
        assert_eq!(settings.limits(), (limits.rows, limits.bytes, limits.value), "{url}");
    }
}
