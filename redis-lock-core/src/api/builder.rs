//! How `Locks` are set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::settings::Settings;
use crate::domain::demand::{check_millis, check_ttl, whole_millis};
use crate::domain::label::{host_and_process, printable};
use crate::domain::status::Scripting;
use crate::engine::Link;
use crate::store::memory::Memory;
use crate::store::redis::RedisConnector;
use crate::{ConfigError, LockError, Locks, Wait};

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const DEFAULT_OUTAGE: Duration = Duration::from_secs(10);
const DEFAULT_NAMESPACE: &str = "lock";

/// Sets up [`Locks`]. Made by [`Locks::builder`].
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use std::time::Duration;
/// let locks = redis_locks::Locks::builder()
///     .url("redis://localhost")
///     .namespace("billing")
///     .ttl(Duration::from_secs(10))
///     .open()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `open` or `connect`"]
pub struct Builder {
    server: Server,
    namespace: Option<String>,
    ttl: Option<Duration>,
    wait: Wait,
    command_timeout: Option<Duration>,
    outage: Option<Duration>,
    linger: Option<Duration>,
    label: Option<String>,
    scripting: Scripting,
}

#[derive(Clone, Default)]
enum Server {
    #[default]
    Unnamed,
    Url(String),
    Client(Box<redis::Client>),
    Memory,
}

impl Builder {
    /// The server: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
    /// `redis+unix:///path?db=0`, and the same with `valkey`.
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.server = Server::Url(url.as_ref().to_owned());
        self
    }

    /// A client that was set up elsewhere, with whatever TLS or credentials it has. The engine
    /// makes its own connections with it and never uses the caller's.
    pub fn client(mut self, client: redis::Client) -> Self {
        self.server = Server::Client(Box::new(client));
        self
    }

    /// No server; see [`Locks::in_memory`].
    pub fn in_memory(mut self) -> Self {
        self.server = Server::Memory;
        self
    }

    /// What stands before every key, with a colon: by default `lock`. Empty for bare keys.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The lease of locks that set none; by default 30 seconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait for locks that don't say; by default for ever.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// How long the server may take to answer one command; by default 2 seconds, and in any case
    /// no more than a sixth of the lease that depends on it, or 100 ms.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = Some(timeout);
        self
    }

    /// How long an acquisition puts up with a server that can't be used; by default 10 seconds.
    ///
    /// [`wait`](Self::wait) is for locks that are busy, and for nothing else: an acquisition that
    /// got no useful answer for this long fails with [`Backend`](LockError::Backend), however long
    /// its wait is. What can't get better by waiting (a wrong password, a database that does not
    /// exist, a missing right) fails at once. `Duration::MAX` waits through every outage.
    pub fn outage(mut self, limit: Duration) -> Self {
        self.outage = Some(limit);
        self
    }

    /// How long mutexes that don't say keep their lease after a release, while nobody else wants
    /// it; by default not at all. See [`Request::linger`](crate::Request::linger).
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    /// What holders call themselves, for people who look; by default host and process.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Whether scripts may be used on the server; by default where it allows them.
    ///
    /// Without scripts there are mutexes and nothing else: fenced, queued, reentrant, never expiring,
    /// whatever a mutex can be. Readers, writers, permits and locks of several keys are
    /// [`InvalidConfig`](LockError::InvalidConfig) when they are asked for.
    pub fn scripting(mut self, scripting: Scripting) -> Self {
        self.scripting = scripting;
        self
    }

    /// Checks everything and connects on first use.
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig), [`NotConfigured`](LockError::NotConfigured)
    /// when no server was named.
    pub fn open(self) -> Result<Locks, LockError> {
        let settings = self.settings()?;
        match self.server {
            Server::Unnamed => Err(LockError::NotConfigured),
            Server::Memory => Ok(in_memory(settings)),
            Server::Url(url) => {
                let client = redis::Client::open(readable(&url)?)
                    .map_err(|error| ConfigError::BadUrl { problem: error.to_string() })?;
                Ok(on_redis(settings, client))
            }
            Server::Client(client) => Ok(on_redis(settings, *client)),
        }
    }

    /// Checks everything and connects now.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Backend`](LockError::Backend) when the server can't be
    /// reached or refuses.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn connect(self) -> Result<Locks, LockError> {
        let locks = self.open()?;
        locks.link().connect().await.map_err(|fault| LockError::backend(None, &fault))?;
        Ok(locks)
    }

    /// The default settings without a server: nothing in them can be wrong.
    pub(crate) fn in_memory_locks(self) -> Locks {
        in_memory(self.unchecked())
    }

    fn settings(&self) -> Result<Settings, LockError> {
        let settings = self.clone().unchecked();
        check_ttl(settings.ttl)?;
        if settings.command_timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            return Err(ConfigError::CommandTimeoutTooShort.into());
        }
        if let Some(linger) = settings.linger {
            check_millis("linger", linger, "shorten it")?;
        }
        if settings.namespace.contains(['{', '}', '\0']) {
            return Err(ConfigError::BadNamespace.into());
        }
        Ok(settings)
    }

    fn unchecked(self) -> Settings {
        let server = match &self.server {
            Server::Unnamed | Server::Url(_) => String::new(),
            Server::Client(client) => describe(client),
            Server::Memory => "memory of this process".into(),
        };
        Settings {
            namespace: self.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
            ttl: whole_millis(self.ttl.unwrap_or(DEFAULT_TTL)),
            wait: self.wait,
            label: printable(&self.label.unwrap_or_else(host_and_process)).into(),
            outage: self.outage.unwrap_or(DEFAULT_OUTAGE),
            linger: self.linger.filter(|linger| !linger.is_zero()),
            server,
            command_timeout: self.command_timeout,
            scripting: self.scripting,
        }
    }
}

