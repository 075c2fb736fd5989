//! Requests over the wire protocol, and the rights that each requires: without any one of them it is refused. The tests fail if a message,
//! a change or a request about repairs is in no table here. Requests over HTTP are in `routes.rs`.

use super::{Hub, strangers::Session};
use millrace_node::secrets::Authority;
use millrace_security::token::{Grant, Kind, Rights, Rules, Token, TokenId};
use millrace_tests::{
    Host, Place,
    raw::{Client, framed},
};
use millrace_wire::{
    EventId, Hlc,
    protocol::{
        self, Append, AppendMany, Attach, Call, Cancel, CancelRun, CreateGroup, CreateLog, CreateTopic, Credit,
        Deliver, Entries, Failure, FeedTopic, FollowTables, Frame, Get, GetTopic, GroupMessages, Hello, InvokeFunction,
        Item, JoinCluster, Latest, LatestTopic, LeadGroup, Link, LoadTable, Manage, Message, MirrorTopic, NewRecord,
        Ping, Pong, PreferSite, Present, PublishTopic, Range, RangeTopic, Redeem, RemoveGroup, RemoveHost, RemoveLog,
        RemoveTopic, Repair, SetLog, SetVoters, Show, SubscribeTopic, Table, Tail, UnfeedTopic, UnmirrorTopic,
        UnsubscribeTopic, Upload,
    },
};
use std::collections::BTreeSet;

const SHOUT: &str = "#!/bin/sh\nread -r record\nprintf 'loud\\t%s!\\n' \"$record\" >&3\n";
/// A right that no request here requires.
const ELSEWHERE: &str = "append=elsewhere";
/// Messages that require no right of their own, and why.
const FREE: &[(u8, &str)] = &[
    (Hello::TYPE, "greets; a second one is unknown"),
    (Ping::TYPE, "requests nothing"),
    (Pong::TYPE, "requests nothing"),
    (Present::TYPE, "shows another capability, and its proof"),
    (Credit::TYPE, "of a tail of the same connection, whose every step is checked"),
    (Cancel::TYPE, "of a request of the same connection"),
    (Attach::TYPE, "of a device: the right to append to its logs, see tests/tests/devices"),
    (Entries::TYPE, "of a device that is attached over the same connection"),
    (Upload::TYPE, "of a deployment that was announced with all of its rights over the same connection"),
];
/// Messages that no grant permits: those for holders of an invitation, and those for hosts of the cluster.
const NOBODYS: &[u8] = &[Redeem::TYPE, GroupMessages::TYPE, JoinCluster::TYPE];

/// Whether this code means that the caller lacks a right.
pub fn is_denied(code: Option<&str>) -> bool {
    matches!(code, Some("MR6131" | "MR6132" | "MR6170"))
}

/// The code of the host's answer, if it is a failure.
fn failure(frame: &Frame<'_>) -> Option<String> {
    frame.message::<Failure<'_>>().ok().map(|failure| failure.code.to_owned())
}

type Ask = Box<dyn Fn(&mut Session) -> Option<String>>;

/// A request: its messages, and the rights that it requires.
struct Request {
    name: String,
    kinds: Vec<u8>,
    takes: Vec<&'static str>,
    ask: Ask,
}

fn of<M: Message + 'static>(name: &str, takes: &[&'static str], message: M) -> Request {
    let ask = move |session: &mut Session| session.ask(&message, failure);
    Request { name: name.to_owned(), kinds: vec![M::TYPE], takes: takes.to_vec(), ask: Box::new(ask) }
}

