//! Which answers wait for a database, and what is written to it.

use millrace_namespace::{
    AppendOptions, Code, CreateOptions, Durability, Gated, Namespace, Of, Site,
    databases::{DatabaseMarks, DatabaseSettings, WriteBatch, Writes},
};
use millrace_wire::{
    DatabaseName, TableMode,
    table::{Condition, KeyRange, TableAnswer, TableOptions, TableRequest},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Short, so that retention drops what is written.
const HISTORY: u64 = 20;

struct World {
    namespace: Namespace,
    marks: Arc<DatabaseMarks>,
    _dir: tempfile::TempDir,
}

fn name(text: &str) -> DatabaseName {
    text.parse().unwrap()
}

fn settings(text: &str) -> DatabaseSettings {
    DatabaseSettings::new(name(text), "postgresql://127.0.0.1:1/x".into())
}

fn written(database: &str) -> TableOptions {
    TableOptions { database: Some(name(database)), ..TableOptions::default() }
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions {
            durability: Durability::Memory,
            segment_bytes: 1 << 20,
            retain_bytes: 1 << 20,
            ..CreateOptions::default()
        };
        let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
        for database in ["main", "second"] {
            assert_eq!(namespace.set_database(&settings(database)).unwrap(), "created");
        }
        let table = |name: &str, options| namespace.create_table(&name.parse().unwrap(), HISTORY, options).unwrap();
        table("grades", written("main"));
        table("others", written("second"));
        table("events", TableOptions { mode: TableMode::Asynchronous, ..written("main") });
        table("local", TableOptions::default());
        namespace.create_log(&"log".parse().unwrap(), HISTORY).unwrap();
        let marks = namespace.wait_for_databases(true).unwrap();
        Self { namespace, marks, _dir: dir }
    }

    fn ask(&self, table: &str, request: &TableRequest<'_>) -> Gated<TableAnswer> {
        self.namespace.ask_table_gated(table, request, AppendOptions::default()).unwrap()
    }

    fn put(&self, table: &str, key: &str, value: &str) -> Gated<TableAnswer> {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        self.ask(table, &TableRequest::Put { key, value, condition: Condition::Always, ttl_ms: 0 })
    }

    fn get(&self, table: &str, key: &str) -> Gated<TableAnswer> {
        self.ask(table, &TableRequest::Get { key: key.as_bytes() })
    }

    /// Everything of this database is written.
    fn write(&self, database: &str) {
        let newest = self.marks.lag(&name(database)).unwrap().newest;
        self.marks.advance(&name(database), newest);
    }

    fn writes(&self, database: &str) -> Writes {
        let stats = self.namespace.table_stats().unwrap();
        let its = stats.into_iter().filter(|stat| stat.options.database == Some(name(database)));
        let tables: BTreeSet<_> = its.map(|stat| stat.name).collect();
        let settings = self.namespace.database(database).unwrap();
        Writes::of(&self.namespace, &self.marks, &settings, tables).unwrap()
    }
}

fn waits<T>(answer: Gated<T>) -> bool {
    answer.now().is_err()
}

fn all(writes: &mut Writes) -> Vec<WriteBatch> {
    std::iter::from_fn(|| writes.take().unwrap()).collect()
}

#[test]
fn an_answer_waits_for_what_it_shows_and_for_nothing_else() {
    let world = World::new();
    let scan = TableRequest::Scan { range: KeyRange::default(), limit: 10, keys_only: false };
    assert!(waits(world.put("grades", "a", "1")));
    assert!(waits(world.get("grades", "a")) && waits(world.get("grades", "absent")));
    assert!(waits(world.ask("grades", &scan)));
    assert!(waits(world.namespace.get_gated("grades", 1, None).unwrap()));
    assert!(waits(world.namespace.latest_gated("grades", None).unwrap()));
    // Nothing of this depends on the write.
    assert!(!waits(world.put("local", "a", "1")) && !waits(world.get("local", "a")));
    assert!(!waits(world.put("events", "a", "1")) && !waits(world.get("events", "a")));
    assert!(!waits(world.namespace.append_gated("log", b"x", AppendOptions::default()).unwrap()));
    assert!(!waits(world.get("others", "a")) && !waits(world.ask("others", &scan)));
    assert!(!waits(world.ask("grades", &TableRequest::Describe)));
    world.write("second");
    assert!(waits(world.get("grades", "a")));
    world.write("main");
    assert!(!waits(world.get("grades", "a")) && !waits(world.get("grades", "absent")));
    // A deletion is unwritten as well.
    let delete = TableRequest::Delete { key: b"a", condition: Condition::Always };
    assert!(waits(world.ask("grades", &delete)));
    assert!(waits(world.get("grades", "a")) && !waits(world.namespace.get_gated("grades", 1, None).unwrap()));
    world.write("main");
    assert!(!waits(world.get("grades", "a")));
}

