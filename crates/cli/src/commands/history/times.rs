//! The records of a range of time, where the log says which field has the time of the observation.

use crate::{
    args::Global,
    place::{Found, Place},
    report::Failure,
};
use millrace_documents::{observed_us, rfc3339_us};
use millrace_node::{Code, Hlc, Result};

/// The numbers of the records that were observed in a range of time, with both ends; `None` if the log does not name the field of the
/// time. Observations are in no order, so all records of the log are read. A record without such a time counts with the time of its append.
pub fn within(global: &Global, log: &str, from: Hlc, to: Hlc) -> Result<Option<Vec<u64>>> {
    let (place, log) = Place::of_log(global, log)?;
    within_of(&place, &log, from, to)
}

/// The same of a namespace that is open.
pub fn within_of(place: &Place, log: &str, from: Hlc, to: Hlc) -> Result<Option<Vec<u64>>> {
    let stat = place.log(log)?;
    let Some(time) = &stat.time else { return Ok(None) };
    // An open end is beyond every clock, and an observation may be, too.
    let from = if from == Hlc::ZERO { i64::MIN } else { signed(from) };
    let to = if to == Hlc::from_bits(u64::MAX) { i64::MAX } else { signed(to) };
    let (mut found, mut seen) = (Vec::new(), None::<(i64, i64)>);
    let read = place.read(log, stat.earliest.max(1), stat.latest, &mut |seqno, record| {
        if let Found::Record(record) = record {
            let at = observed_us(&record.payload, time).unwrap_or_else(|| signed(record.hlc));
            if (from..=to).contains(&at) {
                found.push(seqno);
            }
            seen = Some(seen.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        }
        Ok(())
    });
    if let Err(Failure::Coded(error)) = read {
        return Err(error);
    }
    if found.is_empty() {
        let are = seen.map_or("it has none".into(), |(first, last)| {
            format!("its records are from {} to {}", rfc3339_us(first), rfc3339_us(last))
        });
        return Err(Code::CorrectionInvalid
            .error(format!("log '{log}' has no record with a time in {time} within this range; {are}")));
    }
    Ok(Some(found))
}

fn signed(at: Hlc) -> i64 {
    i64::try_from(at.wall_us()).unwrap_or(i64::MAX)
}
