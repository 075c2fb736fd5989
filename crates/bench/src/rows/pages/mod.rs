//! page.*: what the dashboard asks of a host, and what that costs.
//!
//! ```text
//!  first: Chromium --> pages    jump, rate: one request --> a log of ten million records    listener: `live` beside runs
//! ```

use super::{Measured, function, namespace_with_logs, remote::Host, runs};
use crate::{
    Context, Outcome, functions,
    measure::{Repeated, Samples, mean_us, repeat},
};
use millrace_journal::{Durability, HISTORY_ALL};
use millrace_node::{Namespace, Runtime};
use millrace_wire::EventId;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    thread,
    time::Instant,
};
use tempfile::TempDir;

/// What a record of the long log has.
const READING: &[u8] = br#"{"celsius":21.5}"#;
/// Records that the page shows at once.
const PAGE: u64 = 100;
/// Buckets of the picture of a log's past.
const BUCKETS: u64 = 400;

/// Serves the namespace in `dir/n`.
fn serve(context: &Context, dir: TempDir) -> Outcome<Host> {
    Host::serve(context, dir, 0, &["n=n"])
}

/// A connection of HTTP.
struct Asking(BufReader<TcpStream>);

impl Asking {
    fn new(host: &Host) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", host.port()))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, path: &str) -> Outcome<()> {
        let head = "HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n";
        Ok(self.0.get_mut().write_all(format!("GET /v1/namespaces/n/{path} {head}").as_bytes())?)
    }

    /// The body of an answer of known length.
    fn get(&mut self, path: &str) -> Outcome<Vec<u8>> {
        self.ask(path)?;
        let (mut status, mut length) = (String::new(), 0);
        self.0.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let text = || String::from_utf8_lossy(&body).into_owned();
        if status.contains(" 200 ") { Ok(body) } else { Err(format!("{path}: {status}{}", text()).into()) }
    }
}

/// A namespace in `dir/n` with a long log, and a short one.
fn long(dir: &Path, count: u64) -> Outcome<Namespace> {
    let namespace = namespace_with_logs(&dir.join("n"), Durability::Memory, &[("long", HISTORY_ALL), ("short", 1000)])?;
    for (name, mut left) in [("long", count), ("short", 1000)] {
        let log = namespace.log(name)?;
        while left > 0 {
            let batch = left.min(1000);
            left -= batch;
            namespace
                .journal()
                .commit(|tx| (0..batch).try_for_each(|_| tx.append(&log, READING, EventId::NONE, 0).map(drop)))?;
        }
    }
    Ok(namespace)
}

fn records(context: &Context) -> u64 {
    if context.quick { 500_000 } else { 10_000_000 }
}

/// Numbers all over a log, always the same ones.
fn anywhere(count: u64) -> impl Iterator<Item = u64> {
    let step = count / 618_033 * 381_966 + 7919;
    (0u64..).map(move |number| 1 + number.wrapping_mul(step) % (count - PAGE))
}

pub fn jump(context: &Context) -> Outcome<Measured> {
    let (dir, count) = (context.fresh()?, records(context));
    drop(long(dir.path(), count)?);
    let host = serve(context, dir)?;
    let mut asking = Asking::new(&host)?;
    let asked = context.repetitions(2000);
    let mut times = [Samples::new(), Samples::new()];
    for at in anywhere(count).take(asked) {
        for (log, at, samples) in [("long", at, 0), ("short", 1 + at % 900, 1)] {
            let start = Instant::now();
            let body = asking.get(&format!("logs/{log}/records?from={at}&count={PAGE}"))?;
            times[samples].record(start.elapsed());
            let seqnos = String::from_utf8_lossy(&body).matches("\"seqno\"").count() as u64;
            if seqnos != PAGE {
                return Err(format!("{seqnos} records instead of {PAGE}").into());
            }
        }
    }
    let ratio = times[0].p50_us() / times[1].p50_us();
    Ok(Measured::new(times[0].p50_us(), asked as u64)
        .spread_us(&times[0])
        .target("1 request; ≤ 2 × a log of 1000", ratio <= 2.0)
        .peer("a page of a log of 1000 records", times[1].p50_us())
        .note(format!(
            "One GET of {PAGE} records as JSON from anywhere in a log of {count}, over one connection, alternating with \
             a log of 1000 records; ratio of the medians {ratio:.2}. A number of the scroll bar is a sequence number, \
             so a jump is one request wherever it goes."
        )))
}

pub fn rate(context: &Context) -> Outcome<Measured> {
    let (dir, count) = (context.fresh()?, records(context));
    let namespace = long(dir.path(), count)?;
    let host = serve(context, dir)?;
    let mut asking = Asking::new(&host)?;
    let log = namespace.log("long")?;
    let (mut payload, mut ratios) = (Vec::new(), Repeated::default());
    let mut gets = Repeated::default();
    let times = repeat(context.repetitions(20), || {
        let start = Instant::now();
        let body: serde_json::Value =
            serde_json::from_slice(&asking.get(&format!("logs/long/rate?buckets={BUCKETS}"))?)?;
        let us = start.elapsed().as_secs_f64() * 1e6;
        let counted: u64 = body["counts"].as_array().into_iter().flatten().filter_map(|count| count.as_u64()).sum();
        if counted != count {
            return Err(format!("{counted} of {count} records: {body}").into());
        }
        let mut numbers = anywhere(count);
        let one = mean_us(BUCKETS + 1, || {
            let seqno = numbers.next().ok_or("numbers without end")?;
            Ok(namespace.journal().get(&log, seqno, &mut payload).map(drop)?)
        })?;
        gets.push(one * (BUCKETS + 1) as f64 / 1000.0);
        ratios.push(us / (one * (BUCKETS + 1) as f64));
        Ok(us / 1000.0)
    })?;
    Ok(Measured::new(times.median(), count)
        .target("≤ 20 × a get for each edge", ratios.median() <= 20.0)
        .peer("a get in process for each edge of a bucket", gets.median())
        .note(format!(
            "How many of {count} records each of {BUCKETS} buckets of time has, exactly, by one GET; the clocks of the \
             records at the edges are searched, and no record is read in between. {}; ratio in the same repetition {}.",
            times.spread(),
            ratios.spread()
        )))
}

