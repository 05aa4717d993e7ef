//! Subscribes at one node of a cluster, to a sharded channel of that node.
//!
//! A message on a plain channel is sent to all nodes, one on a sharded channel only to the node
//! that has the channel's slot. So there is a channel for each node, in one of its slots. A queue that
//! comes to another node with its slot names the channel of the former one, where only a plain message
//! arrives.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ProtocolVersion, PushInfo, PushKind, Value};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::message::{PING_INTERVAL, read};
use super::nodes::{Member, text};
use super::{Terms, introduction};
use crate::store::Hints;

/// A subscription to one sharded channel.
pub(super) struct Subscription {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
}

/// Subscribes to the channel, and to the plain one; `None` when the server or the user's rights don't
/// allow the former.
pub(super) async fn subscribe(
    client: &redis::Client,
    channel: &str,
    terms: &Terms,
) -> Option<Subscription> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = redis::Client::open(info.set_redis_settings(settings)).ok()?;
    let (sender, pushes) = mpsc::unbounded_channel();
    let config = introduction::config().set_push_sender(sender);
    let subscribing = async {
        let mut connection = introduction::driver(&client, terms, config).await?;
        let mut command = redis::cmd("SSUBSCRIBE");
        connection.send_packed_command(command.arg(channel)).await?.extract_error()?;
        let mut command = redis::cmd("SUBSCRIBE");
        // Without the right to it, waiters look by themselves when a slot has moved.
        connection.send_packed_command(command.arg(&*terms.channel(""))).await?;
        Ok::<_, redis::RedisError>(connection)
    };
    let connection = timeout(terms.time_limit, subscribing).await.ok()?.ok()?;
    Some(Subscription { connection, pushes })
}

/// Passes messages on until the connection ends or falls silent, or the node loses the channel's
/// slot.
pub(super) async fn relay(
    subscription: Subscription,
    member: &Member,
    time_limit: Duration,
    hints: &Hints,
) {
    let Subscription { mut connection, mut pushes } = subscription;
    let moved = member.channel_slot_moved();
    tokio::pin!(moved);
    loop {
        tokio::select! {
            push = pushes.recv() => match push {
                Some(PushInfo { kind: PushKind::SMessage | PushKind::Message, data }) => {
                    let payload = data.get(1).and_then(text).unwrap_or_default();
                    if let Some(event) = read(&payload) {
                        // This task ends with the engine, so a closed channel needs no handling.
                        let _ = hints.send(event);
                    }
                }
                // The slot has gone to another node.
                Some(PushInfo { kind: PushKind::SUnsubscribe | PushKind::Disconnection, .. }) | None => {
                    return;
                }
                Some(_) => {}
            },
            () = &mut moved => return,
            () = sleep(PING_INTERVAL) => {
                let ping = redis::cmd("PING");
                let answer = timeout(time_limit, connection.send_packed_command(&ping)).await;
                if !matches!(answer, Ok(Ok(Value::SimpleString(_)))) {
                    return;
                }
            }
        }
    }
}