fn in_memory(settings: Settings) -> Locks {
    let memory = Memory::default();
    let link =
        Link::new(settings.command_timeout(), &|manager| Arc::new(memory.connector(manager)));
    Locks::new(Settings { server: "memory of this process".into(), ..settings }, link)
}

fn on_redis(settings: Settings, client: redis::Client) -> Locks {
    #[cfg(feature = "rustls")]
    crate::store::tls::provide();
    let server = describe(&client);
    let namespace = settings.namespace.clone();
    let timeout = settings.command_timeout();
    let link = Link::new(timeout, &|manager| {
        let connector = RedisConnector::new(client.clone(), &namespace, manager, timeout);
        Arc::new(connector.scripting(settings.scripting))
    });
    Locks::new(Settings { server, ..settings }, link)
}

/// Address and database, without the credentials.
fn describe(client: &redis::Client) -> String {
    let info = client.get_connection_info();
    format!("{}/{}", info.addr(), info.redis_settings().db())
}

/// The URL in the schemes that the driver knows.
fn readable(url: &str) -> Result<String, LockError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(ConfigError::NoScheme.into());
    };
    let scheme = match scheme {
        "redis" | "valkey" => "redis",
        "rediss" | "valkeys" if cfg!(feature = "rustls") => "rediss",
        "rediss" | "valkeys" => return Err(ConfigError::NoTls.into()),
        "redis+unix" | "valkey+unix" | "unix" => "redis+unix",
        _ => {
            return Err(ConfigError::UnknownScheme { scheme: scheme.to_owned() }.into());
        }
    };
    Ok(format!("{scheme}://{rest}"))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("Builder")
            .field("namespace", &self.namespace)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Builder {
    /// Locks of an arbiter that the simulation plays.
    pub(crate) fn simulated(self, connector: crate::engine::ConnectorFactory<'_>) -> Locks {
        let settings = self.unchecked();
        let link = Link::new(settings.command_timeout(), connector);
        Locks::new(settings, link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_urls_and_unknown_schemes_are_refused_before_anything_is_sent() {
        for url in
            ["", "localhost", "http://localhost", "redis://", "redis://host:port", "redis://h/x"]
        {
            let error = Locks::open(url).unwrap_err();
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{url}: {error}");
        }
        for url in ["redis://h", "valkey://h:1/2", "redis+unix:///tmp/s", "redis://u:p@h:1/3"] {
            assert!(Locks::open(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn k6_debug_names_server_database_and_namespace_and_no_password() {
        let locks = Locks::builder().url("redis://u:secret@h:1/3").namespace("app").open().unwrap();
        let shown = format!("{locks:?}");
        assert!(shown.contains("h:1/3") && shown.contains("app"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
