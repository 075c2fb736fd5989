//! Two namespaces on simulated disks, and a line between them that is cut at any moment.

use crate::{Batch, Inbound, LinkKey, Links, Sender, Verdict};
use millrace_journal::{
    CreateOptions, Durability, Journal, OpenOptions,
    medium::sim::{SimDisk, SimMedium},
};
use millrace_namespace::{AppendOptions, Namespace};
use millrace_wire::{Code, Result, protocol::Delivered};
use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};

/// Chooses faults, the same everywhere (xorshift64*).
pub struct Random(u64);

impl Random {
    /// Seeded by MILLRACE_SEED, or by the clock; prints the seed.
    pub fn new(test: &str) -> Self {
        let seed = match std::env::var("MILLRACE_SEED") {
            Ok(text) => text.parse().expect("MILLRACE_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1,
        };
        println!("{test}: MILLRACE_SEED={seed}");
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as usize % n
    }
}

/// A namespace in a process on a machine, all of which can die.
pub struct Side {
    pub disk: SimDisk,
    medium: Arc<SimMedium>,
    namespace: Option<Namespace>,
}

impl Side {
    pub fn new() -> Self {
        Self::with_segments(1 << 20)
    }

    /// One that has records of up to a quarter of this.
    pub fn with_segments(segment_bytes: u64) -> Self {
        let disk = SimDisk::default();
        let options =
            CreateOptions { segment_bytes, retain_bytes: 4 << 20, retain_age: None, durability: Durability::Disk };
        drop(Journal::create_on(disk.process(), Path::new("sim"), &options).unwrap());
        Self::on(disk)
    }

    /// The host starts on this disk.
    pub fn on(disk: SimDisk) -> Self {
        let medium = disk.process();
        let journal = Journal::open_on(medium.clone(), Path::new("sim"), &OpenOptions { background: false }).unwrap();
        let side = Self { disk, medium, namespace: Some(Namespace::over(journal)) };
        side.links().begin_life().unwrap();
        side
    }

    /// Stops, and starts again on one of two copies of its disk; returns the other one. What happens on both has the same ids and times.
    pub fn copy(&mut self) -> SimDisk {
        self.namespace = None;
        let copy = || self.disk.crash(&mut |n| n - 1);
        let (one, other) = (copy(), copy());
        *self = Self::on(one);
        other
    }

    pub fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().expect("it lives")
    }

    pub fn links(&self) -> Links {
        Links::of(self.namespace())
    }

    /// The process dies, and if `lost` is given, the machine: any subset of what was not flushed is lost.
    pub fn crash(&mut self, lost: Option<&mut Random>) {
        self.medium.kill();
        self.namespace = None;
        let disk = match lost {
            Some(random) => self.disk.crash(&mut |n| random.below(n)),
            None => self.disk.clone(),
        };
        *self = Self::on(disk);
    }

    /// A copy of everything, as a backup is one.
    pub fn backup(&self) -> SimDisk {
        self.namespace().journal().sync(self.namespace().journal().tail()).unwrap();
        self.disk.crash(&mut |n| n - 1)
    }

    /// Takes up the copy in place of what there is.
    pub fn restore(&mut self, backup: &SimDisk) {
        self.medium.kill();
        self.namespace = None;
        *self = Self::on(backup.clone());
    }

    pub fn create_log(&self, log: &str, history: u64) {
        self.namespace().create_log(&log.parse().unwrap(), history).unwrap();
    }

    pub fn append(&self, log: &str, payload: &[u8]) {
        self.namespace().append(log, payload, AppendOptions::default()).unwrap();
    }

    /// All records of a log, which must be whole from its first.
    pub fn records(&self, log: &str) -> Vec<Vec<u8>> {
        let latest = self.namespace().latest(log).unwrap();
        (1..=latest).map(|seqno| self.namespace().get(log, seqno).unwrap().payload).collect()
    }
}

/// The sides, and what is between them.
pub struct World {
    pub a: Side,
    pub b: Side,
    pub key: LinkKey,
    sender: Option<Sender>,
    inbound: Option<Inbound>,
    to_b: VecDeque<Batch>,
    to_a: VecDeque<Delivered>,
}

impl World {
    pub fn new(a: Side, b: Side, key: LinkKey) -> Self {
        Self { a, b, key, sender: None, inbound: None, to_b: VecDeque::new(), to_a: VecDeque::new() }
    }

