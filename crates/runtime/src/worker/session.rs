//! One worker process and the conversation with it.
//!
//! ```text
//!  batch --fill--> outbox ==socket==> worker     WORK frames go ahead of the answers, as far as the window allows
//!  done <--handle-- inbox <==socket== worker     APPEND…, DONE of run 1, APPEND…, DONE of run 2, …
//!         output <==pipe==== its stdout and stderr
//! ```
//!
//! The thread that runs a batch never blocks on one direction while the other waits: it sends as much as the socket accepts, then sleeps
//! until an event of {socket, pipe, end of the process, deadline}. A worker writes a run's frames up to DONE before it begins the next run,
//! so the run in progress is always known.

mod streams;

use super::{
    frame::{self, Frame, Kind, WorkKind},
    run::Open,
};
use crate::{
    Code, Completion, Error, Invocation, Limits, Outcome, Progress, Rest, Result, Run, Watch, Watching,
    child::{Process, Scratch, read_some, readable},
    output::{Output, head, tail},
    step::Host,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

/// The most bytes of WORK frames under way, unless the worker asks for less.
const WINDOW_MAX_BYTES: usize = 256 << 10;
/// With more than this unsent (WORK frames ahead, and answers) no further frame is handled.
const OUTBOX_MAX_BYTES: usize = 2 * WINDOW_MAX_BYTES;
/// The features of a worker that this host uses: none so far.
const FEATURES: u32 = 0;
/// How much is received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// The inbox is given back when it grew beyond this.
const INBOX_KEPT_BYTES: usize = 1 << 20;
/// How often the pipe of a worker that ended is read, at most: a read takes what a pipe holds.
const LAST_READS_MAX: usize = 2;

/// A worker that said hello.
pub(crate) struct Session {
    wires: Wires,
    hello: Hello,
    /// The id of the last work that was sent.
    last: u32,
    /// Where it runs, if that is its own. It goes after the process.
    _scratch: Option<Scratch>,
}

/// How a batch ended.
pub(super) enum Ended {
    /// All of it was run and reported.
    All,
    /// The rest was abandoned: this many runs were reported, and this many sent to the worker.
    Left { reported: usize, sent: usize },
    /// This run, which was not reported, cut it short. The session is of no more use.
    Broken { run: usize, completion: Completion },
}

/// A process that is ending closes its descriptors a moment earlier; on a busy machine the moment is long.
const ENDING: Duration = Duration::from_secs(1);

impl Session {
    /// Waits until the worker reports that it is ready.
    pub(crate) fn start(
        process: Box<dyn Process>,
        scratch: Option<Scratch>,
        (channel, printed): (OwnedFd, OwnedFd),
        within: Duration,
    ) -> Result<Self> {
        let mut wires = Wires::new(process, channel, printed, OUTBOX_MAX_BYTES);
        let mut output = Output::new(16 << 10);
        let hello = wires.hello(&mut output, Instant::now() + within, within);
        let hello = hello.map_err(|error| wires.explain(error, &mut output, Code::WorkerNotReady))?;
        if hello.features != 0 {
            frame::put_welcome(&mut wires.outbox.bytes, hello.features & FEATURES);
        }
        Ok(Self { wires, hello, last: 0, _scratch: scratch })
    }

    /// An error unless the worker knows this kind of work.
    fn check_knows(&self, kind: WorkKind) -> Result<()> {
        if self.hello.kinds & 1 << (kind as u32 - 1) != 0 {
            return Ok(());
        }
        Err(Code::WorkerProtocol.error(match kind {
            WorkKind::Run => "the program runs methods of shared objects only",
            WorkKind::Step => "the program runs no methods of shared objects",
            WorkKind::Stream => "the program has no streams",
        }))
    }

    /// Whether the worker ended since its last batch.
    pub(super) fn has_ended(&self) -> bool {
        readable(self.wires.process.pidfd(), Duration::ZERO)
    }

    /// Runs the batch, and reports the runs that end in it.
    pub(super) fn run(&mut self, batch: &mut [Run<'_>], limits: &Limits, progress: &mut dyn Progress) -> Ended {
        let (mut sent, mut under_way_bytes, mut rest) = (0, 0, Rest::Run);
        let before = self.last;
        // A batch has far fewer runs than there are ids, so those in progress differ.
        let id = |count: usize| before.wrapping_add(count as u32);
        for current in 0..batch.len() {
            if rest != Rest::Run {
                self.last = id(sent);
                return Ended::Left { reported: current, sent };
            }
            let mut run = Open::new(id(current + 1), limits);
            let ended = loop {
                // Every pass first sends ahead what the window allows.
                while sent < batch.len() && (rest == Rest::Run || sent == current) {
                    let bytes = frame::work_bytes(&batch[sent].invocation);
                    if sent > current && under_way_bytes + bytes > self.hello.window_bytes {
                        break;
                    }
                    frame::put_work(&mut self.wires.outbox.bytes, id(sent + 1), WorkKind::Run, &batch[sent].invocation);
                    under_way_bytes += bytes;
                    sent += 1;
                }
                let streamed = batch[current].invocation.streamed;
                match self.wires.step(&mut run, (&mut batch[current], streamed), limits, progress.wake_at()) {
                    Ok(None) => match crate::wake_if_due(&mut Watching(progress)) {
                        Rest::Run => {}
                        Rest::Leave => rest = Rest::Leave,
                        Rest::Stop => {
                            let stop = Fault::Error(crate::cancelled());
                            break Err(self.wires.explain(stop, &mut run.output, Code::WorkerDied));
                        }
                    },
                    Ok(Some(outcome)) => break Ok(outcome),
                    Err(error) => break Err(self.wires.explain(error, &mut run.output, Code::WorkerDied)),
                }
            };
            under_way_bytes -= frame::work_bytes(&batch[current].invocation);
            match ended {
                Ok(outcome) => progress.ended(current, run.complete(outcome)),
                Err(error) => {
                    return Ended::Broken { run: current, completion: run.complete(Outcome::Failed(error)) };
                }
            }
        }
        self.last = id(batch.len());
        self.wires.inbox.shrink();
        Ended::All
    }

    /// Runs one step. With an error, the session is of no more use.
    pub(super) fn step(
        &mut self,
        invocation: &Invocation<'_>,
        host: &mut dyn Host,
        limits: &Limits,
        watch: &mut dyn Watch,
    ) -> Result<Outcome> {
        self.check_knows(WorkKind::Step)?;
        self.last = self.last.wrapping_add(1);
        let mut step = Open::new(self.last, limits);
        frame::put_work(&mut self.wires.outbox.bytes, self.last, WorkKind::Step, invocation);
        let fault = loop {
            match self.wires.step(&mut step, (host, false), limits, watch.wake_at()) {
                Ok(None) if crate::wake_if_due(watch) == Rest::Stop => break Fault::Error(crate::cancelled()),
                Ok(None) => {}
                Ok(Some(outcome)) => {
                    self.wires.inbox.shrink();
                    return Ok(outcome);
                }
                Err(fault) => break fault,
            }
        };
        Err(self.wires.explain(fault, &mut step.output, Code::WorkerDied))
    }
}

/// Why a session cannot continue.
enum Fault {
    /// The worker ended, or closed its channel.
    Gone,
    /// It broke a rule; this is what to report.
    Error(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

struct Wires {
    process: Box<dyn Process>,
    channel: OwnedFd,
    /// Gone once every writer closed it.
    printed: Option<OwnedFd>,
    /// What was read from it last, at most as much as the pipe holds, until the run is told.
    heard: Vec<u8>,
    inbox: Inbox,
    outbox: Outbox,
}

impl Wires {
    fn new(process: Box<dyn Process>, channel: OwnedFd, printed: OwnedFd, outbox_max_bytes: usize) -> Self {
        let (inbox, outbox) = (Inbox::default(), Outbox::new(outbox_max_bytes));
        Self { process, channel, printed: Some(printed), heard: Vec::new(), inbox, outbox }
    }

    /// Handles the frames that arrived and, if the run continues, waits for more, for an answer, or until `wake_at`.
    fn step(
        &mut self,
        run: &mut Open,
        (host, streamed): (&mut dyn Host, bool),
        limits: &Limits,
        wake_at: Option<Instant>,
    ) -> Result<Option<Outcome>, Fault> {
        while !self.outbox.is_full() && run.look(&mut self.outbox.bytes) {}
        while !self.outbox.is_full()
            && let Some((frame, bytes)) = Frame::parse(self.inbox.unread())?
        {
            if streamed && self.outbox.holds_answer() && frame.kind != Kind::Output {
                let detail = format!(
                    "{:?} before the answer to the previous call; a streamed run must wait for each answer",
                    frame.kind
                );
                return Err(Code::WorkerProtocol.error(detail).into());
            }
            let held = self.outbox.bytes.len();
            let outcome = run.handle(&frame, (&mut *host, streamed), &mut self.outbox.bytes)?;
            if self.outbox.bytes.len() > held {
                self.outbox.answered = self.outbox.bytes.len();
            }
            self.inbox.consume(bytes);
            if outcome.is_some() {
                return Ok(outcome);
            }
        }
        while !self.outbox.is_full()
            && let Some((number, call)) = host.objects().and_then(|objects| objects.callback())
        {
            frame::put_callback(&mut self.outbox.bytes, (run.work(), number), &call);
        }
        let callbacks = host.look_at_objects().and_then(|objects| objects.callbacks()).map(|fd| (fd, None));
        let later = run.later.iter().map(|(_, later)| (later.fd(), later.until())).chain(callbacks);
        // While the outbox is full, answers stay where they are.
        let later: Vec<_> = later.filter(|_| !self.outbox.is_full()).collect();
        let exchanged = self.exchange(&mut run.output, (run.begun + limits.timeout, limits.timeout), wake_at, &later);
        if !self.heard.is_empty() {
            host.logs().printed(&self.heard);
            self.heard.clear();
        }
        exchanged.map(|()| None)
    }

    fn hello(&mut self, output: &mut Output, deadline: Instant, within: Duration) -> Result<Hello, Fault> {
        loop {
            if let Some((frame, bytes)) = Frame::parse(self.inbox.unread())? {
                let hello = hello(&frame)?;
                self.inbox.consume(bytes);
                return Ok(hello);
            }
            self.exchange(output, (deadline, within), None, &[])?;
            self.heard.clear();
        }
    }

    /// Sends what the socket takes, then sleeps until something arrives, more can be sent, the worker ends, it is `wake_at`
    /// or the deadline passes.
    fn exchange(
        &mut self,
        output: &mut Output,
        (deadline, timeout): (Instant, Duration),
        wake_at: Option<Instant>,
        later: &[(BorrowedFd<'_>, Option<Instant>)],
    ) -> Result<(), Fault> {
        let was_full = self.outbox.is_full();
        self.outbox.send(&self.channel)?;
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Err(Code::RunTimeout.error(format!("stopped after {} ms", timeout.as_millis())).into());
        }
        if was_full && !self.outbox.is_full() {
            // Frames that wait in the inbox have room for their answers now; nothing would wake a sleep for them.
            return Ok(());
        }
        // A worker that takes no answers is not heard on, until it does or its time is over.
        let hear = if self.outbox.is_full() { PollFlags::empty() } else { PollFlags::IN };
        let want = if self.outbox.is_empty() { hear } else { hear | PollFlags::OUT };
        let pidfd = self.process.pidfd();
        let printed = self.printed.as_ref().map_or(pidfd, OwnedFd::as_fd);
        let mut fds = Vec::with_capacity(3 + later.len());
        fds.push(PollFd::from_borrowed_fd(self.channel.as_fd(), want));
        fds.extend([printed, pidfd].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(later.iter().map(|(fd, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let wake_at = wake_at.into_iter().chain(later.iter().filter_map(|(_, until)| *until)).min();
        let asleep = wake_at.map_or(left, |at| left.min(at.saturating_duration_since(now)));
        // A timeout that no Timespec holds is as good as none.
        match poll(&mut fds, Timespec::try_from(asleep).ok().as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(Code::SpawnFailed.error(format!("cannot wait for the process: {errno}")).into()),
        }
        let [channel, printed, ended] = [0, 1, 2].map(|at| !fds[at].revents().difference(PollFlags::OUT).is_empty());
        // Unheard, the channel reports nothing but its end.
        let open = !channel || (!hear.is_empty() && self.inbox.receive(&self.channel));
        // What a run printed was written before its DONE, so the pipe is read after the channel, whatever `poll` saw.
        if channel || printed {
            let print = |bytes: &[u8]| {
                output.push(bytes);
                self.heard.extend_from_slice(bytes);
            };
            self.printed.take_if(|pipe| !read_some(pipe, print));
        }
        // It has ended only when it has nothing more to say.
        if open && (channel || !ended) { Ok(()) } else { Err(Fault::Gone) }
    }

    /// Ends the worker and returns how it ended.
    fn explain(&mut self, fault: Fault, output: &mut Output, gone: Code) -> Error {
        let ended_by_itself = matches!(fault, Fault::Gone) && readable(self.process.pidfd(), ENDING);
        let ended = self.process.end();
        if let Some(pipe) = self.printed.take() {
            for _ in 0..LAST_READS_MAX {
                if !read_some(&pipe, |bytes| output.push(bytes)) {
                    break;
                }
            }
        }
        let printed = match tail(&output.last()) {
            printed if printed.is_empty() => String::new(),
            printed => format!("; it printed last:\n{printed}"),
        };
        match fault {
            Fault::Gone if ended_by_itself => gone.error(format!("the process {ended}{printed}")),
            Fault::Gone => gone.error(format!("the process closed its frame channel and was stopped{printed}")),
            Fault::Error(error) => error.code().error(format!("{}{printed}", error.detail())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.wires.process.end();
    }
}

/// The properties of a worker.
struct Hello {
    /// The most bytes of WORK frames of runs under way.
    window_bytes: usize,
    /// How many streams it can have open at once.
    works: u16,
    /// A bit for each kind of work that it knows, the lowest for kind 1.
    kinds: u16,
    features: u32,
}

/// The properties in a worker's hello, or the reason why there are none.
fn hello(frame: &Frame<'_>) -> Result<Hello> {
    match (frame.kind, frame.number, frame.payload) {
        (Kind::Hello, frame::PROTOCOL_VERSION, &[a, b, c, d, w0, w1, k0, k1, f0, f1, f2, f3]) => {
            let window_bytes = (u32::from_le_bytes([a, b, c, d]) as usize).min(WINDOW_MAX_BYTES);
            let (kinds, features) = (u16::from_le_bytes([k0, k1]), u32::from_le_bytes([f0, f1, f2, f3]));
            Ok(Hello { window_bytes, works: u16::from_le_bytes([w0, w1]), kinds, features })
        }
        // Before version 4, the version took 8 bytes from where the work is now.
        (Kind::Hello, 0, _) if (1..frame::PROTOCOL_VERSION).contains(&frame.work) => {
            let (theirs, ours) = (frame.work, frame::PROTOCOL_VERSION);
            Err(Code::WorkerTooOld
                .error(format!("it speaks version {theirs} of the worker protocol; this host speaks {ours}")))
        }
        (Kind::Hello, version, _) => {
            let ours = frame::PROTOCOL_VERSION;
            Err(Code::WorkerProtocol.error(format!("its Hello has version {version}; this host speaks version {ours}")))
        }
        (Kind::Refuse, number, message) => Err(super::run::stated(number, message, Code::WorkerNotReady)),
        (kind, ..) => Err(Code::WorkerProtocol.error(format!("its first frame is {kind:?}, not Hello"))),
    }
}

/// Frames that arrived and were not handled yet.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    /// Where the unread part of `bytes` begins and ends.
    begin: usize,
    end: usize,
}

impl Inbox {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.begin += count;
    }

    /// Receives once. `false` if nothing will ever come.
    fn receive(&mut self, channel: &OwnedFd) -> bool {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.len() - self.end < RECEIVE_BYTES {
            // Doubling bounds the copies; a frame's length is bounded, so is this.
            self.bytes.resize((self.bytes.len() * 2).max(2 * RECEIVE_BYTES), 0);
        }
        match rustix::net::recv(channel, &mut self.bytes[self.end..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok((count, _)) => {
                self.end += count;
                true
            }
            Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    fn shrink(&mut self) {
        if self.begin == self.end && self.bytes.len() > INBOX_KEPT_BYTES {
            *self = Self::default();
        }
    }
}

/// Frames that were not sent yet.
struct Outbox {
    /// With more than this unsent it is full.
    max_bytes: usize,
    bytes: Vec<u8>,
    sent: usize,
    /// Where the last answer ends.
    answered: usize,
}

impl Outbox {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: Vec::new(), sent: 0, answered: 0 }
    }

    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    fn unsent_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether no more may be put in, so that a worker that asks without taking the answers uses no memory without end.
    fn is_full(&self) -> bool {
        self.unsent_bytes() > self.max_bytes
    }

    /// Whether there is an answer that was not sent, so that the caller cannot have it.
    fn holds_answer(&self) -> bool {
        self.sent < self.answered
    }

    /// Sends what the socket takes without blocking.
    fn send(&mut self, channel: &OwnedFd) -> Result<(), Fault> {
        while !self.is_empty() {
            match rustix::net::send(channel, &self.bytes[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                // Messages that the worker sent before it ended are still received.
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                Err(errno) => return Err(Code::SpawnFailed.error(head(&format!("cannot send: {errno}"), 200)).into()),
            }
        }
        if self.is_empty() {
            self.bytes.clear();
            (self.sent, self.answered) = (0, 0);
        } else if self.sent > WINDOW_MAX_BYTES {
            // Answers of a run without end may keep it from ever being empty.
            let sent = std::mem::take(&mut self.sent);
            self.bytes.drain(..sent);
            self.answered = self.answered.saturating_sub(sent);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Asked, EventId, Later, LogCalls, ObjectCalls, child};
    use rustix::net::SocketType;
    use std::{collections::HashMap, rc::Rc};

    /// A process that never ends: nothing is ever written to its pipe.
    struct Immortal(OwnedFd);

    impl Process for Immortal {
        fn pidfd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn end(&mut self) -> child::Ended {
            child::Ended::Unknown
        }
    }

    /// Answers every `get` with this record, and counts.
    struct Records(Vec<u8>, u64);

    const OUTBOX_BYTES: usize = 4 << 10;

    impl LogCalls for Records {
        fn append(&mut self, _: &str, _: &[u8]) -> Result<Option<u64>> {
            Ok(None)
        }

        fn get(&mut self, _: &str, _: u64) -> Result<Vec<u8>> {
            self.1 += 1;
            Ok(self.0.clone())
        }

        fn latest(&mut self, _: &str) -> Result<u64> {
            Ok(0)
        }

        fn now_ns(&mut self) -> u64 {
            0
        }

        fn random(&mut self, _: &mut [u8]) {}
    }

    /// Answers calls once it is told to, and has the worker run one call within the run.
    struct Callee {
        answers: HashMap<u8, Rc<Pipe>>,
        reenters: Rc<Pipe>,
        within: Option<(u32, Vec<u8>)>,
        ran: Vec<(u32, Vec<u8>)>,
    }

    /// Readable once it is set.
    struct Pipe(OwnedFd, OwnedFd);

    impl Pipe {
        fn new() -> Rc<Self> {
            let (reader, writer) = child::output_pipe().unwrap();
            Rc::new(Self(reader, writer))
        }
    }

    struct Awaited(u8, Rc<Pipe>);

    impl Later for Awaited {
        fn fd(&self) -> BorrowedFd<'_> {
            self.1.0.as_fd()
        }

        fn until(&self) -> Option<Instant> {
            None
        }

        fn take(&mut self) -> Option<Result<Vec<u8>>> {
            let answer = if self.0 == b'x' { Err(Code::Deadlock.error("a")) } else { Ok(vec![self.0]) };
            readable(self.1.0.as_fd(), Duration::ZERO).then_some(answer)
        }
    }

    impl ObjectCalls for Callee {
        fn call(&mut self, call: &[u8]) -> Asked {
            match self.answers.get(&call[0]) {
                Some(pipe) => Asked::Later(Box::new(Awaited(call[0], pipe.clone()))),
                None => Asked::Now(Ok(call.to_vec())),
            }
        }

        fn callback(&mut self) -> Option<(u32, Vec<u8>)> {
            readable(self.reenters.0.as_fd(), Duration::ZERO).then(|| self.within.take()).flatten()
        }

        fn callbacks(&self) -> Option<BorrowedFd<'_>> {
            self.within.as_ref().map(|_| self.reenters.0.as_fd())
        }

        fn called_back(&mut self, number: u32, answer: &[u8]) {
            self.ran.push((number, answer.to_vec()));
        }
    }

    #[test]
    fn calls_with_numbers_wait_at_the_same_time_and_are_answered_as_their_answers_come() {
        let (ours, theirs) = child::channel(SocketType::STREAM).unwrap();
        let (alive, _keep_alive) = child::output_pipe().unwrap();
        let (printed, _print) = child::output_pipe().unwrap();
        let mut wires = Wires::new(Box::new(Immortal(alive)), ours, printed, OUTBOX_BYTES);
        let pipes: HashMap<u8, Rc<Pipe>> = b"abx".iter().map(|call| (*call, Pipe::new())).collect();
        let reenters = Pipe::new();
        let set = |pipe: &Rc<Pipe>| assert_eq!(rustix::io::write(&pipe.1, b"!"), Ok(1));
        let mut host = Callee {
            answers: pipes.clone(),
            reenters: reenters.clone(),
            within: Some((9, vec![b'w'])),
            ran: Vec::new(),
        };
        let invocation =
            Invocation { log: "in", seqno: 1, payload: b"", run: EventId::from_bits(1), attempt: 1, streamed: false };
        let (limits, mut run) = (Limits::default(), Open::new(1, &Limits::default()));
        let mut logs = Records(b"got".to_vec(), 0);
        let mut call = Run { invocation, logs: &mut logs, objects: Some(&mut host) };
        let mut received = Vec::new();
        let mut step = |call: &mut Run<'_>, wires: &mut Wires| {
            // What arrives in one pass is handled in the next one.
            let pass = |_| wires.step(&mut run, (&mut *call, false), &limits, Some(Instant::now()));
            let stepped = (0..3).map(pass).find(|stepped| stepped.is_err()).unwrap_or(Ok(None));
            let mut bytes = [0; 256];
            while let Ok((count @ 1.., _)) = rustix::net::recv(&theirs, &mut bytes[..], RecvFlags::DONTWAIT) {
                received.extend_from_slice(&bytes[..count]);
            }
            stepped.map_err(|fault| match fault {
                Fault::Error(error) => error.code(),
                Fault::Gone => Code::WorkerDied,
            })?;
            Ok::<_, Code>(std::mem::take(&mut received))
        };
        let frame = |kind: u8, number: u32, name: &[u8], payload: &[u8]| {
            let mut bytes = Vec::new();
            frame::put_head(&mut bytes, kind, (1, number), name.len(), name.len() + payload.len());
            [&bytes[..], name, payload].concat()
        };
        let send = |bytes: &[u8]| assert_eq!(rustix::io::write(&theirs, bytes), Ok(bytes.len()));
        // Three wait; a fourth, and a request of another kind, are answered meanwhile.
        for (number, name) in [(1, b"a"), (2, b"b"), (3, b"x"), (4, b"n")] {
            send(&frame(Kind::Call as u8, number, b"", name));
        }
        send(&frame(Kind::Get as u8, 0, b"in", &1_u64.to_le_bytes()));
        let answered = [frame(2, 4, b"", b"n"), frame(2, 0, b"", b"got")].concat();
        assert_eq!(step(&mut call, &mut wires), Ok(answered));
        assert_eq!(step(&mut call, &mut wires), Ok(Vec::new()));
        set(&pipes[&b'b']);
        set(&pipes[&b'x']);
        let answered = [frame(2, 2, b"", b"b"), frame(2, 3, b"MR7118", b"a")].concat();
        assert_eq!(step(&mut call, &mut wires), Ok(answered));
        // A call that the worker runs, while it waits for its own.
        set(&reenters);
        assert_eq!(step(&mut call, &mut wires), Ok(frame(3, 9, b"", b"w")));
        send(&frame(Kind::CalledBack as u8, 9, b"", b"done"));
        assert_eq!(step(&mut call, &mut wires), Ok(Vec::new()));
        // A number whose call waits is taken.
        send(&frame(Kind::Call as u8, 1, b"", b"n"));
        assert_eq!(step(&mut call, &mut wires), Err(Code::WorkerProtocol));
        assert_eq!(host.ran, [(9, b"done".to_vec())]);
    }

    #[test]
    fn frames_that_waited_for_room_in_the_outbox_are_handled_once_it_is_sent() {
        let (ours, theirs) = child::channel(SocketType::STREAM).unwrap();
        let (alive, _keep_alive) = child::output_pipe().unwrap();
        let (printed, _print) = child::output_pipe().unwrap();
        let mut wires = Wires::new(Box::new(Immortal(alive)), ours, printed, OUTBOX_BYTES);
        // The worker asks twice ahead and ends its run, all in one write. The socket takes both answers without a reader.
        let mut asked = Vec::new();
        for (kind, payload) in [(Kind::Get, &[1; 8][..]), (Kind::Get, &[2; 8]), (Kind::Done, &[])] {
            frame::put_head(&mut asked, kind as u8, (1, 0), 0, payload.len());
            asked.extend_from_slice(payload);
        }
        assert_eq!(rustix::io::write(&theirs, &asked), Ok(asked.len()));
        let limits = Limits::default();
        let mut host = Records(vec![b'r'; 2 * OUTBOX_BYTES], 0);
        let run = EventId::from_bits(1);
        let invocation = Invocation { log: "in", seqno: 1, payload: b"", run, attempt: 1, streamed: false };
        let mut call = Run { invocation, logs: &mut host, objects: None };
        let mut run = Open::new(1, &limits);
        let outcome = loop {
            match wires.step(&mut run, (&mut call, false), &limits, None) {
                Ok(None) => {}
                Ok(Some(outcome)) => break outcome,
                Err(fault) => panic!("{}", wires.explain(fault, &mut run.output, Code::WorkerDied)),
            }
        };
        assert_eq!((outcome, host.1), (Outcome::Done, 2));
    }
}
