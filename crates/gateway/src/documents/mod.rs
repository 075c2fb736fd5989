//! Documents: everything about a namespace that can be read and is not the bytes of records, as JSON text.
//!
//! The wire message SHOW and the HTTP paths below `/v1/namespaces/NAME/` answer the same text. The fields are those that
//! the command line prints with `--json`. Lists are objects with one list in them, so that they can grow.

mod asked;
mod flows;
mod functions;
mod journal;
mod logs;
mod objects;
mod query;
mod runs;
mod series;
mod status;
mod trace;

pub(crate) use flows::of as flows_of;
pub(crate) use query::{Query, invalid, segment, shown, whole_number};
pub(crate) use series::moment;
pub(crate) use status::host_of;

use crate::{Hosted, cluster::topics::replied, mqtt, wire::RemoteRequest};
use millrace_node::{
    Access, Gated, Namespace, Resource, Right, documents,
    manage::{Managed, Order, RecordForDevice, record_of, uploads::Uploads},
    repairs::{self, Ask},
};
use millrace_wire::{Code, Error, Result};
use query::segments;
use serde::Serialize;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;

/// Lists stop growing here, so that a document fits into a frame of the wire protocol.
const TEXT_MAX_BYTES: usize = 6 << 20;

/// What `why` is asked about begins so if it is a client of MQTT or a topic filter.
const MQTT: &str = "mqtt:";

/// A request up to this size is read at once.
const READ_AT_ONCE_BYTES: usize = 64 << 10;
/// How long the status of a namespace waits at the gate, and how long any other document does.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
const DOCUMENT_PATIENCE: Duration = Duration::from_secs(10);
/// Longer than an answer waits for a database.
const WRITTEN_PATIENCE: Duration = Duration::from_secs(40);

/// The document at `path_and_query`, such as `logs/raw%2Fkitchen` or `runs?state=dead`.
///
/// Some require reading many entries: other threads create those, a few at a time, and stop when the caller no longer waits.
pub async fn show(hosted: &Arc<Hosted>, access: &Access, path_and_query: &str) -> Result<String> {
    let asked = match Asked::parse(path_and_query) {
        Ok(asked) => asked,
        Err(error) => return access.refuse(error, None).await,
    };
    if let Asked::OfDevice { device, ask } = asked {
        return asked::answer(hosted, access, &device, ask).await;
    }
    if asked.is_quick() {
        let is_status = matches!(asked, Asked::Status);
        if is_status && let Err(error) = access.observes() {
            return Err(error);
        }
        let held = asked.answer(hosted, access, &Wanted::default());
        let patience = if is_status { STATUS_PATIENCE } else { DOCUMENT_PATIENCE };
        return match timeout(patience, held).await {
            Ok(document) => document,
            // The report of a stalled disk must not wait for the disk.
            Err(_) if is_status => text(&status::Status::of_durable(hosted, access.served())),
            Err(_) => Err(access.blocked()),
        };
    }
    let slow = if asked.is_slow() { Some(hosted.slow.clone().acquire_owned().await) } else { None };
    let wanted = Wanted::default();
    let _nobody_waits = wanted.until_dropped();
    let (of_work, of_thread) = (hosted.clone(), access.clone());
    let work = move || {
        let _slow = slow;
        asked.answer(&of_work, &of_thread, &wanted)
    };
    match tokio::task::spawn_blocking(work).await {
        // One that waits for a database says so itself, later.
        Ok(held) => {
            let patience = if held.needs_flush() { DOCUMENT_PATIENCE } else { WRITTEN_PATIENCE };
            timeout(patience, held).await.unwrap_or_else(|_| Err(access.blocked()))
        }
        Err(failed) => Err(Code::HostInternal.error(format!("the document could not be created: {failed}"))),
    }
}

/// Does work that may read much on a thread that may wait; its caller waits for it.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let failed = |failed| Code::HostInternal.error(format!("the document could not be created: {failed}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// Whether the caller still waits for a document.
#[derive(Clone, Default)]
struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// An error once the caller no longer waits.
    fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Code::HostInternal.error("the client that requested the document has closed the connection")),
        }
    }

    fn until_dropped(&self) -> impl Sized + use<> {
        struct Waits(Arc<AtomicBool>);
        impl Drop for Waits {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        Waits(self.0.clone())
    }
}

