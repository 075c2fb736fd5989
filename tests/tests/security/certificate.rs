//! A host with a certificate of its operator: clients that trust the authority identify it by its name, and invited clients still by its
//! key.

use super::attacks::private;
use base64::{Engine, prelude::BASE64_STANDARD};
use millrace_tests::{Ended, Host, Place, Port, end, eventually};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Another machine's name for the host.
const NAME: &str = "127.0.0.2";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

fn authority() -> Authority {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    // Otherwise it has the same name as the certificates that it issues, which would then look self-signed.
    parameters.distinguished_name.push(DnType::CommonName, "an authority");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this name, valid until this year, and its key, in the files of an ACME client.
fn issue(place: &Place, by: &Authority, name: &str, until: i32) {
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.not_after = date_time_ymd(until, 1, 1);
    write(place, by, &parameters);
}

/// A certificate that is valid for this time from now on.
fn issue_for(place: &Place, by: &Authority, name: &str, time: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    // Both programs use the same clock.
    parameters.not_before = date_time_ymd(1970, 1, 1) + (now - Duration::from_secs(100 * 86_400));
    parameters.not_after = date_time_ymd(1970, 1, 1) + (now + time);
    write(place, by, &parameters);
}

fn write(place: &Place, by: &Authority, parameters: &CertificateParams) {
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, by).unwrap();
    let files =
        [("chain.pem", pem("CERTIFICATE", certificate.der())), ("key.pem", pem("PRIVATE KEY", &key.serialize_der()))];
    for (file, text) in files {
        place.write("next", &text);
        private(&place.path().join("next"));
        fs::rename(place.path().join("next"), place.path().join(file)).unwrap();
    }
}

fn serve(place: &Place, port: &Port) -> Command {
    let listen = format!("0.0.0.0:{port}");
    let files = ["--tls-cert", "chain.pem", "--tls-key", "key.pem"];
    place.command(["serve", "--listen", &listen, "--name", "hub"].iter().chain(&files))
}

/// An append of another machine that trusts this authority.
fn append(edge: &Place, port: &Port, authority: &Path, capability: &Path) -> Ended {
    let mut command = edge.command(["-n", &format!("mr://{NAME}:{port}/hub"), "log", "append", "raw", "x"]);
    command.env("MILLRACE_CA", authority).env("MILLRACE_CAPABILITY", capability);
    end(command, b"")
}

#[test]
fn a_host_with_a_certificate_is_known_by_its_name_and_reads_it_again() {
    let (hub, edge, port) = (Place::new(), Place::empty(), Port::reserve());
    hub.run(["log", "create", "raw"]).ok();
    let (first, second) = (authority(), authority());
    for (name, authority) in [("first.pem", &first), ("second.pem", &second)] {
        edge.write(name, &pem("CERTIFICATE", authority.der()));
    }
    let [first_file, second_file] = ["first.pem", "second.pem"].map(|name| edge.path().join(name));
    issue(&hub, &first, NAME, 2100);
    let _host = Host::start(serve(&hub, &port));
    hub.run(["cap", "issue", "--append", "raw", "--out", "raw.cap"]).ok();
    let capability = hub.path().join("raw.cap");
    append(&edge, &port, &first_file, &capability).ok();
    append(&edge, &port, &second_file, &capability).fails("MR6196", 1);
    let curl = |authority: &Path| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "100", "--cacert"]).arg(authority);
        curl.arg(format!("https://{NAME}:{port}/healthz"));
        end(curl, b"").code
    };
    assert_eq!(curl(&first_file), 0);
    assert!([35, 60].contains(&curl(&second_file)), "its certificate is not known");
    // Invited clients identify the host by its key, which no certificate changes.
    let address = format!("{NAME}:{port}");
    let invited = hub.run(["invite", "edge", "--append", "raw", "--address", &address, "--served-as", "hub"]).ok();
    edge.run(["join", invited.text().trim()]).ok();
    edge.run(["-n", "hub", "log", "append", "raw", "x"]).ok();
    // Renewed while the host runs, and by another authority.
    issue(&hub, &second, NAME, 2100);
    eventually("the host reads its certificate again", || curl(&second_file) == 0);
    assert!([35, 60].contains(&curl(&first_file)));
    edge.run(["-n", "hub", "log", "append", "raw", "x"]).ok();
    // An unusable one is reported, and the previous one stays in use.
    hub.write("chain.pem", "nothing");
    assert_eq!(curl(&second_file), 0);
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let (hub, edge, port) = (Place::new(), Place::empty(), Port::reserve());
    hub.run(["log", "create", "raw"]).ok();
    let authority = authority();
    edge.write("authority.pem", &pem("CERTIFICATE", authority.der()));
    issue(&hub, &authority, "127.0.0.3", 2100);
    let _host = Host::start(serve(&hub, &port));
    hub.run(["cap", "issue", "--append", "raw", "--out", "raw.cap"]).ok();
    let file = edge.path().join("authority.pem");
    append(&edge, &port, &file, &hub.path().join("raw.cap")).fails("MR6196", 1);
    edge.write("nothing.pem", "nothing");
    append(&edge, &port, &edge.path().join("nothing.pem"), &hub.path().join("raw.cap")).fails("MR6195", 2);
}

