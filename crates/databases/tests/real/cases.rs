//! What every engine does: one case after the other, each with streams and tables of its own.

use bytes::Bytes;
use millrace_databases::{
    Engine, Found, Keys, Options, Page, Secret, Standing, Table, Target, Values, engine,
    writebehind::{Operation, Outcome, RefusalKind, Row, Transaction},
};
use millrace_tests::PATIENCE;
use millrace_wire::{Code, Result};
use std::{future::Future, time::Duration};
use tokio::{runtime, time::timeout};

/// A server, and what a test can do to it.
pub trait Lab {
    fn engine(&self) -> Box<dyn Engine>;
    /// How it is reached, if by an address.
    fn options(&self) -> Option<Options>;
    fn die(&mut self);
    fn live(&mut self);
    /// Makes the server refuse values that begin with `"poison` in a table, if it can.
    fn refuse_poison(&mut self, table: &str) -> bool;
    /// Undoes this.
    fn cure(&mut self, table: &str);
    /// Whether there is a password to be wrong.
    fn has_password(&self) -> bool {
        self.options().is_some_and(|options| options.secret.is_some())
    }
    /// Whether pages are in the order of keys.
    fn is_ordered(&self) -> bool {
        true
    }
    /// Whether versions are kept.
    fn has_versions(&self) -> bool {
        true
    }
    /// Whether the server keeps what it has when it is killed.
    fn survives(&self) -> bool {
        true
    }
}

/// A case with its names.
pub struct Case<'a> {
    pub lab: &'a mut dyn Lab,
    name: String,
}

type Run = fn(&mut Case<'_>);

macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as Run)),*] };
}

const CASES: &[(&str, Run)] = cases![
    a_fresh_stream_has_the_number_0,
    writes_are_found_with_their_versions,
    later_writes_replace_earlier_ones_and_deletes_remove,
    an_empty_transaction_changes_only_the_number,
    a_wrong_predecessor_writes_nothing,
    pipelined_transactions_are_answered_in_their_order,
    pipelined_successors_of_a_stale_transaction_write_nothing,
    pipelined_successors_of_a_refused_transaction_write_nothing,
    a_stream_continues_behind_a_refused_transaction,
    another_owner_is_refused,
    a_stream_is_handed_over_and_its_former_owner_writes_nothing,
    an_older_connection_of_the_owner_writes_nothing_twice,
    two_streams_are_independent,
    a_transaction_over_several_tables_is_whole,
    equal_keys_of_two_tables_are_different,
    nothing_is_taken_before_the_database_is_open,
    no_more_than_the_limit_is_in_flight,
    a_dropped_wait_loses_no_outcome,
    a_transaction_with_as_many_rows_as_allowed,
    a_long_key_and_a_long_value,
    an_empty_value,
    keys_and_values_of_any_bytes,
    text_is_ordered_by_its_bytes,
    json_is_json,
    large_numbers_and_versions,
    strange_names,
    reserved_and_impossible_names_are_refused,
    pages_continue_where_the_last_one_ended,
    a_table_that_is_unknown,
    what_was_acknowledged_survives_a_kill,
    a_killed_server_is_reported_and_reached_again,
    after_a_lost_connection_the_number_says_what_is_written,
    an_address_where_nobody_listens,
    a_wrong_password_is_reported_and_not_printed,
];

/// Runs all cases.
pub fn run(lab: &mut dyn Lab) {
    let mut seen = 0;
    for (at, (name, case)) in CASES.iter().enumerate() {
        println!("{name}");
        case(&mut Case { lab, name: format!("c{at}") });
        seen += 1;
    }
    println!("{seen} cases");
}

/// Runs a future, which must end.
pub fn wait<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: runtime::Runtime =
            runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(async { timeout(PATIENCE, work).await.expect("it ends") }))
}

pub fn put(table: &str, key: &str, value: &str, version: u64) -> Row {
    let operation = Operation::Put(Bytes::copy_from_slice(value.as_bytes()));
    Row { table: table.into(), key: Bytes::copy_from_slice(key.as_bytes()), operation, version }
}

