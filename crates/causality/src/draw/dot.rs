//! A service graph in Graphviz's language.

use super::{Drawing, short};
use crate::graph::{Flow, Node, NodeKind};
use std::fmt::Write;

/// The graph in DOT: one cluster for each namespace, reads dashed and grey, failures red.
pub fn dot(drawing: &Drawing<'_>) -> String {
    let graph = drawing.graph;
    let mut out = String::from("digraph millrace {\n  rankdir=LR;\n  node [fontname=\"sans-serif\" fontsize=11];\n");
    out.push_str("  edge [fontname=\"sans-serif\" fontsize=9];\n");
    for (table, name) in drawing.namespaces.iter().enumerate() {
        let _ =
            writeln!(out, "  subgraph cluster_{table} {{\n    label=\"{}\";\n    color=\"#c5ccd6\";", escaped(name));
        for (at, node) in graph.nodes.iter().enumerate().filter(|(_, node)| is_within(node, table)) {
            let _ = writeln!(out, "    {}", line(drawing, at, node));
        }
        out.push_str("  }\n");
    }
    for (at, node) in graph.nodes.iter().enumerate().filter(|(_, node)| is_beyond(node)) {
        let _ = writeln!(out, "  {}", line(drawing, at, node));
    }
    for edge in &graph.edges {
        let style = match edge.flow {
            Flow::Reads => " style=dashed color=\"#9aa4b2\"",
            Flow::Forwards => " color=\"#7a5cc2\"",
            Flow::Triggers | Flow::Appends => "",
        };
        let (from, to, count) = (edge.from, edge.to, short(edge.count as f64));
        let _ = writeln!(out, "  n{from} -> n{to} [label=\"{count}\"{style}];");
    }
    out.push_str("}\n");
    out
}

fn is_beyond(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Outside | NodeKind::Elsewhere)
}

fn is_within(node: &Node, table: usize) -> bool {
    !is_beyond(node) && node.table as usize == table
}

fn line(drawing: &Drawing<'_>, at: usize, node: &Node) -> String {
    let mut label = escaped(&node.name);
    for more in [Some(drawing.figures(at)).filter(|text| !text.is_empty()), drawing.trouble(at)].into_iter().flatten() {
        label.push_str("\\n");
        label.push_str(&escaped(&more));
    }
    let shape = match node.kind {
        NodeKind::Log => "shape=box style=\"rounded,filled\" fillcolor=\"#eef2f7\"",
        NodeKind::Function => "shape=box style=filled fillcolor=\"#dbe9ff\"",
        NodeKind::Outside | NodeKind::Elsewhere => "shape=plaintext",
    };
    let colour = match drawing.mark(at).map(|mark| mark.effect.colours()) {
        // The last value of an attribute counts.
        Some((fill, stroke)) => format!(" fillcolor=\"{fill}\" color=\"{stroke}\" penwidth=2"),
        None if drawing.is_behind(at) => " color=\"#c5ccd6\" fontcolor=\"#9aa4b2\"".into(),
        None if node.dead > 0 => " color=\"#c62828\" penwidth=2".into(),
        None => String::new(),
    };
    format!("n{at} [label=\"{label}\" {shape}{colour}];")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ")
}
