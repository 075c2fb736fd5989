//! The smallest host: runs the functions of one namespace until it is killed.
//!
//! `cargo run -p millrace-node --example host -- DIR`

use millrace_node::{Host, HostOptions, Namespace, Result};
use std::{path::PathBuf, thread, time::Duration};

fn main() -> Result<()> {
    let dir = PathBuf::from(std::env::args_os().nth(1).expect("usage: host DIR"));
    let host = Host::start(Namespace::open(&dir)?, HostOptions::default())?;
    loop {
        thread::sleep(Duration::from_millis(100));
        if let Some(failure) = host.failure() {
            return Err(failure);
        }
    }
}
