//! Methods of shared objects, in every runtime that has them: what they may ask for, and their results.

mod common;

use common::{c_to_wasm, limits, worker, worker_of};
use millrace_runtime::{
    Asked, Code, EventId, ObjectCalls, Rest, Result, StepCalls, StepWork, Stepper, WasmEngine, WasmExecutor, Watch,
};
use std::time::Instant;
use tempfile::TempDir;

/// Has fields and one class, and answers calls with themselves.
#[derive(Default)]
struct Object(Vec<String>);

impl ObjectCalls for Object {
    fn call(&mut self, call: &[u8]) -> Asked {
        self.0.push("call".into());
        Asked::Now(Ok(call.to_vec()))
    }
}

impl StepCalls for Object {
    fn fields(&mut self) -> Result<Vec<u8>> {
        self.0.push("fields".into());
        Ok(b"fields".to_vec())
    }

    fn class(&mut self, number: u64) -> Result<Vec<u8>> {
        self.0.push(format!("class {number}"));
        Err(Code::ClassMissing.error("no class"))
    }
}

struct Patient;

impl Watch for Patient {
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    fn wake(&mut self) -> Rest {
        Rest::Run
    }
}

fn step(stepper: &mut dyn Stepper) -> (Result<Vec<u8>>, Vec<String>) {
    let mut object = Object::default();
    let work = StepWork { pool: "farm", id: EventId::from_bits(common::RUN), request: b"request" };
    (stepper.step(&work, &mut object, &mut Patient), object.0)
}

#[test]
fn a_worker_asks_for_its_object_and_returns_a_result() {
    let body = "\
        assert (work_kind, log, payload) == (2, b'farm', b'request')\n\
        os.write(3, packed(27))\n\
        assert answer() == (0, b'fields')\n\
        frame(28, 0, b'', struct.pack('<Q', 5))\n\
        code, _ = answer()\n\
        frame(25, 0, b'', b'called')\n\
        frame(19, 0, b'', b'%d %s' % (code, answer()[1]))";
    let (mut executor, _dir) = worker(body, limits());
    for _ in 0..2 {
        let (result, asked) = step(&mut executor);
        let expected = format!("{} called", &Code::ClassMissing.id()[2..]);
        assert_eq!(result.map(|result| String::from_utf8(result).unwrap()), Ok(expected));
        assert_eq!(asked, ["fields", "class 5", "call"]);
    }
}

#[test]
fn a_method_reaches_no_log_and_has_a_result() {
    for (body, code) in [
        ("frame(18, 0, b'out', b'')\nframe(19, 0, b'', b'result')", Code::RightMissing),
        ("frame(19)", Code::WorkerProtocol),
        ("frame(19, 0, b'MR3109', b'why')", Code::FunctionFailed),
        ("os.write(3, get(b'in', 1))\nframe(19, 0, b'MR%d' % answer()[0], b'')", Code::RightMissing),
    ] {
        let error = step(&mut worker(body, limits()).0).0.unwrap_err();
        assert!(
            error.code() == code || code == Code::RightMissing && error.code() == Code::FunctionFailed,
            "{body}: {error}"
        );
    }
    let runs_only = worker_of(&common::hello(4, 1), "pass", limits());
    let error = step(&mut { runs_only }.0).0.unwrap_err();
    assert!(error.detail().contains("runs no methods"), "{error}");
}

#[test]
fn a_module_reads_its_fields_and_returns_a_result() {
    let dir = TempDir::new().unwrap();
    let module = |name: &str, body: &str| {
        let source = format!(
            "#include \"millrace.h\"\n\
             MR_IMPORT_(fields) int64_t mr_host_fields_(void *, size_t);\n\
             MR_IMPORT_(class_body) int64_t mr_host_class_(int64_t, void *, size_t);\n\
             int handle(const mr_record *record) {{ {body} }}"
        );
        let module = c_to_wasm(dir.path(), name, &source);
        let engine = WasmEngine::new().unwrap();
        WasmExecutor::new(engine.load(&module, &dir.path().join("cache"), "handle").unwrap(), limits())
    };
    let body = "unsigned char fields[16]; int64_t n = mr_host_fields_(fields, 16);\n\
                if (n < 0 || record->size != 7 || mr_host_class_(5, 0, 0) >= 0) return 1;\n\
                return mr_result(MR_BYTES, fields, (size_t)n);";
    let mut executor = module("step", body);
    let (result, asked) = step(&mut executor);
    assert_eq!((result, asked), (Ok(b"fields".to_vec()), vec!["fields".to_owned(), "class 5".to_owned()]));
    let (code, detail) = common::failure(&mut executor, b"request");
    assert!(code == Code::FunctionFailed, "it is no run: {detail}");
    let mut older = module("older", "return mr_append(\"_step/result\", record->data, record->size);");
    assert_eq!(step(&mut older).0.unwrap_err().code(), Code::WorkerTooOld);
}
