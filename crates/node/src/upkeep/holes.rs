//! What a salvaged namespace lacks, noted in a log of its own: so that it can be told from what is lost later.

use crate::links::note;
use millrace_journal::{Journal, LostRecords};
use millrace_wire::{LogName, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The log.
const LOG: &str = "_salvage";
/// Notes that it keeps.
const HISTORY: u64 = 10_000;
/// Ranges of one note: with the longest names, they fit a record of the smallest segments.
const RANGES_MAX: usize = 500;

/// Ranges of records that could not be saved.
#[derive(Serialize, Deserialize)]
struct Note {
    lost: Vec<Range>,
}

#[derive(Serialize, Deserialize)]
struct Range {
    log: LogName,
    from: u64,
    to: u64,
}

/// Notes what could not be saved. What never was durable is not missed.
pub(super) fn tell(journal: &Journal, lost: &[LostRecords]) -> Result<()> {
    let log: LogName = LOG.parse().expect("a good name");
    let missed: Vec<&LostRecords> = lost.iter().filter(|lost| !lost.unproven).collect();
    for part in missed.chunks(RANGES_MAX) {
        let range = |lost: &&LostRecords| Range { log: lost.log.clone(), from: lost.from, to: lost.to };
        let note_of = Note { lost: part.iter().map(range).collect() };
        let bytes = serde_json::to_vec(&note_of).expect("names and numbers always make JSON");
        journal.commit(|tx| note(tx, &log, HISTORY, &bytes))?;
    }
    Ok(())
}

/// Tells what was noted when the namespace was salvaged from what is lost now.
pub(super) fn told(journal: &Journal, lost: Vec<LostRecords>) -> Result<(Vec<LostRecords>, Vec<LostRecords>)> {
    let mut known: BTreeMap<LogName, Vec<(u64, u64)>> = BTreeMap::new();
    let (catalog, mut payload) = (journal.catalog()?, Vec::new());
    if let Some(log) = catalog.log(LOG) {
        for seqno in log.earliest().max(1)..=log.latest() {
            // A note that is lost, too, tells nothing: what stood in it counts as lost.
            if journal.get(log, seqno, &mut payload).is_ok()
                && let Ok(note) = serde_json::from_slice::<Note>(&payload)
            {
                for Range { log, from, to } in note.lost {
                    known.entry(log).or_default().push((from, to));
                }
            }
        }
    }
    let (mut noted, mut others) = (Vec::new(), Vec::new());
    for lost in lost {
        let ranges = known.get(&lost.log).map_or(&[][..], |ranges| ranges);
        let mut at = lost.from;
        while at <= lost.to {
            let within = ranges.iter().find(|(from, to)| (*from..=*to).contains(&at));
            let end = match within {
                Some((_, to)) => *to,
                None => ranges
                    .iter()
                    .map(|(from, _)| from.saturating_sub(1))
                    .filter(|before| *before >= at)
                    .min()
                    .unwrap_or(lost.to),
            };
            let piece = LostRecords { from: at, to: end.min(lost.to), ..lost.clone() };
            at = piece.to + 1;
            if within.is_some() { noted.push(piece) } else { others.push(piece) }
        }
    }
    Ok((noted, others))
}
