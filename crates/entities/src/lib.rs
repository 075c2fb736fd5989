//! Entities: resident objects that many clients call, one call at a time.
//!
//! ```text
//!  call ──> Space ── session: was it answered before? ──> entity: a Turn of its type ──> reply, or a waiter in its state
//!             │                                                    │
//!             └── replies to the waiters that the turn released
//! ```
//!
//! Nothing here reads a clock, a file or randomness: a step gets the values that it needs as a [`Moment`]. A waiting call is data in its
//! entity's state, and occupies no thread. Every change of a state is an [`Effect`], which contains the new value; applying one returns the
//! effect that undoes it.
//!
//! [`Replicated`] is a space whose calls are commands of a group: the same on every host that applies them.

mod replicated;
mod session;
mod space;
mod state;
mod types;
pub mod value;

pub use replicated::{Applied, Command, Replicated, Within};
pub use session::{Application, SESSION_BYTES, Session};
pub use space::{Call, Called, Cursor, Finished, Flags, Job, Moment, Shown, Space};
pub use state::{Effect, State, Ticket, Waiter};
pub use types::{DELETE, METHODS, Method, Type, user::is_plain_call, user::pool_of, user::shipped_class};

use std::sync::Arc;

/// An exception of a call: its class and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The exception's class, such as `IndexError` or `queue.Empty`.
    pub class: &'static str,
    /// Its text.
    pub text: String,
}

impl Raised {
    pub(crate) fn new(class: &'static str, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }
}

/// The answer to a call: a value in MessagePack, which all calls with this answer share, or an exception.
pub type Reply = Result<Arc<[u8]>, Raised>;
/// The result of a method for one call, before it is shared.
pub(crate) type Outcome = Result<Vec<u8>, Raised>;