pub fn delete(table: &str, key: &str) -> Row {
    Row { table: table.into(), key: Bytes::copy_from_slice(key.as_bytes()), operation: Operation::Delete, version: 0 }
}

pub fn table(name: &str, keys: Keys, values: Values) -> Table {
    Table { name: name.into(), keys, values }
}

pub fn send(engine: &mut dyn Engine, after: u64, number: u64, rows: Vec<Row>) {
    engine.submit(Transaction { after, number, rows }).expect("there is room");
}

pub fn next(engine: &mut dyn Engine) -> Outcome {
    wait(engine.next())
}

pub fn write(engine: &mut dyn Engine, after: u64, number: u64, rows: Vec<Row>) {
    send(engine, after, number, rows);
    assert_eq!(next(engine), Outcome::Written(number));
}

pub fn page(engine: &mut dyn Engine, table: &str) -> Page {
    let mut page = wait(engine.scan(table, None, 10_000)).expect("it can be read");
    page.rows.sort_by(|one, other| one.key.cmp(&other.key));
    page
}

impl Case<'_> {
    /// A table of this case, with text and JSON unless it is said otherwise.
    fn target(&self) -> Target {
        self.target_of(Keys::Text, Values::Json)
    }

    fn target_of(&self, keys: Keys, values: Values) -> Target {
        Target {
            stream: format!("{}-stream", self.name),
            owner: "ours".into(),
            previous_owner: None,
            tables: vec![table(&self.table(), keys, values)],
            accept_volatile: false,
            refuse_outside: false,
        }
    }

    fn table(&self) -> String {
        format!("{}_table", self.name)
    }

    fn opened(&self, target: &Target) -> Box<dyn Engine> {
        let mut engine = self.lab.engine();
        wait(engine.open(target)).expect("it opens");
        engine
    }

    fn open(&self) -> Box<dyn Engine> {
        self.opened(&self.target())
    }

    /// The rows as text.
    fn rows(&self, engine: &mut dyn Engine) -> Vec<(String, String)> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("text");
        page(engine, &self.table()).rows.iter().map(|row| (text(&row.key), text(&row.value))).collect()
    }

    fn put(&self, key: &str, value: &str) -> Row {
        put(&self.table(), key, value, 1)
    }
}

fn rows(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn standing(engine: &mut dyn Engine, target: &Target) -> Result<Standing> {
    wait(engine.open(target))
}

fn a_fresh_stream_has_the_number_0(case: &mut Case) {
    let mut engine = case.lab.engine();
    let first = standing(&mut *engine, &case.target()).unwrap();
    assert_eq!((first.number, first.is_durable), (0, true));
    assert_eq!(standing(&mut *engine, &case.target()).unwrap(), first, "a second time");
    assert_eq!(page(&mut *engine, &case.table()), Page { number: 0, rows: vec![], has_more: false });
}

fn writes_are_found_with_their_versions(case: &mut Case) {
    let mut engine = case.open();
    let table = case.table();
    write(&mut *engine, 0, 5, vec![put(&table, "a", "1", 7), put(&table, "b", "2", 9)]);
    let page = page(&mut *engine, &table);
    let version = |version| case.lab.has_versions().then_some(version);
    let found =
        |key: &'static str, value: &'static str, at| Found { key: key.into(), value: value.into(), version: at };
    assert_eq!(page.rows, [found("a", "1", version(7)), found("b", "2", version(9))]);
    assert_eq!((page.number, page.has_more), (5, false));
    assert_eq!(standing(&mut *engine, &case.target()).unwrap().number, 5);
}

fn later_writes_replace_earlier_ones_and_deletes_remove(case: &mut Case) {
    let mut engine = case.open();
    write(&mut *engine, 0, 1, vec![case.put("a", "1"), case.put("b", "1"), case.put("c", "1")]);
    let table = case.table();
    write(&mut *engine, 1, 2, vec![case.put("a", "2"), delete(&table, "b"), delete(&table, "never")]);
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "2"), ("c", "1")]));
    write(&mut *engine, 2, 3, vec![case.put("b", "3")]);
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "2"), ("b", "3"), ("c", "1")]));
}

