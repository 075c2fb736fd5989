//! A PostgreSQL of our own, and the least of its protocol that a program needs to write to it.

use crate::{Outcome, peers::patiently};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::{
    env, fs,
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// For a row that cannot be measured without it: how to install it.
pub const INSTALL: &str =
    "PostgreSQL is not installed (apt-get install postgresql): without it there is nothing to measure";
/// How the server is configured, for the note of a row.
pub const SETTINGS: &str = "PostgreSQL, with 256 MB of shared buffers and a WAL of up to 4 GB, so that no checkpoint happens \
                            meanwhile, and otherwise as it is installed, so its commits are on the disk";

/// The version of the protocol.
const PROTOCOL: i32 = 3 << 16;
/// The ids of the types of parameters.
const INT8: i32 = 20;
const TEXT: i32 = 25;
const INT8_ARRAY: i32 = 1016;
const TEXT_ARRAY: i32 = 1009;

/// A server on the loopback interface, which trusts everybody there.
pub struct Postgres {
    dir: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    running: Option<Child>,
    user: Option<(u32, u32)>,
}

/// The folder with the programs of the server: Debian does not put them where every user looks.
fn programs() -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    places.sort();
    places.reverse();
    places.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    places.into_iter().find(|place| ["initdb", "postgres"].iter().all(|name| place.join(name).exists()))
}

/// The user and group that the server runs as: it refuses to run as root.
fn other_user() -> Outcome<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    };
    Ok(Some(of("postgres").or_else(|| of("nobody")).ok_or("no user but root, as whom PostgreSQL does not run")?))
}

impl Postgres {
    /// Starts one in a fresh directory, or says how to install it.
    pub fn start(dir: tempfile::TempDir) -> Outcome<Self> {
        let programs = programs().ok_or(INSTALL)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut server = Self { dir, programs, port, running: None, user: other_user()? };
        if let Some((uid, gid)) = server.user {
            chown(server.dir.path(), Some(uid), Some(gid))?;
        }
        let mut init = server.command("initdb");
        init.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-D"]).arg(server.data());
        let made = init.output()?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        server.live()?;
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.dir.path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts it, and waits until it answers.
    fn live(&mut self) -> Outcome<()> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        let settings =
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=256MB", "max_wal_size=4GB"];
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        self.running = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        patiently(|| self.session()).map(drop)
    }

    /// Ends it at once, as a crash does.
    pub fn die(&mut self) -> Outcome<()> {
        if let Some(mut running) = self.running.take() {
            kill_process(Pid::from_child(&running), Signal::QUIT)?;
            running.wait()?;
        }
        Ok(())
    }

    /// Where it listens on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn session(&self) -> Outcome<PostgresSession> {
        PostgresSession::connect(self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It holds nothing but scratch data.
        let _ = self.die();
    }
}

/// The address for a namespace's settings.
pub fn url(port: u16) -> String {
    format!("postgresql://postgres@127.0.0.1:{port}/postgres")
}

/// A parameter of a statement: its type, and its bytes.
pub struct Parameter(i32, Vec<u8>);

impl Parameter {
    pub fn number(value: i64) -> Self {
        Self(INT8, value.to_be_bytes().into())
    }

    pub fn text(value: &str) -> Self {
        Self(TEXT, value.into())
    }

    pub fn numbers(values: impl ExactSizeIterator<Item = i64>) -> Self {
        Self(INT8_ARRAY, array(INT8, values.map(i64::to_be_bytes)))
    }

    pub fn texts<'t>(values: impl ExactSizeIterator<Item = &'t str>) -> Self {
        Self(TEXT_ARRAY, array(TEXT, values))
    }
}

/// An array of one dimension without NULL.
fn array(kind: i32, values: impl ExactSizeIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [1, 0, kind, values.len() as i32, 1] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for value in values {
        let value = value.as_ref();
        bytes.extend_from_slice(&(value.len() as i32).to_be_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

/// A connection.
pub struct PostgresSession {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

/// A message with its length, behind its type if it has one.
fn message(out: &mut Vec<u8>, kind: Option<u8>, body: &[u8]) {
    out.extend(kind);
    out.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

impl PostgresSession {
    /// To a server, or to a proxy in front of it.
    pub fn connect(port: u16) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let answers = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let mut session = Self { stream, answers };
        let mut hello = Vec::new();
        let body = [&PROTOCOL.to_be_bytes()[..], b"user\0postgres\0database\0postgres\0\0"].concat();
        message(&mut hello, None, &body);
        session.stream.write_all(&hello)?;
        session.rows()?;
        Ok(session)
    }

    /// Runs statements without parameters; the first column of each row.
    pub fn query(&mut self, sql: &str) -> Outcome<Vec<String>> {
        let mut request = Vec::new();
        message(&mut request, Some(b'Q'), &[sql.as_bytes(), &[0]].concat());
        self.stream.write_all(&request)?;
        self.rows()
    }

    /// A number that a query finds.
    pub fn number(&mut self, sql: &str) -> Outcome<u64> {
        let found = self.query(sql)?;
        Ok(found.first().ok_or_else(|| format!("no row: {sql}"))?.parse()?)
    }

    /// Sends a statement. Others may be unanswered; each one is a transaction of its own.
    pub fn send(&mut self, sql: &str, parameters: &[Parameter]) -> Outcome<()> {
        let mut request = Vec::new();
        let count = (parameters.len() as i16).to_be_bytes();
        let mut parse = [&[0], sql.as_bytes(), &[0], &count].concat();
        // Every parameter is binary.
        let mut bind = [&[0, 0, 0, 1, 0, 1][..], &count].concat();
        for Parameter(kind, bytes) in parameters {
            parse.extend_from_slice(&kind.to_be_bytes());
            bind.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
            bind.extend_from_slice(bytes);
        }
        // The result is text.
        bind.extend_from_slice(&[0, 0]);
        for (kind, body) in [(b'P', &parse[..]), (b'B', &bind), (b'E', &[0, 0, 0, 0, 0]), (b'S', &[])] {
            message(&mut request, Some(kind), body);
        }
        Ok(self.stream.write_all(&request)?)
    }

    /// The first column of each row of the oldest unanswered statement.
    pub fn rows(&mut self) -> Outcome<Vec<String>> {
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let mut head = [0; 5];
            self.answers.read_exact(&mut head)?;
            let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; usize::try_from(length - 4)?];
            self.answers.read_exact(&mut body)?;
            match head[0] {
                b'Z' => return failed.map_or(Ok(rows), |failed: String| Err(failed.into())),
                b'E' => failed = Some(format!("PostgreSQL: {}", String::from_utf8_lossy(&body).replace('\0', " "))),
                // It trusts us.
                b'R' if body != [0; 4] => return Err("PostgreSQL asks for a password".into()),
                b'D' => rows.push(first_column(&body)?),
                _ => {}
            }
            // An error while connecting is the last message.
            if let Some(failed) = failed.take_if(|_| body.starts_with(b"SFATAL")) {
                return Err(failed.into());
            }
        }
    }
}

fn first_column(row: &[u8]) -> Outcome<String> {
    let length: [u8; 4] = row.get(2..6).ok_or("a row without columns")?.try_into()?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
    Ok(String::from_utf8(row.get(6..6 + length).ok_or("a short row")?.into())?)
}
