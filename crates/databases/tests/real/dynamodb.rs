//! The DynamoDB API, by moto: it checks conditions and limits, but no signatures, and keeps nothing when it is killed.

use crate::{
    cases::{self, Lab},
    servers::{Port, Running, answers, eventually},
};
use millrace_databases::{Engine, Options, Secret, engine};
use std::{path::Path, process::Command};

struct MotoLab {
    port: Port,
    running: Option<Running>,
}

impl Lab for MotoLab {
    fn engine(&self) -> Box<dyn Engine> {
        engine(&self.options().expect("an address")).expect("the address is valid")
    }

    fn options(&self) -> Option<Options> {
        let secret = Some(Secret::new("AKIDEXAMPLE:secret"));
        Some(Options {
            url: format!("dynamodb://127.0.0.1:{}/eu-central-1", self.port.number),
            secret,
            authorities: None,
        })
    }

    fn die(&mut self) {
        self.running = None;
    }

    fn live(&mut self) {
        let port = self.port.number;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/moto/bin/moto_server");
        assert!(program.exists(), "moto is not installed: run scripts/setup.sh test");
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        self.running = Some(Running::start(command));
        eventually("moto answers", || answers(port, b"GET /moto-api/ HTTP/1.0\r\n\r\n") == Some(b'H'));
    }

    fn refuse_poison(&mut self, _: &str) -> bool {
        false
    }

    fn cure(&mut self, _: &str) {}

    fn has_password(&self) -> bool {
        false
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn survives(&self) -> bool {
        false
    }
}

#[test]
fn dynamodb_conforms() {
    let mut lab = MotoLab { port: Port::reserve(), running: None };
    lab.live();
    cases::run(&mut lab);
}