fn an_empty_transaction_changes_only_the_number(case: &mut Case) {
    let mut engine = case.open();
    write(&mut *engine, 0, 1, vec![case.put("a", "1")]);
    write(&mut *engine, 1, 8, vec![]);
    assert_eq!(page(&mut *engine, &case.table()).number, 8);
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "1")]));
}

fn a_wrong_predecessor_writes_nothing(case: &mut Case) {
    let mut engine = case.open();
    let table = case.table();
    write(&mut *engine, 0, 2, vec![case.put("a", "1")]);
    for after in [0, 1, 3] {
        send(&mut *engine, after, 9, vec![case.put("b", "1"), delete(&table, "a")]);
        assert_eq!(next(&mut *engine), Outcome::Stale(9), "after {after}");
    }
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "1")]));
    assert_eq!(page(&mut *engine, &table).number, 2);
    write(&mut *engine, 2, 3, vec![case.put("b", "1")]);
}

fn pipelined_transactions_are_answered_in_their_order(case: &mut Case) {
    let mut engine = case.open();
    let many = engine.limits().in_flight as u64;
    for number in 1..=many {
        send(&mut *engine, number - 1, number, vec![case.put("a", &number.to_string())]);
    }
    for number in 1..=many {
        assert_eq!(next(&mut *engine), Outcome::Written(number));
    }
    assert_eq!(case.rows(&mut *engine), rows(&[("a", &many.to_string())]));
}

fn pipelined_successors_of_a_stale_transaction_write_nothing(case: &mut Case) {
    let mut engine = case.open();
    let many = engine.limits().in_flight as u64;
    for number in 2..=many {
        send(&mut *engine, number - 1, number, vec![case.put("a", "1")]);
    }
    for number in 2..=many {
        assert_eq!(next(&mut *engine), Outcome::Stale(number));
    }
    assert_eq!(case.rows(&mut *engine), []);
}

fn pipelined_successors_of_a_refused_transaction_write_nothing(case: &mut Case) {
    let mut engine = case.open();
    let many = engine.limits().in_flight as u64;
    if many < 3 || !case.lab.refuse_poison(&case.table()) {
        return;
    }
    send(&mut *engine, 0, 1, vec![case.put("a", "1")]);
    send(&mut *engine, 1, 2, vec![case.put("b", "2"), case.put("c", "\"poison\"")]);
    send(&mut *engine, 2, 3, vec![case.put("a", "3")]);
    assert_eq!(next(&mut *engine), Outcome::Written(1));
    let refused = next(&mut *engine);
    let is_data = matches!(&refused, Outcome::Refused { number: 2, refusal, .. } if refusal.kind == RefusalKind::Data);
    assert!(is_data, "{refused:?}");
    assert_eq!(next(&mut *engine), Outcome::Stale(3));
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "1")]));
    case.lab.cure(&case.table());
}

fn a_stream_continues_behind_a_refused_transaction(case: &mut Case) {
    let mut engine = case.open();
    if !case.lab.refuse_poison(&case.table()) {
        return;
    }
    send(&mut *engine, 0, 1, vec![case.put("b", "2"), case.put("c", "\"poison\"")]);
    let refused = next(&mut *engine);
    let Outcome::Refused { refusal, .. } = &refused else { panic!("{refused:?}") };
    assert!(!refusal.code.is_empty() && !refusal.detail.is_empty(), "{refusal:?}");
    write(&mut *engine, 0, 1, vec![case.put("b", "2")]);
    case.lab.cure(&case.table());
    write(&mut *engine, 1, 2, vec![case.put("c", "\"poison\"")]);
    assert_eq!(case.rows(&mut *engine), rows(&[("b", "2"), ("c", "\"poison\"")]));
}

fn another_owner_is_refused(case: &mut Case) {
    let mut engine = case.open();
    write(&mut *engine, 0, 1, vec![case.put("a", "1")]);
    let theirs = Target { owner: "theirs".into(), ..case.target() };
    let error = standing(&mut *case.lab.engine(), &theirs).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseOwned);
    assert!(error.detail().contains("'ours'"), "{error}");
    write(&mut *engine, 1, 2, vec![case.put("a", "2")]);
}

