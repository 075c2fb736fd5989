//! docs/benchmarks.json, and docs/benchmarks.md made from it.

use crate::{Outcome, machine::Machine, measure::figure, rows};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _, fs, io::ErrorKind, path::Path};

/// The folder of the pictures beside the page.
const PICTURES: &str = "benchmarks";

/// The file of the picture of a row.
pub fn picture_of(id: &str) -> String {
    format!("{PICTURES}/{id}.svg")
}

/// Everything that was measured.
#[derive(Default, Serialize, Deserialize)]
pub struct Report {
    pub machine: Machine,
    /// Processes waiting to run when the bench started, averaged over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    pub date: String,
    pub rows: Vec<Row>,
}

/// One figure, and those of comparable systems.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    pub id: String,
    pub value: f64,
    pub unit: String,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub samples: u64,
    pub peers: BTreeMap<String, f64>,
    pub target: String,
    pub met: bool,
    /// Other figures of the same scenario, each with its unit.
    pub also: Vec<Figure>,
    /// The results for different loads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Point>,
    /// The file of a picture beside the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<String>,
    /// The picture itself, if it was drawn in this run.
    #[serde(skip)]
    pub drawing: Option<String>,
    pub note: String,
    /// Rows may come from different runs, so each has its machine, date, commit, and the load of other programs.
    #[serde(default)]
    pub machine: Option<Machine>,
    pub date: String,
    pub commit: String,
    /// The share of the machine's processor time that was used by other processes than the bench and its children, in percent.
    pub others_cpu_percent: f64,
}

/// A named figure with its unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
}

