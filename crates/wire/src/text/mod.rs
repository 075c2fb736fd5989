//! How bytes, histories, sizes and times are written as text.

mod hex;
pub mod history;
mod json;
pub mod units;

pub use hex::Hex;
pub use json::{JsonBytes, JsonBytesRead};
