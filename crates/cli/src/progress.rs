//! Progress of long work: a bar on standard error.

use crate::show;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::{
    fmt,
    io::{self, IsTerminal},
    time::Duration,
};

/// The interval of updates of the bar.
const TICK: Duration = Duration::from_millis(200);

/// The unit of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Records,
    /// Runs that have not ended.
    Runs,
    /// Time.
    Millis,
}

/// A bar, or nothing if standard error is not a terminal.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar with this total; if the total is unknown, the bar shows only the progress.
    pub fn new(verb: &str, total: Option<u64>, unit: Unit, wanted: bool) -> Self {
        if !wanted || !io::stderr().is_terminal() {
            return Self(None);
        }
        let shown = match (unit, total) {
            (Unit::Bytes, _) => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            (Unit::Records, Some(_)) => "{bar:30} {human_pos}/{human_len} records {rate}/s {eta}",
            (Unit::Records, None) => "{spinner} {human_pos} records {rate}/s",
            (Unit::Runs, _) => "{spinner} {human_pos} pending",
            (Unit::Millis, _) => "{bar:30} {elapsed}",
        };
        let style = ProgressStyle::with_template(&format!("{verb} {shown}"));
        let rate = |state: &ProgressState, to: &mut dyn fmt::Write| {
            // A bar that cannot be drawn is no reason to stop the work.
            let _ = to.write_str(&show::grouped(state.per_sec() as u64));
        };
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", rate);
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_style(style);
        bar.enable_steady_tick(TICK);
        Self(Some(bar))
    }

    pub fn set(&self, position: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(position);
        }
    }

    /// Sets how much there is, too.
    pub fn set_of(&self, position: u64, total: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(total);
            bar.set_position(position);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
