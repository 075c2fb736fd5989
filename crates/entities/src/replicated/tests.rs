//! Commands on several replicas.

use super::*;
use crate::{Finished, Flags, SESSION_BYTES};
use millrace_wire::protocol::Fence;

const SESSIONS: [Session; 3] = [[1; SESSION_BYTES], [2; SESSION_BYTES], [3; SESSION_BYTES]];

fn call<'a>(
    session: Session,
    number: u64,
    kind: Type,
    method: &str,
    args: &'a [u8],
    new: Option<&'a [u8]>,
) -> Call<'a> {
    Call {
        session,
        number,
        acked: 0,
        kind,
        key: kind.name(),
        incarnation: 0,
        method: kind.method(method).unwrap(),
        args,
        new,
        flags: Flags { persistent: true, ..Flags::default() },
        fence: None,
    }
}

fn command(call: Call<'_>) -> Vec<u8> {
    Command::Call { token: 7, open: Some(1000), call, within: None }.encode()
}

/// Commands of many kinds, as several hosts would propose them.
fn commands(seed: u64) -> Vec<Vec<u8>> {
    let (mut chance, mut numbers, mut made) = (seed * 2 + 1, [0; 3], Vec::new());
    for _ in 0..200 {
        let mut below = |most: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % most
        };
        let at = below(3) as usize;
        numbers[at] += 1;
        let (session, number) = (SESSIONS[at], numbers[at]);
        let one = list(&[value::int(below(9) as i64)]);
        let put = list(&[value::text(["a", "b"][below(2) as usize]), value::int(below(9) as i64)]);
        let (none, two) = (list(&[]), list(&[value::int(2)]));
        let made_now = match below(14) {
            0 | 1 => command(call(session, number, Type::AtomicInt, "add_and_get", &one, None)),
            2 => command(call(session, number, Type::Dict, "set", &put, None)),
            3 => command(call(session, number, Type::Queue, "put", &one, Some(&two))),
            4 => command(call(session, number, Type::Queue, "get", &none, Some(&two))),
            5 => command(call(session, number, Type::Lock, "acquire", &none, None)),
            6 => command(call(session, number, Type::Lock, "release", &none, None)),
            7 => command(call(session, number, Type::Barrier, "wait", &none, Some(&two))),
            8 => command(call(session, number, Type::List, "append", &one, None)),
            9 => command(call(session, number, Type::List, "pop", &none, None)),
            10 => command(call(session, number, Type::Queue, "delete", &none, None)),
            11 => Command::Renew(vec![(session, 500)]).encode(),
            12 => Command::End(vec![(session, below(2))]).encode(),
            // Once more.
            _ => made.last().cloned().unwrap_or_else(|| Command::Renew(Vec::new()).encode()),
        };
        made.push(made_now);
    }
    made
}

fn shown(of: &mut Replicated) -> String {
    let sessions: Vec<_> = of.sessions().map(|(id, last, lease_ms)| (*id, last, lease_ms)).collect();
    format!("{} {sessions:?} {:?}", of.token, of.space.show("", 100))
}

#[test]
fn hosts_that_begin_with_a_snapshot_go_on_as_those_that_have_seen_all_commands() {
    for seed in 0..40 {
        let commands = commands(seed);
        let mut first = Replicated::default();
        let mut others: Vec<Replicated> = Vec::new();
        for (at, command) in commands.iter().enumerate() {
            if at % 40 == 0 {
                others.push(Replicated::decode(&first.encode()).unwrap());
            }
            let applied = format!("{:?}", first.apply(command));
            for other in &mut others {
                assert_eq!(format!("{:?}", other.apply(command)), applied, "seed {seed}, command {at}");
                assert_eq!(shown(other), shown(&mut first), "seed {seed}, command {at}");
            }
        }
    }
}

#[test]
fn a_call_that_is_repeated_counts_once_also_behind_a_snapshot() {
    let mut replica = Replicated::default();
    let args = list(&[value::int(5)]);
    let add = command(call(SESSIONS[0], 1, Type::AtomicInt, "add_and_get", &args, None));
    let first = format!("{:?}", replica.apply(&add).called);
    let mut replica = Replicated::decode(&replica.encode()).unwrap();
    assert_eq!(format!("{:?}", replica.apply(&add).called), first);
    let read = call(SESSIONS[0], 2, Type::AtomicInt, "get", &[0x90], None);
    let read = replica.peek(&read);
    assert!(matches!(read, Some(Called::Now(_, Ok(value))) if *value == *value::int(5)));
}

