//! Requests, and every right that each takes: without any one of them it is refused. Objects, tasks and repairs have tests of their own in
//! `crates/node/tests`, deployments and relays in `deploy.rs`.

use super::{Hub, strangers::Session};
use millrace_wire::{
    EventId, Hlc,
    protocol::{
        Append, AppendMany, CancelRun, CreateLog, Deliver, Failure, Frame, Get, InvokeFunction, Item, Latest, Link,
        Manage, Message, MirrorTopic, NewRecord, PublishTopic, Range, RemoveLog, SetLog, Show, Tail, UnmirrorTopic,
    },
};

const SHOUT: &str = "#!/bin/sh\nread -r record\nprintf 'loud\\t%s!\\n' \"$record\" >&3\n";

/// The code of the failure that the host answers, if it answers one.
fn failure(frame: &Frame<'_>) -> Option<String> {
    frame.message::<Failure<'_>>().ok().map(|failure| failure.code.to_owned())
}

type Ask = Box<dyn Fn(&mut Session) -> Option<String>>;

fn asks<M: Message + 'static>(message: M) -> Ask {
    Box::new(move |session| session.ask(&message, failure))
}

/// A request, and the rights that it takes.
fn requests(run: EventId) -> Vec<(&'static str, Vec<&'static str>, Ask)> {
    let append = |function| Append { log: "raw", data: b"x", function, ..Append::default() };
    let record = |log| NewRecord { log, data: b"x" };
    let item = || Item { log: "raw", data: b"x", id: EventId::NONE, hlc: Hlc::default(), function: None, void: false };
    let delivers: Ask = Box::new(move |session| {
        let link = Link { stream: "in", namespace: 7, epoch: 1, target: None, path: Vec::new() };
        if let Some(code) = session.ask(&link, failure) {
            return Some(code);
        }
        session.ask(&Deliver { link: session.request(), first: 1, gap: false, items: vec![item()] }, failure)
    });
    let manage = |json: &'static str| asks(Manage { json });
    vec![
        ("append", vec!["append=raw"], asks(append(None))),
        ("append for a function", vec!["append=raw", "run=function:shout"], asks(append(Some("shout")))),
        (
            "append many",
            vec!["append=raw", "append=other"],
            asks(AppendMany { records: vec![record("raw"), record("other")], ..AppendMany::default() }),
        ),
        ("get", vec!["read=raw"], asks(Get { log: "raw", seqno: 1, ..Get::default() })),
        ("range", vec!["read=raw"], asks(Range { log: "raw", from: 1, count: 1, ..Range::default() })),
        ("latest", vec!["read=raw"], asks(Latest { log: "raw", ..Latest::default() })),
        ("tail", vec!["read=raw"], asks(Tail { log: "raw", from: 1, credit: 1, ..Tail::default() })),
        ("create a log", vec!["create=new"], asks(CreateLog { log: "new", history: 7 })),
        ("a longer history", vec!["create=other"], asks(SetLog { log: "other", history: 20_000 })),
        ("a shorter history", vec!["create=other", "delete=other"], asks(SetLog { log: "other", history: 10 })),
        ("cancel a run", vec!["run=function:shout"], asks(CancelRun { run })),
        ("show the status", vec!["observe=namespace"], asks(Show { path: "status" })),
        ("deliver", vec!["link=namespace", "append=raw"], delivers),
        (
            "invoke",
            vec!["run=function:shout", "append=raw"],
            asks(InvokeFunction { function: "shout", data: b"x", ..InvokeFunction::default() }),
        ),
        (
            "publish",
            vec!["append=topics/news"],
            asks(PublishTopic { topic: "news", data: b"x", ..PublishTopic::default() }),
        ),
        (
            "publish later",
            vec!["append=topics/news"],
            asks(PublishTopic { topic: "news", data: b"x", durability: Some("local"), ..PublishTopic::default() }),
        ),
        (
            "mirror a topic",
            vec!["read=topics/news", "create=copy"],
            asks(MirrorTopic { topic: "news", log: "copy", history: None }),
        ),
        ("end a mirror", vec!["read=topics/news", "create=copy"], asks(UnmirrorTopic { topic: "news", log: "copy" })),
        ("trim", vec!["delete=raw"], manage(r#"{"do":"trim-log","log":"raw","before":1}"#)),
        (
            "backfill",
            vec!["run=function:shout", "read=other"],
            manage(r#"{"do":"backfill","function":"shout","log":"other"}"#),
        ),
        ("reset an outbox", vec!["admin=namespace"], manage(r#"{"do":"reset-outbox","peer":"x","skip":true}"#)),
        (
            "remove a function",
            vec!["bind=function:shout"],
            manage(r#"{"do":"remove-function","function":"shout","force":true}"#),
        ),
        ("remove a log", vec!["delete=other"], asks(RemoveLog { log: "other" })),
    ]
}

#[test]
fn a_request_is_refused_without_any_one_of_the_rights_that_it_takes() {
    let hub = Hub::new();
    hub.place.write("shout.sh", SHOUT);
    let deploy = "function deploy shout --runtime oneshot --code shout.sh --on raw --retries 0 -- ./shout.sh";
    hub.place.run(deploy.split(' ')).ok();
    hub.place.run(["log", "append", "raw", "x"]).ok();
    hub.place.run(["log", "append", "other", "x"]).ok();
    hub.place.idle();
    let run = hub.place.run(["--json", "run", "ls"]).ok().object();
    let run: EventId = run["id"].as_str().unwrap().parse().unwrap();
    for (at, (name, takes, ask)) in requests(run).into_iter().enumerate() {
        let answered = |file: String, may: &[&str]| {
            // A capability has some right, which is of no use here.
            let allowed: Vec<&str> =
                may.iter().chain(&["append=elsewhere"]).flat_map(|grant| ["--allow", grant]).collect();
            ask(&mut Session::open(&hub, &hub.issue(&file, &allowed)))
        };
        for (lacking, lacks) in takes.iter().enumerate() {
            let rest: Vec<&str> = takes.iter().copied().filter(|grant| grant != lacks).collect();
            let reported = answered(format!("{at}-{lacking}.cap"), &rest);
            assert_eq!(reported.as_deref(), Some("MR6132"), "{name}, without {lacks}");
        }
        // What else is wrong is another matter: that there is no cluster, or that the run has ended.
        let reported = answered(format!("{at}.cap"), &takes);
        assert!(
            !matches!(reported.as_deref(), Some("MR6131" | "MR6132")),
            "{name}, with all of its rights: {reported:?}"
        );
    }
}
