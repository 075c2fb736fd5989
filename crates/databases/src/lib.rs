//! Databases to which tables are written.
//!
//! ```text
//!  Source ──batches──> Writer: a thread with writebehind::Stream ──transactions──> Engine ──> the database
//!                          ^── outcomes: what is written, what is refused, whether the connection is lost
//! ```
//!
//! An [`Engine`] executes transactions, each of which is conditional on its predecessor: PostgreSQL, Redis, etcd and DynamoDB, and a fake with
//! faults for tests. A [`Writer`] joins an engine and a stream on one thread with its own event loop. This crate prints no
//! password.

mod address;
mod driver;
mod dynamodb;
mod engine;
mod etcd;
pub mod fake;
mod http;
mod postgres;
mod redis;
mod tls;

pub use address::{Address, Options, Scheme, Secret};
pub use driver::{DeadLetters, Feed, OnProgress, Progress, Source, Writer, WriterOptions};
pub use engine::{Engine, Found, Full, Keys, Page, Reply, Standing, Table, Target, Values};
pub use millrace_writebehind as writebehind;

use millrace_wire::Result;

/// The engine of an address. Nothing is connected before [`Engine::open`].
///
/// # Errors
///
/// MR7312: the settings cannot be used. MR7315: the certificates of authorities cannot be read.
pub fn engine(options: &Options) -> Result<Box<dyn Engine>> {
    let address = options.address()?;
    Ok(match address.scheme {
        Scheme::Dynamodb => Box::new(dynamodb::Dynamodb::new(&address, options)?),
        Scheme::Etcd => Box::new(etcd::Etcd::new(&address, options)?),
        Scheme::Redis => Box::new(redis::Redis::new(&address, options)?),
        Scheme::Postgresql => Box::new(postgres::Postgres::new(&address, options)?),
    })
}
