//! A repair across namespaces: its initiator, and the namespaces that take part.
//!
//! ```text
//!  initiator ── join ──> parts          each replays in its own journal
//!            <── sent ── parts          records that links sent, and their new values
//!            ── seeds ─> parts          … which are corrections where they were delivered; again, until nothing is new
//!            ── prepare > parts         each is behind a fence, and has promised to switch
//!  initiator switches: its GENERATION is the decision
//!            ── commit ─> parts         each switches, now or when it is back
//! ```
//!
//! Its whole state is in the journals of the namespaces. After a restart, the initiator continues where it was, and repeats its requests to
//! every part: repeated requests change nothing. A prepared part waits for its initiator, whose host sends it the outcome. If it waits
//! longer than its fence lasts, it finds the records that its runs sent meanwhile only when it switches: see [`late`]. This is two-phase
//! commit; the initiator's own switch is the decision, so there is no moment at which it has decided and can still fail.

mod late;
mod part;
pub(crate) mod seeds;

pub use part::{PartAsk, SentPage, Step, part, sent_page};

use crate::{
    apply::FENCE,
    book::{self, Note, PartOf, Phase, Repair, note},
    session::Session,
};
use millrace_namespace::Namespace;
use millrace_wire::{Code, Error, ErrorKind, EventId, Result};
use part::{PAGE_BYTES, PAGE_RECORDS, SeedDoc, SentDoc};
use seeds::Seed;
use serde::de::DeserializeOwned;
use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    mem,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How often a participant is asked for its progress.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How often it is asked whether it has switched before others are asked.
const OUTCOME_ASKS: usize = 100;
/// The maximum size of the changed records that one participant has sent.
const SENT_MAX_BYTES: usize = 256 << 20;
/// The maximum number of rounds in which changed records are passed between namespaces.
const ROUNDS_MAX: usize = 1000;
/// Most namespaces that take part in a repair.
pub(crate) const MEMBERS_MAX: usize = 64;

/// How the initiator of a repair reaches the hosts of other namespaces.
pub trait Peers {
    /// The id of the namespace at an address.
    fn meet(&mut self, address: &str) -> Result<String>;

    /// Sends a request about its repairs, as JSON; the answer is JSON, too.
    fn ask(&mut self, address: &str, json: &str) -> Result<String>;

    /// A document about it, by its path.
    fn show(&mut self, address: &str, path: &str) -> Result<String>;
}

/// Reaches no other namespace.
pub struct NoPeers;

impl NoPeers {
    fn refuse<T>(address: &str) -> Result<T> {
        let error = format!("this process cannot reach other hosts; start a host, so that '{address}' can take part");
        Err(Code::RepairUnsupported.error(error))
    }
}

impl Peers for NoPeers {
    fn meet(&mut self, address: &str) -> Result<String> {
        Self::refuse(address)
    }

    fn ask(&mut self, address: &str, _: &str) -> Result<String> {
        Self::refuse(address)
    }

    fn show(&mut self, address: &str, _: &str) -> Result<String> {
        Self::refuse(address)
    }
}

/// A namespace that takes part.
struct Met {
    address: String,
    /// Its id, and the number of its part; once it has joined.
    id: String,
    number: u64,
    /// The values of records that it has received: by id, a hash of the value.
    given: HashMap<EventId, u64>,
    /// How many seeds it must have received.
    seeds: u64,
    /// Whether it has what it was given, as far as this round wants it.
    is_ready: bool,
    missing: u64,
    /// The changes of records that it sent; `None` if they have to be requested.
    sent: Option<Vec<SentDoc>>,
}

/// The rounds of one repair on its initiator.
pub(crate) struct Rounds<'a> {
    namespace: &'a Namespace,
    repair: &'a Repair,
    peers: &'a mut dyn Peers,
    members: Vec<Met>,
    /// By address: what was noted last.
    errors: HashMap<String, Option<(String, String)>>,
    /// The values of records that this namespace has received: by id, a hash of the value.
    given: HashMap<EventId, u64>,
    /// How many notes about repairs there were when the phase was looked at.
    news: u64,
}

impl<'a> Rounds<'a> {
    pub fn new(namespace: &'a Namespace, repair: &'a Repair, peers: &'a mut dyn Peers) -> Self {
        let errors = repair.across.iter().map(|member| (member.address.clone(), member.error.clone())).collect();
        Self { namespace, repair, peers, members: Vec::new(), errors, given: HashMap::new(), news: 0 }
    }