/// A request that follows another one, which may be refused as well.
fn after<A: Message + 'static, B: Message + 'static>(name: &str, takes: &[&'static str], one: A, two: B) -> Request {
    let ask = move |session: &mut Session| session.ask(&one, failure).or_else(|| session.ask(&two, failure));
    Request { name: name.to_owned(), kinds: vec![A::TYPE, B::TYPE], takes: takes.to_vec(), ask: Box::new(ask) }
}

fn manage(takes: &[&'static str], json: &'static str) -> Request {
    of(json, takes, Manage { json })
}

fn repair(takes: &[&'static str], json: &'static str) -> Request {
    of(json, takes, Repair { json })
}

fn show(takes: &[&'static str], path: &'static str) -> Request {
    of(&format!("show {path}"), takes, Show { path })
}

fn records() -> Vec<Request> {
    let append = |function| Append { log: "raw", data: b"x", function, ..Append::default() };
    let record = |log| NewRecord { log, data: b"x" };
    let item = || Item { log: "raw", data: b"x", id: EventId::NONE, hlc: Hlc::default(), function: None, void: false };
    let delivers: Ask = Box::new(move |session| {
        let link = Link { stream: "in", namespace: 7, epoch: 1, ..Link::default() };
        if let Some(code) = session.ask(&link, failure) {
            return Some(code);
        }
        session.ask(&Deliver { link: session.request(), first: 1, gap: false, items: vec![item()] }, failure)
    });
    vec![
        of("append", &["append=raw"], append(None)),
        of("append for a function", &["append=raw", "run=function:shout"], append(Some("shout"))),
        of(
            "append many",
            &["append=raw", "append=other"],
            AppendMany { records: vec![record("raw"), record("other")], ..AppendMany::default() },
        ),
        of("get", &["read=raw"], Get { log: "raw", seqno: 1, ..Get::default() }),
        of("wait for a record", &["read=raw"], Get { log: "raw", seqno: 9999, wait_ms: 1, ..Get::default() }),
        of("range", &["read=raw"], Range { log: "raw", from: 1, count: 1, ..Range::default() }),
        of("latest", &["read=raw"], Latest { log: "raw", ..Latest::default() }),
        of("wait for the newest", &["read=raw"], Latest { log: "raw", above: 9999, wait_ms: 1, ..Latest::default() }),
        of("read a key", &["read=raw"], Table { table: "raw", request: b"\0\x01\0k", ..Table::default() }),
        of(
            "put a key",
            &["append=raw"],
            Table {
                table: "raw",
                request: b"\x01\x01\0k\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\x001",
                ..Table::default()
            },
        ),
        of(
            "put a key that has a version",
            &["append=raw", "read=raw"],
            Table { table: "raw", request: b"\x01\x01\0k\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x001", ..Table::default() },
        ),
        of(
            "add to a key",
            &["append=raw", "read=raw"],
            Table { table: "raw", request: b"\x03\x01\0k\x01\0\0\0\0\0\0\0", ..Table::default() },
        ),
        of(
            "read a key with a token",
            &["read=raw"],
            Table { table: "raw", request: b"\0\x01\0k", after: EventId::from_bits(1 << 90), ..Table::default() },
        ),
        of(
            "follow tables",
            &["read=raw", "read=other"],
            FollowTables { tables: vec!["raw", "other"], after: EventId::NONE, wait_ms: 0 },
        ),
        of("load a table", &["read=raw"], LoadTable { table: "raw", at: EventId::NONE, above: 0 }),
        of("tail", &["read=raw"], Tail { log: "raw", from: 1, credit: 1, ..Tail::default() }),
        of("create a log", &["create=new"], CreateLog { log: "new", history: 7 }),
        of("a longer history", &["create=other"], SetLog { log: "other", history: 20_000 }),
        of("a shorter history", &["create=other", "delete=other"], SetLog { log: "other", history: 10 }),
        Request {
            name: "deliver".into(),
            kinds: vec![Link::TYPE, Deliver::TYPE],
            takes: vec!["link=namespace", "append=raw"],
            ask: delivers,
        },
        of(
            "open a stream to a log",
            &["link=namespace", "append=raw"],
            Link { stream: "to", namespace: 7, epoch: 1, target: Some("raw"), ..Link::default() },
        ),
        of(
            "invoke",
            &["run=function:shout", "append=raw"],
            InvokeFunction { function: "shout", data: b"x", ..InvokeFunction::default() },
        ),
        of("remove a log", &["delete=gone"], RemoveLog { log: "gone" }),
        of(
            "publish later",
            &["append=topics/news"],
            PublishTopic { topic: "news", data: b"x", durability: Some("local"), ..PublishTopic::default() },
        ),
        of("mirror", &["read=topics/news", "create=copy"], MirrorTopic { topic: "news", log: "copy", history: None }),
        of("unmirror", &["read=topics/news", "create=copy"], UnmirrorTopic { topic: "news", log: "copy" }),
    ]
}

fn objects() -> Vec<Request> {
    const SESSION: [u8; 16] = [3; 16];
    const EMPTY: [u8; 1] = [0x90];
    let opens = || protocol::Session { session: &SESSION, application: "", lease_ms: 1000, resume: false };
    let call = |call, method| Call {
        session: &SESSION,
        call,
        kind: "Counter",
        key: "hits",
        method,
        arguments: &EMPTY,
        new: &EMPTY,
        ..Call::default()
    };
    let name = "object:Counter/hits";
    let takes = |rights: &[&str]| {
        let grants = rights.iter().map(|right| -> &'static str { format!("{right}={name}").leak() });
        grants.collect::<Vec<_>>()
    };
    let every = ["read=object:/", "call=object:/", "create=object:/", "run=function:pool-p"];
    let (bodies, tasks) = (false, Vec::new());
    vec![
        of("open a session", &takes(&["read"]), opens()),
        // The first one is refused without the right to create the object, so the object does not exist yet.
        after("read an object", &takes(&["read", "create"]), opens(), call(1, "total")),
        after("delete an object", &takes(&["delete", "read"]), opens(), call(2, "delete")),
        after("change an object", &takes(&["call", "create"]), opens(), call(3, "clear")),
        after("delete it again", &takes(&["delete", "call"]), opens(), call(4, "delete")),
        of("submit tasks", &every, protocol::Invoke { pool: "p", bodies, tasks, key: "k" }),
        of("cancel a task", &["run=function:pool-p"], protocol::Revoke { pool: "p", task: 1 }),
    ]
}

fn topics() -> Vec<Request> {
    let (read, admin) = (&["read=topics/news"], &["admin=namespace"]);
    let (topic, function, log) = ("news", "shout", "raw");
    let both = &["run=function:shout", "read=topics/news"];
    let feeds = &["read=raw", "append=topics/news"];
    vec![
        of(
            "create a topic",
            &["create=topics/news"],
            CreateTopic { topic, history: 9, group: Some("other"), ..CreateTopic::default() },
        ),
        of("remove a topic", &["delete=topics/gone"], RemoveTopic { topic: "gone", waiting: false }),
        of("discard what waits", &["delete=topics/gone"], RemoveTopic { topic: "gone", waiting: true }),
        of("publish", &["append=topics/news"], PublishTopic { topic, data: b"x", ..PublishTopic::default() }),
        of("get of a topic", read, GetTopic { topic, index: 0 }),
        of("range of a topic", read, RangeTopic { topic, from: 1, count: 1 }),
        of("latest of a topic", read, LatestTopic { topic, above: 0, wait_ms: 0 }),
        of("subscribe", both, SubscribeTopic { topic, function }),
        of("unsubscribe", both, UnsubscribeTopic { topic, function }),
        of("feed", feeds, FeedTopic { topic, log }),
        of("unfeed", feeds, UnfeedTopic { topic, log }),
        of("lead", admin, LeadGroup { host: 1, group: None }),
        of("prefer a site", admin, PreferSite { site: "lab", group: None }),
        of("set voters", admin, SetVoters { voters: 3, group: None }),
        of("create a group", admin, CreateGroup { group: "farm", hosts: Vec::new(), voters: 1 }),
        of("remove a group", admin, RemoveGroup { group: "farm" }),
        of("remove a host", admin, RemoveHost { host: 1, lose: Vec::new() }),
    ]
}

/// Requests about repairs; repair 1 is one of the log `fixed`.
fn repairs() -> Vec<Request> {
    let fixed = &["repair=fixed"];
    vec![
        repair(&["repair=raw"], r#"{"do":"open","log":"raw","corrections":[{"seqno":99999,"data":"y"}]}"#),
        repair(
            &["repair=raw", "run=function:shout"],
            r#"{"do":"open","log":"raw","corrections":[{"seqno":99999,"data":"y"}],"run_external":["shout"]}"#,
        ),
        repair(
            &["repair=raw", "observe=namespace"],
            r#"{"do":"plan","log":"raw","corrections":[{"seqno":99999,"data":"y"}]}"#,
        ),
        repair(&["observe=namespace"], r#"{"do":"cancel-plan","plan":99}"#),
        repair(&["append=raw"], r#"{"do":"amend","log":"raw","corrections":[{"seqno":1,"data":"y"}]}"#),
        repair(
            &["append=raw", "delete=raw"],
            r#"{"do":"amend","log":"raw","corrections":[{"seqno":1,"data":"y"},{"seqno":1,"void":true}]}"#,
        ),
        repair(
            &["repair=namespace"],
            r#"{"do":"part","part_of":{"namespace":"0000000000aa","repair":1},"ask":{"step":"replay"}}"#,
        ),
        repair(
            &["repair=namespace", "run=function:shout"],
            r#"{"do":"part","part_of":{"namespace":"0000000000aa","repair":1},
                "ask":{"step":"join","reason":"","append_new":false,"undo":7,"with":[],"run_external":["shout"]}}"#,
        ),
        repair(fixed, r#"{"do":"run","repair":1}"#),
        repair(fixed, r#"{"do":"apply","repair":1}"#),
        repair(fixed, r#"{"do":"rollback","repair":1}"#),
        repair(fixed, r#"{"do":"gc","repair":1}"#),
        repair(fixed, r#"{"do":"abandon","repair":1}"#),
    ]
}

fn changes(run: EventId) -> Vec<Request> {
    let retry: &'static str = format!(r#"{{"do":"retry","run":"{run}"}}"#).leak();
    let begin: &'static str =
        format!(r#"{{"do":"begin-update","device":"kitchen","size":1,"sha256":"{:064}","version":"2"}}"#, 0).leak();
    let relays = r#"{"do":"add-relay","from":"raw","to":"copy"}"#;
    let up = r#"{"do":"up","file":"millrace.toml","origin":"/x/millrace.toml","text":"[logs.made]\n","functions":{}}"#;
    let down = concat!(
        r#"{"do":"down","file":"millrace.toml","origin":"/x/millrace.toml","text":"[functions.gone]\n"#,
        r#"runtime = \"oneshot\"\ncode = \"f\"\ncommand = [\"./f\"]\n","functions":{}}"#,
    );
    vec![
        of("cancel a run", &["run=function:shout"], CancelRun { run }),
        manage(&["run=function:shout"], retry),
        manage(&["run=function:shout"], r#"{"do":"retry-function","function":"shout"}"#),
        manage(&["run=function:shout"], r#"{"do":"backfill","function":"shout"}"#),
        manage(&["run=function:shout", "read=other"], r#"{"do":"backfill","function":"shout","log":"other"}"#),
        manage(&["delete=raw"], r#"{"do":"trim-log","log":"raw","before":1}"#),
        manage(&["read=raw", "append=copy", "bind=copy"], relays),
        manage(&["read=raw", "append=copy", "bind=copy"], r#"{"do":"resume-relay","name":"raw","skip":true}"#),
        manage(
            &["read=raw", "append=copy", "bind=copy"],
            r#"{"do":"set-relay","name":"raw","to":"mr://far.example/x"}"#,
        ),
        manage(&["read=raw", "append=copy", "bind=copy"], r#"{"do":"remove-relay","name":"raw","force":true}"#),
        manage(&["admin=namespace"], r#"{"do":"reset-outbox","peer":"x","skip":true}"#),
        manage(&["admin=namespace"], r#"{"do":"set-outbox","peer":"x","to":"mr://far.example/x"}"#),
        manage(&["admin=namespace"], r#"{"do":"retry-outbox","peer":"x"}"#),
        manage(&["admin=namespace"], r#"{"do":"remove-peer","peer":"x","force":true}"#),
        manage(&["admin=namespace"], r#"{"do":"rotate-cluster-secret"}"#),
        manage(&["create=table"], r#"{"do":"create-table","table":"table"}"#),
        manage(&["admin=namespace"], r#"{"do":"mirror-table","table":"copy","from":"mr://127.0.0.1:1/x/t"}"#),
        manage(&["admin=namespace"], r#"{"do":"unmirror-table","table":"copy"}"#),
        manage(&["admin=namespace"], r#"{"do":"set-database","database":"main","url":"postgresql://127.0.0.1:1/x"}"#),
        manage(&["admin=namespace"], r#"{"do":"resume-database","database":"main"}"#),
        manage(&["admin=namespace"], r#"{"do":"resync-database","database":"main"}"#),
        manage(&["read=namespace"], r#"{"do":"externalize"}"#),
        manage(&["create=raw"], r#"{"do":"set-time","log":"raw","time":"/t"}"#),
        manage(&["append=kitchen/config"], r#"{"do":"send-command","device":"kitchen","log":"config","data":"x"}"#),
        manage(&["append=kitchen/config"], r#"{"do":"append-on-device","device":"kitchen","log":"config","data":"x"}"#),
        manage(&["append=kitchen/firmware"], begin),
        manage(
            &["append=kitchen/firmware"],
            r#"{"do":"add-firmware","device":"kitchen","update":1,"offset":0,"base64":"eA=="}"#,
        ),
        manage(&["create=made"], up),
        manage(&["bind=function:gone"], down),
        manage(&["bind=function:shout"], r#"{"do":"remove-function","function":"shout","force":true}"#),
    ]
}

fn documents(run: EventId) -> Vec<Request> {
    let (observe, read) = (&["observe=namespace"], &["read=namespace"]);
    let of_run: &'static str = format!("runs/{run}").leak();
    let of_output: &'static str = format!("runs/{run}/output").leak();
    vec![
        show(observe, ""),
        show(observe, "status"),
        show(&["append=raw"], "logs/raw"),
        show(observe, "functions"),
        show(&["observe=function:shout"], "functions/shout"),
        show(observe, "runs"),
        show(&["observe=function:shout"], "runs?function=shout"),
        show(&["observe=function:shout"], of_run),
        show(read, "runs/latest"),
        show(&["observe=function:shout"], of_output),
        show(observe, "failures"),
        show(&["observe=function:shout"], "failures?function=shout"),
        show(observe, "tasks"),
        show(&["read=kitchen/raw"], "devices/kitchen/live/raw"),
        show(observe, "databases"),
        show(observe, "why"),
        show(observe, "why/shout"),
        show(observe, "links"),
        show(observe, "objects"),
        show(observe, "objects/Counter%2Fhits"),
        show(observe, "cluster"),
        show(observe, "cluster/groups"),
        show(observe, "topics"),
        show(observe, "repairs"),
        show(observe, "repairs/1"),
        show(read, "repairs/1/diff"),
        show(&["repair=namespace"], "repairs/1/sent"),
        show(observe, "mirrors"),
        show(read, "journal"),
    ]
}

/// All requests; those that remove objects which others need come last.
fn requests(run: EventId) -> Vec<Request> {
    [records(), objects(), topics(), repairs(), documents(run), changes(run)].into_iter().flatten().collect()
}

/// A hub with a function that has failed on a record, a relay and a repair that is open; and the id of the run.
pub fn prepared(hub: &Hub) -> EventId {
    hub.place.write("shout.sh", SHOUT);
    for log in ["gone", "fixed", "copy"] {
        hub.place.run(["log", "create", log]).ok();
    }
    let deploy = "function deploy shout --runtime oneshot --code shout.sh --on raw --retries 0 -- ./shout.sh";
    hub.place.run(deploy.split(' ')).ok();
    for log in ["raw", "other", "fixed"] {
        hub.place.run(["log", "append", log, "x"]).ok();
    }
    hub.place.idle();
    let opened = hub.place.feed(["repair", "run", "fixed", "--values", "-"], br#"{"seqno":1,"value":"y"}"#);
    assert_eq!(opened.code, 0, "{opened:?}");
    let run = hub.place.run(["--json", "run", "ls"]).ok().object();
    run["id"].as_str().unwrap().parse().unwrap()
}

/// A capability of the hub with these grants, by its issuer.
pub fn issued(place: &Place, grants: &[&str]) -> Token {
    let authority = Authority::ensure(&place.namespace()).unwrap();
    let rules = Rules {
        grants: grants.iter().map(|text| grant(text)).collect(),
        ids: vec![TokenId([grants.len() as u8; 8])],
        ..Rules::default()
    };
    authority.issue(&rules).unwrap()
}

/// The same capability, which has expired.
pub fn expired(token: &Token) -> Token {
    token.attenuate(&Rules { not_after: Some(1), ..Rules::default() }).unwrap()
}

/// A grant in the syntax of commands: `read,append=raw`, `run=function:shout`, `admin=namespace`; a trailing slash means all of the kind.
fn grant(text: &str) -> Grant {
    let (rights, on) = text.split_once('=').unwrap();
    let rights: Rights = rights.split(',').map(|right| right.parse().unwrap()).collect();
    let (kind, name) = match on.split_once(':') {
        _ if on == "namespace" => return Grant::namespace(rights),
        Some((kind, name)) => (Kind::ALL.into_iter().find(|known| known.name() == kind).unwrap(), name),
        None => (Kind::Log, on),
    };
    let subtree = name.ends_with('/');
    Grant { kind, name: name.trim_end_matches('/').as_bytes().into(), subtree, rights }
}

/// Every right on everything.
pub fn everything(place: &Place) -> Token {
    issued(place, &["read,append,create,delete,bind,run,call,observe,repair,link,admin,grant=namespace"])
}

/// The hub and another namespace of the same host.
pub fn hub_and_shop() -> (Hub, Place) {
    let (mut hub, shop) = (Hub::new(), Place::new());
    hub.host = None;
    let (listen, of) = (format!("0.0.0.0:{}", hub.port), |name: &str, place: &Place| {
        format!("{name}={}", place.namespace().display())
    });
    let serve = ["serve", &of("hub", &hub.place), &of("shop", &shop), "--listen", &listen];
    hub.host = Some(Host::start(hub.place.command(serve)));
    (hub, shop)
}

#[test]
fn a_request_is_refused_without_any_one_of_the_rights_that_it_takes() {
    let hub = Hub::new();
    let run = prepared(&hub);
    for Request { name, takes, ask, .. } in requests(run) {
        let answered = |may: &[&str]| {
            // A capability needs at least one right; this one is not required by the request.
            let token = issued(&hub.place, &[may, &[ELSEWHERE][..]].concat());
            ask(&mut Session::with(&hub, &token, "").unwrap())
        };
        for lacks in &takes {
            let rest: Vec<&str> = takes.iter().copied().filter(|grant| grant != lacks).collect();
            let reported = answered(&rest);
            assert!(is_denied(reported.as_deref()), "{name}, without {lacks}: {reported:?}");
        }
        // Other failures are expected: there may be no cluster, or the run may have ended.
        let reported = answered(&takes);
        assert!(!is_denied(reported.as_deref()), "{name}, with all of its rights: {reported:?}");
    }
}

#[test]
fn no_request_is_answered_without_a_capability_that_is_valid_for_the_namespace_now() {
    let (hub, shop) = hub_and_shop();
    let run = prepared(&hub);
    let every = everything(&hub.place);
    // The host sends WELCOME, because the clock of a host may be wrong, and refuses every request.
    let mut late = Session::with(&hub, &expired(&every), "hub").unwrap();
    let file =
        hub.issue("revoked.cap", &["--allow", "read,append,create,delete,bind,run,call,observe,admin=namespace"]);
    let mut revoked = Session::open(&hub, &file);
    hub.place.run(["cap", "revoke", "--file", &file]).ok();
    for Request { name, ask, .. } in requests(run) {
        for (why, session) in [("expired", &mut late), ("revoked", &mut revoked)] {
            let reported = ask(session);
            assert!(is_denied(reported.as_deref()), "{name}, {why}: {reported:?}");
        }
    }
    for message in NOBODYS {
        let ask = |session: &mut Session| match *message {
            Redeem::TYPE => session.ask(&Redeem {}, failure),
            GroupMessages::TYPE => session.ask(&GroupMessages { messages: Vec::new() }, failure),
            _ => session.ask(&JoinCluster { host: 7, address: "a:1", name: "n", site: "s" }, failure),
        };
        for token in [&every, &expired(&every)] {
            let reported = ask(&mut Session::with(&hub, token, "hub").unwrap());
            assert!(is_denied(reported.as_deref()), "message {message}: {reported:?}");
        }
    }
    // A capability of one namespace neither opens another one of the same host nor fills a slot there.
    let of_shop = everything(&shop);
    Session::with(&hub, &of_shop, "shop").unwrap();
    for name in ["hub", "none"] {
        assert_eq!(Session::with(&hub, &of_shop, name).err().as_deref(), Some("MR6131"), "{name}");
    }
    let mut own = Session::with(&hub, &every, "hub").unwrap();
    for slot in [0, 1, 15] {
        assert_eq!(own.present(&of_shop, slot).as_deref(), Some("MR6131"));
    }
    assert_eq!(own.ask(&Get { log: "raw", seqno: 1, ..Get::default() }, failure), None, "it has what it had");
}

/// A frame of this type without content, as request 2.
fn empty(kind: u8) -> Vec<u8> {
    let mut bytes = framed(2, &Ping {});
    // The type follows the length and the marker of the array; from 128 on it takes one byte more.
    assert_eq!((bytes[4], bytes[5]), (0x95, Ping::TYPE));
    bytes.splice(5..6, if kind < 128 { vec![kind] } else { vec![0xcc, kind] });
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[test]
fn every_message_that_a_host_takes_is_in_a_table_of_rights() {
    use std::io::Write;
    let hub = Hub::new();
    let (port, run) = (hub.port.number, EventId::NONE);
    let in_tables: BTreeSet<u8> = requests(run).iter().flat_map(|request| request.kinds.clone()).collect();
    let free: BTreeSet<u8> = FREE.iter().map(|(kind, _)| *kind).collect();
    for kind in 0..=u8::MAX {
        // The owner may send everything, so the answer shows whether a message exists.
        let mut client = Client::connect(port);
        // A message without an answer is followed by a PING, which has one.
        client.stream.write_all(&[empty(kind), framed(3, &Ping {})].concat()).unwrap();
        let unknown = client.next(|frame| failure(frame).as_deref() == Some("MR6004"));
        let is_listed = in_tables.contains(&kind) || free.contains(&kind) || NOBODYS.contains(&kind);
        let is_known = is_listed && kind != Hello::TYPE;
        assert_eq!(unknown, !is_known, "message {kind} is in no table of rights, or is in one and unknown");
        // Before HELLO, the host answers no other message.
        let mut client = Client::raw(port);
        client.stream.write_all(&empty(kind)).unwrap();
        assert!(matches!(&*client.failure(), "MR6005" | "MR6003" | "MR6006"), "message {kind} before the greeting");
        assert!(client.is_closed());
    }
}

#[test]
fn every_change_and_every_question_about_repairs_is_in_a_table_of_rights() {
    let hub = Hub::new();
    let mut owner = Client::connect(hub.port.number);
    let mut known = |frame: Vec<u8>| {
        use std::io::Write;
        owner.stream.write_all(&frame).unwrap();
        let detail = owner.next(|frame| frame.message::<Failure<'_>>().unwrap().detail.to_owned());
        // The error of the parser lists the known names.
        let list = detail.split_once("expected one of").unwrap_or_else(|| panic!("{detail}")).1;
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let json = r#"{"do":"?"}"#;
    let (orders, asks) = (known(framed(2, &Manage { json })), known(framed(3, &Repair { json })));
    let listed = |requests: Vec<Request>| {
        let order =
            |name: &str| serde_json::from_str::<serde_json::Value>(name).ok()?["do"].as_str().map(str::to_owned);
        requests.iter().filter_map(|request| order(&request.name)).collect::<BTreeSet<_>>()
    };
    assert_eq!(orders, listed(changes(EventId::NONE)));
    assert_eq!(asks, listed(repairs()));
}

#[test]
fn a_repair_that_a_caller_may_not_change_is_not_told_of() {
    let hub = Hub::new();
    prepared(&hub);
    let reported = |may: &[&str], number: u64| {
        let json = format!(r#"{{"do":"apply","repair":{number}}}"#);
        let mut session = Session::with(&hub, &issued(&hub.place, may), "").unwrap();
        session.ask(&Repair { json: &json }, |frame| {
            let failure: Failure<'_> = frame.message().unwrap();
            (failure.code.to_owned(), failure.detail.to_owned())
        })
    };
    let (there, none) = (reported(&["repair=raw"], 1), reported(&["repair=raw"], 99));
    assert_eq!(there, none);
    assert!(there.0 == "MR6132" && !there.1.contains("fixed"), "{there:?}");
    // Callers that may read the log learn which right they lack; callers that may repair everything learn whether the repair exists.
    assert!(reported(&["read=fixed"], 1).1.contains("repair on log 'fixed'"));
    assert_eq!(reported(&["repair=namespace"], 99).0, "MR7007");
}
