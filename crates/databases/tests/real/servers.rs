//! Servers of databases, which a test kills and starts again.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::{
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A port that the system gives to nobody else while this lives. It is bound and does not listen; who asks for this very port gets it.
pub struct Port {
    pub number: u16,
    _reserved: TcpListener,
}

impl Port {
    pub fn reserve() -> Self {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("the option is known");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let reserved = TcpListener::from(socket);
        Self { number: reserved.local_addr().expect("it is bound").port(), _reserved: reserved }
    }
}

/// A program of a package, also where not every user looks.
pub fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/usr/local/bin"].map(PathBuf::from));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    places.extend(versions.map(|version| version.path().join("bin")));
    let found = places.iter().map(|place| place.join(name)).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/setup.sh test"))
}

pub fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < until, "this did not happen: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A process that ends with the test.
pub struct Running(Child);

impl Running {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if env::var_os("MILLRACE_SERVERS_TALK").is_none() {
            command.stderr(Stdio::null());
        }
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is a child").is_some()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status().expect("kill runs");
        assert!(sent.success(), "kill {name}");
    }

    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn wait(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The first byte of the answer to a request.
pub fn answers(port: u16, request: &[u8]) -> Option<u8> {
    let mut line = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    line.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    line.write_all(request).ok()?;
    let mut first = [0];
    line.read_exact(&mut first).ok()?;
    Some(first[0])
}

pub const PASSWORD: &str = "correct horse";

/// A PostgreSQL.
pub struct PostgresServer {
    dir: tempfile::TempDir,
    pub port: Port,
    running: Option<Running>,
    user: Option<(u32, u32)>,
    settings: Vec<String>,
}

/// PostgreSQL does not run as root.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(|id| id.parse().expect("a number"));
        Some((ids.next()?, ids.next()?))
    };
    Some(of("postgres").or_else(|| of("nobody")).expect("there is a user who is not root"))
}

impl PostgresServer {
    pub fn start(settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let user = other_user();
        let server = Self {
            dir,
            port: Port::reserve(),
            running: None,
            user,
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        };
        let password = server.dir.path().join("password");
        fs::write(&password, PASSWORD).expect("the password is written");
        for path in [server.dir.path(), &password] {
            if let Some((uid, gid)) = user {
                chown(path, Some(uid), Some(gid)).expect("root may give files away");
            }
        }
        let mut init = server.command("initdb");
        init.args(["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "-N", "--pwfile"]);
        init.arg(password).arg("-D").arg(server.data());
        let made = init.output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = server;
        server.live();
        server
    }

    /// A file of the test's, which the server may read.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        if let Some((uid, gid)) = self.user {
            chown(&path, Some(uid), Some(gid)).expect("root may give files away");
        }
        path
    }

    pub fn set(&mut self, settings: &[String]) {
        self.settings = settings.to_vec();
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.current_dir(self.dir.path()).env("LC_ALL", "C.UTF-8");
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    pub fn live(&mut self) {
        let port = self.port.number;
        eventually("PostgreSQL listens", || {
            if self.running.as_mut().is_none_or(Running::has_ended) {
                let mut command = self.command("postgres");
                command.arg("-D").arg(self.data()).args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
                command.args([
                    "-c",
                    "unix_socket_directories=",
                    "-c",
                    "shared_buffers=16MB",
                    "-c",
                    "max_connections=20",
                ]);
                for setting in &self.settings {
                    command.args(["-c", setting]);
                }
                self.running = Some(Running::start(command));
            }
            // It asks for a password: it has recovered.
            answers(port, b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0") == Some(b'R')
        });
    }

    /// Ends it at once, as a crash does: it recovers at the next start.
    pub fn die(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.signal("-QUIT");
            running.wait();
        }
    }

    pub fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port.number)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.die();
    }
}
