// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! How messages are encoded and decoded, by section.

mod changes;
mod clusters;
mod connection;
mod devices;
mod links;
mod objects;
mod records;
mod tails;
mod tasks;
