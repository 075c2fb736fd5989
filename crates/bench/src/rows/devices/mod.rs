//! device.*: what a microcontroller needs, in QEMU; and devices that send to hosts, as programs of this machine.

pub mod board;
pub mod fleet;
pub mod path;

use crate::{Context, Outcome};
use std::process::Command;

/// Makes targets of device/Makefile, and returns what they print.
fn make(context: &Context, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new("make").args(["-s", "-C"]).arg(context.root.join("device")).args(arguments).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("make -C device {}: {said}", arguments.join(" ")).into())
}
