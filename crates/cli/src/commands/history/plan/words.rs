//! The words of a plan.

use millrace_causality::{Kept, Reason};

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
    }
}

pub fn kept_word(kept: Kept) -> &'static str {
    match kept {
        Kept::External => "external",
        Kept::Streamed => "streamed",
        Kept::NoCode => "no-code",
        Kept::NoSecret => "no-secret",
        Kept::NoAttempt => "no-attempt",
        Kept::Cancelled => "cancelled",
    }
}

pub fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::Code => "code",
        Reason::RecordCorrected => "record-corrected",
        Reason::ReadCorrected => "read-corrected",
        Reason::RecordRewritten => "record-rewritten",
        Reason::ReadRewritten => "read-rewritten",
        Reason::LetterRewritten => "letter-rewritten",
        Reason::NumberMoves => "number-moves",
        Reason::CountMoves => "count-moves",
    }
}
