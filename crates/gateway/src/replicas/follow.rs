//! Follows one owner: loads the replicas that have to be loaded, and then imports batch after batch.

use super::{Cut, is_stopping};
use crate::links::{
    Shared,
    line::{self, Answer, Line},
    pace::Pace,
};
use millrace_node::{
    Code, EventId, LogName, Namespace, NamespaceId, Result,
    replicas::{Followed, FollowedRecord, Imported, LiveOwner, Loading, Owner, Replica, ReplicaStage, Stopped},
};
use millrace_wire::protocol::{
    FollowTables, FollowedTable, LoadTable, LoadedTable, Message, TableBatches, TableRecord,
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// How long the owner waits for a batch.
const WAIT_MS: u32 = 10_000;
/// How long an answer may take: the owner may wait for a database.
const PATIENCE: Duration = Duration::from_secs(45);
/// How often it is looked whether the replicas are still wanted.
const WANTED_EVERY: Duration = Duration::from_millis(200);
/// The pause after the functions of replicas had no room for more runs.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Follows one owner.
pub(super) struct Follower {
    namespace: Namespace,
    number: u32,
    shared: Arc<Shared>,
    cut: Arc<Cut>,
}

/// How an attempt ended that did not fail.
enum Ended {
    /// There is nothing to follow any more, or nothing until somebody decides.
    Gone,
    /// The replicas were changed: the next attempt begins at once.
    Again,
}

/// The owner and its replicas, as they are noted.
type State = (Owner, Vec<(LogName, Replica)>);

/// How far a connection is.
#[derive(Default)]
struct Course {
    /// The entry that was noted when the next one was asked for, and the one up to which nothing has to be imported behind it.
    cursor: Option<(Option<EventId>, EventId)>,
    /// The replicas for which that is so: another one may lack something in between.
    of: Vec<LogName>,
    /// The first records of a batch. The next answers have the rest.
    open: Vec<FollowedRecord>,
    /// The replicas that follow first go on to the newest entry, because the tables cannot be loaded as of the one where they are.
    first_follow: bool,
}

impl Follower {
    pub fn new(namespace: Namespace, number: u32, shared: Arc<Shared>, cut: Arc<Cut>) -> Self {
        Self { namespace, number, shared, cut }
    }

    /// Attempt after attempt, until there is nothing to follow.
    pub fn run(&self) {
        let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let mut pace = Pace::new(seed ^ u64::from(std::process::id()));
        let mut live = LiveOwner { number: self.number, ..LiveOwner::default() };
        while !self.shared.is_stopping() {
            let ended = self.attempt(&mut pace, &mut live);
            self.cut.hang_up();
            live.connected = false;
            match ended {
                Ok(Ended::Gone) => return self.namespace.forget_owner(self.number),
                Ok(Ended::Again) => {}
                Err(error) => {
                    let code = error.code().id();
                    tracing::info!(target: "replicas", owner = self.number, code, "failed: {}", error.detail());
                    if matches!(error.code(), Code::ReplicaDiverged | Code::ReplicaExists) {
                        // If that cannot be noted now, the next attempt finds the same.
                        let _ = self.namespace.stop_owner(self.number, &error);
                    }
                    live.trouble = Some(Stopped::by(&error));
                    self.namespace.note_owner(live.clone());
                    self.shared.sleep(pace.failed());
                }
            }
        }
    }

    fn state(&self) -> Result<Option<State>> {
        let owner = match self.namespace.owner(self.number) {
            Err(error) if error.code() == Code::NotAReplica => return Ok(None),
            owner => owner?,
        };
        if owner.stopped.is_some() {
            return Ok(None);
        }
        let its = self.namespace.replicas()?.into_iter().filter(|(_, replica)| replica.owner == self.number);
        Ok(Some((owner, its.collect())))
    }

    fn attempt(&self, pace: &mut Pace, live: &mut LiveOwner) -> Result<Ended> {
        let Some((owner, _)) = self.state()? else { return Ok(Ended::Gone) };
        let opened = |hang_up| {
            let mut kept = self.cut.kept();
            let hang_up: &mut millrace_client::blocking::HangUp = kept.insert(hang_up);
            if self.shared.is_stopping() {
                hang_up.hang_up();
            }
        };
        let mut line = Line::connect(&owner.peer()?, self.shared.ca.as_deref(), is_stopping(&self.shared), opened)?;
        let unknown = || Code::FrameMalformed.error("the owner has no identity");
        self.namespace.meet_owner(self.number, NamespaceId::new(line.other.namespace).ok_or_else(unknown)?)?;
        live.connected = true;
        let ended = self.drive(&mut line, pace, live);
        if live.is_current {
            // Until then it would have sent what is new.
            live.current_ms = now_ms().saturating_sub(line.heard().elapsed().as_millis() as u64);
            live.is_current = false;
        }
        ended
    }

    fn drive(&self, line: &mut Line, pace: &mut Pace, live: &mut LiveOwner) -> Result<Ended> {
        let mut course = Course::default();
        loop {
            if self.shared.is_stopping() {
                return Ok(Ended::Gone);
            }
            let Some(state) = self.state()? else { return Ok(Ended::Gone) };
            let (followed, loading): (Vec<_>, Vec<_>) =
                state.1.iter().partition(|(_, replica)| replica.stage == ReplicaStage::Following);
            if !loading.is_empty() && (!course.first_follow || followed.is_empty()) {
                // Up to there those that follow have everything, and those that are loaded do not.
                if live.position.take().is_some() {
                    self.namespace.note_owner(live.clone());
                }
                match self.load(line, &state, &loading) {
                    Err(error) if error.code() == Code::ReplicaPassed => {
                        self.namespace.load_again(self.number, &[ReplicaStage::New, ReplicaStage::Loading])?;
                        course = Course { first_follow: true, ..Course::default() };
                        live.trouble = Some(Stopped::by(&error));
                        self.namespace.note_owner(live.clone());
                        self.shared.sleep(BUSY_PAUSE);
                    }
                    loaded => loaded?,
                }
                pace.succeeded();
                continue;
            }
            if followed.is_empty() {
                return Ok(Ended::Gone);
            }
            match self.follow(line, &state, &followed, &mut course, live) {
                Ok(true) => pace.succeeded(),
                Ok(false) => return Ok(Ended::Again),
                Err(error) if error.code() == Code::ReplicaPassed => {
                    self.namespace.load_again(
                        self.number,
                        &[ReplicaStage::New, ReplicaStage::Loading, ReplicaStage::Following],
                    )?;
                    course = Course::default();
                    live.trouble = Some(Stopped::by(&error));
                }
                Err(error) if matches!(error.code(), Code::Busy | Code::OutboxFull) => {
                    live.trouble = Some(Stopped::by(&error));
                    self.namespace.note_owner(live.clone());
                    // What was read is read again.
                    course = Course { first_follow: course.first_follow, ..Course::default() };
                    self.shared.sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request and waits for its answer; `None` if the replicas have changed meanwhile.
    fn ask<M: Message, T: Send>(
        &self,
        line: &mut Line,
        message: &M,
        (state, patience): (&State, Duration),
        mut take: impl FnMut(&millrace_wire::protocol::Frame<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        line.send(self.namespace.journal().clock(), message)?;
        line.flush()?;
        let deadline = Instant::now() + patience;
        loop {
            match line.answer(WANTED_EVERY, &mut take)? {
                Some(Answer::Taken(taken)) => return Ok(Some(taken)),
                Some(Answer::Failed(_, error)) => return Err(error),
                None if self.shared.is_stopping() || !self.is_wanted(state)? => return Ok(None),
                None if Instant::now() > deadline => return Err(Code::LinkSilent.error("no answer arrived")),
                None => {}
            }
        }
    }

    /// Whether the replicas are as they were.
    fn is_wanted(&self, (owner, its): &State) -> Result<bool> {
        let now = self.state()?;
        Ok(now.is_some_and(|(now, those)| {
            now.position == owner.position && now.address == owner.address && those == *its
        }))
    }

    /// What the owner says of these tables, and where its journal ends.
    fn look(&self, line: &mut Line, state: &State, tables: &[&str]) -> Result<Option<(Vec<Followed>, EventId)>> {
        let look = FollowTables { tables: tables.to_vec(), after: EventId::NONE, wait_ms: 0 };
        self.ask(line, &look, (state, PATIENCE), |frame| {
            let batches: TableBatches<'_> = line::expect(frame)?;
            let known: Vec<Followed> = batches.tables.iter().map(followed).collect();
            if known.len() != tables.len() {
                return Err(Code::FrameMalformed.error("the owner answers for other tables"));
            }
            Ok((known, batches.upto))
        })
    }

    /// Loads the replicas that have to be.
    fn load(&self, line: &mut Line, state: &State, loading: &[&(LogName, Replica)]) -> Result<()> {
        let tables: Vec<&str> = loading.iter().map(|(_, replica)| &*replica.table).collect();
        let Some((known, newest)) = self.look(line, state, &tables)? else { return Ok(()) };
        let at = match state.0.position {
            Some(position) => position,
            None => {
                self.namespace.begin_at(self.number, newest)?;
                newest
            }
        };
        for ((table, replica), first) in loading.iter().copied().zip(&known) {
            check_incarnation(replica, first)?;
            if replica.stage == ReplicaStage::New {
                self.namespace.begin_load(table, first)?;
            }
            while let Some(Loading { replica, loaded }) = self.namespace.loading(table)? {
                let Some(now) = self.state()? else { return Ok(()) };
                let ask = LoadTable { table: &replica.table, at, above: loaded };
                let page = self.ask(line, &ask, (&now, PATIENCE), |frame| {
                    let page: LoadedTable<'_> = line::expect(frame)?;
                    Ok((followed(&page.table), page.records.iter().map(record).collect::<Vec<_>>(), page.more))
                })?;
                let Some((source, records, more)) = page else { return Ok(()) };
                check_incarnation(&replica, &source)?;
                self.namespace.load_records(table, &records)?;
                if !more {
                    self.namespace.end_load(table, source.latest)?;
                }
            }
        }
        Ok(())
    }

    /// Imports the next batches; false if the replicas have changed.
    fn follow(
        &self,
        line: &mut Line,
        state: &State,
        its: &[&(LogName, Replica)],
        course: &mut Course,
        live: &mut LiveOwner,
    ) -> Result<bool> {
        let noted = state.0.position;
        let Some(position) = noted else {
            // Without an entry nothing can follow: the tables are loaded again.
            return self.namespace.load_again(self.number, &[ReplicaStage::Following]).map(|()| false);
        };
        let names: Vec<LogName> = its.iter().map(|(name, _)| name.clone()).collect();
        if course.of != names {
            *course = Course { of: names.clone(), first_follow: course.first_follow, ..Course::default() };
        }
        let after = match course.cursor {
            Some((of, upto)) if of == noted => upto,
            _ => {
                course.open.clear();
                position
            }
        };
        let tables: Vec<&str> = its.iter().map(|(_, replica)| &*replica.table).collect();
        // The first answer says whether the replicas are behind; and those that have to be loaded wait for it.
        let wait_ms = if course.first_follow || !live.is_current { 0 } else { WAIT_MS };
        let ask = FollowTables { tables, after, wait_ms };
        let answer = self.ask(line, &ask, (state, PATIENCE), |frame| {
            let batches: TableBatches<'_> = line::expect(frame)?;
            let known: Vec<Followed> = batches.tables.iter().map(followed).collect();
            Ok((known, batches.records.iter().map(record).collect::<Vec<_>>(), batches.upto, batches.is_newest))
        })?;
        let Some((known, records, upto, is_newest)) = answer else { return Ok(false) };
        if known.len() != its.len() {
            return Err(Code::FrameMalformed.error("the owner answers for other tables"));
        }
        its.iter().zip(&known).try_for_each(|((_, replica), followed)| check_incarnation(replica, followed))?;
        course.open.extend(records);
        match course.open.last() {
            None => course.cursor = Some((noted, upto)),
            Some(last) if !last.ends => course.cursor = Some((noted, upto)),
            Some(_) => {
                let records = std::mem::take(&mut course.open);
                if self.namespace.import_batches(self.number, &names, (position, upto), &records)? == Imported::Moved {
                    return Ok(false);
                }
                course.cursor = Some((Some(upto), upto));
            }
        }
        live.trouble = None;
        live.latest = names
            .iter()
            .map(ToString::to_string)
            .zip(known.iter().map(|table| table.latest))
            .collect::<BTreeMap<_, _>>();
        if course.open.is_empty() {
            live.position = Some(upto);
            live.is_current = is_newest;
            if is_newest {
                live.current_ms = now_ms();
                course.first_follow = false;
            }
        }
        self.namespace.note_owner(live.clone());
        Ok(true)
    }
}

fn now_ms() -> u64 {
    millrace_node::now_us() / 1000
}

/// Refuses another table of the same name.
fn check_incarnation(replica: &Replica, followed: &Followed) -> Result<()> {
    match replica.incarnation {
        Some(known) if known != followed.incarnation => {
            let table = &replica.table;
            Err(Code::ReplicaDiverged.error(format!("table '{table}' of the owner was deleted and created again")))
        }
        _ => Ok(()),
    }
}

fn followed(table: &FollowedTable<'_>) -> Followed {
    Followed { incarnation: table.incarnation, latest: table.latest, options: table.options.to_owned() }
}

fn record(record: &TableRecord<'_>) -> FollowedRecord {
    FollowedRecord {
        table: record.table,
        seqno: record.seqno,
        id: record.id,
        hlc: record.hlc,
        key: record.key.to_vec(),
        value: (!record.is_deletion).then(|| record.data.to_vec()),
        expires_us: record.expires_us,
        ends: record.ends,
    }
}