/// The result for one load: operations per second, and the latencies of the accepted ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// The load, as a share of the row's value.
    pub share: f64,
    pub offered: f64,
    pub taken: f64,
    pub refused: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Report {
    /// The report of an earlier run, or an empty one.
    pub fn load(dir: &Path) -> Outcome<Self> {
        match fs::read(dir.join("benchmarks.json")) {
            Ok(bytes) => {
                let mut report: Self = serde_json::from_slice(&bytes)?;
                for row in &mut report.rows {
                    row.machine.get_or_insert_with(|| report.machine.clone());
                }
                Ok(report)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a row, or replaces its older figures.
    pub fn put(&mut self, mut row: Row) {
        row.machine.get_or_insert_with(|| self.machine.clone());
        self.rows.retain(|old| old.id != row.id);
        self.rows.push(row);
        let place = |row: &Row| rows::ALL.iter().position(|spec| spec.id == row.id).unwrap_or(usize::MAX);
        self.rows.sort_by_key(place);
    }

    pub fn save(&self, dir: &Path) -> Outcome<()> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        for row in &self.rows {
            if let (Some(file), Some(drawing)) = (&row.picture, &row.drawing) {
                fs::create_dir_all(dir.join(PICTURES))?;
                fs::write(dir.join(file), drawing)?;
            }
        }
        fs::write(dir.join("benchmarks.json"), json)?;
        Ok(fs::write(dir.join("benchmarks.md"), self.page())?)
    }

    /// The machines on which the rows were measured.
    fn machines(&self) -> Vec<&Machine> {
        let mut machines: Vec<&Machine> = Vec::new();
        for machine in self.rows.iter().filter_map(|row| row.machine.as_ref()) {
            if machines.iter().all(|other| !other.is_like(machine)) {
                machines.push(machine);
            }
        }
        machines
    }

    /// The page docs/benchmarks.md.
    fn page(&self) -> String {
        let mut page = String::from("# Benchmarks\n\n");
        let _ = writeln!(
            page,
            "![How many times faster Millrace is than other systems, or smaller](benchmarks/standing.svg)\n\n\
             `scripts/standing.py` draws this picture from [the figures below](benchmarks.json): each bar is a row and one of the systems that\n\
             it is compared with. Rows that miss their target are the lower part. Limits of the machine, and figures that others published,\n\
             are only in the table.\n"
        );
        let _ = writeln!(
            page,
            "`make bench` measures everything here and writes this page; `make bench ONLY=id` measures one row.\n\
             The last column has figures of comparable systems and limits of the machine, measured in the same run, except those of CSPOT and\n\
             Sans-Souci. The [glossary](glossary.md) defines the terms.\n\n\
             In the texts below the table, `median of 8 (12.5 to 14.4)` means the median of 8 repetitions, with the smallest and the largest\n\
             of them: in the unit of the row, unless the text names another unit or a ratio. *Not pinned* means that the kernel may move the\n\
             threads between processors. *The other systems* are those of the last column.\n"
        );
        for (number, machine) in self.machines().iter().enumerate() {
            let of = |row: &&Row| row.machine.as_ref().is_some_and(|other| other.is_like(machine));
            let ids: Vec<&str> = self.rows.iter().filter(of).map(|row| row.id.as_str()).collect();
            let name = char::from(b'A' + number as u8); // nobody has so many machines
            let _ = writeln!(
                page,
                "**Machine {name}.** {}, {} cores, {} GiB, Linux {}; data on {}. The disk itself: {} Rows: {}.\n",
                machine.cpu,
                machine.cores,
                machine.memory_gib,
                machine.kernel,
                machine.filesystem,
                figures(&machine.disk),
                ids.join(", "),
            );
        }
        let _ = writeln!(
            page,
            "Load averages of the machine before the last run: {:.2} {:.2} {:.2} (1, 5 and 15 minutes), {}.\n",
            self.load[0], self.load[1], self.load[2], self.date
        );
        page.push_str("| id | measurement | value | target | met | p50 | p99 | compared with |\n");
        page.push_str("|---|---|--:|---|---|--:|--:|---|\n");
        for row in &self.rows {
            let what = rows::ALL.iter().find(|spec| spec.id == row.id).map_or("", |spec| spec.what);
            let peers: Vec<String> =
                row.peers.iter().map(|(name, value)| format!("{name} {}", figure(*value))).collect();
            // A rate's quantiles are those of single operations.
            let time = if row.unit == "/s" { " µs" } else { "" };
            let value = format!("{} {}", figure(row.value), row.unit);
            let _ = writeln!(
                page,
                "| {} | {what} | **{}** | {} | {} | {} | {} | {} |",
                row.id,
                value.trim_end(),
                row.target,
                if row.met { "yes" } else { "**no**" },
                row.p50.map_or(String::new(), |p50| figure(p50) + time),
                row.p99.map_or(String::new(), |p99| figure(p99) + time),
                peers.join("; ")
            );
        }
        page.push_str(
            "\np50, p99 and the compared figures have the unit of the value, unless another one is given.\n\n\
             ## How each row is measured\n\n",
        );
        for row in &self.rows {
            let _ = writeln!(page, "**{}.** {}", row.id, row.note);
            if !row.also.is_empty() {
                let _ = writeln!(page, "Also: {}", figures(&row.also));
            }
            if let Some(picture) = &row.picture {
                let _ = writeln!(page, "\n![{}]({picture})\n", row.id);
            }
            if !row.curve.is_empty() {
                page.push_str("\n| share of the rate | offered /s | accepted /s | refused /s | p50 µs | p99 µs |\n");
                page.push_str("|--:|--:|--:|--:|--:|--:|\n");
            }
            for point in &row.curve {
                let Point { share, offered, taken, refused, p50_us, p99_us } = point;
                let [offered, taken, refused, p50, p99] = [offered, taken, refused, p50_us, p99_us].map(|v| figure(*v));
                let _ = writeln!(page, "| {share} | {offered} | {taken} | {refused} | {p50} | {p99} |");
            }
            if !row.curve.is_empty() {
                page.push('\n');
            }
            let noun = if row.samples == 1 { "sample" } else { "samples" };
            let _ = writeln!(
                page,
                "({} {noun}; {}, commit {}; {:.0} % of the processor time went to other programs and to threads of the kernel.)\n",
                row.samples, row.date, row.commit, row.others_cpu_percent
            );
        }
        page
    }
}

/// Figures in one sentence.
fn figures(list: &[Figure]) -> String {
    let texts: Vec<String> =
        list.iter().map(|f| format!("{} {} {}", f.name, figure(f.value), f.unit).trim_end().to_owned()).collect();
    if texts.is_empty() { "nothing.".into() } else { texts.join("; ") + "." }
}

/// A row as text for the terminal.
pub fn line(row: &Row) -> String {
    let met = if row.met { "met" } else { "NOT MET" };
    let peers: Vec<String> = row.peers.iter().map(|(name, value)| format!("{name} {}", figure(*value))).collect();
    format!(
        "{} {} (p50 {}, p99 {}; target {}: {met})\n        compared with: {}\n        also: {}\n        {}",
        figure(row.value),
        row.unit,
        row.p50.map_or("-".into(), figure),
        row.p99.map_or("-".into(), figure),
        row.target,
        peers.join("; "),
        figures(&row.also),
        row.note
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_figure_takes_the_place_of_the_old_and_the_order_stays() {
        let row = |id: &str, value| Row { id: id.into(), value, ..Row::default() };
        let mut report = Report::default();
        for (id, value) in [("log.get", 1.0), ("journal.append", 2.0), ("log.get", 3.0)] {
            report.put(row(id, value));
        }
        let got: Vec<(&str, f64)> = report.rows.iter().map(|row| (row.id.as_str(), row.value)).collect();
        assert_eq!(got, [("journal.append", 2.0), ("log.get", 3.0)]);
    }
}
