//! Namespaces whose hosts are the tests: they begin attempts, publish what these leave, and bring messages from one to another.

use millrace_journal::{Attempt, End, Function, Position, Reads, Run, Transaction, What};
use millrace_namespace::{
    AppendOptions, CreateOptions, Definition, Durability, FunctionSpec, Namespace, Runtime,
    admission::{Publish, Room, Stage},
    fence::{Used, Verdict},
    names::log_name,
    outbox::{NewMessage, log_of, message, state::State},
    runs::pending::pending,
};
use millrace_repair::{Correction, DeadLetter, NoPeers, Peers, Request, Runner, drive, open};
use millrace_runtime::{Completion, Invocation, LogCalls, Outcome};
use millrace_wire::{Address, EventId, LogName, Result};
use std::{
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::{Duration, Instant},
};

/// What a function does, by its name.
pub type Does<'a> = &'a mut dyn FnMut(&str, &[u8], &mut dyn LogCalls) -> Result<()>;

/// Replays runs.
pub struct Replays<'a>(pub Does<'a>);

impl Runner for Replays<'_> {
    fn run(
        &mut self,
        of: &Arc<Definition>,
        record: Invocation<'_>,
        calls: &mut dyn LogCalls,
        _: &dyn Fn() -> bool,
    ) -> Result<Completion> {
        (self.0)(&of.spec.name, record.payload, calls)?;
        Ok(Completion { outcome: Outcome::Done, output: Vec::new(), elapsed: Duration::ZERO })
    }

    fn dead_letter(&self, _: DeadLetter<'_>) -> Vec<u8> {
        Vec::new()
    }
}

/// An attempt at a run that is in progress.
pub struct Begun {
    function: u32,
    pub run: Run,
    pub fired: EventId,
    pub snapshot: Position,
    /// The record that it runs for.
    record: (u32, u64),
    pub payload: Vec<u8>,
}

/// A namespace.
pub struct World {
    _dir: tempfile::TempDir,
    pub namespace: Namespace,
}

impl World {
    pub fn new(logs: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
        for log in logs {
            namespace.create_log(&log.parse().unwrap(), 100).unwrap();
        }
        Self { _dir: dir, namespace }
    }

    /// A function that runs for each record of a log.
    pub fn function(&self, name: &str, on: &str, sends: &[&str]) -> Function {
        let mut spec = FunctionSpec::new(name.parse().unwrap(), Runtime::Process);
        spec.command = vec!["program".into()];
        spec.on = vec![on.parse().unwrap()];
        spec.rights.sends = sends.iter().map(|to| to.parse().unwrap()).collect();
        let definition =
            Definition { spec, code: "ab".repeat(32), file: None, application: None, confined: false, removing: false };
        let attributes = definition.to_attributes();
        let defined = self.namespace.journal().commit(|tx| tx.define_function(&definition.spec.name, &attributes));
        defined.unwrap().value
    }

    pub fn append(&self, log: &str, value: &str) {
        self.namespace.append(log, value.as_bytes(), AppendOptions::default()).unwrap();
    }

    /// The content of a record.
    pub fn get(&self, log: &str, seqno: u64) -> String {
        String::from_utf8(self.namespace.get(log, seqno).unwrap().payload).unwrap()
    }

    fn id(&self, log: &str) -> u32 {
        self.namespace.log(log).unwrap().id()
    }

    /// Begins an attempt at the oldest pending run of a function.
    pub fn begin(&self, function: &Function) -> Begun {
        self.begin_as(function, false)
    }

    /// The same with one that publishes as it goes, perhaps.
    pub fn begin_as(&self, function: &Function, streamed: bool) -> Begun {
        let journal = self.namespace.journal();
        let found = pending(journal, function, 1).next().unwrap().unwrap().found().unwrap();
        let attempt = Attempt { attempt: 1, revision: function.revision(), streamed, ..Attempt::default() };
        let fired = journal.commit(|tx| tx.fired(function.id(), found.run, &attempt)).unwrap();
        let (log, seqno) = found.record;
        let mut payload = Vec::new();
        journal.get(journal.catalog().unwrap().log_by_id(log).unwrap(), seqno, &mut payload).unwrap();
        let (run, fired, snapshot) = (found.run, fired.value, fired.end);
        Begun { function: function.id(), run, fired, snapshot, record: (log, seqno), payload }
    }

    /// Publishes what an attempt leaves in logs or sends, if the fence lets it: the verdict. It has read these records.
    pub fn end(&self, begun: &Begun, read: &[(&str, u64)], leaves: &[(&str, &[u8])]) -> Verdict {
        let published = self.namespace.journal().commit(|tx| {
            let verdict = self.judge(begun, read);
            if verdict == Verdict::Passes {
                self.publish(tx, begun, read, leaves)?;
            }
            Ok(verdict)
        });
        published.unwrap().value
    }

    /// What an attempt has used: its record, and what it has read.
    fn used(&self, begun: &Begun, read: &[(&str, u64)]) -> Vec<Used> {
        let read = read.iter().map(|(log, seqno)| (self.id(log), *seqno, What::Record));
        read.chain([(begun.record.0, begun.record.1, What::Record)]).collect()
    }

    fn judge(&self, begun: &Begun, read: &[(&str, u64)]) -> Verdict {
        self.namespace.fence().judge(begun.function, begun.snapshot, self.used(begun, read).into_iter())
    }

