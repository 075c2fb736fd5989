//! Works that are streams of bytes, with an action in Python and with workers that break the rules.

mod common;

use common::{limits, no_env, worker_of};
use millrace_runtime::{
    Code, Completion, EventId, Outcome, PythonExecutor, PythonSpec, StreamCalls, StreamEnd, StreamWork, Streamer,
    Taken, WorkId,
};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// One end of a stream as a test sees it.
#[derive(Clone)]
struct End(Arc<(Mutex<State>, OwnedFd)>);

#[derive(Default)]
struct State {
    /// What the worker gets, and whether that is all.
    text: Vec<u8>,
    at: usize,
    is_whole: bool,
    /// What it has sent, how much it may, and how it ended.
    given: Vec<u8>,
    room: u32,
    ended: Option<StreamEnd>,
    result: Vec<u8>,
}

impl End {
    fn new(text: &[u8], is_whole: bool, room: u32) -> Self {
        let state = State { text: text.to_vec(), is_whole, room, ..State::default() };
        Self(Arc::new((Mutex::new(state), eventfd(0, EventfdFlags::NONBLOCK).unwrap())))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock().unwrap());
        rustix::io::write(&self.0.1, &1_u64.to_ne_bytes()).unwrap();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }
}

/// The calls, with the bytes that were taken last.
struct Calls(End, Vec<u8>);

impl StreamCalls for Calls {
    fn room(&mut self) -> u32 {
        std::mem::take(&mut self.0.state().room)
    }

    fn put(&mut self, bytes: &[u8]) {
        let mut state = self.0.state();
        state.given.extend_from_slice(bytes);
        state.room += bytes.len() as u32;
    }

    fn ended(&mut self, how: StreamEnd) {
        assert_eq!(self.0.state().ended.replace(how), None);
    }

    fn take(&mut self, bytes_max: usize) -> Taken<'_> {
        let mut state = self.0.state();
        let count = bytes_max.min(state.text.len() - state.at);
        if count == 0 && state.is_whole && state.at == state.text.len() {
            return Taken::End(StreamEnd::Whole);
        }
        self.1 = state.text[state.at..state.at + count].to_vec();
        state.at += count;
        Taken::Bytes(&self.1)
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.0.0.1.as_fd()
    }

    fn returned(&mut self, result: &[u8]) {
        self.0.state().result = result.to_vec();
    }
}

fn open(streamer: &mut dyn Streamer, name: &str, end: &End) -> millrace_runtime::Result<WorkId> {
    let work = StreamWork { name, id: EventId::from_bits(common::RUN), request: b"request" };
    streamer.open(&work, Box::new(Calls(end.clone(), Vec::new())))
}

/// Drives until so many streams have ended.
fn all(streamer: &mut dyn Streamer, count: usize) -> BTreeMap<WorkId, Completion> {
    let (mut ended, until) = (BTreeMap::new(), Instant::now() + Duration::from_secs(120));
    while ended.len() < count {
        assert!(Instant::now() < until, "the streams do not end");
        for (id, completion) in streamer.drive(Some(until)) {
            assert_eq!(ended.insert(id, completion), None);
        }
    }
    ended
}

/// Drives until this holds.
fn drive_until(streamer: &mut dyn Streamer, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < until, "it does not happen");
        assert_eq!(streamer.drive(Some(Instant::now() + Duration::from_millis(20))), []);
    }
}

const ACTIONS: &str = r#"
import os, time
def handler(record, ctx): pass
def action(name, request, stream):
    assert request == b"request"
    if name == "fails":
        print("about to fail", flush=True)
        raise ValueError("no")
    if name == "dies":
        os._exit(3)
    if name == "stays":
        try:
            stream.read()
        except Exception as error:
            assert error.code == "MR3140", error
        while True: time.sleep(1)
    total = 0
    while data := stream.read():
        total += len(data)
        stream.write(data.upper())
    return b"%d" % total
handler.__millrace_stream__ = action
handler.__millrace_streams__ = 8
"#;

fn python() -> (PythonExecutor, TempDir) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("actions.py"), ACTIONS).unwrap();
    let spec = PythonSpec {
        python: "python3".into(),
        dir: dir.path().to_owned(),
        module: "actions".into(),
        function: "handler".into(),
        env: no_env(),
        scratch: None,
    };
    (PythonExecutor::new(spec, limits()), dir)
}

#[test]
fn several_streams_are_open_at_once_and_end_in_any_order() {
    let (mut python, _dir) = python();
    // Much more than any window, in both directions.
    let ends: Vec<End> =
        (1..=8_usize).map(|n| End::new(&vec![b'a' + n as u8; n * 500_000], n != 1, 100_000 * n as u32)).collect();
    let ids: Vec<WorkId> = ends.iter().map(|end| open(&mut python, "upper", end).unwrap()).collect();
    let one_more = open(&mut python, "upper", &End::new(b"", true, 0)).unwrap_err();
    assert_eq!(one_more.code(), Code::Busy, "{one_more}");
    let mut ended = all(&mut python, 7);
    assert!(!ended.contains_key(&ids[0]), "its bytes have not ended");
    ends[0].change(|state| {
        state.text.extend_from_slice(b"more");
        state.is_whole = true;
    });
    ended.extend(all(&mut python, 1));
    for (n, (end, id)) in ends.iter().zip(&ids).enumerate() {
        let state = end.state();
        assert_eq!(ended[id].outcome, Outcome::Done);
        assert!(state.given == state.text.to_ascii_uppercase(), "stream {n}");
        assert_eq!((&*state.result, &state.ended), (state.text.len().to_string().as_bytes(), &Some(StreamEnd::Whole)));
    }
    assert_eq!(python.drive(None), []);
}

