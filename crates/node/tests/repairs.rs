//! Repairs by a real host, with real functions.

mod common;

use common::{Fixture, until};
use millrace_node::{
    Code,
    repairs::{self, Ask, Correction, Phase, Request},
};

fn open(fixture: &Fixture, log: &str, corrections: &[(u64, Option<&str>)]) -> u64 {
    let correction =
        |(seqno, value): &(u64, Option<&str>)| Correction { seqno: *seqno, value: value.map(|text| text.into()) };
    let corrections = corrections.iter().map(correction).collect();
    let request = Request { log: log.parse().unwrap(), corrections, reason: "a test".into(), accept_unknown: false };
    Ask::Open(request).ask(&fixture.namespace).unwrap().repair
}

/// Waits until the host has done what a repair waits for.
fn done(fixture: &Fixture, repair: u64) -> Phase {
    until("the host has done its part", || !repairs::is_moving(&repairs::repair(&fixture.namespace, repair).unwrap()));
    repairs::repair(&fixture.namespace, repair).unwrap().phase
}

fn ask(fixture: &Fixture, ask: Ask) -> Phase {
    let repair = ask.ask(&fixture.namespace).unwrap().repair;
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
    let letters: Vec<_> = fixture.namespace.range("alarms", 1, 10, 1000).unwrap();
    assert_eq!(letters.iter().map(|record| record.seqno).collect::<Vec<_>>(), [3]);
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
    repairs::here(&fixture.namespace, &mut |_, _, _, _| {}).unwrap();
    Ask::Apply(repair).ask(&fixture.namespace).unwrap();
    repairs::here(&fixture.namespace, &mut |_, _, _, _| {}).unwrap();
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
    repairs::here(&fixture.namespace, &mut |_, _, _, _| {}).unwrap();
    Ask::Apply(repair).ask(&fixture.namespace).unwrap();
    repairs::here(&fixture.namespace, &mut |_, _, _, _| {}).unwrap();
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
    let second =
        Request { log: "raw".parse().unwrap(), corrections: Vec::new(), reason: String::new(), accept_unknown: false };
    assert_eq!(refused(Ask::Open(second)), Code::RepairOpen);
    assert_eq!(ask(&fixture, Ask::Abandon(repair)), Phase::Abandoned);
    assert_eq!(fixture.all("mean"), ["20.0", "25.0"]);
    assert_eq!(refused(Ask::Run(99)), Code::RepairNotFound);
    let equal = [Correction { seqno: 1, value: Some(b"20".to_vec()) }].to_vec();
    let nothing =
        Request { log: "raw".parse().unwrap(), corrections: equal, reason: String::new(), accept_unknown: false };
    assert_eq!(refused(Ask::Open(nothing)), Code::CorrectionInvalid);
    drop(host);
}
