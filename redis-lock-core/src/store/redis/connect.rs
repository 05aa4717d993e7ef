//! Connections on which the driver authenticates, and which are then used without it.

use std::future::Future;
use std::io;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::driver::Driver;
use super::line::ServerLine;
use super::login::Login;
use super::socket::Socket;
use super::{Terms, decode};
use crate::domain::fault::Fault;
use crate::store::TlsSettings;

/// The driver's connection, which is authenticated.
pub(super) struct Introduced {
    pub(super) driver: MultiplexedConnection,
    /// Its task, and the socket that it uses. `None` over TLS, which the driver keeps.
    own: Option<(JoinHandle<()>, Socket)>,
    login: Option<Login>,
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Introduced {
    /// The line, for our own use. All commands of the driver must have been answered.
    pub(super) async fn into_line(self) -> ServerLine {
        let Self { driver, own, login } = self;
        let Some((task, socket)) = own else { return ServerLine::by(driver, login) };
        // Its task must have ended before we use the socket, since it would read our replies; and it
        // must not end by itself, since it would shut the socket down.
        task.abort();
        let _ = task.await;
        ServerLine::over(socket, login)
    }
}

/// Connects and has the driver authenticate and choose the database.
pub(super) async fn connect(
    client: &redis::Client,
    terms: &Terms,
    config: AsyncConnectionConfig,
) -> Result<Introduced, Fault> {
    let (client, login) = logged_in(client, terms).await?;
    let made = introduced(&client, terms, config).await;
    let made = made.map_err(|error| terms.judge(decode::unreachable(error)))?;
    Ok(Introduced { login, ..made })
}

/// The client with the credentials of the provider, if there is one.
pub(super) async fn logged_in(
    client: &redis::Client,
    terms: &Terms,
) -> Result<(redis::Client, Option<Login>), Fault> {
    let Some(source) = &terms.credentials else { return Ok((client.clone(), None)) };
    let mut login = source.login(terms.time_limit / 2).await?;
    let info = client.get_connection_info();
    let settings = login.added_to(info.redis_settings());
    let client = redis::Client::open(info.clone().set_redis_settings(settings));
    Ok((client.map_err(decode::unreachable)?, Some(login)))
}

async fn introduced(
    client: &redis::Client,
    terms: &Terms,
    config: AsyncConnectionConfig,
) -> Result<Introduced, RedisError> {
    let info = client.get_connection_info();
    let (Some(stream), socket) = stream(info, terms.tls.as_ref()).await? else {
        let driver = client.get_multiplexed_async_connection_with_config(&config).await?;
        return Ok(Introduced { driver, own: None, login: None });
    };
    let settings = info.redis_settings();
    let (driver, work) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    let task = tokio::spawn(work);
    Ok(Introduced { driver, own: socket.map(|socket| (task, socket)), login: None })
}

/// A connection that the driver keeps using.
pub(super) async fn driver(
    client: &redis::Client,
    terms: &Terms,
    config: AsyncConnectionConfig,
) -> Result<Driver, Fault> {
    let Introduced { driver, login, .. } = connect(client, terms, config).await?;
    let (mut named, cmd) = (driver.clone(), terms.name_connection());
    // The answer is not waited for: without a name it is as good.
    tokio::spawn(async move { named.send_packed_command(&cmd).await });
    Ok(Driver::new(driver, login))
}

/// Callers limit the time.
pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None)
}

/// What the driver uses; `None` when only the driver knows how to reach the server, as over TLS with a
/// client that has certificates. The second value is the socket, if TLS is not used.
pub(super) async fn stream(
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
    use std::time::Duration;

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