    /// Passes to every namespace the changes of records that it received from others, until there are no new ones. Each namespace has then
    /// replayed the affected runs; with `prepare`, it has done so behind a fence and promised to switch. Returns how often slots here had
    /// changed by then.
    pub fn exchange(&mut self, session: &mut Session<'_>, prepare: bool) -> Result<u64> {
        self.meet(session)?;
        self.members.iter_mut().for_each(|member| (member.is_ready, member.sent) = (false, None));
        let mut since = Instant::now();
        for _ in 0..ROUNDS_MAX {
            for at in 0..self.members.len() {
                if !self.members[at].is_ready {
                    self.bring(session, at, prepare)?;
                }
            }
            let changes = session.changes;
            let is_news = self.pass_on(session, prepare)?;
            if is_news || session.changes != changes {
                continue;
            }
            if prepare && since.elapsed() > FENCE / 2 {
                // The first may not be behind its fence much longer.
                since = Instant::now();
                self.members.iter_mut().for_each(|member| (member.is_ready, member.sent) = (false, None));
                continue;
            }
            self.check_missing(prepare)?;
            return Ok(changes);
        }
        let error = format!("after {ROUNDS_MAX} rounds between the namespaces, records still change");
        Err(Code::RepairUnsupported.error(error))
    }

    /// Makes every participant join.
    fn meet(&mut self, session: &Session<'_>) -> Result<()> {
        if !self.members.is_empty() {
            return Ok(());
        }
        let (repair, mut met) = (self.repair, Vec::new());
        for member in &repair.across {
            let id = self.peers.meet(&member.address);
            met.push((member.address.clone(), self.heard(&member.address, id)?));
        }
        let ids: Vec<String> = met.iter().map(|(_, id)| id.clone()).collect();
        let Repair { repair, reason, append_new, undo, run_external, .. } = repair;
        let mut members = Vec::new();
        for (address, id) in met {
            let (reason, append_new, undo, with) = (reason.clone(), *append_new, *undo, ids.clone());
            let run_external = run_external.clone();
            let undone = undo.and_then(|undone| book::repair(self.namespace, undone).ok()).map(|undone| undone.at_us);
            let join = Step::Join { reason, append_new, undo, undone, with, run_external };
            let joined = self.ask(&address, join)?;
            let (number, seeds) = (joined.repair, joined.seeds.taken);
            #[rustfmt::skip]
            members.push(Met {
                address, id, number, given: HashMap::new(), seeds, is_ready: false, missing: 0, sent: None,
            });
            self.check_stop(session)?;
        }
        self.members = members;
        // The changes that they send themselves are newer.
        let mut batches: Vec<Vec<Seed>> = self.members.iter().map(|_| Vec::new()).collect();
        for (to, seed) in seeds::of_others(self.namespace, *repair)? {
            if let Some(at) = self.members.iter().position(|member| member.id == to) {
                is_news_to(&mut self.members[at].given, &seed);
                batches[at].push(seed);
            }
        }
        batches.into_iter().enumerate().try_for_each(|(at, batch)| self.give(at, &batch))
    }

    /// Sends a request to a participant; returns the state of its part.
    fn ask(&mut self, address: &str, ask: Step) -> Result<Repair> {
        let answer = ask_part(self.namespace, self.peers, address, self.repair, ask);
        self.heard(address, answer)
    }

    /// Notes whether a participant answers. A temporary failure has its own error code.
    fn heard<T>(&mut self, address: &str, answer: Result<T>) -> Result<T> {
        match answer {
            Ok(answer) => {
                self.note(address, None)?;
                Ok(answer)
            }
            Err(error) if is_final(&error) => Err(of_member(address, &error)),
            Err(error) => {
                self.note(address, Some(&error))?;
                Err(waits(address, &error))
            }
        }
    }

    /// Notes a problem of a participant, if it is new.
    fn note(&mut self, address: &str, error: Option<&Error>) -> Result<()> {
        let error = error.map(|error| (error.code().id().to_owned(), error.detail().to_owned()));
        if self.errors.get(address).is_some_and(|known| *known == error) {
            return Ok(());
        }
        note_member(self.namespace, self.repair.repair, address, error.clone(), false)?;
        self.errors.insert(address.to_owned(), error);
        Ok(())
    }

