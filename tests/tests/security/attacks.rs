//! What must fail: each attack is made by hand, and something like it that is allowed succeeds beside it.

use super::Hub;
use millrace_security::token::Token;
use millrace_tests::{
    Host, Place, end, eventually,
    raw::{Client, framed, hello},
};
use millrace_wire::protocol::{Hello, Offer};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

/// An append of an edge with this capability instead of its own.
pub fn append_with(edge: &Place, hub: &Hub, capability: &str) -> millrace_tests::Ended {
    let namespace = format!("mr://{}/hub", hub.authority());
    let mut command = edge.command(["-n", &namespace, "log", "append", "raw", "x"]);
    command.env("MILLRACE_CAPABILITY", capability);
    end(command, b"")
}

/// What the host answers to an append over HTTPS by the bearer of this capability.
pub fn bearer(hub: &Hub, capability: &str) -> String {
    let header = format!("Authorization: Bearer {}", fs::read_to_string(capability).unwrap().trim());
    let url = format!("https://127.0.0.1:{}/v1/namespaces/hub/logs/raw/records", hub.port);
    let mut command = std::process::Command::new("curl");
    command.args(["-sk", "--max-time", "100", "-H", &header, "-d", "x", &url]);
    end(command, b"").text().to_owned()
}

pub fn changed(from: &str, to: &Path, change: impl Fn(Token) -> Vec<u8>) -> String {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    use std::os::unix::fs::OpenOptionsExt;
    let token: Token = fs::read_to_string(from).unwrap().trim().parse().unwrap();
    let text = format!("mr1_{}", BASE64_URL_SAFE_NO_PAD.encode(change(token)));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    to.display().to_string()
}

#[test]
fn the_audit_names_what_to_revoke_and_a_revoked_machine_is_not_invited() {
    let (hub, edge, late) = (Hub::new(), Place::empty(), Place::empty());
    edge.run(["join", &hub.invite("edge", &["--append", "raw"])]).ok();
    let told = hub.place.run(["cap", "audit"]).ok().text().to_owned();
    let id = |line: &str, what: &str| {
        let line = told.lines().find(|shown| shown.contains(line)).expect("the audit has it");
        let (_, id) = line.split_once(what).unwrap_or_else(|| panic!("{what:?} in {line}"));
        id[..16].to_owned()
    };
    let (machine, capability) = (id("cap.redeem", "machine "), id("cap.redeem", ", capability "));
    assert_eq!(id("cap.invite", "machine "), machine);
    assert_ne!(id("cap.invite", ", invitation "), capability);
    // One capability ends; the machine gets another one.
    let revoked = hub.place.run(["cap", "revoke", &capability]).ok();
    assert_eq!(revoked.text().trim(), format!("revoked {capability}"));
    edge.run(["-n", "hub", "log", "append", "raw", "x"]).fails("MR6131", 1);
    edge.run(["join", &hub.invite("edge", &["--append", "raw"])]).ok();
    edge.run(["-n", "hub", "log", "append", "raw", "x"]).ok();
    // All of the machine end, and an invitation of its name would permit nothing.
    let pending = hub.invite("edge", &["--append", "raw"]);
    hub.place.run(["cap", "revoke", &machine]).ok();
    edge.run(["-n", "hub", "log", "append", "raw", "x"]).fails("MR6131", 1);
    late.run(["join", &pending]).fails("MR6168", 1);
    hub.place.run(["invite", "edge", "--append", "raw"]).fails("MR6168", 1);
    hub.invite("edge-2", &["--append", "raw"]);
    let none = hub.place.run(["cap", "revoke", "0123456789abcdef"]).ok();
    assert!(none.text().contains("lists no capability with the id 0123456789abcdef"), "{none:?}");
}

#[test]
fn an_invitation_that_has_expired_says_so() {
    let (hub, edge) = (Hub::new(), Place::empty());
    // The capability that `join` gets does not expire, so the option is refused.
    hub.place.run(["invite", "edge", "--append", "raw", "--expires", "1h"]).fails("MR6136", 2);
    let line = hub.invite("edge", &["--append", "raw", "--valid", "1s"]);
    thread::sleep(Duration::from_millis(2100));
    edge.run(["join", &line]).fails("MR6168", 1);
}

