//! The connection on which messages arrive.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::channel::Channel;
use super::nodes::{Member, text};
use super::{Terms, connect};
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names::tag_of;
use crate::domain::token::WAITERS_MARK;
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
        if let Some(subscription) = subscribe_sharded(&client, &name, terms).await {
            let heard = channel.begin(name);
            // The result is ignored for the same reason as below.
            let _ = hints.send(Event::Listening { hints_enabled: true });
            relay_sharded(subscription, member, time_limit, &hints).await;
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
        let mut subscription = connect::subscriber(client, terms.tls.as_ref()).await?;
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
                if !matches!(timeout(time_limit, sink.ping::<Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

/// How often a subscription is checked with a `PING`: a half-open connection would stay silent for
/// ever.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Parses a message; `None` for text that is no message of this library.
pub(super) fn read(payload: &str) -> Option<Event> {
    let (what, whom) = payload.split_once(' ')?;
    match what {
        "g" => {
            let unmarked = whom.strip_suffix(WAITERS_MARK);
            let token = unmarked.unwrap_or(whom).to_owned();
            Some(Event::Granted { token, waited_for: unmarked.is_some() })
        }
        // The process that asked looks at the lock, whatever the answer is.
        "u" => Some(Event::Granted { token: whom.to_owned(), waited_for: false }),
        "a" => {
            // Both parts may contain spaces.
            let (length, rest) = whom.split_once(' ')?;
            let (token, key) = rest.split_at_checked(length.parse().ok()?)?;
            let key = key.strip_prefix(' ')?.to_owned();
            Some(Event::Asked { key, token: token.to_owned() })
        }
        "r" => Some(Event::Forced { token: whom.to_owned() }),
        "w" => Some(Event::WaitedFor { key: whom.to_owned() }),
        _ => None,
    }
}

/// A subscription to one sharded channel.
pub(super) struct Subscription {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
}

/// Subscribes to the channel, and to the plain one; `None` when the server or the user's rights don't
/// allow the former.
pub(super) async fn subscribe_sharded(
    client: &redis::Client,
    channel: &str,
    terms: &Terms,
) -> Option<Subscription> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = redis::Client::open(info.set_redis_settings(settings)).ok()?;
    let (sender, pushes) = mpsc::unbounded_channel();
    let config = connect::config().set_push_sender(sender);
    let subscribing = async {
        let mut connection = connect::driver(&client, terms, config).await?;
        let mut command = redis::cmd("SSUBSCRIBE");
        connection.send_packed_command(command.arg(channel)).await?.extract_error()?;
        let mut command = redis::cmd("SUBSCRIBE");
        // Without the right to it, waiters look by themselves when a slot has moved.
        connection.send_packed_command(command.arg(&*terms.channel(""))).await?;
        Ok::<_, RedisError>(connection)
    };
    let connection = timeout(terms.time_limit, subscribing).await.ok()?.ok()?;
    Some(Subscription { connection, pushes })
}

/// Passes messages on until the connection ends or falls silent, or the node loses the channel's
/// slot.
pub(super) async fn relay_sharded(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_what_nobody_of_us_wrote_says_nothing() {
        for payload in ["", "g", "x token", "\0", "grant t"] {
            assert_eq!(read(payload), None, "{payload:?}");
        }
        let granted = |waited_for| Some(Event::Granted { token: "t 1".into(), waited_for });
        assert_eq!(read("g t 1"), granted(false));
        assert_eq!(read("g t 1+"), granted(true));
        assert_eq!(read("u t 1"), granted(false));
        let asked = Event::Asked { key: "a b".into(), token: "t 1".into() };
        assert_eq!(read("a 3 t 1 a b"), Some(asked));
        for odd in ["a t", "a 3 t", "a 99 t 1 a b", "a -1 t a", "a 2 t 1 a b", "a 1 ü a"] {
            assert_eq!(read(odd), None, "{odd}");
        }
        assert_eq!(read("w a b"), Some(Event::WaitedFor { key: "a b".into() }));
    }
}
