//! remote.*, tls.append, channel.append, tail.lag, conns.10k, http.append, mqtt.*, held.load, gate.cost, links: a namespace used through its host,
//! over TCP on the loopback interface.
//!
//! The host is the shipped build (profile `dist`) of `millrace serve`, in a process of its own, on the same two cores as the load.

pub mod append;
pub mod connections;
pub mod durable;
pub mod gate;
pub mod http;
pub mod links;
pub mod load;
pub mod mqtt;
pub mod pipelined;
pub mod secure;
pub mod tail;

use super::{host::program, namespace_with_logs};
use crate::{
    Context, Outcome,
    machine::{cpu_s, memory_mb},
};
use millrace_client::{Client, Options, Place, blocking};
use millrace_journal::Durability;
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Between two requests of the paced scenarios.
pub const PACE: Duration = Duration::from_micros(500);

/// The namespaces of most rows.
const BOTH: [&str; 2] = ["memory=memory", "disk=disk"];

/// A running `millrace serve`, usually with two namespaces: `memory` and `disk`, each with the log `a`.
pub struct Host {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Host {
    pub fn start(context: &Context, history: u64) -> Outcome<Self> {
        let dir = context.fresh()?;
        for (name, durability) in [("memory", Durability::Memory), ("disk", Durability::Disk)] {
            namespace_with_logs(&dir.path().join(name), durability, &[("a", history)])?;
        }
        Self::serve(context, dir, 0, &BOTH)
    }

    /// Serves these namespaces in `dir`, on this port or any.
    pub fn serve(context: &Context, dir: tempfile::TempDir, port: u16, namespaces: &[&str]) -> Outcome<Self> {
        let mut child = Command::new(program(context)?)
            .args(["--json", "serve", "--listen", &format!("127.0.0.1:{port}")])
            .args(namespaces)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("a program without output")?).read_line(&mut line)?;
        let announced: serde_json::Value = serde_json::from_str(&line)?;
        let address = announced["listening"][0].as_str().ok_or_else(|| format!("millrace serve said {line}"))?;
        let port = address.rsplit_once(':').ok_or("an address without a port")?.1.parse()?;
        Ok(Self { child, port, dir })
    }

    pub fn place(&self, namespace: &str) -> Outcome<Place> {
        Ok(format!("mr://127.0.0.1:{}/{namespace}", self.port).parse()?)
    }

    pub fn client(&self, namespace: &str) -> Outcome<blocking::Client> {
        Ok(blocking::Client::connect(&self.place(namespace)?, &Options::default())?)
    }

    pub async fn connect(&self, namespace: &str) -> Outcome<Client> {
        Ok(Client::connect(&self.place(namespace)?, &Options::default()).await?)
    }

    /// Where it listens on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Processor time that the host has taken, in seconds.
    pub fn cpu_s(&self) -> Outcome<f64> {
        cpu_s(self.child.id())
    }

    /// Memory of the host that is resident, in MB.
    pub fn resident_mb(&self) -> Outcome<f64> {
        memory_mb(self.child.id(), "VmRSS")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its namespaces go with the directory.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds, for at most a minute.
fn await_that(what: &str, mut check: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let start = Instant::now();
    while !check()? {
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("after a minute still not: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A path below the scratch directory of a host.
pub fn below(host: &Host, name: &str) -> std::path::PathBuf {
    Path::new(host.dir.path()).join(name)
}
