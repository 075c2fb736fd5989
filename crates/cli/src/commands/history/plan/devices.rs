//! The devices of a plan: what they keep as it was, and what their runs say of their twins.

use super::Plan;
use crate::show;
use millrace_documents::OnDeviceDoc;
use millrace_node::repairs::Verified;
use serde_json::{Value, json};

/// Most logs that are printed.
const LINES_MAX: usize = 20;

/// Logs of devices that may still have records as they were, and how many more there are.
pub type OnDevices = (Vec<OnDeviceDoc>, u64);

impl Plan<'_> {
    pub(super) fn on_devices(&self) -> OnDevices {
        let (mut all, mut more) = OnDevices::default();
        for (at, found) in self.found.iter().enumerate() {
            let changed = found.changed(self.table(at), &self.changes[at]);
            let (docs, left_out) = self.sources.sources[at].still_on_devices(changed);
            all.extend(docs);
            more += left_out;
        }
        (all, more)
    }
}

/// As the command prints them: logs that take commands first, because something can be done about them.
pub fn lines((docs, more): &OnDevices) -> Vec<(&'static str, String)> {
    let mut docs: Vec<&OnDeviceDoc> = docs.iter().collect();
    docs.sort_by_key(|doc| !doc.commands);
    let more = more + docs.len().saturating_sub(LINES_MAX) as u64;
    let mut lines: Vec<(&str, String)> = docs.into_iter().take(LINES_MAX).map(|doc| ("on device", line(doc))).collect();
    if more > 0 {
        lines.push(("on device", format!("and {} more of devices", show::count(more, "log"))));
    }
    lines.iter_mut().skip(1).for_each(|(word, _)| *word = "");
    lines
}

fn line(doc: &OnDeviceDoc) -> String {
    let OnDeviceDoc { device, log, records, range: (first, last), history, keep, commands } = doc;
    let stay = match records {
        1 => "stays as it was in the flash of",
        _ => "stay as they were in the flash of",
    };
    let name = log.split_once('/').map_or(&**log, |(_, name)| name);
    let send = format!("after the repair, send the right one: millrace device send {device} {name} VALUE");
    let until = match (commands, history) {
        (true, _) => send,
        // It reads it for ever, and the host does not know whether it takes commands.
        (false, Some(1)) if *keep => format!("if the log takes commands, {send}"),
        (false, Some(history)) => {
            format!("its functions read them until it has {} newer ones", show::grouped(*history))
        }
        (false, None) => "how many it keeps is not known until it connects again".into(),
    };
    format!("{log:<16} {}  @{first}..{last} {stay} {device}; {until}", show::count(*records, "record"))
}

pub fn object((docs, more): &OnDevices) -> Value {
    json!({ "logs": docs, "more": more })
}

pub fn verified_object(((function, device), verified): (&(String, Option<String>), &Verified)) -> Value {
    let differs = verified.differs.map(|run| run.to_string());
    let mut object = json!({ "function": function, "runs": verified.runs, "same": verified.same, "differs": differs });
    device.iter().for_each(|device| object["device"] = json!(device));
    object
}
