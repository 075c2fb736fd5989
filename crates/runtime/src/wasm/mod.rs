//! WebAssembly functions: validated and compiled once, a fresh instance per run.
//!
//! ```text
//! WasmEngine --load--> WasmFunction --> WasmExecutor --run--> Store + Instance --> handle() -> i32
//!   engine.rs            cache.rs         executor.rs                                |
//!   ticker.rs                                                    host.rs, wasi.rs <--+  imports
//! ```
//!
//! A module can call only the imports of `host.rs` and the harmless part of WASI (`wasi.rs`); a module with other imports is refused when
//! it is loaded. Time is bounded by epochs that a ticker thread counts, memory by [`Limits`](crate::Limits), stack by the engine.

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
