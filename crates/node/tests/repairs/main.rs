//! Repairs by a real host, with real functions.

#[path = "../common/mod.rs"]
mod common;
mod order;
mod rollback;

use common::{Fixture, until};
use millrace_node::{
    AmendPolicy, Code, Definition, Isolation, Level, Namespace,
    repairs::{self, Amendments, Ask, CodeRequest, Correction, NewCode, NotRun, Phase, Reported, Request, Waiting},
};
use std::{path::Path, sync::Arc};

fn without_sandbox() -> Arc<Isolation> {
    Arc::new(Isolation::at_most(Level::None, Path::new("")))
}

/// Does what repairs wait for in this process, in place of a host.
fn here(namespace: &Namespace) -> millrace_node::Result<()> {
    repairs::here(namespace, &without_sandbox(), &mut repairs::NoPeers, &mut |_, _, _, _| {})
}

fn open(fixture: &Fixture, log: &str, corrections: &[(u64, Option<&str>)]) -> u64 {
    let correction =
        |(seqno, value): &(u64, Option<&str>)| Correction { seqno: *seqno, value: value.map(|text| text.into()) };
    let corrections = corrections.iter().map(correction).collect();
    let request = Request {
        log: log.parse().unwrap(),
        corrections,
        reason: "a test".into(),
        accept_unknown: false,
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    number(Ask::Open(request).ask(&fixture.namespace).unwrap())
}

fn number(reported: Reported) -> u64 {
    match reported {
        Reported::Repair(repair) => repair.repair,
        other => panic!("{other:?} is no repair"),
    }
}

/// Waits until the host has done what a repair waits for.
fn done(fixture: &Fixture, repair: u64) -> Phase {
    until("the host has done its part", || !repairs::is_moving(&repairs::repair(&fixture.namespace, repair).unwrap()));
    repairs::repair(&fixture.namespace, repair).unwrap().phase
}

fn ask(fixture: &Fixture, ask: Ask) -> Phase {
    let repair = number(ask.ask(&fixture.namespace).unwrap());
    done(fixture, repair)
}

fn two_functions(fixture: &Fixture) {
    for log in ["raw", "mean", "alarms"] {
        fixture.log(log);
    }
    let mean = "before = ctx.get('raw', record.seqno - 1).data if record.seqno > 1 else record.data\n\
                ctx.append('mean', str((float(record.data) + float(before)) / 2))";
    fixture.python("mean", &["raw"], mean, |_| ());
    fixture.python("alarm", &["mean"], "if float(record.data) > 30: ctx.append('alarms', record.data)", |_| ());
}

#[test]
fn a_repair_replaces_what_depended_on_it_and_is_taken_back() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    let host = fixture.host();
    for value in ["20", "95", "22", "21", "20"] {
        fixture.append("raw", value);
    }
    fixture.idle();
    let before = [fixture.records("raw"), fixture.records("mean"), fixture.records("alarms")];
    assert_eq!(fixture.all("alarms"), ["57.5", "58.5"]);
    let repair = open(&fixture, "raw", &[(2, Some("21"))]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(fixture.records("mean"), before[1], "nobody sees anything of it yet");
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!(fixture.all("raw"), ["20", "21", "22", "21", "20"]);
    assert_eq!(fixture.all("mean"), ["20.0", "20.5", "21.5", "21.5", "20.5"]);
    let after = fixture.records("mean");
    assert_eq!((&after[0], &after[3..]), (&before[1][0], &before[1][3..]), "independent records stay what they were");
    assert_eq!((after[1].hlc, after[1].cause), (before[1][1].hlc, before[1][1].cause));
    // Two runs of `alarm` leave nothing any more.
    assert_eq!(fixture.namespace.latest("alarms").unwrap(), 0);
    assert_eq!(fixture.namespace.get("alarms", 1).unwrap_err().code(), Code::RecordVoid);
    assert_eq!(fixture.namespace.range("alarms", 1, 10, 1000).unwrap(), []);
    let counts = repairs::repair(&fixture.namespace, repair).unwrap().counts;
    assert_eq!((counts.replayed, counts.replaced, counts.void), (4, 3, 2));
    // Life goes on with what there is now.
    fixture.append("raw", "90");
    fixture.idle();
    assert_eq!(fixture.all("mean")[5], "55.0");
    let dead_letters: Vec<_> = fixture.namespace.range("alarms", 1, 10, 1000).unwrap();
    assert_eq!(dead_letters.iter().map(|record| record.seqno).collect::<Vec<_>>(), [3]);
    assert_eq!(ask(&fixture, Ask::Rollback(repair, String::new())), Phase::Applied);
    assert_eq!(fixture.records("mean")[..5], before[1][..]);
    assert_eq!(fixture.records("alarms")[..2], before[2][..]);
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().phase, Phase::RolledBack);
    drop(host);
}

