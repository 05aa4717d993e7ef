//! The connection beside that for commands, on which answers wait for replicas.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::decode::text;
use super::dialect::words;
use super::line::{ServerLine, ask_all};
use super::probe::field;
use super::wait_round::LONGEST;
use super::{Terms, Way, connect, decode};
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::beside_locks;
use crate::store::Watcher;
use crate::store::link_slot::{LinkSlot, SlotWatch, both};

/// Where a new connection is left for the reader.
pub(super) type LineSlot = LinkSlot<ServerLine>;

/// What the keys are for that are written there, in their names.
const MARKER: &str = "r";

/// Makes the connection, and names what is written there.
pub(super) struct SideLink {
    way: Way,
    terms: Terms,
    /// The run id of the server that gives the answers.
    run: Option<String>,
}

impl SideLink {
    pub(super) fn new(way: Way, terms: Terms, run: Option<String>) -> Self {
        Self { way, terms, run }
    }

    /// Connects, which leaves something in the slot, and soon.
    pub(super) async fn connect(self: Arc<Self>, slot: Arc<LineSlot>) {
        let made = timeout(LONGEST, self.connected()).await;
        let late = |_| Err(refused("no second connection to the server in time"));
        let made = made.unwrap_or_else(late);
        slot.put(made.map(|line| {
            let watcher = line.watcher();
            (line, watcher)
        }));
    }

    /// Keys that this server has, to be written before waiting.
    pub(super) fn keys(&self) -> VecDeque<String> {
        let tags = self.way.own_tags().into_iter();
        tags.map(|tag| beside_locks(&self.terms.namespace, &tag, MARKER)).collect()
    }

    async fn connected(&self) -> Result<ServerLine, Fault> {
        let client = self.way.client().await?;
        let mut introduced = connect::connect(&client, &self.terms, connect::config()).await?;
        self.check(&mut introduced.driver).await?;
        Ok(introduced.into_line().await)
    }

    /// Answers may come from a server that was replaced, and whose data may be gone.
    async fn check(&self, driver: &mut MultiplexedConnection) -> Result<(), Fault> {
        let question = [words(["INFO", "server"]), self.terms.name_connection()];
        let answers = ask_all(driver, question).await.map_err(decode::unreachable)?;
        let info = answers.first().and_then(text).unwrap_or_default();
        match (&self.run, field(&info, "run_id")) {
            (Some(own), Some(run)) if own != run => {
                Err(refused("another server is at this address by now"))
            }
            _ => Ok(()),
        }
    }
}

fn refused(what: &str) -> Fault {
    Fault::new(FaultClass::Refused, what)
}

/// Also watches the connections that are left in the slot.
pub(super) fn watch_beside(inner: Watcher, slot: Arc<LineSlot>) -> Watcher {
    both(inner, Arc::new(move || Ok(Box::new(SlotWatch::new(Arc::clone(&slot))) as _)))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::task::{Context, Poll};

    use testbed::WakeLog;
    use tokio::runtime::Builder;

    use super::*;
    use crate::store::Readiness;

    struct Silent;

    impl Readiness for Silent {
        fn poll_ready(&self, _: &mut Context<'_>, _: bool) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_connection_that_cannot_be_watched_does_not_keep_the_first_one_from_it() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        // No runtime can watch a file.
        let file = UnixStream::from(OwnedFd::from(File::open("Cargo.toml").unwrap()));
        file.set_nonblocking(true).unwrap();
        let slot = Arc::new(LineSlot::default());
        let line = ServerLine::over(file.into(), None);
        let line_watcher = line.watcher();
        slot.put(Ok((line, line_watcher)));
        assert!(slot.watcher().is_some_and(|watcher| watcher().is_err()));
        let watcher = watch_beside(Arc::new(|| Ok(Box::new(Silent) as _)), slot);
        let (readiness, wakes) = (watcher().unwrap(), WakeLog::new());
        let task = wakes.waker();
        let mut context = Context::from_waker(&task);
        assert!(readiness.poll_ready(&mut context, false).is_ready(), "there is a new connection");
        assert!(readiness.poll_ready(&mut context, false).is_pending());
    }
}
