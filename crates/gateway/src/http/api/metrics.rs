//! Numbers for Prometheus, in its text format. Written by hand: while the disk stalls, the samples that were reported last are
//! repeated, which a registry of live counters cannot do. A histogram is one sample, of all of its buckets.

use crate::{
    Hosted,
    documents::{Query, host_of},
    http::{
        response::{self, Response},
        session::Session,
    },
};
use hyper::{StatusCode, header::HeaderValue};
use millrace_node::{
    Access, Gated, LogName, Name, Namespace, Obstacle, Served,
    links::{LinkState, Links, OUTBOX_DEAD_LETTERS},
};
use millrace_wire::{
    Result,
    histogram::{BOUNDS_US, Buckets},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Display, Write},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::timeout;

/// The maximum number of logs and functions of a namespace with series of their own; more would burden the metrics database.
const SERIES_MAX: usize = 250;

/// How long counting and the gate may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Every number, by metric.
#[derive(Default)]
struct Metrics {
    families: BTreeMap<&'static str, Family>,
}

struct Family {
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl Metrics {
    fn add(&mut self, name: &'static str, kind: &'static str, help: &'static str, labels: &str, value: impl Display) {
        let family = self.families.entry(name).or_insert(Family { kind, help, samples: String::new() });
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(family.samples, "{name}{labels} {value}");
    }

    fn counter(&mut self, name: &'static str, help: &'static str, labels: &str, value: u64) {
        self.add(name, "counter", help, labels, value);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &str, value: impl Display) {
        self.add(name, "gauge", help, labels, value);
    }

    /// The buckets of a histogram, each with those below it, their sum and their count.
    fn histogram(&mut self, name: &'static str, help: &'static str, labels: &str, buckets: &Buckets) {
        let family = self.families.entry(name).or_insert(Family { kind: "histogram", help, samples: String::new() });
        let mut count = 0;
        for (bucket, more) in buckets.counts.iter().enumerate() {
            count += more;
            let bound = BOUNDS_US.get(bucket).map_or("+Inf".into(), |bound| (*bound as f64 / 1e6).to_string());
            let _ = writeln!(family.samples, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(family.samples, "{name}_sum{{{labels}}} {}", buckets.sum_us as f64 / 1e6);
        let _ = writeln!(family.samples, "{name}_count{{{labels}}} {count}");
    }

    fn text(self) -> String {
        self.families.into_iter().fold(String::new(), |mut text, (name, family)| {
            let Family { kind, help, samples } = family;
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
            text
        })
    }
}

/// All of the numbers.
pub(in crate::http) async fn text(session: &Session, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    let observes = |served: &Served| session.access(served.name()).and_then(|access| access.observes());
    session.hosted.served().iter().try_for_each(observes)?;
    let mut metrics = Metrics::default();
    of_server(&mut metrics, &session.hosted);
    session.hosted.served().iter().for_each(|served| of_disk(&mut metrics, served));
    for served in session.hosted.served() {
        let (hosted, access) = (session.hosted.clone(), session.access(served.name())?);
        // Counts wait at the gate like other answers; counting may take a while.
        let counted = timeout(PATIENCE, super::blocking(move || of_namespace(&hosted, &access))).await;
        // A stalled disk does not delay the collector, which gets the last reported samples.
        let samples = match counted {
            Ok(samples) => session.hosted.reported(served.name(), samples.unwrap_or_default()),
            Err(_late) => session.hosted.last_told(served.name()),
        };
        for (name, kind, help, labels, value) in samples.iter() {
            match value {
                Value::Number(number) => metrics.add(name, kind, help, labels, number),
                Value::Histogram(buckets) => metrics.histogram(name, help, labels, buckets),
            }
        }
    }
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(response::typed(StatusCode::OK, kind, metrics.text()))
}

fn of_server(metrics: &mut Metrics, hosted: &Hosted) {
    let counters = &hosted.counters;
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    metrics.gauge("millrace_info", "Version of the host.", version, 1);
    metrics.gauge(
        "millrace_uptime_seconds",
        "Time since the host started.",
        "",
        hosted.started().elapsed().as_secs_f64(),
    );
    if let Some(until) = hosted.certificate_until_s() {
        let help = "Time at which the host's certificate expires, in seconds since 1970.";
        metrics.gauge("millrace_certificate_expiry_timestamp_seconds", help, "", until);
    }
    let open = counters.connections.load(Relaxed);
    metrics.gauge("millrace_connections", "Open connections.", "", open);
    let help = "Accepted connections.";
    metrics.counter("millrace_connections_accepted_total", help, "", counters.accepted.load(Relaxed));
    let help = "Connections that were refused, or closed because of invalid or missing data.";
    metrics.counter("millrace_connections_dropped_total", help, "", counters.dropped.load(Relaxed));
    for (protocol, requests) in
        [("http", &counters.http_requests), ("wire", &counters.wire_requests), ("mqtt", &hosted.mqtt.packets)]
    {
        let labels = format!("protocol=\"{protocol}\"");
        metrics.counter("millrace_requests_total", "Answered requests.", &labels, requests.load(Relaxed));
    }
    let help = "Messages of MQTT with quality 0 that were not appended.";
    metrics.counter("millrace_mqtt_dropped_total", help, "", hosted.mqtt.dropped.load(Relaxed));
    let help = "Answers that were errors.";
    metrics.counter("millrace_failures_total", help, "", counters.failures.load(Relaxed));
    let help = "Bytes received over connections.";
    metrics.counter("millrace_received_bytes_total", help, "", counters.received_bytes.load(Relaxed));
    let help = "Bytes sent over connections.";
    metrics.counter("millrace_sent_bytes_total", help, "", counters.sent_bytes.load(Relaxed));
}

/// The state of the disk: reveals nothing about records, so it is sent at once, even when nothing else can be.
fn of_disk(metrics: &mut Metrics, served: &Served) {
    let (facts, labels) = (served.facts(), format!("namespace=\"{}\"", served.name()));
    let help = "Whether the journal accepts appends.";
    metrics.gauge("millrace_journal_healthy", help, &labels, u64::from(facts.check_health().is_ok()));
    let help = "Whether appends fail because the disk is full, read-only or broken.";
    metrics.gauge("millrace_journal_refusing", help, &labels, u64::from(facts.refusal().is_some()));
    let help = "Whether so little of the disk is free that the journal keeps less than `retain_bytes`, and that appends may fail soon.";
    metrics.gauge("millrace_disk_low", help, &labels, u64::from(facts.low_space().is_some()));
    if let Some(available) = facts.available_bytes() {
        let help = "Free space of the disk that the namespace is on.";
        metrics.gauge("millrace_disk_available_bytes", help, &labels, available);
    }
    let blocked = served.blocked();
    for (by, flush) in [("lock", false), ("flush", true)] {
        let time = blocked.as_ref().filter(|blocked| (blocked.by == Obstacle::Flush) == flush);
        let labels = format!("{labels},by=\"{by}\"");
        let help = "How long the journal has waited for its lock or for a flush; 0 if it does not wait.";
        metrics.gauge(
            "millrace_journal_blocked_seconds",
            help,
            &labels,
            time.map_or(0, |blocked| blocked.time.as_secs()),
        );
    }
}

/// Name, kind, help, labels and value.
pub(crate) type Sample = (&'static str, &'static str, &'static str, String, Value);

/// The value of a sample.
pub(crate) enum Value {
    Number(u64),
    Histogram(Box<Buckets>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<Buckets> for Value {
    fn from(buckets: Buckets) -> Self {
        Value::Histogram(Box::new(buckets))
    }
}

fn of_namespace(hosted: &Hosted, access: &Access) -> Gated<Vec<Sample>> {
    access.inspect(|namespace| {
        let mut samples = Vec::new();
        let name = access.served().name();
        journal(&mut samples, name, namespace);
        logs_and_functions(&mut samples, name, namespace)?;
        links(&mut samples, name, namespace)?;
        databases(&mut samples, name, namespace)?;
        replicas(&mut samples, name, namespace)?;
        topics(&mut samples, name, access.served())?;
        times(&mut samples, name, namespace)?;
        host(&mut samples, hosted, name);
        Ok(samples)
    })
}

fn databases(samples: &mut Vec<Sample>, name: &Name, namespace: &Namespace) -> Result<()> {
    for doc in millrace_node::documents::databases(namespace)? {
        let labels = format!("namespace=\"{name}\",database=\"{}\"", doc.database);
        let mut add =
            |metric, kind, help, value: u64| samples.push((metric, kind, help, labels.clone(), Value::Number(value)));
        add("millrace_database_unwritten_rows", "gauge", "Writes that the database does not have.", doc.unwritten);
        let help = "Bytes of keys and values that the database does not have.";
        add("millrace_database_unwritten_bytes", "gauge", help, doc.unwritten_bytes);
        let help = "Age of the oldest write that the database does not have, in milliseconds.";
        add("millrace_database_oldest_ms", "gauge", help, doc.oldest_ms.unwrap_or(0));
        add("millrace_database_waiting_answers", "gauge", "Answers that wait for the database.", doc.waiting);
        let help = "Whether something keeps the host from writing to the database.";
        add("millrace_database_trouble", "gauge", help, doc.trouble.is_some().into());
        let help = "Transactions that were written to the database since the host started.";
        add("millrace_database_transactions_total", "counter", help, doc.transactions);
        add("millrace_database_rows_total", "counter", "Rows of these transactions.", doc.rows);
        let help = "Writes that were not sent, because a later one of the same key was in their transaction.";
        add("millrace_database_coalesced_total", "counter", help, doc.coalesced);
        add("millrace_database_refused_total", "counter", "Transactions that the database refused.", doc.refused);
    }
    Ok(())
}

fn replicas(samples: &mut Vec<Sample>, name: &Name, namespace: &Namespace) -> Result<()> {
    for (table, stat) in namespace.replica_stats()?.into_iter().take(SERIES_MAX) {
        let labels = format!("namespace=\"{name}\",table=\"{}\"", escaped(&table));
        let mut add =
            |metric, help, value: u64| samples.push((metric, "gauge", help, labels.clone(), Value::Number(value)));
        let help = "Records that a replica lacks, as its owner last said.";
        add("millrace_replica_lag_records", help, stat.records.unwrap_or(0));
        let help = "For how long a replica may have lacked something, in milliseconds.";
        add("millrace_replica_lag_ms", help, stat.age_ms.unwrap_or(0));
        add("millrace_replica_connected", "Whether the owner of a replica answers.", stat.is_connected.into());
        let help = "Whether something keeps a replica from following its owner.";
        add("millrace_replica_trouble", help, stat.trouble.is_some().into());
    }
    Ok(())
}

fn journal(samples: &mut Vec<Sample>, name: &Name, namespace: &Namespace) {
    let journal = namespace.journal();
    let labels = format!("namespace=\"{name}\"");
    let mut gauge = |metric, help, value| samples.push((metric, "gauge", help, labels.clone(), Value::Number(value)));
    let (tail, durable, first) = (journal.tail().get(), journal.durable().get(), journal.first().get());
    gauge("millrace_journal_kept_bytes", "Bytes from the oldest entry to the newest.", tail.saturating_sub(first));
    let lag = tail.saturating_sub(durable);
    gauge("millrace_journal_durable_lag_bytes", "Bytes at the journal's end that may not be on disk yet.", lag);
    gauge("millrace_journal_epoch", "How often the journal was opened after a crash.", journal.epoch().into());
    let help = "Bytes ever written to the journal.";
    samples.push(("millrace_journal_written_bytes_total", "counter", help, labels, tail.into()));
}

fn logs_and_functions(samples: &mut Vec<Sample>, name: &Name, namespace: &Namespace) -> Result<()> {
    let (logs, functions) = (namespace.logs()?, namespace.functions()?);
    let labels = format!("namespace=\"{name}\"");
    samples.push(("millrace_logs", "gauge", "Number of logs.", labels.clone(), Value::Number(logs.len() as u64)));
    samples.push((
        "millrace_functions",
        "gauge",
        "Number of functions.",
        labels,
        Value::Number(functions.len() as u64),
    ));
    let mut dead_letters: BTreeSet<LogName> = OUTBOX_DEAD_LETTERS.parse().into_iter().collect();
    for function in functions.iter().take(SERIES_MAX) {
        let labels = format!("namespace=\"{name}\",function=\"{}\"", function.name);
        let mut add =
            |metric, kind, help, value| samples.push((metric, kind, help, labels.clone(), Value::Number(value)));
        let help = "Runs that records triggered.";
        add("millrace_function_triggered_total", "counter", help, function.triggered);
        add(
            "millrace_function_ended_total",
            "counter",
            "Runs that have ended, successfully or with a dead letter.",
            function.done,
        );
        add("millrace_function_pending", "gauge", "Runs that have not ended.", function.pending());
        if let Ok(definition) = &function.definition {
            dead_letters.insert(definition.spec.dead_letter.clone());
        }
    }
    for log in logs.iter().filter(|log| dead_letters.contains(&log.name)) {
        let labels = format!("namespace=\"{name}\",log=\"{}\"", log.name);
        let help = "Dead letters of failed runs and of messages that peers permanently refused, by dead-letter log.";
        samples.push(("millrace_dead_letters_total", "counter", help, labels.clone(), log.latest.into()));
        let help = "Dead letters that have left the history of their log.";
        let gone = log.earliest.saturating_sub(1);
        samples.push(("millrace_dead_letters_gone_total", "counter", help, labels, gone.into()));
    }
    // The number of the runtime's own logs grows with the peers, so only logs that users created are listed.
    for log in logs.iter().filter(|log| !log.name.starts_with('_')).take(SERIES_MAX) {
        let labels = format!("namespace=\"{name}\",log=\"{}\"", log.name);
        samples.push((
            "millrace_log_records_total",
            "counter",
            "Records ever appended to a log.",
            labels,
            log.latest.into(),
        ));
    }
    Ok(())
}

/// How long appends, flushes and runs took in this process.
fn times(samples: &mut Vec<Sample>, name: &Name, namespace: &Namespace) -> Result<()> {
    let labels = format!("namespace=\"{name}\"");
    let mut add = |metric, help, labels: &String, buckets: Buckets| {
        samples.push((metric, "histogram", help, labels.clone(), buckets.into()))
    };
    let help = "Time from a client's append to its answer, including the flush if the durability requires one.";
    add("millrace_append_duration_seconds", help, &labels, namespace.measures().append.now());
    add(
        "millrace_flush_duration_seconds",
        "Duration of flushes of the journal to disk.",
        &labels,
        namespace.journal().flushes(),
    );
    let catalog = namespace.journal().catalog()?;
    for (function, measures) in namespace.measures().functions(|name| catalog.function(name).is_some()) {
        let labels = format!("{labels},function=\"{function}\"");
        let help = "Duration of attempts of runs, whatever the outcome.";
        add("millrace_run_duration_seconds", help, &labels, measures.run.now());
        let help = "Time from the trigger of a run to its first attempt.";
        add("millrace_run_wait_seconds", help, &labels, measures.wait.now());
    }
    Ok(())
}

fn links(samples: &mut Vec<Sample>, name: &Name, namespace: &Namespace) -> Result<()> {
    for link in Links::of(namespace).view()?.into_iter().take(SERIES_MAX) {
        let labels = format!("namespace=\"{name}\",kind=\"{}\",link=\"{}\"", link.kind, escaped(&link.name));
        let mut add =
            |metric, kind, help, value| samples.push((metric, kind, help, labels.clone(), Value::Number(value)));
        let help = "Records that a link has not yet forwarded.";
        add("millrace_link_lag_records", "gauge", help, link.lag_records);
        add(
            "millrace_link_lag_bytes",
            "gauge",
            "Approximate size of the records that a link has not yet forwarded.",
            link.lag_bytes,
        );
        let help = "Number of the last record that is durable at the receiver.";
        add("millrace_link_acked_total", "counter", help, link.acked);
        add("millrace_link_lost_total", "counter", "Records that were lost before a link forwarded them.", link.lost);
        let help = "Messages that a peer permanently refused; each is a dead letter in dead/outbox.";
        add("millrace_link_dead_total", "counter", help, link.dead);
        let help = "Whether the other side answers. An outbox that has nothing to send needs no connection.";
        add("millrace_link_connected", "gauge", help, link.connected.into());
        let waiting = matches!(link.state, LinkState::Connecting | LinkState::Waiting | LinkState::NoHost);
        let help = "Whether a link is waiting; it continues automatically.";
        add("millrace_link_waiting", "gauge", help, waiting.into());
        let stopped = u64::from(link.state == LinkState::Stopped);
        add("millrace_link_stopped", "gauge", "Whether a link has stopped until an operator resumes it.", stopped);
    }
    Ok(())
}

/// Records that wait here to be published, and copies of topics.
fn topics(samples: &mut Vec<Sample>, name: &Name, served: &Served) -> Result<()> {
    let Some(cluster) = served.cluster() else { return Ok(()) };
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64); // until the year 584 million
    for buffer in cluster.buffers()?.into_iter().take(SERIES_MAX) {
        let labels = format!("namespace=\"{name}\",topic=\"{}\"", escaped(&buffer.topic));
        let mut add = |metric, help, value| samples.push((metric, "gauge", help, labels.clone(), Value::Number(value)));
        add(
            "millrace_topic_buffered_records",
            "Records on this host that wait to be published to a topic.",
            buffer.records,
        );
        add(
            "millrace_topic_buffered_bytes",
            "Size of the records on this host that wait to be published.",
            buffer.bytes,
        );
        let help = "Time since the oldest of the records that wait on this host was published.";
        add("millrace_topic_buffered_seconds", help, now_ms.saturating_sub(buffer.since_ms) / 1000);
    }
    for mirror in cluster.mirrors()?.into_iter().take(SERIES_MAX) {
        let (log, topic) = (escaped(&mirror.log), escaped(&mirror.topic));
        let labels = format!("namespace=\"{name}\",log=\"{log}\",topic=\"{topic}\"");
        let mut add = |metric, help, value| samples.push((metric, "gauge", help, labels.clone(), Value::Number(value)));
        let help = "Records of a topic that its mirror does not have yet, as far as this host knows.";
        add("millrace_mirror_lag_records", help, mirror.lag.unwrap_or(0));
        let help = "Whether a mirror cannot continue.";
        add("millrace_mirror_stopped", help, u64::from(mirror.trouble.is_some()));
    }
    Ok(())
}

/// A label's value as the text format writes it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn host(samples: &mut Vec<Sample>, hosted: &Hosted, name: &Name) {
    let labels = format!("namespace=\"{name}\"");
    let status = host_of(hosted, name);
    let running = status.as_ref().is_some_and(|status| status.failure.is_none());
    samples.push((
        "millrace_host_running",
        "gauge",
        "Whether the host runs functions.",
        labels.clone(),
        Value::Number(running.into()),
    ));
    if let Some(status) = status {
        let help = "Attempts of runs since the host started, by outcome.";
        for (outcome, count) in [("done", status.runs_done), ("failed", status.runs_failed)] {
            let labels = format!("{labels},outcome=\"{outcome}\"");
            samples.push(("millrace_attempts_total", "counter", help, labels, count.into()));
        }
    }
}
