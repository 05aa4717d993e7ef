//! Notes when nodes say that their cluster is down.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult};
use testbed::{Cluster, Node};

/// Between two looks at a node.
const STEP: Duration = Duration::from_millis(10);

/// A dead node must not hold up its watcher.
const PATIENCE: Duration = Duration::from_millis(200);

/// From when until when; the last one of a node may last.
type Span = (Instant, Instant);

/// When each node of a cluster refused commands since the cluster is down. Until a primary that died is
/// replaced, all others do.
pub(super) struct Down {
    nodes: Vec<Watched>,
    over: Arc<AtomicBool>,
}

struct Watched {
    id: String,
    spans: Arc<Mutex<Vec<Span>>>,
    watcher: Option<JoinHandle<()>>,
}

impl Down {
    pub(super) fn watch(cluster: &Cluster) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let nodes = cluster.nodes().iter().map(|node| Watched::start(node, &over)).collect();
        Self { nodes, over }
    }

    /// Whether this node refused commands at some time of the span.
    pub(super) fn refused(&self, id: &str, from: Instant, until: Instant) -> bool {
        let mut watched = self.nodes.iter().filter(|node| node.id == id);
        watched.any(|node| lock(&node.spans).iter().any(|span| span.0 < until && from < span.1))
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        for node in &mut self.nodes {
            let _ = node.watcher.take().map(JoinHandle::join);
        }
    }
}

impl Watched {
    fn start(node: &Node, over: &Arc<AtomicBool>) -> Self {
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let (url, over, noted) = (node.url(), Arc::clone(over), Arc::clone(&spans));
        let watcher = thread::spawn(move || {
            let (mut connection, mut looked) = (None, Instant::now());
            while !over.load(SeqCst) {
                let before = looked;
                looked = Instant::now();
                match is_down(&url, &mut connection) {
                    Ok(true) => note(&mut lock(&noted), before, Instant::now() + STEP),
                    Ok(false) => {}
                    Err(_) => connection = None,
                }
                thread::sleep(STEP);
            }
        });
        Self { id: node.id().to_owned(), spans, watcher: Some(watcher) }
    }
}

/// Asks a node; keeps the connection to it.
fn is_down(url: &str, connection: &mut Option<Connection>) -> RedisResult<bool> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let new = redis::Client::open(url)?.get_connection_with_timeout(PATIENCE)?;
            new.set_read_timeout(Some(PATIENCE))?;
            connection.insert(new)
        }
    };
    let state: String = redis::cmd("CLUSTER").arg("INFO").query(connection)?;
    Ok(state.contains("cluster_state:fail"))
}

/// Adds a span, or makes the last one longer.
fn note(spans: &mut Vec<Span>, from: Instant, until: Instant) {
    match spans.last_mut() {
        Some(last) if from <= last.1 => last.1 = until,
        _ => spans.push((from, until)),
    }
}

fn lock(spans: &Mutex<Vec<Span>>) -> MutexGuard<'_, Vec<Span>> {
    spans.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_follow_each_other_are_one_span() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut spans = Vec::new();
        note(&mut spans, at(0), at(20));
        note(&mut spans, at(15), at(40));
        note(&mut spans, at(60), at(80));
        assert_eq!(spans, [(at(0), at(40)), (at(60), at(80))]);
    }
}
