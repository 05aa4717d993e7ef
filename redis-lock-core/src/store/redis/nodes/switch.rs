//! Listens to the events of sentinels.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::access::NodeAccess;
use super::asker::Target;
use crate::store::redis::{Terms, introduction};

const CHANNEL: &str = "+switch-master";

/// The pause before subscribing at a sentinel again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a subscription is checked with a `PING`: a half-open connection would stay silent for
/// ever.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Completes when this sentinel announces another primary of this name.
pub(super) async fn heard(
    target: Target,
    access: &NodeAccess,
    terms: &Terms,
    name: &str,
    limit: Duration,
) {
    loop {
        if let Some(()) = listen(&target, access, terms, name, limit).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Waits for that announcement; `None` when the connection ends before.
async fn listen(
    target: &Target,
    access: &NodeAccess,
    terms: &Terms,
    name: &str,
    limit: Duration,
) -> Option<()> {
    let subscribing = async {
        let client = target.client(access).await?;
        let mut subscription = introduction::subscriber(&client, terms.tls.as_ref()).await?;
        subscription.subscribe(CHANNEL).await?;
        Ok::<_, redis::RedisError>(subscription)
    };
    let subscription = timeout(limit, subscribing).await.ok()?.ok()?;
    let (mut sink, mut messages) = subscription.split();
    loop {
        tokio::select! {
            message = messages.next() => {
                let payload = message?.get_payload::<String>().unwrap_or_default();
                if payload.split(' ').next() == Some(name) {
                    return Some(());
                }
            }
            () = sleep(PING_INTERVAL) => {
                timeout(limit, sink.ping::<redis::Value>()).await.ok()?.ok()?;
            }
        }
    }
}
