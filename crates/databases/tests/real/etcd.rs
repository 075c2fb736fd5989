//! etcd.

use crate::cases::{self, Lab, put, table, wait, write};
use millrace_databases::{Engine, Keys, Options, Secret, Target, Values, engine};
use millrace_tests::{
    Port, eventually,
    servers::{self, ServerProcess, answers},
};
use millrace_wire::Code;
use std::process::Command;

struct EtcdLab {
    dir: tempfile::TempDir,
    port: Port,
    peer: Port,
    running: Option<ServerProcess>,
}

impl EtcdLab {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut lab = Self { dir, port: Port::reserve(), peer: Port::reserve(), running: None };
        lab.live();
        lab
    }

    fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

impl Lab for EtcdLab {
    fn engine(&self) -> Box<dyn Engine> {
        engine(&self.options().expect("an address")).expect("the address is valid")
    }

    fn options(&self) -> Option<Options> {
        Some(Options { url: self.url(), secret: None, authorities: None })
    }

    fn die(&mut self) {
        self.running = None;
    }

    fn live(&mut self) {
        eventually("etcd has a leader", || {
            if self.running.as_mut().is_none_or(ServerProcess::has_ended) {
                let command = servers::etcd(&self.port, &self.peer, self.dir.path());
                self.running = Some(ServerProcess::start(command));
            }
            if answers(&self.port, b"GET /health HTTP/1.0\r\n\r\n") != Some(b'H') {
                return false;
            }
            let target = Target {
                stream: "alive".into(),
                owner: "test".into(),
                previous_owner: None,
                tables: vec![],
                accept_volatile: false,
                refuse_outside: false,
            };
            wait(self.engine().open(&target)).is_ok()
        });
    }

    fn refuse_poison(&mut self, _: &str) -> bool {
        false
    }

    fn cure(&mut self, _: &str) {}

    fn has_versions(&self) -> bool {
        false
    }
}

#[test]
fn etcd_conforms() {
    let mut lab = EtcdLab::start();
    cases::run(&mut lab);
    // With users: a wrong password is refused, and the right one works.
    let curl = |path: &str, body: &str| {
        let url = format!("http://127.0.0.1:{}{path}", lab.port);
        let done = Command::new("curl").args(["-sS", "-d", body, &url]).output().expect("curl runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    curl("/v3/auth/role/add", r#"{"name": "root"}"#);
    curl("/v3/auth/user/add", r#"{"name": "root", "password": "correct"}"#);
    curl("/v3/auth/user/grant", r#"{"user": "root", "role": "root"}"#);
    curl("/v3/auth/enable", "{}");
    let target = Target {
        stream: "users".into(),
        owner: "ours".into(),
        previous_owner: None,
        tables: vec![table("users", Keys::Text, Values::Text)],
        accept_volatile: false,
        refuse_outside: false,
    };
    for (secret, code) in
        [(None, Some(Code::DatabaseDenied)), (Some("hunter2"), Some(Code::DatabaseDenied)), (Some("correct"), None)]
    {
        let mut engine =
            engine(&Options { url: lab.url(), secret: secret.map(Secret::new), authorities: None }).unwrap();
        let opened = wait(engine.open(&target));
        assert_eq!(opened.as_ref().err().map(|error| error.code()), code, "{opened:?}");
        if opened.is_ok() {
            write(&mut *engine, 0, 1, vec![put("users", "a", "1", 1)]);
        }
    }
}
