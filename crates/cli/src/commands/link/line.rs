//! `millrace device provision --serial`: gives a device its identity over its serial line.

use super::{
    attach::{Noise, read_some, write_some},
    port::Port,
};
use crate::show;
use millrace_device::{
    Identity,
    provision::{Answered, Transfer},
    serial::{Decoder, Found},
};
use millrace_node::{Code, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// A frame is sent again after so long without its answer.
const REPEAT: Duration = Duration::from_secs(1);
/// A device that boots because its port was opened, or that erases its flash, takes seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a transfer begins again because the device restarted.
const TRANSFERS_MAX: usize = 4;

/// The serial line of a device that is to get an identity.
pub struct ProvisionLine {
    port: Port,
    path: PathBuf,
    baud: u32,
    decoder: Decoder,
    /// What came: whether there were valid frames, and bytes without any.
    frames: u64,
    noise: Noise,
}

/// A number that no transfer shortly before had; it need not be secret.
fn session() -> u32 {
    show::now_us() as u32
}

impl ProvisionLine {
    pub fn open(path: &Path, baud: u32) -> Result<Self> {
        let port = Port::open(path, baud)?;
        Ok(Self { port, path: path.to_owned(), baud, decoder: Decoder::default(), frames: 0, noise: Noise::default() })
    }

    /// Whether a device is there that accepts an identity which it does not have yet.
    ///
    /// # Errors
    ///
    /// It keeps the one that it has (MR6353), or nobody answers (MR6355).
    pub fn ask(&mut self) -> Result<()> {
        self.transfer(&[])
    }

    /// Gives the device this identity.
    ///
    /// # Errors
    ///
    /// The device refuses it or could not write it, or does not answer.
    pub fn give(&mut self, identity: &Identity) -> Result<()> {
        self.transfer(&Zeroizing::new(identity.encode()?))
    }

    fn transfer(&mut self, identity: &[u8]) -> Result<()> {
        for _ in 0..TRANSFERS_MAX {
            let mut transfer = Transfer::new(identity, session());
            loop {
                match self.exchange(&mut transfer)? {
                    Answered::GoOn if identity.is_empty() => return Ok(()),
                    Answered::GoOn => {}
                    Answered::Stored => return Ok(()),
                    Answered::Again => break,
                    Answered::Refused(number) => return Err(self.refused(number)),
                }
            }
        }
        let what = format!("it began again {TRANSFERS_MAX} times before it had the identity: does it restart?");
        Err(self.silent(&what))
    }

    /// Sends a frame until it is answered.
    fn exchange(&mut self, transfer: &mut Transfer<'_>) -> Result<Answered> {
        let mut frame = Zeroizing::new(Vec::new());
        transfer.encode(&mut frame);
        let (begun, mut to_port) = (Instant::now(), Zeroizing::new(Vec::new()));
        let mut send_at = begun;
        while begun.elapsed() < PATIENCE {
            let now = Instant::now();
            if now >= send_at && to_port.is_empty() {
                to_port.extend(frame.iter());
                send_at = now + REPEAT;
            }
            self.wait(!to_port.is_empty(), send_at.saturating_duration_since(now));
            if !write_some(&self.port, &mut to_port) {
                return Err(self.gone());
            }
            if let Some(answered) = self.read(transfer)? {
                return Ok(answered);
            }
        }
        Err(self.silent(&self.what_came()))
    }

    fn wait(&self, writes: bool, most: Duration) {
        let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let most = most.min(REPEAT);
        let wait = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&self.port, flags)], Some(&wait));
    }

    /// Reads once; the answer that is due, if it came.
    fn read(&mut self, transfer: &mut Transfer<'_>) -> Result<Option<Answered>> {
        let mut buffer = [0; 4096];
        let Some(bytes) = read_some(&self.port, &mut buffer) else { return Err(self.gone()) };
        for byte in bytes {
            self.noise.count(*byte);
            let Found::Frame(frame) = self.decoder.take(*byte) else { continue };
            self.frames += 1;
            if let Some(answered) = transfer.take(&frame) {
                return Ok(Some(answered));
            }
        }
        Ok(None)
    }

    /// What came in place of an answer.
    fn what_came(&self) -> String {
        let seconds = PATIENCE.as_secs();
        if self.frames > 0 {
            return format!(
                "its frames come, and no answer within {seconds} s: its firmware accepts no identity over the line"
            );
        }
        match self.noise.bytes {
            0 => format!("nothing came for {seconds} s: is it on, and is this its port?"),
            bytes if self.noise.is_odd() => {
                format!("{bytes} bytes came that are neither frames nor text: is {} its baud rate (--baud)?", self.baud)
            }
            bytes => format!(
                "{bytes} bytes of text came, and no answer within {seconds} s: is its firmware one of Millrace?"
            ),
        }
    }

    fn silent(&self, what: &str) -> Error {
        Code::DeviceSilent.error(format!("the device at {}: {what}", self.path.display()))
    }

    fn gone(&self) -> Error {
        Code::Io.error(format!("{}: the port is gone", self.path.display()))
    }

    fn refused(&self, number: u16) -> Error {
        let path = self.path.display();
        match Code::from_id(&format!("MR{number:04}")) {
            Some(code @ Code::DeviceHasIdentity) => code.error(format!("the device at {path} has another identity")),
            Some(code) => code.error(format!("the device at {path} refuses the identity")),
            None => self.silent(&format!("it refuses the identity with a number that is not known here, {number}")),
        }
    }
}
