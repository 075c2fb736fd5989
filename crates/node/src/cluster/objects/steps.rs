//! Methods of objects of user classes: the host that leads their group runs them, in workers of its pools.
//!
//! ```text
//!  CALL, agreed on ── a waiter on every host ── on the leader: begin ──> worker ──> finish ── STEP, agreed on ── the answer, on every host
//! ```
//!
//! Nothing of a step is in the state before its end is agreed on. So another host that leads runs a step again whose end was not, from
//! the fields that were agreed on last; of two ends of one step, the first counts.

use super::{Cluster, GroupObjects, locked};
use millrace_entities::{Finished, Job, Replicated, Session, Ticket};
use millrace_group::{Action, Durability};
use millrace_wire::{Code, Result};
use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// The overhead of a command around the result of a step.
const AROUND_MAX_BYTES: usize = 4096;

/// Wakes the thread that hands steps to workers.
#[derive(Default)]
pub(crate) struct Ring {
    rung: Mutex<bool>,
    due: Condvar,
}

impl Ring {
    pub fn ring(&self) {
        *locked(&self.rung) = true;
        self.due.notify_one();
    }

    /// Waits until it is rung, or for this long.
    pub fn wait(&self, most: Duration) {
        let waited = self.due.wait_timeout_while(locked(&self.rung), most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// An object and its pool.
type Of = (Box<str>, Box<str>);

/// The steps that are due on this host.
#[derive(Default)]
pub(super) struct Due {
    /// Objects whose next step may begin.
    pub work: Vec<Of>,
    /// Those whose step is tried again some time later.
    later: Vec<Of>,
    /// By object: the step that has begun here and whose end is not agreed on.
    begun: HashMap<Box<str>, Ticket>,
}

impl Due {
    /// This host leads from now on.
    pub fn all(&mut self, replicated: &Replicated) {
        self.work = replicated.waiting_objects().map(|(key, pool)| (key.into(), pool.into())).collect();
    }

    /// Starts the postponed steps that are due; returns whether there were any.
    pub fn again(&mut self) -> bool {
        self.work.append(&mut self.later);
        !self.work.is_empty()
    }
}

impl GroupObjects {
    /// The group has agreed on the end of a step, or has not in time.
    fn ended(&self, (key, pool): Of, ticket: Ticket, session: &Session, agreed: &Result<u64>) {
        let mut state = locked(&self.state);
        // A call of the step is refused now, so its session is not opened again.
        state.here.remove(session);
        if state.steps.begun.get(&key) == Some(&ticket) {
            state.steps.begun.remove(&key);
        }
        match agreed {
            Ok(_) if state.leads && state.replicated.plan(&key, 0).is_some() => {
                state.steps.work.push((key, pool));
                drop(state);
                self.ring.ring();
            }
            Ok(_) => {}
            Err(_) => state.steps.later.push((key, pool)),
        }
    }
}

impl Cluster {
    /// Rings when steps are due.
    pub(crate) fn ring(&self) -> Arc<Ring> {
        self.shared.ring.clone()
    }

    /// The objects whose next step this host may begin, and their pools.
    pub(crate) fn take_steps(&self) -> Vec<Of> {
        let Some(group) = self.shared.objects() else { return Vec::new() };
        let mut state = locked(&group.objects.state);
        let work = std::mem::take(&mut state.steps.work);
        // A host that leads again looks for all of them.
        if state.leads { work } else { Vec::new() }
    }

    /// A step cannot begin yet.
    pub(crate) fn put_off_step(&self, of: Of) {
        if let Some(group) = self.shared.objects() {
            locked(&group.objects.state).steps.later.push(of);
        }
    }

    /// Begins the next step of an object, if this host leads and has not begun with it.
    pub(crate) fn begin_step(&self, key: &str, number: u64) -> Option<Job> {
        let group = self.shared.objects()?;
        let mut state = locked(&group.objects.state);
        let job = state.replicated.plan(key, number).filter(|_| state.leads)?;
        if state.steps.begun.get(key) == Some(&job.ticket) {
            return None;
        }
        state.steps.begun.insert(key.into(), job.ticket);
        Some(job)
    }

    /// The session of a step, in which an earlier host may have called other objects, does not end as long as the step runs.
    pub(crate) fn hear_step(&self, session: Session, lease_ms: u64) {
        if let Some(group) = self.shared.objects() {
            group.objects.hear(session, lease_ms, true);
        }
    }

    /// The fields of an object.
    pub(crate) fn fields(&self, key: &str, incarnation: u64) -> Result<Vec<u8>> {
        let group = self.shared.objects().ok_or_else(|| Code::ObjectLost.error(format!("'{key}' is gone")))?;
        let state = locked(&group.objects.state);
        state.replicated.space().fields(key, incarnation)
    }

    /// The body of a class of an object.
    pub(crate) fn class(&self, pool: &str, number: u64) -> Result<Vec<u8>> {
        let group = self.shared.objects();
        let body = group.and_then(|group| {
            let state = locked(&group.objects.state);
            state.replicated.class(pool, i64::try_from(number).ok()?).map(<[u8]>::to_vec)
        });
        body.ok_or_else(|| Code::ClassMissing.error(format!("class {number} of pool '{pool}'")))
    }

    /// A step has ended here: what it came to is for all hosts.
    pub(crate) fn finish_step(&self, job: Job, pool: &str, session: Session, finished: Finished) {
        let Some(group) = self.shared.objects() else { return };
        let mut command = job.command(session, finished).encode();
        let most = self.shared.limits.entry_max_bytes.saturating_sub(AROUND_MAX_BYTES);
        if command.len() > most {
            let bytes = command.len();
            let reported = format!("the method left {bytes} bytes of fields and answer; the limit of a step is {most}");
            command = job.command(session, Finished::Refused("millrace.TooLarge", reported)).encode();
        }
        let (of, id, ticket): (_, _, _) = ((job.key, pool.into()), group.id, job.ticket);
        let ended = move |agreed: Result<u64>| group.objects.ended(of, ticket, &session, &agreed);
        self.shared.submit(id, Action::Machine, command, Durability::Quorum, Box::new(ended));
    }
}
