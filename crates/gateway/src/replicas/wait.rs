//! Reads that wait until a replica has what a token names.

use millrace_node::{
    Access, EventId, Result, TOKEN_PATIENCE,
    replicas::{Reached, behind},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often it is looked how far the replica is.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Resolves once a table has what a token names.
///
/// # Errors
///
/// MR7331: it does not have it in time; MR7335: the token says nothing about the table. They have waited at the gate.
pub(crate) async fn reached(access: &Access, table: &str, token: EventId) -> Result<()> {
    let deadline = Instant::now() + TOKEN_PATIENCE;
    loop {
        let error = match access.has_reached(table, token) {
            Ok(Reached::Yes) => return Ok(()),
            Ok(Reached::Behind(..)) if Instant::now() < deadline => {
                sleep(LOOK_EVERY).await;
                continue;
            }
            Ok(Reached::Behind(owner, position)) => behind(table, token, &owner, position),
            Err(error) => error,
        };
        return access.refuse(error, None).await;
    }
}
