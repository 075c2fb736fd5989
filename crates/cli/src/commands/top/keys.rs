//! Single keys from a terminal.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr},
};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// Sets the terminal to pass each key at once without echo, until this is dropped.
pub struct Keys {
    before: Termios,
}

impl Keys {
    /// Nothing if standard input is no terminal.
    pub fn listen() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &modes).ok()?;
        Some(Self { before })
    }

    /// Whether `q` is typed within this time, or standard input has ended.
    pub fn quits_within(&self, time: Duration) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Timespec::try_from(time).ok().as_ref()) {
            Ok(1..) => {}
            // A signal has interrupted it, which is looked for next.
            _ => return false,
        }
        let mut typed = [0; 64];
        match rustix::io::read(&stdin, &mut typed) {
            Ok(0) => true,
            Ok(count) => typed[..count].iter().any(|key| matches!(key, b'q' | b'Q')),
            Err(_) => false,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to give back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
