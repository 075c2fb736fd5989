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
    let mut columns = Columns::default();
    loop {
        let page = place.repair_changes(args.repair, args.log.as_deref(), after)?;
        for change in &page.changes {
            shown += 1;
            if out.json() {
                out.object(change)?;
            } else if shown <= SHOWN_MAX {
                let log = change["log"].as_str().unwrap_or_default().to_owned();
                let seqno = change["seqno"].as_u64().map_or("at end".into(), |seqno| seqno.to_string());
                columns.take(&log, change);
                let (old, new) = (value(&log, &change["old"]), value(&log, &change["new"]));
                table.row(vec![log, seqno, old, new]);
            }
        }
        match page.next {
            Some(next) if out.json() || shown < SHOWN_MAX => after = next,
            Some(_) => {
                out.table(&table)?;
                return Ok(out.line(format!("… more than {SHOWN_MAX} records; --json shows all"))?);
            }
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
    for line in columns.plots() {
        out.line(line)?;
    }
    if shown > SHOWN_MAX {
        out.line(format!("… and {} more; --json shows all", shown - SHOWN_MAX))?;
    }
    Ok(())
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

/// A number of a log's records: the record itself, or a field of the JSON object that it is.
#[derive(Default)]
struct Column {
    rows: Vec<Row>,
}

/// A seqno with the old number and the new one.
type Row = (u64, Option<f64>, Option<f64>);

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
            column.rows.push((seqno, old.get(field).copied(), new.get(field).copied()));
        }
    }

    /// For each column that has something to compare: its name and range, the old values, the new ones.
    fn plots(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((log, field), column) in &self.0 {
            let values = || column.rows.iter().flat_map(|(_, old, new)| [old, new]).copied().flatten();
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
            let (old, new) = (|row: &Row| row.1, |row: &Row| row.2);
            let compares =
                column.rows.iter().any(|row| old(row).is_some()) && column.rows.iter().any(|row| new(row).is_some());
            let changes = column.rows.iter().any(|row| old(row) != new(row));
            if column.rows.len() < 2 || low == high || !compares || !changes {
                continue;
            }
            let name = if field.is_empty() { log.clone() } else { format!("{log} {field}") };
            let (first, last) = (column.rows[0].0, column.rows[column.rows.len() - 1].0);
            let bars = |of: fn(&Row) -> Option<f64>| bars(&column.rows.iter().map(of).collect::<Vec<_>>(), (low, high));
            lines.push(String::new());
            lines.push(format!("{name}  @{first}..{last}  {low} to {high}"));
            lines.push(format!("  old  {}", bars(old)));
            lines.push(format!("  new  {}", bars(new)));
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

/// Values as bars within a range, each the mean of its neighbours if there are too many; a gap where there is none.
fn bars(values: &[Option<f64>], (low, high): (f64, f64)) -> String {
    let per_bar = values.len().div_ceil(PLOT_CHARS).max(1);
    let bar = |part: &[Option<f64>]| {
        let known: Vec<f64> = part.iter().copied().flatten().collect();
        if known.is_empty() {
            return ' ';
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let step = (mean - low) / (high - low) * (BARS.len() - 1) as f64;
        BARS[(step.round() as usize).min(BARS.len() - 1)]
    };
    values.chunks(per_bar).map(bar).collect()
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
        let values: Vec<_> = (0..1000).map(|n| Some(f64::from(n))).collect();
        let found: Vec<char> = bars(&values, (0.0, 999.0)).chars().collect();
        assert!(found.len() <= PLOT_CHARS && found[0] == '▁' && found[found.len() - 1] == '█');
    }
}
