//! Servers of databases, which a test starts, kills and starts again.

mod postgres;

pub use postgres::{PASSWORD, PostgresServer};

use crate::Port;
use std::{
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A program of a package, also where not every user looks.
///
/// # Panics
///
/// It is not installed.
pub fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/usr/local/bin"].map(PathBuf::from));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    places.extend(versions.map(|version| version.path().join("bin")));
    let found = places.iter().map(|place| place.join(name)).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/setup.sh test"))
}

/// Redis on this port, which keeps its files in a directory. What it keeps is a matter of further arguments.
pub fn redis(port: &Port, dir: &Path) -> Command {
    let mut command = Command::new(program("redis-server"));
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).arg("--dir").arg(dir);
    command
}

/// The one member of an etcd, which keeps its files in a directory.
pub fn etcd(port: &Port, peer: &Port, dir: &Path) -> Command {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new(program("etcd"));
    command.arg("--data-dir").arg(dir.join("data")).args(["--name", "m"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("m={peer}")]);
    command
}

/// The DynamoDB API, by moto.
///
/// # Panics
///
/// It is not installed.
pub fn moto(port: &Port) -> Command {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers/moto/bin/moto_server");
    assert!(program.exists(), "moto is not installed: run scripts/setup.sh test");
    let mut command = Command::new(program);
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
    command
}

/// The first byte of the answer to a request.
pub fn answers(port: &Port, request: &[u8]) -> Option<u8> {
    let mut line = TcpStream::connect((Ipv4Addr::LOCALHOST, port.number)).ok()?;
    line.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    line.write_all(request).ok()?;
    let mut first = [0];
    line.read_exact(&mut first).ok()?;
    Some(first[0])
}

/// A process that ends with the test.
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Starts it. With the variable `MILLRACE_SERVERS_TALK`, its errors are shown.
    ///
    /// # Panics
    ///
    /// It cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if env::var_os("MILLRACE_SERVERS_TALK").is_none() {
            command.stderr(Stdio::null());
        }
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is a child").is_some()
    }

    /// Sends it a signal, such as `-STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success(), "kill {name}");
    }

    /// Waits for its end.
    pub fn wait(&mut self) {
        // Only the end counts.
        let _ = self.0.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
