//! Paths: which request asks for what.

use super::response;
use crate::documents::{segment, unknown};
use hyper::Method;
use millrace_wire::Result;
use std::borrow::Cow;

/// Most segments of a path: more than any log's name has.
const SEGMENTS_MAX: usize = 16;

fn is_log(segments: &[&str]) -> bool {
    !segments.is_empty() && segments.iter().all(|segment| !segment.is_empty())
}

/// The name of a log whose slashes may be escaped or not.
fn log_name<'p>(segments: &[&'p str]) -> Result<Cow<'p, str>> {
    match segments {
        [only] => segment(only),
        several => several.iter().map(|one| segment(one)).collect::<Result<Vec<_>>>().map(|all| all.join("/").into()),
    }
}

/// The handler of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'p> {
    Root,
    OpenApi,
    Health,
    Ready,
    Metrics,
    Namespaces,
    /// Records of several logs at once.
    Batch {
        namespace: Cow<'p, str>,
    },
    Log {
        namespace: Cow<'p, str>,
        log: Cow<'p, str>,
    },
    Records {
        namespace: Cow<'p, str>,
        log: Cow<'p, str>,
    },
    Record {
        namespace: Cow<'p, str>,
        log: Cow<'p, str>,
        which: Cow<'p, str>,
    },
    Tail {
        namespace: Cow<'p, str>,
        log: Cow<'p, str>,
    },
    /// A document about the records of a log.
    OfLog {
        namespace: Cow<'p, str>,
        log: Cow<'p, str>,
        part: &'p str,
    },
    Table {
        namespace: Cow<'p, str>,
        table: Cow<'p, str>,
    },
    /// A key of a table, percent-encoded.
    TableKey {
        namespace: Cow<'p, str>,
        table: Cow<'p, str>,
        key: &'p str,
    },
    Topic {
        namespace: Cow<'p, str>,
        topic: Cow<'p, str>,
    },
    TopicRecords {
        namespace: Cow<'p, str>,
        topic: Cow<'p, str>,
    },
    TopicRecord {
        namespace: Cow<'p, str>,
        topic: Cow<'p, str>,
        which: Cow<'p, str>,
    },
    TopicTail {
        namespace: Cow<'p, str>,
        topic: Cow<'p, str>,
    },
    /// What changes in a namespace, as it changes.
    Live {
        namespace: Cow<'p, str>,
    },
    /// Changes of functions, relays and logs.
    Manage {
        namespace: Cow<'p, str>,
    },
    /// Capabilities of a namespace.
    Capabilities {
        namespace: Cow<'p, str>,
    },
    /// Codes of links to the dashboard.
    Login {
        namespace: Cow<'p, str>,
    },
    /// Repairs of a namespace.
    Repairs {
        namespace: Cow<'p, str>,
    },
    /// A function: its document, or a run of it.
    Function {
        namespace: Cow<'p, str>,
        function: Cow<'p, str>,
    },
    /// The firmware of a device: its document, or an image to update the device with.
    Firmware {
        namespace: Cow<'p, str>,
        device: Cow<'p, str>,
    },
    /// What a run prints.
    Output {
        namespace: Cow<'p, str>,
        run: Cow<'p, str>,
    },
    /// Cancels a run.
    Cancel {
        namespace: Cow<'p, str>,
        run: Cow<'p, str>,
    },
    /// Everything else below a namespace, if there is such a document.
    Document {
        namespace: Cow<'p, str>,
        path: &'p str,
    },
}

