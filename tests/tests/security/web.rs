//! Pages in browsers: those of no known origin, and those that the host was told to answer.

use super::{
    Hub,
    neighbours::{is_root, other},
};
use millrace_tests::{Host, Place, end, eventually};
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{Arc, OnceLock},
};

const APP: &str = "Origin: https://app.example";

fn curl(host: &Host, more: &[&str], path: &str) -> String {
    let mut command = Command::new("curl");
    let url = format!("http://127.0.0.1:{}/v1/namespaces/hub/{path}", host.port());
    command.args(["-si", "--max-time", "100"]).args(more).arg(url);
    end(command, b"").ok().text().to_lowercase()
}

#[test]
fn a_page_of_a_known_origin_needs_a_capability_and_others_get_nothing() {
    let place = Place::new();
    place.run(["log", "create", "raw"]).ok();
    let host = place.serve_tcp(["--name", "hub", "--cors-origin", "https://app.example"]);
    let file = place.path().join("raw.cap");
    place.run(["cap", "issue", "--append", "raw", "--out", file.to_str().unwrap()]).ok();
    let bearer = format!("Authorization: Bearer {}", fs::read_to_string(&file).unwrap().trim());
    let records = "logs/raw/records";
    // The browser asks first.
    let asks = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: POST", "-H"];
    let reported = curl(&host, &[&asks[..], &[APP]].concat(), records);
    assert!(
        reported.starts_with("http/1.1 204")
            && reported.contains("access-control-allow-headers: authorization")
            && reported.contains("access-control-allow-methods: get, post, put, patch, delete"),
        "{reported}"
    );
    assert!(reported.contains("access-control-allow-origin: https://app.example"), "{reported}");
    assert!(!reported.contains("access-control-allow-credentials"), "{reported}");
    let reported = curl(&host, &[&asks[..], &["Origin: https://evil.example"]].concat(), records);
    assert!(reported.starts_with("http/1.1 403") && !reported.contains("access-control"), "{reported}");
    // The connection is the owner's, and the page is not: without a capability it has no rights.
    let site = ["-H", APP, "-H", "Sec-Fetch-Site: cross-site", "-d", "x"];
    let reported = curl(&host, &site, records);
    assert!(reported.starts_with("http/1.1 401"), "{reported}");
    let reported = curl(&host, &[&site[..], &["-H", &bearer]].concat(), records);
    assert!(reported.starts_with("http/1.1 201"), "{reported}");
    assert!(
        reported.contains("access-control-allow-origin: https://app.example") && reported.contains("vary: origin"),
        "{reported}"
    );
    // It has what its capability permits, and reads why it is refused.
    let reported = curl(&host, &["-H", APP, "-H", &bearer], "logs/raw/records/1");
    assert!(reported.contains("mr6132") && reported.contains("access-control-allow-origin"), "{reported}");
    let reported = curl(&host, &["-H", "Origin: https://evil.example", "-H", &bearer, "-d", "x"], records);
    assert!(reported.starts_with("http/1.1 403") && !reported.contains("access-control"), "{reported}");
    assert_eq!(place.records("raw"), ["x"]);
    for origin in ["*", "null", "https://app.example/path"] {
        let refused = place.run(["serve", "--cors-origin", origin]);
        assert!(refused.code == 2 && refused.stderr.contains("MR1006"), "{}", refused.stderr);
    }
}

/// Asks the host in each way that a page may: what came of it is the page's text.
const PAGE: &str = r#"<!doctype html><pre id="told"></pre><script>
const [records, bearer] = JSON.parse('ARGUMENTS');
const ask = async (name, url, options) => {
  let told;
  try {
    const answer = await fetch(url, options);
    told = answer.type === 'opaque' ? 'opaque' : answer.status + ' ' + (await answer.text()).slice(0, 200);
  } catch (error) { told = 'blocked'; }
  document.getElementById('told').textContent += name + ': ' + told + ';\n';
};
const authorization = { authorization: bearer };
(async () => {
  await ask('simple', records, { method: 'POST', body: 'simple', mode: 'no-cors' });
  await ask('bare', records, { method: 'POST', body: 'bare' });
  await ask('capable', records, { method: 'POST', body: 'capable', headers: authorization });
  await ask('read', records + '/1', { headers: authorization });
})();
</script>"#;

/// Serves a page until the test ends; where.
fn page(page: impl Fn() -> String + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let page = page();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: ";
            let _ = stream.write_all(format!("{head}{}\r\n\r\n{page}", page.len()).as_bytes());
        }
    });
    port
}

/// What a browser shows of a page once its scripts have ended.
fn browse(home: &Place, more: &[&str], url: &str) -> String {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=60000"]);
    // Requests to this machine are what the test is about, not whether the browser forbids them altogether.
    chromium.args(["--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"]);
    chromium.arg(format!("--user-data-dir={}", home.path().join("browser").display())).env("HOME", home.path());
    chromium.args(more).arg(url);
    end(chromium, b"").text().to_owned()
}

