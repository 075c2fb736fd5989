//! Any interleaving of streams, in which bytes arrive in any parts, gives what each stream gives alone.

use super::*;
use crate::worker::frame::HEAD_BYTES;
use std::{
    fs::File,
    os::fd::AsFd,
    sync::{Arc, Mutex},
};

/// Numbers that depend on the seed only.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// What a stream has given.
#[derive(Debug, Default)]
struct Given {
    bytes: Vec<u8>,
    ended: Vec<StreamEnd>,
    result: Vec<u8>,
}

/// The host's end: sends a text, and keeps what comes.
struct Host {
    text: Vec<u8>,
    at: usize,
    /// If the text breaks off.
    breaks: Option<Error>,
    random: Random,
    /// Room that is left of the window.
    window: u32,
    given: Arc<Mutex<Given>>,
    ready: File,
}

const WINDOW: u32 = 3000;

impl StreamCalls for Host {
    fn room(&mut self) -> u32 {
        let room = self.random.below(self.window as usize + 1) as u32;
        self.window -= room;
        room
    }

    fn put(&mut self, bytes: &[u8]) {
        self.given.lock().unwrap().bytes.extend_from_slice(bytes);
        self.window += bytes.len() as u32;
        assert!(self.window <= WINDOW, "the worker sent more than there was room for");
    }

    fn ended(&mut self, how: StreamEnd) {
        self.given.lock().unwrap().ended.push(how);
    }

    fn take(&mut self, bytes_max: usize) -> Taken<'_> {
        if self.at == self.text.len() {
            return Taken::End(self.breaks.take().map_or(StreamEnd::Whole, StreamEnd::Reset));
        }
        let count = self.random.below(bytes_max.min(self.text.len() - self.at) + 1);
        self.at += count;
        Taken::Bytes(&self.text[self.at - count..self.at])
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn returned(&mut self, result: &[u8]) {
        self.given.lock().unwrap().result = result.to_vec();
    }
}

/// A stream in the worker, which sends back each byte changed by the stream's key.
#[derive(Default)]
struct Job {
    key: u8,
    pending: Vec<u8>,
    /// What it may send, and what the host may.
    credit: usize,
    granted: usize,
    is_over: bool,
    breaks: bool,
    is_cancelled: bool,
    has_ended: bool,
}

/// A worker that follows the protocol, and checks that the host does.
struct Worker {
    jobs: BTreeMap<u32, Job>,
    received: Vec<u8>,
    to: Vec<u8>,
}

impl Worker {
    fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        loop {
            let Some(head) = self.received.first_chunk::<HEAD_BYTES>() else { return };
            let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (length, kind, work, number) = (number(0) as usize, head[4], number(8), number(12));
            if self.received.len() < HEAD_BYTES + length {
                return;
            }
            let body: Vec<u8> = self.received.drain(..HEAD_BYTES + length).skip(HEAD_BYTES).collect();
            let Some(job) = self.jobs.get_mut(&work) else { continue };
            match kind {
                4 => job.is_cancelled = true,
                40 => {
                    assert!(!job.is_over && body.len() <= job.granted, "more than the worker allows");
                    job.granted -= body.len();
                    job.pending.extend(body.iter().map(|byte| byte ^ job.key));
                }
                42 => job.credit += number as usize,
                43 => job.is_over = true,
                44 => (job.is_over, job.breaks) = (true, true),
                kind => panic!("kind {kind}"),
            }
        }
    }

    /// One of the things that a stream may do now.
    fn act(&mut self, random: &mut Random) {
        let open: Vec<u32> = self.jobs.keys().copied().collect();
        let Some(work) = open.get(random.below(open.len())) else { return };
        let job = self.jobs.get_mut(work).unwrap();
        let named = |kind: Kind, name: &[u8], to: &mut Vec<u8>| {
            frame::put_head(to, kind as u8, (*work, 0), name.len(), name.len());
            to.extend_from_slice(name);
        };
        if job.is_cancelled && random.one_in(3) {
            named(Kind::Done, b"MR3140", &mut self.to);
            self.jobs.remove(work);
        } else if random.one_in(3) && job.granted < 5000 {
            let more = 1 + random.below(4000);
            job.granted += more;
            frame::put_bare(&mut self.to, Kind::Credit, *work, more as u32);
        } else if !job.pending.is_empty() {
            let count = random.below(job.pending.len().min(job.credit) + 1);
            job.credit -= count;
            let bytes: Vec<u8> = job.pending.drain(..count).collect();
            frame::put_data(&mut self.to, *work, &bytes);
        } else if job.is_over && !job.has_ended && random.one_in(2) {
            job.has_ended = true;
            named(
                if job.breaks { Kind::Reset } else { Kind::End },
                if job.breaks { b"MR3110" } else { b"" },
                &mut self.to,
            );
        } else if job.is_over && random.one_in(2) {
            match job.breaks {
                true => named(Kind::Done, b"MR3110", &mut self.to),
                false => {
                    frame::put_head(&mut self.to, Kind::Done as u8, (*work, 0), 0, 1);
                    self.to.push(job.key);
                }
            }
            self.jobs.remove(work);
        }
    }
}

