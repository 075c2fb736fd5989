//! Every attack fails, and succeeds once the defence against it is taken out: so each defence is one, and each attack is made well.

use super::{
    Hub,
    attacks::{append_with, bearer, changed, private},
    deploy,
    neighbours::{self, Theirs, is_root},
    strangers, tls, web,
};
use millrace_security::token::{Invitation, Token};
use millrace_tests::{
    Host, Place, Port, end, eventually,
    raw::{framed, hello},
};
use millrace_wire::{
    Defence,
    protocol::{Hello, Offer, PREFACE},
};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, UdpSocket},
    process::{Command, Stdio},
    thread,
};

/// Whether an attack gets through where this defence is out; `None` if this machine does not let it be made.
type Attack = fn(Option<Defence>) -> Option<bool>;

fn attack(on: Defence) -> Attack {
    match on {
        Defence::Proof => |without| Some(forged(without)? && replayed(without)?),
        Defence::Grants => not_granted,
        Defence::Time => not_yet,
        Defence::PeerKey => stolen,
        Defence::Once => invitation,
        Defence::Revocation => revoked,
        Defence::Pin => false_host,
        Defence::Handshake => host_without_key,
        Defence::HostUser => squatter,
        Defence::LoopbackUser => neighbour,
        Defence::Function => function,
        Defence::Clear => in_clear,
        Defence::HostName => rebinding,
        Defence::Origin => |without| {
            let (asked, opened) = (web_page(without)?, opened(without)?);
            // With the defence, neither; without it, both.
            assert_eq!(asked, opened);
            Some(asked)
        },
        Defence::OwnKeys => foreign_key,
        Defence::SecretFiles => open_file,
        Defence::OwnStreams => strangers::foreign_stream,
        Defence::Existence => |without| {
            let (logs, namespaces) = (strangers::told_of_logs(without)?, strangers::told_of_namespaces(without)?);
            // With the defence, neither; without it, both.
            assert_eq!(logs, namespaces);
            Some(logs)
        },
        Defence::Unknown => strangers::flood,
        Defence::SameConnection => reused_port,
        Defence::OwnFiles => {
            |without| is_root().then(|| neighbours::applies_what_it_finds(&weakened(Place::empty(), without)))
        }
        Defence::Programs => deploy::foreign_program,
        Defence::ClusterSecret => old_secret,
        Defence::PageKey => another_program,
        Defence::HostFiles => deploy::file_of_the_host,
        Defence::MqttTopics => strangers::foreign_topic,
        Defence::PlainMqtt => strangers::capability_in_clear,
    }
}

#[test]
fn every_attack_fails_and_succeeds_without_its_defence() {
    let mut made = 0;
    for defence in Defence::ALL {
        let attack = attack(defence);
        let (Some(with), Some(without)) = (attack(None), attack(Some(defence))) else {
            println!("{defence:?}: not made, this machine does not let it");
            continue;
        };
        assert!(!with, "{defence:?}: the attack succeeds");
        assert!(without, "{defence:?}: without it the attack fails as well, so it shows nothing");
        made += 1;
    }
    assert!(made >= Defence::ALL.len() - 7, "{made} attacks were made");
    // Of two attacks on one defence, both fail with it.
    assert_eq!(replayed(None), Some(false));
}

pub fn hub(without: Option<Defence>) -> Hub {
    Hub::of(place(without))
}

fn place(without: Option<Defence>) -> Place {
    weakened(Place::new(), without)
}

fn weakened(place: Place, without: Option<Defence>) -> Place {
    match without {
        Some(defence) => place.without(&format!("{defence:?}")),
        None => place,
    }
}

/// Joins a cluster with a secret that it had before.
fn old_secret(without: Option<Defence>) -> Option<bool> {
    let (owner, stranger, port) = (place(without), Place::new(), Port::reserve());
    owner.run(["cluster", "init"]).ok();
    owner.run(["cluster", "secret", "--out", "secret"]).ok();
    let listen = format!("127.0.0.1:{port}");
    let _host = Host::start(owner.command(["--json", "serve", "--name", "first", "--listen", &listen]));
    eventually("the secret is changed", || owner.run(["cluster", "secret", "rotate"]).code == 0);
    stranger.write("secret", &fs::read_to_string(owner.path().join("secret")).expect("it was written"));
    let at = format!("mr://{listen}/first");
    let join = ["serve", "--listen", "127.0.0.1:0", "--join", &at, "--cluster-secret", "secret"];
    let mut joining = stranger.command(join).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let is_in = || stranger.namespace().join("secrets/cluster").exists();
    eventually("it is in or refused", || is_in() || joining.try_wait().expect("a child").is_some());
    let got_in = is_in();
    let _ = joining.kill();
    let _ = joining.wait();
    Some(got_in)
}

/// Another program of the user, such as a function with a network, asks the pages that are served for a host elsewhere.
fn another_program(without: Option<Defence>) -> Option<bool> {
    let hub = hub(None);
    let edge = joined(&hub, without);
    let pages = web::Forwarded::of(&edge, &hub);
    Some(pages.curl(&["-d", "x"], "/v1/namespaces/hub/logs/raw/records").ends_with("201"))
}

