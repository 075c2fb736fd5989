//! The functions that the bench runs, compiled from crates/bench/functions.

use crate::{Context, Outcome};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles a C function to Wasm, the way the guide tells users to.
pub fn wasm(context: &Context, name: &str) -> Outcome<PathBuf> {
    let flags = ["--target=wasm32", "-O2", "-ffp-contract=off", "-nostdlib", "-Wl,--no-entry"];
    compile(context, "clang", &flags, name, &format!("{name}.wasm"))
}

/// Compiles a C function to a program.
pub fn native(context: &Context, name: &str) -> Outcome<PathBuf> {
    compile(context, "cc", &["-std=c99", "-O2", "-ffp-contract=off"], name, name)
}

fn compile(context: &Context, compiler: &str, flags: &[&str], name: &str, to: &str) -> Outcome<PathBuf> {
    let dir = context.dir.join("functions");
    fs::create_dir_all(&dir)?;
    let made = dir.join(to);
    let header = context.root.join("sdk/c");
    let output = Command::new(compiler)
        .args(flags)
        .arg("-I")
        .arg(header)
        .arg(source(&format!("{name}.c")))
        .arg("-o")
        .arg(&made)
        .output()
        .map_err(|error| format!("{compiler}: {error}; on Debian: apt-get install clang lld gcc libc6-dev"))?;
    if !output.status.success() {
        return Err(format!("{compiler} {name}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(made)
}

/// Debian's interpreter, or the one behind `python3`: that may be a script that looks for it each time.
pub fn python() -> Outcome<String> {
    const DEBIAN: &str = "/usr/bin/python3";
    if Path::new(DEBIAN).exists() {
        return Ok(DEBIAN.into());
    }
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output()?;
    Ok(String::from_utf8(asked.stdout)?.trim().to_owned())
}

/// A function's source.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("functions").join(name)
}