/// The document of a path.
enum Asked {
    Summary,
    Status,
    Logs { within: logs::Within, newest: bool, page: Page },
    Log(String),
    Tables,
    Databases,
    Rate { log: String, span: millrace_node::Span, buckets: u64 },
    Series { log: String, field: String, span: millrace_node::Span, points: u64 },
    Flows,
    Mqtt(Option<String>),
    Functions(Page),
    Function(String),
    Devices(Page),
    Device(String),
    Firmware(String),
    OfDevice { device: String, ask: RemoteRequest },
    Runs(millrace_node::RunFilter),
    Run(String),
    Output { run: String, from: u64 },
    Failures(runs::Since),
    Tasks,
    Why(String),
    Journal(journal::Part),
    Trace { event: String, filter: millrace_node::TraceFilter },
    Links(Page),
    Objects(Page),
    Object(String),
    Cluster,
    Groups,
    Topics(Page),
    Topic(String),
    Mirrors,
    Plans,
    Plan(u64),
    Repairs { after: u64, limit: usize },
    Repair(u64),
    Diff { repair: u64, log: Option<String>, after: u64 },
    Sent { repair: u64, after: u64 },
}

impl Asked {
    fn parse(path_and_query: &str) -> Result<Asked> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let segments = segments(path)?;
        let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
        let mut query = Query::parse(query)?;
        let asked = match segments.as_slice() {
            [] | [""] => Asked::Summary,
            ["status"] => Asked::Status,
            ["logs"] => Asked::Logs {
                within: logs::Within::of(&mut query)?,
                newest: query.flag("newest")?,
                page: Page::of(&mut query)?,
            },
            ["logs", log @ .., "rate"] if !log.is_empty() => Asked::Rate {
                log: log.join("/"),
                span: series::span(&mut query)?,
                buckets: series::parts(&mut query, "buckets")?,
            },
            ["logs", log @ .., "series"] if !log.is_empty() => Asked::Series {
                log: log.join("/"),
                field: series::field(&mut query)?,
                span: series::span(&mut query)?,
                points: series::parts(&mut query, "points")?,
            },
            ["logs", log @ ..] => Asked::Log(log.join("/")),
            ["tables"] => Asked::Tables,
            ["databases"] => Asked::Databases,
            ["flows"] => Asked::Flows,
            ["mqtt"] => Asked::Mqtt(query.take("of")),
            ["functions"] => Asked::Functions(Page::of(&mut query)?),
            ["functions", name] => Asked::Function(name.to_string()),
            ["devices"] => Asked::Devices(Page::of(&mut query)?),
            ["devices", name] => Asked::Device(name.to_string()),
            ["devices", device, "live", log @ ..] if !log.is_empty() => {
                Asked::OfDevice { device: device.to_string(), ask: asked::of(log.join("/"), &mut query)? }
            }
            ["devices", name, "firmware"] => Asked::Firmware(name.to_string()),
            ["runs"] => Asked::Runs(runs::filter(&mut query)?),
            ["runs", id] => Asked::Run(id.to_string()),
            ["runs", id, "output"] => {
                Asked::Output { run: id.to_string(), from: query.number("from", 0, u64::MAX)?.unwrap_or(0) }
            }
            ["failures"] => Asked::Failures(runs::Since::of(&mut query)?),
            ["tasks"] => Asked::Tasks,
            ["why"] => Asked::Why(String::new()),
            ["why", target @ ..] => Asked::Why(target.join("/")),
            ["trace", event @ ..] if !event.is_empty() => {
                Asked::Trace { event: event.join("/"), filter: trace::filter(&mut query)? }
            }
            ["links"] => Asked::Links(Page::of(&mut query)?),
            ["objects"] => Asked::Objects(Page::of(&mut query)?),
            ["objects", key @ ..] => Asked::Object(key.join("/")),
            ["cluster"] => Asked::Cluster,
            ["cluster", "groups"] => Asked::Groups,
            ["mirrors"] => Asked::Mirrors,
            ["topics"] => Asked::Topics(Page::of(&mut query)?),
            ["topics", topic @ ..] => Asked::Topic(topic.join("/")),
            ["plans"] => Asked::Plans,
            ["plans", number] => Asked::Plan(plan_number(number)?),
            ["repairs"] => Asked::Repairs {
                after: query.number("after", 0, u64::MAX)?.unwrap_or(0),
                limit: query.number("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT) as usize, // at most 10000
            },
            ["repairs", number] => Asked::Repair(repair_number(number)?),
            ["repairs", number, "diff"] => Asked::Diff {
                repair: repair_number(number)?,
                log: query.take("log"),
                after: query.number("after", 0, u64::MAX)?.unwrap_or(0),
            },
            ["repairs", number, "sent"] => {
                Asked::Sent { repair: repair_number(number)?, after: query.number("after", 0, u64::MAX)?.unwrap_or(0) }
            }
            ["journal"] => Asked::Journal(journal::Part::of(&mut query)?),
            _ => return Err(unknown(path)),
        };
        query.finish()?;
        Ok(asked)
    }

