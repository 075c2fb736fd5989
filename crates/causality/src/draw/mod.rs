//! A service graph as a picture: SVG, or DOT for Graphviz.

mod dot;
mod layout;
mod svg;

pub use dot::dot;
pub use svg::svg;

use crate::graph::{Graph, Node, NodeKind};
use std::time::Duration;

/// The input: a graph, and the names of its namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Drawing<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// The names of its tables, in their order.
    pub namespaces: &'g [String],
    /// For each node what a repair would do to it; empty if the picture is not about a repair.
    pub marks: &'g [Option<Mark>],
}

/// The effect of a repair on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The effect of the repair: it reaches, changes or corrects the node.
    pub effect: Effect,
    /// The text below the name.
    pub text: String,
}

/// The kind of effect that a repair has on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Runs of a function are reached and not replayed.
    NotReplayed,
    /// Records are rewritten or runs replayed.
    Changed,
    /// Records or the code are corrected.
    Corrected,
}

impl Effect {
    /// All kinds, with their words in the legend, their fill and their stroke.
    const ALL: [(Effect, &'static str, &'static str, &'static str); 3] = [
        (Effect::Corrected, "corrected", "#f6c177", "#b25b00"),
        (Effect::Changed, "replayed or rewritten", "#fdf0d0", "#c98a2b"),
        (Effect::NotReplayed, "reached, not replayed", "#fff", "#c62828"),
    ];

    fn colours(self) -> (&'static str, &'static str) {
        let found = Self::ALL.iter().find(|(effect, ..)| *effect == self);
        found.map_or(("#fff", "#000"), |(.., fill, stroke)| (fill, stroke))
    }
}

impl Drawing<'_> {
    fn namespace(&self, node: &Node) -> &str {
        self.namespaces.get(node.table as usize).map_or("", String::as_str)
    }

    fn mark(&self, at: usize) -> Option<&Mark> {
        self.marks.get(at)?.as_ref()
    }

    /// Whether the node is drawn faintly, because the picture shows a repair that does not reach it.
    fn is_behind(&self, at: usize) -> bool {
        !self.marks.is_empty() && self.mark(at).is_none()
    }

    /// The text below a node's name.
    fn figures(&self, at: usize) -> String {
        if let Some(mark) = self.mark(at) {
            return mark.text.clone();
        }
        let node = &self.graph.nodes[at];
        match node.kind {
            NodeKind::Outside | NodeKind::Elsewhere => String::new(),
            NodeKind::Log => format!("{} · {}", short(node.count as f64), rate(node.count, self.graph.seconds())),
            NodeKind::Function if node.took_us.is_empty() => format!("{} runs", short(node.count as f64)),
            NodeKind::Function => {
                let took = |quantile| time(node.took_us.value_at_quantile(quantile));
                format!("{} runs · {} / {}", short(node.count as f64), took(0.5), took(0.99))
            }
        }
    }

    /// The failed and waiting runs of a node.
    fn trouble(&self, at: usize) -> Option<String> {
        let node = &self.graph.nodes[at];
        match (node.dead, node.pending()) {
            _ if !self.marks.is_empty() => None,
            (0, 0) => None,
            (0, pending) => Some(format!("{} pending", short(pending as f64))),
            (dead, 0) => Some(format!("{} dead", short(dead as f64))),
            (dead, pending) => Some(format!("{} dead, {} pending", short(dead as f64), short(pending as f64))),
        }
    }
}

/// A number in at most four characters and a unit: `999`, `1.2k`, `35M`.
pub fn short(number: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    for (unit, letter) in units {
        if number >= unit {
            let shown = number / unit;
            return if shown >= 10.0 { format!("{shown:.0}{letter}") } else { format!("{shown:.1}{letter}") };
        }
    }
    if number >= 10.0 || number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// A rate, in the first unit in which it is at least 1: `12/s`, `3.5/min`, `24/d`.
pub fn rate(count: u64, seconds: f64) -> String {
    let units = [(1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d")];
    let per = |unit: f64| count as f64 / seconds * unit;
    let (unit, name) = units.into_iter().find(|(unit, _)| per(*unit) >= 1.0).unwrap_or((86400.0, "d"));
    format!("{}/{name}", short(per(unit)))
}

/// Microseconds for people: `850 µs`, `2.1 ms`, `35 s`, `3.5 h`.
pub fn time(us: u64) -> String {
    let time = Duration::from_micros(us).as_secs_f64();
    let shown = |value: f64, unit: &str| {
        if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
    };
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => shown(time * 1e3, "ms"),
        1_000_000..120_000_000 => shown(time, "s"),
        120_000_000..7_200_000_000 => shown(time / 60.0, "min"),
        _ => shown(time / 3600.0, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rates_and_times_are_short() {
        let shown: Vec<String> = [0.0, 7.0, 9.25, 999.0, 1_234.0, 35_500_000.0].into_iter().map(short).collect();
        assert_eq!(shown, ["0", "7", "9.2", "999", "1.2k", "36M"]);
        assert_eq!((rate(120, 10.0), rate(120, 3600.0), rate(1, 1e6)), ("12/s".into(), "2/min".into(), "0.1/d".into()));
        let shown: Vec<String> = [850, 2_140, 35_000_000, 150_000_000, 12_600_000_000].into_iter().map(time).collect();
        assert_eq!(shown, ["850 µs", "2.1 ms", "35 s", "2.5 min", "3.5 h"]);
    }
}