#[test]
fn a_refusal_that_names_a_version_waits() {
    let world = World::new();
    drop(world.put("grades", "a", "1"));
    let request = TableRequest::Put { key: b"a", value: b"2", condition: Condition::Absent, ttl_ms: 0 };
    let Err(held) = world.ask("grades", &request).now() else { panic!("it names version 1") };
    world.write("main");
    assert_eq!(held.now().ok().unwrap().unwrap_err().code(), Code::TableVersionDiffers);
}

#[test]
fn writes_come_in_order_and_once_and_continue_after_a_restart() {
    let world = World::new();
    let mut writes = world.writes("main");
    writes.seek(0).unwrap();
    for n in 0..5 {
        drop(world.put("grades", &format!("k{n}"), &n.to_string()));
        drop(world.put("others", "k", &n.to_string()));
        drop(world.put("events", "e", &n.to_string()));
        drop(world.put("local", "l", &n.to_string()));
    }
    drop(world.ask("grades", &TableRequest::Delete { key: b"k0", condition: Condition::Always }));
    let batches = all(&mut writes);
    assert_eq!(batches.len(), 11);
    assert!(batches.is_sorted_by_key(|batch| batch.number));
    assert!(batches.iter().all(|batch| batch.requires.is_empty()), "each depends on itself only");
    assert_eq!(batches[10].writes[0].value, None);
    assert!(all(&mut writes).is_empty());
    // The host ends when four batches are written.
    writes.noted().written(Some(batches[3].number));
    let mut again = world.writes("main");
    again.seek(batches[3].number).unwrap();
    assert_eq!(all(&mut again), batches[4..]);
    // A database that was restored gets what it lacks.
    again.seek(batches[1].number).unwrap();
    assert_eq!(all(&mut again), batches[2..]);
    again.noted().written(Some(batches[10].number));
    assert!(!waits(world.get("grades", "k1")));
}

#[test]
fn what_is_not_written_is_kept_by_retention() {
    let world = World::new();
    let mut expected = BTreeMap::new();
    let value = format!("\"{}\"", "x".repeat(30_000));
    for n in 0..200u32 {
        drop(world.put("grades", &format!("k{}", n % 7), &value));
        expected.insert(n + 1, format!("k{}", n % 7));
        if n % 20 == 19 {
            world.namespace.reclaim().unwrap();
        }
    }
    let delete = TableRequest::Delete { key: b"k1", condition: Condition::Always };
    drop(world.ask("grades", &delete));
    world.namespace.reclaim().unwrap();
    let mut writes = world.writes("main");
    writes.seek(0).unwrap();
    let batches = all(&mut writes);
    assert_eq!(batches.len(), 201);
    for (batch, (version, key)) in batches.iter().zip(&expected) {
        assert_eq!((batch.writes[0].version, &*batch.writes[0].key), ((*version).into(), key.as_bytes()));
    }
    let first = world.namespace.journal().first();
    writes.noted().written(Some(batches[200].number));
    // In a journal that does not grow, nothing more is looked at.
    for _ in 0..60 {
        let _ = world.namespace.append("log", &[0; 100_000], AppendOptions::default()).unwrap();
    }
    // The other database has nothing to write, which is progress as well.
    let mut second = world.writes("second");
    second.seek(0).unwrap();
    assert!(all(&mut second).is_empty() && all(&mut writes).is_empty());
    second.noted().written(Some(0));
    writes.noted().written(Some(batches[200].number));
    // Each call does a part of the work.
    let dropped = (0..100).any(|_| {
        world.namespace.reclaim().unwrap();
        world.namespace.journal().first() > first
    });
    assert!(dropped, "it is dropped once it is written");
    assert_eq!(writes.seek(batches[3].number).unwrap_err().code(), Code::DatabaseBehind);
    // Copies that retention has made are not written again.
    writes.seek(batches[200].number).unwrap();
    assert!(all(&mut writes).is_empty());
}

