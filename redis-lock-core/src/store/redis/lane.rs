//! A connection of a lane: made once, on the runtime that uses it.

use std::sync::Arc;

use redis::AsyncConnectionConfig;

use super::connection::{Connection, Up};
use super::encode::Context;
use crate::store::{Answers, Command, LaneStore};

/// A connection that nobody supervises: its first failure is its last.
pub(super) struct RedisLane {
    up: Up,
    context: Arc<Context>,
}

impl RedisLane {
    /// Connects as the standing connection did, which knows the server already.
    pub(super) async fn connect(client: redis::Client, standing: Connection) -> Option<Self> {
        let known = standing.up().await.ok()?;
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.ok()?;
        // What a lane carries never queues, so nobody has to be told.
        let context = Context { delete: known.found.delete, channel: "-".into() };
        Some(Self { up: Up { connection, ..known }, context: Arc::new(context) })
    }
}

impl LaneStore for RedisLane {
    fn execute(&mut self, batch: Arc<[Command]>) -> Answers {
        let (up, context) = (self.up.clone(), Arc::clone(&self.context));
        Box::pin(async move { super::execute(None, up, &batch, &context).await })
    }
}