#[test]
fn without_a_host_whoever_asks_does_it() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    let host = fixture.host();
    fixture.append("raw", "95");
    fixture.idle();
    drop(host);
    let repair = open(&fixture, "raw", &[(1, Some("10"))]);
    here(&fixture.namespace).unwrap();
    Ask::Apply(repair).ask(&fixture.namespace).unwrap();
    here(&fixture.namespace).unwrap();
    assert_eq!(fixture.all("mean"), ["10.0"]);
    assert_eq!(fixture.namespace.get("alarms", 1).unwrap_err().code(), Code::RecordVoid);
}

#[test]
fn a_run_that_has_used_an_old_value_and_is_not_published_is_run_again() {
    let fixture = Fixture::new();
    for log in ["in", "factor", "out"] {
        fixture.log(log);
    }
    let go = fixture.dir.path().join("go");
    let began = fixture.dir.path().join("began");
    let body = format!(
        "factor = float(ctx.get('factor', 1).data)\nopen({began:?}, 'a').write('x')\n\
         while not os.path.exists({go:?}): time.sleep(0.005)\n\
         ctx.append('out', str(factor * float(record.data)))"
    );
    fixture.python("scale", &["in"], &body, |_| ());
    let host = fixture.host();
    fixture.append("factor", "2");
    fixture.append("in", "10");
    until("it has read the factor", || began.exists());
    let repair = open(&fixture, "factor", &[(1, Some("3"))]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    std::fs::write(&go, "").unwrap();
    fixture.idle();
    assert_eq!(fixture.all("out"), ["30.0"], "one record, from the new factor");
    assert_eq!(std::fs::read(&began).unwrap().len(), 2, "it was run twice");
    drop(host);
}

#[test]
fn a_pending_run_of_a_record_that_was_taken_away_is_cancelled() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    fixture.append("raw", "20");
    fixture.append("raw", "40");
    let repair = open(&fixture, "raw", &[(2, None)]);
    here(&fixture.namespace).unwrap();
    Ask::Apply(repair).ask(&fixture.namespace).unwrap();
    here(&fixture.namespace).unwrap();
    let host = fixture.host();
    fixture.idle();
    assert_eq!(fixture.all("mean"), ["20.0"]);
    assert!(fixture.namespace.log("dead/mean").map_or(true, |log| log.latest() == 0), "it is no dead letter");
    drop(host);
}

