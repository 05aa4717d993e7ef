//! The connection that waits for replicas, and how it is made.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::line::Line;
use super::nodes::Member;
use super::probe::field;
use super::wait_round::{LONGEST, unknown};
use super::{Terms, Way, decode, introduction};
use crate::domain::error::Fault;
use crate::domain::names::tag_of;
use crate::store::{TaskWaker, Watcher};

/// Where a new connection is left for whoever reads, and how to watch it.
#[derive(Default)]
pub(super) struct LineSlot {
    state: Mutex<SlotState>,
    news: TaskWaker,
}

#[derive(Default)]
struct SlotState {
    made: Option<Result<Line, Fault>>,
    /// That of the latest connection, with its number.
    watcher: Option<(u64, Watcher)>,
    number: u64,
}

impl LineSlot {
    fn put(&self, made: Result<Line, Fault>) {
        let mut state = self.state();
        state.number += 1;
        state.watcher = made.as_ref().ok().map(|line| (state.number, line.watcher()));
        state.made = Some(made);
        drop(state);
        self.news.wake();
    }

    pub(super) fn take(&self) -> Option<Result<Line, Fault>> {
        self.state().made.take()
    }

    pub(super) fn watcher(&self) -> Option<(u64, Watcher)> {
        self.state().watcher.clone()
    }

    /// Nobody watches a connection that is closed.
    pub(super) fn forget(&self) {
        self.state().watcher = None;
    }

    /// Ready when there is a new connection.
    pub(super) fn poll_filled(&self, context: &Context<'_>) -> Poll<()> {
        self.news.poll_woken(context)
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the connection.
pub(super) struct WaitLink {
    way: Way,
    terms: Terms,
    /// The run id of the server that gives the answers.
    run: Option<String>,
}

impl WaitLink {
    pub(super) fn new(way: Way, terms: Terms, run: Option<String>) -> Self {
        Self { way, terms, run }
    }

    /// Connects whenever that is wanted, until the sender is dropped. Each time leaves something in the
    /// slot, and soon.
    pub(super) async fn serve(self, mut wanted: mpsc::UnboundedReceiver<()>, slot: Arc<LineSlot>) {
        while wanted.recv().await.is_some() {
            let made = timeout(LONGEST, self.connected()).await;
            let late = |_| Err(unknown("no second connection to the server in time"));
            slot.put(made.unwrap_or_else(late));
        }
    }

    async fn connected(&self) -> Result<Line, Fault> {
        let client = self.way.client()?;
        let info = client.get_connection_info();
        let introduced = introduction::connect(info, self.terms.tls.as_ref()).await;
        if let Some(mut introduced) = introduced.map_err(lost)? {
            self.check(&mut introduced.driver).await?;
            return introduced.into_transport().await.map(Line::over).map_err(lost);
        }
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut driver = connecting.await.map_err(lost)?;
        self.check(&mut driver).await?;
        Ok(Line::by(driver))
    }

    /// Answers may come from a server that was replaced, and whose data may be gone.
    async fn check(&self, driver: &mut MultiplexedConnection) -> Result<(), Fault> {
        let mut question = redis::pipe();
        question.cmd("INFO").arg("server");
        let answers = driver.send_packed_commands(&question, 0, 1).await.map_err(lost)?;
        let info = answers.first().and_then(super::nodes::text).unwrap_or_default();
        match (&self.run, field(&info, "run_id")) {
            (Some(own), Some(run)) if own != run => {
                Err(unknown("another server is at this address by now"))
            }
            _ => Ok(()),
        }
    }
}

fn lost(error: redis::RedisError) -> Fault {
    unknown(&decode::unreachable(error).what)
}

/// Chooses keys that this server has, to be written before waiting.
pub(super) struct Markers {
    way: Way,
    terms: Terms,
    /// Tags of slots that were computed before, which takes some time.
    tags: BTreeMap<u16, String>,
}

impl Markers {
    pub(super) fn new(way: Way, terms: Terms) -> Self {
        Self { way, terms, tags: BTreeMap::new() }
    }

    pub(super) fn keys(&mut self) -> VecDeque<String> {
        let slots = self.way.member().map(Member::some_slots).unwrap_or_default();
        if slots.is_empty() {
            return [self.terms.side("", "r")].into();
        }
        let Self { terms, tags, .. } = self;
        let tag = |slot| format!("{{{}}}", tag_of(slot));
        let key = |slot| terms.side(tags.entry(slot).or_insert_with(|| tag(slot)), "r");
        slots.into_iter().map(key).collect()
    }
}
