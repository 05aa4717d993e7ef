//! The channel of a manager, and the connection on which its messages arrive.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Terms;
use super::connect::{self, PING_INTERVAL, relay, subscribe};
use super::decode::text;
use super::dialect::words;
use super::nodes::Member;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::tag_of;
use crate::domain::token::WAITERS_MARK;
use crate::store::{Event, Hints};
use crate::sync::NonPoisonMutex;

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
    if let Some(member) = member.filter(|member| member.has_neighbours())
        && let Some(slot) = member.channel_slot()
    {
        let name = terms.channel(&format!("{{{}}}", tag_of(slot)));
        if let Some(subscription) = subscribe_sharded(&client, &name, terms).await {
            let relaying = relay_sharded(subscription, member, time_limit, &hints);
            return listened(&channel, name, &hints, relaying).await;
        }
    }
    let name = terms.channel("");
    match subscribe(&client, &name, terms, time_limit).await {
        Ok(subscription) => {
            let relaying = relay(subscription, time_limit, |payload| {
                pass_on(payload, &hints);
                ControlFlow::Continue(())
            });
            listened(&channel, name, &hints, relaying).await
        }
        Err(why) => Fault::new(FaultClass::Refused, why),
    }
}

/// Has queue entries name the channel while its messages are passed on.
async fn listened<T>(
    channel: &Channel,
    name: Arc<str>,
    hints: &Hints,
    relaying: impl Future<Output = T>,
) -> Fault {
    let in_use = channel.begin(name);
    // This task ends with the engine, so a closed channel needs no handling.
    let _ = hints.send(Event::Listening { hints_enabled: true });
    relaying.await;
    drop(in_use);
    Fault::new(FaultClass::Unknown, "the subscription ended")
}

fn pass_on(payload: &str, hints: &Hints) {
    if let Some(event) = read(payload) {
        // The result is ignored for the same reason as above.
        let _ = hints.send(event);
    }
}

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
struct Subscription {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
}

/// Subscribes to the sharded channel and to the plain one; `None` when the server or the user's
/// rights deny the sharded one.
async fn subscribe_sharded(
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
        let sharded = words(["SSUBSCRIBE", channel]);
        connection.send_packed_command(&sharded).await?.extract_error()?;
        // Without the right to it, waiters look by themselves when a slot has moved.
        let plain = words(["SUBSCRIBE", &terms.channel("")]);
        connection.send_packed_command(&plain).await?;
        Ok::<_, RedisError>(connection)
    };
    let connection = timeout(terms.time_limit, subscribing).await.ok()?.ok()?;
    Some(Subscription { connection, pushes })
}

/// Passes messages on until the connection ends or falls silent, or the node loses the channel's
/// slot.
async fn relay_sharded(
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
                    pass_on(&data.get(1).and_then(text).unwrap_or_default(), hints);
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

/// The plain channel of the manager that listens at this channel, if this one is sharded. Messages
/// there reach all nodes, and can be sent with commands for other slots.
pub(super) fn plain(channel: &str) -> Option<String> {
    let (before, manager) = channel.split_once("}~m:")?;
    let (namespace, slot) = before.rsplit_once('{')?;
    let is_tag = !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit());
    is_tag.then(|| [namespace, "~m:", manager].concat())
}

/// The channel on which a manager is subscribed at one server, while it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel(Arc<NonPoisonMutex<Option<Arc<str>>>>);

impl Channel {
    /// The name to put into queue entries; `-` while there is no subscription.
    pub(super) fn name(&self) -> Arc<str> {
        self.0.lock().clone().unwrap_or_else(|| "-".into())
    }

    /// The same where messages can't be sent to sharded channels.
    pub(super) fn plain_name(&self) -> Arc<str> {
        let name = self.name();
        plain(&name).map_or(name, Into::into)
    }

    /// A channel with a subscription.
    #[cfg(test)]
    pub(super) fn listened_at(name: &str) -> Self {
        Self(Arc::new(NonPoisonMutex::new(Some(name.into()))))
    }

    /// Until the returned value is dropped, queue entries name this channel.
    pub(super) fn begin(&self, name: Arc<str>) -> ChannelInUse {
        *self.0.lock() = Some(name);
        ChannelInUse(self.clone())
    }
}

pub(super) struct ChannelInUse(Channel);

impl Drop for ChannelInUse {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
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

    #[test]
    fn a_sharded_channel_has_a_plain_one_beside_it() {
        assert_eq!(plain("lock:{1234}~m:a1b2").as_deref(), Some("lock:~m:a1b2"));
        assert_eq!(plain("{1234}~m:a1b2").as_deref(), Some("~m:a1b2"));
        for other in ["lock:~m:a1b2", "~m:a1b2", "-", "{x}:~m:a1b2", "{x}~m:a1b2", "{}~m:a1b2"] {
            assert_eq!(plain(other), None, "{other}");
        }
        assert_eq!(&*Channel::listened_at("{7}~m:a").plain_name(), "~m:a");
        assert_eq!(&*Channel::default().plain_name(), "-");
    }
}
