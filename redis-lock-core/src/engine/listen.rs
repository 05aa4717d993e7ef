//! Keeps a subscription beside each connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::core::Core;
use crate::store::directory::Directory;
use crate::store::{Connector, Event, Hints};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A subscription that ends sooner than this counts as one that could not be made.
const SHORT_LIFE: Duration = Duration::from_secs(2);

/// Subscribes again whenever the subscription ends, until the connection beside it ends.
pub(super) async fn keep_listening(connector: Arc<dyn Connector>, hints: Hints) {
    let mut pause = FIRST_PAUSE;
    let mut warned = false;
    loop {
        let since = Instant::now();
        let why = connector.listen(hints.clone()).await;
        // This task ends with the engine, so a closed channel needs no handling.
        hints.send(Event::Listening { hints_enabled: false });
        if since.elapsed() >= SHORT_LIFE {
            (pause, warned) = (FIRST_PAUSE, false);
            continue;
        }
        // Every waiter looks at its lock after each subscription, so this must not happen in a
        // tight loop.
        if !warned {
            crate::observe::log::not_listening(&why.what);
            warned = true;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Has the engine read the map whenever the directory is notified of a change.
pub(super) async fn keep_watching(core: Arc<Core>, directory: Arc<dyn Directory>) {
    loop {
        directory.changed().await;
        core.look_soon();
    }
}
