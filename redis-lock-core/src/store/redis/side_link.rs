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
use crate::store::Inbox;

/// Where a new connection is left for the reader.
pub(super) type LineSlot = Inbox<Result<ServerLine, Fault>>;

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
        slot.put(made);
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
