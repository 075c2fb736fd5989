//! Refusals of callers with a capability, before they are written to the audit log.
//!
//! The first refusal of a kind is written at once; more of the same within a minute are counted, and the count is written when the minute is
//! over. However many there are, they make at most [`LINES_MAX`] lines a minute. A loop only takes note; a thread that may wait commits.

use super::submit::Submissions;
use crate::audit::{Act, Audited};
use millrace_journal::lock_within;
use millrace_namespace::Namespace;
use millrace_security::token::{Action, Principal, Resource};
use millrace_wire::Code;
use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Most lines of a minute.
pub const LINES_MAX: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// The maximum number of lines with counts; beyond that, one line counts all the rest.
const COUNTS_MAX: usize = 20;
/// The maximum length of the resource's name in a line, in characters.
const ABOUT_MAX_CHARS: usize = 300;
/// How long a commit waits for the journal's lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// The caller, the right and the resource of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    by: String,
    about: String,
    code: Code,
}

impl Kind {
    fn line(self, again: Option<u64>) -> Audited {
        let Self { by, about, code } = self;
        let code = Some(code.id().to_owned());
        Audited { act: Act::Denied, by, ids: Vec::new(), about: Some(about), code, again }
    }
}

#[derive(Default)]
struct Noted {
    since: Option<Instant>,
    /// How often more each was refused in this minute.
    again: HashMap<Kind, u64>,
    /// Refusals of this minute that are counted together.
    others: u64,
    /// Lines of this minute.
    lines: usize,
    /// Lines that are to be committed, and whether that was asked for.
    due: Vec<Audited>,
    asked: bool,
}

/// Refusals of one namespace.
pub(super) struct Denials {
    namespace: Namespace,
    submissions: Arc<Submissions>,
    noted: Mutex<Noted>,
}

impl Noted {
    /// Ends a minute that is over: what was counted becomes lines of the next one.
    fn turn(&mut self, now: Instant) {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) < MINUTE) {
            return;
        }
        self.since = None;
        let (counted, mut others) = (mem::take(&mut self.again), mem::take(&mut self.others));
        let mut counted: Vec<(Kind, u64)> = counted.into_iter().filter(|(_, again)| *again > 0).collect();
        counted.sort_by(|(a, more_a), (b, more_b)| {
            more_b.cmp(more_a).then_with(|| (&a.by, &a.about).cmp(&(&b.by, &b.about)))
        });
        others += counted.iter().skip(COUNTS_MAX).map(|(_, again)| again).sum::<u64>();
        counted.truncate(COUNTS_MAX);
        self.lines = counted.len() + usize::from(others > 0);
        if self.lines > 0 {
            self.since = Some(now);
        }
        self.due.extend(counted.into_iter().map(|(kind, again)| kind.line(Some(again))));
        if others > 0 {
            let all = Audited::by_owner(Act::Denied).about("others");
            self.due.push(Audited { by: "several".into(), again: Some(others), ..all });
        }
    }

    fn count(&mut self, kind: Kind, now: Instant) {
        self.turn(now);
        self.since.get_or_insert(now);
        if let Some(again) = self.again.get_mut(&kind) {
            *again += 1;
        } else if self.lines + 1 < LINES_MAX {
            self.lines += 1;
            self.again.insert(kind.clone(), 0);
            self.due.push(kind.line(None));
        } else {
            self.others += 1;
        }
    }
}

impl Denials {
    pub fn new(namespace: Namespace, submissions: Arc<Submissions>) -> Self {
        Self { namespace, submissions, noted: Mutex::default() }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that this was refused.
    pub fn note(self: &Arc<Self>, by: &Principal, action: &Action<'_>, code: Code) {
        let name: String = action.on.name.chars().take(ABOUT_MAX_CHARS).collect();
        let about = format!("{} {}", action.right, Resource { name: &name, ..action.on });
        let kind = Kind { by: by.to_string(), about, code };
        let (by, about) = (&kind.by, &kind.about);
        tracing::info!(target: "access", by, about, code = code.id(), "refused");
        let mut noted = self.noted();
        noted.count(kind, Instant::now());
        self.ask(noted);
    }

    /// Writes the counts of a minute that is over. To be called from time to time.
    pub fn turn(self: &Arc<Self>) {
        let mut noted = self.noted();
        noted.turn(Instant::now());
        self.ask(noted);
    }

    fn ask(self: &Arc<Self>, mut noted: MutexGuard<'_, Noted>) {
        if noted.due.is_empty() || mem::replace(&mut noted.asked, true) {
            return;
        }
        drop(noted);
        let denials = self.clone();
        if !self.submissions.work(self.namespace.gate(), move || denials.commit()) {
            self.noted().asked = false;
        }
    }

    fn commit(&self) {
        let due = {
            let mut noted = self.noted();
            noted.asked = false;
            mem::take(&mut noted.due)
        };
        let written = lock_within(PATIENCE, || {
            self.namespace.journal().commit(|tx| due.iter().try_for_each(|line| line.note(tx)))
        });
        if written.is_err() {
            // They are tried again with the next ones, as far as there is room for them.
            let mut noted = self.noted();
            let room = LINES_MAX.saturating_sub(noted.due.len());
            noted.others += due.iter().skip(room).map(|line| line.again.unwrap_or(1)).sum::<u64>();
            noted.due.extend(due.into_iter().take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(number: usize) -> Kind {
        Kind { by: "a".into(), about: format!("read {number}"), code: Code::CapabilityDenied }
    }

    #[test]
    fn the_first_refusal_is_written_and_more_of_the_same_are_counted() {
        let (mut noted, now) = (Noted::default(), Instant::now());
        for _ in 0..1000 {
            noted.count(kind(1), now);
        }
        assert_eq!(mem::take(&mut noted.due), [kind(1).line(None)]);
        noted.turn(now + MINUTE / 2);
        assert!(noted.due.is_empty());
        noted.turn(now + MINUTE);
        assert_eq!(mem::take(&mut noted.due), [kind(1).line(Some(999))]);
        noted.count(kind(1), now + MINUTE);
        assert_eq!(mem::take(&mut noted.due), [kind(1).line(None)], "another minute");
        noted.turn(now + 3 * MINUTE);
        assert!(noted.due.is_empty(), "nothing came again");
    }

    #[test]
    fn a_minute_has_a_bounded_number_of_lines_and_loses_no_refusal() {
        let (mut noted, mut now) = (Noted::default(), Instant::now());
        let (mut reported, mut made) = (0, 0);
        for minute in 0..10 {
            for number in 0..5000 {
                noted.count(kind(number % (minute * 500 + 1)), now);
                made += 1;
            }
            let lines = mem::take(&mut noted.due);
            assert!(lines.len() <= LINES_MAX, "{} lines in a minute", lines.len());
            assert!(noted.again.len() <= LINES_MAX);
            reported += lines.iter().map(|line| line.again.unwrap_or(1)).sum::<u64>();
            now += MINUTE;
        }
        noted.turn(now);
        reported += noted.due.iter().map(|line| line.again.unwrap_or(1)).sum::<u64>();
        assert_eq!(reported, made);
    }
}
