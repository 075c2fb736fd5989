//! device.*: what a microcontroller needs, in QEMU; and devices that send to hosts, as programs of this machine.

pub mod board;
pub mod fleet;
pub mod path;

use crate::{Context, Outcome};
use std::process::Command;

/// Makes targets of device/Makefile, and returns what they print.
fn make(context: &Context, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new("make").args(["-s", "-C"]).arg(context.root.join("device")).args(arguments).output()?;
    // A board in QEMU prints to the error output.
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("make -C device {}: {said}", arguments.join(" ")).into())
}