#[test]
fn a_page_in_a_browser_gets_what_its_origin_may_read() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("not made: there is no chromium");
        return;
    }
    let place = Place::new();
    place.run(["log", "create", "raw"]).ok();
    let host = Arc::new(OnceLock::<String>::new());
    let served = || {
        let arguments = host.clone();
        page(move || PAGE.replace("ARGUMENTS", arguments.get().map_or("[]", String::as_str)))
    };
    let (known, unknown) = (served(), served());
    let running = place.serve_tcp(["--name", "hub", "--cors-origin", &format!("http://127.0.0.1:{known}")]);
    let file = place.path().join("raw.cap");
    place.run(["cap", "issue", "--append", "raw", "--out", file.to_str().unwrap()]).ok();
    let bearer = format!("Bearer {}", fs::read_to_string(&file).unwrap().trim());
    let records = format!("http://127.0.0.1:{}/v1/namespaces/hub/logs/raw/records", running.port());
    host.set(serde_json::json!([records, bearer]).to_string()).unwrap();
    // A simple request reaches the host whatever its origin is, over a connection of the owner's. It has no rights.
    let reported = browse(&place, &[], &format!("http://127.0.0.1:{unknown}/"));
    for line in ["simple: opaque;", "bare: blocked;", "capable: blocked;", "read: blocked;"] {
        assert!(reported.contains(line), "{line}: {reported}");
    }
    assert!(place.records("raw").is_empty());
    let reported = browse(&place, &[], &format!("http://127.0.0.1:{known}/"));
    for line in ["bare: 401 ", "capable: 201 ", "read: 403 "] {
        assert!(reported.contains(line), "{line}: {reported}");
    }
    assert_eq!(place.records("raw"), ["capable"]);
    // A name that leads to this machine by now, as an attacker's may.
    let rebound = ["--host-resolver-rules=MAP evil.example 127.0.0.1"];
    let reported = browse(&place, &rebound, &format!("http://evil.example:{}/v1/namespaces", running.port()));
    assert!(reported.contains("MR60") && !reported.contains("\"hub\""), "{reported}");
}

/// The dashboard of a host elsewhere, as a user of this machine has it.
pub struct Forwarded {
    _pages: Host,
    /// Where it is, and the key of its link.
    address: String,
    key: String,
}

impl Forwarded {
    /// The pages that a place that has joined the hub serves.
    pub fn of(edge: &Place, hub: &Hub) -> Self {
        let namespace = format!("mr://{}/hub", hub.authority());
        let pages = Host::start(edge.command(["--json", "-n", &namespace, "dashboard"]));
        let told: serde_json::Value = serde_json::from_str(pages.announcement()).expect("it is JSON");
        let (address, rest) = told["url"].as_str().unwrap().split_once("/ui/hub#key=").expect("a link with a key");
        Self { address: address.into(), key: rest.into(), _pages: pages }
    }

    fn with_key(&self, more: &[&str], path: &str) -> String {
        let bearer = format!("Authorization: Bearer {}", self.key);
        self.curl(&[&["-H", &*bearer], more].concat(), path)
    }

    /// What is answered, and the status behind it.
    pub fn curl(&self, more: &[&str], path: &str) -> String {
        self.curl_as(Command::new("curl"), more, path)
    }

    fn curl_as(&self, mut curl: Command, more: &[&str], path: &str) -> String {
        curl.args(["-s", "--max-time", "100", "-w", "%{http_code}"]).args(more);
        curl.arg(format!("{}{path}", self.address));
        end(curl, b"").text().to_owned()
    }
}

#[test]
fn the_dashboard_of_a_host_elsewhere_is_forwarded_over_tls_with_the_rights_of_the_stored_capability() {
    let (mut hub, edge) = (Hub::new(), Place::new());
    hub.place.run(["log", "append", "raw", "21.5"]).ok();
    edge.run(["join", &hub.invite("edge", &["--allow", "read,append,observe=namespace"])]).ok();
    let pages = Forwarded::of(&edge, &hub);
    // The pages need no key, and tell nothing.
    assert!(pages.curl(&[], "/ui/hub/logs/raw").contains("<!doctype html>"));
    let below = "/v1/namespaces/hub";
    assert!(pages.with_key(&[], &format!("{below}/status")).contains("\"name\":\"hub\""));
    let record = pages.with_key(&[], &format!("{below}/logs/raw/records/1"));
    assert_eq!(record, "21.5200");
    // Several requests at once and one after the other, of all kinds.
    for number in 2..5 {
        let body = format!("{number}{}", "x".repeat(100_000));
        assert!(pages.with_key(&["-d", &body], &format!("{below}/logs/raw/records")).ends_with("201"));
        let read = pages.with_key(&[], &format!("{below}/logs/raw/records/{number}"));
        assert!(read == format!("{body}200"), "{} bytes", read.len());
    }
    let part = pages.with_key(&["-H", "Range: bytes=0-1"], &format!("{below}/logs/raw/records/1"));
    assert_eq!(part, "21206");
    assert!(pages.with_key(&["-I"], &format!("{below}/logs/raw/records/1")).contains("millrace-seqno: 1"));
    // Events come as they are sent.
    let tail = pages.with_key(&["--max-time", "3"], &format!("{below}/logs/raw/tail?from=1"));
    assert!(tail.contains("\"data\":\"21.5\"") && tail.contains("\"seqno\":4"), "{tail}");
    // What the capability does not permit, and what the host does not know, it says itself.
    assert!(pages.with_key(&["-X", "DELETE"], &format!("{below}/logs/raw")).contains("MR6132"));
    assert!(pages.with_key(&[], &format!("{below}/nothing")).contains("MR6041"));
    assert!(pages.with_key(&[], "/metrics").contains("MR6041"), "nothing else is forwarded");
    // While the host is away, the pages say so; it may come back.
    hub.host = None;
    assert!(pages.with_key(&[], &format!("{below}/status")).contains("MR6121"));
    hub.start();
    eventually("it is back", || pages.with_key(&[], &format!("{below}/status")).ends_with("200"));
    // Another host at the address is not asked.
    let Hub { host, port, place: _place } = hub;
    drop(host);
    let _other = Hub::at(Place::new(), port);
    assert!(pages.with_key(&[], &format!("{below}/status")).contains("MR6162"));
}

