//! What every database does.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use millrace_wire::{Code, Result};
use millrace_writebehind::{Limits, Outcome, Transaction};

/// What a call will return.
pub type Reply<'a, T> = BoxFuture<'a, T>;

/// The stream that a namespace writes to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, unique in the database.
    pub stream: String,
    /// The namespace that writes it.
    pub owner: String,
    /// A namespace that has handed the stream over to the owner.
    pub previous_owner: Option<String>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Whether the database may acknowledge writes that are not durable.
    pub accept_volatile: bool,
    /// Whether the database is to refuse changes of the tables by anybody else. Only PostgreSQL can.
    pub refuse_outside: bool,
}

/// A table of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The type of its keys.
    pub keys: Keys,
    /// The type of its values.
    pub values: Values,
}

/// The type of the keys of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// UTF-8.
    Text,
    /// Any bytes.
    Bytes,
}

/// The type of the values of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Any bytes.
    Bytes,
    /// UTF-8.
    Text,
    /// JSON.
    Json,
}

/// What a database said when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The number of the last transaction of the stream that it has; 0 if it has none.
    pub number: u64,
    /// Whether it acknowledges only what is durable.
    pub is_durable: bool,
    /// Its kind and version.
    pub server: String,
}

/// Too many transactions are unanswered, or the database is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A row of a table in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The version, if the database keeps it.
    pub version: Option<u64>,
}

/// A part of a table in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The stream's number when the page was read, in the same snapshot. Pages with the same number are of the same state, unless
    /// somebody else writes to the table.
    pub number: u64,
    /// The rows: by key, where the database has an order.
    pub rows: Vec<Found>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

/// A database to which transactions are written in order, each conditional on the one before.
///
/// All futures may be dropped at any time. Then `next` loses no outcome, and the other ones may or may not have happened.
pub trait Engine: Send {
    /// What one transaction may contain, and how many may be unanswered.
    fn limits(&self) -> Limits;

    /// Connects, checks the tables, creates those that are missing, and claims the stream for its owner. An earlier connection is
    /// closed.
    ///
    /// # Errors
    ///
    /// MR7313 to MR7316, MR7319, MR7320, MR7322.
    fn open<'a>(&'a mut self, target: &'a Target) -> Reply<'a, Result<Standing>>;

    /// Sends a transaction, whose outcome `next` returns.
    ///
    /// # Errors
    ///
    /// It was not taken.
    fn submit(&mut self, transaction: Transaction) -> Result<(), Full>;

    /// The outcome of the oldest unanswered transaction; after `Lost`, of all of them. Waits for ever if none is unanswered.
    fn next(&mut self) -> Reply<'_, Outcome>;

    /// Reads at most `count` rows behind the key `after`, or from the beginning. No transaction may be unanswered.
    ///
    /// # Errors
    ///
    /// MR7313: the connection was lost.
    fn scan<'a>(&'a mut self, table: &'a str, after: Option<&'a [u8]>, count: u32) -> Reply<'a, Result<Page>>;
}

impl Target {
    /// Whether the names can be used in every database.
    ///
    /// # Errors
    ///
    /// MR7312 for a name that is empty, too long, or taken by Millrace itself.
    pub fn check(&self, name_max_bytes: usize) -> Result<()> {
        for name in self.tables.iter().map(|table| &table.name).chain([&self.stream]) {
            if name.is_empty() || name.len() > name_max_bytes || name.contains('\0') {
                let length = name.len();
                let limit = format!("the name '{name}' has {length} bytes; the database takes 1 to {name_max_bytes}");
                return Err(Code::DatabaseUrl.error(limit));
            }
            if name == "millrace" || ["millrace/", "millrace:", "millrace_"].iter().any(|own| name.starts_with(own)) {
                return Err(Code::DatabaseUrl.error(format!("Millrace uses names like '{name}' itself")));
            }
        }
        Ok(())
    }

    /// Checks who owns the stream.
    pub(crate) fn check_owner(&self, owner: &str) -> Result<()> {
        if owner == self.owner {
            return Ok(());
        }
        let (stream, own) = (&self.stream, &self.owner);
        Err(Code::DatabaseOwned.error(format!("stream '{stream}' belongs to '{owner}', not to '{own}'")))
    }

    /// Checks whether acknowledged writes are durable.
    pub(crate) fn check_durable(&self, is_durable: bool, why: &str) -> Result<()> {
        if is_durable || self.accept_volatile { Ok(()) } else { Err(Code::DatabaseVolatile.error(why)) }
    }
}
