//! `millrace top`: the current rates of a namespace.

mod keys;
mod look;
mod screen;

use super::serve::on_signals;
use crate::{
    args::{Global, TopArgs},
    out::Out,
    place::{Place, Target},
    report::{self, Failure, Outcome},
};
use keys::Keys;
use look::{Look, Rates};
use screen::Screen;
use serde_json::json;
use std::{
    io::{self, IsTerminal},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

/// Shorter intervals would show the looking more than what is looked at.
const EVERY_MIN: Duration = Duration::from_millis(50);
/// While keys are waited for, signals are looked for so often.
const KEYS_EVERY: Duration = Duration::from_millis(100);

pub fn run(args: &TopArgs, global: &Global, out: &mut Out) -> Outcome {
    let (target, _) = Target::find(global)?;
    let every = args.every.max(EVERY_MIN);
    let mut place = Some(Place::at(&target)?);
    let stop = on_signals(None)?;
    let mut before = Look::at(place.as_ref().expect("it was opened just now"))?;
    let live = !args.once && !out.json() && io::stdout().is_terminal();
    let keys = live.then(Keys::listen).flatten();
    let mut screen = Screen::new(&target, live, out)?;
    loop {
        if stops_within(every, &stop, keys.as_ref()) {
            return screen.end(out);
        }
        match look(&mut place, &target) {
            Ok(after) => {
                let rates = Rates::between(&before, &after);
                if out.json() {
                    out.object(&json!(rates))?
                } else {
                    screen.show(&rates, out)?
                }
                before = after;
            }
            // The display shows that it ended, and when it is back.
            Err(error) if live => screen.trouble(&error, out)?,
            Err(error) if args.once => return Err(error.into()),
            Err(error) => {
                out.flush()?;
                report::say(&error, out.json());
            }
        }
        match out.flush() {
            Err(error) => {
                let failure = Failure::from(error);
                return if matches!(failure, Failure::BrokenPipe) { Ok(()) } else { Err(failure) };
            }
            Ok(()) if args.once => return screen.end(out),
            Ok(()) => {}
        }
    }
}

/// Waits for this time; whether a signal or a key ends it first.
fn stops_within(every: Duration, stop: &Receiver<()>, keys: Option<&Keys>) -> bool {
    let Some(keys) = keys else { return !matches!(stop.recv_timeout(every), Err(RecvTimeoutError::Timeout)) };
    let until = Instant::now() + every;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if keys.quits_within(left.min(KEYS_EVERY)) || !matches!(stop.try_recv(), Err(TryRecvError::Empty)) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

/// Looks, over a new connection where the last one failed.
fn look(place: &mut Option<Place>, target: &Target) -> millrace_node::Result<Look> {
    let opened = match place.take() {
        Some(place) => place,
        None => Place::at(target)?,
    };
    let look = Look::at(&opened)?;
    *place = Some(opened);
    Ok(look)
}
