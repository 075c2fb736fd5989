//! A function reads, appends and sends what its definition grants, and is told the same of what is there and what is not.

mod common;

use common::{Fixture, LONG};
use millrace_journal::{Kind, ReadFrom, What};
use millrace_node::{Code, FunctionSpec, RunState, why};

/// Tries to read logs, and says what it was told.
const READS: &str = "told = [str(ctx.latest('in'))]\n\
    for log in ['secret', 'nowhere', '_keys', 'in']:\n    \
        try: told.append(ctx.get(log, 1).data.decode())\n    except Exception as error: told.append(error.code)\n    \
        try: told.append(str(ctx.latest(log)))\n    except Exception as error: told.append(error.code)\n\
    ctx.append('out', ' '.join(told))";
const TOLD: &str = "1 MR3130 MR3130 MR3130 MR3130 MR3130 MR3130 x 1";

fn fixture() -> Fixture {
    let f = Fixture::new();
    ["in", "out", "secret"].iter().for_each(|log| f.log(log));
    f.append("secret", "secret");
    f
}

fn only_in_and_out(spec: &mut FunctionSpec) {
    spec.rights.reads = Some(vec!["in".parse().unwrap()]);
    spec.rights.appends = Some(vec!["out".parse().unwrap()]);
    spec.retries = 0;
}

#[test]
fn a_read_that_is_not_granted_is_refused_and_noted_whether_or_not_the_log_is_there() {
    let f = fixture();
    f.python("f", &["in"], READS, only_in_and_out);
    let host = f.host();
    f.append("in", "x");
    f.idle();
    assert_eq!(f.all("out"), [TOLD]);
    let (mut scan, mut refused) = (f.namespace.journal().scan(Default::default()), Vec::new());
    while let Some(entry) = scan.next().unwrap() {
        assert_ne!(entry.kind, Kind::Call);
        refused.extend(entry.reads().filter_map(|row| match (row.log, row.what) {
            (ReadFrom::Name(name), What::Refused(code)) => Some((name.to_owned(), row.from, code)),
            _ => None,
        }));
    }
    let each = |log: &str| [(log.to_owned(), 1, 3130), (log.to_owned(), 0, 3130)];
    assert_eq!(refused, ["secret", "nowhere", "_keys"].map(each).concat());
    host.stop(LONG).unwrap();
}

#[test]
fn a_streamed_run_is_refused_the_same() {
    let f = fixture();
    f.python("f", &["in"], READS, |spec| {
        only_in_and_out(spec);
        spec.streamed = true;
    });
    f.python("g", &["in"], "ctx.append('secret', 'y')", |spec| {
        only_in_and_out(spec);
        spec.streamed = true;
    });
    let host = f.host();
    f.append("in", "x");
    f.idle();
    assert_eq!(f.all("out"), [TOLD]);
    assert_eq!(f.all("secret"), ["secret"], "it is not appended to");
    assert!(f.all("dead/g")[0].contains("MR3130"));
    host.stop(LONG).unwrap();
}

#[test]
fn what_is_not_granted_is_not_appended_nor_sent_and_the_refusal_ends_the_run() {
    let f = fixture();
    let (here, there) = ("mr://127.0.0.1:9/farm/x", "mr://127.0.0.1:9/farm/y");
    for (name, to) in [("a", "secret"), ("b", "nowhere"), ("c", there), ("d", here), ("e", "dead/e")] {
        f.python(name, &["in"], &format!("ctx.append('{to}', 'y'); ctx.append('out', '{name}')"), |spec| {
            only_in_and_out(spec);
            spec.rights.sends = vec![here.parse().unwrap()];
        });
    }
    let host = f.host();
    f.append("in", "x");
    f.idle();
    assert_eq!(f.all("out"), ["d"], "only what was granted is published");
    assert_eq!(f.all("secret"), ["secret"]);
    for (name, reported) in
        [("a", "append to log 'secret'"), ("b", "append to log 'nowhere'"), ("c", there), ("e", "log 'dead/e'")]
    {
        let dead_letters = f.all(&format!("dead/{name}"));
        assert!(
            dead_letters.len() == 1 && dead_letters[0].contains("MR3130") && dead_letters[0].contains(reported),
            "{name}: {dead_letters:?}"
        );
    }
    let dead = f.namespace.runs(&Default::default()).unwrap().into_iter().find(|run| run.state == RunState::Dead);
    let reasons = why(&f.namespace, &dead.unwrap().id.to_string()).unwrap().reasons;
    let reported = reasons[0].to_string();
    assert!(reported.contains(Code::RightMissing.id()) && reported.contains("may not"), "{reported}");
    host.stop(LONG).unwrap();
}

#[test]
fn what_an_attempt_was_told_is_told_again_though_the_right_is_gone() {
    let f = fixture();
    let go = f.dir.path().join("go");
    let body = format!(
        "first = ctx.get('secret', 1).data\nctx.append('out', first)\n\
         while ctx.attempt == 1 and not os.path.exists({go:?}): time.sleep(0.002)\nif ctx.attempt == 1: raise ValueError('again')"
    );
    let streamed = |spec: &mut FunctionSpec| spec.streamed = true;
    f.python("f", &["in"], &body, streamed);
    let host = f.host();
    f.append("in", "x");
    common::until("it has appended", || !f.all("out").is_empty());
    f.python("f", &["in"], &body, |spec| {
        streamed(spec);
        only_in_and_out(spec);
        spec.retries = 3;
    });
    std::fs::write(go, "").unwrap();
    f.idle();
    assert_eq!(f.all("out"), ["secret"]);
    assert_eq!(f.namespace.latest("dead/f").unwrap(), 0);
    host.stop(LONG).unwrap();
}

#[test]
fn a_module_and_a_process_without_a_sandbox_have_the_secrets_that_their_definitions_name() {
    let f = fixture();
    let secrets = millrace_node::secrets::FunctionSecrets::of(f.namespace.dir());
    secrets.set(&common::name("key"), b"value of the key").unwrap();
    let named = |spec: &mut FunctionSpec| spec.rights.secrets = vec![common::name("key")];
    let body = r#"
        char text[64];
        int64_t size = mr_secret("key", text, sizeof text);
        if (size != 16 || mr_secret("other", text + 16, 8) != MR_RIGHT_MISSING) return 1;
        mr_print("value of the key");
        return mr_append("out", text, 9);
    "#;
    f.wasm("a", &["in"], body, named);
    f.script("b", &["in"], "printf 'out\\t%s\\n' \"$(cut -c 1-9 \"$MILLRACE_SECRETS/key\")\" >&3", named);
    f.python("c", &["in"], "ctx.append('out', str('MILLRACE_SECRETS' in os.environ))", |_| ());
    let host = f.host();
    f.append("in", "x");
    f.idle();
    let mut out = f.all("out");
    out.sort();
    assert_eq!(out, ["False", "value of ", "value of "]);
    let runs = f.namespace.runs(&Default::default()).unwrap();
    let printed: Vec<String> = runs.into_iter().filter_map(|run| Some(run.ending?.output)).collect();
    assert!(printed.contains(&"***".to_owned()) && !printed.iter().any(|text| text.contains("value")), "{printed:?}");
    host.stop(LONG).unwrap();
}
