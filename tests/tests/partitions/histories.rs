//! The check of histories: what it accepts, and what it has to refuse.

use millrace_tests::history::check;
use serde_json::{Value, json};

/// An operation: its client, what it did, and when; without an end it was not answered.
fn line(client: u64, kind: &str, op: &str, input: Value, output: Value, (call, end): (u64, Option<u64>)) -> Value {
    json!({
        "client": client, "kind": kind, "key": "k", "op": op, "input": input, "output": output, "call": call, "return": end,
    })
}

#[track_caller]
fn is_refused(what: &str, lines: &[Value]) {
    let refused = check(lines).expect_err(what);
    assert!(refused.contains("no order of its"), "{refused}");
}

#[test]
fn histories_of_integers_that_no_order_explains_are_refused() {
    let integer = |op, input, output, times| line(0, "integer", op, input, output, times);
    let set = integer("set", json!(5), json!(5), (0, Some(9)));
    let get = |value: i64, call, end| integer("get", json!(null), json!(value), (call, Some(end)));
    check(&[set.clone(), get(0, 1, 2), get(5, 3, 4)]).expect("the new value is seen once it is there");
    is_refused("a value that was gone came back", &[set.clone(), get(5, 1, 2), get(0, 3, 4)]);
    is_refused("an old value after the answer", &[set, get(0, 10, 11)]);
    let add = |output: i64, call, end| integer("add_and_get", json!(1), json!(output), (call, Some(end)));
    is_refused("two have the same sum", &[add(1, 0, 1), add(1, 0, 1)]);
    let swap = |was: bool| integer("compare_and_set", json!([0, 1]), json!(was), (0, Some(1)));
    is_refused("two have replaced the same value", &[swap(true), swap(true)]);
    check(&[swap(true), swap(false)]).expect("one of them was late");
    let open = integer("set", json!(7), json!(null), (0, None));
    check(&[open.clone(), get(0, 1, 2)]).expect("what was not answered may not have taken place");
    check(&[open.clone(), get(0, 1, 2), get(7, 30, 31)]).expect("or late");
    is_refused("and not be undone", &[open, get(7, 1, 2), get(0, 30, 31)]);
}

#[test]
fn histories_of_locks_that_no_order_explains_are_refused() {
    let acquire = |client, token: Value, call, end| line(client, "lock", "acquire", json!(null), token, (call, end));
    let release = |client, call, end| line(client, "lock", "release", json!(null), json!(null), (call, Some(end)));
    check(&[acquire(1, json!(10), 0, Some(1)), release(1, 2, 5), acquire(2, json!(11), 0, Some(6))])
        .expect("one after the other");
    is_refused(
        "two hold it",
        &[acquire(1, json!(10), 0, Some(1)), acquire(2, json!(11), 2, Some(3)), release(1, 5, 6)],
    );
    is_refused(
        "tokens shrink",
        &[acquire(1, json!(10), 0, Some(1)), release(1, 2, 3), acquire(2, json!(9), 4, Some(5))],
    );
    is_refused("another one releases it", &[acquire(1, json!(10), 0, Some(1)), release(2, 2, 3)]);
    check(&[acquire(1, json!(null), 0, None), acquire(2, json!(5), 1, Some(2))]).expect("it still waits");
}

#[test]
fn histories_of_topics_that_no_order_explains_are_refused() {
    let publish = |data: &str, index: Value, call, end| line(0, "topic", "publish", json!(data), index, (call, end));
    let range = |records: Value, call| line(1, "topic", "range", json!(1), records, (call, Some(call + 1)));
    let latest = |index: u64, call| line(1, "topic", "latest", json!(null), json!(index), (call, Some(call + 1)));
    let newest =
        |index: u64, data: &str, call| line(1, "topic", "get", json!(0), json!([index, data]), (call, Some(call + 1)));
    let both = [publish("a", json!(1), 0, Some(1)), publish("b", json!(2), 2, Some(3))];
    let with = |more: &[Value]| [&both[..], more].concat();
    check(&with(&[range(json!([[1, "a"], [2, "b"]]), 10), latest(2, 12), newest(2, "b", 14)]))
        .expect("as it was published");
    is_refused("a record is lost", &with(&[range(json!([[1, "a"]]), 10)]));
    is_refused("the newest record is lost", &with(&[latest(1, 10)]));
    is_refused("the order changes", &with(&[range(json!([[1, "b"], [2, "a"]]), 10)]));
    is_refused("the newest record is another one", &with(&[newest(2, "a", 10)]));
    is_refused("an index is left out", &[both[0].clone(), publish("b", json!(3), 2, Some(3))]);
    is_refused("an index is there twice", &[both[0].clone(), publish("b", json!(1), 2, Some(3))]);
    is_refused("a record that nobody published", &with(&[range(json!([[1, "a"], [2, "b"], [3, "c"]]), 10)]));
    // Not answered: it may be there, late or never, and then for good.
    let open = publish("c", json!(null), 2, None);
    let three = json!([[1, "a"], [2, "b"], [3, "c"]]);
    let with = |more: &[Value]| [&both[..], std::slice::from_ref(&open), more].concat();
    check(&with(&[range(json!([[1, "a"], [2, "b"]]), 10)])).expect("never");
    check(&with(&[range(json!([[1, "a"], [2, "b"]]), 10), range(three.clone(), 20)])).expect("late");
    is_refused("it is gone again", &with(&[range(three, 10), range(json!([[1, "a"], [2, "b"]]), 20)]));
    is_refused(
        "it is gone again, as another read has it",
        &with(&[newest(3, "c", 10), range(json!([[1, "a"], [2, "b"]]), 20)]),
    );
    // Many of them: without what follows from the last read, every order of them would be tried.
    let many = (0..40).map(|at| publish(&format!("lost {at}"), json!(null), 0, None));
    let many: Vec<Value> = many.chain(with(&[range(json!([[1, "a"], [2, "b"]]), 10)])).collect();
    check(&many).expect("none of them took place");
    // Acknowledged before it has its place.
    check(&[publish("a", json!(0), 0, Some(1)), latest(0, 2), latest(1, 4)]).expect("its place comes later");
}
