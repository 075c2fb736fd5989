//! How the records of a log are spread over time, and the numbers in them.
//!
//! Numbers of records are dense and clocks grow along a log, so the record at a moment is found by halving, and the count between two moments
//! is a difference. Records that were imported from devices have the clocks of these, which may go back: then a count is near the truth.

use millrace_documents::{PointDoc, RateDoc, SeriesDoc, observed_in, rfc3339, rfc3339_us};
use millrace_journal::Log;
use millrace_namespace::Namespace;
use millrace_wire::{Code, Hlc, Result};
use serde_json::Value;

/// Most records that one series reads.
pub const SERIES_RECORDS_MAX: u64 = 200_000;
/// After so many bytes, a series passes over every other record that it had meant to read.
const STEP_BYTES: u64 = 64 << 20;
/// Longer records have no number.
const PARSED_MAX_BYTES: usize = 256 << 10;
/// How many records without a clock (void, damaged) are passed over for one that has it.
const PASSED_MAX: u64 = 4096;

/// A part of a log: from a moment on, until just before another; without them, from the oldest record to the newest.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first moment.
    pub from: Option<Hlc>,
    /// The moment behind the last.
    pub until: Option<Hlc>,
}

/// A log whose records are looked for by time.
struct Timed<'a> {
    namespace: &'a Namespace,
    log: &'a Log,
    /// Behind the newest record.
    end: u64,
    check: &'a dyn Fn() -> Result<()>,
    payload: Vec<u8>,
}

impl<'a> Timed<'a> {
    fn new(namespace: &'a Namespace, log: &'a Log, check: &'a dyn Fn() -> Result<()>) -> Self {
        Self { namespace, log, end: log.latest() + 1, check, payload: Vec::new() }
    }

    fn oldest(&self) -> u64 {
        self.log.earliest().max(1)
    }

    /// The clock of a record, in microseconds; none if it is void, damaged or gone.
    fn clock(&self, seqno: u64) -> Result<Option<u64>> {
        unless_gone(self.namespace.journal().clock_of(self.log, seqno))
    }

    /// The same, with the record's bytes.
    fn read(&mut self, seqno: u64) -> Result<Option<u64>> {
        unless_gone(self.namespace.journal().get(self.log, seqno, &mut self.payload).map(|meta| meta.hlc))
    }

    /// The first record from `seqno` on that has a clock, and the clock.
    fn near(&self, seqno: u64, end: u64) -> Result<Option<(u64, u64)>> {
        for at in seqno.max(self.oldest())..end.min(seqno.saturating_add(PASSED_MAX)) {
            if let Some(us) = self.clock(at)? {
                return Ok(Some((at, us)));
            }
        }
        Ok(None)
    }

