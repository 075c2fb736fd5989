//! The fake.

use crate::cases::{self, Lab};
use millrace_databases::{
    Engine, Options,
    fake::Server,
    writebehind::{Limits, Refusal, RefusalKind},
};

pub const LIMITS: Limits = Limits { rows: 2000, bytes: 1 << 20, key: 1024, value: 512 << 10, in_flight: 4 };

struct FakeLab(Server);

impl Lab for FakeLab {
    fn engine(&self) -> Box<dyn Engine> {
        self.0.engine()
    }

    fn options(&self) -> Option<Options> {
        None
    }

    fn die(&mut self) {
        self.0.kill();
    }

    fn live(&mut self) {
        self.0.start();
    }

    fn refuse_poison(&mut self, _: &str) -> bool {
        self.0.refuse(|row| {
            let is_poison = row.value().is_some_and(|value| value.starts_with(b"\"poison"));
            let refusal = || Refusal { kind: RefusalKind::Data, code: "23514".into(), detail: "no poison".into() };
            is_poison.then(refusal)
        });
        true
    }

    fn cure(&mut self, _: &str) {
        self.0.accept();
    }
}

#[test]
fn the_fake_conforms() {
    cases::run(&mut FakeLab(Server::new(LIMITS)));
}