#[test]
fn a_receiver_that_takes_nothing_holds_up_its_own_stream_only() {
    let (mut python, _dir) = python();
    let (full, free) = (End::new(&[b'x'; 3_000_000], true, 0), End::new(&[b'y'; 3_000_000], true, 1000));
    let full_id = open(&mut python, "upper", &full).unwrap();
    let free_id = open(&mut python, "upper", &free).unwrap();
    assert_eq!(all(&mut python, 1)[&free_id].outcome, Outcome::Done);
    assert!(full.state().given.is_empty() && full.state().at < 3_000_000, "no more is sent than the worker takes");
    full.change(|state| state.room = 64 << 10);
    assert_eq!(all(&mut python, 1)[&full_id].outcome, Outcome::Done);
    assert_eq!(full.state().given.len(), 3_000_000);
}

#[test]
fn a_stream_that_fails_or_is_cancelled_leaves_the_others_alone() {
    let (mut python, _dir) = python();
    let (fails, cancelled, goes_on) = (End::new(b"", true, 9), End::new(b"ab", false, 9), End::new(b"cd", false, 9));
    let fails_id = open(&mut python, "fails", &fails).unwrap();
    let ended = all(&mut python, 1).remove(&fails_id).unwrap();
    let (code, detail) = common::failed(&ended);
    assert!(code == Code::PythonRaised && detail.contains("ValueError: no"), "{detail}");
    assert_eq!(common::printed(&ended), "about to fail\n");
    assert!(matches!(fails.state().ended, Some(StreamEnd::Reset(_))));
    let cancelled_id = open(&mut python, "upper", &cancelled).unwrap();
    let goes_on_id = open(&mut python, "upper", &goes_on).unwrap();
    drive_until(&mut python, || cancelled.state().given == b"AB" && goes_on.state().given == b"CD");
    // A slow machine may need more than the second that a worker has; then it is killed with the others, which another test shows.
    python.cancel(cancelled_id);
    let ended = all(&mut python, 1);
    assert_eq!(common::failed(&ended[&cancelled_id]).0, Code::RunCancelled);
    if !ended.contains_key(&goes_on_id) {
        goes_on.change(|state| state.is_whole = true);
        assert_eq!(all(&mut python, 1)[&goes_on_id].outcome, Outcome::Done);
    }
}

#[test]
fn a_worker_that_does_not_end_a_cancelled_stream_is_killed_and_the_next_one_is_new() {
    let (mut python, _dir) = python();
    let (stays, other) = (End::new(b"", false, 9), End::new(b"ab", false, 9));
    let stays_id = open(&mut python, "stays", &stays).unwrap();
    let other_id = open(&mut python, "upper", &other).unwrap();
    drive_until(&mut python, || other.state().given == b"AB");
    python.cancel(stays_id);
    let ended = all(&mut python, 2);
    assert_eq!(common::failed(&ended[&stays_id]).0, Code::RunCancelled);
    let (code, detail) = common::failed(&ended[&other_id]);
    assert!(code == Code::WorkerDied && detail.contains("another stream"), "{detail}");
    let again = End::new(b"ab", true, 9);
    let id = open(&mut python, "upper", &again).unwrap();
    assert!(id > other_id && all(&mut python, 1)[&id].outcome == Outcome::Done);
}

#[test]
fn streams_of_a_worker_that_dies_fail() {
    let (mut python, _dir) = python();
    let other = End::new(b"ab", false, 9);
    let other_id = open(&mut python, "upper", &other).unwrap();
    drive_until(&mut python, || other.state().given == b"AB");
    let dies_id = open(&mut python, "dies", &End::new(b"", false, 9)).unwrap();
    let ended = all(&mut python, 2);
    for id in [other_id, dies_id] {
        let (code, detail) = common::failed(&ended[&id]);
        assert!(code == Code::WorkerDied && detail.contains('3'), "{detail}");
    }
    assert!(matches!(&other.state().ended, Some(StreamEnd::Reset(error)) if error.code() == Code::WorkerDied));
}

#[test]
fn a_worker_that_breaks_the_protocol_is_stopped() {
    let hello = "frame(16, 4, b'', struct.pack('<IHHI', 65536, 2, 4, 0))";
    for (body, said) in [
        ("frame(40, 0, b'', b'too much')", "longer than the host allows"),
        ("frame(42, 0xffffffff)", "allows too much"),
        ("frame(43); frame(43)", "whose bytes have ended"),
        ("frame(18, 0, b'out', b'')", "does not have"),
        ("os.write(3, packed(19, of=99))", "not open"),
        ("os.write(3, b'Hello, world, hello')", "no frame begins"),
    ] {
        let (mut worker, _dir) = worker_of(hello, body, limits());
        let id = open(&mut worker, "any", &End::new(b"", false, 0)).unwrap();
        let (code, detail) = common::failed(&all(&mut worker, 1)[&id]);
        assert!([Code::WorkerProtocol, Code::WorkerDied].contains(&code), "{body}: {detail}");
        assert!(detail.contains(said) || detail.contains("another stream broke"), "{body}: {detail}");
    }
    let (mut runs_only, _dir) = worker_of(&common::hello(4, 3), "pass", limits());
    let error = open(&mut runs_only, "any", &End::new(b"", false, 0)).unwrap_err();
    assert!(error.code() == Code::WorkerProtocol && error.detail().contains("no streams"), "{error}");
}
