//! The service graph: which functions run for the records of which logs, what they read and append, how often and how fast.

use crate::{
    history::{Cause, History, Place},
    row::KeyedRead,
};
use hdrhistogram::Histogram;
use millrace_journal::{Kind, Outcome, What};
use millrace_wire::{Hlc, NamespaceId};
use std::collections::{BTreeSet, HashMap};

/// The upper limit of a histogram: a day.
const TIME_MAX_US: u64 = 24 * 60 * 60 * 1_000_000;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// Clients and other sources outside the namespace.
    Outside,
    /// A log.
    Log,
    /// A function.
    Function,
    /// A namespace without a journal here.
    Elsewhere,
}

/// A log, a function, or an outside source.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its kind.
    pub kind: NodeKind,
    /// The table it is in; for an outside source, any.
    pub table: u32,
    /// Its name.
    pub name: String,
    /// Of a log, its records; of a function, the runs that were triggered.
    pub count: u64,
    /// Of a log, the bytes of its records.
    pub bytes: u64,
    /// Runs that ended well.
    pub done: u64,
    /// Runs that were given up.
    pub dead: u64,
    /// Attempts; a run that failed at first has several.
    pub attempts: u64,
    /// Microseconds from a run's trigger to its first attempt.
    pub waited_us: Histogram<u32>,
    /// Microseconds of a run's last attempt.
    pub took_us: Histogram<u32>,
}

impl Node {
    /// Runs that have not ended.
    pub fn pending(&self) -> u64 {
        match self.kind {
            NodeKind::Function => self.count.saturating_sub(self.done + self.dead),
            _ => 0,
        }
    }
}

/// How records flow along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// Records of a log trigger a function.
    Triggers,
    /// A function or an outside source appends to a log.
    Appends,
    /// A function reads a log.
    Reads,
    /// Records of a log go to one elsewhere.
    Forwards,
}

/// An edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node it comes from.
    pub from: usize,
    /// The node it goes to.
    pub to: usize,
    /// How records flow along it.
    pub flow: Flow,
    /// How many: runs, records, or reads.
    pub count: u64,
}

/// A service graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Logs, functions and outside sources, ordered by table, kind and name.
    pub nodes: Vec<Node>,
    /// Edges, ordered by their nodes.
    pub edges: Vec<Edge>,
    /// The clock of the first event that was counted.
    pub from: Hlc,
    /// The clock of the last one.
    pub to: Hlc,
    /// Events that were counted.
    pub events: u64,
}

impl Graph {
    /// Seconds between the first event and the last one, at least a microsecond.
    pub fn seconds(&self) -> f64 {
        self.to.wall_us().saturating_sub(self.from.wall_us()).max(1) as f64 / 1e6
    }

    /// The graph of all events from a moment on. Logs of the runtime are left out unless `internal` asks for them; what goes through them
    /// to another namespace is shown as going there.
    pub fn new(history: &History, since: Hlc, internal: bool) -> Graph {
        let mut making = Making { history, internal, ids: HashMap::new(), nodes: Vec::new(), edges: HashMap::new() };
        let mut graph = Graph::default();
        let mut runs: HashMap<Place, u64> = HashMap::new();
        for place in history.order().filter(|place| history.row(*place).hlc() >= since) {
            let row = history.row(place);
            if graph.events == 0 {
                graph.from = row.hlc();
            }
            graph.events += 1;
            graph.to = graph.to.max(row.hlc());
            if row.is(Kind::Append) {
                making.append(place);
            } else if row.is(Kind::Trigger) {
                making.trigger(place);
            } else if row.is(Kind::Fired) {
                making.fired(place, &mut runs);
                if history.table(place).is_read(place.row) {
                    making.read(place);
                }
            } else if row.is(Kind::Read) || row.is(Kind::Call) {
                making.read(place);
            } else if row.is(Kind::Done) {
                making.done(place, &mut runs);
            }
        }
        making.finish(graph)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Outside,
    Log(u32, u32),
    Function(u32, u32),
    Elsewhere(NamespaceId),
}

struct Making<'h> {
    history: &'h History,
    internal: bool,
    ids: HashMap<Key, usize>,
    nodes: Vec<Node>,
    edges: HashMap<(usize, usize, Flow), u64>,
}

fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, TIME_MAX_US, 2).expect("the bounds are those of a histogram")
}

