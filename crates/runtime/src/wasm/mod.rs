//! WebAssembly functions: validated and compiled once, a fresh instance per run.
//!
//! ```text
//! WasmEngine --load--> WasmFunction --> WasmExecutor --run--> Store + Instance --> handle() -> i32
//!   engine.rs            cache.rs         executor.rs                                |
//!   ticker.rs                                                    host.rs, wasi.rs <--+  imports
//! ```
//!
//! A module reaches the outside through the imports of `host.rs` only, and of WASI what is harmless (`wasi.rs`);
//! everything else is refused when it is loaded. Time is bounded by epochs that a ticker thread counts, memory by
//! [`Limits`](crate::Limits), stack by the engine.

mod cache;
mod engine;
mod executor;
mod host;
#[allow(unsafe_code)]
mod lend;
mod slots;
mod ticker;
mod trap;
mod wasi;

pub use engine::{WasmEngine, WasmFunction};
pub use executor::WasmExecutor;