fn a_stream_is_handed_over_and_its_former_owner_writes_nothing(case: &mut Case) {
    let mut former = case.open();
    write(&mut *former, 0, 1, vec![case.put("a", "1")]);
    let theirs = Target { owner: "theirs".into(), previous_owner: Some("ours".into()), ..case.target() };
    let mut engine = case.lab.engine();
    assert_eq!(standing(&mut *engine, &theirs).unwrap().number, 1);
    send(&mut *former, 1, 2, vec![case.put("a", "former")]);
    assert_eq!(next(&mut *former), Outcome::Stale(2));
    write(&mut *engine, 1, 2, vec![case.put("a", "2")]);
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "2")]));
    assert_eq!(standing(&mut *former, &case.target()).unwrap_err().code(), Code::DatabaseOwned);
    assert_eq!(standing(&mut *engine, &theirs).unwrap().number, 2, "the previous owner may still be named");
}

fn an_older_connection_of_the_owner_writes_nothing_twice(case: &mut Case) {
    let mut older = case.open();
    let mut engine = case.open();
    write(&mut *engine, 0, 1, vec![case.put("a", "1")]);
    send(&mut *older, 0, 1, vec![case.put("a", "older")]);
    assert_eq!(next(&mut *older), Outcome::Stale(1));
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "1")]));
}

fn two_streams_are_independent(case: &mut Case) {
    let mut one = case.open();
    let other_table = format!("{}_other", case.name);
    let target = Target {
        stream: format!("{}-other", case.name),
        tables: vec![table(&other_table, Keys::Text, Values::Json)],
        ..case.target()
    };
    let mut other = case.opened(&target);
    write(&mut *one, 0, 7, vec![case.put("a", "1")]);
    write(&mut *other, 0, 3, vec![put(&other_table, "a", "2", 1)]);
    assert_eq!((page(&mut *one, &case.table()).number, page(&mut *other, &other_table).number), (7, 3));
}

fn a_transaction_over_several_tables_is_whole(case: &mut Case) {
    let names: Vec<String> = (0..3).map(|at| format!("{}_{at}", case.name)).collect();
    let kinds = [(Keys::Text, Values::Json), (Keys::Bytes, Values::Bytes), (Keys::Text, Values::Text)];
    let tables = names.iter().zip(kinds).map(|(name, (keys, values))| table(name, keys, values)).collect();
    let mut engine = case.opened(&Target { tables, ..case.target() });
    let all = |value: &str| names.iter().map(|name| put(name, "k", value, 1)).collect::<Vec<Row>>();
    write(&mut *engine, 0, 1, all("1"));
    send(&mut *engine, 0, 2, all("2"));
    assert_eq!(next(&mut *engine), Outcome::Stale(2));
    for name in &names {
        assert_eq!(&page(&mut *engine, name).rows[0].value[..], b"1", "{name}");
    }
    let mixed = vec![delete(&names[0], "k"), put(&names[1], "k", "3", 1), delete(&names[2], "k")];
    write(&mut *engine, 1, 2, mixed);
    let counts: Vec<usize> = names.iter().map(|name| page(&mut *engine, name).rows.len()).collect();
    assert_eq!(counts, [0, 1, 0]);
}

fn equal_keys_of_two_tables_are_different(case: &mut Case) {
    if !case.lab.is_ordered() {
        return; // DynamoDB's names of tables have letters, digits and three signs.
    }
    // As text these could be the same: "a" + "b/c" and "a/b" + "c".
    let names = [case.name.clone(), format!("{}/b", case.name)];
    let tables = names.iter().map(|name| table(name, Keys::Text, Values::Text)).collect();
    let mut engine = case.opened(&Target { tables, ..case.target() });
    write(&mut *engine, 0, 1, vec![put(&names[0], "b/c", "1", 1), put(&names[1], "c", "2", 1)]);
    write(&mut *engine, 1, 2, vec![put(&names[0], "b:c", "3", 1)]);
    let found = page(&mut *engine, &names[0]).rows;
    assert_eq!(found.iter().map(|row| &row.value[..]).collect::<Vec<_>>(), [b"1", b"3"]);
    assert_eq!(page(&mut *engine, &names[1]).rows.len(), 1);
    write(&mut *engine, 2, 3, vec![delete(&names[1], "c")]);
    assert_eq!(page(&mut *engine, &names[0]).rows.len(), 2);
}

