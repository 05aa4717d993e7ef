//! Connections on which the driver authenticates, and which are then used without it.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::select_ok;
use futures_util::stream::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Terms;
use super::line::ServerLine;
use super::socket::Socket;
use crate::store::TlsSettings;

/// The driver's connection, which is authenticated.
pub(super) struct Introduced {
    pub(super) driver: MultiplexedConnection,
    /// Its task, and the socket that it uses. `None` over TLS, which the driver keeps.
    own: Option<(JoinHandle<()>, Socket)>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Introduced {
    /// The line, for our own use. All commands of the driver must have been answered.
    pub(super) async fn into_line(self) -> ServerLine {
        let Some((task, socket)) = self.own else { return ServerLine::by(self.driver) };
        // Its task must have ended before we use the socket, since it would read our replies; and it
        // must not end by itself, since it would shut the socket down.
        task.abort();
        let _ = task.await;
        ServerLine::over(socket)
    }
}

/// Connects and has the driver authenticate and choose the database.
pub(super) async fn connect(
    client: &redis::Client,
    terms: &Terms,
    config: AsyncConnectionConfig,
) -> Result<Introduced, RedisError> {
    let info = client.get_connection_info();
    let (Some(stream), socket) = stream(info, terms.tls.as_ref()).await? else {
        let driver = client.get_multiplexed_async_connection_with_config(&config).await?;
        return Ok(Introduced { driver, own: None });
    };
    let settings = info.redis_settings();
    let (driver, work) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    let task = tokio::spawn(work);
    Ok(Introduced { driver, own: socket.map(|socket| (task, socket)) })
}

/// A connection that the driver keeps using.
pub(super) async fn driver(
    client: &redis::Client,
    terms: &Terms,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let Introduced { driver, .. } = connect(client, terms, config).await?;
    let (mut named, cmd) = (driver.clone(), terms.name_connection());
    // The answer is not waited for: without a name it is as good.
    tokio::spawn(async move { named.send_packed_command(&cmd).await });
    Ok(driver)
}

/// A connection for the messages of this channel.
pub(super) async fn subscribe(
    client: &redis::Client,
    channel: &str,
    terms: &Terms,
    time_limit: Duration,
) -> Result<PubSub, String> {
    let subscribing = async {
        let info = client.get_connection_info();
        let mut subscription = match stream(info, terms.tls.as_ref()).await?.0 {
            Some(stream) => PubSub::new(info.redis_settings(), stream).await?,
            None => client.get_async_pubsub().await?,
        };
        subscription.subscribe(channel).await?;
        Ok::<_, RedisError>(subscription)
    };
    match timeout(time_limit, subscribing).await {
        Ok(Ok(subscription)) => Ok(subscription),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no subscription within {time_limit:?}")),
    }
}

/// Passes messages on until `take` wants no more, or the connection ends or falls silent.
pub(super) async fn relay(
    subscription: PubSub,
    time_limit: Duration,
    mut take: impl FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut sink, mut messages) = subscription.split();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => take(&message.get_payload::<String>().unwrap_or_default())?,
                None => return ControlFlow::Continue(()),
            },
            () = sleep(PING_INTERVAL) => {
                if !matches!(timeout(time_limit, sink.ping::<Value>()).await, Ok(Ok(_))) {
                    return ControlFlow::Continue(());
                }
            }
        }
    }
}

/// How often a subscription is checked with a `PING`: a half-open connection would stay silent for
/// ever.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Callers limit the time.
pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None)
}

/// What the driver uses; `None` when only the driver knows how to reach the server, as over TLS with a
/// client that has certificates. The second value is the socket, if TLS is not used.
async fn stream(
    info: &ConnectionInfo,
    tls: Option<&TlsSettings>,
) -> Result<(Option<Box<dyn Stream>>, Option<Socket>), RedisError> {
    let socket: Socket = match (info.addr(), tls) {
        (ConnectionAddr::Tcp(host, port), _) => {
            let plain = |stream| Box::pin(async { Ok::<_, RedisError>(stream) });
            first_of(host, *port, info.tcp_settings(), plain).await?.into_std()?.into()
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), _) => UnixStream::connect(path).await?.into_std()?.into(),
        #[cfg(feature = "rustls")]
        (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
            let shake_hands = |stream| Box::pin(secured(stream, host, tls));
            let secured = first_of(host, *port, info.tcp_settings(), shake_hands).await?;
            return Ok((Some(secured), None));
        }
        _ => return Ok((None, None)),
    };
    Ok((Some(Box::new(socket.registered()?)), Some(socket)))
}

/// Shakes hands with the server, which must prove that it is `host`.
#[cfg(feature = "rustls")]
async fn secured(
    stream: TcpStream,
    host: &str,
    tls: &TlsSettings,
) -> Result<Box<dyn Stream>, RedisError> {
    let name = rustls::pki_types::ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::clone(tls));
    Ok(Box::new(connector.connect(name, stream).await?))
}

/// Connects to all addresses of a host at once, and keeps the first that is `ready`. Some may lead
/// nowhere.
async fn first_of<T, R>(
    host: &str,
    port: u16,
    settings: &TcpSettings,
    ready: impl Fn(TcpStream) -> R,
) -> Result<T, RedisError>
where
    R: Future<Output = Result<T, RedisError>>,
{
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let connecting: Vec<_> = addresses
        .map(|address| {
            let ready = &ready;
            Box::pin(async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                suit(&stream, settings)?;
                ready(stream).await
            })
        })
        .collect();
    if connecting.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address").into());
    }
    Ok(select_ok(connecting).await?.0)
}

/// Gives a socket of ours the settings that the driver gives its own. How long one lingers when it is
/// closed can't be read from them.
fn suit(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use redis::io::tcp::socket2::TcpKeepalive;
    use testbed::Server;

    use super::*;

    #[tokio::test]
    async fn a_socket_of_ours_has_the_settings_of_the_client() {
        let server = Server::start();
        let time = Duration::from_secs(17);
        let client = redis::Client::open(server.url()).unwrap();
        let info = client.get_connection_info().clone();
        let settings = TcpSettings::default().set_keepalive(TcpKeepalive::new().with_time(time));
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(time);
        let client = redis::Client::open(info.set_tcp_settings(settings)).unwrap();
        let introduced = connect(&client, &Terms::new("lock", "m", time), config()).await.unwrap();
        let stream = introduced.own.unwrap().1.registered().unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_keepalive_time().unwrap(), time);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(time));
    }
}
