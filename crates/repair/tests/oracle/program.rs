//! What the functions of a random application do: a few steps over one number.

use serde::{Deserialize, Serialize};

/// A step. Logs are named by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Adds the newest seqno.
    Latest(usize),
    /// Adds the newest record.
    Newest(usize),
    /// Adds the record so many before the newest.
    Back(usize, u64),
    /// Adds the record with this seqno.
    At(usize, u64),
    /// Adds the newest record of the one log, or of the other, as the number is even or odd.
    Either(usize, usize),
    /// Appends the number.
    Append(usize),
    /// Appends the number unless it is divisible by this.
    Unless(usize, u64),
    /// Sends the number to this log of the other namespace.
    Send(usize),
    /// Sends the number unless it is divisible by this.
    SendUnless(usize, u64),
    /// Fails if the number is divisible by this.
    Fail(u64),
}

/// What a revision of a function does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub steps: Vec<Step>,
    /// The logs that it may read; every one if there is none.
    pub reads: Option<Vec<usize>>,
}

impl Program {
    pub fn may_read(&self, log: usize) -> bool {
        self.reads.as_ref().is_none_or(|reads| reads.contains(&log))
    }
}

/// What a run may ask for.
pub trait Io {
    fn latest(&mut self, log: usize) -> u64;
    fn get(&mut self, log: usize, seqno: u64) -> Option<u64>;
    fn append(&mut self, log: usize, value: u64);
    fn send(&mut self, log: usize, value: u64);
}

fn mixed(number: u64, with: u64) -> u64 {
    (number.wrapping_mul(31).wrapping_add(with)) % 1_000_003
}

/// Runs the steps; whether that ended well.
pub fn run(steps: &[Step], input: u64, io: &mut dyn Io) -> bool {
    let mut number = input;
    let newest = |io: &mut dyn Io, log: usize| {
        let latest = io.latest(log);
        io.get(log, latest.max(1)).unwrap_or(7)
    };
    for step in steps {
        match *step {
            Step::Latest(log) => number = mixed(number, io.latest(log)),
            Step::Newest(log) => number = mixed(number, newest(io, log)),
            Step::Back(log, back) => {
                let latest = io.latest(log);
                number = mixed(number, io.get(log, latest.saturating_sub(back).max(1)).unwrap_or(11));
            }
            Step::At(log, seqno) => number = mixed(number, io.get(log, seqno).unwrap_or(13)),
            Step::Either(even, odd) => {
                let log = if number.is_multiple_of(2) { even } else { odd };
                number = mixed(number, newest(io, log));
            }
            Step::Append(log) => io.append(log, number),
            Step::Unless(log, divisor) => {
                if !number.is_multiple_of(divisor) {
                    io.append(log, number);
                }
            }
            Step::Send(log) => io.send(log, number),
            Step::SendUnless(log, divisor) => {
                if !number.is_multiple_of(divisor) {
                    io.send(log, number);
                }
            }
            Step::Fail(divisor) => {
                if number.is_multiple_of(divisor) {
                    return false;
                }
            }
        }
    }
    true
}

/// A random number generator that a seed repeats.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}
