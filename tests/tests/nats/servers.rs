//! Real NATS servers with JetStream, which a test kills and starts again.

use millrace_tests::{Port, eventually};
use serde_json::Value;
use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Servers of one NATS cluster, or one alone.
pub struct Servers {
    dir: TempDir,
    ports: Vec<(Port, Port)>,
    running: Vec<Option<Child>>,
    /// What their configuration has besides.
    settings: String,
}

/// Debian has it where not every user looks.
fn program() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/bin".into()]);
    let found = places.map(|place| place.join("nats-server")).find(|file| file.exists());
    found.expect("nats-server is not installed: run scripts/setup.sh test")
}

impl Servers {
    pub fn start(count: usize) -> Self {
        let servers = Self::begin(count, String::new());
        servers.settled();
        servers
    }

    /// One that lets nobody in who does not do what these settings ask for.
    pub fn guarded(settings: String) -> Self {
        Self::begin(1, settings)
    }

    fn begin(count: usize, settings: String) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ports: Vec<(Port, Port)> = (0..count).map(|_| (Port::reserve(), Port::reserve())).collect();
        let mut servers = Self { dir, ports, running: (0..count).map(|_| None).collect(), settings };
        (0..count).for_each(|at| servers.live(at));
        servers
    }

    /// The address of the first one, with this scheme and user.
    pub fn address(&self, before: &str) -> String {
        format!("{before}127.0.0.1:{}", self.ports[0].0)
    }

    /// The addresses, as `--nats` takes them.
    pub fn addresses(&self) -> String {
        let address = |(port, _): &(Port, Port)| format!("nats://127.0.0.1:{port}");
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Starts a server, which has what it had before.
    pub fn live(&mut self, at: usize) {
        let (port, route) = &self.ports[at];
        let store = self.dir.path().join(format!("store-{at}"));
        let mut text = format!(
            "server_name: n{at}\nlisten: 127.0.0.1:{port}\nmax_payload: 64KB\njetstream {{ store_dir: \"{}\" }}\n",
            store.display()
        );
        if self.ports.len() > 1 {
            let routes = self.ports.iter().map(|(_, route)| format!("nats://127.0.0.1:{route}"));
            let routes = routes.collect::<Vec<_>>().join(", ");
            text += &format!("cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n");
        }
        text += &self.settings;
        let config = self.dir.path().join(format!("{at}.conf"));
        std::fs::write(&config, text).expect("the configuration is written");
        let mut command = Command::new(program());
        command.arg("-c").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running[at] = Some(command.spawn().expect("nats-server starts"));
    }

    /// Ends a server as by kill -9.
    pub fn die(&mut self, at: usize) {
        if let Some(mut child) = self.running[at].take() {
            child.kill().expect("the server is killed");
            child.wait().expect("it ended");
        }
    }

    /// Waits until JetStream answers, with all servers that run.
    pub fn settled(&self) {
        eventually("JetStream answers", || {
            let answer = self.request("$JS.API.INFO", "");
            answer.is_some_and(|answer| answer.contains("\"limits\"") && !answer.contains("\"error\""))
        });
        // A server that was away has caught up.
        eventually("every stream has all its copies", || self.are_current().unwrap_or(false));
    }

    fn are_current(&self) -> Option<bool> {
        let streams: Value = serde_json::from_str(&self.request("$JS.API.STREAM.NAMES", "")?).ok()?;
        for stream in streams["streams"].as_array().into_iter().flatten() {
            let info = self.request(&format!("$JS.API.STREAM.INFO.{}", stream.as_str()?), "")?;
            let info: Value = serde_json::from_str(&info).ok()?;
            let others = info["cluster"]["replicas"].as_array().cloned().unwrap_or_default();
            let is_current = |peer: &Value| peer["current"] == true && peer["offline"] != true;
            if !others.iter().all(is_current) {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Asks a server that runs.
    pub fn request(&self, subject: &str, body: &str) -> Option<String> {
        let at = self.running.iter().position(Option::is_some)?;
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[at].0.to_string().parse().ok()?)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let mut answers = BufReader::new(stream.try_clone().ok()?);
        let length = body.len();
        let request =
            format!("CONNECT {{\"verbose\":false}}\r\nSUB answers 1\r\nPUB {subject} answers {length}\r\n{body}\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut line = String::new();
        loop {
            line.clear();
            if answers.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(head) = line.strip_prefix("MSG ") {
                let bytes = head.trim().rsplit(' ').next()?.parse().ok()?;
                let mut body = vec![0; bytes];
                answers.read_exact(&mut body).ok()?;
                return String::from_utf8(body).ok();
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|at| self.die(at));
    }
}