fn joined(hub: &Hub, without: Option<Defence>) -> Place {
    let edge = weakened(Place::empty(), without);
    edge.run(["join", &hub.invite("edge", &["--append", "raw"])]).ok();
    edge
}

/// Whether an append of this place comes about.
fn appends(place: &Place, hub: &Hub) -> bool {
    let namespace = format!("mr://{}/hub", hub.authority());
    place.run(["-n", &namespace, "log", "append", "raw", "x"]).code == 0
}

/// A greeting that was heard on one TLS session, said again on another.
fn replayed(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let token: Token = fs::read_to_string(hub.issue("one.cap", &["--append", "raw"])).unwrap().trim().parse().unwrap();
    let says = |greeting: Option<Vec<u8>>| {
        let (mut session, binding) = tls::session(hub.port.number);
        let proof = token.proof(&binding);
        let offer = Offer { capability: token.body(), proof: &proof };
        let own = || [&PREFACE[..], &framed(1, &Hello { capabilities: vec![offer], ..hello() })].concat();
        let greeting = greeting.unwrap_or_else(own);
        session.write_all(&greeting).unwrap();
        let mut answer = [0; 4096];
        let length = session.read(&mut answer).unwrap();
        (greeting, !String::from_utf8_lossy(&answer[..length]).contains("MR6131"))
    };
    let (greeting, welcome) = says(None);
    assert!(welcome, "on its own session it is welcome");
    Some(says(Some(greeting)).1)
}

/// A capability whose signature somebody made up.
fn forged(without: Option<Defence>) -> Option<bool> {
    let (hub, edge) = (hub(without), Place::empty());
    let issued = hub.issue("one.cap", &["--append", "raw"]);
    let forged = changed(&issued, &edge.path().join("forged"), |token| {
        let mut bytes = token.to_bytes().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    });
    Some(bearer(&hub, &forged).contains("\"seqno\":1"))
}

fn not_granted(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let issued = hub.issue("one.cap", &["--read", "raw"]);
    Some(append_with(&Place::empty(), &hub, &issued).code == 0)
}

fn not_yet(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let issued = hub.issue("one.cap", &["--append", "raw", "--after", "1h"]);
    Some(append_with(&Place::empty(), &hub, &issued).code == 0)
}

/// What `join` left for one user, used by another one.
fn stolen(without: Option<Defence>) -> Option<bool> {
    let (hub, thief) = (hub(without), Place::empty());
    let edge = joined(&hub, None);
    let peer = |place: &Place| place.path().join("state/millrace/peers").join(hub.authority()).join("hub");
    fs::create_dir_all(peer(&thief).parent().unwrap()).unwrap();
    fs::copy(peer(&edge), peer(&thief)).unwrap();
    Some(appends(&thief, &hub))
}

fn invitation(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let edge = joined(&hub, None);
    let other = hub.invite("other", &["--append", "raw"]).parse::<Invitation>().unwrap();
    edge.write("invitation.cap", &other.token.to_text());
    let file = edge.path().join("invitation.cap");
    private(&file);
    Some(append_with(&edge, &hub, file.to_str().unwrap()).code == 0)
}

fn revoked(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let issued = hub.issue("one.cap", &["--append", "raw"]);
    hub.place.run(["cap", "revoke", "--file", &issued]).ok();
    Some(bearer(&hub, &issued).contains("\"seqno\":1"))
}

/// Another host at the address of one that was joined. Without a capability of its own namespace it admits nobody; that it is asked at all
/// is the success of the attack.
fn false_host(without: Option<Defence>) -> Option<bool> {
    let hub = hub(None);
    let edge = joined(&hub, without);
    let Hub { host, port, place: _place } = hub;
    drop(host);
    let other = Hub::at(Place::new(), port);
    let namespace = format!("mr://{}/hub", other.authority());
    let said = edge.run(["-n", &namespace, "log", "append", "raw", "x"]).stderr;
    assert!(said.contains("MR6162") || said.contains("MR6131"), "{said}");
    Some(!said.contains("MR6162"))
}

/// A host that shows the certificate of the one that was joined, which everybody can see, and signs with another key.
fn host_without_key(without: Option<Defence>) -> Option<bool> {
    let hub = hub(None);
    let edge = joined(&hub, without);
    let Hub { host, port, place } = hub;
    drop(host);
    // In the file of the host's key the certificate stands first, behind a line and its length.
    let parts = |place: &Place| {
        let bytes = fs::read(place.namespace().join("secrets/host")).unwrap();
        let mut rest = &bytes[8..];
        let mut part = || {
            let (length, behind) = rest.split_first_chunk::<4>().unwrap();
            let (part, more) = behind.split_at(u32::from_le_bytes(*length) as usize);
            rest = more;
            part.to_vec()
        };
        (part(), part())
    };
    let (certificate, _) = parts(&place);
    let other = Hub::at(Place::new(), port);
    let (_, key) = parts(&other.place);
    let Hub { host, port, place: _other } = other;
    drop(host);
    let listener = TcpListener::bind(("0.0.0.0", port.number)).unwrap();
    let posing = thread::spawn(move || tls::pose(&listener, certificate, key));
    edge.run(["-n", &format!("mr://127.0.0.2:{port}/hub"), "log", "append", "raw", "x"]);
    Some(posing.join().unwrap() == Some(PREFACE))
}