#[test]
fn an_invitation_is_redeemed_once() {
    let (hub, edge, thief) = (Hub::new(), Place::empty(), Place::empty());
    let line = hub.invite("edge", &["--append", "raw"]);
    edge.run(["join", &line]).ok();
    thief.run(["join", &line]).fails("MR6168", 1);
    edge.run(["-n", "hub", "log", "append", "raw", "x"]).ok();
    // And it permits nothing but that.
    let other = hub.invite("other", &["--append", "raw"]);
    let token = other.parse::<millrace_security::token::Invitation>().unwrap().token;
    let file = edge.path().join("invitation.cap");
    edge.write("invitation.cap", &token.to_text());
    edge.run(["cap", "show", &file.display().to_string()]).ok();
    private(&file);
    append_with(&edge, &hub, &file.display().to_string()).fails("MR6132", 1);
}

pub fn private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_joined_capability_is_useless_without_the_key_of_its_user() {
    let (hub, edge, thief) = (Hub::new(), Place::empty(), Place::empty());
    edge.run(["join", &hub.invite("edge", &["--append", "raw"])]).ok();
    let peer = |place: &Place| place.path().join("state/millrace/peers").join(hub.authority()).join("hub");
    fs::create_dir_all(peer(&thief).parent().unwrap()).unwrap();
    fs::copy(peer(&edge), peer(&thief)).unwrap();
    let namespace = format!("mr://{}/hub", hub.authority());
    let append = ["-n", &namespace, "log", "append", "raw", "x"];
    thief.run(append).fails("MR6132", 1);
    edge.run(append).ok();
}

#[test]
fn capabilities_that_are_forged_cut_extended_foreign_expired_or_revoked_are_refused() {
    let (hub, edge, elsewhere) = (Hub::new(), Place::empty(), Hub::new());
    let issued = hub.issue("good.cap", &["--append", "raw"]);
    append_with(&edge, &hub, &issued).ok();
    assert!(bearer(&hub, &issued).contains("\"seqno\":2"));
    let to = |name: &str| edge.path().join(name);
    let flipped = |at: usize| {
        move |token: Token| {
            let mut bytes = token.to_bytes().to_vec();
            let at = if at == usize::MAX { bytes.len() - 1 } else { at };
            bytes[at] ^= 1;
            bytes
        }
    };
    // A byte of the signature, of the authority, of the generation.
    for (name, at, code) in
        [("signature", usize::MAX, "MR6139"), ("authority", 3, "MR6138"), ("generation", 9, "MR6138")]
    {
        let file = changed(&issued, &to(name), flipped(at));
        append_with(&edge, &hub, &file).fails(code, 1);
        assert!(bearer(&hub, &file).contains("MR6131"), "{name}");
    }
    // A block taken off the end: the rest was signed with what only the holder of the rest has.
    let narrow = to("narrow.cap").display().to_string();
    edge.run(["cap", "attenuate", &issued, "--read", "raw", "--out", &narrow]).ok();
    append_with(&edge, &hub, &narrow).fails("MR6132", 1);
    let cut = changed(&narrow, &to("cut"), |token| {
        let whole: Token = fs::read_to_string(&issued).unwrap().trim().parse().unwrap();
        let signature = &token.to_bytes()[token.body().len()..];
        [whole.body(), signature].concat()
    });
    append_with(&edge, &hub, &cut).fails("MR6139", 1);
    assert!(bearer(&hub, &cut).contains("MR6131"));
    // One with a block that nobody signed.
    let extended = changed(&issued, &to("extended"), |token| {
        let narrow: Token = fs::read_to_string(&narrow).unwrap().trim().parse().unwrap();
        let signature = &token.to_bytes()[token.body().len()..];
        [narrow.body(), signature].concat()
    });
    append_with(&edge, &hub, &extended).fails("MR6139", 1);
    assert!(bearer(&hub, &extended).contains("MR6131"));
    let foreign = elsewhere.issue("foreign.cap", &["--append", "raw"]);
    append_with(&edge, &hub, &foreign).fails("MR6138", 1);
    let early = hub.issue("early.cap", &["--append", "raw", "--after", "1h"]);
    append_with(&edge, &hub, &early).fails("MR6132", 1);
    let brief = hub.issue("brief.cap", &["--append", "raw", "--expires", "1s"]);
    eventually("it expires", || append_with(&edge, &hub, &brief).code != 0);
    append_with(&edge, &hub, &brief).fails("MR6132", 1);
    hub.place.run(["cap", "revoke", "--file", &issued]).ok();
    append_with(&edge, &hub, &issued).fails("MR6138", 1);
    let second = hub.issue("second.cap", &["--append", "raw"]);
    append_with(&edge, &hub, &second).ok();
    hub.place.run(["cap", "rotate", "--revoke-all"]).ok();
    append_with(&edge, &hub, &second).fails("MR6138", 1);
}

