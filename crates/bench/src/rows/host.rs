//! host.*: the program itself, as it is shipped.

use super::{Measured, function, namespace_with_logs};
use crate::{
    Context, Outcome, functions,
    machine::memory_mb,
    measure::{Repeated, Samples, repeat},
};
use millrace_journal::Durability;
use millrace_node::{AppendOptions, Namespace, Runtime};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// `$MILLRACE`, or the build that is shipped, made now if it is not up to date.
pub fn program(context: &Context) -> Outcome<PathBuf> {
    if let Some(program) = env::var_os("MILLRACE") {
        return Ok(program.into());
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&context.root)
        .args(["build", "--profile", "dist", "--locked", "--quiet", "-p", "millrace-cli"])
        .status()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| context.root.join("target"), PathBuf::from);
    if status.success() { Ok(target.join("dist/millrace")) } else { Err("millrace could not be built".into()) }
}

/// A namespace in `dir/n` with one function that does nothing.
fn namespace(context: &Context, dir: &Path) -> Outcome<Namespace> {
    let namespace = namespace_with_logs(&dir.join("n"), Durability::Memory, &[("in", 1000)])?;
    millrace_node::functions::deploy(
        &namespace,
        &function("f", Runtime::Wasm, "in")?,
        &functions::wasm(context, "nothing")?,
    )?;
    Ok(namespace)
}

/// A running `millrace serve`, ended with the handle.
struct Served(Child);

impl Served {
    fn start(program: &Path, dir: &Path) -> Outcome<Self> {
        let child = Command::new(program)
            .arg("--namespace")
            .arg(dir.join("n"))
            .args(["serve", "--listen", "none"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    fn announced(&mut self) -> Outcome<()> {
        let output = self.0.stdout.take().ok_or("a program without output")?;
        let mut line = String::new();
        if BufReader::new(output).read_line(&mut line)? == 0 {
            return Err("millrace serve ended early".into());
        }
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Its namespace goes with the directory.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn ready(context: &Context) -> Outcome<Measured> {
    let program = program(context)?;
    let dir = context.fresh()?;
    let namespace = namespace(context, dir.path())?;
    let function = namespace.journal().catalog()?.function("f").ok_or("no function")?.clone();
    let (mut first, mut announced) = (Samples::new(), Repeated::default());
    let repetitions = context.repetitions(40);
    let mut values = Repeated::default();
    for _ in 0..repetitions {
        let done = function.done();
        let start = Instant::now();
        let mut served = Served::start(&program, dir.path())?;
        namespace.append("in", b"1", AppendOptions::default())?;
        while function.done() == done {
            if start.elapsed() > Duration::from_secs(20) {
                return Err("no run was done within 20 s of the start".into());
            }
            namespace.journal().wait(namespace.journal().tail(), Duration::from_millis(1));
        }
        values.push(start.elapsed().as_secs_f64() * 1000.0);
        first.record(start.elapsed());
        served.announced()?;
        announced.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let one = repeat(repetitions, || append_by_command(&program, dir.path()))?;
    Ok(Measured::new(values.median(), first.count())
        .percentiles(first.p50_us() / 1000.0, first.p99_us() / 1000.0)
        .target("≤ 100 ms", values.median() <= 100.0)
        .also("`millrace log append`, start to end", one.median(), "ms")
        .note(format!(
            "The time from the start of `millrace serve` until a Wasm function has run for a record that another \
             process appends at once, and the DONE of the run is in the journal. (The append itself needs no host.) \
             The page cache is warm, and the compiled module is in the cache of compiled modules: {}. The namespace \
             has durability memory, and its host was killed before.",
            values.spread()
        )))
}

/// A whole `millrace log append`, in ms.
fn append_by_command(program: &Path, dir: &Path) -> Outcome<f64> {
    let start = Instant::now();
    let output =
        Command::new(program).arg("--namespace").arg(dir.join("n")).args(["log", "append", "in", "1"]).output()?;
    let elapsed = start.elapsed().as_secs_f64() * 1000.0;
    if output.status.success() { Ok(elapsed) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

pub fn rss(context: &Context) -> Outcome<Measured> {
    let program = program(context)?;
    let dir = context.fresh()?;
    let namespace = namespace(context, dir.path())?;
    let (mut all, mut own) = (Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(5) {
        let mut served = Served::start(&program, dir.path())?;
        served.announced()?;
        namespace.append("in", b"1", AppendOptions::default())?;
        namespace.wait_idle(Duration::from_secs(20))?;
        thread::sleep(Duration::from_secs(1));
        all.push(memory_mb(served.0.id(), "VmRSS")?);
        own.push(memory_mb(served.0.id(), "RssAnon")?);
    }
    Ok(Measured::new(all.median(), context.repetitions(5) as u64)
        .target("≤ 40 MB", all.median() <= 40.0)
        .also("of which anonymous", own.median(), "MB")
        .note(format!(
            "VmRSS of `millrace serve` with one Wasm function, one second after the first run: the program, the \
             function's code, and the mapped pages of the namespace, {}.",
            all.spread()
        )))
}

pub fn size(context: &Context) -> Outcome<Measured> {
    let bytes = fs::metadata(program(context)?)?.len();
    let mb = bytes as f64 / 1e6;
    Ok(Measured::new(mb, 1)
        .target("≤ 20 MB", mb <= 20.0)
        .note(format!("The size of target/dist/millrace, {bytes} bytes: everything in one file, without symbols.")))
}
