//! `millrace repair diff`: what a repair changes, record by record, and its numbers as plots.

use crate::{
    args::RepairDiffArgs,
    out::{Out, Table},
    place::Place,
    report::Outcome,
    show,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Characters of a value in a table.
const VALUE_CHARS: usize = 40;
/// Changes that are shown to people.
const SHOWN_MAX: usize = 200;
/// Characters of a plot.
const PLOT_CHARS: usize = 64;
/// From the least to the greatest value.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub fn diff(place: &Place, args: &RepairDiffArgs, out: &mut Out) -> Outcome {
    let (mut after, mut shown) = (0, 0);
    let mut table = Table::new(&["log", "seqno>", "old", "new"]);
    let (mut columns, mut logs) = (Columns::default(), BTreeMap::<String, Tally>::new());
    loop {
        let page = place.repair_changes(args.repair, args.log.as_deref(), after)?;
        for change in &page.changes {
            if out.json() {
                out.object(change)?;
                continue;
            }
            let log = change["log"].as_str().unwrap_or_default().to_owned();
            columns.take(&log, change);
            logs.entry(log.clone()).or_default().take(change);
            shown += 1;
            if shown <= SHOWN_MAX {
                let seqno = change["seqno"].as_u64().map_or("at end".into(), |seqno| seqno.to_string());
                let (old, new) = values(&log, &change["old"], &change["new"]);
                table.row(vec![log, seqno, old, new]);
            }
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no record differs")?);
    }
    out.table(&table)?;
    if shown > SHOWN_MAX {
        out.line(format!("… and {} more; --json shows all", show::count((shown - SHOWN_MAX) as u64, "record")))?;
    }
    for line in columns.plots() {
        out.line(line)?;
    }
    out.line("")?;
    let mut table = Table::new(&["log", "changed>", "removed>", "new>", "equal>"]);
    for (log, tally) in logs {
        let equal = tally.equal(place.bounds(&log).ok()).map_or_else(String::new, show::grouped);
        let [changed, removed, new] = [tally.changed, tally.removed, tally.new].map(show::grouped);
        table.row(vec![log, changed, removed, new, equal]);
    }
    Ok(out.table(&table)?)
}

/// How many records of a log a repair changes, and how.
#[derive(Default)]
struct Tally {
    changed: u64,
    removed: u64,
    new: u64,
    seqnos: Vec<u64>,
}

impl Tally {
    fn take(&mut self, change: &Value) {
        match (change["old"].is_object(), change["new"].is_object()) {
            (true, true) => self.changed += 1,
            (true, false) => self.removed += 1,
            (false, _) => self.new += 1,
        }
        self.seqnos.extend(change["seqno"].as_u64());
    }

    /// How many records of the log are not among them, if its bounds are known.
    fn equal(&self, bounds: Option<(u64, u64)>) -> Option<u64> {
        let (oldest, newest) = bounds?;
        let all = if newest == 0 { 0 } else { newest - oldest + 1 };
        let within = self.seqnos.iter().filter(|seqno| (oldest..=newest).contains(seqno)).count() as u64;
        Some(all.saturating_sub(within))
    }
}

/// Both values of a change, in few characters each: of long ones, what differs.
fn values(log: &str, old: &Value, new: &Value) -> (String, String) {
    if let (Some(before), Some(after)) = (old["data"].as_str(), new["data"].as_str())
        && before.chars().count().max(after.chars().count()) > VALUE_CHARS
        && !log.starts_with("dead/")
    {
        let (before, after) = fields(before, after).unwrap_or_else(|| tails(before, after));
        return (show::brief(before.as_bytes(), VALUE_CHARS), show::brief(after.as_bytes(), VALUE_CHARS));
    }
    (value(log, old), value(log, new))
}

/// The fields in which two JSON objects differ, if both are objects that do.
fn fields(old: &str, new: &str) -> Option<(String, String)> {
    let [Value::Object(old), Value::Object(new)] = [serde_json::from_str(old).ok()?, serde_json::from_str(new).ok()?]
    else {
        return None;
    };
    let only = |of: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        let differing = of.iter().filter(|(name, value)| other.get(*name) != Some(value));
        differing.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
    };
    let (before, after) = (only(&old, &new), only(&new, &old));
    let none = |text: String| if text.is_empty() { "(no such field)".into() } else { text };
    (before != after).then(|| (none(before), none(after)))
}

/// Two texts without most of what they begin with in common.
fn tails(old: &str, new: &str) -> (String, String) {
    /// Common characters that are kept in front of the difference.
    const KEPT: usize = 8;
    let common = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
    if common <= KEPT + 1 {
        return (old.into(), new.into());
    }
    let tail = |text: &str| format!("…{}", text.chars().skip(common - KEPT).collect::<String>());
    (tail(old), tail(new))
}

