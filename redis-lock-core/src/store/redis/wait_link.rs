//! The connection that waits for replicas.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::nodes::Member;
use super::probe::field;
use super::{Terms, Way, decode};
use crate::domain::error::{Fault, FaultClass, NotReplicated};
use crate::domain::names::tag_of;
use crate::store::TaskWaker;

/// The longest time to wait for replicas: with several nodes, an older answer starts no lease,
/// because another node may have become the primary.
const LONGEST: Duration = Duration::from_millis(400);

const SHORTEST: Duration = Duration::from_millis(20);

/// An answer that waits for replicas.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) seq: u64,
    /// The time limit of its command.
    pub(super) timeout: Duration,
}

/// The results of waiting.
#[derive(Default)]
pub(super) struct VerdictInbox {
    verdicts: Mutex<VecDeque<(u64, Result<(), Fault>)>>,
    news: TaskWaker,
}

impl VerdictInbox {
    fn put(&self, verdicts: impl IntoIterator<Item = (u64, Result<(), Fault>)>) {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).extend(verdicts);
        self.news.wake();
    }

    /// Ready when there is a result.
    pub(super) fn poll_filled(&self, context: &Context<'_>) -> Poll<()> {
        self.news.poll_woken(context)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(super) fn take(&self) -> Option<(u64, Result<(), Fault>)> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

pub(super) struct WaitLink {
    way: Way,
    terms: Terms,
    wanted: u32,
    /// The run id of the server that gave the answers.
    run: Option<String>,
    connection: Option<MultiplexedConnection>,
    /// Tags of slots that were computed before, which takes some time.
    tags: BTreeMap<u16, String>,
}

impl WaitLink {
    pub(super) fn new(way: Way, terms: Terms, wanted: u32, run: Option<String>) -> Self {
        Self { way, terms, wanted, run, connection: None, tags: BTreeMap::new() }
    }

    /// Waits for one batch after the other, until the sender is dropped.
    pub(super) async fn serve(
        mut self,
        mut awaited: mpsc::UnboundedReceiver<Awaited>,
        inbox: Arc<VerdictInbox>,
    ) {
        while let Some(first) = awaited.recv().await {
            let mut batch = vec![first];
            while let Ok(next) = awaited.try_recv() {
                batch.push(next);
            }
            let shortest = batch.iter().map(|one| one.timeout).min().unwrap_or(LONGEST);
            let verdict = self.wait((shortest / 2).clamp(SHORTEST, LONGEST)).await;
            if verdict.is_err() {
                // A late reply would be taken for the answer to something else.
                self.connection = None;
            }
            inbox.put(batch.into_iter().map(|one| (one.seq, verdict.clone())));
        }
    }

    /// Whether enough replicas have all that was answered so far.
    async fn wait(&mut self, time: Duration) -> Result<(), Fault> {
        let connecting = self.connected();
        let Ok(connected) = timeout(LONGEST, connecting).await else {
            return Err(unknown("no second connection to the server in time"));
        };
        connected?;
        let mut refused = None;
        let slots = self.way.member().map(Member::some_slots).unwrap_or_default();
        let slots =
            if slots.is_empty() { vec![None] } else { slots.into_iter().map(Some).collect() };
        for slot in slots {
            let tag = self.tag(slot);
            let key = self.terms.side(&tag, "r");
            match timeout(time * 2, self.write_and_wait(&key, time)).await {
                Ok(Ok(Ok(got))) if got >= self.wanted => return Ok(()),
                Ok(Ok(Ok(got))) => return Err(not_replicated(got, self.wanted)),
                // This slot may be being moved to another node; another slot may not.
                Ok(Ok(Err(fault))) => refused = Some(fault),
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(not_replicated(0, self.wanted)),
            }
        }
        Err(refused.unwrap_or_else(|| unknown("no key could be written")))
    }

    /// How many replicas have it. The inner error says why the write was refused. No script writes, since
    /// there may be none.
    async fn write_and_wait(
        &mut self,
        key: &str,
        time: Duration,
    ) -> Result<Result<u32, Fault>, Fault> {
        let Some(connection) = &mut self.connection else { return Err(unknown("no connection")) };
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg(key).arg(1).arg("PX").arg(1_000);
        pipeline.cmd("DEL").arg(key);
        pipeline.cmd("WAIT").arg(self.wanted).arg(time.as_millis().to_string());
        let answers = connection.send_packed_commands(&pipeline, 0, 3).await;
        let answers = answers.map_err(|error| unknown(&error.to_string()))?;
        let refusal = answers.iter().take(2).find_map(|answer| match answer {
            Value::ServerError(error) => Some(error),
            _ => None,
        });
        Ok(match (refusal, answers.get(2)) {
            (Some(error), _) => Err(refused(error)),
            (_, Some(Value::ServerError(error))) if decode::code_of(error) == "NOPERM" => {
                Err(refused(error))
            }
            (_, Some(Value::Int(got))) => Ok(u32::try_from(*got).unwrap_or(0)),
            // The server is no primary any more.
            _ => Ok(0),
        })
    }

    async fn connected(&mut self) -> Result<(), Fault> {
        if self.connection.is_some() {
            return Ok(());
        }
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let client = self.way.client()?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut made = connecting.await.map_err(|error| unknown(&error.to_string()))?;
        let mut question = redis::pipe();
        question.cmd("INFO").arg("server");
        let answers = made.send_packed_commands(&question, 0, 1).await;
        let answers = answers.map_err(|error| unknown(&error.to_string()))?;
        let info = answers.first().and_then(super::nodes::text).unwrap_or_default();
        let run = field(&info, "run_id");
        if let (Some(own), Some(run)) = (&self.run, run)
            && own != run
        {
            // The answers came from a server that was replaced, and its data may be gone.
            return Err(unknown("another server is at this address by now"));
        }
        self.connection = Some(made);
        Ok(())
    }

    /// The tag that makes a key hash to a slot; empty when the server is no cluster.
    fn tag(&mut self, slot: Option<u16>) -> String {
        let Some(slot) = slot else { return String::new() };
        let tag = || format!("{{{}}}", tag_of(slot));
        self.tags.entry(slot).or_insert_with(tag).clone()
    }
}

/// Unknown, because the commands whose answers are held back were executed.
fn refused(error: &redis::ServerError) -> Fault {
    Fault { class: FaultClass::Unknown, ..decode::refusal(error) }
}

fn not_replicated(got: u32, wanted: u32) -> Fault {
    let shortfall = NotReplicated { got, wanted };
    let what = shortfall.to_string();
    Fault { class: FaultClass::Unknown, what, source: Some(Arc::new(shortfall)) }
}

fn unknown(why: &str) -> Fault {
    let what = format!("nobody knows whether replicas have it: {why}");
    Fault::new(FaultClass::Unknown, what)
}
