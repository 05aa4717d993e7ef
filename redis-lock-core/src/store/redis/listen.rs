//! The channel of a manager, and the connection on which its messages arrive.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Terms;
use super::dialect::words;
use super::nodes::Member;
use super::subscription::Subscription;
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
    let take = |payload: &str| {
        pass_on(payload, &hints);
        ControlFlow::Continue(())
    };
    let plain = terms.channel("");
    if let Some(member) = member.filter(|member| member.has_neighbours())
        && let Some(slot) = member.channel_slot()
    {
        let name = terms.channel(&format!("{{{}}}", tag_of(slot)));
        // Without the right to the second, waiters look by themselves when a slot has moved.
        let channels = [words(["SSUBSCRIBE", &name]), words(["SUBSCRIBE", &plain])];
        if let Some(subscription) = Subscription::by_pushes(&client, channels, terms).await {
            let relaying = async {
                tokio::select! {
                    _ = subscription.relay(terms.time_limit, take) => {}
                    () = member.channel_slot_moved() => {}
                }
            };
            return listened(&channel, name, &hints, relaying).await;
        }
    }
    match Subscription::to(&client, &plain, terms, terms.time_limit).await {
        Ok(subscription) => {
            let relaying = subscription.relay(terms.time_limit, take);
            listened(&channel, plain, &hints, relaying).await
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

/// The text of a message, which [`read`] understands; `None` if no message says that.
pub(super) fn message(event: &Event) -> Option<String> {
    Some(match event {
        Event::Granted { token, waited_for: true } => format!("g {token}{WAITERS_MARK}"),
        Event::Granted { token, waited_for: false } => format!("g {token}"),
        Event::WaitedFor { key } => format!("w {key}"),
        Event::Asked { key, token } => format!("a {} {token} {key}", token.len()),
        Event::Forced { token } => format!("r {token}"),
        Event::Returned | Event::Listening { .. } => return None,
    })
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
        for text in ["g t 1", "g t 1+", "a 3 t 1 a b", "r t 1", "w a b"] {
            let event = read(text).unwrap();
            assert_eq!(message(&event).as_deref(), Some(text));
        }
        assert_eq!(read("u t 1"), read("g t 1"));
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
