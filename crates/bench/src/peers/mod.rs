//! The figures that ours are compared with: limits of the machine, and comparable systems.

pub mod cspot;
pub mod echo;
pub mod etcd;
pub mod lithops;
pub mod nats;
pub mod nginx;
pub mod rabbitmq;
pub mod raw;
pub mod redis;
#[allow(unsafe_code)]
pub mod wake;
pub mod zookeeper;

use crate::Outcome;
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A peer's server, started by the bench and ended with it.
pub struct Server(Child);

impl Server {
    /// `None` if its program is not installed.
    pub fn start(program: &str, arguments: &[String], dir: &Path) -> Outcome<Option<Self>> {
        // What `make bench` fetched goes before what the system has.
        let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers").join(program);
        let mut command = if fetched.exists() { Command::new(fetched) } else { Command::new(program) };
        command.args(arguments).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Ok(Some(Self(child))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{program}: {error}").into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing but scratch data.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until it works, for at most 30 seconds: a server needs a moment to start.
pub fn patiently<T>(mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if start.elapsed() > Duration::from_secs(30) => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}