    /// Whether it takes no longer than reading a few records.
    fn is_quick(&self) -> bool {
        matches!(self, Asked::Summary | Asked::Status | Asked::Log(_) | Asked::Function(_) | Asked::Cluster)
    }

    /// Whether it reads the journal, all of it or much.
    fn is_slow(&self) -> bool {
        matches!(
            self,
            Asked::Runs(_)
                | Asked::Run(_)
                | Asked::Output { .. }
                | Asked::Failures(_)
                | Asked::Why(_)
                | Asked::Journal(_)
                | Asked::Trace { .. }
                | Asked::Rate { .. }
                | Asked::Series { .. }
                | Asked::Diff { .. }
                | Asked::Sent { .. }
        )
    }

    fn answer(self, hosted: &Hosted, access: &Access, wanted: &Wanted) -> Gated<String> {
        let of_namespace = Resource::NAMESPACE;
        match &self {
            Asked::Logs { .. } | Asked::Tables => {
                access.inspect_seen(|namespace| self.look(hosted, access, namespace, wanted))
            }
            Asked::Log(log) => {
                let log = log.clone();
                access.inspect_log(&log, |namespace| self.look(hosted, access, namespace, wanted))
            }
            Asked::Rate { log, .. } | Asked::Series { log, .. } => {
                let log = log.clone();
                let look = |namespace: &Namespace| self.look(hosted, access, namespace, wanted);
                access.inspect_records(Right::Read, Resource::log(&log), look)
            }
            Asked::Function(name) => {
                let name = name.clone();
                let on = Resource::function(&name);
                access.inspect_with(Right::Observe, on, |namespace| self.look(hosted, access, namespace, wanted))
            }
            Asked::Runs(millrace_node::RunFilter { function: Some(function), .. })
            | Asked::Failures(runs::Since { function: Some(function), .. }) => {
                let function = function.clone();
                let on = Resource::function(&function);
                // The errors of runs can contain what they have read.
                access.inspect_records(Right::Observe, on, |namespace| self.look(hosted, access, namespace, wanted))
            }
            Asked::Runs(_) | Asked::Failures(_) => access.inspect_records(Right::Observe, of_namespace, |namespace| {
                self.look(hosted, access, namespace, wanted)
            }),
            Asked::Run(id) | Asked::Output { run: id, .. } => {
                let id = id.clone();
                access.inspect_run(&id, |namespace| self.look(hosted, access, namespace, wanted))
            }
            // These contain data of records.
            Asked::Journal(_) | Asked::Trace { .. } | Asked::Diff { .. } => {
                access.inspect_records(Right::Read, of_namespace, |namespace| {
                    self.look(hosted, access, namespace, wanted)
                })
            }
            // The initiator of a repair asks, which takes part with the right to give records other values.
            Asked::Sent { .. } => access
                .inspect_records(Right::Repair, of_namespace, |namespace| self.look(hosted, access, namespace, wanted)),
            _ => access.inspect(|namespace| self.look(hosted, access, namespace, wanted)),
        }
    }

