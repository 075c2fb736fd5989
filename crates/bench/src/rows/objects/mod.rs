//! object.*, executor.map: shared objects of a host and of a cluster, over TCP on the loopback interface, beside Redis over the same kind of socket.

mod barrier;
mod blocked;
mod call;
mod cluster;
mod executor;
mod failover;
mod kmeans;
mod many;

pub use barrier::barrier;
pub use blocked::blocked;
pub use call::call;
pub use executor::map;
pub use failover::failover;
pub use kmeans::kmeans;
pub use many::many;

use crate::Outcome;
use millrace_client::blocking::{Answer, Asked, Client};
use std::{
    thread,
    time::{Duration, Instant},
};

const LEASE_MS: u32 = 600_000;
/// How long an answer may take until the call is asked again under its number.
const WAIT_MS: u32 = 10_000;

/// Where a call goes: the object's type and key, the method, and its arguments.
#[derive(Clone, Copy)]
struct Target<'a> {
    kind: &'a str,
    key: &'a str,
    method: &'a str,
    arguments: &'a [u8],
    /// The constructor's arguments, if it has any.
    new: &'a [u8],
    /// In how many hosts' memory or journals it is: 0 for the memory of one host.
    rf: u8,
}

impl<'a> Target<'a> {
    fn of(kind: &'a str, key: &'a str, method: &'a str, arguments: &'a [u8]) -> Self {
        Self { kind, key, method, arguments, new: &[], rf: 0 }
    }

    fn made_with(self, new: &'a [u8]) -> Self {
        Self { new, ..self }
    }

    fn copied(self, rf: u8) -> Self {
        Self { rf, ..self }
    }
}

/// A client with a session, whose calls number themselves.
struct Caller {
    client: Client,
    session: [u8; 16],
    number: u64,
}

impl Caller {
    fn open(client: Client, id: u32) -> Outcome<Self> {
        let mut session = *b"millrace-bench-0";
        session[..4].copy_from_slice(&id.to_le_bytes());
        client.open_session(&session, "", LEASE_MS, false)?;
        Ok(Self { client, session, number: 0 })
    }

    fn ask(&mut self, target: Target<'_>, give_up: bool, wait_ms: u32) -> Outcome<Answer> {
        let Target { kind, key, method, arguments, new, rf } = target;
        let asked = Asked {
            session: &self.session,
            call: self.number,
            acked: self.number,
            kind,
            key,
            method,
            arguments,
            new,
            persistent: rf > 0,
            rf,
            give_up,
            wait_ms,
            ..Asked::default()
        };
        Ok(self.client.call(&asked)?)
    }

    /// Calls, and waits for as long as it takes.
    fn call(&mut self, target: Target<'_>) -> Outcome<()> {
        self.value(target).map(drop)
    }

    /// The same; what the method returned.
    fn value(&mut self, target: Target<'_>) -> Outcome<Vec<u8>> {
        self.number += 1;
        loop {
            match self.ask(target, false, WAIT_MS)? {
                // A method of a user class that raised has returned 1 and the exception.
                Answer::Returned(_, value) if target.kind == "Shared" && value.get(1) != Some(&0) => {
                    return Err(format!("{}: {}", target.method, String::from_utf8_lossy(&value)).into());
                }
                Answer::Returned(_, value) => return Ok(value),
                Answer::Waiting(_) => {}
                Answer::Raised(_, class, text) => return Err(format!("{}: {class}: {text}", target.method).into()),
            }
        }
    }

    /// Calls that wait, and are left waiting.
    fn leave(&mut self, target: Target<'_>) -> Outcome<()> {
        self.number += 1;
        self.ask(target, false, 0).map(drop)
    }

    /// So many calls, each a pace after the answer before.
    fn paced(&mut self, target: Target<'_>, count: u64, pace: Duration) -> Outcome<crate::measure::Samples> {
        let mut samples = crate::measure::Samples::new();
        for _ in 0..count {
            thread::sleep(pace);
            let start = Instant::now();
            self.call(target)?;
            samples.record(start.elapsed());
        }
        Ok(samples)
    }
}
