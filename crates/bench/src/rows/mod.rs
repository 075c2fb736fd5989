//! One module for each figure: its definition, its measurement, and its target.

mod capability;
mod chain;
mod databases;
mod devices;
mod dispatch;
mod durable;
mod get;
mod history;
mod host;
mod journal;
mod node;
mod objects;
mod pages;
mod python;
mod recover;
mod remote;
mod runs;
mod sandbox;
mod small;
mod storm;
mod tables;
mod topics;

use crate::{
    Context, Outcome,
    machine::{self, Busy},
    measure::Samples,
    report::{Figure, Point, Row, picture_of},
};
use millrace_journal::{CreateOptions, Durability, Journal, Log};
use millrace_node::{FunctionSpec, Namespace, Runtime};
use millrace_wire::EventId;
use std::{collections::BTreeMap, path::Path};

/// The record that is appended unless a row says otherwise.
pub const PAYLOAD: [u8; 1024] = [7; 1024];

/// A row before it is measured.
pub struct Spec {
    pub id: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    run: fn(&Context) -> Outcome<Measured>,
}

/// Every row, in the order of the report. The ids are stable.
pub const ALL: &[Spec] = &[
    Spec {
        id: "journal.append",
        what: "append 1 KiB in process, memory, 2 M in a row, mean",
        unit: "µs",
        run: journal::append,
    },
    Spec { id: "journal.cold", what: "append 1 KiB on fresh segments, p99", unit: "µs", run: journal::cold },
    Spec { id: "log.get", what: "get 1 KiB, the same record again, mean", unit: "µs", run: get::get },
    Spec {
        id: "node.append",
        what: "append 1 KiB by names with one bound function, memory, 2 M in a row, mean",
        unit: "µs",
        run: node::append,
    },
    Spec { id: "logs.10k", what: "append 1 KiB to 10 000 logs in turn, mean", unit: "µs", run: node::many_logs },
    Spec { id: "dispatch.wasm", what: "append to first instruction, Wasm, p50", unit: "µs", run: dispatch::wasm },
    Spec {
        id: "dispatch.python", what: "append to first instruction, Python, p50", unit: "µs", run: dispatch::python
    },
    Spec {
        id: "dispatch.process",
        what: "append to first instruction, process, p50",
        unit: "µs",
        run: dispatch::process,
    },
    Spec {
        id: "dispatch.oneshot",
        what: "append to first instruction, process per record, p50",
        unit: "µs",
        run: dispatch::oneshot,
    },
    Spec { id: "idle.result", what: "append to result on an idle host, Wasm, p50", unit: "µs", run: dispatch::idle },
    Spec {
        id: "sandbox.start",
        what: "append to first instruction, Python, first run in its sandbox",
        unit: "ms",
        run: sandbox::start,
    },
    Spec { id: "runs.wasm", what: "sustained no-op runs, Wasm", unit: "/s", run: runs::wasm },
    Spec { id: "runs.python", what: "sustained no-op runs, Python", unit: "/s", run: runs::python },
    Spec { id: "runs.list", what: "`run ls` among 5 M runs, the whole process", unit: "ms", run: runs::list::list },
    Spec { id: "durable.append.1", what: "append 1 KiB to disk, one client, p50", unit: "µs", run: durable::one },
    Spec { id: "durable.append.64", what: "append 1 KiB to disk, 64 threads", unit: "/s", run: durable::many },
    Spec {
        id: "chain5.durable",
        what: "append, 5 chained Wasm functions, durable result, p50",
        unit: "µs",
        run: chain::durable,
    },
    Spec {
        id: "small.bytes",
        what: "size on disk of a record of 16 bytes in a batch of 100",
        unit: "B",
        run: small::bytes,
    },
    Spec { id: "recover.1gib", what: "open 1 GiB after a kill", unit: "ms", run: recover::bytes },
    Spec { id: "recover.1m", what: "open with 1 M pending triggers after a kill", unit: "ms", run: recover::triggers },
    Spec { id: "host.ready", what: "start of the program to the first run done", unit: "ms", run: host::ready },
    Spec { id: "host.rss", what: "resident memory of an idle host", unit: "MB", run: host::rss },
    Spec { id: "host.size", what: "size of the program, without symbols", unit: "MB", run: host::size },
    Spec { id: "python.append", what: "append 1 KiB from Python, mean", unit: "ns", run: python::append },
    Spec { id: "python.get", what: "get 1 KiB from Python, mean", unit: "ns", run: python::get },
    Spec {
        id: "remote.append",
        what: "append 1 KiB through a host, memory, p50",
        unit: "µs",
        run: remote::append::append,
    },
    Spec {
        id: "tls.append",
        what: "append 1 KiB through a host with TLS, memory, p50",
        unit: "µs",
        run: remote::secure::tls,
    },
    Spec {
        id: "channel.append",
        what: "append 1 KiB through a host over the encrypted channel, memory, p50",
        unit: "µs",
        run: remote::secure::channel,
    },
    Spec {
        id: "remote.pipelined",
        what: "append 100 bytes through a host, window 64, 1 connection",
        unit: "/s",
        run: remote::pipelined::pipelined,
    },
    Spec {
        id: "remote.durable.1",
        what: "append 1 KiB to disk through a host, one client, p50",
        unit: "µs",
        run: remote::durable::one,
    },
    Spec {
        id: "remote.durable",
        what: "append 1 KiB to disk through a host, 64 connections",
        unit: "/s",
        run: remote::durable::durable,
    },
    Spec {
        id: "http.append",
        what: "append 1 KiB over HTTP, memory, 64 connections",
        unit: "/s",
        run: remote::http::append,
    },
    Spec {
        id: "mqtt.publish",
        what: "pass on messages of 100 bytes over MQTT with QoS 0, memory, one client to one",
        unit: "/s",
        run: remote::mqtt::publish,
    },
    Spec {
        id: "mqtt.acknowledged",
        what: "append 100 bytes to disk over MQTT with QoS 1, 100 clients with 16 in flight",
        unit: "/s",
        run: remote::mqtt::many,
    },
    Spec {
        id: "mqtt.latency",
        what: "append 100 bytes to disk over MQTT with QoS 1, one client, p50",
        unit: "µs",
        run: remote::mqtt::one,
    },
    Spec { id: "object.call", what: "increment a shared object, one client, p50", unit: "µs", run: objects::call },
    Spec { id: "object.many", what: "increment 800 shared objects, 200 clients", unit: "/s", run: objects::many },
    Spec { id: "object.barrier", what: "release 1800 waiters of a barrier", unit: "ms", run: objects::barrier },
    Spec { id: "executor.map", what: "map 1000 tasks that do nothing", unit: "ms", run: objects::map },
    Spec {
        id: "object.kmeans",
        what: "access to shared state in an iteration of k-means, p50",
        unit: "µs",
        run: objects::kmeans,
    },
    Spec {
        id: "object.blocked",
        what: "increment a shared object while 1000 calls wait, p99",
        unit: "µs",
        run: objects::blocked,
    },
    Spec {
        id: "object.failover",
        what: "restart of a lost host until nine tenths of the initial rate, 100 clients, rf 2",
        unit: "s",
        run: objects::failover,
    },
    Spec { id: "tail.lag", what: "append to a following client, p50", unit: "µs", run: remote::tail::lag },
    Spec { id: "outbox.rate", what: "appends to another host", unit: "/s", run: remote::links::outbox },
    Spec {
        id: "relay.catchup",
        what: "transfer of a log to another host after an outage",
        unit: "MB/s",
        run: remote::links::catchup,
    },
    Spec {
        id: "conns.10k",
        what: "resident memory with 10 000 idle connections",
        unit: "MB",
        run: remote::connections::ten_thousand,
    },
    Spec {
        id: "storm.rate",
        what: "records through three functions, host killed every 300 ms",
        unit: "/s",
        run: storm::rate,
    },
    Spec {
        id: "restart.resume",
        what: "after a kill under load: start of the next host to its first pending run done",
        unit: "ms",
        run: storm::resume,
    },
    Spec {
        id: "held.load",
        what: "appends sustained for 60 s with p99 ≤ 10 ms, disk, 3 functions",
        unit: "/s",
        run: remote::load::held,
    },
    Spec { id: "cap.verify.1", what: "verify a capability of 1 block", unit: "µs", run: capability::verify_1 },
    Spec { id: "cap.verify.3", what: "verify a capability of 3 blocks", unit: "µs", run: capability::verify_3 },
    Spec { id: "cap.verify.5", what: "verify a capability of 5 blocks", unit: "µs", run: capability::verify_5 },
    Spec { id: "cap.request", what: "access check of a request, 5 blocks", unit: "µs", run: capability::request },
    Spec {
        id: "repair.discover",
        what: "find the runs that a correction affects, 79 316 events",
        unit: "ms",
        run: history::found,
    },
    Spec { id: "merge.two", what: "read and merge two journals, 79 316 events", unit: "ms", run: history::two },
    Spec { id: "merge.eight", what: "merge 8 journals of 1 M events", unit: "M/s", run: history::eight },
    Spec {
        id: "repair.replay",
        what: "replay and apply, 1 record in 100 corrected, 18 000 runs",
        unit: "ms",
        run: history::replay,
    },
    Spec { id: "repair.live", what: "append 1 KiB while a repair replays, p50", unit: "µs", run: history::live },
    Spec { id: "repair.pause", what: "longest append while a repair is applied", unit: "µs", run: history::pause },
    Spec { id: "journal.cost", what: "recording the reads of a run, per read", unit: "ns", run: history::cost },
    Spec {
        id: "topic.publish",
        what: "publish 8 KiB, flushed by two of three hosts, pipelined",
        unit: "/s",
        run: topics::publish,
    },
    Spec {
        id: "topic.function",
        what: "publish to the first instruction on another host, Wasm, p50",
        unit: "µs",
        run: topics::function_lag,
    },
    Spec {
        id: "topic.get",
        what: "get 1 KiB of a topic through any of three hosts, p50",
        unit: "µs",
        run: topics::get,
    },
    Spec {
        id: "topic.failover",
        what: "kill of a leader to the next acknowledged publish, p50",
        unit: "ms",
        run: topics::failover,
    },
    Spec {
        id: "topic.find",
        what: "find the group of a topic among 10 000 groups, in the memory of a host",
        unit: "ns",
        run: topics::find,
    },
    Spec {
        id: "topic.groups",
        what: "processor time of a host with 1000 groups without work",
        unit: "%",
        run: topics::groups,
    },
    Spec {
        id: "topic.amplification",
        what: "bytes written per byte published, per host, 8 KiB",
        unit: "",
        run: topics::amplification,
    },
    Spec { id: "page.first", what: "the dashboard in a browser with an empty cache", unit: "ms", run: pages::first },
    Spec {
        id: "page.jump",
        what: "a page of 100 of 10 M records over HTTP, anywhere, p50",
        unit: "µs",
        run: pages::jump,
    },
    Spec { id: "page.rate", what: "10 M records counted in 400 buckets of time", unit: "ms", run: pages::rate },
    Spec {
        id: "page.listener",
        what: "processor time of a run while a page listens, Wasm",
        unit: "µs",
        run: pages::listener,
    },
    Spec { id: "gate.cost", what: "time of the gate for an answer, memory", unit: "ns", run: remote::gate::cost },
    Spec {
        id: "table.put",
        what: "put 100 bytes under one of 1 M keys in process, memory, mean",
        unit: "µs",
        run: tables::put,
    },
    Spec { id: "table.get", what: "get 100 bytes of random ones of 1 M keys, mean", unit: "µs", run: tables::get },
    Spec { id: "table.scan", what: "scan 1 M keys with values of 100 bytes", unit: "/s", run: tables::scan },
    Spec {
        id: "table.open",
        what: "open a namespace with a table of 1 M keys, to the first get",
        unit: "ms",
        run: tables::open,
    },
    Spec {
        id: "table.remote",
        what: "put 100 bytes through a host, memory, one client, p50",
        unit: "µs",
        run: tables::remote,
    },
    Spec {
        id: "db.writebehind",
        what: "puts of 100 bytes that a host writes to PostgreSQL",
        unit: "/s",
        run: databases::writebehind,
    },
    Spec {
        id: "db.curves",
        what: "a function that writes, to everything written, database 23 ms away, ratio to E + w",
        unit: "",
        run: databases::curves,
    },
    Spec {
        id: "db.independent",
        what: "append that depends on no unwritten write while the database is dead, p99",
        unit: "µs",
        run: databases::independent,
    },
    Spec {
        id: "device.append",
        what: "append and flush a record of 16 bytes on a Cortex-M3",
        unit: "instructions",
        run: devices::board::append,
    },
    Spec {
        id: "device.get",
        what: "get the newest record of 16 bytes on a Cortex-M3",
        unit: "instructions",
        run: devices::board::get,
    },
    Spec {
        id: "device.run",
        what: "run a function that appends a record on a Cortex-M3",
        unit: "instructions",
        run: devices::board::run,
    },
    Spec {
        id: "device.verify",
        what: "verify a capability of five blocks on a Cortex-M3",
        unit: "instructions",
        run: devices::board::verify,
    },
    Spec {
        id: "device.fleet",
        what: "records of 1000 devices that wake, send and sleep, to the disk of one host",
        unit: "/s",
        run: devices::fleet::fleet,
    },
    Spec {
        id: "device.path",
        what: "a record from a device over the edge to the cloud, a copy on each, 30 ms of delays, p50",
        unit: "ms",
        run: devices::path::path,
    },
];

