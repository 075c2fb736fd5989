//! Single behaviours of a stream.

use bytes::Bytes;
use millrace_wire::{Code, Error};
use millrace_writebehind::{
    Batch, Limits, OnRefused, Opened, Operation, Outcome, Refusal, RefusalKind, Requirement, Row, Settings, State,
    Stream, Transaction,
};

const LIMITS: Limits = Limits { rows: 64, bytes: 4096, key: 16, value: 64, in_flight: 3 };

fn row(key: &str, value: Option<&str>) -> Row {
    let operation = value.map_or(Operation::Delete, |value| Operation::Put(Bytes::copy_from_slice(value.as_bytes())));
    Row { table: "t".into(), key: Bytes::copy_from_slice(key.as_bytes()), operation, version: 1 }
}

fn put(number: u64, key: &str, value: &str) -> Batch {
    Batch { number, stamp: number, rows: vec![row(key, Some(value))], ..Batch::default() }
}

/// A stream whose database has nothing, with the usual number of rows in a transaction.
fn open(rows: usize) -> Stream {
    let mut stream = Stream::new(Settings { rows, ..Settings::new(LIMITS) });
    assert_eq!(stream.opened(0, 0).unwrap(), Opened::Seek { after: 0, is_behind: false });
    stream
}

fn numbers(transaction: Option<Transaction>) -> Option<(u64, u64, usize)> {
    transaction.map(|transaction| (transaction.after, transaction.number, transaction.rows.len()))
}

fn lost() -> Outcome {
    Outcome::Lost(Code::DatabaseUnreachable.error("gone"))
}

fn refused(number: u64, kind: RefusalKind) -> Outcome {
    Outcome::Refused { number, row: None, refusal: Refusal { kind, code: "23514".into(), detail: "no".into() } }
}

fn stopped(stream: &Stream) -> Option<Error> {
    match stream.state() {
        State::Stopped(error) => Some(error.clone()),
        _ => None,
    }
}

#[test]
fn only_the_last_write_of_a_key_is_sent() {
    let mut stream = open(10);
    stream.push(put(1, "a", "1")).unwrap();
    stream.push(put(2, "b", "2")).unwrap();
    let rows = vec![row("a", Some("3")), row("a", None), row("c", Some("4"))];
    stream.push(Batch { number: 3, rows, ..Batch::default() }).unwrap();
    let transaction = stream.next_transaction().unwrap();
    assert_eq!(transaction.rows, [row("a", None), row("b", Some("2")), row("c", Some("4"))]);
    assert_eq!((transaction.after, transaction.number), (0, 3));
    assert_eq!(stream.unwritten().rows, 4, "each batch counts until it is written");
    stream.outcome(Outcome::Written(3));
    assert_eq!((stream.reached(), stream.unwritten().rows, stream.unwritten().bytes), (Some(3), 0, 0));
}

#[test]
fn what_arrives_while_transactions_are_unanswered_forms_the_next() {
    let mut stream = open(10);
    for number in 1..=3 {
        stream.push(put(number, "a", "x")).unwrap();
        assert_eq!(numbers(stream.next_transaction()), Some((number - 1, number, 1)));
    }
    stream.push(put(4, "a", "x")).unwrap();
    stream.push(put(5, "b", "x")).unwrap();
    assert_eq!(stream.next_transaction(), None, "three are unanswered");
    stream.outcome(Outcome::Written(1));
    assert_eq!(numbers(stream.next_transaction()), Some((3, 5, 2)));
}

#[test]
fn transactions_grow_while_there_is_a_backlog() {
    let mut stream = open(2);
    (1..=60).for_each(|number| stream.push(put(number, &format!("k{number}"), "x")).unwrap());
    let (mut sizes, mut end) = (Vec::new(), 0);
    while let Some((_, number, rows)) = numbers(stream.next_transaction()) {
        sizes.push(rows);
        end = number;
        stream.outcome(Outcome::Written(number));
    }
    assert_eq!((sizes, end), (vec![2, 4, 8, 16, 30], 60));
    stream.push(put(61, "a", "x")).unwrap();
    stream.push(put(62, "b", "x")).unwrap();
    stream.push(put(63, "c", "x")).unwrap();
    assert_eq!(numbers(stream.next_transaction()), Some((60, 62, 2)), "the usual size again");
}

