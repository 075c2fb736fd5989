//! How bytes, histories, sizes and times are written as text.

mod headers;
mod hex;
pub mod history;
mod json;
pub mod units;

pub use headers::{HEADERS_MAX_BYTES, Headers};
pub use hex::Hex;
pub use json::{JsonBytes, JsonBytesRead};
