//! The engine, and the checks when a module is loaded.

use super::{cache::Cache, host, slots::Slots, ticker::Ticker, wasi};
use crate::{Code, Error, Result, output::head};
use std::{num::NonZeroUsize, path::Path, sync::Arc};
use wasmtime::{
    Config, Enabled, Engine, ExternType, InstanceAllocationStrategy, InstancePre, Linker, Module, ModuleExport,
    PoolingAllocationConfig, Strategy, ValType,
};

/// The largest module file.
const MODULE_MAX_BYTES: u64 = 64 << 20;
/// The most instances at once, over all executors of the process: as many as a host has threads that run functions. Each
/// reserves some 4 GiB of addresses, and takes memory only while it is used.
const INSTANCES_MAX: u32 = 1024;
/// A memory's first bytes are zeroed in place after a run, which is cheaper than giving their pages back.
const KEEP_RESIDENT_BYTES: usize = 256 << 10;
/// The deepest stack of a function; threads that run functions have at least twice as much.
const STACK_MAX_BYTES: usize = 512 << 10;
/// The most calls a trap's message shows.
const BACKTRACE_FRAMES_MAX: usize = 16;
/// The most imports a refusal names.
const REFUSED_SHOWN_MAX: usize = 5;

/// The process's one WebAssembly engine.
pub struct WasmEngine {
    engine: Engine,
    linker: Linker<host::State>,
    ticker: Arc<Ticker>,
    slots: Arc<Slots>,
}

/// A compiled module and its handler, shared by executors.
pub struct WasmFunction {
    pub(super) engine: Engine,
    pub(super) pre: InstancePre<host::State>,
    pub(super) handler: ModuleExport,
    /// WASI reactors (clang's `-mexec-model=reactor`) want this called first.
    pub(super) initialize: Option<ModuleExport>,
    pub(super) ticker: Arc<Ticker>,
    /// One is held while an instance lives.
    pub(super) slots: Arc<Slots>,
}

impl WasmEngine {
    /// Sets the engine up; once per process, since it reserves address space for all instances.
    pub fn new() -> Result<Arc<Self>> {
        let unavailable = |e: wasmtime::Error| Code::RuntimeUnavailable.error(head(&format!("{e:#}"), 500));
        let engine = Engine::new(&config()).map_err(unavailable)?;
        let mut linker = Linker::new(&engine);
        host::define(&mut linker).and_then(|()| wasi::define(&mut linker)).map_err(unavailable)?;
        let ticker = Ticker::start(engine.clone())
            .map_err(|e| Code::RuntimeUnavailable.error(format!("cannot start a thread: {e}")))?;
        Ok(Arc::new(Self { engine, linker, ticker: Arc::new(ticker), slots: Arc::new(Slots::new(INSTANCES_MAX)) }))
    }

    /// Compiles the module, or takes it from `cache_dir`, and checks its imports and its handler `export`.
    pub fn load(&self, module: &Path, cache_dir: &Path, export: &str) -> Result<Arc<WasmFunction>> {
        let cache = Cache::open(cache_dir)?;
        let bytes = read(module)?;
        let path = cache.path(&self.engine, &bytes);
        let cached = Cache::get(&path).and_then(|artifact| deserialize(&self.engine, &artifact));
        let compiled = match cached {
            Some(compiled) => compiled,
            None => {
                let compiled = compile(&self.engine, &bytes).map_err(|e| e.within(module.display()))?;
                if let Ok(artifact) = compiled.serialize() {
                    // A cache that cannot be written costs the next start a compilation, nothing else.
                    let _ = Cache::put(&path, &artifact);
                }
                compiled
            }
        };
        self.link(&compiled, export).map(Arc::new).map_err(|e| e.within(module.display()))
    }

    /// Checks, as is done at deployment, all that `load` checks, without a cache.
    pub fn validate(&self, module: &Path, export: &str) -> Result<()> {
        let compiled = compile(&self.engine, &read(module)?);
        compiled.and_then(|compiled| self.link(&compiled, export)).map(drop).map_err(|e| e.within(module.display()))
    }

    fn link(&self, module: &Module, export: &str) -> Result<WasmFunction> {
        let offered = |import: &wasmtime::ImportType<'_>| {
            host::OFFERED.contains(&(import.module(), import.name()))
                || wasi::OFFERED.contains(&(import.module(), import.name()))
        };
        let refused: Vec<String> = module
            .imports()
            .filter(|import| !offered(import))
            .map(|import| format!("'{}.{}'", head(import.module(), 60), head(import.name(), 60)))
            .collect();
        if !refused.is_empty() {
            let shown = refused[..refused.len().min(REFUSED_SHOWN_MAX)].join(", ");
            return Err(Code::WasmImportRefused.error(format!("the module imports {shown} ({} in all)", refused.len())));
        }
        let handler = handler(module, export)?;
        // Names are known to be right, so this refuses types only.
        let pre = self
            .linker
            .instantiate_pre(module)
            .map_err(|e| Code::WasmImportRefused.error(head(&format!("{e:#}"), 500)))?;
        let initialize = module.get_export_index("_initialize");
        let (ticker, slots) = (Arc::clone(&self.ticker), Arc::clone(&self.slots));
        Ok(WasmFunction { engine: self.engine.clone(), pre, handler, initialize, ticker, slots })
    }
}

fn config() -> Config {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(INSTANCES_MAX)
        .total_memories(INSTANCES_MAX)
        .total_tables(INSTANCES_MAX)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .epoch_interruption(true)
        .max_wasm_stack(STACK_MAX_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        // One record gives one result, on every machine.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    config
}

fn read(module: &Path) -> Result<Vec<u8>> {
    let unreadable = |e: std::io::Error| Code::CodeUnreadable.error(format!("cannot read '{}': {e}", module.display()));
    let bytes = std::fs::metadata(module).map_err(unreadable)?.len();
    if bytes > MODULE_MAX_BYTES {
        return Err(Code::WasmInvalid
            .error(format!("'{}' has {bytes} bytes; the limit is {MODULE_MAX_BYTES}", module.display())));
    }
    std::fs::read(module).map_err(unreadable)
}

fn compile(engine: &Engine, bytes: &[u8]) -> Result<Module> {
    Module::from_binary(engine, bytes).map_err(|e| Code::WasmInvalid.error(head(&format!("{e:#}"), 500)))
}

#[allow(unsafe_code)]
fn deserialize(engine: &Engine, artifact: &[u8]) -> Option<Module> {
    // SAFETY: the artifact was written by `load`: its directory is writable by this user only and its checksum is right.
    unsafe { Module::deserialize(engine, artifact) }.ok()
}

/// The handler's export, if it is a function that takes nothing and returns an `i32`.
fn handler(module: &Module, name: &str) -> Result<ModuleExport, Error> {
    let missing = || {
        let exports: Vec<&str> = module.exports().map(|export| export.name()).take(10).collect();
        Code::WasmExportMissing.error(format!(
            "no export '{}'; it exports: {}",
            head(name, 60),
            head(&exports.join(", "), 300)
        ))
    };
    let export = module.get_export(name).ok_or_else(missing)?;
    let ExternType::Func(function) = export else {
        return Err(Code::WasmExportSignature.error(format!("'{name}' is not a function")));
    };
    let mut results = function.results();
    if function.params().len() != 0 || !matches!((results.next(), results.next()), (Some(ValType::I32), None)) {
        return Err(Code::WasmExportSignature.error(format!("'{name}' is {function}, not (func (result i32))")));
    }
    module.get_export_index(name).ok_or_else(missing)
}