/// What a row's measurement comes to.
pub struct Measured {
    value: f64,
    p50: Option<f64>,
    p99: Option<f64>,
    samples: u64,
    peers: BTreeMap<String, f64>,
    targets: Vec<String>,
    met: bool,
    also: Vec<Figure>,
    curve: Vec<Point>,
    drawing: Option<String>,
    note: Vec<String>,
}

impl Measured {
    pub fn new(value: f64, samples: u64) -> Self {
        Self {
            value,
            p50: None,
            p99: None,
            samples,
            peers: BTreeMap::new(),
            targets: Vec::new(),
            met: true,
            also: Vec::new(),
            curve: Vec::new(),
            drawing: None,
            note: Vec::new(),
        }
    }

    /// The distribution in the row's unit, µs.
    pub fn spread_us(mut self, samples: &Samples) -> Self {
        (self.p50, self.p99) = (Some(samples.p50_us()), Some(samples.p99_us()));
        self
    }

    pub fn percentiles(mut self, p50: f64, p99: f64) -> Self {
        (self.p50, self.p99) = (Some(p50), Some(p99));
        self
    }

    pub fn peer(mut self, name: &str, value: f64) -> Self {
        self.peers.insert(name.into(), value);
        self
    }

    /// What the row must reach, and whether it does. All of them count.
    pub fn target(mut self, text: impl Into<String>, met: bool) -> Self {
        self.targets.push(text.into());
        self.met &= met;
        self
    }