    /// Makes a participant replay or prepare, and waits until it has.
    fn bring(&mut self, session: &Session<'_>, at: usize, prepare: bool) -> Result<()> {
        let (address, number) = (self.members[at].address.clone(), self.members[at].number);
        let (mut asked_again, mut asked_prepare) = (false, false);
        loop {
            self.check_stop(session)?;
            let part = self.part(&address, number)?;
            let has_all = part.seeds.taken >= self.members[at].seeds;
            match part.phase {
                Phase::Running | Phase::Preparing | Phase::Committing => thread::sleep(ASK_EVERY),
                Phase::Ready | Phase::Prepared if has_all && !prepare => break,
                Phase::Prepared if has_all && asked_prepare => {
                    self.members[at].missing = part.seeds.missing;
                    break;
                }
                Phase::Ready | Phase::Prepared if prepare => {
                    self.ask(&address, Step::Prepare)?;
                    asked_prepare = true;
                }
                Phase::Stopped if asked_again => {
                    let (code, detail) = part.error.unwrap_or_default();
                    let code = Code::from_id(&code).unwrap_or(Code::RepairUnsupported);
                    return Err(of_member(&address, &code.error(detail)));
                }
                Phase::Open | Phase::Ready | Phase::Prepared | Phase::Stopped => {
                    asked_again |= part.phase == Phase::Stopped;
                    self.ask(&address, Step::Replay)?;
                }
                Phase::Applying | Phase::Applied | Phase::RolledBack | Phase::Abandoned | Phase::Closed => {
                    let error = format!("namespace {address}: its part, repair {number}, is {}", part.phase.as_str());
                    return Err(Code::RepairPart.error(error));
                }
            }
        }
        let member = &mut self.members[at];
        (member.is_ready, member.sent) = (true, None);
        Ok(())
    }

    /// An error if the host stops, or if a user has abandoned or stopped the repair.
    fn check_stop(&mut self, session: &Session<'_>) -> Result<()> {
        if session.stop.load(Ordering::Acquire) {
            return Err(Code::HostStopping.error("the host is stopping"));
        }
        let news = book::news(self.namespace)?;
        if mem::replace(&mut self.news, news) != news {
            let (number, phase) = (self.repair.repair, book::repair(self.namespace, self.repair.repair)?.phase);
            if !matches!(phase, Phase::Running | Phase::Applying) {
                return Err(
                    Code::RepairPhase.error(format!("repair {number} has changed meanwhile: it is {}", phase.as_str()))
                );
            }
        }
        Ok(())
    }

    /// The state of a participant's part.
    fn part(&mut self, address: &str, number: u64) -> Result<Repair> {
        let shown = self.peers.show(address, &format!("repairs/{number}")).and_then(|text| read::<Repair>(&text));
        let moves = shown.and_then(|part| match &part.waits {
            Some((code, detail)) => Err(Code::from_id(code).unwrap_or(Code::RepairPeer).error(detail.as_str())),
            None => Ok(part),
        });
        self.heard(address, moves)
    }

    /// Passes on the changes of records that were sent from one namespace to another. Returns whether any was new.
    fn pass_on(&mut self, session: &mut Session<'_>, prepare: bool) -> Result<bool> {
        let (number, journal) = (self.repair.repair, self.namespace.journal());
        let mut batches: Vec<Vec<Seed>> = self.members.iter().map(|_| Vec::new()).collect();
        let mut own = Vec::new();
        let mut underway = None;
        for sent in part::sent(self.namespace, &session.past, number)? {
            let to = self.route(&sent.to, &sent.address, sent.is_message)?;
            let is_late = !sent.has_arrived && (sent.is_message || to.is_some());
            underway = underway.or_else(|| is_late.then(|| sent.address.clone()));
            // The session sees the records that it sends to itself.
            if let Some(To::Member(at)) = to {
                let seed = sent.seed(journal)?;
                if is_news_to(&mut self.members[at].given, &seed) {
                    batches[at].push(seed);
                }
            }
        }
        for at in 0..self.members.len() {
            let docs = match self.members[at].sent.take() {
                Some(docs) => docs,
                None => self.sent_of(at)?,
            };
            for doc in &docs {
                let to = self.route(&doc.to, &doc.address, doc.message)?;
                let is_late = !doc.arrived && (doc.message || to.is_some());
                underway = underway.or_else(|| is_late.then(|| doc.address.clone()));
                let Some(to) = to else { continue };
                let seed = doc.seed.clone().seed()?;
                match to {
                    // A participant sees the records that it sends to itself.
                    To::Member(to) if to == at => {}
                    To::Member(to) if is_news_to(&mut self.members[to].given, &seed) => batches[to].push(seed),
                    To::Here if is_news_to(&mut self.given, &seed) => own.push(seed),
                    _ => {}
                }
            }
            self.members[at].sent = Some(docs);
        }
        // A record in transit would arrive with its old bytes after the switch.
        if let Some(address) = underway.filter(|_| prepare) {
            return Err(Code::RepairPeer.error(format!("changed records have not yet arrived in '{address}'")));
        }
        let mut is_news = !own.is_empty();
        if is_news {
            seeds::give(self.namespace, number, None, &own)?;
            session.replay(&mut |_, _, _| {})?;
        }
        for (at, batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            self.give(at, &batch)?;
            is_news = true;
        }
        Ok(is_news)
    }

