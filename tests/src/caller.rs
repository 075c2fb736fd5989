//! A program that calls shared objects which several hosts keep, and repeats what is not answered.

use millrace_client::{
    Options, Place,
    blocking::{Answer, Asked, Client},
};
use millrace_wire::{Code, Result};
use std::{thread, time::Duration};

/// How long an unanswered call waits before it is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Type, key and method of a call.
pub type Call<'a> = (&'a str, &'a str, &'a str);

/// A program with a session.
pub struct Caller {
    client: Client,
    session: [u8; 16],
    /// The number of its last call.
    pub number: u64,
    lease_ms: u32,
}

impl Caller {
    /// One that asks the first of these places; if it is lost, the next.
    pub fn new(places: &[Place], id: u8, lease_ms: u32, options: &Options) -> Result<Self> {
        let client = Client::connect_any(places, options)?;
        let caller = Self { client, session: [id; 16], number: 0, lease_ms };
        caller.open()?;
        Ok(caller)
    }

    fn open(&self) -> Result<()> {
        self.client.open_session(&self.session, "", self.lease_ms, false).map(drop)
    }

    /// Asks until the group has decided; what a method raises is an error here.
    pub fn ask(&mut self, call: Call<'_>, arguments: &[u8], rf: u8) -> std::result::Result<Vec<u8>, Code> {
        self.number += 1;
        let (_, key, method) = call;
        loop {
            match self.once(call, arguments, (rf, 1000)) {
                Ok(Answer::Returned(_, value)) => return Ok(value),
                Ok(Answer::Waiting(_)) => {}
                Ok(Answer::Raised(_, class, text)) => panic!("{method} of {key}: {class}: {text}"),
                // The first call of it may be lost with its host before the group has heard of the session.
                Err(Code::SessionExpired) if self.number == 1 => drop(self.open()),
                Err(code @ (Code::PersistenceUnsupported | Code::SessionExpired)) => return Err(code),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Asks once, for the number that was taken last.
    pub fn once(
        &self,
        (kind, key, method): Call<'_>,
        arguments: &[u8],
        (rf, wait_ms): (u8, u32),
    ) -> std::result::Result<Answer, Code> {
        let asked = Asked {
            session: &self.session,
            call: self.number,
            acked: self.number,
            kind,
            key,
            method,
            arguments,
            persistent: true,
            rf,
            wait_ms,
            ..Asked::default()
        };
        self.client.call(&asked).map_err(|error| error.code())
    }

    fn decided(&mut self, call: Call<'_>, arguments: &[u8]) -> Vec<u8> {
        self.ask(call, arguments, 2).expect("an answer")
    }

    /// Calls a method of an `AtomicInt`; true and false are 1 and 0, and so is nothing.
    pub fn number_of(&mut self, key: &str, method: &str, arguments: &[u8]) -> i64 {
        let value = self.decided(("AtomicInt", key, method), arguments);
        match value[..] {
            [small] if small < 0x80 => small.into(),
            [0xcc, small] => small.into(),
            [0xcd, high, low] => u16::from_be_bytes([high, low]).into(),
            [0xc0 | 0xc2] => 0,
            [0xc3] => 1,
            _ => panic!("{value:x?} is no small number"),
        }
    }

    /// Calls a method of a `Lock` that returns a token.
    pub fn token_of(&mut self, key: &str, method: &str) -> u64 {
        let value = self.decided(("Lock", key, method), &[0x90]);
        value[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}