pub fn listener(context: &Context) -> Outcome<Measured> {
    let count = if context.quick { 100_000 } else { 1_000_000 };
    let (mut alone, mut heard) = (Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(8) {
        alone.push(drained(context, count, false)?);
        heard.push(drained(context, count, true)?);
    }
    let (dir, seconds) = (context.fresh()?, if context.quick { 3 } else { 20 });
    drop(waiting(context, dir.path(), 0)?);
    let host = serve(context, dir)?;
    let mut idle = [0.0; 2];
    for (number, listens) in [false, true].into_iter().enumerate() {
        let _listener = listens.then(|| listen(&host)).transpose()?;
        let (before, start) = (host.cpu_s()?, Instant::now());
        thread::sleep(std::time::Duration::from_secs(seconds));
        idle[number] = (host.cpu_s()? - before) / start.elapsed().as_secs_f64() * 100.0;
    }
    let ratio = heard.median() / alone.median();
    Ok(Measured::new(heard.median(), count)
        .target("≤ 1.01 × without a listener", ratio <= 1.01)
        .target("≤ 1 % of a core on an idle host", idle[1] - idle[0] <= 1.0)
        .peer("without a listener", alone.median())
        .also("processor time of an idle host", idle[0], "%")
        .also("processor time of an idle host with a listener", idle[1], "%")
        .note(format!(
            "Processor time of the host for each of {count} runs of a Wasm function that does nothing, while a page \
             listens to `live?rates=1s`; {}; without it {}; ratio of the medians {ratio:.3}.",
            heard.spread(),
            alone.spread()
        )))
}

/// A namespace with so many pending runs.
fn waiting(context: &Context, dir: &Path, count: u64) -> Outcome<Namespace> {
    let namespace = namespace_with_logs(&dir.join("n"), Durability::Memory, &[("in", 1000)])?;
    let spec = function("f", Runtime::Wasm, "in")?;
    millrace_node::functions::deploy(&namespace, &spec, &functions::wasm(context, "nothing")?)?;
    runs::append(&namespace, count)?;
    Ok(namespace)
}

/// A page that listens, and reads what comes.
fn listen(host: &Host) -> Outcome<TcpStream> {
    let mut asking = Asking::new(host)?;
    asking.ask("live?rates=1s")?;
    let handle = asking.0.get_ref().try_clone()?;
    thread::spawn(move || std::io::copy(&mut asking.0, &mut std::io::sink()));
    Ok(handle)
}

/// Processor time of a host for one of these runs, in µs.
fn drained(context: &Context, count: u64, listens: bool) -> Outcome<f64> {
    let dir = context.fresh()?;
    let namespace = waiting(context, dir.path(), count)?;
    let host = serve(context, dir)?;
    let listener = listens.then(|| listen(&host)).transpose()?;
    let before = (host.cpu_s()?, runs::progress(&namespace, 1)?.1);
    runs::progress(&namespace, count)?;
    let used = host.cpu_s()? - before.0;
    if let Some(listener) = listener {
        listener.shutdown(std::net::Shutdown::Both)?;
    }
    Ok(used * 1e6 / (count - before.1) as f64)
}

/// Loads the dashboard in a browser: prints milliseconds until an overview shows its namespace, and until an empty page is loaded.
const BROWSER: &str = r#"
import json, os, sys, time
from playwright.sync_api import sync_playwright
arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
times = {"page": [], "empty": []}
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=arguments)
    for _ in range(int(sys.argv[2])):
        for name, url in [("empty", sys.argv[1] + "/healthz"), ("page", sys.argv[1] + "/ui/n")]:
            context = browser.new_context()
            page = context.new_page()
            start = time.monotonic()
            page.goto(url)
            if name == "page":
                page.get_by_role("heading", level=1).first.wait_for()
            times[name].append((time.monotonic() - start) * 1000)
            context.close()
    browser.close()
print(json.dumps(times))
"#;

pub fn first(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    drop(waiting(context, dir.path(), 1000)?);
    let host = serve(context, dir)?;
    let repetitions = context.repetitions(20);
    let mut command = Command::new(context.root.join(".venv/bin/python"));
    let url = format!("http://127.0.0.1:{}", host.port());
    let output = command.args(["-c", BROWSER, &url, &repetitions.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("the browser: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let times: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let median = |name: &str| {
        let mut repeated = Repeated::default();
        times[name].as_array().into_iter().flatten().filter_map(|ms| ms.as_f64()).for_each(|ms| repeated.push(ms));
        repeated
    };
    let (page, empty) = (median("page"), median("empty"));
    let ratio = page.median() / empty.median();
    Ok(Measured::new(page.median(), repetitions as u64)
        .target("≤ 10 × an empty page", ratio <= 10.0)
        .peer("a page of one line", empty.median())
        .note(format!(
            "From asking for the address to the heading of the overview, in Debian's Chromium with an empty cache, the \
             browser and the host on the same 2 cores; {}; ratio of the medians {ratio:.1}. The page of one line is \
             `/healthz`, {}.",
            page.spread(),
            empty.spread()
        )))
}
