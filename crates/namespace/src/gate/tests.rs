//! Several watermarks: an answer leaves once each has come far enough, and not before.

use super::{Disk, Gate, Gated, Marks, Need, Of, Shows, Site, Watermark, gated::Waits};
use millrace_journal::{CreateOptions, Durability, Journal, Position, medium::sim::SimDisk};
use millrace_wire::{Code, Result};
use std::{
    future::Future,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

/// A watermark that a test moves: it lags behind, comes further, or fails.
#[derive(Default)]
struct Far {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    reached: u64,
    is_lost: bool,
    waiting: Vec<(u64, Waker)>,
}

impl Far {
    /// Comes so far, or fails for good, and wakes whom that concerns.
    fn moves(&self, reached: Option<u64>) {
        let mut state = self.state.lock().unwrap();
        match reached {
            Some(reached) => state.reached = state.reached.max(reached),
            None => state.is_lost = true,
        }
        let (reached, is_lost) = (state.reached, state.is_lost);
        let (over, waiting) = state.waiting.drain(..).partition(|(upto, _)| is_lost || *upto <= reached);
        state.waiting = waiting;
        drop(state);
        self.moved.notify_all();
        let over: Vec<(u64, Waker)> = over;
        over.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn waiters(&self) -> usize {
        self.state.lock().unwrap().waiting.len()
    }
}

impl Watermark for Far {
    fn reached(&self) -> u64 {
        self.state.lock().unwrap().reached
    }

    fn wait(&self, upto: u64) -> Result<()> {
        let state = self.state.lock().unwrap();
        let state = self.moved.wait_while(state, |state| state.reached < upto && !state.is_lost).unwrap();
        if state.reached < upto { Err(Code::ReadOnly.error("it is lost")) } else { Ok(()) }
    }

    fn wake(&self, upto: u64, waker: &Waker) {
        self.state.lock().unwrap().waiting.push((upto, waker.clone()));
    }

    fn check(&self) -> Result<()> {
        if self.state.lock().unwrap().is_lost { Err(Code::ReadOnly.error("it is lost")) } else { Ok(()) }
    }
}

/// Every record depends on all of these, up to its own position.
struct All(Vec<Arc<Far>>, AtomicBool);

impl Marks for All {
    fn any(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    fn of(&self, shows: &Shows<'_>, needs: &mut Vec<Need>) {
        if !matches!(shows, Shows::Report(_)) {
            needs.extend(self.0.iter().map(|far| (far.clone() as Arc<dyn Watermark>, shows.upto().get())));
        }
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A gate over a journal with one entry that no flush has seen, whose answers wait for `far`; and the end of this entry.
fn gate(far: &[Arc<Far>]) -> (Arc<Gate>, Arc<All>, Position) {
    let options = CreateOptions { segment_bytes: 1 << 20, ..CreateOptions::default() };
    let journal = Journal::create_on(SimDisk::default().process(), Path::new("sim"), &options).unwrap();
    let end = journal.commit(|tx| tx.create_log(&"raw".parse().unwrap(), 10)).unwrap().end;
    let gate = Gate::new(journal);
    let marks = Arc::new(All(far.to_vec(), AtomicBool::new(true)));
    gate.turn(); // After this call, it flushes only in later calls of `turn`.
    gate.set_marks(marks.clone());
    (gate, marks, end)
}

fn poll<T: Unpin>(held: &mut Gated<T>, woken: &Arc<Woken>) -> Poll<Result<T>> {
    Pin::new(held).poll(&mut Context::from_waker(&Waker::from(woken.clone())))
}

fn is_free<T>(held: Gated<T>) -> bool {
    held.now().is_ok()
}

#[test]
fn an_answer_waits_for_each_watermark_and_is_woken_once_for_each() {
    let far = [Arc::<Far>::default(), Arc::default()];
    let (gate, _, end) = gate(&far);
    let woken = Arc::<Woken>::default();
    let mut held = gate.hold(Site::Get, 7, Shows::Record(end), None);
    assert!(poll(&mut held, &woken).is_pending());
    assert_eq!([far[0].waiters(), far[1].waiters()], [0, 0], "it stands at the disk first, and only there");
    gate.journal.sync(end).unwrap();
    assert!(poll(&mut held, &woken).is_pending());
    assert_eq!([far[0].waiters(), far[1].waiters()], [1, 0]);
    far[1].moves(Some(end.get()));
    assert_eq!(woken.0.load(Ordering::SeqCst), 0, "it stands at the first one, so the second wakes nobody");
    far[0].moves(Some(end.get() - 1));
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    assert!(!is_free(gate.hold(Site::Get, 7, Shows::Record(end), None)));
    far[0].moves(Some(end.get()));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(matches!(poll(&mut held, &woken), Poll::Ready(Ok(7))));
    assert!(is_free(gate.hold(Site::Get, 7, Shows::Record(end), None)));
}

#[test]
fn what_is_not_on_disk_yet_waits_for_marks_even_if_memory_is_enough() {
    let far = [Arc::<Far>::default()];
    let (gate, marks, end) = gate(&far);
    let memory = Some(Durability::Memory);
    assert!(!is_free(gate.hold(Site::Append, (), Shows::Batch(end), memory)));
    assert!(!is_free(gate.hold(Site::Range, (), Shows::Records(&[Position::default(), end]), memory)));
    assert!(is_free(gate.hold(Site::Range, (), Shows::Records(&[]), memory)));
    assert!(is_free(gate.hold(Site::Inspect, (), Shows::Report(end), memory)), "a report has no mark");
    assert!(is_free(gate.refuse::<()>(Code::LogNotFound.error("no such log"), memory)));
    marks.1.store(false, Ordering::Relaxed);
    assert!(is_free(gate.hold(Site::Append, (), Shows::Batch(end), memory)), "nothing is outstanding");
}

#[test]
fn the_first_watermark_that_fails_answers_whatever_the_others_do() {
    let far = [Arc::<Far>::default(), Arc::default()];
    let (gate, _, end) = gate(&far);
    let woken = Arc::<Woken>::default();
    let mut held = gate.hold(Site::Get, (), Shows::Record(end), None);
    let blocked = gate.hold(Site::Get, (), Shows::Record(end), Some(Durability::Memory));
    assert!(poll(&mut held, &woken).is_pending());
    far[1].moves(None);
    assert!(!held.wake_when_over(Waker::noop()), "it is known that it never may");
    let Poll::Ready(Err(error)) = poll(&mut held, &woken) else { panic!("it waits for what is lost") };
    assert_eq!(error.code(), Code::ReadOnly);
    // One that blocks learns of it as well, once it gets there.
    far[0].moves(Some(end.get()));
    assert_eq!(blocked.wait().unwrap_err().code(), Code::ReadOnly);
    // What had come far enough before does not fail.
    far[0].moves(None);
    let before = Position::from_bytes(end.get().min(far[1].reached()));
    assert!(is_free(gate.hold(Site::Get, (), Shows::Record(before), Some(Durability::Memory))));
}

#[test]
fn a_thread_that_blocks_waits_for_all() {
    let far = [Arc::<Far>::default(), Arc::default()];
    let (gate, _, end) = gate(&far);
    let held = gate.hold(Site::Get, 3, Shows::Record(end), None);
    let of_thread = far.clone();
    let mover = thread::spawn(move || {
        of_thread[1].moves(Some(end.get()));
        of_thread[0].moves(Some(end.get()));
    });
    assert_eq!(held.wait().unwrap(), 3);
    mover.join().unwrap();
    assert!(gate.journal.durable() >= end, "and the disk");
}

#[test]
fn a_site_that_is_taken_out_holds_nothing_of_that_kind() {
    let far = [Arc::<Far>::default()];
    let (gate, marks, end) = gate(&far);
    for site in Site::ALL {
        assert!(!is_free(gate.hold(site, (), Shows::Record(end), Some(Durability::Memory))), "{site:?}");
        gate.take_out(site, Of::Far);
        assert!(is_free(gate.hold(site, (), Shows::Record(end), Some(Durability::Memory))), "{site:?}");
        assert!(!is_free(gate.hold(site, (), Shows::Record(end), None)), "{site:?}: the disk remains");
        gate.take_out(site, Of::Disk);
        assert!(is_free(gate.hold(site, (), Shows::Record(end), None)), "{site:?}");
    }
    marks.1.store(false, Ordering::Relaxed);
    assert!(matches!(gate.hold(Site::Get, (), Shows::Record(end), None).waits, Waits::Nothing));
    let _: &Arc<Disk> = &gate.disk;
}

/// Whatever the watermarks do and in whichever order, an answer leaves exactly when all have come far enough, and its waiter is woken
/// by then.
#[test]
fn in_every_order_it_leaves_when_the_last_one_is_reached() {
    for seed in 0..500_u64 {
        let far = [(); 3].map(|()| Arc::<Far>::default());
        let (gate, _, end) = gate(&far);
        gate.journal.sync(end).unwrap();
        let woken = Arc::<Woken>::default();
        let mut held = gate.hold(Site::Get, (), Shows::Record(end), None);
        assert!(poll(&mut held, &woken).is_pending());
        let (mut random, mut polled) = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, 0);
        loop {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let one = &far[(random % 3) as usize];
            one.moves(Some(one.reached() + 1 + random / 3 % end.get()));
            let over = far.iter().all(|far| far.reached() >= end.get());
            let wakes = woken.0.load(Ordering::SeqCst);
            assert!(wakes <= 3, "seed {seed}: woken at most once for each watermark");
            if wakes > polled {
                polled = wakes;
                match poll(&mut held, &woken) {
                    Poll::Ready(answer) => {
                        assert!(over && answer.is_ok(), "seed {seed}");
                        break;
                    }
                    Poll::Pending => assert!(!over, "seed {seed}"),
                }
            }
            assert!(!over || woken.0.load(Ordering::SeqCst) > polled, "seed {seed}: nobody was woken");
        }
    }
}