#[test]
fn what_cannot_be_replayed_stops_the_repair_and_changes_nothing() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    let host = fixture.host();
    fixture.append("raw", "20");
    fixture.append("raw", "30");
    fixture.idle();
    // `alarm` would report a mean that it did not report.
    let repair = open(&fixture, "raw", &[(2, Some("90"))]);
    assert_eq!(done(&fixture, repair), Phase::Stopped);
    let stopped = repairs::repair(&fixture.namespace, repair).unwrap();
    assert_eq!(stopped.error.unwrap().0, Code::RepairGrows.id());
    let refused = |ask: Ask| ask.ask(&fixture.namespace).unwrap_err().code();
    assert_eq!(refused(Ask::Apply(repair)), Code::RepairPhase);
    let second = Request {
        log: "raw".parse().unwrap(),
        corrections: Vec::new(),
        reason: String::new(),
        accept_unknown: false,
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    assert_eq!(refused(Ask::Open(second)), Code::RepairOpen);
    assert_eq!(refused(Ask::Rollback(repair, String::new())), Code::RepairPhase, "it was never applied");
    assert_eq!(ask(&fixture, Ask::Abandon(repair)), Phase::Abandoned);
    assert_eq!(fixture.all("mean"), ["20.0", "25.0"]);
    assert_eq!(refused(Ask::Run(99)), Code::RepairNotFound);
    let equal = [Correction { seqno: 1, value: Some(b"20".to_vec()) }].to_vec();
    let nothing = Request {
        log: "raw".parse().unwrap(),
        corrections: equal,
        reason: String::new(),
        accept_unknown: false,
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    assert_eq!(refused(Ask::Open(nothing)), Code::CorrectionInvalid);
    drop(host);
}

/// Opens a repair that gives a function this body.
fn open_code(fixture: &Fixture, function: &str, body: &str, since: u64, append_new: bool) -> u64 {
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!("import json, os, time\ndef run(record, ctx):\n{body}");
    let source = fixture.source(&format!("new-{function}"), "handler.py", &text);
    let function = function.parse().unwrap();
    let code = NewCode {
        function,
        source,
        since,
        reason: "a test".into(),
        append_new,
        across: Vec::new(),
        run_external: Vec::new(),
        isolation: None,
    };
    number(Ask::Code(code).ask(&fixture.namespace).unwrap())
}

fn code_of(fixture: &Fixture, function: &str) -> String {
    let functions = fixture.namespace.functions().unwrap();
    let stat = functions.into_iter().find(|stat| &*stat.name == function).unwrap();
    stat.definition.unwrap().code.clone()
}

#[test]
fn past_runs_of_a_function_are_replayed_with_other_code_which_is_deployed() {
    let fixture = Fixture::new();
    for log in ["raw", "double", "sum"] {
        fixture.log(log);
    }
    fixture.python("double", &["raw"], "ctx.append('double', str(3 * int(record.data)))", |_| ());
    let sum = "before = int(ctx.get('sum', ctx.latest('sum')).data) if ctx.latest('sum') else 0\n\
               ctx.append('sum', str(before + int(record.data)))";
    fixture.python("sum", &["double"], sum, |_| ());
    let wrong = code_of(&fixture, "double");
    let host = fixture.host();
    for value in ["1", "2", "3"] {
        fixture.append("raw", value);
        fixture.idle();
    }
    let since = fixture.namespace.get("raw", 2).unwrap().id.sequence();
    assert_eq!(fixture.all("sum"), ["3", "9", "18"]);
    let before = fixture.records("sum");
    let repair = open_code(&fixture, "double", "ctx.append('double', str(2 * int(record.data)))", since, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(
        (fixture.all("sum"), code_of(&fixture, "double")),
        (["3", "9", "18"].map(String::from).to_vec(), wrong.clone())
    );
    // What ends meanwhile is replayed as well.
    fixture.append("raw", "4");
    fixture.idle();
    assert_eq!(fixture.all("sum")[3], "30");
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!(fixture.all("double"), ["3", "4", "6", "8"]);
    assert_eq!(fixture.all("sum"), ["3", "7", "13", "21"]);
    assert_eq!(fixture.records("sum")[0], before[0], "what ran before the event is what it was");
    assert_ne!(code_of(&fixture, "double"), wrong);
    fixture.append("raw", "5");
    fixture.idle();
    assert_eq!(fixture.all("sum")[4], "31");
    // A later correction has these runs replayed with the code that they have now.
    let second = open(&fixture, "raw", &[(1, Some("10")), (3, Some("30"))]);
    assert_eq!(done(&fixture, second), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(second)), Phase::Applied);
    assert_eq!(fixture.all("double"), ["30", "4", "60", "8", "10"]);
    assert_eq!(ask(&fixture, Ask::Rollback(second, String::new())), Phase::Applied);
    assert_eq!(ask(&fixture, Ask::Rollback(repair, String::new())), Phase::Applied);
    assert_eq!(fixture.all("double"), ["3", "6", "9", "12", "15"]);
    assert_eq!(fixture.all("sum"), ["3", "9", "18", "30", "45"]);
    assert_eq!(code_of(&fixture, "double"), wrong);
    drop(host);
}

#[test]
fn a_run_in_progress_of_a_function_that_gets_other_code_runs_again_with_that() {
    let fixture = Fixture::new();
    fixture.log("in");
    fixture.log("out");
    let (go, began) = (fixture.dir.path().join("go"), fixture.dir.path().join("began"));
    let body = format!(
        "open({began:?}, 'a').write('x')\nwhile not os.path.exists({go:?}): time.sleep(0.005)\nctx.append('out', b'old')"
    );
    fixture.python("f", &["in"], &body, |_| ());
    let host = fixture.host();
    fixture.append("in", "1");
    until("it has begun", || began.exists());
    let repair = open_code(&fixture, "f", "ctx.append('out', b'new')", 0, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    std::fs::write(&go, "").unwrap();
    fixture.idle();
    assert_eq!(fixture.all("out"), ["new"]);
    drop(host);
}

#[test]
fn records_without_a_place_are_appended_if_that_is_asked_for() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    fixture.log("seen");
    fixture.python("watch", &["alarms"], "ctx.append('seen', record.data)", |_| ());
    let host = fixture.host();
    for value in ["20", "30", "90"] {
        fixture.append("raw", value);
        fixture.idle();
    }
    assert_eq!((fixture.all("alarms"), fixture.all("seen")), (vec!["60.0".into()], vec!["60.0".to_string()]));
    let body = "ctx.append('alarms', record.data)";
    let repair = open_code(&fixture, "alarm", body, 0, false);
    assert_eq!(done(&fixture, repair), Phase::Stopped);
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().error.unwrap().0, Code::RepairGrows.id());
    assert_eq!(ask(&fixture, Ask::Abandon(repair)), Phase::Abandoned);
    let repair = open_code(&fixture, "alarm", body, 0, true);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(fixture.all("alarms"), ["60.0"]);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    fixture.idle();
    assert_eq!(fixture.all("alarms"), ["60.0", "20.0", "25.0"]);
    assert_eq!(fixture.all("seen"), ["60.0", "20.0", "25.0"], "what is bound to the log runs for them");
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().counts.appended, 2);
    // Whoever replays these runs once more finds the records where they are.
    let second = open(&fixture, "raw", &[(1, Some("22"))]);
    assert_eq!(done(&fixture, second), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(second)), Phase::Applied);
    assert_eq!(fixture.all("alarms"), ["60.0", "22.0", "26.0"]);
    assert_eq!(fixture.all("seen"), ["60.0", "22.0", "26.0"]);
    assert_eq!(ask(&fixture, Ask::Rollback(second, String::new())), Phase::Applied);
    assert_eq!(ask(&fixture, Ask::Rollback(repair, String::new())), Phase::Applied);
    fixture.idle();
    let left = |log: &str| {
        let records = fixture.namespace.range(log, 1, 10, 1000).unwrap();
        records.into_iter().map(|record| String::from_utf8(record.payload).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((left("alarms"), left("seen")), (vec!["60.0".into()], vec!["60.0".to_string()]));
    drop(host);
}

#[test]
fn new_code_that_fails_or_does_not_end_leaves_dead_letters_once_applied() {
    let fixture = Fixture::new();
    fixture.log("in");
    fixture.log("out");
    fixture.python("f", &["in"], "ctx.append('out', record.data)", |spec| {
        (spec.retries, spec.timeout) = (0, std::time::Duration::from_millis(500));
    });
    let host = fixture.host();
    for value in ["1", "2", "3"] {
        fixture.append("in", value);
    }
    fixture.idle();
    let body = "if record.data == b'1': raise ValueError('one')\n\
                while record.data == b'2': pass\n\
                ctx.append('out', b'new')";
    let repair = open_code(&fixture, "f", body, 0, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(fixture.namespace.latest("dead/f").unwrap(), 0, "nobody sees anything of it yet");
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    let records = fixture.namespace.range("out", 1, 10, 1000).unwrap();
    assert_eq!(records.iter().map(|record| (record.seqno, &*record.payload)).collect::<Vec<_>>(), [(3, &b"new"[..])]);
    let dead_letters = fixture.all("dead/f");
    assert!(dead_letters.len() == 2 && dead_letters[0].contains("ValueError: one"), "{dead_letters:?}");
    assert_eq!(ask(&fixture, Ask::Rollback(repair, String::new())), Phase::Applied);
    assert_eq!(fixture.all("out"), ["1", "2", "3"]);
    assert_eq!(fixture.namespace.latest("dead/f").unwrap(), 0);
    drop(host);
}

#[test]
fn code_that_somebody_else_deployed_meanwhile_stays() {
    let fixture = Fixture::new();
    fixture.log("in");
    fixture.log("out");
    fixture.python("f", &["in"], "ctx.append('out', b'old')", |_| ());
    let host = fixture.host();
    fixture.append("in", "1");
    fixture.idle();
    let repair = open_code(&fixture, "f", "ctx.append('out', b'new')", 0, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    fixture.python("f", &["in"], "ctx.append('out', b'third')", |_| ());
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Stopped);
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().error.unwrap().0, Code::RepairCodeChanged.id());
    assert_eq!(fixture.all("out"), ["old"]);
    assert_eq!(ask(&fixture, Ask::Abandon(repair)), Phase::Abandoned);
    // The same when it is taken back.
    let repair = open_code(&fixture, "f", "ctx.append('out', b'new')", 0, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    fixture.python("f", &["in"], "ctx.append('out', b'fourth')", |_| ());
    let refused = Ask::Rollback(repair, String::new()).ask(&fixture.namespace).unwrap_err();
    assert_eq!(refused.code(), Code::RepairCodeChanged);
    assert_eq!(fixture.all("out"), ["new"]);
    drop(host);
}

#[test]
fn what_is_deployed_while_new_code_is_checked_stays() {
    let fixture = Fixture::new();
    fixture.log("in");
    fixture.python("f", &["in"], "pass", |_| ());
    let catalog = fixture.namespace.journal().catalog().unwrap();
    let function = catalog.function("f").unwrap();
    let definition = Definition::from_attributes("f", function.attributes()).unwrap();
    let definition = Definition { code: "ab".repeat(32), ..definition };
    let revision = function.revision();
    fixture.python("f", &["in"], "pass", |spec| spec.retries = 7);
    let request = CodeRequest {
        definition,
        revision,
        since: 0,
        reason: "a test".into(),
        append_new: false,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    assert_eq!(repairs::open_code(&fixture.namespace, request).unwrap_err().code(), Code::RepairCodeChanged);
    assert_eq!(repairs::repairs(&fixture.namespace).unwrap(), []);
    assert!(fixture.namespace.journal().pins().unwrap().is_empty());
}

#[test]
fn code_that_is_gone_is_not_deployed_again() {
    let fixture = Fixture::new();
    fixture.log("in");
    fixture.log("out");
    fixture.python("f", &["in"], "ctx.append('out', b'old')", |_| ());
    let old = code_of(&fixture, "f");
    let host = fixture.host();
    let repair = open_code(&fixture, "f", "ctx.append('out', b'new')", 0, false);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    let new = code_of(&fixture, "f");
    std::fs::remove_dir_all(fixture.namespace.dir().join("functions").join(&old)).unwrap();
    let refused = Ask::Rollback(repair, String::new()).ask(&fixture.namespace).unwrap_err();
    assert_eq!(refused.code(), Code::CodeMissing);
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().phase, Phase::Applied);
    assert_eq!(repairs::repairs(&fixture.namespace).unwrap().len(), 1);
    fixture.append("in", "1");
    fixture.idle();
    assert_eq!((fixture.all("out"), code_of(&fixture, "f")), (vec!["new".to_owned()], new));
    drop(host);
}

#[test]
fn a_source_that_cannot_be_the_functions_code_is_refused() {
    let fixture = Fixture::new();
    fixture.log("in");
    fixture.python("f", &["in"], "pass", |_| ());
    let of = |file: &str, text: &str| {
        let (function, source) = ("f".parse().unwrap(), fixture.source("odd", file, text));
        let code = NewCode {
            function,
            source,
            since: 0,
            reason: String::new(),
            append_new: false,
            across: Vec::new(),
            run_external: Vec::new(),
            isolation: None,
        };
        Ask::Code(code).ask(&fixture.namespace).unwrap_err().code()
    };
    assert_eq!(of("other.py", "def run(record, ctx): pass"), Code::CorrectionInvalid);
    assert_ne!(of("handler.py", "def run(record ctx): pass"), Code::CorrectionInvalid);
    assert_eq!(repairs::repairs(&fixture.namespace).unwrap(), []);
}

#[test]
fn functions_that_do_not_leave_the_same_again_are_named() {
    let fixture = Fixture::new();
    for log in ["in", "out"] {
        fixture.log(log);
    }
    let same = "ctx.append('out', str(ctx.now()) + str(ctx.random(4)) + str(ctx.latest('out')))";
    fixture.python("same", &["in"], same, |_| ());
    fixture.python("odd", &["in"], "ctx.append('out', str(time.time_ns()))", |_| ());
    let host = fixture.host();
    for value in ["1", "2", "3"] {
        fixture.append("in", value);
    }
    fixture.idle();
    let before = fixture.records("out");
    let found = repairs::verify(&fixture.namespace, 2, None, &without_sandbox()).unwrap();
    let of = |function: &str| &found[&(function.to_owned(), None)];
    assert_eq!((of("same").runs, of("same").same, of("same").differs), (2, 2, None));
    assert_eq!((of("odd").runs, of("odd").same, of("odd").differs.is_some()), (2, 0, true));
    assert_eq!((fixture.records("out"), repairs::repairs(&fixture.namespace).unwrap()), (before, vec![]));
    drop(host);
}

#[test]
fn a_pending_run_has_the_repaired_record_also_when_its_log_has_left_it_behind() {
    let fixture = Fixture::new();
    fixture.namespace.create_log(&"in".parse().unwrap(), 2).unwrap();
    fixture.log("out");
    fixture.python("f", &["in"], "ctx.append('out', record.data)", |_| ());
    let apply = |fixture: &Fixture, corrections: &[(u64, Option<&str>)]| {
        let repair = open(fixture, "in", corrections);
        here(&fixture.namespace).unwrap();
        Ask::Apply(repair).ask(&fixture.namespace).unwrap();
        here(&fixture.namespace).unwrap();
    };
    fixture.append("in", "1");
    fixture.append("in", "2");
    apply(&fixture, &[(1, Some("10")), (2, None)]);
    for value in ["3", "4", "5"] {
        fixture.append("in", value);
    }
    assert_eq!(fixture.namespace.get("in", 1).unwrap_err().code(), Code::BelowHistory);
    let host = fixture.host();
    fixture.idle();
    assert_eq!(fixture.all("out"), ["10", "3", "4", "5"]);
    assert!(
        fixture.namespace.log("dead/f").map_or(true, |log| log.latest() == 0),
        "the run of the void record is cancelled"
    );
    drop(host);
}

fn amend(fixture: &Fixture, log: &str, corrections: &[(u64, Option<&str>)]) -> Result<Waiting, Code> {
    let correction =
        |(seqno, value): &(u64, Option<&str>)| Correction { seqno: *seqno, value: value.map(|text| text.into()) };
    let corrections = corrections.iter().map(correction).collect();
    let amendments = Amendments { log: log.parse().unwrap(), corrections };
    match Ask::Amend(amendments).ask(&fixture.namespace).map_err(|error| error.code())? {
        Reported::Amended(waiting) => Ok(waiting),
        other => panic!("{other:?} is no answer to an amendment"),
    }
}

fn amendable(fixture: &Fixture, log: &str, count: u64, age_ms: u64) {
    let policy = Some(AmendPolicy { count, age_ms });
    assert!(repairs::declare_amendable(&fixture.namespace, &log.parse().unwrap(), policy).unwrap());
}

/// Longer than any test takes.
const LONG_MS: u64 = 3_600_000;

#[test]
fn amendments_become_a_repair_once_there_are_enough() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    let host = fixture.host();
    for value in ["20", "20", "20", "20"] {
        fixture.append("raw", value);
    }
    fixture.idle();
    assert_eq!(amend(&fixture, "raw", &[(1, Some("30"))]), Err(Code::NotAmendable));
    amendable(&fixture, "raw", 4, LONG_MS);
    assert_eq!(amend(&fixture, "raw", &[(5, Some("30"))]), Err(Code::AboveTail));
    assert_eq!(amend(&fixture, "raw", &[]), Err(Code::CorrectionInvalid));
    let waiting = amend(&fixture, "raw", &[(2, Some("99")), (4, Some("24")), (2, Some("22"))]).unwrap();
    assert_eq!((waiting.waiting, waiting.count), (3, 4));
    let why = millrace_node::why(&fixture.namespace, "raw").unwrap();
    assert!(why.reasons.iter().any(|reason| reason.to_string().contains("3 of 4 amendments of log 'raw' wait")));
    assert_eq!(repairs::repairs(&fixture.namespace).unwrap(), []);
    // The fourth equals the record, and is one all the same.
    amend(&fixture, "raw", &[(3, Some("20"))]).unwrap();
    let applied = || repairs::repairs(&fixture.namespace).unwrap().iter().any(|repair| repair.phase == Phase::Applied);
    until("the host has applied it", applied);
    assert_eq!(fixture.all("raw"), ["20", "22", "20", "24"], "the newest of each record counts");
    assert_eq!(fixture.all("mean"), ["20.0", "21.0", "21.0", "22.0"]);
    let repair = repairs::repairs(&fixture.namespace).unwrap().remove(0);
    assert_eq!((repair.auto, repair.records, &*repair.reason), (true, 2, "4 amendments"));
    assert_eq!(repairs::amendments(&fixture.namespace).unwrap()[0].waiting, 0);
    // It is rolled back like any other.
    assert_eq!(ask(&fixture, Ask::Rollback(repair.repair, String::new())), Phase::Applied);
    assert_eq!(fixture.all("mean"), ["20.0", "20.0", "20.0", "20.0"]);
    drop(host);
}

#[test]
fn amendments_that_are_old_enough_become_a_repair_when_a_host_runs() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    let host = fixture.host();
    fixture.append("raw", "20");
    fixture.idle();
    drop(host);
    amendable(&fixture, "raw", 10, 1);
    amend(&fixture, "raw", &[(1, Some("28"))]).unwrap();
    assert_eq!(fixture.all("raw"), ["20"]);
    let host = fixture.host();
    until("the host has applied it", || fixture.all("mean") == ["28.0"]);
    drop(host);
}

