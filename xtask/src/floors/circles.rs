use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::arrows::Arrow;
use super::tree::Tree;

/// One sentence for each set of modules with the same parent that reach each other.
pub(super) fn circles(tree: &Tree, arrows: &[Arrow]) -> Vec<String> {
    let parents: BTreeSet<&[String]> =
        tree.modules.iter().filter_map(|module| Some(module.path.split_last()?.1)).collect();
    parents.into_iter().flat_map(|parent| below(tree, arrows, parent)).collect()
}

/// The arrows between children of one module, by the children's names.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Arrow>>;

fn below(tree: &Tree, arrows: &[Arrow], parent: &[String]) -> Vec<String> {
    let child = |module: usize| {
        let path = tree.modules[module].path.strip_prefix(parent)?;
        path.first().map(String::as_str)
    };
    let mut graph: Graph<'_> = BTreeMap::new();
    for arrow in arrows {
        if let (Some(from), Some(to)) = (child(arrow.from), child(arrow.to))
            && from != to
        {
            graph.entry(from).or_default().entry(to).or_insert(arrow);
        }
    }
    let mut reported: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for start in graph.keys() {
        if reported.contains(start) {
            continue;
        }
        if let Some(circle) = shortest(&graph, start) {
            // All that lie on it, or on another one with one of them, are reported with it.
            reported.extend(graph.keys().filter(|other| reach(&graph, start, other)));
            let arrows: Vec<String> = circle.iter().map(|arrow| arrow.show(tree)).collect();
            found.push(format!("a circle: {}", arrows.join("; ")));
        }
    }
    found
}

/// Whether each can be reached from the other.
fn reach(graph: &Graph<'_>, one: &str, other: &str) -> bool {
    way(graph, one, other).is_some() && way(graph, other, one).is_some()
}

/// The shortest circle through a module.
fn shortest<'a>(graph: &Graph<'a>, start: &str) -> Option<Vec<&'a Arrow>> {
    way(graph, start, start)
}

/// The shortest way of at least one arrow.
fn way<'a>(graph: &Graph<'a>, from: &str, to: &str) -> Option<Vec<&'a Arrow>> {
    let mut seen = BTreeSet::new();
    let mut queue = VecDeque::from([(from, Vec::new())]);
    while let Some((at, way)) = queue.pop_front() {
        for (next, arrow) in graph.get(at).into_iter().flatten() {
            let mut longer: Vec<&Arrow> = way.clone();
            longer.push(arrow);
            if *next == to {
                return Some(longer);
            }
            if seen.insert(*next) {
                queue.push_back((*next, longer));
            }
        }
    }
    None
}