/// A part of what is on its way, of any length.
fn part(bytes: &mut Vec<u8>, random: &mut Random) -> Vec<u8> {
    let count = random.below(bytes.len() + 1);
    let count = if random.one_in(4) { count.min(3) } else { count };
    bytes.drain(..count).collect()
}

/// A stream of a test: its text, whether that breaks off, whether the stream was cancelled, and what it has given.
type Opened = (Vec<u8>, bool, bool, Arc<Mutex<Given>>);

/// Everything that a seed decides about the streams: their texts, who is cancelled, and when the worker dies.
fn talk(seed: u64) {
    let mut random = Random(seed);
    let (mut talk, mut worker) =
        (Talk::default(), Worker { jobs: BTreeMap::new(), received: Vec::new(), to: Vec::new() });
    let count = 1 + random.below(8) as u32;
    let cancels = random.one_in(3);
    let mut dies_after = if random.one_in(4) { random.below(200) } else { usize::MAX };
    let now = Instant::now();
    let (mut to_worker, mut to_host) = (Vec::new(), Vec::new());
    let mut opened: Vec<Opened> = Vec::new();
    let mut completed: BTreeMap<u64, Outcome> = BTreeMap::new();
    let mut steps = 0;
    while completed.len() < count as usize {
        steps += 1;
        assert!(steps < 1_000_000, "the streams do not end");
        match random.below(5) {
            0 if opened.len() < count as usize => {
                let (work, length) = (opened.len() as u32 + 1, random.below(20_000));
                let text: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(work as u8)).collect();
                let (breaks, given) = (random.one_in(5), Arc::<Mutex<Given>>::default());
                let host = Host {
                    text: text.clone(),
                    at: 0,
                    breaks: breaks.then(|| Code::ReadOnly.error("it broke off")),
                    random: Random(seed ^ u64::from(work)),
                    window: WINDOW,
                    given: given.clone(),
                    ready: File::open("/dev/null").unwrap(),
                };
                worker.jobs.insert(work, Job { key: work as u8, ..Job::default() });
                talk.open(work, WorkId(work.into()), Box::new(host), Output::new(100), now);
                opened.push((text, breaks, false, given));
            }
            1 => talk.say(&mut to_worker, random.below(10_000)),
            2 => worker.receive(&part(&mut to_worker, &mut random)),
            3 => {
                worker.act(&mut random);
                to_host.append(&mut worker.to);
            }
            _ => {
                let mut arrived = Vec::new();
                while let Some((_, length)) = Frame::parse(&to_host).unwrap()
                    && dies_after > 0
                    && random.below(3) > 0
                {
                    arrived.extend(to_host.drain(..length));
                    let ended = talk.hear(&Frame::parse(&arrived).unwrap().unwrap().0, now).unwrap();
                    arrived.clear();
                    dies_after -= 1;
                    if let Some((id, completion)) = ended {
                        assert_eq!(completed.insert(id.0, completion.outcome), None, "reported once");
                    }
                }
            }
        }
        if cancels && !opened.is_empty() && random.one_in(200) {
            let which = random.below(opened.len());
            opened[which].2 = true;
            talk.cancel(WorkId(which as u64 + 1), &mut to_worker, now);
        }
        if dies_after == 0 && opened.len() == count as usize {
            for (id, completion) in talk.fail(|_, _| Code::WorkerDied.error("it died"), now) {
                assert_eq!(completed.insert(id.0, completion.outcome), None, "reported once");
            }
        }
    }
    assert_eq!(talk.len(), 0);
    for (number, (text, breaks, cancelled, given)) in (1..).zip(&opened) {
        let (given, expected): (_, Vec<u8>) =
            (given.lock().unwrap(), text.iter().map(|byte| byte ^ number as u8).collect());
        assert_eq!(given.ended.len(), 1, "the host learns once that the bytes have ended");
        assert!(expected.starts_with(&given.bytes), "stream {number} has bytes of another one");
        let code = match &completed[&number] {
            Outcome::Failed(error) => Some(error.code()),
            _ => None,
        };
        match code {
            None => assert_eq!(
                (&given.bytes, &*given.result, &given.ended[0], *breaks),
                (&expected, &[number as u8][..], &StreamEnd::Whole, false)
            ),
            Some(Code::PythonRaised) => assert!(*breaks && given.bytes == expected),
            Some(Code::RunCancelled) => assert!(*cancelled),
            Some(code) => assert!(code == Code::WorkerDied && dies_after == 0, "{code:?}"),
        }
    }
}