fn nothing_is_taken_before_the_database_is_open(case: &mut Case) {
    let mut engine = case.lab.engine();
    assert!(engine.submit(Transaction { after: 0, number: 1, rows: vec![case.put("a", "1")] }).is_err());
    assert!(wait(engine.scan(&case.table(), None, 1)).is_err());
}

fn no_more_than_the_limit_is_in_flight(case: &mut Case) {
    let mut engine = case.open();
    let many = engine.limits().in_flight as u64;
    (1..=many).for_each(|number| send(&mut *engine, number - 1, number, vec![case.put("a", "1")]));
    let one_more = Transaction { after: many, number: many + 1, rows: vec![] };
    assert!(engine.submit(one_more.clone()).is_err());
    assert_eq!(next(&mut *engine), Outcome::Written(1));
    assert!(engine.submit(one_more).is_ok());
    (2..=many + 1).for_each(|number| assert_eq!(next(&mut *engine), Outcome::Written(number)));
}

fn a_dropped_wait_loses_no_outcome(case: &mut Case) {
    let mut engine = case.open();
    for number in 1..=20 {
        send(&mut *engine, number - 1, number, vec![case.put("a", &number.to_string())]);
        let outcome = wait(async {
            loop {
                tokio::select! {
                    biased;
                    outcome = engine.next() => return outcome,
                    () = tokio::time::sleep(Duration::from_micros(50)) => {}
                }
            }
        });
        assert_eq!(outcome, Outcome::Written(number));
    }
}

fn a_transaction_with_as_many_rows_as_allowed(case: &mut Case) {
    let mut engine = case.open();
    let count = engine.limits().rows.min(3000);
    let many = (0..count).map(|at| case.put(&format!("k{at:05}"), &at.to_string())).collect();
    write(&mut *engine, 0, 1, many);
    assert_eq!(page(&mut *engine, &case.table()).rows.len(), count);
    let table = case.table();
    write(&mut *engine, 1, 2, (0..count).map(|at| delete(&table, &format!("k{at:05}"))).collect());
    assert_eq!(page(&mut *engine, &table).rows.len(), 0);
}

fn a_long_key_and_a_long_value(case: &mut Case) {
    let mut engine = case.opened(&case.target_of(Keys::Text, Values::Text));
    let limits = engine.limits();
    let key = "k".repeat(limits.key.min(1024));
    let value = "v".repeat(limits.value.min(300_000));
    write(&mut *engine, 0, 1, vec![case.put(&key, &value)]);
    assert_eq!(case.rows(&mut *engine), rows(&[(&key, &value)]));
}

fn an_empty_value(case: &mut Case) {
    let mut engine = case.opened(&case.target_of(Keys::Text, Values::Text));
    write(&mut *engine, 0, 1, vec![case.put("a", "")]);
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "")]));
}

fn keys_and_values_of_any_bytes(case: &mut Case) {
    let mut engine = case.opened(&case.target_of(Keys::Bytes, Values::Bytes));
    let table = case.table();
    let all: Vec<u8> = (0..=255).collect();
    let keys: Vec<Bytes> = (0..=255).map(|byte: u8| Bytes::from(vec![byte])).collect();
    for (at, keys) in keys.chunks(64).enumerate() {
        let put = |key: &Bytes| Row {
            table: table.as_str().into(),
            key: key.clone(),
            operation: Operation::Put(all.clone().into()),
            version: 1,
        };
        write(&mut *engine, at as u64, at as u64 + 1, keys.iter().map(put).collect());
    }
    let found = wait(engine.scan(&table, None, 1000)).unwrap().rows;
    if case.lab.is_ordered() {
        assert_eq!(found.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), keys, "in the order of their bytes");
    }
    assert!(found.len() == 256 && found.iter().all(|row| row.value == all));
}