#[test]
fn nothing_is_sent_unencrypted_beyond_this_machine() {
    let hub = Hub::new();
    let stream = || TcpStream::connect(("127.0.0.1", hub.port.number)).unwrap();
    // TLS without a capability gets nowhere.
    let url = format!("https://127.0.0.1:{}/v1/namespaces/hub/logs", hub.port);
    let curl = |more: &[&str]| {
        let mut command = std::process::Command::new("curl");
        command.args(["-sk", "--max-time", "100"]).args(more).arg(&url);
        end(command, b"").text().to_owned()
    };
    let refused = curl(&[]);
    assert!(refused.contains("MR6131") && !refused.contains("raw"), "{refused}");
    let capability = hub.issue("reader.cap", &["--allow", "observe=log:raw"]);
    let bearer = format!("Authorization: Bearer {}", fs::read_to_string(capability).unwrap().trim());
    let reported = curl(&["-H", &bearer]);
    assert!(reported.contains("\"raw\"") && !reported.contains("\"other\""), "{reported}");
    // A capability is not good for another namespace's name, whether there is one or not.
    let url = url.replace("/hub/", "/none/");
    let mut command = std::process::Command::new("curl");
    command.args(["-sk", "--max-time", "100", "-H", &bearer, &url]);
    assert!(end(command, b"").text().contains("MR6131"));
    // Anyone who is not in the channel has nothing to say there.
    let mut channel = stream();
    channel.write_all(b"MR/P").unwrap();
    channel.write_all(&[0; 2]).unwrap();
    assert_eq!(channel.read(&mut [0; 64]).unwrap_or(0), 0, "it is closed");
}

#[test]
fn a_host_with_another_key_gets_no_request() {
    let (hub, edge) = (Hub::new(), Place::empty());
    edge.run(["join", &hub.invite("edge", &["--append", "raw"])]).ok();
    let namespace = format!("mr://{}/hub", hub.authority());
    // Another host takes the address over. It knows the name, and not the key.
    let (port, mut place) = (hub.port.number, Place::new());
    let Hub { host, port: reserved, place: _kept } = hub;
    drop(host);
    place.run(["log", "create", "raw"]).ok();
    let listen = format!("0.0.0.0:{port}");
    let other = millrace_tests::Host::start(place.command(["serve", "--listen", &listen, "--name", "hub"]));
    edge.run(["-n", &namespace, "log", "append", "raw", "secret"]).fails("MR6162", 1);
    assert!(place.records("raw").is_empty());
    drop(other);
    // Somebody who speaks no TLS is not taken for a host that needs none.
    place = Place::empty();
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let downgrade = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        first
    });
    edge.run(["-n", &namespace, "log", "append", "raw", "secret"]).fails("MR6161", 1);
    assert_eq!(downgrade.join().unwrap()[0], 0x16, "it began with TLS");
    drop((place, reserved));
}

#[test]
fn a_proof_of_another_connection_is_refused() {
    let hub = Hub::new();
    let token: Token = fs::read_to_string(hub.issue("any.cap", &["--append", "raw"])).unwrap().trim().parse().unwrap();
    // A proof that was bound to one connection, shown on another: without TLS there is nothing that it could be bound to.
    let proof = token.proof(&millrace_security::token::Binding::Challenge([7; 16]));
    let offer = Offer { capability: token.body(), proof: &proof };
    let mut client = Client::raw(hub.port.number);
    client.stream.write_all(&framed(1, &Hello { capabilities: vec![offer], ..hello() })).unwrap();
    assert_eq!(client.failure(), "MR6131");
    assert!(client.is_closed());
}