#[test]
fn amendments_wait_for_the_end_of_a_repair_that_is_open() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    let host = fixture.host();
    for value in ["20", "20"] {
        fixture.append("raw", value);
    }
    fixture.idle();
    let repair = open(&fixture, "raw", &[(1, Some("10"))]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    amendable(&fixture, "raw", 1, LONG_MS);
    assert_eq!(amend(&fixture, "raw", &[(2, Some("26"))]).unwrap().waiting, 1);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    until("the amendment is applied as well", || fixture.all("mean") == ["10.0", "18.0"]);
    drop(host);
}

#[test]
fn amendments_of_what_has_left_the_history_are_dead_letters() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    for value in ["20", "21"] {
        fixture.append("raw", value);
    }
    amendable(&fixture, "raw", 2, LONG_MS);
    amend(&fixture, "raw", &[(1, Some("30"))]).unwrap();
    fixture.namespace.trim_log(&"raw".parse().unwrap(), 2, false).unwrap();
    assert_eq!(amend(&fixture, "raw", &[(1, Some("31"))]), Err(Code::CorrectionTooOld));
    amend(&fixture, "raw", &[(2, Some("31"))]).unwrap();
    let host = fixture.host();
    until("the other one is applied", || fixture.namespace.get("raw", 2).unwrap().payload == b"31");
    let dead_letters = fixture.all("dead/amend");
    assert!(
        dead_letters.len() == 1 && dead_letters[0].contains("MR7004") && dead_letters[0].contains("\"seqno\":1"),
        "{dead_letters:?}"
    );
    drop(host);
    // What waits when the log is no longer amendable is one as well.
    amend(&fixture, "raw", &[(2, None)]).unwrap();
    assert!(repairs::declare_amendable(&fixture.namespace, &"raw".parse().unwrap(), None).unwrap());
    assert_eq!(amend(&fixture, "raw", &[(2, None)]), Err(Code::NotAmendable));
    assert_eq!(fixture.all("dead/amend").len(), 2);
}

