//! Pages in browsers: those of no known origin, and those that the host was told to answer.

use millrace_tests::{Host, Place, end};
use std::{fs, process::Command};

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
    let told = curl(&host, &[&asks[..], &[APP]].concat(), records);
    assert!(told.starts_with("http/1.1 204") && told.contains("access-control-allow-headers: authorization"), "{told}");
    assert!(told.contains("access-control-allow-origin: https://app.example"), "{told}");
    assert!(!told.contains("access-control-allow-credentials"), "{told}");
    let told = curl(&host, &[&asks[..], &["Origin: https://evil.example"]].concat(), records);
    assert!(told.starts_with("http/1.1 403") && !told.contains("access-control"), "{told}");
    // The connection is the owner's, and the page is not: without a capability it has no rights.
    let site = ["-H", APP, "-H", "Sec-Fetch-Site: cross-site", "-d", "x"];
    let told = curl(&host, &site, records);
    assert!(told.starts_with("http/1.1 401"), "{told}");
    let told = curl(&host, &[&site[..], &["-H", &bearer]].concat(), records);
    assert!(told.starts_with("http/1.1 201"), "{told}");
    assert!(
        told.contains("access-control-allow-origin: https://app.example") && told.contains("vary: origin"),
        "{told}"
    );
    // It has what its capability permits, and reads why it is refused.
    let told = curl(&host, &["-H", APP, "-H", &bearer], "logs/raw/records/1");
    assert!(told.contains("mr6132") && told.contains("access-control-allow-origin"), "{told}");
    let told = curl(&host, &["-H", "Origin: https://evil.example", "-H", &bearer, "-d", "x"], records);
    assert!(told.starts_with("http/1.1 403") && !told.contains("access-control"), "{told}");
    assert_eq!(place.records("raw"), ["x"]);
    for origin in ["*", "null", "https://app.example/path"] {
        let refused = place.run(["serve", "--cors-origin", origin]);
        assert!(refused.code == 2 && refused.stderr.contains("MR1006"), "{}", refused.stderr);
    }
}