fn text_is_ordered_by_its_bytes(case: &mut Case) {
    let mut engine = case.open();
    let keys = ["~", "é", "Z", "a", "日本", "z", "A b", "A"];
    write(&mut *engine, 0, 1, keys.iter().map(|key| case.put(key, "1")).collect());
    let mut sorted: Vec<String> = keys.map(str::to_owned).to_vec();
    sorted.sort();
    let found = wait(engine.scan(&case.table(), None, 100)).unwrap().rows;
    let mut found: Vec<String> = found.iter().map(|row| String::from_utf8(row.key.to_vec()).unwrap()).collect();
    if !case.lab.is_ordered() {
        found.sort();
    }
    assert_eq!(found, sorted);
}

fn json_is_json(case: &mut Case) {
    let mut engine = case.open();
    let value = r#"{"b": [1, 2.50, "é\n\"", null], "a": {"x": true}}"#;
    write(&mut *engine, 0, 1, vec![case.put("k", value)]);
    let parsed = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).expect("JSON");
    assert_eq!(parsed(&page(&mut *engine, &case.table()).rows[0].value), parsed(value.as_bytes()));
}

fn large_numbers_and_versions(case: &mut Case) {
    let mut engine = case.open();
    let (large, table) = (i64::MAX as u64, case.table());
    write(&mut *engine, 0, large - 1, vec![put(&table, "a", "1", large)]);
    send(&mut *engine, large - 2, large, vec![]);
    assert_eq!(next(&mut *engine), Outcome::Stale(large));
    write(&mut *engine, large - 1, large, vec![]);
    let page = page(&mut *engine, &table);
    assert_eq!(page.number, large);
    assert_eq!(page.rows[0].version, case.lab.has_versions().then_some(large));
}

fn strange_names(case: &mut Case) {
    let name = format!("{} Grades/2024.\"x\"", case.name);
    let target = Target {
        stream: format!("{} 'stream'", case.name),
        owner: "o'\"wner".into(),
        tables: vec![table(&name, Keys::Text, Values::Text)],
        ..case.target()
    };
    if !case.lab.is_ordered() {
        return; // DynamoDB's names of tables have letters, digits and three signs.
    }
    let mut engine = case.opened(&target);
    write(&mut *engine, 0, 1, vec![put(&name, "a'b\"c", "1'2\"", 1)]);
    assert_eq!(page(&mut *engine, &name).rows[0].value, "1'2\"");
    assert_eq!(standing(&mut *engine, &target).unwrap().number, 1);
}

fn reserved_and_impossible_names_are_refused(case: &mut Case) {
    for name in ["", "millrace", "millrace/streams", "millrace:keys", "millrace_streams", "a\0b", &"n".repeat(300)] {
        let target = Target { tables: vec![table(name, Keys::Text, Values::Text)], ..case.target() };
        assert_eq!(standing(&mut *case.lab.engine(), &target).unwrap_err().code(), Code::DatabaseUrl, "{name}");
    }
}

fn pages_continue_where_the_last_one_ended(case: &mut Case) {
    let mut engine = case.open();
    let keys: Vec<String> = (0..25).map(|at| format!("k{at:02}")).collect();
    write(&mut *engine, 0, 4, keys.iter().map(|key| case.put(key, "1")).collect());
    let (mut found, mut after): (Vec<Bytes>, Option<Bytes>) = (Vec::new(), None);
    for round in 0.. {
        let page = wait(engine.scan(&case.table(), after.as_deref(), 10)).unwrap();
        assert!(round < 10 && page.rows.len() <= 10 && page.number == 4, "{page:?}");
        found.extend(page.rows.iter().map(|row| row.key.clone()));
        if !page.has_more {
            break;
        }
        after = found.last().cloned();
    }
    found.sort();
    assert_eq!(found, keys);
}

