//! How a command keeps functions apart whose code it runs itself: to check it when it is deployed, or in place of a host.

use millrace_node::{Code, Isolation, Level, Result};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// The variable with the highest level of a host's sandbox, which commands follow too.
const VARIABLE: &str = "MILLRACE_SANDBOX";

/// The path of this running program, even if its file was replaced.
pub const PROGRAM: &str = "/proc/self/exe";

/// As well as this machine gives, unless MILLRACE_SANDBOX asks for less: as a host would.
pub fn isolation() -> Result<Arc<Isolation>> {
    let level = match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => {
            text.parse::<Level>().map_err(|error| Code::ValueInvalid.error(format!("{VARIABLE}: {error}")))?
        }
        _ => Level::Full,
    };
    Ok(at_most(level))
}

/// As well as this machine gives, and no better than this. It is found out once.
pub fn at_most(level: Level) -> Arc<Isolation> {
    static FOUND: Mutex<Option<(Level, Arc<Isolation>)>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    match &*found {
        Some((of, isolation)) if *of == level => isolation.clone(),
        _ => {
            let isolation = Arc::new(Isolation::at_most(level, Path::new(PROGRAM)));
            *found = Some((level, isolation.clone()));
            isolation
        }
    }
}
