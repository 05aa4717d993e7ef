//! A second connection beside that for commands, and how it is made.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::direct_line::DirectLine;
use super::probe::field;
use super::{Terms, Way, decode, introduction};
use crate::domain::error::{Fault, FaultClass};
use crate::store::link_slot::LinkSlot;

/// Where a new connection is left for whoever reads.
pub(super) type LineSlot = LinkSlot<DirectLine>;

/// Makes the connection.
pub(super) struct SideLink {
    way: Way,
    terms: Terms,
    /// The run id of the server that gives the answers.
    run: Option<String>,
    /// How long connecting may take.
    time_limit: Duration,
}

impl SideLink {
    pub(super) fn new(way: Way, terms: Terms, run: Option<String>, time_limit: Duration) -> Self {
        Self { way, terms, run, time_limit }
    }

    /// Connects whenever that is wanted, until the sender is dropped. Each time leaves something in the
    /// slot, and soon.
    pub(super) async fn serve(self, mut wanted: mpsc::UnboundedReceiver<()>, slot: Arc<LineSlot>) {
        while wanted.recv().await.is_some() {
            let made = timeout(self.time_limit, self.connected()).await;
            let late = |_| Err(refused("no second connection to the server in time"));
            let made = made.unwrap_or_else(late);
            slot.put(made.map(|line| {
                let watcher = line.watcher();
                (line, Some(watcher))
            }));
        }
    }

    async fn connected(&self) -> Result<DirectLine, Fault> {
        let client = self.way.client().await?;
        let info = client.get_connection_info();
        let introduced = introduction::connect(info).await;
        if let Some(mut introduced) = introduced.map_err(decode::unreachable)? {
            self.check(&mut introduced.driver).await?;
            return Ok(DirectLine::over(introduced.into_socket().await));
        }
        let connecting = introduction::driver(&client, &self.terms, introduction::config());
        let mut driver = connecting.await.map_err(decode::unreachable)?;
        self.check(&mut driver).await?;
        Ok(DirectLine::by(driver))
    }

    /// Answers may come from a server that was replaced, and whose data may be gone.
    async fn check(&self, driver: &mut MultiplexedConnection) -> Result<(), Fault> {
        let mut question = redis::pipe();
        question.cmd("INFO").arg("server");
        question.add_command(self.terms.name_connection());
        let answers = driver.send_packed_commands(&question, 0, 2).await;
        let answers = answers.map_err(decode::unreachable)?;
        let info = answers.first().and_then(super::nodes::text).unwrap_or_default();
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
