//! table.*: tables beside logs with the same records.

mod get;
mod open;
mod put;
mod remote;
mod scan;

pub use get::get;
pub use open::open;
pub use put::put;
pub use remote::remote;
pub use scan::scan;

use super::namespace_with_logs;
use crate::{Context, Outcome};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, Namespace};
use millrace_wire::table::{Condition, TableAnswer, TableCodec, TableOptions, TableRequest};
use std::path::Path;

/// The name of the table, and that of the log.
const TABLE: &str = "t";
const LOG: &str = "a";
/// The value of a key, and the payload of a record of the log.
const VALUE: [u8; 100] = [7; 100];
/// Records that can be read by their numbers, where a row does not read the log.
const HISTORY: u64 = 10_000;

/// Keys of a table: a million, or fewer with `--quick`.
fn keys(context: &Context) -> u64 {
    if context.quick { 100_000 } else { 1_000_000 }
}

/// The key of this number: 24 bytes, in the order of the numbers.
fn key(number: u64) -> [u8; 24] {
    let mut key = *b"key/00000000000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Every number below a power of ten, in an order without a pattern: the factor has no divisor in common with it.
fn scattered(at: u64, count: u64) -> u64 {
    at * 617_363 % count
}

/// Numbers below a limit, as if they were random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A new value of a key, whatever it had.
fn put_of<'b>(key: &'b [u8], value: &'b [u8]) -> TableRequest<'b> {
    TableRequest::Put { key, value, condition: Condition::Always, ttl_ms: 0 }
}

fn ask(namespace: &Namespace, request: &TableRequest<'_>) -> Outcome<TableAnswer> {
    Ok(namespace.ask_table(TABLE, request, AppendOptions::default())?)
}

fn put_value(namespace: &Namespace, number: u64) -> Outcome<()> {
    ask(namespace, &put_of(&key(number), &VALUE)).map(drop)
}

fn append_value(namespace: &Namespace) -> Outcome<()> {
    Ok(namespace.append(LOG, &VALUE, AppendOptions::default()).map(drop)?)
}

/// Refuses an answer without the value that every key has.
fn check_value(answer: &TableAnswer) -> Outcome<()> {
    let value = answer.entries.first().and_then(|entry| entry.value.as_deref());
    if value == Some(&VALUE[..]) { Ok(()) } else { Err("a key has another value than was put".into()) }
}

/// A namespace with an empty table and an empty log, which keep this many records.
fn with_table(dir: &Path, history: u64) -> Outcome<Namespace> {
    let namespace = namespace_with_logs(dir, Durability::Memory, &[(LOG, history)])?;
    let options = TableOptions { codec: TableCodec::Bytes, ..TableOptions::default() };
    namespace.create_table(&TABLE.parse()?, history, options)?;
    Ok(namespace)
}