    fn look(self, hosted: &Hosted, access: &Access, namespace: &Namespace, wanted: &Wanted) -> Result<String> {
        let name = access.served().name();
        match self {
            Asked::Summary => text(&status::Summary::of(name, namespace)?),
            Asked::Status => text(&status::Status::of(hosted, access.served())),
            Asked::Logs { within, newest, page } => {
                text(&logs::list(namespace, |log| access.sees(log), &within, newest, &page)?)
            }
            Asked::Rate { log, span, buckets } => {
                text(&millrace_node::rate(namespace, &log, span, buckets, &|| wanted.check())?)
            }
            Asked::Series { log, field, span, points } => {
                text(&millrace_node::series(namespace, &log, &field, span, points, &|| wanted.check())?)
            }
            Asked::Log(log) => text(&documents::log_named(namespace, &log)?),
            Asked::Tables => {
                let tables = documents::tables(namespace, &|table| access.sees(table))?;
                text(&serde_json::json!({ "tables": tables }))
            }
            Asked::Databases => text(&serde_json::json!({ "databases": documents::databases(namespace)? })),
            Asked::Flows => text(&flows::of(namespace)?),
            Asked::Mqtt(of) => text(&mqtt::clients(&hosted.mqtt, access.served(), of.as_deref())),
            Asked::Functions(page) => text(&functions::list(namespace, &page)?),
            Asked::Function(function) => text(&documents::function_named(namespace, &function)?),
            Asked::Devices(page) => text(&functions::devices(hosted, namespace, access.served().name(), &page)?),
            Asked::Device(name) => text(&functions::device(hosted, namespace, access.served().name(), &name)?),
            // Asked of the device itself: see `show`.
            Asked::OfDevice { device, .. } => Err(Code::DeviceAsleep.error(format!("{device} is not asked here"))),
            // A device that cannot be updated, and was not to be, has no members.
            Asked::Firmware(name) => text(&millrace_node::devices::one(namespace, &name)?.firmware.unwrap_or_default()),
            Asked::Runs(filter) => text(&runs::list(namespace, &filter)?),
            Asked::Run(id) => text(&documents::run_named(namespace, &id)?),
            Asked::Output { run, from } => text(&documents::output(namespace, &run, from)?),
            Asked::Failures(since) => text(&runs::failures(namespace, &since, &|| wanted.check())?),
            Asked::Tasks => text(&documents::tasks(namespace, host_of(hosted, name).as_ref())?),
            Asked::Why(target) => match target.strip_prefix(MQTT).or((target == "mqtt").then_some("")) {
                Some(of) => {
                    let of = (!of.is_empty()).then_some(of);
                    text(&mqtt::why(&hosted.mqtt, access.served(), of))
                }
                None => text(&documents::why(namespace, &target)?),
            },
            Asked::Journal(part) => text(&part.read(namespace, || wanted.check())?),
            Asked::Trace { event, filter } => trace::text(namespace, &event, &filter, &|| wanted.check()),
            Asked::Links(page) => text(&status::links(namespace, &page)?),
            Asked::Objects(page) => text(&objects::list(access, &page)?),
            Asked::Object(key) => text(&objects::one(access, &key)?),
            Asked::Cluster => text(&access.of_cluster()?.stat()),
            Asked::Groups => text(&access.of_cluster()?.groups()),
            Asked::Topics(page) => text(&status::Topics::of(access.of_cluster()?, &page)?),
            Asked::Topic(topic) => text(&access.of_cluster()?.topic(&topic)?),
            Asked::Mirrors => text(&access.of_cluster()?.mirrors()?),
            Asked::Repairs { after, limit } => {
                let (mut list, mut bounded, mut next) = (Vec::new(), Bounded::new(), None);
                for repair in repairs::repairs(namespace)?.into_iter().filter(|repair| repair.repair > after) {
                    if list.len() == limit || !bounded.admits(&repair) {
                        next = list.last().map(|last: &repairs::Repair| last.repair);
                        break;
                    }
                    list.push(repair);
                }
                let amendments = repairs::amendments(namespace)?;
                text(&serde_json::json!({ "repairs": list, "amendments": amendments, "next": next }))
            }
            Asked::Plans => text(&serde_json::json!({ "plans": access.plans() })),
            Asked::Plan(number) => text(&access.plan(number)?),
            Asked::Repair(number) => text(&repairs::repair(namespace, number)?),
            Asked::Sent { repair, after } => text(&repairs::sent_page(namespace, repair, after)?),
            Asked::Diff { repair, log, after } => text(&repairs::page(namespace, repair, log.as_deref(), after)?),
        }
    }
}

fn plan_number(segment: &str) -> Result<u64> {
    segment.parse().map_err(|_| Code::PlanNotFound.error(format!("no plan '{}'", segment.escape_debug())))
}

fn repair_number(segment: &str) -> Result<u64> {
    segment.parse().map_err(|_| Code::RepairNotFound.error(format!("no repair '{}'", segment.escape_debug())))
}

/// Asks something of repairs, on a thread that may wait; the repair as JSON text.
pub(crate) async fn ask_repair(hosted: &Hosted, access: Access, json: String) -> Result<String> {
    // Corrections may be many: no event loop reads them.
    let ask = move |access: &Access| match Ask::parse(&json) {
        Ok(ask) => access.ask_repair(ask),
        Err(error) => access.refuse(error, None),
    };
    text(&hosted.define(access, ask).await?)
}

