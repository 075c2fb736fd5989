//! The threads: one leads, and sleeps until the journal has new entries; one is on standby; the others sleep until they are called.
//!
//! A leader that is woken runs the function itself, and no thread watches the journal meanwhile. If it returns within [`TAKE_OVER`],
//! nothing changes; otherwise the thread on standby becomes the leader. So a short run costs one wake-up, and a long one delays later runs
//! by at most [`TAKE_OVER`].

use millrace_wire::{Code, Error};
use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long the journal may go unwatched while a leader runs functions.
const TAKE_OVER: Duration = Duration::from_millis(2);
/// How long a thread keeps polling after the last batch; for that time, polling costs less than waking it.
const STAND_BY: Duration = Duration::from_millis(100);
/// The longest sleep. Every wait also has a waker; this only limits the effect of a missed wake-up.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// The maximum number of threads; the concurrency of functions is usually the lower limit.
pub(super) const THREADS_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Pool {
    counts: Mutex<Counts>,
    called: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct Counts {
    threads: usize,
    /// A thread waits for the journal.
    led: bool,
    /// A thread sleeps for a short time only, to become the leader when needed.
    standing_by: bool,
    /// The number of sleeping threads, and how many of them have been called.
    asleep: usize,
    calls: usize,
    /// When each batch in progress began.
    executing: Vec<Instant>,
    last_batch: Option<Instant>,
    stopping: bool,
}

/// The next role of a thread without work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Wait for the journal, then call [`Pool::led`].
    Lead,
    /// Look for work again.
    Look,
    /// End.
    End,
}

impl Pool {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Counters only, each changed in one step.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is about to be started; false if there are too many, or the pool is stopping.
    pub fn enter(&self) -> bool {
        let mut counts = self.counts();
        let room = counts.threads < THREADS_MAX && !counts.stopping;
        counts.threads += usize::from(room);
        room
    }

    /// A thread has ended, or could not be started.
    pub fn exit(&self) {
        self.counts().threads -= 1;
        self.called.notify_all(); // another thread may have to lead
        self.ended.notify_all();
    }

    /// The calling thread begins a batch; `more` says that another could begin too. True if a thread should be started.
    /// The moment returned is for [`Pool::end`].
    pub fn begin(&self, more: bool) -> (Instant, bool) {
        let now = Instant::now();
        let mut counts = self.counts();
        counts.executing.push(now);
        counts.last_batch = Some(now);
        if counts.asleep == 0 {
            // A thread that was just started, or is about to sleep, will watch the journal.
            return (now, !counts.led && counts.threads <= counts.executing.len());
        }
        if more && counts.calls < counts.asleep {
            counts.calls += 1;
            self.called.notify_one();
        } else if !counts.led && !counts.standing_by {
            self.called.notify_one();
        }
        (now, false)
    }

    /// Ends the batch that began at this moment.
    pub fn end(&self, began: Instant) {
        let mut counts = self.counts();
        // If two began at the same moment, either of them can be removed.
        if let Some(place) = counts.executing.iter().position(|other| *other == began) {
            counts.executing.swap_remove(place);
        }
    }

