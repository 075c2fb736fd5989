//! The JSON documents about a namespace: hosts answer them, and the command line and the SDKs read them, or build them from files.
//!
//! Each document is one type, which is written and read. `millrace_node::documents` builds them. What is read may come from another version:
//! fields that are missing have their default, and unknown ones are ignored.

mod capabilities;
mod data;
mod error;
mod flows;
mod functions;
mod history;
mod links;
mod mqtt;
mod runs;
mod tasks;
mod text;
mod why;

pub use capabilities::{CapabilitiesDoc, CapabilityDoc};
pub use data::{
    DatabaseDoc, EntriesDoc, EntryDoc, FolderDoc, KeyText, LogDoc, LogsDoc, PayloadDoc, PointDoc, RateDoc, RecordDoc,
    ReplicaDoc, SeriesDoc, TableDoc, TableEntryDoc, TableKeyDoc, TopicRecordDoc, TroubleDoc, WholeEntryDoc, moment_of,
};
pub use error::ErrorDoc;
pub use flows::{FlowDoc, FlowKind, FlowsDoc};
pub use functions::{DefinitionDoc, FunctionDoc, FunctionsDoc};
pub use history::{
    CopyDoc, CorrectsDoc, EstimateDoc, OnDeviceDoc, OverwritesDoc, PlanDoc, PlanFoundDoc, PlanState, ReplayDoc,
    RewritesDoc, TraceBranchDoc, TraceDoc, TracedRecordDoc, TracedRunDoc, ValueDoc,
};
pub use links::{LinkDoc, LinksDoc};
pub use mqtt::{MqttClientDoc, MqttDoc, MqttQueueDoc, MqttRefusedDoc};
pub use runs::{AttemptDoc, FailureDoc, FailuresDoc, KeysReadDoc, OutputDoc, RecordName, ResultDoc, RunDoc, RunsDoc};
pub use tasks::{ObjectDoc, ObjectsDoc, PoolDoc, TasksDoc, WaiterDoc};
pub use text::{counted, hlc_of, id_text, observed_in, observed_us, rfc3339, rfc3339_us};
pub use why::{LinkReason, Reason, ReasonDoc, WhyDoc, low_space};

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::Name;
    use serde_json::json;

    #[test]
    fn documents_are_read_as_they_are_written_and_gaps_are_filled() {
        let run = json!({
            "id": "a-0-1", "function": "f", "state": "dead", "log": "raw", "seqno": 3, "cause": "a-0-0", "caused_by": null,
            "triggered": "2026-01-01T00:00:00.000000Z", "ended": null, "attempts": [{"attempt": 1, "time": "x"}],
            "reads": [], "appends": [{"log": null, "seqno": 1}], "output": null,
            "error": {"code": "MR3007", "detail": "d"},
        });
        let doc: RunDoc = serde_json::from_value(run.clone()).unwrap();
        assert_eq!(json!(doc), run);
        assert_eq!(serde_json::from_value::<RunDoc>(json!({"id": "b", "new": 1})).unwrap().id, "b");
        let function = json!({
            "name": "f", "triggered": 3, "done": 1, "pending": 2, "dead": 0, "dead_kept": 0, "dead_retried": 0,
            "runtime": "wasm", "on": ["raw"], "ordered": true, "streamed": false, "network": false,
            "reads": ["raw"], "appends": null, "sends": [], "secrets": ["key"],
            "concurrency": 1, "monitor": null, "retries": 3, "dead_letter": "dead/f", "code": "00",
        });
        let doc: FunctionDoc = serde_json::from_value(function.clone()).unwrap();
        assert_eq!((json!(doc), doc.definition.is_some()), (function, true));
        let broken = json!({"name": "f", "triggered": 0, "done": 0, "pending": 0, "dead": 0, "dead_kept": 0, "dead_retried": 0,
                   "error": {"code": "c", "detail": "d"}});
        let doc: FunctionDoc = serde_json::from_value(broken.clone()).unwrap();
        assert_eq!((json!(doc), doc.definition), (broken, None));
    }

    #[test]
    fn reasons_of_other_versions_are_kept() {
        let known = json!({"reason": "idle", "function": "f", "done": 1, "text": "idle"});
        let other = json!({"reason": "new", "since": 3, "text": "something new"});
        let why = json!({"target": "t", "reasons": [known, other]});
        let doc: WhyDoc = serde_json::from_value(why.clone()).unwrap();
        assert_eq!(json!(doc), why);
        let function: Name = "f".parse().unwrap();
        assert_eq!(doc.reasons[0].reason, Reason::Idle { function, done: 1 });
        assert!(matches!(&doc.reasons[1].reason, Reason::Other(fields) if fields["since"] == 3));
        let link = LinkReason { kind: "outbox".into(), link: "l".into(), lag_records: 2, ..LinkReason::default() };
        let link = ReasonDoc::from(Reason::Link(link));
        assert_eq!(json!(link)["reason"], "link");
        assert_eq!(serde_json::from_value::<ReasonDoc>(json!(link)).unwrap(), link);
    }
}