#[test]
fn an_amendment_that_is_too_long_for_a_dead_letter_is_cut_and_stops_no_other() {
    let fixture = Fixture::new();
    two_functions(&fixture);
    for value in ["20", "21"] {
        fixture.append("raw", value);
    }
    amendable(&fixture, "raw", 2, LONG_MS);
    // In JSON it is six times as long.
    let long = "\u{1}".repeat(fixture.namespace.journal().record_max_bytes() / 2);
    amend(&fixture, "raw", &[(1, Some(long.as_str()))]).unwrap();
    fixture.namespace.trim_log(&"raw".parse().unwrap(), 2, false).unwrap();
    amend(&fixture, "raw", &[(2, Some("31"))]).unwrap();
    let host = fixture.host();
    until("the other one is applied", || fixture.namespace.get("raw", 2).unwrap().payload == b"31");
    let dead_letters = fixture.all("dead/amend");
    assert!(dead_letters.len() == 1 && dead_letters[0].contains("\"cut\":true"), "{} letters", dead_letters.len());
    assert_eq!(repairs::repairs(&fixture.namespace).unwrap().len(), 1, "no repair was abandoned");
    drop(host);
}

#[test]
fn a_function_with_effects_outside_is_replayed_only_if_it_is_named() {
    let fixture = Fixture::new();
    for log in ["raw", "mean", "sent", "copy"] {
        fixture.log(log);
    }
    fixture.python("mean", &["raw"], "ctx.append('mean', str(2 * int(record.data)))", |_| ());
    let outside = fixture.dir.path().join("outside");
    let body = format!("open({outside:?}, 'a').write(str(int(record.data)) + ' ')\nctx.append('sent', record.data)");
    fixture.python("notify", &["mean"], &body, |spec| spec.network = true);
    fixture.python("copy", &["sent"], "ctx.append('copy', record.data)", |_| ());
    let effects = || std::fs::read_to_string(&outside).unwrap();
    let host = fixture.host();
    for value in ["1", "2", "3"] {
        fixture.append("raw", value);
        fixture.idle();
    }
    assert_eq!(effects(), "2 4 6 ");
    let repair = open(&fixture, "raw", &[(1, Some("5")), (2, None)]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    let told = repairs::repair(&fixture.namespace, repair).unwrap();
    assert_eq!(told.not_run, [NotRun { function: "notify".parse().unwrap(), runs: 1, unable: false, device: false }]);
    assert_eq!((told.counts.replayed, told.counts.cancelled), (1, 3), "a run without a record has nothing to keep");
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    let all = |log: &str| -> Vec<(u64, String)> {
        let records = fixture.namespace.range(log, 1, 10, 1000).unwrap();
        records.into_iter().map(|record| (record.seqno, String::from_utf8(record.payload).unwrap())).collect()
    };
    let of = |values: &[(u64, &str)]| values.iter().map(|(n, value)| (*n, (*value).to_owned())).collect::<Vec<_>>();
    assert_eq!(all("mean"), of(&[(1, "10"), (3, "6")]));
    for log in ["sent", "copy"] {
        assert_eq!(all(log), of(&[(1, "2"), (3, "6")]), "what it left stays, and so does what came of that");
    }
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().not_run, told.not_run);
    assert_eq!(ask(&fixture, Ask::Rollback(repair, String::new())), Phase::Applied);
    assert_eq!(all("sent"), of(&[(1, "2"), (2, "4"), (3, "6")]));
    assert_eq!(effects(), "2 4 6 ", "nothing was done twice");

    // Named, it is replayed like any other, and does again what it does.
    let request = |name: &str| {
        let corrections = [Correction { seqno: 1, value: Some(b"5".to_vec()) }].to_vec();
        Ask::Open(Request {
            log: "raw".parse().unwrap(),
            corrections,
            reason: String::new(),
            accept_unknown: false,
            append_new: false,
            across: Vec::new(),
            run_external: vec![name.parse().unwrap()],
        })
    };
    assert_eq!(request("none").ask(&fixture.namespace).unwrap_err().code(), Code::FunctionNotFound);
    let repair = number(request("notify").ask(&fixture.namespace).unwrap());
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().not_run, []);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!((all("copy")[0].clone(), effects()), ((1, "10".to_owned()), "2 4 6 10 ".to_owned()));
    drop(host);
}

