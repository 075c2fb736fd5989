//! The plan as a picture: the service graph, with what the repair would reach.

use super::Plan;
use crate::show;
use millrace_causality::{
    Graph, Node, NodeKind,
    draw::{self, Drawing, Effect, Mark},
};
use millrace_node::{Code, Hlc, Result};
use std::path::Path;

/// The language of a picture.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Svg,
    Dot,
}

/// The language that the name of a file asks for.
pub(super) fn format(path: &Path) -> Result<Format> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("dot" | "gv") => Ok(Format::Dot),
        _ => Err(Code::ValueInvalid.error(format!("'{}' does not end in .svg or .dot", path.display()))),
    }
}

impl Plan<'_> {
    /// The service graph, with the logs and functions that the repair would reach.
    pub(super) fn picture(&self, format: Format) -> String {
        let graph = Graph::new(&self.sources.history, Hlc::ZERO, false);
        let marks: Vec<Option<Mark>> = graph.nodes.iter().map(|node| self.mark(node)).collect();
        let names = self.sources.names();
        let drawing = Drawing { graph: &graph, namespaces: &names, marks: &marks };
        match format {
            Format::Svg => draw::svg(&drawing),
            Format::Dot => draw::dot(&drawing),
        }
    }

    fn mark(&self, node: &Node) -> Option<Mark> {
        let at = node.table as usize;
        match node.kind {
            NodeKind::Log => self.mark_of_log(at, &node.name),
            NodeKind::Function => self.mark_of_function(at, &node.name),
            NodeKind::Outside | NodeKind::Elsewhere => None,
        }
    }

    fn mark_of_log(&self, at: usize, name: &str) -> Option<Mark> {
        let corrected = self.corrected.as_ref().filter(|log| at == 0 && log.log == name && log.records > 0);
        let rewritten = self.table(at).log(name).and_then(|log| self.found[at].rewrites.get(&log));
        let mut text = Vec::new();
        if let Some(log) = corrected {
            text.push(format!("{} corrected", show::count(log.records, "record")));
        }
        if let Some(log) = rewritten {
            text.push(format!("{} rewritten", show::count(log.records, "record")));
        }
        let effect = if corrected.is_some() { Effect::Corrected } else { Effect::Changed };
        (!text.is_empty()).then(|| Mark { effect, text: text.join(", ") })
    }

    fn mark_of_function(&self, at: usize, name: &str) -> Option<Mark> {
        let id = self.table(at).function(name)?;
        let of = |group: &&super::Alike| group.0 == at && group.1 == id;
        let replayed: u64 = self.will().iter().filter(|(alike, _)| of(alike)).map(|(_, group)| group.runs).sum();
        let kept: u64 = self
            .kept()
            .iter()
            .filter(|((of, function, _), _)| (*of, *function) == (at, id))
            .map(|(_, runs)| runs)
            .sum();
        let is_replaced = at == 0 && self.replaced.iter().any(|(function, _)| function == name);
        let mut text = Vec::new();
        if replayed > 0 || is_replaced {
            text.push(format!("{} replayed", show::count(replayed, "run")));
        }
        if kept > 0 {
            text.push(format!("{} not replayed", show::count(kept, "run")));
        }
        let effect = match (is_replaced, kept) {
            (true, _) => Effect::Corrected,
            (false, 0) => Effect::Changed,
            (false, _) => Effect::NotReplayed,
        };
        (!text.is_empty()).then(|| Mark { effect, text: text.join(", ") })
    }
}
