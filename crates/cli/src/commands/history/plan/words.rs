//! The words of a plan.

use millrace_causality::Kept;

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
