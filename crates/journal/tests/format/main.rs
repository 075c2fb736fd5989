//! The bytes on disk: those of the specification, those of later versions, and those that no journal wrote.

mod compact;
mod corpus;
mod extension;
#[path = "../model/mod.rs"]
mod model;
mod mutation;
mod vectors;
