//! Pages in browsers: those of no known origin, and those that the host was told to answer.

use millrace_tests::{Host, Place, end};
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
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
