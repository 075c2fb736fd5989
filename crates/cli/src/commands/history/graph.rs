//! `millrace graph`: logs and functions, and what flows between them.

use super::sources::{Sources, Version};
use crate::{
    args::{Global, GraphArgs, GraphFormat},
    out::{Out, Style, Table},
    report::Outcome,
    show,
};
use millrace_causality::{
    Edge, Flow, Graph, Node, NodeKind,
    draw::{self, Drawing},
};
use millrace_node::{Code, Hlc, Result};
use serde_json::{Value, json};
use std::{fs, io::IsTerminal, path::Path, thread, time::Duration};

/// Names in one cell of a table.
const CELL_NAMES_MAX: usize = 4;
/// The shortest time between two pictures.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// Clears a terminal, and puts what follows at its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(args: &GraphArgs, global: &Global, out: &mut Out) -> Outcome {
    let format = format(args, out.json())?;
    if args.follow && args.out.is_none() && matches!(format, GraphFormat::Svg | GraphFormat::Dot) {
        return Err(Code::ValueInvalid.error("with the formats svg and dot, --follow needs --out").into());
    }
    let clears = args.follow && format == GraphFormat::Text && std::io::stdout().is_terminal();
    loop {
        if clears {
            out.bytes(CLEAR.as_bytes())?;
        }
        show_once(args, format, global, out)?;
        if !args.follow {
            return Ok(());
        }
        if !clears && format == GraphFormat::Text {
            out.line("")?;
        }
        out.flush()?;
        thread::sleep(args.every.max(EVERY_MIN));
    }
}

fn show_once(args: &GraphArgs, format: GraphFormat, global: &Global, out: &mut Out) -> Outcome {
    let version = if args.original { Version::Original } else { Version::Repaired };
    let sources = Sources::load(global, &args.with, version)?;
    let since = args.since.map_or(Hlc::ZERO, |since| {
        let us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        Hlc::from_wall_us(show::now_us().saturating_sub(us))
    });
    let graph = Graph::new(&sources.history, since, args.internal);
    let names = sources.names();
    let drawing = Drawing { graph: &graph, namespaces: &names, marks: &[] };
    let text = match format {
        GraphFormat::Text => None,
        GraphFormat::Svg => Some(draw::svg(&drawing)),
        GraphFormat::Dot => Some(draw::dot(&drawing)),
        GraphFormat::Json => Some(format!("{}\n", object(&graph, &names, &sources))),
    };
    sources.check()?;
    match (text, &args.out) {
        (Some(text), Some(path)) => Ok(write(path, &text)?),
        (Some(text), None) => Ok(out.bytes(text.as_bytes())?),
        (None, _) => print(&graph, &names, &sources, out),
    }
}

fn format(args: &GraphArgs, json: bool) -> Result<GraphFormat> {
    let named = args.out.as_deref().and_then(Path::extension).and_then(|end| match end.to_str()? {
        "svg" => Some(GraphFormat::Svg),
        "dot" | "gv" => Some(GraphFormat::Dot),
        "json" => Some(GraphFormat::Json),
        _ => None,
    });
    let format = args.format.or(named).or(json.then_some(GraphFormat::Json));
    match (format, &args.out) {
        (Some(GraphFormat::Text), Some(_)) => Err(Code::ValueInvalid.error("--out needs --format svg, json or dot")),
        (None, Some(path)) => {
            let path = path.display();
            Err(Code::ValueInvalid.error(format!("'{path}' does not end in .svg, .json or .dot; give --format")))
        }
        (format, _) => Ok(format.unwrap_or(GraphFormat::Text)),
    }
}

/// Writes a picture to a file.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Code::FileNotWritten.error(format!("{}: {error}", path.display())))
}

struct Names<'a> {
    graph: &'a Graph,
    namespaces: &'a [String],
}

impl Names<'_> {
    fn of(&self, node: &Node) -> String {
        match node.kind {
            NodeKind::Log | NodeKind::Function if self.namespaces.len() > 1 => {
                format!("{}:{}", self.namespaces[node.table as usize], node.name)
            }
            _ => node.name.clone(),
        }
    }

    /// The nodes that edges of a kind connect a node with, and how often.
    fn joined(&self, edges: impl Iterator<Item = (usize, u64)>) -> String {
        let mut all: Vec<(usize, u64)> = edges.collect();
        all.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
        let names = all.iter().take(CELL_NAMES_MAX).map(|(node, _)| self.of(&self.graph.nodes[*node]));
        let mut cell = names.collect::<Vec<String>>().join(" ");
        if all.len() > CELL_NAMES_MAX {
            cell += &format!(" and {} more", all.len() - CELL_NAMES_MAX);
        }
        cell
    }

    fn sources_of(&self, node: usize, flow: impl Fn(&Edge) -> bool) -> String {
        let edges = self.graph.edges.iter().filter(|edge| edge.to == node && flow(edge));
        self.joined(edges.map(|edge| (edge.from, edge.count)))
    }

    fn targets_of(&self, node: usize, flow: impl Fn(&Edge) -> bool) -> String {
        let edges = self.graph.edges.iter().filter(|edge| edge.from == node && flow(edge));
        self.joined(edges.map(|edge| (edge.to, edge.count)))
    }
}

