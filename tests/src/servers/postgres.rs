//! PostgreSQL.

use super::{ServerProcess, answers, program};
use crate::{Port, eventually};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

/// The password of its user `postgres`.
pub const PASSWORD: &str = "correct horse";

/// The beginning of a session of its protocol.
const STARTUP: &[u8] = b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0";

/// A PostgreSQL, which asks for a [`PASSWORD`].
pub struct PostgresServer {
    dir: tempfile::TempDir,
    /// Where it listens, on the loopback interface.
    pub port: Port,
    process: Option<ServerProcess>,
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
    /// Starts one in a fresh directory, with settings such as `fsync=off`.
    pub fn start(settings: &[&str]) -> Self {
        let mut server = Self {
            dir: tempfile::tempdir().expect("a directory"),
            port: Port::reserve(),
            process: None,
            user: other_user(),
            settings: Vec::new(),
        };
        server.give(server.dir.path());
        let password = server.write("password", PASSWORD);
        let mut init = server.command("initdb");
        init.args(["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "-N", "--pwfile"]);
        init.arg(password).arg("-D").arg(server.data());
        let made = init.output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.set(settings);
        server.live();
        server
    }

    /// Makes the server's user the owner of a file or directory.
    fn give(&self, path: &Path) {
        if let Some((uid, gid)) = self.user {
            chown(path, Some(uid), Some(gid)).expect("root may give files away");
        }
    }

    /// A file that only the server may read.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        self.give(&path);
        path
    }

    /// The settings with which it starts the next time.
    pub fn set(&mut self, settings: &[impl AsRef<str>]) {
        self.settings = settings.iter().map(|setting| setting.as_ref().to_owned()).collect();
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

    /// Starts it, or starts it again, and waits until it answers.
    pub fn live(&mut self) {
        eventually("PostgreSQL listens", || {
            if self.process.as_mut().is_none_or(ServerProcess::has_ended) {
                let mut command = self.command("postgres");
                command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
                let usual = [
                    "listen_addresses=127.0.0.1",
                    "unix_socket_directories=",
                    "shared_buffers=16MB",
                    "max_connections=20",
                ];
                for setting in usual.into_iter().chain(self.settings.iter().map(String::as_str)) {
                    command.args(["-c", setting]);
                }
                self.process = Some(ServerProcess::start(command));
            }
            // It asks for a password: it has recovered.
            answers(&self.port, STARTUP) == Some(b'R')
        });
    }

    /// Ends it at once, as a crash does: it recovers at the next start.
    pub fn die(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("-QUIT");
            process.wait();
        }
    }

    /// Its address, without the password.
    pub fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.die();
    }
}