#[test]
fn callers_cannot_reach_the_keys_of_others() {
    let (hub, edge) = (Hub::new(), Place::empty());
    let namespace = format!("mr://{}/hub", hub.authority());
    let append = |capability: &str, data: &str| {
        let args = ["--json", "-n", &namespace, "log", "append", "raw", data, "--key", "k"];
        let mut command = edge.command(args);
        command.env("MILLRACE_CAPABILITY", capability);
        end(command, b"").ok().object()["seqno"].as_u64().unwrap()
    };
    let one = hub.issue("one.cap", &["--append", "raw"]);
    let two = hub.issue("two.cap", &["--append", "raw"]);
    assert_eq!((append(&one, "mine"), append(&one, "mine")), (1, 1));
    // With the key of the first, the second would learn that it was used, and could take it before.
    assert_eq!(append(&two, "other"), 2);
    let own = hub.place.run(["--json", "log", "append", "raw", "own", "--key", "k"]).ok().object();
    assert_eq!(own["seqno"], 3);
    assert_eq!(hub.place.records("raw"), ["mine", "other", "own"]);
}

#[test]
fn a_token_is_in_no_log_journal_or_backup() {
    let (hub, edge) = (Hub::new(), Place::empty());
    let file = hub.issue("one.cap", &["--append", "raw"]);
    append_with(&edge, &hub, &file).ok();
    hub.place.run(["namespace", "backup", "copy"]).ok();
    let token: Token = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    let bytes = token.to_bytes();
    let signature = &bytes[token.body().len()..];
    let mut looked_at = 0;
    let mut folders = vec![hub.place.namespace(), hub.place.path().join("copy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                assert!(!entry.path().starts_with(hub.place.path().join("copy")) || entry.file_name() != "secrets");
                folders.push(entry.path());
            } else if kind.is_file() {
                let content = fs::read(entry.path()).unwrap();
                assert!(!content.windows(32).any(|window| window == signature), "{:?}", entry.path());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 4);
}

#[test]
fn messages_that_lack_a_right_wait_and_do_not_become_dead_letters() {
    let (hub, edge) = (Hub::new(), Place::new());
    edge.run(["join", &hub.invite("edge", &["--append", "other"])]).ok();
    let lasting = hub.issue("lasting.cap", &["--allow", "link=namespace", "--append", "raw"]);
    let used = edge.path().join("used.cap").display().to_string();
    edge.run(["cap", "attenuate", &lasting, "--expires", "1s", "--out", &used]).ok();
    edge.run(["log", "create", "in"]).ok();
    edge.write("send.sh", &format!("#!/bin/sh\nread -r record\nprintf '{}\\t%s\\n' \"$record\" >&3\n", hub.log("raw")));
    let sends = hub.log("raw");
    let deploy =
        ["function", "deploy", "send", "--runtime", "oneshot", "--code", "send.sh", "--on", "in", "--sends", &sends];
    edge.run(deploy.iter().copied().chain(["--", "./send.sh"])).ok();
    let mut serve = edge.command(["serve"]);
    serve.env("MILLRACE_CAPABILITY", &used);
    let _host = Host::start(serve);
    let outbox = || edge.run(["outbox", "ls", "--json"]).ok().text().to_owned();
    eventually("the capability has expired", || {
        edge.run(["log", "append", "in", "x"]).ok();
        outbox().contains("MR613")
    });
    edge.idle();
    let logs = edge.run(["--json", "log", "ls"]).ok();
    assert!(!logs.text().contains("dead/outbox"), "{logs:?}");
    // One with the same beginning is of the same principal, so the stream goes on where it stood.
    fs::copy(&lasting, &used).unwrap();
    let appended = edge.records("in").len();
    eventually("every message is there, once", || hub.place.records("raw").len() == appended);
}