    pub fn also(mut self, name: &str, value: f64, unit: &str) -> Self {
        self.also.push(Figure { name: name.into(), value, unit: unit.into() });
        self
    }

    /// What becomes of different loads.
    pub fn curve(mut self, curve: Vec<Point>) -> Self {
        self.curve = curve;
        self
    }

    /// A picture for the page, as SVG.
    pub fn drawing(mut self, svg: String) -> Self {
        self.drawing = Some(svg);
        self
    }

    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.note.push(text.into());
        self
    }
}

/// Measures one row.
pub fn measure(spec: &Spec, context: &Context) -> Outcome<Row> {
    // What the rows before have left to be written would go on under this one.
    std::process::Command::new("sync").arg("-f").arg(&context.dir).status()?;
    let busy = Busy::now()?;
    let measured = (spec.run)(context)?;
    Ok(Row {
        id: spec.id.into(),
        value: measured.value,
        unit: spec.unit.into(),
        p50: measured.p50,
        p99: measured.p99,
        samples: measured.samples,
        peers: measured.peers,
        target: measured.targets.join("; "),
        met: measured.met,
        also: measured.also,
        curve: measured.curve,
        picture: measured.drawing.is_some().then(|| picture_of(spec.id)),
        drawing: measured.drawing,
        note: measured.note.join(" ").trim_end().to_owned(),
        machine: None,
        date: machine::now(),
        commit: machine::commit(&context.root),
        others_cpu_percent: busy.others_percent()?,
    })
}

