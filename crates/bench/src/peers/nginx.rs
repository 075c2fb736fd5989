//! nginx, serving a file: an upper bound for an HTTP server.

use super::{Server, patiently};
use crate::Outcome;
use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

/// How to get it; for the note of a row that has to do without.
pub const INSTALL: &str = "nginx is not installed (apt-get install nginx-light) and was not measured.";

/// An nginx of our own on the loopback interface, with a file of 1 KiB.
pub struct Nginx {
    port: u16,
    dir: tempfile::TempDir,
    _server: Server,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Killed at once, it would leave its workers behind. What goes wrong here leaves scratch data and no more.
        let pid = fs::read_to_string(self.dir.path().join("pid")).unwrap_or_default();
        let _ = Command::new("kill").args(["-TERM", pid.trim()]).status();
        for _ in 0..100 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Nginx {
    pub fn start(dir: tempfile::TempDir) -> Outcome<Option<Self>> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let path = dir.path();
        fs::write(path.join("file"), [7; 1024])?;
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {};", path.join(kind).display()))
            .collect();
        // As the user who runs the bench, so that it may read the file.
        let config = format!(
            "daemon off; worker_processes 2; pid {0}/pid; error_log /dev/null; events {{ worker_connections 1024; }}\n\
             http {{ access_log off; keepalive_requests 1000000000; {temporary}\n\
             server {{ listen 127.0.0.1:{port}; root {0}; open_file_cache max=10; }} }}\n",
            path.display()
        );
        let user = if is_root()? { "user root;\n" } else { "" };
        fs::write(path.join("conf"), format!("{user}{config}"))?;
        let arguments = ["-p", &path.display().to_string(), "-c", &path.join("conf").display().to_string()];
        let arguments = arguments.map(str::to_owned);
        let program = if fs::exists("/usr/sbin/nginx")? { "/usr/sbin/nginx" } else { "nginx" };
        let Some(server) = Server::start(program, &arguments, path)? else { return Ok(None) };
        patiently(|| Ok(TcpStream::connect(("127.0.0.1", port))?))?;
        Ok(Some(Self { port, dir, _server: server }))
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/file", self.port)
    }
}

fn is_root() -> Outcome<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).ok_or("no Uid")?;
    Ok(line.split_whitespace().nth(1) == Some("0"))
}