#[test]
fn a_transaction_ends_before_a_batch_that_waits_for_another_database() {
    let mut stream = open(10);
    stream.push(put(1, "a", "1")).unwrap();
    let requires = vec![Requirement { database: 7, number: 40 }];
    stream.push(Batch { requires, ..put(2, "b", "2") }).unwrap();
    stream.push(put(3, "c", "3")).unwrap();
    assert_eq!(numbers(stream.next_transaction()), Some((0, 1, 1)));
    assert_eq!((stream.next_transaction(), stream.waits_for()), (None, Some((7, 40))));
    stream.other_reached(7, 39);
    assert_eq!(stream.next_transaction(), None);
    stream.other_reached(7, 40);
    assert_eq!(numbers(stream.next_transaction()), Some((1, 3, 2)));
}

#[test]
fn a_batch_that_is_alone_has_a_transaction_of_its_own() {
    let mut stream = open(10);
    stream.push(put(1, "a", "1")).unwrap();
    stream.push(Batch { is_alone: true, ..put(2, "a", "2") }).unwrap();
    stream.push(put(3, "a", "3")).unwrap();
    let sent: Vec<_> = std::iter::from_fn(|| numbers(stream.next_transaction())).collect();
    assert_eq!(sent, [(0, 1, 1), (1, 2, 1), (2, 3, 1)]);
}

#[test]
fn after_a_lost_connection_the_number_of_the_database_counts() {
    let mut stream = open(1);
    (1..=3).for_each(|number| stream.push(put(number, &format!("k{number}"), "x")).unwrap());
    (0..3).for_each(|_| drop(stream.next_transaction()));
    stream.outcome(Outcome::Written(1));
    stream.outcome(lost());
    assert!(matches!(stream.state(), State::Closed));
    assert_eq!(stream.next_transaction(), None, "nothing is sent before the number is known");
    assert_eq!(stream.opened(2, 3).unwrap(), Opened::Continue);
    assert_eq!((stream.reached(), stream.unwritten().batches), (Some(2), 1));
    assert_eq!(numbers(stream.next_transaction()), Some((2, 3, 1)));
}

#[test]
fn a_database_that_lost_transactions_gets_them_again() {
    let mut stream = open(1);
    (1..=3).for_each(|number| stream.push(put(number, &format!("k{number}"), "x")).unwrap());
    (0..3).for_each(|_| drop(stream.next_transaction()));
    (1..=2).for_each(|number| stream.outcome(Outcome::Written(number)));
    stream.outcome(Outcome::Stale(3));
    assert_eq!(stream.opened(1, 3).unwrap(), Opened::Seek { after: 1, is_behind: true });
    assert_eq!((stream.reached(), stream.unwritten().batches), (Some(1), 0), "what it had is given again");
    (2..=3).for_each(|number| stream.push(put(number, &format!("k{number}"), "x")).unwrap());
    assert_eq!(numbers(stream.next_transaction()), Some((1, 2, 1)));
}

#[test]
fn a_database_ahead_of_the_journal_stops_the_stream() {
    let mut stream = Stream::new(Settings::new(LIMITS));
    assert_eq!(stream.opened(9, 8).unwrap_err().code(), Code::DatabaseAhead);
    assert_eq!(stopped(&stream).unwrap().code(), Code::DatabaseAhead);
    stream.outcome(lost());
    assert!(stopped(&stream).is_some(), "a lost connection does not continue a stopped stream");
    stream.resume();
    assert!(matches!(stream.state(), State::Closed));
    // A number between two batches is that of another history.
    let mut stream = open(1);
    [2, 4].into_iter().for_each(|number| stream.push(put(number, &format!("k{number}"), "x")).unwrap());
    stream.outcome(lost());
    assert_eq!(stream.opened(3, 4).unwrap_err().code(), Code::DatabaseAhead);
}