/// The arguments of a command are visible to every user of the machine.
#[test]
fn a_link_that_is_opened_in_the_browser_shows_its_code_to_nobody_else() {
    let place = Place::new();
    let host = place.serve_tcp(["--name", "near"]);
    let bin = place.path().join("desktop");
    fs::create_dir(&bin).unwrap();
    let opener = bin.join("xdg-open");
    let script = format!("#!/bin/sh\nprintf %s \"$*\" > {0}/arguments\ncp -p \"$1\" {0}/page || true\n", bin.display());
    fs::write(&opener, script).unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let open = |more: &[&str]| {
        let mut command = place.command([&["dashboard", "--open"], more].concat());
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("XDG_RUNTIME_DIR", place.path());
        let printed = end(command, b"").ok().text().trim().to_owned();
        (printed, fs::read_to_string(bin.join("arguments")).unwrap())
    };
    let plain = format!("http://127.0.0.1:{}/ui/near", host.port());
    assert_eq!(open(&[]), (plain.clone(), plain.clone()), "an address that is no secret needs no file");
    let (link, arguments) = open(&["--code"]);
    let code = link.strip_prefix(&format!("{plain}#code=")).expect("a code");
    assert!(!arguments.contains(code) && !arguments.contains('#'), "{arguments}");
    let page = fs::read_to_string(bin.join("page")).unwrap();
    assert!(page.contains(&format!("0;url={link}\"")), "{page}");
    let mode = fs::metadata(bin.join("page")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!Path::new(&arguments).exists(), "the file is removed");
}

#[test]
fn forwarded_pages_answer_their_user_with_the_key_of_the_link_and_no_page_of_another_site() {
    let (hub, edge) = (Hub::new(), Place::new());
    edge.run(["join", &hub.invite("edge", &["--allow", "read,append,observe=namespace"])]).ok();
    let pages = Forwarded::of(&edge, &hub);
    let status = "/v1/namespaces/hub/status";
    assert!(pages.with_key(&[], status).ends_with("200"));
    for wrong in [&[][..], &["-H", "Authorization: Bearer 00"], &["-H", "Authorization: Basic 00"]] {
        let refused = pages.curl(wrong, status);
        assert!(refused.contains("MR6090") && refused.ends_with("401"), "{refused}");
    }
    // With the key, too: the name of another host that was made to point here, and pages of other sites.
    for (header, code) in [
        ("Host: evil.example", "MR6043"),
        ("Origin: http://evil.example", "MR6044"),
        ("Origin: null", "MR6044"),
        ("Sec-Fetch-Site: cross-site", "MR6044"),
        ("Sec-Fetch-Site: same-site", "MR6044"),
    ] {
        let refused = pages.with_key(&["-H", header], status);
        assert!(refused.contains(code) && refused.ends_with("403"), "{header}: {refused}");
    }
    // What the host sends is never a page of this address, and sets nothing in the browser.
    let head = pages.with_key(&["-i"], "/v1/namespaces/hub/status").to_lowercase();
    assert!(head.contains("content-security-policy: default-src 'none'; sandbox"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff") && !head.contains("set-cookie"), "{head}");
    assert!(!head.contains(&pages.key) && !head.contains("mr1_"), "{head}");
    if is_root() {
        let bearer = format!("Authorization: Bearer {}", pages.key);
        let refused = pages.curl_as(other("curl"), &["-H", &bearer], status);
        assert!(refused.contains("MR6166") && !refused.contains("\"name\""), "{refused}");
    }
    // A host that this machine reaches in clear needs no pages of ours.
    let near = Place::new();
    let host = near.serve_tcp(["--name", "near"]);
    let link = edge.run(["-n", &format!("mr://127.0.0.1:{}/near", host.port()), "dashboard"]).ok();
    assert_eq!(link.text().trim(), format!("http://127.0.0.1:{}/ui/near", host.port()));
}