fn a_table_that_is_unknown(case: &mut Case) {
    let mut engine = case.open();
    send(&mut *engine, 0, 1, vec![case.put("a", "1"), put("nowhere", "a", "1", 1)]);
    let refused = next(&mut *engine);
    let is_schema = matches!(&refused, Outcome::Refused { refusal, .. } if refusal.kind == RefusalKind::Schema);
    assert!(is_schema, "{refused:?}");
    assert_eq!(case.rows(&mut *engine), []);
    assert_eq!(wait(engine.scan("nowhere", None, 1)).unwrap_err().code(), Code::DatabaseSchema);
    write(&mut *engine, 0, 1, vec![case.put("a", "1")]);
}

fn what_was_acknowledged_survives_a_kill(case: &mut Case) {
    if !case.lab.survives() {
        return;
    }
    let mut engine = case.open();
    for number in 1..=5 {
        write(&mut *engine, number - 1, number, vec![case.put(&number.to_string(), "1")]);
    }
    case.lab.die();
    case.lab.live();
    let mut engine = case.open();
    assert_eq!(page(&mut *engine, &case.table()).number, 5);
    assert_eq!(case.rows(&mut *engine).len(), 5);
}

fn a_killed_server_is_reported_and_reached_again(case: &mut Case) {
    let mut engine = case.open();
    write(&mut *engine, 0, 1, vec![case.put("a", "1")]);
    case.lab.die();
    if engine.submit(Transaction { after: 1, number: 2, rows: vec![case.put("a", "2")] }).is_ok() {
        let lost = next(&mut *engine);
        assert!(matches!(&lost, Outcome::Lost(error) if error.code() == Code::DatabaseUnreachable), "{lost:?}");
    }
    let error = standing(&mut *engine, &case.target()).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseUnreachable, "{error}");
    case.lab.live();
    let number = if case.lab.survives() { 1 } else { 0 };
    assert_eq!(standing(&mut *engine, &case.target()).unwrap().number, number);
    write(&mut *engine, number, number + 1, vec![case.put("a", "2")]);
    assert_eq!(case.rows(&mut *engine), rows(&[("a", "2")]));
}

fn after_a_lost_connection_the_number_says_what_is_written(case: &mut Case) {
    if !case.lab.survives() {
        return;
    }
    let mut written = 0;
    for round in 0..3_u64 {
        let mut engine = case.open();
        let many = engine.limits().in_flight as u64;
        for number in written + 1..=written + many {
            send(&mut *engine, number - 1, number, vec![case.put("last", &number.to_string())]);
        }
        (0..round.min(many)).for_each(|at| assert_eq!(next(&mut *engine), Outcome::Written(written + 1 + at)));
        // The rest may or may not arrive.
        drop(engine);
        case.lab.die();
        case.lab.live();
        let mut engine = case.open();
        let number = page(&mut *engine, &case.table()).number;
        assert!((written + round.min(many)..=written + many).contains(&number), "{written} {round} {number}");
        let found = case.rows(&mut *engine);
        assert_eq!(found.first().map(|(_, value)| value.clone()), (number > 0).then(|| number.to_string()));
        written = number;
    }
}

fn an_address_where_nobody_listens(case: &mut Case) {
    let Some(options) = case.lab.options() else { return };
    let port = millrace_tests::Port::reserve();
    let address = options.address().unwrap();
    let url = options.url.replace(&format!(":{}", address.port), &format!(":{}", port.number));
    let mut engine = engine(&Options { url, ..options }).unwrap();
    let error = standing(&mut *engine, &case.target()).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseUnreachable, "{error}");
    assert!(error.detail().contains(&port.number.to_string()), "{error}");
}

fn a_wrong_password_is_reported_and_not_printed(case: &mut Case) {
    if !case.lab.has_password() {
        return;
    }
    let secret = Some(Secret::new("AKIA:hunter2"));
    let mut engine = engine(&Options { secret, ..case.lab.options().expect("an address") }).unwrap();
    let error = standing(&mut *engine, &case.target()).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseDenied, "{error}");
    assert!(!error.detail().contains("hunter2"), "{error}");
    // Nothing that failed to open takes transactions.
    assert!(engine.submit(Transaction { after: 0, number: 1, rows: vec![] }).is_err());
}