/// A value of a change, in few characters. Of a dead letter, the error.
fn value(log: &str, side: &Value) -> String {
    match (side["data"].as_str(), side["base64"].as_str()) {
        (Some(text), _) => {
            let letter = log.starts_with("dead/").then(|| serde_json::from_str::<Value>(text).ok()).flatten();
            let error = letter.as_ref().and_then(|letter| letter["error"].as_str());
            error.map_or_else(|| show::brief(text.as_bytes(), VALUE_CHARS), |error| show::headline(error, VALUE_CHARS))
        }
        (None, Some(base64)) => show::brief(&show::from_base64(base64).unwrap_or_default(), VALUE_CHARS),
        (None, None) => "(none)".into(),
    }
}

/// The mean of the values that one bar stands for.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn take(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            (self.sum, self.count) = (self.sum + value, self.count + 1);
        }
    }

    fn with(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }
}

/// A number of a log's records: the record itself, or a field of the JSON object that it is. At most [`PLOT_CHARS`] bars, whatever the
/// number of records: each stands for so many that all have one.
struct Column {
    /// The first and the last seqno.
    range: (u64, u64),
    rows: usize,
    rows_per_bar: usize,
    /// The old values and the new ones.
    bars: Vec<[Mean; 2]>,
    low: f64,
    high: f64,
    differs: bool,
}

impl Default for Column {
    fn default() -> Self {
        let (low, high) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { range: (0, 0), rows: 0, rows_per_bar: 1, bars: Vec::new(), low, high, differs: false }
    }
}

impl Column {
    fn take(&mut self, seqno: u64, old: Option<f64>, new: Option<f64>) {
        if self.rows == PLOT_CHARS * self.rows_per_bar {
            self.bars = self.bars.chunks(2).map(|two| [0, 1].map(|at| two[0][at].with(two[1][at]))).collect();
            self.rows_per_bar *= 2;
        }
        if self.rows.is_multiple_of(self.rows_per_bar) {
            self.bars.push([Mean::default(); 2]);
        }
        if let Some(bar) = self.bars.last_mut() {
            bar[0].take(old);
            bar[1].take(new);
        }
        self.range = (if self.rows == 0 { seqno } else { self.range.0 }, seqno);
        self.rows += 1;
        for value in [old, new].into_iter().flatten() {
            (self.low, self.high) = (self.low.min(value), self.high.max(value));
        }
        self.differs |= old != new;
    }

    /// Whether there is something to compare.
    fn compares(&self) -> bool {
        let has = |at: usize| self.bars.iter().any(|bar| bar[at].count > 0);
        self.rows > 1 && self.low < self.high && self.differs && has(0) && has(1)
    }

    /// The old values or the new ones within their range; a gap where there is none.
    fn drawn(&self, at: usize) -> String {
        let bar = |bar: &[Mean; 2]| {
            let Mean { sum, count } = bar[at];
            if count == 0 {
                return ' ';
            }
            let mean = sum / f64::from(count);
            let step = (mean - self.low) / (self.high - self.low) * (BARS.len() - 1) as f64;
            BARS[(step.round() as usize).min(BARS.len() - 1)]
        };
        self.bars.iter().map(bar).collect()
    }
}

/// Numeric columns by log and field; the field is empty for records that are numbers.
#[derive(Default)]
struct Columns(BTreeMap<(String, String), Column>);

impl Columns {
    fn take(&mut self, log: &str, change: &Value) {
        let Some(seqno) = change["seqno"].as_u64() else { return };
        let (old, new) = (numbers(&change["old"]), numbers(&change["new"]));
        let fields: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for field in fields {
            let column = self.0.entry((log.to_owned(), field.clone())).or_default();
            column.take(seqno, old.get(field).copied(), new.get(field).copied());
        }
    }

    /// For each column that has something to compare: its name and range, the old values, the new ones.
    fn plots(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((log, field), column) in self.0.iter().filter(|(_, column)| column.compares()) {
            let name = if field.is_empty() { log.clone() } else { format!("{log} {field}") };
            let Column { range: (first, last), low, high, .. } = column;
            lines.push(String::new());
            lines.push(format!("{name}  @{first}..{last}  {low} to {high}"));
            lines.push(format!("  old  {}", column.drawn(0)));
            lines.push(format!("  new  {}", column.drawn(1)));
        }
        lines
    }
}

