//! The service graph against plain counts, and its pictures.

use crate::world::{Entry, FUNCTIONS, OUTBOX, World};
use millrace_causality::{
    Flow, Graph, NodeKind,
    draw::{Drawing, Mark, dot, svg},
};
use millrace_journal::Kind;
use millrace_wire::Hlc;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_graph_counts_every_event_once(seed: u64, namespaces in 1usize..4, steps in 1usize..150) {
        let world = World::grown(seed, namespaces, steps);
        let history = world.history();
        let graph = Graph::new(&history, Hlc::ZERO, false);
        prop_assert_eq!(graph.events, history.len());
        let all = || world.namespaces.iter().enumerate();
        let count = |is: &dyn Fn(&Entry) -> bool| {
            all().flat_map(|(_, namespace)| &namespace.entries).filter(|entry| is(entry)).count() as u64
        };
        let records = count(&|entry| entry.kind == Kind::Append && entry.subject != OUTBOX);
        let of = |kind| graph.nodes.iter().filter(move |node| node.kind == kind);
        prop_assert_eq!(of(NodeKind::Log).map(|node| node.count).sum::<u64>(), records);
        prop_assert_eq!(of(NodeKind::Elsewhere).count(), 0);
        // Every record comes from somewhere.
        let flows = |flow: Flow| graph.edges.iter().filter(move |edge| edge.flow == flow).map(|edge| edge.count).sum::<u64>();
        prop_assert_eq!(flows(Flow::Appends) + flows(Flow::Forwards), records);
        prop_assert_eq!(flows(Flow::Triggers), count(&|entry| entry.kind == Kind::Trigger));
        for (at, namespace) in all() {
            for function in FUNCTIONS {
                let name = format!("function-{function}");
                let is = |entry: &&Entry, kind| entry.kind == kind && entry.subject == function;
                let number = |kind| namespace.entries.iter().filter(|entry| is(entry, kind)).count() as u64;
                let node = of(NodeKind::Function).find(|node| node.table as usize == at && node.name == name);
                let Some(node) = node else {
                    prop_assert_eq!(number(Kind::Trigger), 0);
                    continue;
                };
                prop_assert_eq!((node.count, node.done, node.attempts), (number(Kind::Trigger), number(Kind::Done), number(Kind::Fired)));
                prop_assert_eq!((node.waited_us.len(), node.took_us.len()), (number(Kind::Fired), number(Kind::Done)));
            }
        }

        let names: Vec<String> = (0..namespaces).map(|at| format!("<{at}>")).collect();
        let drawing = Drawing { graph: &graph, namespaces: &names, marks: &[] };
        let picture = svg(&drawing);
        prop_assert_eq!(picture.matches("<g>").count(), graph.nodes.len());
        prop_assert_eq!(picture.matches("<path class=").count(), graph.edges.len());
        prop_assert!(!picture.contains("NaN") && picture.contains("&lt;0&gt;") && !picture.contains("<0>"));
        let text = dot(&drawing);
        prop_assert_eq!(text.matches(" -> ").count(), graph.edges.len());
    }
}

#[test]
fn the_boxes_of_a_picture_do_not_overlap() {
    let history = World::grown(7, 3, 400).history();
    let graph = Graph::new(&history, Hlc::ZERO, true);
    let names = ["a", "b", "c"].map(String::from);
    let picture = svg(&Drawing { graph: &graph, namespaces: &names, marks: &[] });
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for node in picture.split("<g>").skip(1) {
        let number = |name: &str| -> f64 {
            let text = node.split_once(&format!(" {name}=\"")).expect("a box has it").1;
            text.split('"').next().and_then(|text| text.parse().ok()).expect("it is a number")
        };
        corners.push((number("x"), number("y")));
    }
    assert_eq!(corners.len(), graph.nodes.len());
    for (at, (x, y)) in corners.iter().enumerate() {
        for (other_x, other_y) in &corners[..at] {
            assert!((x - other_x).abs() >= 188.0 || (y - other_y).abs() >= 46.0, "{x} {y} and {other_x} {other_y}");
        }
    }
}

#[test]
fn a_picture_says_what_its_boxes_and_arrows_mean() {
    let history = World::grown(7, 1, 400).history();
    let graph = Graph::new(&history, Hlc::ZERO, false);
    let picture = |marks: &[Option<Mark>]| svg(&Drawing { graph: &graph, namespaces: &["a".into()], marks });
    let says = |picture: &str, word: &str| picture.contains(&format!(">{word}</text>"));
    let (plain, of_repair) = (picture(&[]), picture(&vec![None; graph.nodes.len()]));
    for word in ["log", "function", "runs, appends", "reads"] {
        assert!(says(&plain, word) && !says(&of_repair, word), "{word}");
    }
    assert!(says(&of_repair, "corrected") && !says(&plain, "corrected"));
    // What the picture lacks, the legend leaves out.
    let forwards = graph.edges.iter().any(|edge| edge.flow == Flow::Forwards);
    let outside = graph.nodes.iter().any(|node| matches!(node.kind, NodeKind::Outside | NodeKind::Elsewhere));
    assert_eq!((says(&plain, "forwards"), says(&plain, "outside")), (forwards, outside));
    let empty = Graph::new(&World::grown(7, 1, 0).history(), Hlc::ZERO, false);
    let empty = svg(&Drawing { graph: &empty, namespaces: &["a".into()], marks: &[] });
    assert!(!says(&empty, "log") && !says(&empty, "reads"));
}
