//! A service graph as SVG: one file, no script, no font of its own.

use super::{
    Drawing, Effect,
    layout::{Layout, Seat, layout},
    short,
};
use crate::graph::{Edge, Flow, NodeKind};
use std::fmt::Write;

/// Pixels.
const BOX_WIDTH: f64 = 188.0;
const BOX_HEIGHT: f64 = 46.0;
const ROW_HEIGHT: f64 = 74.0;
const COLUMN_WIDTH: f64 = 268.0;
const MARGIN: f64 = 24.0;
const BAND_TITLE: f64 = 30.0;
/// Room for edges that lead back below the last row.
const BAND_FOOT: f64 = 20.0;
/// How far edges between the same two nodes are moved up and down.
const FELLOW_SHIFT: f64 = 9.0;
/// Characters of a name that fit into a box.
const NAME_CHARS_MAX: usize = 24;
/// Room for the legend, and for each of its items: in a picture of a repair, and in others.
const LEGEND_HEIGHT: f64 = 34.0;
const LEGEND_ITEM: f64 = 170.0;
const LEGEND_KIND: f64 = 104.0;
/// What the kinds of nodes and edges are called in the legend.
const NODES: [(NodeKind, &str, &str, f64); 3] = [
    (NodeKind::Log, "log", "log", 4.0),
    (NodeKind::Function, "function", "function", 1.0),
    (NodeKind::Outside, "beyond", "outside", 6.0),
];
const FLOWS: [(Flow, &str, &str, &str); 3] = [
    (Flow::Appends, "edge", "plain", "runs, appends"),
    (Flow::Reads, "edge reads", "reads", "reads"),
    (Flow::Forwards, "edge forwards", "forwards", "forwards"),
];

