//! How the records of a log are spread over time, and the numbers in them.
//!
//! Numbers of records are dense and clocks grow along a log, so the record at a moment is found by halving, and the count between two moments
//! is a difference. Records that were imported from devices have the clocks of these, which may go back: then a count is near the truth.

use millrace_documents::{PointDoc, RateDoc, SeriesDoc, rfc3339};
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
    fn clock(&mut self, seqno: u64) -> Result<Option<u64>> {
        match self.namespace.journal().get(self.log, seqno, &mut self.payload) {
            Ok(meta) => Ok(Some(meta.hlc.wall_us())),
            Err(error) => match error.code() {
                Code::RecordVoid | Code::EntryDamaged | Code::BelowHistory | Code::AboveTail => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// The first record from `seqno` on that has a clock, and the clock.
    fn near(&mut self, seqno: u64, end: u64) -> Result<Option<(u64, u64)>> {
        for at in seqno.max(self.oldest())..end.min(seqno.saturating_add(PASSED_MAX)) {
            if let Some(us) = self.clock(at)? {
                return Ok(Some((at, us)));
            }
        }
        Ok(None)
    }

    /// The first record at or behind a moment, from `low` on.
    fn at(&mut self, us: u64, low: u64) -> Result<u64> {
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
    fn bounds(&mut self, span: Span) -> Result<(u64, u64)> {
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
    let mut timed = Timed::new(namespace, &log, check);
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

/// The number in a field of a record; the field is a JSON pointer, and empty for the value itself.
fn number(payload: &[u8], field: &str) -> Option<f64> {
    if payload.len() > PARSED_MAX_BYTES {
        return None;
    }
    let text = str::from_utf8(payload).ok()?;
    if field.is_empty()
        && let Ok(number) = text.trim().parse::<f64>()
    {
        return Some(number).filter(|number| number.is_finite());
    }
    match serde_json::from_str::<Value>(text).ok()?.pointer(field)? {
        Value::Number(number) => number.as_f64().filter(|number| number.is_finite()),
        Value::Bool(bool) => Some(f64::from(u8::from(*bool))),
        _ => None,
    }
}

/// The numbers of a field in each of so many equal parts of a span.
pub fn series(
    namespace: &Namespace,
    log: &str,
    field: &str,
    span: Span,
    points: u64,
    check: &dyn Fn() -> Result<()>,
) -> Result<SeriesDoc> {
    let log = namespace.log(log)?;
    let mut timed = Timed::new(namespace, &log, check);
    let (from, until) = timed.bounds(span)?;
    let first = timed.at(from, 0)?;
    let end = timed.at(until, first)?;
    let mut stride = (end - first).div_ceil(SERIES_RECORDS_MAX).max(1);
    let mut doc = SeriesDoc {
        log: log.name().to_string(),
        field: field.into(),
        from: rfc3339(Hlc::from_wall_us(from)),
        until: rfc3339(Hlc::from_wall_us(until)),
        records: end - first,
        ..SeriesDoc::default()
    };
    let (mut at, mut bytes, mut bucket_of_last) = (first, 0, None);
    while at < end {
        if doc.read.is_multiple_of(1024) {
            check()?;
        }
        let seqno = at;
        at += stride;
        doc.sampled |= stride > 1;
        let Some(us) = timed.clock(seqno)? else { continue };
        doc.read += 1;
        bytes += timed.payload.len() as u64;
        if bytes >= STEP_BYTES {
            (bytes, stride) = (0, stride.saturating_mul(2));
        }
        let Some(value) = number(&timed.payload, field) else { continue };
        doc.numbers += 1;
        // Clocks of devices may go back: then the record stands in the bucket of the one before it.
        let bucket = u128::from(us.clamp(from, until - 1) - from) * u128::from(points) / u128::from(until - from);
        let bucket = bucket_of_last.map_or(bucket, |last: u128| last.max(bucket));
        if bucket_of_last != Some(bucket) {
            doc.points.push(PointDoc { min: value, max: value, ..PointDoc::default() });
            bucket_of_last = Some(bucket);
        }
        let Some(point) = doc.points.last_mut() else { continue };
        point.count += 1;
        (point.min, point.max) = (point.min.min(value), point.max.max(value));
        point.mean += (value - point.mean) / point.count as f64;
        (point.last, point.seqno, point.time) = (value, seqno, rfc3339(Hlc::from_wall_us(us)));
    }
    Ok(doc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_pointer() {
        let found = |text: &str, field| number(text.as_bytes(), field);
        assert_eq!((found(" 21.5\n", ""), found("true", ""), found("text", "")), (Some(21.5), Some(1.0), None));
        assert_eq!((found("inf", ""), found("NaN", ""), found("1e999", "")), (None, None, None));
        assert_eq!(found(r#"{"a": {"b/c": [1, 2]}}"#, "/a/b~1c/1"), Some(2.0));
        assert_eq!((found(r#"{"a": "1"}"#, "/a"), found(r#"{"a": 1}"#, ""), number(b"\xff", "")), (None, None, None));
    }
}