#[test]
fn a_repair_of_records_that_have_left_their_log_says_what_can_still_be_corrected() {
    let fixture = Fixture::new();
    fixture.log("raw");
    for value in 1..=6 {
        fixture.append("raw", &value.to_string());
    }
    fixture.namespace.set_history(&"raw".parse().unwrap(), 3).unwrap();
    let refused = |seqnos: std::ops::RangeInclusive<u64>| {
        let corrections = seqnos.map(|seqno| Correction { seqno, value: Some(b"9".to_vec()) }).collect();
        let request = Request {
            log: "raw".parse().unwrap(),
            corrections,
            reason: String::new(),
            accept_unknown: false,
            append_new: false,
            across: Vec::new(),
            run_external: Vec::new(),
        };
        let error = Ask::Open(request).ask(&fixture.namespace).unwrap_err();
        assert_eq!(error.code(), Code::CorrectionTooOld);
        error.detail().to_owned()
    };
    let of = "log 'raw' no longer has";
    assert_eq!(
        refused(2..=5),
        format!(
            "{of} 2 records between 2 and 3; its oldest record is 4; 2 records between 4 and 5 can still be corrected"
        )
    );
    assert_eq!(refused(3..=3), format!("{of} record 3; its oldest record is 4; none of these corrections can be made"));
}