impl Making<'_> {
    fn node(&mut self, key: Key) -> usize {
        if let Some(node) = self.ids.get(&key) {
            return *node;
        }
        let tables = self.history.tables();
        let (kind, table, name) = match key {
            Key::Outside => (NodeKind::Outside, 0, "outside".to_owned()),
            Key::Elsewhere(namespace) => (NodeKind::Elsewhere, 0, namespace.to_string()),
            Key::Log(table, id) => {
                let name = tables[table as usize].log_name(id).map_or_else(|| format!("(log {id})"), String::from);
                (NodeKind::Log, table, name)
            }
            Key::Function(table, id) => {
                let name = tables[table as usize].function_name(id);
                (NodeKind::Function, table, name.map_or_else(|| format!("(function {id})"), String::from))
            }
        };
        self.ids.insert(key, self.nodes.len());
        let (waited_us, took_us) = (histogram(), histogram());
        let node = Node { kind, table, name, count: 0, bytes: 0, done: 0, dead: 0, attempts: 0, waited_us, took_us };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize, flow: Flow) {
        *self.edges.entry((from, to, flow)).or_default() += 1;
    }

    /// The log of an APPEND, unless it is left out.
    fn log(&mut self, table: u32, id: u32) -> Option<usize> {
        let name = self.history.tables()[table as usize].log_name(id);
        if !self.internal && name.is_some_and(|name| name.starts_with('_')) {
            return None;
        }
        Some(self.node(Key::Log(table, id)))
    }

    fn function(&mut self, place: Place) -> usize {
        let id = self.history.row(place).subject;
        self.node(Key::Function(place.table, id))
    }

    fn append(&mut self, place: Place) {
        let (row, table) = (self.history.row(place), self.history.table(place));
        let version = table.version(place.row);
        if version.is_some_and(|version| version.void) {
            return;
        }
        let Some(log) = self.log(place.table, row.subject) else { return };
        self.nodes[log].count += 1;
        self.nodes[log].bytes += version.map_or(row, |version| table.row(version.row)).record_bytes();
        let cause = if row.claimed() { Cause::Outside } else { self.history.cause(place) };
        match cause {
            Cause::Outside => {
                let outside = self.node(Key::Outside);
                self.edge(outside, log, Flow::Appends);
            }
            Cause::Unknown(id) => {
                let own = self.history.table(place).namespace();
                let from = match id.namespace() {
                    Some(namespace) if namespace != own => self.node(Key::Elsewhere(namespace)),
                    _ => self.node(Key::Outside),
                };
                self.edge(from, log, Flow::Forwards);
            }
            Cause::Known(cause) => self.forwarded(cause, log),
        }
    }

    /// The cause of a record is a run or a record; the cause of a message from an outbox is the run that sent it.
    fn forwarded(&mut self, cause: Place, log: usize) {
        let row = self.history.row(cause);
        if row.is(Kind::Trigger) {
            let function = self.function(cause);
            return self.edge(function, log, Flow::Appends);
        }
        if !row.is(Kind::Append) {
            return;
        }
        if let Some(source) = self.log(cause.table, row.subject) {
            return self.edge(source, log, Flow::Forwards);
        }
        let sender = match self.history.cause(cause) {
            Cause::Known(run) if self.history.row(run).is(Kind::Trigger) => self.function(run),
            _ => self.node(Key::Outside),
        };
        self.edge(sender, log, Flow::Appends);
    }

    fn trigger(&mut self, place: Place) {
        let function = self.function(place);
        self.nodes[function].count += 1;
        let read = self.history.table(place).reads(place.row).next();
        if let Some(log) = read.and_then(|read| self.log(place.table, read.log)) {
            self.edge(log, function, Flow::Triggers);
        }
    }

    fn fired(&mut self, place: Place, runs: &mut HashMap<Place, u64>) {
        let row = self.history.row(place);
        if row.attempt().is_some_and(|(_, waits)| waits) {
            return;
        }
        let function = self.function(place);
        self.nodes[function].attempts += 1;
        let Some(run) = self.history.run_of(place) else { return };
        let now_us = row.hlc().wall_us();
        if runs.insert(run, now_us).is_none() {
            let waited_us = now_us.saturating_sub(self.history.row(run).hlc().wall_us());
            self.nodes[function].waited_us.saturating_record(waited_us.max(1));
        }
    }

    fn read(&mut self, place: Place) {
        let Some(run) = self.history.run_of(place) else { return };
        let function = self.function(run);
        let table = self.history.table(place);
        let reads = table.reads(place.row).filter(|read| read.what != What::Absent).map(|read| read.log);
        let keys = table.keyed_reads(place.row).map(|read| match read {
            KeyedRead::Absent { log, .. } | KeyedRead::Range { log, .. } => log,
        });
        let logs: BTreeSet<u32> = reads.chain(keys).collect();
        for log in logs {
            if let Some(log) = self.log(place.table, log) {
                self.edge(log, function, Flow::Reads);
            }
        }
    }

    fn done(&mut self, place: Place, runs: &mut HashMap<Place, u64>) {
        let (row, table) = (self.history.row(place), self.history.table(place));
        let function = self.function(place);
        let replay = table.run_of(place.row).and_then(|run| table.replay(run));
        match replay.map_or(row, |replay| table.row(replay.row)).outcome() {
            Some((Outcome::Dead, _)) => self.nodes[function].dead += 1,
            _ => self.nodes[function].done += 1,
        }
        if let Some(fired) = self.history.run_of(place).and_then(|run| runs.remove(&run)) {
            let took_us = row.hlc().wall_us().saturating_sub(fired);
            self.nodes[function].took_us.saturating_record(took_us.max(1));
        }
    }

    fn finish(self, mut graph: Graph) -> Graph {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| {
            let key = |at: &usize| (self.nodes[*at].table, self.nodes[*at].kind, self.nodes[*at].name.clone());
            key(a).cmp(&key(b))
        });
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, old)| places[*old] = new);
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        graph.nodes = order.iter().filter_map(|at| nodes[*at].take()).collect();
        let edges = self.edges.into_iter();
        let edges = edges.map(|((from, to, flow), count)| Edge { from: places[from], to: places[to], flow, count });
        graph.edges = edges.collect();
        graph.edges.sort_by_key(|edge| (edge.from, edge.to, edge.flow));
        graph
    }
}