const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1b2430}\
.name{font-weight:600}.small{font-size:10.5px;fill:#5a6675}.bad{fill:#c62828;font-weight:600}\
.band{fill:#fafbfc;stroke:#d5dbe3}.log{fill:#eef2f7;stroke:#8b99ab}.function{fill:#dbe9ff;stroke:#3b6fc4}\
.failed{stroke:#c62828;stroke-width:2.5}.behind{opacity:.35}.beyond{fill:#fff;stroke:#8b99ab;stroke-dasharray:4 3}\
.edge{fill:none;stroke:#5a6675}.reads{stroke:#aab3bf;stroke-dasharray:5 4}.forwards{stroke:#7a5cc2}\
.count{font-size:10.5px;fill:#5a6675;paint-order:stroke;stroke:#fafbfc;stroke-width:4px}";

/// The graph as a picture.
pub fn svg(drawing: &Drawing<'_>) -> String {
    let graph = drawing.graph;
    let places = Places::new(layout(graph, drawing.namespaces.len()));
    let (mut width, mut height) = places.size();
    let legend = legend(drawing);
    width = width.max(2.0 * MARGIN + legend.iter().map(|(_, width)| width).sum::<f64>());
    height += LEGEND_HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"Service graph\">\n<style>{STYLE}</style>\n"
    );
    out.push_str("<defs>");
    for (name, colour) in [("plain", "#5a6675"), ("reads", "#aab3bf"), ("forwards", "#7a5cc2")] {
        let _ = write!(
            out,
            "<marker id=\"{name}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{colour}\"/></marker>"
        );
    }
    out.push_str("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    for (band, name) in drawing.namespaces.iter().enumerate() {
        let (top, height) = places.band(band);
        let _ = writeln!(
            out,
            "<rect class=\"band\" x=\"8\" y=\"{top:.0}\" width=\"{:.0}\" height=\"{height:.0}\" rx=\"8\"/>\
             <text class=\"small\" x=\"20\" y=\"{:.0}\">{}</text>",
            width - 16.0,
            top + 18.0,
            escaped(name),
        );
    }
    for (at, (edge, path)) in graph.edges.iter().zip(&places.layout.paths).enumerate() {
        // Edges are ordered by their nodes: those that join the same two stand together.
        let has_fellow =
            |other: Option<&Edge>| other.is_some_and(|other| (other.from, other.to) == (edge.from, edge.to));
        let before = at.checked_sub(1).and_then(|before| graph.edges.get(before));
        let shift = match (has_fellow(before), has_fellow(graph.edges.get(at + 1))) {
            (true, _) => FELLOW_SHIFT,
            (false, true) => -FELLOW_SHIFT,
            (false, false) => 0.0,
        };
        let is_behind = drawing.is_behind(edge.from) || drawing.is_behind(edge.to);
        draw_edge(&mut out, &places, edge, path, shift, is_behind);
    }
    for at in 0..graph.nodes.len() {
        draw_node(&mut out, drawing, at, places.corner(&places.layout.seats[at]));
    }
    draw_legend(&mut out, &legend, height - LEGEND_HEIGHT);
    out.push_str("</svg>\n");
    out
}

struct Places {
    layout: Layout,
    /// Where each band begins.
    tops: Vec<f64>,
}

impl Places {
    fn new(layout: Layout) -> Self {
        let mut top = 8.0;
        let tops = layout.heights.iter().map(|rows| {
            let this = top;
            top += Self::band_height(*rows) + 10.0;
            this
        });
        let tops = tops.collect();
        Self { layout, tops }
    }

    fn band_height(rows: usize) -> f64 {
        BAND_TITLE + rows.max(1) as f64 * ROW_HEIGHT + BAND_FOOT
    }

    fn band(&self, band: usize) -> (f64, f64) {
        (self.tops[band], Self::band_height(self.layout.heights[band]))
    }

    fn size(&self) -> (f64, f64) {
        let columns = self.layout.columns.max(1) as f64;
        let last = self.tops.len() - 1;
        let (top, height) = self.band(last);
        (2.0 * MARGIN + (columns - 1.0) * COLUMN_WIDTH + BOX_WIDTH, top + height + 8.0)
    }

    /// The upper left corner of a seat. Columns with fewer seats than the highest one are in the middle.
    fn corner(&self, seat: &Seat) -> (f64, f64) {
        let band = seat.band as usize;
        let fellows = self.layout.seats.iter().filter(|other| (other.band, other.column) == (seat.band, seat.column));
        let free = self.layout.heights[band].saturating_sub(fellows.count()) as f64 / 2.0;
        let x = MARGIN + seat.column as f64 * COLUMN_WIDTH;
        let gap = (ROW_HEIGHT - BOX_HEIGHT) / 2.0;
        (x, self.tops[band] + BAND_TITLE + (seat.place as f64 + free) * ROW_HEIGHT + gap)
    }
}

fn draw_edge(out: &mut String, places: &Places, edge: &Edge, path: &[usize], shift: f64, is_behind: bool) {
    let seats = &places.layout.seats;
    let corner = |at: usize| places.corner(&seats[at]);
    let middle = |(x, y): (f64, f64)| (x, y + BOX_HEIGHT / 2.0 + shift);
    let class = match edge.flow {
        Flow::Reads => ("edge reads", "reads"),
        Flow::Forwards => ("edge forwards", "forwards"),
        Flow::Triggers | Flow::Appends => ("edge", "plain"),
    };
    let width = 1.0 + (edge.count.max(1) as f64).log10() * 0.4;
    let (first, last) = (path[0], path[path.len() - 1]);
    let mut curve = String::new();
    let label;
    if seats[last].column > seats[first].column {
        let (x, y) = middle(corner(first));
        let mut from = (x + BOX_WIDTH, y);
        let _ = write!(curve, "M{:.1} {:.1}", from.0, from.1);
        label = {
            let to = middle(corner(path[1]));
            ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0)
        };
        for at in &path[1..] {
            let to = middle(corner(*at));
            let bend = (to.0 - from.0) / 2.0;
            let _ = write!(
                curve,
                "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
                from.0 + bend,
                from.1,
                to.0 - bend,
                to.1,
                to.0,
                to.1
            );
            from = to;
            // An edge on its way crosses the column straight.
            if seats[*at].node.is_none() {
                from.0 += BOX_WIDTH;
                let _ = write!(curve, "L{:.1} {:.1}", from.0, from.1);
            }
        }
    } else {
        // It leads back: out at the bottom, in at the bottom.
        let ((x0, y0), (x1, y1)) = (corner(first), corner(last));
        let (from, to) = ((x0 + BOX_WIDTH * 0.6, y0 + BOX_HEIGHT), (x1 + BOX_WIDTH * 0.4, y1 + BOX_HEIGHT));
        let depth = from.1.max(to.1) + 34.0;
        let _ = write!(
            curve,
            "M{:.1} {:.1}C{:.1} {depth:.1} {:.1} {depth:.1} {:.1} {:.1}",
            from.0, from.1, from.0, to.0, to.0, to.1
        );
        label = ((from.0 + to.0) / 2.0, depth - 10.0);
    }
    let behind = if is_behind { " behind" } else { "" };
    let _ = writeln!(
        out,
        "<path class=\"{}{behind}\" d=\"{curve}\" stroke-width=\"{width:.1}\" marker-end=\"url(#{})\"/>\
         <text class=\"count{behind}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        class.0,
        class.1,
        label.0,
        label.1 - 3.0,
        short(edge.count as f64),
    );
}

/// The items of the legend, each with its width: what a repair does, or the kinds of nodes and edges that the picture has.
fn legend(drawing: &Drawing<'_>) -> Vec<(Item, f64)> {
    if !drawing.marks.is_empty() {
        return Effect::ALL
            .into_iter()
            .map(|(_, word, fill, stroke)| (Item::Effect(word, fill, stroke), LEGEND_ITEM))
            .collect();
    }
    let graph = drawing.graph;
    // Another namespace is drawn like what is outside, and arrows for triggers like those for appends.
    let kind = |kind| if kind == NodeKind::Elsewhere { NodeKind::Outside } else { kind };
    let flow = |flow| if flow == Flow::Triggers { Flow::Appends } else { flow };
    let nodes = NODES.into_iter().filter(|(of, ..)| graph.nodes.iter().any(|node| kind(node.kind) == *of));
    let nodes = nodes.map(|(_, class, word, radius)| (Item::Node(class, word, radius), LEGEND_KIND));
    let flows = FLOWS.into_iter().filter(|(of, ..)| graph.edges.iter().any(|edge| flow(edge.flow) == *of));
    let flows = flows.map(|(_, class, head, word)| (Item::Flow(class, head, word), LEGEND_KIND));
    let mut items: Vec<_> = nodes.chain(flows).collect();
    let ran = graph.nodes.iter().any(|node| !node.took_us.is_empty());
    items.extend(ran.then_some((Item::Text("function: runs · time, median / 99 %"), 2.0 * LEGEND_KIND)));
    items
}

/// An item of the legend.
enum Item {
    /// Its word, fill and stroke.
    Effect(&'static str, &'static str, &'static str),
    /// Its class, word and radius.
    Node(&'static str, &'static str, f64),
    /// Its class, arrowhead and word.
    Flow(&'static str, &'static str, &'static str),
    Text(&'static str),
}

fn draw_legend(out: &mut String, items: &[(Item, f64)], top: f64) {
    let (mut x, y) = (MARGIN, top + 8.0);
    for (item, width) in items {
        let (word, left) = match item {
            Item::Effect(word, fill, stroke) => {
                let _ = write!(
                    out,
                    "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"18\" height=\"12\" rx=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
                );
                (word, 24.0)
            }
            Item::Node(class, word, radius) => {
                let _ = write!(
                    out,
                    "<rect class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"18\" height=\"12\" rx=\"{radius:.0}\"/>"
                );
                (word, 24.0)
            }
            Item::Flow(class, head, word) => {
                let y = y + 6.0;
                let _ = write!(out, "<path d=\"M{x:.0} {y:.0}h22\" class=\"{class}\" marker-end=\"url(#{head})\"/>");
                (word, 28.0)
            }
            Item::Text(word) => (word, 0.0),
        };
        let _ = writeln!(out, "<text class=\"small\" x=\"{:.0}\" y=\"{:.0}\">{word}</text>", x + left, y + 10.0);
        x += width;
    }
}

fn draw_node(out: &mut String, drawing: &Drawing<'_>, at: usize, (x, y): (f64, f64)) {
    let node = &drawing.graph.nodes[at];
    let (class, radius) = match node.kind {
        NodeKind::Log => ("log", 12.0),
        NodeKind::Function => ("function", 2.0),
        NodeKind::Outside | NodeKind::Elsewhere => ("beyond", 23.0),
    };
    let failed = if node.dead > 0 && drawing.marks.is_empty() { " failed" } else { "" };
    let colours = drawing.mark(at).map_or(String::new(), |mark| {
        let (fill, stroke) = mark.effect.colours();
        format!(" style=\"fill:{fill};stroke:{stroke};stroke-width:2\"")
    });
    let group = if drawing.is_behind(at) { " class=\"behind\"" } else { "" };
    let title = format!("{} {}", drawing.namespace(node), node.name);
    let _ = write!(
        out,
        "<g{group}><title>{}</title><rect class=\"{class}{failed}\"{colours} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BOX_WIDTH}\" \
         height=\"{BOX_HEIGHT}\" rx=\"{radius}\"/>",
        escaped(title.trim()),
    );
    let figures = drawing.figures(at);
    let centre = x + BOX_WIDTH / 2.0;
    let name_y = if figures.is_empty() { y + 27.0 } else { y + 19.0 };
    let _ = write!(
        out,
        "<text class=\"name\" x=\"{centre:.1}\" y=\"{name_y:.1}\" text-anchor=\"middle\">{}</text>",
        escaped(&cut(&node.name)),
    );
    if !figures.is_empty() {
        let y = y + 35.0;
        let _ = write!(
            out,
            "<text class=\"small\" x=\"{centre:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escaped(&figures)
        );
    }
    if let Some(trouble) = drawing.trouble(at) {
        let class = if node.dead > 0 { "small bad" } else { "small" };
        let y = y + BOX_HEIGHT + 12.0;
        let _ = write!(
            out,
            "<text class=\"{class}\" x=\"{centre:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escaped(&trouble)
        );
    }
    out.push_str("</g>\n");
}

/// The end of a name is the most informative part.
fn cut(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - (NAME_CHARS_MAX - 1)).collect();
    format!("…{end}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