fn squatter(without: Option<Defence>) -> Option<bool> {
    is_root().then(|| !neighbours::told_to_squatter(&place(without), neighbours::OTHER).0.is_empty())
}

fn neighbour(without: Option<Defence>) -> Option<bool> {
    if !is_root() {
        return None;
    }
    let (_place, host) = neighbours::local(place(without));
    let url = format!("http://127.0.0.1:{}/v1/namespaces/hub/logs/raw/records", host.port());
    Some(neighbours::curl(neighbours::other("curl"), &["-d", "x"], &url).text().ends_with("201"))
}

/// The owner's client, which gets the port of a connection that another user has reset.
fn reused_port(without: Option<Defence>) -> Option<bool> {
    is_root().then(|| !neighbours::appended_by_a_connection_that_was_reset(place(without)).is_empty())
}

fn function(without: Option<Defence>) -> Option<bool> {
    if !is_root() {
        return None;
    }
    let (place, port) = (place(without), Port::reserve());
    let theirs = Theirs::new(&place);
    let (reported, _host) = theirs.told_to_function(&port)?;
    Some(reported.contains("\"logs\""))
}

/// An address of this machine that is not a loopback address.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

/// A capability that is sent in clear, for everybody on the way to read.
fn in_clear(without: Option<Defence>) -> Option<bool> {
    let address = own_address()?;
    let hub = hub(without);
    let issued = hub.issue("one.cap", &["--append", "raw"]);
    let bearer = format!("Authorization: Bearer {}", fs::read_to_string(issued).unwrap().trim());
    let url = format!("http://{address}:{}/v1/namespaces/hub/logs/raw/records", hub.port);
    let answer = neighbours::curl(Command::new("curl"), &["-H", &bearer, "-H", "Host: localhost", "-d", "x"], &url);
    Some(answer.text().ends_with("201"))
}

fn over_http(without: Option<Defence>, header: &str) -> Option<bool> {
    let (_place, host) = neighbours::local(place(without));
    let url = format!("http://127.0.0.1:{}/v1/namespaces/hub/logs/raw/records", host.port());
    Some(neighbours::curl(Command::new("curl"), &["-H", header, "-d", "x"], &url).text().ends_with("201"))
}

/// A page of another host whose name was made to point here.
fn rebinding(without: Option<Defence>) -> Option<bool> {
    over_http(without, "Host: evil.example")
}

fn web_page(without: Option<Defence>) -> Option<bool> {
    over_http(without, "Origin: http://evil.example")
}

/// A link of another page to data: only links to the dashboard, which shows nothing of a namespace by itself, may come from anywhere.
fn opened(without: Option<Defence>) -> Option<bool> {
    let (_place, host) = neighbours::local(place(without));
    let link = ["-H", "Sec-Fetch-Site: cross-site", "-H", "Sec-Fetch-Mode: navigate", "-H", "Sec-Fetch-Dest: document"];
    let open = |path: &str| {
        let url = format!("http://127.0.0.1:{}/{path}", host.port());
        neighbours::curl(Command::new("curl"), &link, &url).text().ends_with("200")
    };
    assert!(open("ui/hub/logs/raw"), "a link opens the dashboard");
    let data = ["v1/namespaces", "v1/namespaces/hub/logs", "metrics"].map(open);
    assert!(data.iter().all(|read| *read == data[0]), "{data:?}");
    Some(data[0])
}

/// The idempotency key of another holder, who is then told that its record was appended.
fn foreign_key(without: Option<Defence>) -> Option<bool> {
    let (hub, edge) = (hub(without), Place::empty());
    let namespace = format!("mr://{}/hub", hub.authority());
    let append = |file: &str| {
        let capability = hub.issue(file, &["--append", "raw"]);
        let mut command = edge.command(["--json", "-n", &namespace, "log", "append", "raw", "x", "--key", "k"]);
        command.env("MILLRACE_CAPABILITY", capability);
        end(command, b"").ok().object()["seqno"].as_u64().unwrap()
    };
    Some(append("one.cap") == append("two.cap"))
}

/// Keys that everybody on the machine could have read.
fn open_file(without: Option<Defence>) -> Option<bool> {
    use std::os::unix::fs::PermissionsExt;
    let place = place(without);
    place.run(["cap", "issue", "--append", "raw"]).ok();
    let file = place.namespace().join("secrets/authority");
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    let issued = place.run(["cap", "issue", "--append", "raw"]);
    Some(issued.code == 0 && issued.text().trim().parse::<Token>().is_ok())
}
