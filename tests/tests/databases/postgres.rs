//! A PostgreSQL that a test kills and starts again, and `psql`, through which it looks from outside.

use millrace_tests::{Place, Port, eventually};
use std::{
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

pub const PASSWORD: &str = "correct horse";

/// A program of a package, also where not every user looks.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    places.extend(versions.map(|version| version.path().join("bin")));
    let found = places.iter().map(|place| place.join(name)).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/setup.sh test"))
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

/// A PostgreSQL.
pub struct Postgres {
    dir: tempfile::TempDir,
    pub port: Port,
    running: Option<Child>,
    user: Option<(u32, u32)>,
}

impl Postgres {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let user = other_user();
        let mut server = Self { dir, port: Port::reserve(), running: None, user };
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
        server.live();
        server
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

    /// Starts it, or starts it again.
    pub fn live(&mut self) {
        let port = self.port.to_string();
        eventually("PostgreSQL listens", || {
            if self.running.as_mut().is_none_or(|child| child.try_wait().expect("it is a child").is_some()) {
                let mut command = self.command("postgres");
                command.arg("-D").arg(self.data()).args(["-p", &port, "-c", "listen_addresses=127.0.0.1"]);
                command.args([
                    "-c",
                    "unix_socket_directories=",
                    "-c",
                    "shared_buffers=16MB",
                    "-c",
                    "max_connections=20",
                ]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                self.running = Some(command.spawn().expect("postgres starts"));
            }
            // It asks for a password: it has recovered.
            self.answers() == Some(b'R')
        });
    }

    fn answers(&self) -> Option<u8> {
        let port = self.port.to_string().parse::<u16>().ok()?;
        let mut line = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        line.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        line.write_all(b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0").ok()?;
        let mut first = [0];
        line.read_exact(&mut first).ok()?;
        Some(first[0])
    }

    /// Ends it at once, as a crash does: it recovers at the next start.
    pub fn die(&mut self) {
        if let Some(mut running) = self.running.take() {
            let sent = Command::new("kill").args(["-QUIT", &running.id().to_string()]).status().expect("kill runs");
            assert!(sent.success());
            running.wait().expect("it is a child");
        }
    }

    pub fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command.args(["-qAt", "-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string(), "postgres"]);
        command.env("PGPASSWORD", PASSWORD).env("PGCONNECT_TIMEOUT", "20");
        command
    }

    /// What a query answers: a line for each row.
    #[track_caller]
    pub fn query(&self, sql: &str) -> Vec<String> {
        let answer = self.psql().args(["-c", sql]).output().expect("psql runs");
        assert!(answer.status.success(), "{sql}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).lines().map(str::to_owned).collect()
    }

    /// The value of a key of a table with JSON.
    #[track_caller]
    pub fn value(&self, table: &str, key: &str) -> Option<String> {
        self.query(&format!("SELECT value::text FROM \"{table}\" WHERE key = '{key}'")).into_iter().next()
    }

    /// Keeps everybody from writing to a table until the result is dropped.
    pub fn block(&self, table: &str) -> Block {
        let mut session = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs");
        let mut input = session.stdin.take().expect("it is a pipe");
        writeln!(input, "BEGIN; LOCK TABLE \"{table}\" IN SHARE MODE; SELECT 'blocked';").expect("it is read");
        let mut output = session.stdout.take().expect("it is a pipe");
        let mut said = [0; 7];
        output.read_exact(&mut said).expect("it answers");
        assert_eq!(&said, b"blocked");
        Block { session, input: Some(input) }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.die();
    }
}

/// See [`Postgres::block`].
pub struct Block {
    session: Child,
    input: Option<ChildStdin>,
}

impl Drop for Block {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.session.wait();
    }
}

/// A place whose table `grades` is written to a PostgreSQL, with a log `other` that depends on nothing.
pub fn place(postgres: &Postgres, more: &str) -> Place {
    let place = Place::empty();
    let url = postgres.url();
    let text = format!(
        "[namespace]\nsegment_size = \"1MiB\"\ndurability = \"memory\"\n[logs.other]\n[databases.main]\nurl = \"{url}\"\n\
         secret = \"main-password\"\n[tables.grades]\ndatabase = \"main\"\n{more}\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place.feed(["secret", "set", "main-password"], PASSWORD.as_bytes()).ok();
    place
}
