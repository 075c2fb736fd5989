//! Hosts of one cluster, in processes of their own on this machine.

use crate::{
    Context, Outcome,
    rows::{host::program, namespace_with_logs},
};
use millrace_client::{Options, Place, blocking::Client};
use millrace_journal::Durability;
use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long hosts have to become a cluster.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    program: PathBuf,
    dir: tempfile::TempDir,
    hosts: Vec<Site>,
}

struct Site {
    port: u16,
    child: Option<Child>,
}

impl Site {
    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.hosts.iter_mut().for_each(Site::stop);
    }
}

impl Cluster {
    /// Starts this number of hosts, all voters, whose namespaces have this durability.
    pub fn start(context: &Context, count: usize, durability: Durability) -> Outcome<Self> {
        let mut cluster = Self { program: program(context)?, dir: context.fresh()?, hosts: Vec::new() };
        for at in 0..count {
            namespace_with_logs(&cluster.namespace(at), durability, &[])?;
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            cluster.hosts.push(Site { port, child: None });
        }
        cluster.run(0, &["cluster", "init"])?;
        let secret = cluster.secret();
        cluster.run(0, &["cluster", "secret", "--out", &secret])?;
        for at in 0..count {
            cluster.live(at)?;
        }
        if count > 3 {
            cluster.run(0, &["cluster", "voters", &count.to_string()])?;
        }
        let start = Instant::now();
        while cluster.voters()? < count {
            if start.elapsed() > PATIENCE {
                return Err(format!("{count} hosts do not vote after {} s", PATIENCE.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(cluster)
    }

    fn namespace(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("n{at}"))
    }

    fn secret(&self) -> String {
        self.dir.path().join("cluster.secret").display().to_string()
    }

    fn run(&self, at: usize, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(&self.program);
        let output = command.arg("--json").arg("-n").arg(self.namespace(at)).args(words).output()?;
        if !output.status.success() {
            return Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn voters(&self) -> Outcome<usize> {
        let shown: serde_json::Value = serde_json::from_str(&self.run(0, &["cluster", "ls"])?)?;
        let hosts = shown["hosts"].as_array().ok_or("`cluster ls` names no hosts")?;
        Ok(hosts.iter().filter(|host| host["role"] != "learner").count())
    }

    /// Starts a host, or starts it again.
    pub fn live(&mut self, at: usize) -> Outcome<()> {
        let (port, first) = (self.hosts[at].port, self.hosts[0].port);
        let mut command = Command::new(&self.program);
        command.arg("--json").arg("-n").arg(self.namespace(at));
        command.args(["serve", "--name", "site", "--listen", &format!("127.0.0.1:{port}")]);
        if at > 0 {
            let join = format!("mr://127.0.0.1:{first}/site");
            command.args(["--join", &join, "--cluster-secret", &self.secret()]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("a program without output")?).read_line(&mut line)?;
        self.hosts[at].child = Some(child);
        if line.is_empty() { Err("a host of the cluster did not start".into()) } else { Ok(()) }
    }

    /// Ends a host as kill -9 does.
    pub fn die(&mut self, at: usize) {
        self.hosts[at].stop();
    }

    /// The host that leads the group of the objects, as this one knows.
    pub fn leader(&self, of: usize) -> Outcome<usize> {
        let shown = self.run(of, &["entity", "ls"])?;
        let objects = shown.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let leader = objects.filter_map(|object| Some(object["leader"].as_str()?.to_owned())).next();
        let leader = leader.ok_or("no host leads the objects")?;
        let shown: serde_json::Value = serde_json::from_str(&self.run(of, &["cluster", "ls"])?)?;
        let hosts = shown["hosts"].as_array().ok_or("`cluster ls` names no hosts")?;
        let found = hosts.iter().find(|host| host["host"] == *leader).ok_or("the leader is no host")?;
        let port = found["address"].as_str().and_then(|address| address.rsplit_once(':')?.1.parse().ok());
        self.hosts.iter().position(|host| Some(host.port) == port).ok_or_else(|| "the leader is unknown".into())
    }

    /// A client that asks this host first, and the others if it is lost.
    pub fn client(&self, first: usize) -> Outcome<Client> {
        let place = |at: usize| -> Outcome<Place> {
            Ok(format!("mr://127.0.0.1:{}/site", self.hosts[(first + at) % self.hosts.len()].port).parse()?)
        };
        let places = (0..self.hosts.len()).map(place).collect::<Outcome<Vec<_>>>()?;
        Ok(Client::connect_any(&places, &Options::default())?)
    }
}