/// Appends `count` records, one batch each.
pub fn fill(journal: &Journal, log: &Log, count: u64) -> Outcome<()> {
    for _ in 0..count {
        journal.commit(|batch| batch.append(log, &PAYLOAD, EventId::NONE, 0))?;
    }
    Ok(())
}

/// A journal with a log `a`, not yet written to.
pub fn journal_with_log(
    dir: &Path,
    durability: Durability,
    retain_bytes: u64,
    history: u64,
) -> Outcome<(Journal, Log)> {
    let options = CreateOptions { retain_bytes, durability, ..CreateOptions::default() };
    let journal = Journal::create(dir, &options)?;
    let log = journal.commit(|batch| batch.create_log(&"a".parse()?, history))?.value;
    Ok((journal, log))
}

/// A namespace with logs of these names and histories.
pub fn namespace_with_logs(dir: &Path, durability: Durability, logs: &[(&str, u64)]) -> Outcome<Namespace> {
    // Room for what a row appends without giving anything back, so that retention is no part of it.
    let options = CreateOptions { retain_bytes: 4 << 30, durability, ..CreateOptions::default() };
    let namespace = Namespace::create(dir, &options)?;
    for (name, history) in logs {
        namespace.create_log(&name.parse()?, *history)?;
    }
    Ok(namespace)
}

/// A function bound to one log, with every limit at its default but for the queue.
pub fn function(name: &str, runtime: Runtime, log: &str) -> Outcome<FunctionSpec> {
    let mut spec = FunctionSpec::new(name.parse()?, runtime);
    spec.on = vec![log.parse()?];
    // Rows that build up a backlog on purpose must not be refused.
    spec.pending_max = millrace_node::PENDING_MAX;
    Ok(spec)
}

/// A path as an argument of a child.
pub fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| format!("{} is not text", path.display()).into())
}
