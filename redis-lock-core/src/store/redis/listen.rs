//! The connection that grants arrive on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisError;
use tokio::time::{sleep, timeout};

use super::conversation::Channel;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::token::WAITERS_MARK;
use crate::store::{Event, Hints};

/// How often the other end is asked whether it is there: a half-open path is silent for ever.
const BEAT: Duration = Duration::from_secs(2);

/// Subscribes to the manager's channel, and passes on what arrives until that ends.
///
/// Messages are hints. What is lost with a connection is made up for by the look that every waiter
/// takes after `Listening`.
pub(super) async fn listen(
    client: redis::Client,
    channel: Channel,
    patience: Duration,
    hints: Hints,
) -> Fault {
    let subscription = match subscribe(&client, &channel.name, patience).await {
        Ok(subscription) => subscription,
        Err(why) => return Fault::new(FaultClass::Refused, why),
    };
    let heard = Heard::begin(channel.is_heard);
    // Without an engine nobody hears it, and this task ends with the engine.
    let _ = hints.send(Event::Listening { hints_enabled: true });
    relay(subscription, patience, &hints).await;
    drop(heard);
    Fault::new(FaultClass::Unknown, "the subscription ended")
}

/// While it lives, whoever queues says that its manager can be notified.
struct Heard(Arc<AtomicBool>);

impl Heard {
    fn begin(is_heard: Arc<AtomicBool>) -> Self {
        is_heard.store(true, Ordering::Relaxed);
        Self(is_heard)
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn subscribe(
    client: &redis::Client,
    channel: &str,
    patience: Duration,
) -> Result<redis::aio::PubSub, String> {
    let patience = patience.max(Duration::from_millis(500));
    let subscribing = async {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(channel).await?;
        Ok::<_, RedisError>(subscription)
    };
    match timeout(patience, subscribing).await {
        Ok(Ok(subscription)) => Ok(subscription),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no subscription within {patience:?}")),
    }
}

/// Passes messages on until the connection ends or falls silent.
async fn relay(subscription: redis::aio::PubSub, patience: Duration, hints: &Hints) {
    let (mut sink, mut messages) = subscription.split();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => {
                    if let Some(event) = read(&message.get_payload::<String>().unwrap_or_default()) {
                        // As above.
                        let _ = hints.send(event);
                    }
                }
                None => return,
            },
            () = sleep(BEAT) => {
                if !matches!(timeout(patience, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

/// What a message says; nothing for what nobody of us wrote.
fn read(payload: &str) -> Option<Event> {
    let (what, whom) = payload.split_once(' ')?;
    match what {
        "g" => {
            let unmarked = whom.strip_suffix(WAITERS_MARK);
            let token = unmarked.unwrap_or(whom).to_owned();
            Some(Event::Granted { token, waited_for: unmarked.is_some() })
        }
        // Whoever asked is to look, whatever the answer will be.
        "u" => Some(Event::Granted { token: whom.to_owned(), waited_for: false }),
        "a" => {
            // Both may have spaces in them.
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
