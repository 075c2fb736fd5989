//! Redis, and Valkey where it is installed.

use crate::cases::{self, Lab, next, put, send, table, wait, write};
use millrace_databases::{
    Engine, Keys, Options, Secret, Target, Values, engine,
    writebehind::{Outcome, RefusalKind},
};
use millrace_tests::{
    Port, eventually,
    servers::{self, PASSWORD, ServerProcess, answers},
};
use millrace_wire::Code;
use std::{
    io::{Read, Write},
    net::TcpStream,
};

struct RedisLab {
    dir: tempfile::TempDir,
    port: Port,
    settings: Vec<String>,
    running: Option<ServerProcess>,
}

impl RedisLab {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut lab = Self { dir, port: Port::reserve(), settings: Vec::new(), running: None };
        lab.set(&["--appendonly yes --appendfsync always"]);
        lab
    }

    /// Starts it with these settings, and with what it had.
    fn set(&mut self, settings: &[&str]) {
        self.die();
        self.settings = settings.iter().flat_map(|setting| setting.split(' ')).map(str::to_owned).collect();
        self.live();
    }

    /// Asks it as any other program.
    fn ask(&self, command: &str) -> String {
        let mut line = TcpStream::connect(("127.0.0.1", self.port.number)).expect("it listens");
        let password = PASSWORD.replace(' ', "");
        line.write_all(format!("AUTH {password}\r\n{command}\r\nQUIT\r\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        line.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

impl Lab for RedisLab {
    fn engine(&self) -> Box<dyn Engine> {
        engine(&self.options().expect("an address")).expect("the address is valid")
    }

    fn options(&self) -> Option<Options> {
        let secret = Some(Secret::new(PASSWORD.replace(' ', "")));
        Some(Options { url: format!("redis://127.0.0.1:{}/3", self.port), secret, authorities: None })
    }

    fn die(&mut self) {
        self.running = None;
    }

    fn live(&mut self) {
        eventually("Redis answers", || {
            if self.running.as_mut().is_none_or(ServerProcess::has_ended) {
                let mut command = servers::redis(&self.port, self.dir.path());
                command.args(&self.settings).args(["--requirepass", &PASSWORD.replace(' ', "")]);
                self.running = Some(ServerProcess::start(command));
            }
            // Once it has read its file, it asks for the password.
            answers(&self.port, b"PING\r\n") == Some(b'-') && !self.ask("PING").contains("LOADING")
        });
    }

    fn refuse_poison(&mut self, _: &str) -> bool {
        false
    }

    fn cure(&mut self, _: &str) {}
}

#[test]
fn redis_conforms() {
    let mut lab = RedisLab::start();
    cases::run(&mut lab);
    let target = Target {
        stream: "r".into(),
        owner: "ours".into(),
        previous_owner: None,
        tables: vec![table("r", Keys::Text, Values::Text)],
        accept_volatile: false,
        refuse_outside: false,
    };
    let mut engine = lab.engine();
    wait(engine.open(&target)).unwrap();
    write(&mut *engine, 0, 1, vec![put("r", "alice", "seven", 1)]);
    let shown = lab.ask("SELECT 3\r\nGET r:alice");
    assert!(shown.contains("seven"), "others read the value under its name: {shown}");

    // Something else has the name of the keys: nothing is written, not even the rows before.
    lab.ask("SELECT 3\r\nRENAME millrace:keys:r aside\r\nSET millrace:keys:r x");
    send(&mut *engine, 1, 2, vec![put("r", "alice", "eight", 2)]);
    send(&mut *engine, 2, 3, vec![put("r", "alice", "nine", 3)]);
    let refused = next(&mut *engine);
    let is_schema = matches!(&refused, Outcome::Refused { refusal, .. } if refusal.kind == RefusalKind::Schema);
    assert!(is_schema, "{refused:?}");
    assert_eq!(next(&mut *engine), Outcome::Stale(3));
    assert!(lab.ask("SELECT 3\r\nGET r:alice").contains("seven"));
    lab.ask("SELECT 3\r\nRENAME aside millrace:keys:r");
    write(&mut *engine, 1, 2, vec![put("r", "alice", "eight", 2)]);

    // A server that has forgotten the script is opened again.
    lab.ask("SCRIPT FLUSH");
    send(&mut *engine, 2, 3, vec![put("r", "alice", "nine", 3)]);
    let lost = next(&mut *engine);
    assert!(matches!(&lost, Outcome::Lost(error) if error.code() == Code::DatabaseUnreachable), "{lost:?}");
    assert_eq!(wait(engine.open(&target)).unwrap().number, 2);

    for settings in ["--appendonly no", "--appendonly yes --appendfsync everysec"] {
        lab.set(&[settings]);
        let error = wait(lab.engine().open(&target)).unwrap_err();
        assert_eq!(error.code(), Code::DatabaseVolatile, "{error}");
        let volatile = Target { accept_volatile: true, ..target.clone() };
        assert!(!wait(lab.engine().open(&volatile)).unwrap().is_durable);
    }
}