#[test]
fn a_refused_transaction_is_halved_until_one_batch_is_left() {
    for on_refused in [OnRefused::Stop, OnRefused::DeadLetter] {
        let mut stream = open(8);
        for number in 1..=8 {
            let value = if number == 6 { "bad" } else { "good" };
            stream.push(Batch { on_refused, ..put(number, &format!("k{number}"), value) }).unwrap();
        }
        let (mut sent, mut written) = (Vec::new(), Vec::new());
        while let Some(transaction) = stream.next_transaction() {
            sent.push((transaction.after + 1, transaction.number));
            if transaction.rows.iter().any(|row| row.value().is_some_and(|value| &value[..] == b"bad")) {
                stream.outcome(refused(transaction.number, RefusalKind::Data));
            } else {
                stream.outcome(Outcome::Written(transaction.number));
                written.extend(transaction.rows);
            }
            if let Some((batch, refusal)) = stream.dead() {
                assert_eq!((batch.number, refusal.code.as_str()), (6, "23514"));
                stream.buried();
            }
        }
        if on_refused == OnRefused::Stop {
            assert_eq!((stream.reached(), stopped(&stream).unwrap().code()), (Some(5), Code::DatabaseRefused));
        } else {
            assert_eq!((stream.reached(), written.len()), (Some(8), 7));
        }
        assert!(sent.len() <= 10, "{sent:?}");
    }
}

#[test]
fn the_successors_of_a_refused_transaction_are_sent_again() {
    let mut stream = open(1);
    (1..=3).for_each(|number| stream.push(put(number, &format!("k{number}"), "x")).unwrap());
    (0..3).for_each(|_| drop(stream.next_transaction()));
    stream.outcome(refused(1, RefusalKind::Schema));
    assert!(matches!(stream.state(), State::Draining));
    stream.outcome(Outcome::Stale(2));
    assert!(matches!(stream.state(), State::Draining));
    stream.outcome(Outcome::Stale(3));
    assert_eq!(stopped(&stream).unwrap().code(), Code::DatabaseSchema);
    stream.resume();
    assert_eq!(stream.opened(0, 3).unwrap(), Opened::Continue);
    assert_eq!(numbers(stream.next_transaction()), Some((0, 1, 1)));
}

#[test]
fn a_batch_that_no_transaction_can_contain_stops_the_stream_before_it() {
    let mut stream = open(10);
    stream.push(put(1, "a", "x")).unwrap();
    let rows = (0..65).map(|key| row(&format!("k{key}"), Some("x"))).collect();
    let error = stream.push(Batch { number: 2, rows, ..Batch::default() }).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseLimit);
    assert!(error.detail().contains("65 rows; the limit of the database is 64"), "{error}");
    assert_eq!(numbers(stream.next_transaction()), Some((0, 1, 1)), "the earlier ones are written");
    assert_eq!(stream.next_transaction(), None);
    stream.outcome(Outcome::Written(1));
    assert_eq!(stream.next_transaction(), None);
    assert_eq!((stream.reached(), stopped(&stream).unwrap().code()), (Some(1), Code::DatabaseLimit));
    for (key, value, word) in [("seventeen letters", "x", "key"), ("a", &"x".repeat(65)[..], "value")] {
        let error = open(10).push(put(1, key, value)).unwrap_err();
        assert!(error.detail().contains(word), "{error}");
    }
}

#[test]
fn a_full_stream_has_no_room_until_something_is_written() {
    let mut stream = Stream::new(Settings { unwritten_rows_max: 2, ..Settings::new(LIMITS) });
    stream.opened(0, 0).unwrap();
    stream.push(put(1, "a", "x")).unwrap();
    assert!(stream.has_room());
    stream.push(put(2, "b", "x")).unwrap();
    assert!(!stream.has_room());
    assert_eq!((stream.unwritten().batches, stream.unwritten().bytes, stream.unwritten().oldest), (2, 4, Some(1)));
    drop(stream.next_transaction());
    assert!(!stream.has_room(), "sent is not written");
    stream.outcome(Outcome::Written(2));
    assert!(stream.has_room());
}
