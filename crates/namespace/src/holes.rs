//! The losses of a salvaged namespace, recorded in a log, so that they can be distinguished from later ones.

use crate::names::note;
use millrace_journal::{Journal, LostRecords};
use millrace_wire::{LogName, Name, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The log.
const LOG: &str = "_salvage";
/// Notes that it keeps.
const HISTORY: u64 = 10_000;
/// Ranges of one note: with the longest names, they fit a record of the smallest segments.
const RANGES_MAX: usize = 500;

/// Ranges of records that could not be saved, and the number of lost runs by function.
#[derive(Serialize, Deserialize)]
struct Note {
    lost: Vec<Range>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    runs: BTreeMap<Name, u64>,
}

#[derive(Serialize, Deserialize)]
struct Range {
    log: LogName,
    from: u64,
    to: u64,
}

/// Records what could not be salvaged. Data that was never durable does not count.
pub fn tell(journal: &Journal, lost: &[LostRecords], runs: &BTreeMap<Name, u64>) -> Result<()> {
    let log: LogName = LOG.parse().expect("a good name");
    let missed: Vec<&LostRecords> = lost.iter().filter(|lost| !lost.unproven).collect();
    let range = |lost: &&LostRecords| Range { log: lost.log.clone(), from: lost.from, to: lost.to };
    let records = missed.chunks(RANGES_MAX).map(|part| (part.iter().map(range).collect(), BTreeMap::new()));
    let runs: Vec<(&Name, &u64)> = runs.iter().collect();
    let runs = runs.chunks(RANGES_MAX).map(|part| part.iter().map(|(name, n)| ((*name).clone(), **n)).collect());
    for (lost, runs) in records.chain(runs.map(|runs| (Vec::new(), runs))) {
        let bytes = serde_json::to_vec(&Note { lost, runs }).expect("names and numbers always make JSON");
        journal.commit(|tx| note(tx, &log, HISTORY, &bytes))?;
    }
    Ok(())
}

/// The last record of the noted range of `log` that `seqno` is in, if that is known to be lost since the namespace was salvaged.
pub fn noted(journal: &Journal, log: &str, seqno: u64) -> Result<Option<u64>> {
    let (_, ranges) = notes(journal)?;
    let within = |&&(from, to): &&(u64, u64)| (from..=to).contains(&seqno);
    Ok(ranges.iter().filter(|(name, _)| ***name == *log).flat_map(|(_, ranges)| ranges).find(within).map(|(_, to)| *to))
}

/// The noted runs by function, and the noted records by log.
type Notes = (BTreeMap<Name, u64>, BTreeMap<LogName, Vec<(u64, u64)>>);

/// All recorded losses. If such a record is itself lost, everything that it described counts as lost.
fn notes(journal: &Journal) -> Result<Notes> {
    let (mut runs, mut known) = Notes::default();
    let (catalog, mut payload) = (journal.catalog()?, Vec::new());
    if let Some(log) = catalog.log(LOG) {
        for seqno in log.earliest().max(1)..=log.latest() {
            if journal.get(log, seqno, &mut payload).is_ok()
                && let Ok(note) = serde_json::from_slice::<Note>(&payload)
            {
                note.runs.into_iter().for_each(|(name, n)| *runs.entry(name).or_default() += n);
                for Range { log, from, to } in note.lost {
                    known.entry(log).or_default().push((from, to));
                }
            }
        }
    }
    Ok((runs, known))
}

/// Runs that were noted when the namespace was salvaged, records that were, and what is lost now.
type Reported = (BTreeMap<Name, u64>, Vec<LostRecords>, Vec<LostRecords>);

/// Tells what was noted when the namespace was salvaged from what is lost now.
pub fn reported(journal: &Journal, lost: Vec<LostRecords>) -> Result<Reported> {
    let (runs, known) = notes(journal)?;
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
    Ok((runs, noted, others))
}
