//! The DynamoDB API, by moto: it checks conditions and limits, but no signatures, and keeps nothing when it is killed.

use crate::cases::{self, Lab};
use millrace_databases::{Engine, Options, Secret, engine};
use millrace_tests::{
    Port, eventually,
    servers::{ServerProcess, answers, moto},
};

struct MotoLab {
    port: Port,
    running: Option<ServerProcess>,
}

impl Lab for MotoLab {
    fn engine(&self) -> Box<dyn Engine> {
        engine(&self.options().expect("an address")).expect("the address is valid")
    }

    fn options(&self) -> Option<Options> {
        let secret = Some(Secret::new("AKIDEXAMPLE:secret"));
        Some(Options { url: format!("dynamodb://127.0.0.1:{}/eu-central-1", self.port), secret, authorities: None })
    }

    fn die(&mut self) {
        self.running = None;
    }

    fn live(&mut self) {
        self.running = Some(ServerProcess::start(moto(&self.port)));
        eventually("moto answers", || answers(&self.port, b"GET /moto-api/ HTTP/1.0\r\n\r\n") == Some(b'H'));
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