#[test]
fn a_session_ends_only_if_nothing_was_heard_of_it_since() {
    let mut replica = Replicated::default();
    let acquire = command(call(SESSIONS[0], 1, Type::Lock, "acquire", &[0x90], None));
    replica.apply(&acquire);
    let last = replica.sessions().next().unwrap().1;
    replica.apply(&Command::Renew(vec![(SESSIONS[0], 1000)]).encode());
    replica.apply(&Command::End(vec![(SESSIONS[0], last)]).encode());
    assert!(replica.space().is_open(&SESSIONS[0]), "it was renewed");
    // Somebody else waits for the lock, and has it once the session ends.
    let other = command(call(SESSIONS[1], 1, Type::Lock, "acquire", &[0x90], None));
    assert!(matches!(replica.apply(&other).called, Some((_, _, Ok(Called::Waiting(_))))));
    let last = replica.sessions().next().unwrap().1;
    let applied = replica.apply(&Command::End(vec![(SESSIONS[0], last)]).encode());
    assert_eq!((applied.ended, applied.ready.len()), (vec![SESSIONS[0]], 1));
    // What it still says is refused: it is not opened again by a call that asks for none.
    let args = [0x90];
    let late = call(SESSIONS[0], 2, Type::Lock, "release", &args, None);
    let late = Command::Call { token: 0, open: None, call: late, within: None }.encode();
    let refused = replica.apply(&late).called.unwrap().2.unwrap_err();
    assert_eq!(refused.code(), Code::SessionExpired);
}

#[test]
fn permits_of_a_session_that_left_do_not_return_with_its_end() {
    let mut replica = Replicated::default();
    replica.apply(&command(call(SESSIONS[0], 1, Type::Semaphore, "acquire", &[0x90], None)));
    replica.apply(&Command::Leave(vec![SESSIONS[0]]).encode());
    let mut replica = Replicated::decode(&replica.encode()).unwrap();
    replica.apply(&Command::End(vec![(SESSIONS[0], 0)]).encode());
    let value = command(call(SESSIONS[1], 1, Type::Semaphore, "value", &[0x90], None));
    let called = replica.apply(&value).called.unwrap().2.unwrap();
    assert!(matches!(called, Called::Now(_, Ok(value)) if *value == *value::int(0)));
}

#[test]
fn tokens_only_grow_whatever_clocks_say() {
    let mut replica = Replicated::default();
    let args = [0x90];
    let mut last = 0;
    for (number, token) in [(1, 50), (2, 3), (3, 900), (4, 0)] {
        let call =
            call(SESSIONS[0], number, Type::Lock, if number % 2 == 1 { "acquire" } else { "release" }, &args, None);
        replica.apply(&Command::Call { token, open: Some(9), call, within: None }.encode());
        assert!(replica.token > last);
        last = replica.token;
    }
}

#[test]
fn what_is_no_command_changes_nothing() {
    let mut replica = Replicated::default();
    let whole = command(call(SESSIONS[0], 1, Type::AtomicInt, "get", &[0x90], None));
    for bytes in [&b""[..], b"x", &whole[..whole.len() - 1]] {
        replica.apply(bytes);
    }
    assert_eq!((replica.token, replica.encode()), (0, Vec::new()));
    assert!(Replicated::decode(b"x").is_err());
}

