//! The laws of a window, whatever the receiver and the network do.

use millrace_egress::{Contradiction, Limits, Next, Told, Window};
use proptest::prelude::*;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const ANSWER: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);
/// The records that there are to send; the number of a record is also its length.
const RECORDS: u64 = 60;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The sender acts.
    Turn,
    /// The oldest message arrives, and is answered.
    Arrives,
    /// The oldest message arrives, and the answer is lost.
    Unanswered,
    /// The oldest answer arrives.
    Answered,
    /// The receiver refuses the oldest message.
    Refuses,
    /// The connection breaks, which the sender notices.
    Breaks,
    /// Time passes.
    Passes(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => Just(Event::Turn),
        5 => Just(Event::Arrives),
        5 => Just(Event::Answered),
        1 => Just(Event::Unanswered),
        1 => Just(Event::Refuses),
        1 => Just(Event::Breaks),
        2 => (0..15u64).prop_map(Event::Passes),
    ];
    prop::collection::vec(event, 0..300)
}

/// A message: a question, or the records behind the first number up to the second one.
type Message = Option<(u64, u64)>;

struct World {
    window: Window,
    limits: Limits,
    now: Instant,
    under_way: VecDeque<Message>,
    answers: VecDeque<Told>,
    /// The last record that the receiver has.
    has: u64,
    /// The last record that was sent since the receiver was asked last.
    last: Option<u64>,
}

impl World {
    fn new(limits: Limits, known: bool) -> Self {
        let (window, now) = (Window::new(limits, known.then_some(0)), Instant::now());
        let (under_way, answers, last) = (VecDeque::new(), VecDeque::new(), known.then_some(0));
        Self { window, limits, now, under_way, answers, has: 0, last }
    }

    /// The sender acts; returns whether it did something.
    fn turn(&mut self) -> bool {
        match self.window.next(self.now) {
            Next::Ask => {
                self.last = None;
                // What was under way is lost with the connection.
                self.under_way = [None].into();
                self.answers.clear();
            }
            Next::Send { behind, flights, bytes } => {
                assert_eq!(Some(behind), self.last, "in order, and never before an answer to a question");
                assert!((1..=self.limits.flights).contains(&flights) && (1..=self.limits.bytes).contains(&bytes));
                if behind == RECORDS {
                    return false;
                }
                // As many records as fit, but at least one.
                let mut last = behind + 1;
                let mut size = last as usize;
                while last < RECORDS && size + (last + 1) as usize <= bytes {
                    last += 1;
                    size += last as usize;
                }
                if size > bytes && self.window.is_open() {
                    return false;
                }
                self.window.sent(last, size, self.now);
                self.under_way.push_back(Some((behind, last)));
                self.last = Some(last);
            }
            Next::Wait(until) => {
                assert!(until > self.now);
                return false;
            }
            Next::Stopped => panic!("nothing was refused for good"),
        }
        true
    }

    /// The oldest message arrives.
    fn arrives(&mut self) -> Option<Told> {
        Some(match self.under_way.pop_front()? {
            None => Told::Has(self.has),
            Some((behind, last)) => {
                assert!(behind <= self.has, "no record is left out");
                self.has = self.has.max(last);
                Told::Done(self.has)
            }
        })
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Has(last) => self.last = Some(last),
            Told::Refused { upto, .. } => {
                self.last = self.last.and(Some(upto));
                self.under_way.clear();
                self.answers.clear();
            }
            _ => {}
        }
        self.window.told(told, self.now).unwrap();
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Turn => drop(self.turn()),
            Event::Arrives => {
                let answer = self.arrives();
                self.answers.extend(answer);
            }
            Event::Unanswered => drop(self.arrives()),
            Event::Answered => {
                if let Some(answer) = self.answers.pop_front() {
                    self.told(answer);
                }
            }
            Event::Refuses => {
                // Answers to what came before were lost.
                if let Some(Some(_)) = self.under_way.pop_front() {
                    self.told(Told::Refused { upto: self.has, again: Some(PAUSE) });
                }
            }
            Event::Breaks => {
                self.under_way.clear();
                self.answers.clear();
                self.told(Told::Lost);
                let next = self.window.next(self.now);
                assert!(matches!(next, Next::Ask | Next::Wait(_)), "after a loss the receiver is asked: {next:?}");
                if next == Next::Ask {
                    self.last = None;
                    self.under_way.push_back(None);
                }
            }
            Event::Passes(seconds) => self.now += Duration::from_secs(seconds),
        }
        let parts = self.under_way.iter().flatten();
        assert!(parts.clone().count() <= self.limits.flights);
        let bytes: u64 = parts.clone().flat_map(|(behind, last)| behind + 1..=*last).sum();
        assert!(bytes as usize <= self.limits.bytes || parts.count() == 1);
    }
}

