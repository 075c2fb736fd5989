//! http.append: what `curl` would do, from 64 connections.

use super::{Host, below};
use crate::{Context, Outcome, measure::Repeated, peers::nginx, rows::Measured};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

const CONNECTIONS: u32 = 64;
/// Posts 1 KiB, and says how often something else than success came back.
const SCRIPT: &str = r#"
wrk.method = METHOD
wrk.body = BODY
wrk.headers["Content-Type"] = "application/octet-stream"
function done(summary, latency, requests)
    local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
        + summary.errors.timeout
    io.write(string.format('{"requests":%d,"us":%d,"failed":%d,"p50":%d,"p99":%d}\n',
        summary.requests, summary.duration, failed, latency:percentile(50), latency:percentile(99)))
end
"#;

/// What `wrk` measured: requests in a second, and quantiles in µs. `None` if it is not installed.
fn wrk(dir: &Path, url: &str, body_bytes: usize, seconds: u32) -> Outcome<Option<[f64; 3]>> {
    let script = dir.join("load.lua");
    let (method, body) =
        if body_bytes > 0 { ("POST", format!("string.rep('7', {body_bytes})")) } else { ("GET", "nil".into()) };
    fs::write(&script, SCRIPT.replace("METHOD", &format!("'{method}'")).replace("BODY", &body))?;
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s"), "-s"])
        .arg(&script)
        .arg(url)
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).ok_or_else(|| format!("wrk said {text}"))?;
    let result: Value = serde_json::from_str(line)?;
    let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
    if number("failed") != 0.0 {
        return Err(format!("wrk counted failures: {line}").into());
    }
    Ok(Some([number("requests") / (number("us") / 1e6), number("p50"), number("p99")]))
}

pub fn append(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 10_000)?;
    let seconds = if context.quick { 1 } else { 3 };
    let url = |namespace: &str| format!("http://127.0.0.1:{}/v1/namespaces/{namespace}/logs/a/records", host.port);
    let dir = below(&host, "");
    let nginx = nginx::Nginx::start(context.fresh()?)?;
    let missing = "wrk is not installed (apt-get install wrk): without it there is no load";
    let mut rates = [(); 3].map(|()| Repeated::default());
    let mut quantiles = [(); 2].map(|()| Repeated::default());
    wrk(&dir, &url("memory"), 1024, 1)?.ok_or(missing)?;
    for _ in 0..context.repetitions(5) {
        let [rate, p50, p99] = wrk(&dir, &url("memory"), 1024, seconds)?.ok_or(missing)?;
        rates[0].push(rate);
        quantiles[0].push(p50);
        quantiles[1].push(p99);
        rates[1].push(wrk(&dir, &url("disk"), 1024, seconds)?.ok_or(missing)?[0]);
        if let Some(nginx) = &nginx {
            rates[2].push(wrk(&dir, &nginx.url(), 0, seconds)?.ok_or(missing)?[0]);
        }
    }
    let rate = rates[0].median();
    let mut measured = Measured::new(rate, (rate * f64::from(seconds)) as u64)
        .percentiles(quantiles[0].median(), quantiles[1].median())
        .target("≥ 60 000 /s", rate >= 60_000.0)
        .also("durability disk", rates[1].median(), "/s");
    measured = match nginx {
        Some(_) => measured.peer("nginx, 2 workers, a file of 1 KiB", rates[2].median()),
        None => measured.note(nginx::INSTALL),
    };
    let note = format!(
        "POST of 1 KiB, durability memory, over {CONNECTIONS} persistent connections, by wrk with one thread on the \
         same 2 cores; every answer was a success. Value: {}. nginx has the same load, with GET.",
        rates[0].spread()
    );
    Ok(measured.note(note))
}