#[test]
fn what_a_database_cannot_have_is_refused_when_it_is_made() {
    let world = World::new();
    let refused = |table: &str, key: &str, value: &str| {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let request = TableRequest::Put { key, value, condition: Condition::Always, ttl_ms: 0 };
        world.namespace.ask_table_gated(table, &request, AppendOptions::default()).map(drop).unwrap_err().code()
    };
    for value in ["{\"a\": \"\\u0000\"}", "{\"\\u0000\": 1}", "\"\\ud800\"", "1e999", "{"] {
        assert_eq!(refused("grades", "a", value), Code::TableValueInvalid, "{value}");
    }
    drop(world.put("local", "a", "\"\\u0000\""));
    let small = DatabaseSettings::new(name("small"), "etcd://127.0.0.1:1".into());
    world.namespace.set_database(&small).unwrap();
    world.namespace.create_table(&"few".parse().unwrap(), 10, written("small")).unwrap();
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    assert_eq!(refused("few", "a", &long), Code::DatabaseLimit);
    let changes = |count: usize| {
        let keys: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        let put = |key| TableRequest::Put { key, value: b"1", condition: Condition::Always, ttl_ms: 0 };
        let all: Vec<_> = keys.iter().map(|key| ("few", put(key.as_bytes()))).collect();
        world.namespace.change_tables_gated(&all, AppendOptions::default()).map(drop)
    };
    changes(127).unwrap();
    assert_eq!(changes(128).unwrap_err().code(), Code::DatabaseLimit);
    let long = "x".repeat(64).parse().unwrap();
    let code = |error: millrace_namespace::Error| error.code();
    assert_eq!(world.namespace.create_table(&long, 1, written("main")).map_err(code).err(), Some(Code::DatabaseLimit));
    let table = "nowhere".parse().unwrap();
    assert_eq!(
        world.namespace.create_table(&table, 1, written("no")).map_err(code).err(),
        Some(Code::DatabaseNotFound)
    );
    let removed = world.namespace.remove_log(&"grades".parse().unwrap());
    assert_eq!(removed.unwrap_err().code(), Code::TableInDatabase);
}

#[test]
fn changes_are_refused_while_the_database_is_too_far_behind() {
    let world = World::new();
    let small = DatabaseSettings { unwritten_max: Some(100_000), ..settings("main") };
    assert_eq!(world.namespace.set_database(&small).unwrap(), "changed");
    assert_eq!(world.namespace.set_database(&small).unwrap(), "unchanged");
    let value = format!("\"{}\"", "x".repeat(60_000));
    drop(world.put("grades", "a", &value));
    drop(world.put("grades", "b", &value));
    let put = TableRequest::Put { key: b"c", value: b"1", condition: Condition::Always, ttl_ms: 0 };
    let ask = || world.namespace.ask_table_gated("grades", &put, AppendOptions::default()).map(drop);
    let error = ask().unwrap_err();
    assert_eq!(error.code(), Code::DatabaseBacklog);
    assert!(error.retry_after_ms().is_some());
    // Nothing else is refused.
    drop(world.put("others", "a", "1"));
    let mut writes = world.writes("main");
    writes.seek(0).unwrap();
    let last = all(&mut writes).last().unwrap().number;
    writes.noted().written(Some(last));
    ask().unwrap();
}

#[test]
fn settings_with_a_password_are_refused_and_not_shown() {
    let world = World::new();
    for url in
        ["postgresql://app:hunter2@db/x", "mysql://hunter2@db/x", "hunter2", "postgresql://db/x?password=hunter2"]
    {
        let error = world.namespace.set_database(&DatabaseSettings::new(name("main"), url.into())).unwrap_err();
        assert_eq!(error.code(), Code::DatabaseUrl, "{url}");
        assert!(!error.detail().contains("hunter2"), "{error}");
    }
}

#[test]
fn a_sender_gets_the_records_before_the_first_unwritten_one() {
    let world = World::new();
    drop(world.put("grades", "a", "1"));
    drop(world.put("grades", "b", "2"));
    let mut writes = world.writes("main");
    writes.seek(0).unwrap();
    let batches = all(&mut writes);
    let log = world.namespace.log(&name("grades")).unwrap();
    assert_eq!(world.namespace.count_written(&log, 1, 10).unwrap_err().code(), Code::WritesWaiting);
    writes.noted().written(Some(batches[0].number));
    assert_eq!(world.namespace.count_written(&log, 1, 10).unwrap(), 1);
    assert_eq!(world.namespace.count_written(&log, 2, 10).unwrap_err().code(), Code::WritesWaiting);
    // A later record that depends on nothing stays behind; that of another log does not.
    let _ = world.namespace.append("log", b"x", AppendOptions::default()).unwrap();
    let other = world.namespace.log(&name("log")).unwrap();
    assert_eq!(world.namespace.count_written(&other, 1, 10).unwrap(), 10);
    writes.noted().written(Some(batches[1].number));
    assert_eq!(world.namespace.count_written(&log, 1, 10).unwrap(), 10);
}

/// The checks above see it if a site does not wait.
#[test]
fn without_its_wait_an_answer_is_early() {
    let world = World::new();
    drop(world.put("grades", "a", "1"));
    assert!(waits(world.get("grades", "a")) && waits(world.namespace.get_gated("grades", 1, None).unwrap()));
    world.namespace.gate().take_out(Site::Table, Of::Far);
    assert!(!waits(world.get("grades", "a")) && waits(world.namespace.get_gated("grades", 1, None).unwrap()));
}