/// Executes a change of functions, relays or logs, on a thread that may wait; returns the result as JSON text.
pub(crate) async fn manage(
    hosted: &Hosted,
    access: Access,
    json: String,
    uploads: Option<Arc<Uploads>>,
) -> Result<String> {
    let order = match json.len() <= READ_AT_ONCE_BYTES {
        true => Order::parse(&json)?,
        // No event loop reads a long one.
        false => tokio::task::spawn_blocking(move || Order::parse(&json))
            .await
            .map_err(|failed| Code::HostInternal.error(failed.to_string()))??,
    };
    if matches!(order, Order::RotateClusterSecret) {
        // The line in the audit log is a commit.
        let cluster = tokio::task::spawn_blocking(move || access.rotate_cluster_secret().cloned())
            .await
            .map_err(|failed| Code::HostInternal.error(failed.to_string()))??;
        return text(&Managed::SecretRotated(replied(|reply| cluster.rotate_secret(reply)).await?));
    }
    if let Order::AppendOnDevice(RecordForDevice { device, log, data, base64 }) = order {
        let record = record_of(data, base64)?;
        return asked::append(hosted, &access, device, log, record).await;
    }
    let deploys = matches!(order, Order::Up(_) | Order::Down(_));
    let act = move |access: &Access| access.manage(order, uploads.as_deref());
    let managed = if deploys { hosted.deploy(access, act).await? } else { hosted.define(access, act).await? };
    text(&managed)
}

/// The SHA-256 of an image. No event loop computes that.
pub(crate) async fn hash_of_image(image: hyper::body::Bytes) -> Result<String> {
    let hashed = tokio::task::spawn_blocking(move || millrace_node::devices::updates::hash_of(&image)).await;
    hashed.map_err(|failed| Code::HostInternal.error(failed.to_string()))
}

fn text(document: &impl Serialize) -> Result<String> {
    serde_json::to_string(document)
        .map_err(|error| Code::HostInternal.error(format!("the document cannot be written as JSON: {error}")))
}

pub(crate) fn unknown(path: &str) -> Error {
    let shown: String = path.chars().take(80).flat_map(char::escape_debug).collect();
    Code::HttpPathUnknown.error(format!("there is nothing at '{shown}'"))
}

/// The name, id and size of each of these namespaces.
pub(crate) fn namespaces(hosted: &Hosted, accesses: &[Access]) -> Vec<Gated<String>> {
    accesses.iter().map(|access| Asked::Summary.answer(hosted, access, &Wanted::default())).collect()
}

/// Which part of a list of names is asked for.
struct Page {
    after: String,
    limit: usize,
}

/// Most items of one answer, and how many there are by default.
const LIMIT_MAX: u64 = 10_000;
const LIMIT: u64 = 1000;

impl Page {
    fn of(query: &mut Query) -> Result<Page> {
        let limit = query.number("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT) as usize; // at most 10000
        Ok(Page { after: query.take("after").unwrap_or_default(), limit })
    }

    /// A part of a list, which is ordered by name, and the name after which the next part begins, if any.
    fn of_list<I, D: Serialize>(
        &self,
        items: impl IntoIterator<Item = I>,
        name: impl Fn(&I) -> &str,
        document: impl Fn(&I) -> Result<Option<D>>,
    ) -> Result<(Vec<D>, Option<String>)> {
        let (mut list, mut bounded, mut last) = (Vec::new(), Bounded::new(), None);
        for item in items {
            if name(&item) <= &*self.after && !self.after.is_empty() {
                continue;
            }
            let Some(one) = document(&item)? else { continue };
            if list.len() == self.limit || !bounded.admits(&one) {
                return Ok((list, last));
            }
            list.push(one);
            last = Some(name(&item).to_owned());
        }
        Ok((list, None))
    }
}

/// A list that stays within what a document may hold: items for as long as their texts fit.
struct Bounded {
    left: usize,
}

impl Bounded {
    fn new() -> Self {
        Self { left: TEXT_MAX_BYTES }
    }

    /// Whether one more item still fits; the first always does: what one says is bounded.
    fn admits(&mut self, item: &impl Serialize) -> bool {
        struct Count(usize);
        impl std::io::Write for Count {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0 += bytes.len();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut count = Count(0);
        let counted = serde_json::to_writer(&mut count, item).is_ok();
        let first = self.left == TEXT_MAX_BYTES;
        let fits = counted && (first || count.0 <= self.left);
        self.left = if fits { self.left.saturating_sub(count.0 + 1) } else { 0 };
        fits
    }
}