    pub fn cut(&mut self) {
        (self.sender, self.inbound) = (None, None);
        self.to_b.clear();
        self.to_a.clear();
    }

    /// Opens the stream; whether there is one to open.
    pub fn connect(&mut self) -> Result<bool> {
        self.cut();
        let Some(mut sender) = self.a.links().sender(&self.key)? else { return Ok(false) };
        let hello = sender.hello()?;
        let opened = self.b.links().inbox().link(&hello.link());
        let (inbound, linked) =
            opened.map_err(|error| if error.code() == Code::LinkForked { sender.stop(error) } else { error })?;
        self.b.namespace().settle(
            millrace_namespace::Site::Deliver,
            millrace_namespace::Shows::Batch(linked.end),
            None,
        )?;
        if let Err(error) = sender.linked(&linked.value) {
            if error.code() == Code::LinkForked {
                let refused = self.b.links().inbox().link(&hello.link_forked());
                assert_eq!(refused.unwrap_err().code(), Code::LinkForked);
            }
            return Err(error);
        }
        (self.sender, self.inbound) = (Some(sender), Some(inbound));
        Ok(true)
    }

    /// One more delivery goes on its way, if there is one.
    pub fn send(&mut self, bytes_max: usize) -> Result<bool> {
        let Some(sender) = &mut self.sender else { return Ok(false) };
        let batch = sender.next(bytes_max)?;
        let sent = batch.is_some();
        self.to_b.extend(batch);
        Ok(sent)
    }

    /// One delivery arrives; whether there was one. Its answer is not on its way before it is safe.
    pub fn arrive(&mut self, dies_before_it_is_safe: bool) -> Result<bool> {
        let (Some(inbound), Some(batch)) = (&self.inbound, self.to_b.pop_front()) else { return Ok(false) };
        let accepted = self.b.links().inbox().accept(inbound, 1, &batch.deliver(1))?;
        if dies_before_it_is_safe {
            return Ok(true);
        }
        self.b.namespace().settle(
            millrace_namespace::Site::Deliver,
            millrace_namespace::Shows::Batch(accepted.end),
            None,
        )?;
        self.to_a.push_back(accepted.value);
        Ok(true)
    }

    /// One answer arrives; what the sender makes of it.
    pub fn answer(&mut self) -> Result<Option<Verdict>> {
        match (&mut self.sender, self.to_a.pop_front()) {
            (Some(sender), Some(delivered)) => sender.answered(&delivered).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the sender has nothing to send, and knows it.
    pub fn rests(&self) -> bool {
        !self.sender.as_ref().expect("connected").wait(Duration::ZERO).unwrap()
    }

    /// The sender gets this answer.
    pub fn answer_with(&mut self, delivered: &Delivered) -> Result<Verdict> {
        self.sender.as_mut().expect("connected").answered(delivered)
    }

    /// Sends what comes next, of which the other side takes nothing now: says why, and whether that may pass.
    pub fn waits(&mut self) -> Option<Code> {
        assert!(self.connect().unwrap() && self.send(1000).unwrap() && self.arrive(false).unwrap());
        match self.answer().unwrap() {
            Some(Verdict::Retry(_, error)) => Some(error.code()),
            _ => None,
        }
    }

    /// Carries all that the other side takes now: says why the rest waits, if there is one.
    pub fn carry_on(&mut self) -> Option<Code> {
        assert!(self.connect().unwrap());
        for _ in 0..100_000 {
            let mut moved = self.send(300).unwrap();
            while self.arrive(false).unwrap() {
                moved = true;
            }
            while let Some(verdict) = self.answer().unwrap() {
                moved = true;
                if let Verdict::Retry(_, error) = verdict {
                    return Some(error.code());
                }
            }
            if !moved {
                return None;
            }
        }
        panic!("it never ends");
    }

    /// Carries everything over a line that holds, several deliveries at a time.
    pub fn carry(&mut self) -> Result<()> {
        if !self.connect()? {
            return Ok(());
        }
        for _ in 0..100_000 {
            let mut moved = false;
            for _ in 0..3 {
                moved |= self.send(300)?;
            }
            while self.arrive(false)? {
                moved = true;
            }
            while let Some(verdict) = self.answer()? {
                moved = true;
                assert!(!matches!(verdict, Verdict::Retry(..)), "{verdict:?}");
            }
            if !moved {
                return Ok(());
            }
        }
        panic!("it never ends");
    }
}