impl<'p> Place<'p> {
    pub fn of(path: &'p str) -> Result<Place<'p>> {
        let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').take(SEGMENTS_MAX + 1).collect();
        if parts.len() > SEGMENTS_MAX {
            return Err(unknown(path));
        }
        Ok(match &*parts {
            [""] => Place::Root,
            ["openapi.json"] => Place::OpenApi,
            ["healthz"] => Place::Health,
            ["readyz"] => Place::Ready,
            ["metrics"] => Place::Metrics,
            ["v1", "namespaces"] => Place::Namespaces,
            ["v1", "namespaces", namespace, "batch"] => Place::Batch { namespace: segment(namespace)? },
            ["v1", "namespaces", namespace, "live"] => Place::Live { namespace: segment(namespace)? },
            ["v1", "namespaces", namespace, "manage"] => Place::Manage { namespace: segment(namespace)? },
            ["v1", "namespaces", namespace, "capabilities"] => Place::Capabilities { namespace: segment(namespace)? },
            ["v1", "namespaces", namespace, "login"] => Place::Login { namespace: segment(namespace)? },
            ["v1", "namespaces", namespace, "repairs"] => Place::Repairs { namespace: segment(namespace)? },
            ["v1", "namespaces", namespace, "functions", function] if !function.is_empty() => {
                Place::Function { namespace: segment(namespace)?, function: segment(function)? }
            }
            ["v1", "namespaces", namespace, "devices", device, "firmware"] => {
                Place::Firmware { namespace: segment(namespace)?, device: segment(device)? }
            }
            ["v1", "namespaces", namespace, "runs", run, "output"] => {
                Place::Output { namespace: segment(namespace)?, run: segment(run)? }
            }
            ["v1", "namespaces", namespace, "runs", run, "cancel"] => {
                Place::Cancel { namespace: segment(namespace)?, run: segment(run)? }
            }
            // A log's name may have slashes, escaped or not: the last segment decides what of the log is meant.
            ["v1", "namespaces", namespace, "logs", log @ .., "records"] if is_log(log) => {
                Place::Records { namespace: segment(namespace)?, log: log_name(log)? }
            }
            ["v1", "namespaces", namespace, "logs", log @ .., "records", which] if is_log(log) => {
                Place::Record { namespace: segment(namespace)?, log: log_name(log)?, which: segment(which)? }
            }
            ["v1", "namespaces", namespace, "logs", log @ .., "tail"] if is_log(log) => {
                Place::Tail { namespace: segment(namespace)?, log: log_name(log)? }
            }
            ["v1", "namespaces", namespace, "logs", log @ .., part @ ("rate" | "series")] if is_log(log) => {
                Place::OfLog { namespace: segment(namespace)?, log: log_name(log)?, part }
            }
            ["v1", "namespaces", namespace, "logs", log @ ..] if is_log(log) => {
                Place::Log { namespace: segment(namespace)?, log: log_name(log)? }
            }
            ["v1", "namespaces", namespace, "tables", table @ .., "keys", key] if is_log(table) => {
                Place::TableKey { namespace: segment(namespace)?, table: log_name(table)?, key }
            }
            ["v1", "namespaces", namespace, "tables", table @ ..] if is_log(table) => {
                Place::Table { namespace: segment(namespace)?, table: log_name(table)? }
            }
            ["v1", "namespaces", namespace, "topics", topic @ .., "records"] if is_log(topic) => {
                Place::TopicRecords { namespace: segment(namespace)?, topic: log_name(topic)? }
            }
            ["v1", "namespaces", namespace, "topics", topic @ .., "records", which] if is_log(topic) => {
                Place::TopicRecord { namespace: segment(namespace)?, topic: log_name(topic)?, which: segment(which)? }
            }
            ["v1", "namespaces", namespace, "topics", topic @ .., "tail"] if is_log(topic) => {
                Place::TopicTail { namespace: segment(namespace)?, topic: log_name(topic)? }
            }
            ["v1", "namespaces", namespace, "topics", topic @ ..] if is_log(topic) => {
                Place::Topic { namespace: segment(namespace)?, topic: log_name(topic)? }
            }
            ["v1", "namespaces", namespace, rest @ ..] if !namespace.is_empty() && rest.first() != Some(&"") => {
                let before = 1 + "v1/namespaces/".len() + namespace.len();
                Place::Document { namespace: segment(namespace)?, path: path[before..].trim_start_matches('/') }
            }
            _ => return Err(unknown(path)),
        })
    }

    /// The methods that do something here.
    pub fn allowed(&self) -> &'static str {
        match self {
            Place::Batch { .. } | Place::Manage { .. } | Place::Cancel { .. } | Place::Login { .. } => "POST",
            Place::Log { .. } => "GET, HEAD, PUT, PATCH, DELETE",
            Place::Topic { .. } => "GET, HEAD, PUT, DELETE",
            Place::Table { .. } | Place::Firmware { .. } => "GET, HEAD, PUT",
            Place::TableKey { .. } => "GET, HEAD, PUT, POST, DELETE",
            Place::Records { .. }
            | Place::TopicRecords { .. }
            | Place::Repairs { .. }
            | Place::Function { .. }
            | Place::Capabilities { .. } => "GET, HEAD, POST",
            _ => "GET, HEAD",
        }
    }