proptest! {
    #[test]
    fn records_are_sent_in_order_within_the_limits_and_arrive_once_in_the_end(
        flights in 1usize..6, bytes in 1usize..200, known: bool, events in events(),
    ) {
        let limits = Limits { flights, bytes, answer: ANSWER };
        let mut world = World::new(limits, known);
        for event in events {
            world.step(event);
        }
        // From now on the network works.
        for _ in 0..10 * RECORDS {
            world.step(Event::Turn);
            world.step(Event::Arrives);
            world.step(Event::Answered);
            world.step(Event::Passes(2));
        }
        prop_assert_eq!(world.has, RECORDS);
        prop_assert!(!world.window.is_open());
    }
}

fn window(known: Option<u64>) -> (Window, Instant) {
    (Window::new(Limits { flights: 2, bytes: 100, answer: ANSWER }, known), Instant::now())
}

#[test]
fn a_receiver_that_contradicts_itself_is_found_out() {
    let (mut window, now) = window(Some(5));
    window.sent(7, 10, now);
    for (told, said) in [
        (Told::Done(8), 8),
        (Told::Has(4), 4),
        (Told::Refused { upto: 4, again: None }, 4),
        (Told::Refused { upto: 8, again: None }, 8),
    ] {
        assert_eq!(window.told(told, now), Err(Contradiction { said, known: (5, 7) }), "{told:?}");
    }
    assert_eq!(window.next(now), Next::Send { behind: 7, flights: 1, bytes: 90 }, "the window is as before");
    window.told(Told::Done(7), now).unwrap();
    window.told(Told::Done(6), now).unwrap();
    assert_eq!(window.next(now), Next::Send { behind: 7, flights: 2, bytes: 100 }, "a late answer changes nothing");
}

#[test]
fn what_is_not_answered_in_time_is_asked_for() {
    let (mut window, now) = window(None);
    assert_eq!(window.next(now), Next::Ask);
    assert_eq!(window.next(now), Next::Wait(now + ANSWER));
    assert_eq!(window.next(now + ANSWER), Next::Ask);
    window.told(Told::Has(3), now + ANSWER).unwrap();
    window.sent(4, 100, now + ANSWER);
    assert_eq!(window.next(now + ANSWER), Next::Wait(now + 2 * ANSWER));
    assert_eq!(window.next(now + 2 * ANSWER), Next::Ask);
}

#[test]
fn a_refusal_pauses_or_stops() {
    let (mut window, now) = window(Some(0));
    window.sent(1, 10, now);
    window.told(Told::Refused { upto: 0, again: Some(PAUSE) }, now).unwrap();
    assert_eq!(window.next(now), Next::Wait(now + PAUSE));
    assert_eq!(window.next(now + PAUSE), Next::Send { behind: 0, flights: 2, bytes: 100 });
    window.sent(1, 10, now);
    window.told(Told::Refused { upto: 0, again: None }, now).unwrap();
    assert_eq!(window.next(now + 2 * ANSWER), Next::Stopped);
}
