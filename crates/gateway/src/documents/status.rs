//! The state of a namespace and of its host.

use super::Page;
use crate::Hosted;
use millrace_documents::LinksDoc;
use millrace_node::{
    Durability, HostStatus, Name, Namespace, Pin, Served,
    cluster::{BufferStat, Cluster, TopicStat},
    documents,
    links::Links,
};
use millrace_wire::Result;
use serde::Serialize;

/// The properties of a namespace.
#[derive(Serialize)]
pub(super) struct Summary {
    name: String,
    id: String,
    epoch: u32,
    durability: Durability,
    logs: usize,
    functions: usize,
}

impl Summary {
    pub fn of(name: &Name, namespace: &Namespace) -> Result<Summary> {
        let journal = namespace.journal();
        let catalog = journal.catalog()?;
        Ok(Summary {
            name: name.to_string(),
            id: journal.namespace().to_string(),
            epoch: journal.epoch(),
            durability: journal.durability(),
            logs: catalog.logs().count(),
            functions: catalog.functions().count(),
        })
    }
}

/// How it is.
#[derive(Serialize)]
pub(super) struct Status {
    name: String,
    id: String,
    epoch: u32,
    durability: Durability,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// That the disk is nearly full.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_low: Option<String>,
    /// The blockage of the journal, if it is sound but blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
    first: u64,
    tail: u64,
    durable: u64,
    /// Pins that protect entries from retention, if any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pins: Vec<PinDoc>,
    uptime_ms: u64,
    /// When the certificate that it shows expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_until_ms: Option<u64>,
    draining: bool,
    /// Where the host listens with TCP.
    addresses: Vec<String>,
    /// Records that wait here to be published to topics, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buffered: Vec<BufferStat>,
    host: Option<HostStatus>,
}

/// A part of the journal that retention leaves alone.
#[derive(Serialize)]
struct PinDoc {
    owner: String,
    from: u64,
    bytes_max: u64,
    until_ms: u64,
}

impl From<Pin> for PinDoc {
    fn from(pin: Pin) -> Self {
        let Pin { from, bytes_max, until_us, owner, .. } = pin;
        Self { owner, from, bytes_max, until_ms: until_us / 1000 }
    }
}

impl Status {
    pub fn of(hosted: &Hosted, served: &Served) -> Status {
        let (name, facts) = (served.name(), served.facts());
        let [first, tail, durable] = facts.positions();
        let failure = facts.check_health().err().or_else(|| facts.refusal());
        Status {
            name: name.to_string(),
            id: facts.id().to_string(),
            epoch: facts.epoch(),
            durability: facts.durability(),
            healthy: failure.is_none(),
            failure: failure.map(|error| error.to_string()),
            disk_low: facts.low_space().map(|low| millrace_node::low_space(low.available_bytes, low.needed_bytes)),
            blocked: served.blocked().map(|blocked| blocked.to_string()),
            first: first.get(),
            tail: tail.get(),
            durable: durable.get(),
            pins: facts.pins().into_iter().map(PinDoc::from).collect(),
            uptime_ms: u64::try_from(hosted.started().elapsed().as_millis()).unwrap_or(u64::MAX),
            certificate_until_ms: hosted.certificate_until_s().map(|until| until * 1000),
            draining: hosted.is_draining(),
            addresses: hosted.addresses.get().into_iter().flatten().map(ToString::to_string).collect(),
            buffered: served.cluster().and_then(|cluster| cluster.buffers().ok()).unwrap_or_default(),
            host: host_of(hosted, name),
        }
    }

    /// The same while a flush does not end: of the journal, only what is durable counts.
    pub fn of_durable(hosted: &Hosted, served: &Served) -> Status {
        let status = Status::of(hosted, served);
        Status { tail: status.durable, ..status }
    }
}

/// Its links to other namespaces.
pub(super) fn links(namespace: &Namespace, page: &Page) -> Result<LinksDoc> {
    let views = Links::of(namespace).view()?.into_iter().map(|view| (format!("{}/{}", view.kind, view.name), view));
    let (links, next) = page.of_list(views, |(name, _)| name, |(_, view)| Ok(Some(documents::link(view))))?;
    Ok(LinksDoc { links, next })
}

/// The activity of this namespace's host: the statuses are in the order of the namespaces.
pub(crate) fn host_of(hosted: &Hosted, name: &Name) -> Option<HostStatus> {
    let served = hosted.served().iter().find(|served| served.name() == name)?;
    served.facts().host()
}

/// The topics of its cluster.
#[derive(Serialize)]
pub(super) struct Topics {
    topics: Vec<TopicStat>,
    /// The topic after which the next page begins, if there are more.
    next: Option<String>,
}

impl Topics {
    pub fn of(cluster: &Cluster, page: &Page) -> Result<Topics> {
        let all = cluster.topics(&page.after, page.limit + 1);
        let (topics, next) = page.of_list(all, |topic| &topic.topic, |topic| Ok(Some(topic.clone())))?;
        Ok(Topics { topics, next })
    }
}