/// A call of a method of an object of a class, version and body.
fn of_class(session: Session, number: u64, (key, method): (&'static str, &str), version: i64, body: i64) -> Vec<u8> {
    let [class, pool, code, name] = ["Gate", "p", "c", "enter"].map(value::text);
    let mut args = vec![class, pool, value::int(version), value::int(body), code];
    let new = list(&[args.clone(), vec![value::bytes(b"new")]].concat());
    match method {
        "class" => args.push(value::bytes(b"body")),
        _ => args.extend([name, value::int(100), value::bytes(b"args")]),
    }
    let args = list(&args);
    let call = Call { key, ..call(session, number, Type::Shared, method, &args, Some(&new)) };
    command(call)
}

/// The end of a step whose guard does not hold.
fn blocked(job: &Job, made: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Vec<u8> {
    job.command(STEP, Finished::Blocked(made)).encode()
}

#[test]
fn a_guard_is_tried_by_the_next_host_as_by_the_one_before() {
    let mut replica = Replicated::default();
    replica.apply(&of_class(SESSIONS[0], 1, ("gate", "class"), 1, 7));
    replica.apply(&of_class(SESSIONS[0], 2, ("gate", "call"), 1, 7));
    let job = replica.plan("gate", 1).unwrap();
    replica.apply(&blocked(&job, vec![(value::text("count"), Some(value::int(4)))]));
    let job = replica.plan("gate", 2).unwrap();
    let applied = replica.apply(&blocked(&job, Vec::new()));
    assert!(applied.work.is_empty() && applied.ready.is_empty() && replica.plan("gate", 3).is_none());
    let mut late = Replicated::decode(&replica.encode()).unwrap();
    assert!(late.plan("gate", 3).is_none());
    for host in [&mut replica, &mut late] {
        host.apply(&of_class(SESSIONS[1], 1, ("gate", "call"), 1, 7));
        let other = host.plan("gate", 4).unwrap();
        let applied = host.apply(&ran(host, &other, STEP, 1));
        assert_eq!((applied.ready.len(), applied.work.len()), (1, 1), "the guard is tried once more");
        let again = host.plan("gate", 5).unwrap();
        assert_eq!((again.ticket, count(host, &again)), (job.ticket, Some(5)));
        assert_eq!(host.apply(&ran(host, &again, STEP, 1)).ready.len(), 1);
    }
}

#[test]
fn fences_are_the_same_on_all_hosts() {
    let mut replica = Replicated::default();
    let fenced = |number, token| {
        let fence = Some(Fence { name: "door", token });
        command(Call { fence, ..call(SESSIONS[0], number, Type::AtomicInt, "add_and_get", &[0x90], None) })
    };
    replica.apply(&fenced(1, 7));
    let mut late = Replicated::decode(&replica.encode()).unwrap();
    for host in [&mut replica, &mut late] {
        assert_eq!(error_of(&host.apply(&fenced(2, 6))), Code::FenceStale);
        assert!(host.apply(&fenced(3, 7)).called.unwrap().2.is_ok());
    }
    // A call that waits has its token in a snapshot, too.
    let queue = |session: usize, method, token| {
        let fence = Some(Fence { name: "door", token });
        command(Call { fence, ..call(SESSIONS[session], 1, Type::Queue, method, &[0x90], None) })
    };
    assert!(matches!(replica.apply(&queue(1, "get", 7)).called, Some((_, _, Ok(Called::Waiting(_))))));
    let mut late = Replicated::decode(&replica.encode()).unwrap();
    for host in [&mut replica, &mut late] {
        let ready = host.apply(&queue(2, "join", 8)).ready;
        assert!(matches!(&ready[..], [(of, 1, Called::Now(_, Err(raised)))]
            if *of == SESSIONS[1] && raised.class == "millrace.FenceStale"));
    }
}

fn value_of(called: &Called) -> &[u8] {
    match called {
        Called::Now(_, Ok(value)) => value,
        other => panic!("{other:?}"),
    }
}

fn error_of(applied: &Applied) -> Code {
    applied.called.as_ref().unwrap().2.as_ref().unwrap_err().code()
}

/// The end of a step that adds one to the field `count`.
fn ran(replica: &Replicated, job: &Job, session: Session, answer: i64) -> Vec<u8> {
    let fields = replica.space.fields(&job.key, job.incarnation).unwrap();
    let fields = value::elements(&fields).unwrap();
    let count = fields.get(1).and_then(|count| value::as_int(count)).unwrap_or(0);
    let changed = vec![(value::text("count"), Some(value::int(count + 1)))];
    job.command(session, Finished::Ran(value::int(answer), changed)).encode()
}

fn count(replica: &Replicated, job: &Job) -> Option<i64> {
    let fields = replica.space.fields(&job.key, job.incarnation).unwrap();
    value::elements(&fields).unwrap().get(1).and_then(|count| value::as_int(count))
}

const STEP: Session = [9; SESSION_BYTES];

#[test]
fn a_step_that_two_hosts_run_takes_effect_once_and_all_replicas_agree() {
    let mut replicas = [Replicated::default(), Replicated::default()];
    let mut all = |command: &[u8]| {
        let [first, second] = replicas.each_mut().map(|replica| replica.apply(command));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        first
    };
    let class = of_class(SESSIONS[0], 1, ("gate", "class"), 1, 7);
    all(&class);
    let called = all(&of_class(SESSIONS[0], 2, ("gate", "call"), 1, 7));
    assert!(matches!(called.called, Some((_, _, Ok(Called::Waiting(_))))));
    assert_eq!(called.work, vec![("gate".into(), "p".into())]);
    // One behind it waits for its turn.
    all(&of_class(SESSIONS[1], 1, ("gate", "call"), 1, 7));
    let jobs = [1, 2].map(|number| replicas[0].plan("gate", number).unwrap());
    let ends = jobs.each_ref().map(|job| ran(&replicas[0], job, STEP, 10 + i64::try_from(job.number).unwrap()));
    let mut all = |command: &[u8]| {
        let [first, second] = replicas.each_mut().map(|replica| replica.apply(command));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        first
    };
    let first = all(&ends[1]);
    assert_eq!((first.ready.len(), value_of(&first.ready[0].2)), (1, &*value::int(12)));
    assert_eq!(first.work.len(), 1, "the next call may begin");
    assert_eq!(all(&ends[0]).ready.len(), 0, "the other host's end comes too late");
    assert_eq!(count(&replicas[0], &jobs[0]), Some(1));
    // Asked again, also of a host that began with a snapshot, it has the same answer.
    let mut late = Replicated::decode(&replicas[0].encode()).unwrap();
    let again = late.apply(&of_class(SESSIONS[0], 2, ("gate", "call"), 1, 7));
    assert_eq!(value_of(again.called.as_ref().unwrap().2.as_ref().unwrap()), &*value::int(12));
    assert_eq!(late.class("p", 7), Some(&b"body"[..]));
    assert_eq!(late.waiting_objects().collect::<Vec<_>>(), [("gate", "p")]);
    // The step of the second call begins with what the first has left.
    let next = late.plan("gate", 3).unwrap();
    late.apply(&ran(&late, &next, STEP, 1));
    assert_eq!(count(&late, &next), Some(2));
    assert_eq!(late.waiting_objects().count(), 0);
}

#[test]
fn calls_of_a_step_that_is_over_are_refused_and_its_session_ends_with_it() {
    let mut replica = Replicated::default();
    replica.apply(&of_class(SESSIONS[0], 1, ("gate", "class"), 1, 7));
    replica.apply(&of_class(SESSIONS[0], 2, ("gate", "call"), 1, 7));
    let job = replica.plan("gate", 1).unwrap();
    let add = |number| {
        let args = list(&[value::int(5)]);
        let call = call(STEP, number, Type::AtomicInt, "add_and_get", &args, None);
        Command::Call { token: 1, open: Some(1000), call, within: Some(job.within()) }.encode()
    };
    for _ in 0..2 {
        // Another host runs the method, too, and makes the same call.
        let applied = replica.apply(&add(1));
        assert_eq!(value_of(applied.called.as_ref().unwrap().2.as_ref().unwrap()), &*value::int(5));
    }
    let end = ran(&replica, &job, STEP, 1);
    assert_eq!(replica.apply(&end).ended, vec![STEP]);
    assert_eq!(error_of(&replica.apply(&add(2))), Code::SessionExpired);
    assert_eq!(error_of(&replica.apply(&add(1))), Code::SessionExpired, "not even that, as another session's");
    assert!(!replica.space.is_open(&STEP));
}

#[test]
fn an_object_is_made_and_migrated_only_with_a_class_that_is_here() {
    let mut replica = Replicated::default();
    let mut number = 0;
    let mut ask = |replica: &mut Replicated, method: &str, version, body| {
        number += 1;
        replica.apply(&of_class(SESSIONS[0], number, ("gate", method), version, body))
    };
    assert_eq!(error_of(&ask(&mut replica, "call", 1, 7)), Code::ClassMissing);
    assert!(replica.space.show("", 10).is_empty());
    ask(&mut replica, "class", 1, 7);
    assert!(ask(&mut replica, "call", 1, 7).called.unwrap().2.is_ok());
    // The same version from another program has another body: the object keeps its own.
    let job = replica.plan("gate", 1).unwrap();
    replica.apply(&ran(&replica, &job, STEP, 1));
    assert!(ask(&mut replica, "call", 1, 8).called.unwrap().2.is_ok());
    let job = replica.plan("gate", 2).unwrap();
    replica.apply(&ran(&replica, &job, STEP, 1));
    assert_eq!(error_of(&ask(&mut replica, "call", 2, 9)), Code::ClassMissing);
    ask(&mut replica, "class", 2, 9);
    assert!(ask(&mut replica, "call", 2, 9).called.unwrap().2.is_ok());
    // An older one that comes behind it is refused once it is its turn, on every replica.
    assert!(ask(&mut replica, "call", 1, 7).ready.is_empty());
    let job = replica.plan("gate", 3).unwrap();
    let applied = replica.apply(&ran(&replica, &job, STEP, 1));
    assert_eq!(applied.ready.len(), 2);
    assert!(matches!(&applied.ready[1].2, Called::Now(_, Err(raised)) if raised.class == "millrace.ClassChanged"));
    assert!(applied.work.is_empty());
    // The newer class is in use; of the others the last ones stay.
    for body in 100..200 {
        ask(&mut replica, "class", 1, body);
    }
    assert!(replica.class("p", 9).is_some() && replica.class("p", 199).is_some());
    assert!(replica.class("p", 7).is_none() && replica.class("p", 100).is_none());
    let mut late = Replicated::decode(&replica.encode()).unwrap();
    assert_eq!(late.encode(), replica.encode());
}

#[test]
fn a_caller_that_gives_up_leaves_a_step_without_effect_and_the_next_call_begins() {
    let mut replica = Replicated::default();
    replica.apply(&of_class(SESSIONS[0], 1, ("gate", "class"), 1, 7));
    replica.apply(&of_class(SESSIONS[0], 2, ("gate", "call"), 1, 7));
    replica.apply(&of_class(SESSIONS[1], 1, ("gate", "call"), 1, 7));
    let first = replica.plan("gate", 1).unwrap();
    let applied = replica.apply(&Command::End(vec![(SESSIONS[0], 0)]).encode());
    assert_eq!(applied.work.len(), 1, "the call behind it is next");
    let end = ran(&replica, &first, STEP, 1);
    assert!(replica.apply(&end).ready.is_empty());
    assert_eq!(count(&replica, &first), None, "the step of an ended call changes nothing");
    let next = replica.plan("gate", 2).unwrap();
    assert_ne!(next.ticket, first.ticket);
    let end = ran(&replica, &next, STEP, 1);
    assert_eq!(replica.apply(&end).ready.len(), 1);
}

#[test]
fn the_calls_of_a_finished_run_give_up_on_all_replicas() {
    let mut replicas = [Replicated::default(), Replicated::default()];
    let apply = |replicas: &mut [Replicated; 2], command: &[u8]| {
        let [first, second] = replicas.each_mut().map(|replica| replica.apply(command));
        assert_eq!(first.ready, second.ready);
        first
    };
    let (none, one, two) = (list(&[]), list(&[value::int(1)]), list(&[value::int(2)]));
    let mut number = 0;
    let mut ask = |replicas: &mut [Replicated; 2], session, kind, method: &str, args: &[u8]| {
        number += 1;
        apply(replicas, &command(call(session, number, kind, method, args, Some(&two))));
        number
    };
    let [left, other, _] = SESSIONS;
    ask(&mut replicas, left, Type::Queue, "get", &none);
    ask(&mut replicas, left, Type::Queue, "get", &none);
    let waits = ask(&mut replicas, other, Type::Queue, "get", &none);
    ask(&mut replicas, other, Type::Lock, "acquire", &none);
    ask(&mut replicas, left, Type::Lock, "acquire", &none);
    ask(&mut replicas, left, Type::Condition, "acquire", &none);
    ask(&mut replicas, left, Type::Condition, "wait", &none);
    let commands = replicas[0].giving_up(&left);
    assert_eq!(commands.len(), 3, "those of the queue and the lock, but not that of the condition");
    for command in &commands {
        let applied = apply(&mut replicas, command);
        assert!(matches!(applied.called, Some((session, _, Ok(Called::Now(..)))) if session == left), "{applied:?}");
        // Again, as when it is proposed twice.
        apply(&mut replicas, command);
    }
    assert!(replicas[0].giving_up(&left).is_empty());
    ask(&mut replicas, other, Type::Queue, "put", &one);
    assert!(matches!(replicas[1].reply(&other, waits), Some(Called::Now(_, Ok(value))) if *value == *value::int(1)));
    let [first, second] = replicas.each_mut().map(shown);
    assert_eq!(first, second);
}
