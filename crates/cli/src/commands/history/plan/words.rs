//! The words of a plan.

use crate::show;
use millrace_causality::Kept;
use millrace_node::{application::units, repairs::SLOTS_MAX};
use std::time::Duration;

/// How long a replay takes, by the runs before. Those of a device are timed in whole milliseconds.
pub fn took(us: u64) -> String {
    if us < 1000 {
        "less than 1 ms".into()
    } else {
        format!("about {}", units::show_duration(Duration::from_micros(us)))
    }
}

pub fn runs(count: u64) -> &'static str {
    if count == 1 { "run " } else { "runs" }
}

pub fn reason(kept: Kept) -> &'static str {
    match kept {
        Kept::External => {
            "the function has `network = true` and may have effects outside the namespace; see --run-external"
        }
        Kept::Streamed => "they were streamed; streamed runs cannot be replayed",
        Kept::NoCode => "the code that they ran no longer exists",
        Kept::NoSecret => "a secret that they were given no longer exists",
        Kept::NoAttempt => "the attempts have left the journal",
        Kept::Cancelled => "they were cancelled, and stay cancelled",
        Kept::NoTwin => {
            "they ran on devices, and no twin of the function is deployed; see `millrace function deploy --at`"
        }
    }
}

/// The same for the name of a reason in documents.
pub fn reason_of(word: &str) -> &'static str {
    let all =
        [Kept::External, Kept::Streamed, Kept::NoCode, Kept::NoSecret, Kept::NoAttempt, Kept::Cancelled, Kept::NoTwin];
    all.into_iter().find(|kept| kept.word() == word).map_or("for a reason that this version does not know", reason)
}

/// Why a repair would stop.
pub fn stops(is_too_large: bool) -> String {
    if is_too_large {
        let most = show::grouped(SLOTS_MAX as u64);
        return format!("one repair replaces at most {most} records; correct fewer at once");
    }
    "`millrace repair run` would stop at runs that cannot be replayed, and at these messages and relays".into()
}

/// Why runs are reached, by the name of the reason in documents; `records` are those through which they are, in `log`.
pub fn why(reason: &str, records: &str, log: &str) -> String {
    match reason {
        "code" => "ran the code that is replaced".into(),
        "record-corrected" => format!("triggered by corrected {records}"),
        "read-corrected" => format!("read corrected {records}"),
        "record-rewritten" => format!("triggered by rewritten {records}"),
        "read-rewritten" => format!("read rewritten {records}"),
        "letter-rewritten" => format!("retry of a dead letter that changes, {records}"),
        "number-moves" => format!("used {records}, whose number may change"),
        "count-moves" => format!("read the newest record of {log}"),
        other => format!("{other} {records}"),
    }
}