    /// Whether it is about the host, which can be asked about until it is gone.
    pub fn tells_of_host(&self) -> bool {
        matches!(self, Place::Health | Place::Ready | Place::Metrics)
    }

    pub fn allows(&self, method: &Method) -> bool {
        response::allows(self.allowed(), method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::Code;

    #[test]
    fn paths_lead_to_their_places() {
        let log = |log| Place::Log { namespace: "farm".into(), log: Cow::from(log) };
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw%2Fkitchen").unwrap(), log("raw/kitchen"));
        assert_eq!(Place::of("/v1/namespaces/farm/logs/a").unwrap(), log("a"));
        assert_eq!(
            Place::of("/v1/namespaces/farm/logs/a/records/-1").unwrap(),
            Place::Record { namespace: "farm".into(), log: "a".into(), which: "-1".into() }
        );
        let raw = || (Cow::from("farm"), Cow::from("raw/kitchen"));
        let (namespace, log_) = raw();
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw/kitchen").unwrap(), Place::Log { namespace, log: log_ });
        let (namespace, log_) = raw();
        let records = Place::Records { namespace, log: log_ };
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw/kitchen/records").unwrap(), records);
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw%2Fkitchen/records").unwrap(), records);
        let (namespace, log_) = raw();
        let record = Place::Record { namespace, log: log_, which: "latest".into() };
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw/kitchen/records/latest").unwrap(), record);
        let (namespace, log_) = raw();
        let tail = Place::Tail { namespace, log: log_ };
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw/kitchen/tail").unwrap(), tail);
        let part = Place::OfLog { namespace: "farm".into(), log: "raw/kitchen".into(), part: "rate" };
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw/kitchen/rate").unwrap(), part);
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw%2Fkitchen/rate").unwrap(), part);
        assert_eq!(Place::of("/v1/namespaces/farm/logs/raw%2Frate").unwrap(), log("raw/rate"));
        let document = |path| Place::Document { namespace: "farm".into(), path };
        assert_eq!(Place::of("/v1/namespaces/farm").unwrap(), document(""));
        assert_eq!(Place::of("/v1/namespaces/farm/why/a%2Fb").unwrap(), document("why/a%2Fb"));
        assert_eq!(Place::of("/v1/namespaces/farm/logs").unwrap(), document("logs"));
        for (rest, which) in
            [("", None), ("/records", Some("")), ("/records/latest", Some("latest")), ("/tail", Some("tail"))]
        {
            let path = format!("/v1/namespaces/farm/topics/env/raw{rest}");
            let (topic, found) = match Place::of(&path).unwrap() {
                Place::Topic { topic, .. } => (topic, None),
                Place::TopicRecords { topic, .. } => (topic, Some(Cow::from(""))),
                Place::TopicRecord { topic, which, .. } => (topic, Some(which)),
                Place::TopicTail { topic, .. } => (topic, Some(Cow::from("tail"))),
                other => panic!("{other:?}"),
            };
            assert_eq!((&*topic, found.as_deref()), ("env/raw", which));
        }
        assert_eq!(Place::of("/v1/namespaces/farm/topics").unwrap(), document("topics"));
        let cancel = Place::Cancel { namespace: "farm".into(), run: "1-0-1c".into() };
        assert_eq!(Place::of("/v1/namespaces/farm/runs/1-0-1c/cancel").unwrap(), cancel);
        assert_eq!(cancel.allowed(), "POST");
        let function = Place::Function { namespace: "farm".into(), function: "greet".into() };
        assert_eq!(Place::of("/v1/namespaces/farm/functions/greet").unwrap(), function);
        assert_eq!(Place::of("/v1/namespaces/farm/functions").unwrap(), document("functions"));
        assert_eq!(Place::of("/").unwrap(), Place::Root);
        assert_eq!(Place::of("/uix").unwrap_err().code(), Code::HttpPathUnknown);
    }

    #[test]
    fn nothing_is_anywhere_else() {
        for path in
            ["/v1", "//", "/v1/namespaces/", "/v1/namespaces//logs", "/healthz/", "/a/b/c/d/e/f/g/h/i", "/metrics/x"]
        {
            assert_eq!(Place::of(path).unwrap_err().code(), Code::HttpPathUnknown, "{path}");
        }
        assert!(Place::of("/healthz").unwrap().allows(&Method::HEAD));
        assert!(!Place::of("/healthz").unwrap().allows(&Method::POST));
        assert!(!Place::of("/healthz").unwrap().allows(&Method::OPTIONS));
    }
}