    /// Who has to know of a record that went to a namespace; nobody if that was not met yet, or keeps what a relay has brought it.
    fn route(&self, to: &Option<String>, address: &str, is_message: bool) -> Result<Option<To>> {
        let Some(to) = to else { return Ok(None) };
        if *to == self.namespace.journal().namespace().to_string() {
            return Ok(Some(To::Here));
        }
        match self.members.iter().position(|member| member.id == *to) {
            None if is_message => {
                let error = format!("the repair changes messages to '{address}', which does not take part");
                Err(Code::RepairLeaves.error(error))
            }
            found => Ok(found.map(To::Member)),
        }
    }

    /// The changes of a participant to records that it sent.
    fn sent_of(&mut self, at: usize) -> Result<Vec<SentDoc>> {
        let (address, number) = (self.members[at].address.clone(), self.members[at].number);
        let sent = read_sent(self.peers, &address, number);
        self.heard(&address, sent)
    }

    /// Gives a participant seeds; it has to take them up.
    fn give(&mut self, at: usize, seeds: &[Seed]) -> Result<()> {
        let address = self.members[at].address.clone();
        let mut rest = seeds;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |seed: &&Seed| {
                let first = bytes == 0;
                bytes += 128 + seed.value.as_ref().map_or(0, Vec::len);
                first || bytes <= PAGE_BYTES
            };
            let part = rest.iter().take(PAGE_RECORDS).take_while(fits).count();
            let docs = rest[..part].iter().map(SeedDoc::of).collect();
            self.members[at].seeds = self.ask(&address, Step::Seeds { seeds: docs })?.seeds.taken;
            rest = &rest[part..];
        }
        let member = &mut self.members[at];
        (member.is_ready, member.sent) = (false, None);
        Ok(())
    }

    /// An error if a participant lacks records that it has acknowledged: the runs that read them are not known.
    fn check_missing(&self, prepare: bool) -> Result<()> {
        let lacking = self.members.iter().find(|member| member.missing > 0);
        match lacking.filter(|_| prepare && !self.repair.accept_unknown) {
            Some(Met { address, missing, .. }) => {
                let error = format!("namespace {address} no longer has {missing} of the records that change");
                Err(Code::ReadersUnknown.error(error))
            }
            None => Ok(()),
        }
    }
}

/// A namespace that has to know of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// The initiator.
    Here,
    /// One that takes part.
    Member(usize),
}

/// Whether a namespace was not given this seed last.
fn is_news_to(given: &mut HashMap<EventId, u64>, seed: &Seed) -> bool {
    let mut hasher = DefaultHasher::new();
    seed.value.hash(&mut hasher);
    let hash = hasher.finish();
    given.insert(seed.id, hash) != Some(hash)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Code::DocumentUnknown.error(format!("an answer about repairs: {error}")))
}

/// The changes of a part to records that its namespace sent.
fn read_sent(peers: &mut dyn Peers, address: &str, part: u64) -> Result<Vec<SentDoc>> {
    let (mut all, mut after, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let text = peers.show(address, &format!("repairs/{part}/sent?after={after}"))?;
        bytes += text.len();
        let page: SentPage = read(&text)?;
        all.extend(page.sent);
        if bytes > SENT_MAX_BYTES {
            let error = format!("the repair changes more than {SENT_MAX_BYTES} bytes of forwarded records");
            return Err(Code::RepairUnsupported.error(error));
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(all),
        }
    }
}