#[test]
fn a_host_does_not_start_with_a_certificate_that_does_not_do() {
    use std::os::unix::fs::PermissionsExt;
    let (hub, port, authority) = (Place::new(), Port::reserve(), authority());
    let refused = |code: &str, exit: i32| {
        end(serve(&hub, &port), b"").fails(code, exit);
    };
    refused("MR6191", 2);
    issue(&hub, &authority, NAME, 2001);
    refused("MR6192", 1);
    issue(&hub, &authority, NAME, 2100);
    fs::rename(hub.path().join("chain.pem"), hub.path().join("other.pem")).unwrap();
    issue(&hub, &authority, NAME, 2100);
    fs::rename(hub.path().join("other.pem"), hub.path().join("chain.pem")).unwrap();
    refused("MR6193", 2);
    issue(&hub, &authority, NAME, 2100);
    fs::set_permissions(hub.path().join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    refused("MR6194", 1);
    private(&hub.path().join("key.pem"));
    hub.write("chain.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    refused("MR6191", 2);
}

#[test]
fn authorities_are_named_by_an_option_or_by_a_context() {
    let (hub, edge, port) = (Place::new(), Place::new(), Port::reserve());
    for place in [&hub, &edge] {
        place.run(["log", "create", "raw"]).ok();
    }
    let (right, wrong) = (authority(), authority());
    for (name, authority) in [("right.pem", &right), ("wrong.pem", &wrong)] {
        edge.write(name, &pem("CERTIFICATE", authority.der()));
    }
    edge.write("nothing.pem", "nothing");
    issue(&hub, &right, NAME, 2100);
    let _host = Host::start(serve(&hub, &port));
    hub.run(["cap", "issue", "--append", "raw", "--allow", "link=namespace", "--out", "raw.cap"]).ok();
    let capability = hub.path().join("raw.cap");
    let address = format!("mr://{NAME}:{port}/hub");
    let typed = |args: &[&str]| {
        let mut command = edge.command(args);
        command.env("MILLRACE_CAPABILITY", &capability);
        command
    };
    let run = |args: &[&str]| end(typed(args), b"");
    let append = |more: &[&str]| run(&[more, &["log", "append", "raw", "x"]].concat());
    append(&["--ca", "right.pem", "-n", &address]).ok();
    append(&["--ca", "wrong.pem", "-n", &address]).fails("MR6196", 1);
    run(&["--ca", "right.pem", "log", "append", &format!("{address}/raw"), "x"]).ok();
    // The option takes precedence over the context, and the context over the variable.
    run(&["context", "add", "hub", &address, "--ca", "wrong.pem"]).ok();
    append(&["-n", "hub"]).fails("MR6196", 1);
    append(&["-n", "hub", "--ca", "right.pem"]).ok();
    let added = run(&["context", "add", "hub", &address, "--ca", "right.pem", "--json"]).ok().object();
    assert_eq!(added["change"], "updated");
    let file = edge.path().join("right.pem");
    assert_eq!(added["ca"].as_str().map(Path::new), Some(&*file));
    let mut command = typed(&["-n", "hub", "log", "append", "raw", "x"]);
    command.env("MILLRACE_CA", edge.path().join("wrong.pem"));
    end(command, b"").ok();
    assert!(run(&["context", "show", "hub"]).ok().text().contains("right.pem"));
    run(&["context", "add", "hub", &address, "--ca", "nothing.pem"]).fails("MR6195", 2);
    run(&["context", "add", "here", ".", "--ca", "right.pem"]).fails("MR4017", 2);
    run(&["--ca", "nothing.pem", "serve", "--listen", "none"]).fails("MR6195", 2);
    // A host's relays use the authorities of its option.
    let before = hub.records("raw").len();
    let _linking = Host::start(typed(&["--ca", "right.pem", "serve", "--listen", "none"]));
    edge.run(["relay", "add", "raw", &format!("{address}/raw")]).ok();
    edge.run(["log", "append", "raw", "relayed"]).ok();
    eventually("the record is relayed", || hub.records("raw")[before..].contains(&"relayed".to_owned()));
}

#[test]
fn the_end_of_a_certificate_is_reported_before_it_comes() {
    let (hub, port, authority) = (Place::new(), Port::reserve(), authority());
    issue(&hub, &authority, NAME, 2100);
    let _host = Host::start(serve(&hub, &port));
    let expiring = || hub.run(["why"]).ok().text().contains("MR6197");
    assert!(!expiring());
    issue_for(&hub, &authority, NAME, Duration::from_secs(5 * 86_400));
    eventually("why says so", expiring);
    let get = |path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "100", "--unix-socket"]).arg(hub.namespace().join("socket"));
        curl.arg(format!("http://localhost{path}"));
        end(curl, b"").text().to_owned()
    };
    let metrics = get("/metrics");
    let until = metrics.lines().find_map(|line| line.strip_prefix("millrace_certificate_expiry_timestamp_seconds "));
    let until: u64 = until.unwrap().parse().unwrap();
    let status: serde_json::Value = serde_json::from_str(&get("/v1/namespaces/hub/status")).unwrap();
    assert_eq!(status["certificate_until_ms"], until * 1000);
    issue(&hub, &authority, NAME, 2100);
    eventually("it was renewed", || !expiring());
}
