//! What the functions of a random application do with tables: a few steps over one number.

use serde::{Deserialize, Serialize};

/// How many keys there are.
pub const KEYS: u64 = 5;

/// A step. Tables and logs are named by their number; a key is a number, or that of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Adds the value of a key.
    Get(usize, u64),
    /// Adds the value of the key that the number names.
    GetOwn(usize),
    /// Adds the keys and values from one key up to another.
    Scan(usize, u64, u64),
    /// Puts the number.
    Put(usize, u64),
    /// Puts the number at the key that it names.
    PutOwn(usize),
    /// Puts the number unless it is divisible by this.
    Unless(usize, u64, u64),
    /// Puts the number if the key has no value.
    PutNew(usize, u64),
    /// Deletes a key.
    Delete(usize, u64),
    /// Adds the number, or what is left of it, to a counter.
    Increment(usize, u64),
    /// Appends the number to a log.
    Append(usize),
    /// Fails if the number is divisible by this.
    Fail(u64),
}

/// What a run may ask for.
pub trait Io {
    fn get(&mut self, table: usize, key: u64) -> Option<i64>;
    fn scan(&mut self, table: usize, from: u64, to: u64) -> Vec<(u64, i64)>;
    fn put(&mut self, table: usize, key: u64, value: i64);
    fn delete(&mut self, table: usize, key: u64);
    fn increment(&mut self, table: usize, key: u64, by: i64);
    fn append(&mut self, log: usize, value: i64);
}

fn mixed(number: i64, with: i64) -> i64 {
    (number * 31 + with).rem_euclid(100_003)
}

/// Runs the steps; whether that ended well.
pub fn run(steps: &[Step], input: i64, io: &mut dyn Io) -> bool {
    let mut number = input;
    let own = |number: i64| number.rem_euclid(KEYS as i64) as u64;
    for step in steps {
        match *step {
            Step::Get(table, key) => number = mixed(number, io.get(table, key).unwrap_or(7)),
            Step::GetOwn(table) => number = mixed(number, io.get(table, own(number)).unwrap_or(11)),
            Step::Scan(table, from, to) => {
                for (key, value) in io.scan(table, from, to) {
                    number = mixed(mixed(number, key as i64), value);
                }
            }
            Step::Put(table, key) => io.put(table, key, number),
            Step::PutOwn(table) => io.put(table, own(number), number),
            Step::Unless(table, key, divisor) => {
                if number.rem_euclid(divisor as i64) != 0 {
                    io.put(table, key, number);
                }
            }
            Step::PutNew(table, key) => {
                if io.get(table, key).is_none() {
                    io.put(table, key, number);
                }
            }
            Step::Delete(table, key) => io.delete(table, key),
            Step::Increment(table, key) => io.increment(table, key, number.rem_euclid(10) - 2),
            Step::Append(log) => io.append(log, number),
            Step::Fail(divisor) => {
                if number.rem_euclid(divisor as i64) == 0 {
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

/// What a function does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub steps: Vec<Step>,
}