    fn publish(
        &self,
        tx: &mut Transaction<'_>,
        begun: &Begun,
        read: &[(&str, u64)],
        leaves: &[(&str, &[u8])],
    ) -> Result<()> {
        let (mut publish, first, cause) = (Publish::new(&self.namespace, tx), tx.next_sequence(), begun.run.id);
        let mut reads = Reads::default();
        read.iter().for_each(|(log, seqno)| reads.log(self.id(log), *seqno, What::Record));
        tx.reads(begun.function, begun.run, reads)?;
        for (ordinal, (to, data)) in (0..).zip(leaves) {
            if Address::claims(to) {
                let to = to.parse()?;
                publish.send(tx, Room::Run, NewMessage { to: &to, function: None, data, cause, ordinal })?;
                continue;
            }
            let log = tx.catalog().log(to).cloned().unwrap();
            let stage = Stage { cause, ordinal, room: Room::Run, named: None, ending: Some(begun.function) };
            publish.append(tx, &log, data, stage)?;
        }
        let (effects, fired) = (tx.next_sequence() - first, begun.fired.sequence());
        tx.done(begun.function, begun.run, &End { effects, fired, ..End::default() }).map(drop)
    }

    /// Publishes what an attempt leaves just before the host gets the lock.
    pub fn end_before_the_host_has_the_lock(&self, begun: &Begun, leaves: &[(&str, &[u8])], work: impl FnOnce()) {
        self.before_the_host_has_the_lock(begun, |tx| self.publish(tx, begun, &[], leaves), work);
    }

    /// Appends an entry after the host has seen that everything is replayed, and while it waits for the lock. The record of the attempt is
    /// one that a repair replaces: its verdict shows that the fence is up. `work` is what the host does.
    pub fn before_the_host_has_the_lock(
        &self,
        begun: &Begun,
        append: impl FnOnce(&mut Transaction<'_>) -> Result<()> + Send,
        work: impl FnOnce(),
    ) {
        let (locked, is_locked) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let appended = self.namespace.journal().commit(|tx| {
                    assert_eq!(self.judge(begun, &[]), Verdict::Passes);
                    locked.send(()).unwrap();
                    // If the host takes longer, it sees the entry without a second look.
                    let since = Instant::now();
                    while self.judge(begun, &[]) == Verdict::Passes && since.elapsed() < Duration::from_secs(5) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    thread::sleep(Duration::from_millis(200));
                    append(tx)
                });
                appended.unwrap();
            });
            is_locked.recv().unwrap();
            work();
        });
    }

    /// Runs the oldest pending run of a function, which leaves its record's bytes there.
    pub fn echo(&self, function: &Function, to: &str) {
        let begun = self.begin(function);
        assert_eq!(self.end(&begun, &[], &[(to, &begun.payload)]), Verdict::Passes);
    }

    /// Opens a repair of records.
    pub fn repair(&self, log: &str, corrections: &[(u64, &str)], across: &[&str]) -> u64 {
        let correction = |(seqno, value): &(u64, &str)| Correction { seqno: *seqno, value: Some((*value).into()) };
        let request = Request {
            log: log.parse().unwrap(),
            corrections: corrections.iter().map(correction).collect(),
            reason: String::new(),
            accept_unknown: false,
            append_new: false,
            across: across.iter().map(|address| (*address).to_owned()).collect(),
            run_external: Vec::new(),
        };
        open(&self.namespace, request).unwrap()
    }

    /// Does what repairs wait for. `seen` is called for each run that was replayed.
    pub fn work(&self, does: Does<'_>, seen: &mut dyn FnMut()) {
        let stop = AtomicBool::new(false);
        let mut runner = Replays(does);
        while self.drive(&mut runner, &mut NoPeers, &stop, seen).unwrap() {}
    }

    pub fn drive(
        &self,
        runner: &mut Replays<'_>,
        peers: &mut dyn Peers,
        stop: &AtomicBool,
        seen: &mut dyn FnMut(),
    ) -> Result<bool> {
        drive(&self.namespace, runner, peers, stop, &mut |_, _, _, _| seen())
    }
}

/// Brings the messages that one namespace has left for another, as links do: each once, in order, and acknowledged. Their ids.
pub fn deliver(from: &World, to: &World, address: &str) -> Vec<EventId> {
    let (from, to) = (&from.namespace, &to.namespace);
    let mut state = State::load(from).unwrap();
    let Some(peer) = state.peers.iter_mut().find(|peer| peer.address.to_string() == address) else { return Vec::new() };
    let catalog = from.journal().catalog().unwrap();
    let outbox = catalog.log(&log_of(&peer.name)).unwrap();
    let inbox: LogName = log_name(&format!("_inbox/{}/outbox/n/1", from.journal().namespace()));
    peer.course.namespace = Some(to.journal().namespace().get());
    from.journal().commit(|tx| state.save(tx)).unwrap();
    let (mut bytes, mut ids) = (Vec::new(), Vec::new());
    for number in outbox.earliest()..=outbox.latest() {
        let id = from.journal().get(outbox, number, &mut bytes).unwrap().id;
        let message = message::decode(&bytes).unwrap();
        let taken = to.journal().commit(|tx| {
            if tx.catalog().log(&inbox).is_none() {
                tx.create_log(&inbox, 4)?;
            }
            let publish = Publish::new(to, tx);
            let log = tx.catalog().log(message.log).cloned().unwrap();
            let stage = Stage { cause: id, ordinal: 0, room: Room::Outside, named: None, ending: None };
            publish.append(tx, &log, message.data, stage)
        });
        taken.unwrap();
        ids.push(id);
    }
    from.journal().commit(|tx| tx.trim(outbox, outbox.latest() + 1)).unwrap();
    ids
}
