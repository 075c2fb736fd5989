//! The layout of a graph: nodes in columns, so that records flow from left to right, and one namespace above the other.
//!
//! Sugiyama's method: break cycles, place every node after all its predecessors, give each long edge a place in every column that it
//! crosses, and order each column by the neighbours of its nodes.

use crate::graph::{Flow, Graph, NodeKind};

/// How often all columns are ordered.
const SWEEPS: usize = 12;

/// Something that takes a place in a column: a node, or an edge on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// The node; none for an edge on its way.
    pub node: Option<usize>,
    /// The node whose band it is in.
    pub band: u32,
    /// The column.
    pub column: usize,
    /// The place within the column and the band, from the top.
    pub place: usize,
}

/// The layout of a graph.
#[derive(Debug)]
pub(super) struct Layout {
    /// Nodes first, by their numbers, then edges on their way.
    pub seats: Vec<Seat>,
    /// For each edge, the seats that it passes, from its start to its end.
    pub paths: Vec<Vec<usize>>,
    /// How many columns there are.
    pub columns: usize,
    /// For each band, the most seats in one column.
    pub heights: Vec<usize>,
}

/// Lays a graph out; `bands` is how many namespaces there are.
pub(super) fn layout(graph: &Graph, bands: usize) -> Layout {
    let count = graph.nodes.len();
    let forward = forward_edges(graph);
    let columns = columns(count, graph, &forward);
    let band = |at: usize| bands_of(graph, at, bands);
    let mut seats: Vec<Seat> =
        (0..count).map(|at| Seat { node: Some(at), band: band(at), column: columns[at], place: 0 }).collect();
    let mut paths = Vec::with_capacity(graph.edges.len());
    for (edge, is_forward) in graph.edges.iter().zip(&forward) {
        let mut path = vec![edge.from];
        if *is_forward {
            for column in columns[edge.from] + 1..columns[edge.to] {
                path.push(seats.len());
                seats.push(Seat { node: None, band: band(edge.from).max(band(edge.to)), column, place: 0 });
            }
        }
        path.push(edge.to);
        paths.push(path);
    }
    let width = columns.iter().max().map_or(0, |last| last + 1);
    let heights = order(&mut seats, &paths, &forward, width, bands);
    Layout { seats, paths, columns: width, heights }
}

/// The band of a node: what stands outside has that of the first node it is joined to.
fn bands_of(graph: &Graph, at: usize, bands: usize) -> u32 {
    let node = &graph.nodes[at];
    let band = match node.kind {
        NodeKind::Log | NodeKind::Function => node.table,
        NodeKind::Outside | NodeKind::Elsewhere => {
            let joined = graph.edges.iter().find(|edge| edge.from == at || edge.to == at);
            joined.map_or(0, |edge| graph.nodes[if edge.from == at { edge.to } else { edge.from }].table)
        }
    };
    band.min(bands.saturating_sub(1) as u32)
}

/// Which edges lead forward: those that close no circle. Reads are the first to be given up.
fn forward_edges(graph: &Graph) -> Vec<bool> {
    let count = graph.nodes.len();
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut forward = vec![false; graph.edges.len()];
    let (reads, others): (Vec<usize>, Vec<usize>) =
        (0..graph.edges.len()).partition(|at| graph.edges[*at].flow == Flow::Reads);
    for at in others.into_iter().chain(reads) {
        let edge = graph.edges[at];
        if edge.from == edge.to || leads_to(&below, edge.to, edge.from) {
            continue;
        }
        below[edge.from].push(edge.to);
        forward[at] = true;
    }
    forward
}

fn leads_to(below: &[Vec<usize>], from: usize, to: usize) -> bool {
    let (mut seen, mut open) = (vec![false; below.len()], vec![from]);
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if !std::mem::replace(&mut seen[at], true) {
            open.extend(&below[at]);
        }
    }
    false
}

/// The column of each node: one behind the last of those that lead to it.
fn columns(count: usize, graph: &Graph, forward: &[bool]) -> Vec<usize> {
    let mut columns: Vec<usize> = vec![0; count];
    // A path has at most `count` nodes.
    for _ in 0..count {
        let mut moved = false;
        for (edge, _) in graph.edges.iter().zip(forward).filter(|(_, forward)| **forward) {
            if columns[edge.to] <= columns[edge.from] {
                columns[edge.to] = columns[edge.from] + 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    // A node without predecessors is placed right before its successors.
    for at in 0..count {
        let edges = || graph.edges.iter().zip(forward).filter(|(_, forward)| **forward).map(|(edge, _)| edge);
        if !edges().any(|edge| edge.to == at)
            && let Some(next) = edges().filter(|edge| edge.from == at).map(|edge| columns[edge.to]).min()
        {
            columns[at] = next.saturating_sub(1);
        }
    }
    columns
}

/// Orders each column of each band by the mean place of what its members are joined to in the column before or behind. Returns
/// the height of each band.
fn order(seats: &mut [Seat], paths: &[Vec<usize>], forward: &[bool], width: usize, bands: usize) -> Vec<usize> {
    let mut joined: Vec<Vec<usize>> = vec![Vec::new(); seats.len()];
    for (path, _) in paths.iter().zip(forward).filter(|(_, forward)| **forward) {
        for pair in path.windows(2) {
            joined[pair[0]].push(pair[1]);
            joined[pair[1]].push(pair[0]);
        }
    }
    let bands = bands.max(1);
    let mut members: Vec<Vec<Vec<usize>>> = vec![vec![Vec::new(); width]; bands];
    for at in 0..seats.len() {
        members[seats[at].band as usize][seats[at].column].push(at);
    }
    let place = |seats: &mut [Seat], column: &[usize]| {
        column.iter().enumerate().for_each(|(place, at)| seats[*at].place = place);
    };
    members.iter().flatten().for_each(|column| place(seats, column));
    for sweep in 0..SWEEPS {
        let is_forward = sweep % 2 == 0;
        for step in 0..width {
            let column = if is_forward { step } else { width - 1 - step };
            for band in &mut members {
                let mean = |at: usize| {
                    let side = |other: &&usize| (seats[**other].column < column) == is_forward;
                    let height = |at: usize| f64::from(seats[at].band) * 1e6 + seats[at].place as f64;
                    let places: Vec<f64> = joined[at].iter().filter(side).map(|other| height(*other)).collect();
                    if places.is_empty() { height(at) } else { places.iter().sum::<f64>() / places.len() as f64 }
                };
                let mut keyed: Vec<(f64, usize)> = band[column].iter().map(|at| (mean(*at), *at)).collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                band[column] = keyed.into_iter().map(|(_, at)| at).collect();
                place(seats, &band[column]);
            }
        }
    }
    members.iter().map(|band| band.iter().map(Vec::len).max().unwrap_or(0)).collect()
}