#[test]
fn any_interleaving_of_streams_gives_what_each_gives_alone() {
    if let Some(seed) = std::env::var("MILLRACE_TALK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return talk(seed);
    }
    for seed in 0..500 {
        println!("MILLRACE_TALK_SEED={seed}");
        talk(seed);
    }
}

#[test]
fn a_worker_that_breaks_a_rule_is_found_out() {
    let open = || {
        let mut talk = Talk::default();
        let host = Host {
            text: Vec::new(),
            at: 0,
            breaks: None,
            random: Random(1),
            window: 0,
            given: Arc::default(),
            ready: File::open("/dev/null").unwrap(),
        };
        talk.open(7, WorkId(1), Box::new(host), Output::new(100), Instant::now());
        talk
    };
    let frame = |kind, work, number, payload| Frame { kind, work, number, name: b"", payload };
    for wrong in [
        frame(Kind::Data, 7, 0, &b"no room for it"[..]),
        frame(Kind::Data, 8, 0, b""),
        frame(Kind::Done, 8, 0, b""),
        frame(Kind::Credit, 7, u32::MAX, b""),
        frame(Kind::Append, 7, 0, b""),
        frame(Kind::Get, 7, 0, b""),
        frame(Kind::Hello, 0, 4, b""),
    ] {
        let broken = open().hear(&wrong, Instant::now()).unwrap_err();
        assert_eq!((broken.error.code(), broken.work), (Code::WorkerProtocol, wrong.work), "{wrong:?}");
    }
    let (mut talk, now) = (open(), Instant::now());
    assert!(talk.hear(&frame(Kind::Output, 9, 0, b"printed"), now).unwrap().is_none());
    assert!(talk.hear(&frame(Kind::End, 7, 0, b""), now).unwrap().is_none());
    assert_eq!(talk.hear(&frame(Kind::End, 7, 0, b""), now).unwrap_err().error.code(), Code::WorkerProtocol);
    let ended = talk.hear(&frame(Kind::Done, 7, 0, b""), now).unwrap().unwrap();
    assert_eq!((ended.0, ended.1.outcome, &*ended.1.output), (WorkId(1), Outcome::Done, &b"printed"[..]));
}

#[test]
fn no_stream_keeps_the_others_waiting() {
    let mut talk = Talk::default();
    for work in 1..=3 {
        let host = Host {
            text: vec![0; 4 << 20],
            at: 0,
            breaks: None,
            random: Random(u64::from(work)),
            window: 0,
            given: Arc::default(),
            ready: File::open("/dev/null").unwrap(),
        };
        talk.open(work, WorkId(work.into()), Box::new(host), Output::new(100), Instant::now());
        let credit = Frame { kind: Kind::Credit, work, number: 4 << 20, name: b"", payload: b"" };
        talk.hear(&credit, Instant::now()).unwrap();
    }
    let mut said = Vec::new();
    talk.say(&mut said, 2 << 20);
    let mut works = Vec::new();
    while let Some((frame, length)) = Frame::parse(&said).unwrap() {
        works.push(frame.work);
        said.drain(..length);
    }
    assert!(works.len() > 3 && works.windows(2).all(|pair| pair[0] % 3 + 1 == pair[1]), "{works:?}");
}