/// The numbers of a side of a change, by field.
fn numbers(side: &Value) -> BTreeMap<String, f64> {
    let Some(text) = side["data"].as_str() else { return BTreeMap::new() };
    let finite = |number: f64| Some(number).filter(|number| number.is_finite());
    if let Some(number) = text.trim().parse().ok().and_then(finite) {
        return BTreeMap::from([(String::new(), number)]);
    }
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return BTreeMap::new() };
    object.into_iter().filter_map(|(field, value)| Some((field, value.as_f64().and_then(finite)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plots(changes: &[Value]) -> Vec<String> {
        let mut columns = Columns::default();
        changes.iter().for_each(|change| columns.take("log", change));
        columns.plots()
    }

    fn change(seqno: u64, old: Option<&str>, new: Option<&str>) -> Value {
        let side = |text: Option<&str>| text.map_or(Value::Null, |text| json!({ "data": text }));
        json!({ "seqno": seqno, "old": side(old), "new": side(new) })
    }

    #[test]
    fn long_values_are_shown_by_what_differs() {
        let shown = |old: &str, new: &str| values("log", &json!({ "data": old }), &json!({ "data": new }));
        let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
        assert_eq!(shown(r#"{"celsius":1}"#, r#"{"celsius":2}"#), pair(r#"{"celsius":1}"#, r#"{"celsius":2}"#));
        let [old, new, more] = ["4.2", "5.1", "4.2,\"by\":\"x\""]
            .map(|celsius| format!(r#"{{"hour":8661,"time":"2013-12-28T02:00:00Z","celsius":{celsius}}}"#));
        assert_eq!(shown(&old, &new), pair("celsius: 4.2", "celsius: 5.1"));
        assert_eq!(shown(&old, &more), pair("(no such field)", "by: \"x\""));
        let (old, new) = (format!("{}1", "a".repeat(60)), format!("{}2", "a".repeat(60)));
        assert_eq!(shown(&old, &new), pair("…aaaaaaaa1", "…aaaaaaaa2"));
        assert_eq!(shown(&"é".repeat(50), "x").1, "x");
    }

    #[test]
    fn numbers_and_numeric_fields_are_plotted_on_one_scale() {
        let found = plots(&[change(2, Some("10"), Some("0")), change(3, Some("5"), None)]);
        assert_eq!(found, ["", "log  @2..3  0 to 10", "  old  █▅", "  new  ▁ "]);
        let object = |v: f64| json!({ "t": "monday", "v": v }).to_string();
        let found = plots(&[change(1, Some(&object(1.0)), Some(&object(2.0))), change(4, None, Some(&object(1.5)))]);
        assert_eq!(found[1], "log v  @1..4  1 to 2");
    }

    #[test]
    fn what_is_no_number_or_does_not_change_has_no_plot() {
        assert_eq!(plots(&[change(1, Some("warm"), Some("cold")), change(2, Some("NaN"), Some("inf"))]), [""; 0]);
        assert_eq!(plots(&[change(1, Some("1"), Some("1")), change(2, Some("2"), Some("2"))]), [""; 0]);
        assert_eq!(plots(&[change(1, Some("1"), Some("2"))]), [""; 0], "one value is in the table");
        assert_eq!(plots(&[change(1, Some("1"), None), change(2, Some("2"), Some("high"))]), [""; 0]);
    }

    #[test]
    fn many_values_share_a_bar() {
        let (old, new) = (|n: u64| n.to_string(), |n: u64| (999 - n).to_string());
        let changes: Vec<_> = (0..1000).map(|n| change(n + 1, Some(&old(n)), Some(&new(n)))).collect();
        let found = plots(&changes);
        assert_eq!(found[1], "log  @1..1000  0 to 999");
        let bars = |line: &str| line[7..].chars().collect::<Vec<_>>();
        let (old, new) = (bars(&found[2]), bars(&found[3]));
        assert!(old.len() <= PLOT_CHARS && old.len() == new.len() && old.len() * 2 > PLOT_CHARS, "{}", old.len());
        assert_eq!((old[0], old[old.len() - 1], new[0], new[new.len() - 1]), ('▁', '█', '█', '▁'));
        assert!(old.is_sorted(), "{found:?}");
    }

    #[test]
    fn a_tally_counts_what_differs_and_what_does_not() {
        let mut tally = Tally::default();
        for change in [change(2, Some("1"), Some("2")), change(3, Some("1"), None), change(9, None, Some("3"))] {
            tally.take(&change);
        }
        tally.take(&json!({ "log": "log", "seqno": null, "new": { "data": "4" } }));
        assert_eq!((tally.changed, tally.removed, tally.new), (1, 1, 2));
        assert_eq!(
            (tally.equal(Some((1, 10))), tally.equal(Some((3, 3))), tally.equal(None)),
            (Some(7), Some(0), None)
        );
    }
}
