//! Tables that are written to a PostgreSQL by the real binary, while host and database are killed; and observers, who never see an answer
//! before the database has what it depends on.

mod engines;
mod http;
mod modes;
mod observers;
mod postgres;
mod refused;
mod repaired;
mod senders;
mod storm;
mod trouble;