fn print(graph: &Graph, namespaces: &[String], sources: &Sources, out: &mut Out) -> Outcome {
    let names = Names { graph, namespaces };
    if graph.events == 0 {
        return Ok(out.line("no events in that time")?);
    }
    out.line(format!(
        "{}, {} to {}",
        show::count(graph.events, "event"),
        show::rfc3339(graph.from),
        show::rfc3339(graph.to)
    ))?;
    for (namespace, repair, extent) in sources.repairs() {
        let of = if sources.sources.len() > 1 { format!(" of {namespace}") } else { String::new() };
        let (runs, records) = (show::count(extent.runs, "run"), show::count(extent.records, "record"));
        let removed = if extent.void > 0 { format!(", {} removed", show::grouped(extent.void)) } else { String::new() };
        out.line(format!("after repair {repair}{of}: {runs} replayed, {records} replaced{removed}"))?;
    }
    let seconds = graph.seconds();
    let of = |kind: NodeKind| graph.nodes.iter().enumerate().filter(move |(_, node)| node.kind == kind);
    let time = |us: u64| draw::time(us);
    let mut table = Table::new(&[
        "function",
        "runs for",
        "reads",
        "appends to",
        "runs>",
        "rate>",
        "waits>",
        "takes>",
        "99 %>",
        "dead>",
        "pending>",
    ]);
    for (at, node) in of(NodeKind::Function) {
        let quantile = |times: &hdrhistogram::Histogram<u32>, quantile| {
            if times.is_empty() { String::new() } else { time(times.value_at_quantile(quantile)) }
        };
        table.row(vec![
            names.of(node),
            names.sources_of(at, |edge| edge.flow == Flow::Triggers),
            names.sources_of(at, |edge| edge.flow == Flow::Reads),
            names.targets_of(at, |edge| edge.flow == Flow::Appends),
            show::grouped(node.count),
            draw::rate(node.count, seconds),
            quantile(&node.waited_us, 0.5),
            quantile(&node.took_us, 0.5),
            quantile(&node.took_us, 0.99),
            show::grouped(node.dead),
            show::grouped(node.pending()),
        ]);
    }
    if of(NodeKind::Function).next().is_some() {
        out.line("")?;
        out.table(&table)?;
    }
    let mut table = Table::new(&["log", "records>", "rate>", "bytes>", "from"]);
    for (at, node) in of(NodeKind::Log) {
        table.row(vec![
            names.of(node),
            show::grouped(node.count),
            if node.count == 0 { String::new() } else { draw::rate(node.count, seconds) },
            draw::short(node.bytes as f64),
            names.sources_of(at, |edge| matches!(edge.flow, Flow::Appends | Flow::Forwards)),
        ]);
    }
    out.line("")?;
    out.table(&table)?;
    for limit in sources.limits() {
        out.line(out.styled(Style::Warn, &limit))?;
    }
    Ok(())
}

fn object(graph: &Graph, namespaces: &[String], sources: &Sources) -> Value {
    let times = |times: &hdrhistogram::Histogram<u32>| {
        json!({
            "count": times.len(),
            "p50_us": times.value_at_quantile(0.5),
            "p95_us": times.value_at_quantile(0.95),
            "p99_us": times.value_at_quantile(0.99),
            "max_us": times.max(),
        })
    };
    let nodes = graph.nodes.iter().map(|node| {
        let namespace = namespaces.get(node.table as usize);
        match node.kind {
            NodeKind::Outside => json!({ "kind": "outside", "name": node.name }),
            NodeKind::Elsewhere => json!({ "kind": "elsewhere", "name": node.name }),
            NodeKind::Log => json!({
                "kind": "log", "namespace": namespace, "name": node.name, "records": node.count, "bytes": node.bytes,
            }),
            NodeKind::Function => json!({
                "kind": "function", "namespace": namespace, "name": node.name, "runs": node.count, "done": node.done,
                "dead": node.dead, "pending": node.pending(), "attempts": node.attempts, "waited": times(&node.waited_us),
                "took": times(&node.took_us),
            }),
        }
    });
    let nodes: Vec<Value> = nodes.collect();
    let edges = graph.edges.iter().map(|edge| {
        let flow = match edge.flow {
            Flow::Triggers => "triggers",
            Flow::Appends => "appends",
            Flow::Reads => "reads",
            Flow::Forwards => "forwards",
        };
        json!({ "from": edge.from, "to": edge.to, "flow": flow, "count": edge.count })
    });
    let edges: Vec<Value> = edges.collect();
    let repairs = sources.repairs().into_iter().map(|(namespace, repair, extent)| {
        json!({
            "namespace": namespace, "repair": repair, "runs": extent.runs, "records": extent.records, "void": extent.void,
        })
    });
    let repairs: Vec<Value> = repairs.collect();
    json!({
        "from": show::rfc3339(graph.from), "to": show::rfc3339(graph.to), "seconds": graph.seconds(), "events": graph.events,
        "nodes": nodes, "edges": edges, "repairs": repairs, "limits": sources.limits(),
    })
}