    /// Gives the calling thread its next role when it has nothing to do until `deadline`.
    pub fn rest(&self, deadline: Option<Duration>) -> Rest {
        let mut counts = self.counts();
        let until = deadline.map(|deadline| Instant::now() + deadline);
        loop {
            if counts.stopping {
                return Rest::End;
            }
            // A thread that started just now will probably return at once, and then watches the journal itself.
            let back_soon = counts.executing.iter().any(|began| began.elapsed() < TAKE_OVER);
            if !counts.led && !back_soon {
                counts.led = true;
                return Rest::Lead;
            }
            let active = counts.last_batch.is_some_and(|last| last.elapsed() < STAND_BY);
            let stands_by = !counts.standing_by && (!counts.led || active);
            let mut time = if stands_by { TAKE_OVER } else { SLEEP_MAX };
            if let Some(until) = until {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Rest::Look;
                }
                time = time.min(left);
            }
            counts.asleep += 1;
            counts.standing_by |= stands_by;
            counts = self.called.wait_timeout(counts, time).unwrap_or_else(PoisonError::into_inner).0;
            counts.asleep -= 1;
            counts.standing_by &= !stands_by;
            if counts.calls > 0 {
                counts.calls -= 1;
                return Rest::Look;
            }
        }
    }

    /// The leader is awake.
    pub fn led(&self) {
        self.counts().led = false;
    }

    /// How long a leader may sleep.
    pub fn lead_time(deadline: Option<Duration>) -> Duration {
        deadline.map_or(SLEEP_MAX, |deadline| deadline.min(SLEEP_MAX))
    }

    /// Tells all threads to end.
    pub fn wake_all(&self) {
        self.counts().stopping = true;
        self.called.notify_all();
    }

    /// Waits until all threads have ended, or the time is over; returns how many have not.
    pub fn wait_empty(&self, time: Duration) -> usize {
        let start = Instant::now();
        let mut counts = self.counts();
        while counts.threads > 0 {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            counts = self.ended.wait_timeout(counts, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        counts.threads
    }
}

pub(super) fn no_thread(error: &std::io::Error) -> Error {
    Code::HostStart.error(format!("cannot start a thread: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    #[test]
    fn one_leads_and_the_next_takes_over_when_it_stays_away() {
        let pool = Arc::new(Pool::default());
        assert!(pool.enter() && pool.enter());
        assert_eq!(pool.rest(None), Rest::Lead);
        let of_other = pool.clone();
        let other = thread::spawn(move || of_other.rest(None));
        while pool.counts().asleep == 0 {
            thread::yield_now();
        }
        pool.led();
        assert!(!pool.begin(false).1, "somebody is there to take over");
        assert_eq!(other.join().unwrap(), Rest::Lead);
    }

    #[test]
    fn a_thread_is_started_when_nobody_is_left_to_watch() {
        let pool = Pool::default();
        assert!(pool.enter());
        let (began, alone) = pool.begin(false);
        assert!(alone);
        pool.end(began);
        assert_eq!(pool.rest(None), Rest::Lead);
    }

    #[test]
    fn no_second_thread_is_started_while_the_first_has_not_come_yet() {
        let pool = Pool::default();
        assert!(pool.enter());
        let (began, alone) = pool.begin(false);
        assert!(alone && pool.enter());
        pool.end(began);
        assert!(!pool.begin(false).1, "one is on its way, however long the machine takes to let it run");
    }

    #[test]
    fn who_is_called_looks_and_who_is_stopped_ends() {
        let pool = Arc::new(Pool::default());
        assert_eq!(pool.rest(None), Rest::Lead);
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.rest(None))
            })
            .collect();
        while pool.counts().asleep < 2 {
            thread::yield_now();
        }
        assert!(!pool.begin(true).1);
        while pool.counts().asleep > 1 {
            thread::yield_now();
        }
        pool.wake_all();
        let rests: Vec<Rest> = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect();
        assert!(rests.contains(&Rest::Look) && rests.contains(&Rest::End), "{rests:?}");
        assert_eq!(pool.rest(None), Rest::End);
    }

    #[test]
    fn a_deadline_ends_the_rest() {
        let pool = Pool::default();
        assert_eq!(pool.rest(None), Rest::Lead);
        assert_eq!(pool.rest(Some(Duration::from_millis(1))), Rest::Look);
    }

    #[test]
    fn stopping_waits_for_threads_and_counts_who_is_left() {
        let pool = Arc::new(Pool::default());
        assert!(pool.enter());
        assert_eq!(pool.wait_empty(Duration::from_millis(1)), 1);
        pool.wake_all();
        assert!(!pool.enter(), "nobody joins a pool that is stopping");
        pool.exit();
        assert_eq!(pool.wait_empty(Duration::from_secs(60)), 0);
    }
}
