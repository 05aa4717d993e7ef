//! The connection on which messages arrive.

use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisError;
use tokio::time::{sleep, timeout};

use super::channel::Channel;
use super::message::{PING_INTERVAL, read};
use super::nodes::Member;
use super::{Terms, introduction, sharded};
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names::tag_of;
use crate::store::{Event, Hints};

/// Subscribes to the manager's channel, and passes messages on until the subscription ends.
///
/// Messages are hints. Some are lost with a connection, so every waiter looks at its lock after
/// `Listening`.
pub(super) async fn listen(
    client: redis::Client,
    member: Option<&Member>,
    terms: &Terms,
    channel: Channel,
    hints: Hints,
) -> Fault {
    let time_limit = terms.time_limit;
    if let Some((member, slot)) =
        member.and_then(|member| member.channel_slot().map(|slot| (member, slot)))
        && member.has_neighbours()
    {
        let name = terms.channel(&format!("{{{}}}", tag_of(slot)));
        if let Some(subscription) = sharded::subscribe(&client, &name, terms).await {
            let heard = channel.begin(name);
            // The result is ignored for the same reason as below.
            let _ = hints.send(Event::Listening { hints_enabled: true });
            sharded::relay(subscription, member, time_limit, &hints).await;
            drop(heard);
            return Fault::new(FaultClass::Unknown, "the subscription ended");
        }
    }
    let name = terms.channel("");
    let subscription = match subscribe(&client, &name, terms).await {
        Ok(subscription) => subscription,
        Err(why) => return Fault::new(FaultClass::Refused, why),
    };
    let heard = channel.begin(name);
    // This task ends with the engine, so a closed channel needs no handling.
    let _ = hints.send(Event::Listening { hints_enabled: true });
    relay(subscription, time_limit, &hints).await;
    drop(heard);
    Fault::new(FaultClass::Unknown, "the subscription ended")
}

async fn subscribe(
    client: &redis::Client,
    channel: &str,
    terms: &Terms,
) -> Result<redis::aio::PubSub, String> {
    let time_limit = terms.time_limit;
    let subscribing = async {
        let mut subscription = introduction::subscriber(client, terms.tls.as_ref()).await?;
        subscription.subscribe(channel).await?;
        Ok::<_, RedisError>(subscription)
    };
    match timeout(time_limit, subscribing).await {
        Ok(Ok(subscription)) => Ok(subscription),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no subscription within {time_limit:?}")),
    }
}

/// Passes messages on until the connection ends or falls silent.
async fn relay(subscription: redis::aio::PubSub, time_limit: Duration, hints: &Hints) {
    let (mut sink, mut messages) = subscription.split();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => {
                    if let Some(event) = read(&message.get_payload::<String>().unwrap_or_default()) {
                        // The result is ignored for the same reason as above.
                        let _ = hints.send(event);
                    }
                }
                None => return,
            },
            () = sleep(PING_INTERVAL) => {
                if !matches!(timeout(time_limit, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
