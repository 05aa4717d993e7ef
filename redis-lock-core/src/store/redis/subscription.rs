//! Connections on which messages arrive.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::stream::StreamExt;
use redis::aio::PubSub;
use redis::{Cmd, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::connect;
use super::decode::{self, text};
use super::dialect::words;
use super::driver::Driver;
use super::login::Login;
use super::{Fault, Terms};

/// How often a subscription is checked with a `PING`: a half-open connection would stay silent for
/// ever.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);

pub(super) enum Subscription {
    /// Nothing but subscriptions is allowed on it, so other credentials need another connection.
    Plain(PubSub, Option<Login>),
    /// By the third version of the protocol, where all commands are allowed.
    Pushes(Driver, mpsc::UnboundedReceiver<PushInfo>),
}

impl Subscription {
    /// A connection for the messages of this channel.
    pub(super) async fn to(
        client: &redis::Client,
        channel: &str,
        terms: &Terms,
        time_limit: Duration,
    ) -> Result<Self, String> {
        if terms.credentials.is_some() {
            let subscribe = [words(["SUBSCRIBE", channel])];
            if let Some(subscription) = Self::by_pushes(client, subscribe, terms).await {
                return Ok(subscription);
            }
        }
        match timeout(time_limit, Self::plain(client, channel, terms)).await {
            Ok(subscription) => subscription.map_err(|fault| fault.what),
            Err(_) => Err(format!("no subscription within {time_limit:?}")),
        }
    }

    async fn plain(client: &redis::Client, channel: &str, terms: &Terms) -> Result<Self, Fault> {
        let (client, login) = connect::logged_in(client, terms).await?;
        let subscribing = async {
            let info = client.get_connection_info();
            let mut subscription = match connect::stream(info, terms.tls.as_ref()).await?.0 {
                Some(stream) => PubSub::new(info.redis_settings(), stream).await?,
                None => client.get_async_pubsub().await?,
            };
            subscription.subscribe(channel).await?;
            Ok::<_, RedisError>(subscription)
        };
        let subscription = subscribing.await;
        let judge = |error| terms.judge(decode::unreachable(error));
        Ok(Self::Plain(subscription.map_err(judge)?, login))
    }

    /// A connection that these commands subscribe, of which the first must succeed; `None` when the server or
    /// the user's rights deny that.
    pub(super) async fn by_pushes(
        client: &redis::Client,
        subscribe: impl IntoIterator<Item = Cmd>,
        terms: &Terms,
    ) -> Option<Self> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.set_redis_settings(settings)).ok()?;
        let (sender, pushes) = mpsc::unbounded_channel();
        let config = connect::config().set_push_sender(sender);
        let subscribing = async {
            let mut connection = connect::driver(&client, terms, config).await.ok()?;
            for (at, cmd) in subscribe.into_iter().enumerate() {
                let answer = connection.ask(&cmd).await.ok()?;
                if at == 0 {
                    answer.extract_error().ok()?;
                }
            }
            Some(connection)
        };
        let connection = timeout(terms.time_limit, subscribing).await.ok()??;
        Some(Self::Pushes(connection, pushes))
    }

    /// Passes messages on until `take` wants no more, or the connection ends or falls silent.
    pub(super) async fn relay(
        self,
        time_limit: Duration,
        take: impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Self::Plain(subscription, login) => {
                relay_plain(subscription, login, time_limit, take).await
            }
            Self::Pushes(connection, pushes) => {
                relay_pushes(connection, pushes, time_limit, take).await
            }
        }
    }
}

async fn relay_plain(
    subscription: PubSub,
    login: Option<Login>,
    time_limit: Duration,
    mut take: impl FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut sink, mut messages) = subscription.split();
    let renewed = async {
        match login {
            Some(mut login) => login.changed().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(renewed);
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => take(&message.get_payload::<String>().unwrap_or_default())?,
                None => return ControlFlow::Continue(()),
            },
            _ = &mut renewed => return ControlFlow::Continue(()),
            () = sleep(PING_INTERVAL) => {
                if !matches!(timeout(time_limit, sink.ping::<Value>()).await, Ok(Ok(_))) {
                    return ControlFlow::Continue(());
                }
            }
        }
    }
}

async fn relay_pushes(
    mut connection: Driver,
    mut pushes: mpsc::UnboundedReceiver<PushInfo>,
    time_limit: Duration,
    mut take: impl FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    loop {
        tokio::select! {
            push = pushes.recv() => match push {
                Some(PushInfo { kind: PushKind::SMessage | PushKind::Message, data }) => {
                    take(&data.get(1).and_then(text).unwrap_or_default())?;
                }
                // The slot has gone to another node.
                Some(PushInfo { kind: PushKind::SUnsubscribe | PushKind::Disconnection, .. }) | None => {
                    return ControlFlow::Continue(());
                }
                Some(_) => {}
            },
            () = sleep(PING_INTERVAL) => {
                let ping = redis::cmd("PING");
                let answer = timeout(time_limit, connection.ask(&ping)).await;
                if !matches!(answer, Ok(Ok(Value::SimpleString(_)))) {
                    return ControlFlow::Continue(());
                }
            }
        }
    }
}