/// Sends a request to a participant; returns the state of its part.
fn ask_part(namespace: &Namespace, peers: &mut dyn Peers, address: &str, repair: &Repair, ask: Step) -> Result<Repair> {
    let (own, at_us) = (namespace.journal().namespace().to_string(), Some(repair.at_us));
    let part_of = PartOf { namespace: own, repair: repair.repair, at_us };
    let mut asked = serde_json::to_value(PartAsk { part_of, ask }).expect("names, numbers and text always make JSON");
    asked["do"] = "part".into();
    peers.ask(address, &asked.to_string()).and_then(|text| read(&text))
}

/// Notes what is the matter with a participant, or that it knows the outcome.
fn note_member(
    namespace: &Namespace,
    repair: u64,
    address: &str,
    error: Option<(String, String)>,
    done: bool,
) -> Result<()> {
    let address = address.to_owned();
    namespace.journal().commit(|tx| note(tx, &Note::Member { repair, address, error, done })).map(drop)
}

/// Whether asking again cannot help until a user acts.
fn is_final(error: &Error) -> bool {
    let is_of_repair = matches!(
        error.code(),
        Code::RepairUnsupported
            | Code::RepairGrows
            | Code::RepairLeaves
            | Code::RepairPart
            | Code::RepairPhase
            | Code::RepairNotFound
            | Code::RepairCodeChanged
            | Code::ReadersUnknown
            | Code::CorrectionInvalid
            | Code::CorrectionTooOld
    );
    is_of_repair || error.code().kind() == ErrorKind::Denied
}

/// An error of a participant that ends the attempt.
fn of_member(address: &str, error: &Error) -> Error {
    // The phase of its part is not that of the repair here.
    let code = if error.code() == Code::RepairPhase { Code::RepairPart } else { error.code() };
    code.error(error.detail()).within(format!("namespace {address}"))
}

/// An error of a participant that may pass.
fn waits(address: &str, error: &Error) -> Error {
    Code::RepairPeer.error(format!("namespace {address}: {}: {}", error.code().id(), error.detail()))
}

/// Tells the namespaces that took part in repairs of this one how these ended. Whether one of them does not know it yet.
pub fn outcomes(namespace: &Namespace, peers: &mut dyn Peers, stop: &AtomicBool) -> Result<bool> {
    let mut remain = false;
    for repair in book::repairs(namespace)?.into_iter().filter(Repair::has_news_for_others) {
        for member in repair.across.iter().filter(|member| !member.done) {
            let told = tell(namespace, peers, &repair, &member.address, stop);
            let (error, done) = match told {
                Ok(done) => (None, done),
                Err(error) => (Some((error.code().id().to_owned(), error.detail().to_owned())), false),
            };
            remain |= !done;
            if done || error != member.error {
                note_member(namespace, repair.repair, &member.address, error, done)?;
            }
        }
    }
    Ok(remain)
}

/// Tells one namespace; whether it has done its part.
fn tell(
    namespace: &Namespace,
    peers: &mut dyn Peers,
    repair: &Repair,
    address: &str,
    stop: &AtomicBool,
) -> Result<bool> {
    let is_given_up = repair.phase == Phase::Abandoned;
    let step = || if is_given_up { Step::Abort } else { Step::Commit };
    let part = match ask_part(namespace, peers, address, repair, step()) {
        // It never joined.
        Err(error) if error.code() == Code::RepairNotFound && is_given_up => return Ok(true),
        asked => asked?,
    };
    let mut part = part;
    for _ in 0..OUTCOME_ASKS {
        if !part.phase.is_open() {
            if is_given_up && matches!(part.phase, Phase::Applied | Phase::Closed) {
                // Possible only if this namespace was put back to before its decision.
                let error = format!("the repair was abandoned here, but its part, repair {}, is applied", part.repair);
                return Err(Code::RepairPart.error(error));
            }
            if part.late && matches!(repair.phase, Phase::Applied | Phase::Closed) {
                late::correct(namespace, peers, repair, (address, part.repair))?;
            }
            return Ok(true);
        }
        if stop.load(Ordering::Acquire) {
            return Ok(false);
        }
        thread::sleep(ASK_EVERY);
        part = peers.show(address, &format!("repairs/{}", part.repair)).and_then(|text| read(&text))?;
    }
    match part.error {
        Some((code, detail)) => Err(Code::from_id(&code).unwrap_or(Code::RepairPart).error(detail)),
        None => Ok(false), // If it has switched by now, it is asked for the rest the next time.
    }
}
