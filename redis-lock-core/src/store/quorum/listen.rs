//! Messages from all nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::ballot::majority;
use super::seat::Roster;
use crate::domain::fault::{Fault, FaultClass};
use crate::store::wire::keep_listening;
use crate::store::{Connector, Event, Hints};

/// The shortest time between two reports about nodes that come and go.
const RETURN_INTERVAL: Duration = Duration::from_millis(500);

/// How long the first node that grants a lock waits for the others, which are about to.
const OTHERS: Duration = Duration::from_millis(4);

/// Listens at all nodes, and passes on what they say.
pub(super) async fn listen(
    nodes: Vec<Arc<dyn Connector>>,
    roster: Arc<Roster>,
    hints: Hints,
) -> Fault {
    let (sender, events) = mpsc::unbounded_channel();
    let count = nodes.len();
    // Why one has ended is told where commands are sent.
    let listen = |(node, at)| keep_listening(node, Hints::new(at, sender.clone()), false);
    let listening = join_all(nodes.into_iter().zip(0..).map(listen));
    tokio::select! {
        _ = listening => {}
        () = relay(events, count, &hints) => {}
        () = tell_returned(&roster, &hints) => {}
    }
    Fault::new(FaultClass::Unknown, "the subscriptions ended")
}

/// Tells that a node can be asked again.
async fn tell_returned(roster: &Roster, hints: &Hints) {
    loop {
        roster.returned.notified().await;
        hints.send(Event::Returned);
        sleep(RETURN_INTERVAL).await;
    }
}

/// Grants of one token that came a moment ago.
#[derive(Default)]
struct GrantsSeen {
    nodes: Vec<u64>,
    waited_for: bool,
}

async fn relay(mut events: mpsc::UnboundedReceiver<(u64, Event)>, nodes: usize, hints: &Hints) {
    let mut heard = vec![false; nodes];
    let mut grants: HashMap<String, GrantsSeen> = HashMap::new();
    // Each ends with its token when the other nodes had their time.
    let mut timers = FuturesUnordered::new();
    loop {
        let received = tokio::select! {
            event = events.recv() => event,
            Some(token) = timers.next() => {
                // What fewer nodes have granted in time the waiter asks them all for, and gives it back.
                if let Some(GrantsSeen { nodes: granted, waited_for }) = grants.remove(&token)
                    && granted.len() < majority(nodes)
                {
                    hints.send(Event::Granted { token, waited_for });
                }
                continue;
            }
        };
        match received {
            None => return,
            Some((node, Event::Granted { token, waited_for })) => {
                let granted = grants.entry(token.clone()).or_insert_with(|| {
                    let token = token.clone();
                    timers.push(sleep(OTHERS).map(|()| token));
                    GrantsSeen::default()
                });
                granted.waited_for |= waited_for;
                if granted.nodes.contains(&node) {
                    continue;
                }
                granted.nodes.push(node);
                if granted.nodes.len() == majority(nodes) {
                    hints.send(Event::Granted { token, waited_for: granted.waited_for });
                }
            }
            Some((node, Event::Listening { hints_enabled })) => {
                let count = |heard: &[bool]| heard.iter().filter(|heard| **heard).count();
                let before = count(&heard) >= majority(nodes);
                if let Some(heard) = usize::try_from(node).ok().and_then(|at| heard.get_mut(at)) {
                    *heard = hints_enabled;
                }
                let now = count(&heard) >= majority(nodes);
                // Places at a node that was away may be gone, so all look.
                if now != before || now && hints_enabled {
                    hints.send(Event::Listening { hints_enabled: now });
                }
            }
            Some((_, event)) => {
                hints.send(event);
            }
        }
    }
}