    /// The first record at or behind a moment, from `low` on.
    fn at(&self, us: u64, low: u64) -> Result<u64> {
        let (mut low, mut high) = (low.max(self.oldest()), self.end);
        while low < high {
            (self.check)()?;
            let middle = low + (high - low) / 2;
            match self.near(middle, high)? {
                Some((found, at)) if at < us => low = found + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The moments of a span, in microseconds: at least one lies between them.
    fn bounds(&self, span: Span) -> Result<(u64, u64)> {
        let now = self.namespace.journal().clock().wall_us();
        let (oldest, end) = (self.oldest(), self.end);
        let from = match span.from {
            Some(from) => from.wall_us(),
            None => self.near(oldest, end)?.map_or(now, |(_, us)| us),
        };
        let until = match span.until {
            Some(until) => until.wall_us(),
            None => {
                let mut newest = None;
                for seqno in (oldest.max(end.saturating_sub(PASSED_MAX))..end).rev() {
                    newest = self.clock(seqno)?;
                    if newest.is_some() {
                        break;
                    }
                }
                newest.unwrap_or(now).saturating_add(1)
            }
        };
        Ok((from, until.max(from.saturating_add(1))))
    }
}

/// The clock of a record, in microseconds, unless the record is void, damaged or gone.
fn unless_gone(clock: Result<Hlc>) -> Result<Option<u64>> {
    match clock {
        Ok(clock) => Ok(Some(clock.wall_us())),
        Err(error) => match error.code() {
            Code::RecordVoid | Code::EntryDamaged | Code::BelowHistory | Code::AboveTail => Ok(None),
            _ => Err(error),
        },
    }
}

/// The first record of a log at or behind a moment; one behind the newest if there is none.
pub(crate) fn seqno_at(namespace: &Namespace, log: &Log, at: Hlc) -> Result<u64> {
    log.check_exists()?;
    Timed::new(namespace, log, &|| Ok(())).at(at.wall_us(), 0)
}

/// How many records a log got in each of so many equal parts of a span.
pub fn rate(
    namespace: &Namespace,
    log: &str,
    span: Span,
    buckets: u64,
    check: &dyn Fn() -> Result<()>,
) -> Result<RateDoc> {
    let log = namespace.log(log)?;
    let timed = Timed::new(namespace, &log, check);
    let (from, until) = timed.bounds(span)?;
    let mut edges = Vec::with_capacity(buckets as usize + 1); // at most 1001
    for bucket in 0..=buckets {
        let us = from + (u128::from(until - from) * u128::from(bucket) / u128::from(buckets)) as u64; // at most `until`
        edges.push(timed.at(us, edges.last().copied().unwrap_or(0))?);
    }
    let counts: Vec<u64> = edges.windows(2).map(|edge| edge[1] - edge[0]).collect();
    let records = counts.iter().sum();
    edges.pop();
    let text = |us| rfc3339(Hlc::from_wall_us(us));
    Ok(RateDoc { log: log.name().to_string(), from: text(from), until: text(until), records, counts, first: edges })
}

/// A record as JSON, unless it is too long or none.
fn parsed(payload: &[u8]) -> Option<Value> {
    let payload = (payload.len() <= PARSED_MAX_BYTES).then_some(payload)?;
    serde_json::from_slice(payload).ok()
}

/// The number that is a whole record.
fn plain(payload: &[u8]) -> Option<f64> {
    let payload = (payload.len() <= PARSED_MAX_BYTES).then_some(payload)?;
    str::from_utf8(payload).ok()?.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

/// The number in a field of a record; the field is a JSON pointer, and empty for the value itself.
fn number(record: &Value, field: &str) -> Option<f64> {
    match record.pointer(field)? {
        Value::Number(number) => number.as_f64().filter(|number| number.is_finite()),
        Value::Bool(bool) => Some(f64::from(u8::from(*bool))),
        _ => None,
    }
}

/// A number of a series, and its place in time, in microseconds since 1970.
struct Sample {
    us: i64,
    seqno: u64,
    value: f64,
}

/// The numbers of a field in each of so many equal parts of a span.
///
/// If the log says which field has the time of the observation, the span and the parts are of these times. They are in no order in the log,
/// so the whole log is read, or records at equal distances of it.
pub fn series(
    namespace: &Namespace,
    log: &str,
    field: &str,
    span: Span,
    points: u64,
    check: &dyn Fn() -> Result<()>,
) -> Result<SeriesDoc> {
    let log = namespace.log(log)?;
    let time = namespace.time_field(&log)?;
    let mut timed = Timed::new(namespace, &log, check);
    let (from, until) = timed.bounds(span)?;
    let (first, end) = match &time {
        Some(_) => (timed.oldest(), timed.end),
        None => {
            let first = timed.at(from, 0)?;
            (first, timed.at(until, first)?)
        }
    };
    let (mut from, mut until) = (signed(from), signed(until));
    let mut stride = (end - first).div_ceil(SERIES_RECORDS_MAX).max(1);
    let mut doc =
        SeriesDoc { log: log.name().to_string(), field: field.into(), observed: time.clone(), ..SeriesDoc::default() };
    let mut samples: Vec<Sample> = Vec::new(); // at most SERIES_RECORDS_MAX
    let (mut at, mut bytes, mut looked) = (first, 0, 0_u64);
    while at < end {
        if looked.is_multiple_of(1024) {
            check()?;
        }
        let (seqno, step) = (at, stride);
        at += step;
        looked += 1;
        doc.sampled |= step > 1;
        let Some(appended) = timed.read(seqno)?.map(signed) else { continue };
        bytes += timed.payload.len() as u64;
        if bytes >= STEP_BYTES {
            (bytes, stride) = (0, stride.saturating_mul(2));
        }
        let plain = if field.is_empty() { plain(&timed.payload) } else { None };
        // A number has no field.
        let value = if plain.is_some() { None } else { parsed(&timed.payload) };
        let us = match &time {
            None => appended,
            Some(time) => {
                let observed = value.as_ref().and_then(|value| observed_in(value, time));
                let us = observed.unwrap_or(appended);
                if span.from.is_some() && us < from || span.until.is_some() && us >= until {
                    continue;
                }
                doc.untimed += u64::from(observed.is_none());
                doc.records += step;
                us
            }
        };
        doc.read += 1;
        let Some(value) = plain.or_else(|| number(value.as_ref()?, field)) else { continue };
        doc.numbers += 1;
        samples.push(Sample { us, seqno, value });
    }
    if time.is_none() {
        doc.records = end - first;
    }
    if time.is_some() {
        samples.sort_by_key(|sample| sample.us);
        if let (Some(first), Some(last)) = (samples.first(), samples.last()) {
            from = span.from.map_or(first.us, |_| from);
            until = span.until.map_or(last.us.saturating_add(1), |_| until);
        }
    }
    (doc.from, doc.until) = (rfc3339_us(from), rfc3339_us(until));
    doc.points = buckets(&samples, (from, until), points);
    Ok(doc)
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// The samples, in their order, by equal parts of a span.
fn buckets(samples: &[Sample], (from, until): (i64, i64), parts: u64) -> Vec<PointDoc> {
    let (mut points, mut bucket_of_last): (Vec<PointDoc>, _) = (Vec::new(), None);
    for Sample { us, seqno, value } in samples {
        // Clocks of devices may go back: then the record stands in the bucket of the one before it.
        let passed = us.clamp(&from, &(until - 1)) - from;
        let bucket = i128::from(passed) * i128::from(parts) / i128::from(until - from);
        let bucket = bucket_of_last.map_or(bucket, |last: i128| last.max(bucket));
        if bucket_of_last != Some(bucket) {
            points.push(PointDoc { min: *value, max: *value, ..PointDoc::default() });
            bucket_of_last = Some(bucket);
        }
        let Some(point) = points.last_mut() else { continue };
        point.count += 1;
        (point.min, point.max) = (point.min.min(*value), point.max.max(*value));
        point.mean += (value - point.mean) / point.count as f64;
        (point.last, point.seqno, point.time) = (*value, *seqno, rfc3339_us(*us));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_pointer() {
        let found = |text: &str, field: &str| {
            let plain = if field.is_empty() { plain(text.as_bytes()) } else { None };
            plain.or_else(|| number(&parsed(text.as_bytes())?, field))
        };
        assert_eq!((found(" 21.5\n", ""), found("true", ""), found("text", "")), (Some(21.5), Some(1.0), None));
        assert_eq!((found("inf", ""), found("NaN", ""), found("1e999", "")), (None, None, None));
        assert_eq!(found(r#"{"a": {"b/c": [1, 2]}}"#, "/a/b~1c/1"), Some(2.0));
        assert_eq!((found(r#"{"a": "1"}"#, "/a"), found(r#"{"a": 1}"#, ""), plain(b"\xff")), (None, None, None));
    }
}
