//! Every order of the steps of waiters and wakers, as a seed decides it.

use super::*;
use std::sync::atomic::AtomicU64;

/// Runs threads one at a time, in an order that a seed decides, with a kernel's sleep and wake-up of its own: a thread that
/// sleeps without a waker left is found, not waited for.
pub(crate) mod schedule {
    use std::{
        cell::RefCell,
        sync::{Arc, Condvar, Mutex, atomic::AtomicU32, atomic::Ordering},
        thread,
    };

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum At {
        Ready,
        Asleep(usize),
        Over,
    }

    struct State {
        threads: Vec<At>,
        running: usize,
        random: u64,
        stuck: bool,
    }

    #[derive(Clone)]
    struct Schedule(Arc<(Mutex<State>, Condvar)>);

    thread_local! {
        static MINE: RefCell<Option<(Schedule, usize)>> = const { RefCell::new(None) };
    }

    impl Schedule {
        fn next(state: &mut State) {
            let ready: Vec<usize> = (0..state.threads.len()).filter(|n| state.threads[*n] == At::Ready).collect();
            if ready.is_empty() {
                state.stuck |= state.threads.iter().any(|at| matches!(at, At::Asleep(_)));
                state.threads.iter_mut().filter(|at| **at != At::Over).for_each(|at| *at = At::Ready);
                return;
            }
            state.random = state.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.running = ready[(state.random >> 33) as usize % ready.len()];
        }

        /// Gives the turn away and returns when it is this thread's again, or when nobody can go on.
        fn pass(&self, me: usize, at: At) {
            let mut state = self.0.0.lock().unwrap();
            state.threads[me] = at;
            Self::next(&mut state);
            self.0.1.notify_all();
            while at != At::Over && !state.stuck && (state.running != me || state.threads[me] != At::Ready) {
                state = self.0.1.wait(state).unwrap();
            }
        }
    }

    pub fn step() {
        MINE.with_borrow(|mine| {
            if let Some((schedule, me)) = mine {
                schedule.pass(*me, At::Ready);
            }
        });
    }

    /// Instead of the kernel's; whether a schedule is in force.
    pub fn sleep(word: &AtomicU32, expected: u32) -> bool {
        MINE.with_borrow(|mine| {
            let Some((schedule, me)) = mine else { return false };
            if word.load(Ordering::SeqCst) == expected {
                schedule.pass(*me, At::Asleep(word.as_ptr() as usize));
            }
            true
        })
    }

    /// Instead of the kernel's; whether a schedule is in force.
    pub fn wake(word: &AtomicU32) -> bool {
        MINE.with_borrow(|mine| {
            let Some((schedule, _)) = mine else { return false };
            let mut state = schedule.0.0.lock().unwrap();
            let here = At::Asleep(word.as_ptr() as usize);
            state.threads.iter_mut().filter(|at| **at == here).for_each(|at| *at = At::Ready);
            true
        })
    }

    /// Whether nobody can go on: then every wait is over, so that the threads end.
    pub fn is_stuck() -> bool {
        MINE.with_borrow(|mine| mine.as_ref().is_some_and(|(schedule, _)| schedule.0.0.lock().unwrap().stuck))
    }

    /// Runs the threads in the order of this seed; false if some slept forever.
    pub fn run(seed: u64, threads: &[&(dyn Fn() + Sync)]) -> bool {
        let state = State { threads: vec![At::Ready; threads.len()], running: 0, random: seed, stuck: false };
        let schedule = Schedule(Arc::new((Mutex::new(state), Condvar::new())));
        thread::scope(|scope| {
            for (me, work) in threads.iter().enumerate() {
                let schedule = schedule.clone();
                scope.spawn(move || {
                    let mut state = schedule.0.0.lock().unwrap();
                    while state.running != me {
                        state = schedule.0.1.wait(state).unwrap();
                    }
                    drop(state);
                    MINE.set(Some((schedule.clone(), me)));
                    work();
                    MINE.take();
                    schedule.pass(me, At::Over);
                });
            }
        });
        let stuck = schedule.0.0.lock().unwrap().stuck;
        !stuck
    }
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    for seed in 0..6_000 {
        let (published, waiters) = (AtomicU64::new(0), Waiters::default());
        let wait = |goal: u64| {
            while published.load(Ordering::SeqCst) < goal && !schedule::is_stuck() {
                let announced = waiters.announce();
                if published.load(Ordering::SeqCst) < goal {
                    waiters.sleep(announced, Duration::MAX);
                }
            }
        };
        let publish = || {
            published.fetch_add(1, Ordering::SeqCst);
            waiters.wake();
        };
        // Several wakers at once, as when one ends a flush while the next begins.
        let threads: [&(dyn Fn() + Sync); 4] = [&|| wait(1), &|| (1..=3).for_each(wait), &publish, &|| {
            publish();
            publish();
        }];
        assert!(schedule::run(seed, &threads), "seed {seed}: a waiter sleeps for ever");
    }
}
