//! The builder of `Locks`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::locks::Settings;
use crate::api::server::NodeOptions;
use crate::api::server_url::{Servers, owned, read, read_cluster, read_quorum, read_sentinels};
use crate::domain::checks::{check_margin, check_max_waiters, check_millis, check_ttl};
use crate::domain::config_error::REJOIN_ALONE;
use crate::domain::label::printable;
use crate::domain::lease::whole_millis;
use crate::domain::status::{Scripting, Topology};
use crate::domain::value::MOST_VALUE;
use crate::engine::Link;
use crate::store::redis::Terms;
use crate::{ConfigError, LockError, Locks, Wait};

const DEFAULT_REJOIN: Duration = Duration::from_secs(60);

/// Sets up [`Locks`]: the server, the namespace, and defaults for requests. Start with [`Locks::builder`]. Finish
/// with [`open`](Self::open), which connects on first use, or [`connect`](Self::connect), which connects now.
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
pub struct LocksBuilder {
    /// `None` as long as none are named.
    servers: Option<Result<Servers, ConfigError>>,
    pub(super) nodes: NodeOptions,
    replicas: u32,
    settings: Settings,
    rejoin: Option<Duration>,
}

impl LocksBuilder {
    /// The server, by its URL:
    ///
    /// | Server | URL |
    /// |---|---|
    /// | one | `redis://[user:password@]host[:port][/db]` |
    /// | one, over TLS | `rediss://…` |
    /// | a unix socket | `redis+unix:///path?db=0` |
    /// | a [`cluster`](Self::cluster) | `redis-cluster://a:7000,b:7000`, `rediss-cluster://…` |
    /// | [`sentinel`](Self::sentinel)s | `redis-sentinel://s1:26379,s2:26379/mymaster`, `rediss-sentinel://…` |
    /// | a [`quorum`](Self::quorum) | `redis-quorum://a,b,c`, `redis-quorum://a,b,c?`[`rejoin`](Self::rejoin)`=10m`, `rediss-quorum://…` |
    ///
    /// The same with `valkey` in place of `redis`.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().url("rediss://user:password@redis.example.com");
    /// ```
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.servers = Some(read(url.as_ref()));
        self
    }

    /// A client of the [`redis`](crate::redis) crate, version 1, with its TLS settings and credentials.
    /// The engine makes its own connections with it.
    ///
    /// ```
    /// let client = redis_locks::redis::Client::open("redis://localhost")?;
    /// let builder = redis_locks::Locks::builder().client(client);
    /// # Ok::<_, redis_locks::redis::RedisError>(())
    /// ```
    pub fn client(mut self, client: redis::Client) -> Self {
        self.servers = Some(Ok(Servers::one(client)));
        self
    }

    /// A cluster, by the URLs of some of its nodes, which name the others. The credentials and TLS settings of these
    /// URLs apply to all nodes.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::builder().cluster(["redis://a:7000", "redis://b:7000"]).open()?;
    /// # Ok(()) }
    /// ```
    pub fn cluster<S: AsRef<str>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.servers = Some(read_cluster(&owned(seeds)));
        self
    }

    /// The primary that the sentinels at these URLs call `name`. They name the other sentinels. Credentials and
    /// database in the URLs belong to the server; [`sentinel_auth`](Self::sentinel_auth) sets those of the sentinels.
    /// TLS applies to both.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::builder()
    ///     .sentinel(["redis://s1:26379", "redis://s2:26379"], "mymaster")
    ///     .open()?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel<S: AsRef<str>>(
        mut self,
        urls: impl IntoIterator<Item = S>,
        name: impl Into<String>,
    ) -> Self {
        self.servers = Some(read_sentinels(&owned(urls), name.into()));
        self
    }

    /// A quorum of independent servers: an odd number, at least three. A lock is held when a majority of
    /// the servers grants it, so it survives the loss of any minority.
    ///
    /// Each of these URLs is one server, with its credentials. The servers must fail independently and must not be
    /// replicas of each other. A node that can't be reached does not stop the others. A quorum has mutexes, read-write
    /// locks and several keys at once. It has no permits, no locks that never expire, and no `once`. A request's
    /// `linger` is refused, and the builder's is ignored. If too few nodes agree, the error is
    /// [`NoQuorum`](crate::NoQuorum).
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let nodes = ["redis://a", "redis://b", "redis://c"];
    /// let locks = redis_locks::Locks::builder().quorum(nodes).open()?;
    /// # Ok(()) }
    /// ```
    pub fn quorum<S: AsRef<str>>(mut self, urls: impl IntoIterator<Item = S>) -> Self {
        self.servers = Some(read_quorum(&owned(urls)));
        self
    }

    /// How long a node of a quorum must have been up before it votes for new holders; by default 60 seconds.
    ///
    /// A node that was restarted may have forgotten who holds a lock. After this time every forgotten lease has
    /// ended, or was renewed and is known to the node. So `ttl` and `margin` together must not be longer: such a
    /// request gets [`InvalidConfig`](LockError::InvalidConfig). Zero lets nodes vote at once. That is safe only if
    /// each node persists every write before it answers (`appendfsync always`).
    ///
    /// Use the same value in all clients of a quorum. Clients with different values use the longest as soon as
    /// they find it on a node. A URL can set it too: `redis-quorum://a,b,c?rejoin=10m`. If both
    /// do, this method's time is used.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// use std::time::Duration;
    /// let nodes = ["redis://a", "redis://b", "redis://c"];
    /// let builder = redis_locks::Locks::builder().quorum(nodes);
    /// // No lease of this service is longer than ten minutes.
    /// let locks = builder.rejoin(Duration::from_secs(600)).open()?;
    /// # Ok(()) }
    /// ```
    pub fn rejoin(mut self, time: Duration) -> Self {
        self.rejoin = Some(time);
        self
    }

    /// User and password of the sentinels, if they ask for them. An empty user is the default user.
    ///
    /// ```
    /// let url = "redis-sentinel://s1:26379,s2:26379/mymaster";
    /// let builder = redis_locks::Locks::builder().url(url).sentinel_auth("monitor", "secret");
    /// ```
    pub fn sentinel_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.nodes.sentinel_auth = Some((user.into(), password.into()));
        self
    }

    /// The certificates of your own authority, as PEM. They replace the platform's roots, for every
    /// server of a URL with `rediss`, and for all nodes and sentinels. Needs the feature `rustls`.
    ///
    /// ```
    /// # let pem = "";
    /// let builder = redis_locks::Locks::builder().url("rediss://localhost").tls_authority(pem);
    /// ```
    #[cfg(feature = "rustls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "rustls")))]
    pub fn tls_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.nodes.certificates.authority = Some(pem.into());
        self
    }

    /// The certificate of this client and its key, both as PEM, for servers that ask for one. Needs the feature
    /// `rustls`.
    ///
    /// ```
    /// # let (cert, key) = ("", "");
    /// let builder = redis_locks::Locks::builder().url("rediss://localhost").tls_identity(cert, key);
    /// ```
    #[cfg(feature = "rustls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "rustls")))]
    pub fn tls_identity(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.nodes.certificates.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Translates addresses of nodes that announce addresses which can't be reached from here (NAT, containers,
    /// tunnels). `map` gets the announced host and port, and returns those to connect to. It is not called for the
    /// URLs that you set.
    ///
    /// ```
    /// let nat = |_: &str, port: u16| ("nat.example.com".to_owned(), port);
    /// let builder = redis_locks::Locks::builder().url("redis-cluster://a:7000").address_map(nat);
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.nodes.address_map = Some(Arc::new(map));
        self
    }

    /// How many replicas must have a lock before it counts; by default none. A failover to one of
    /// these keeps the lock.
    ///
    /// Each acquisition and renewal takes one more round trip, to the replicas. With fewer replicas, no lock is
    /// acquired or kept. The error is [`Backend`](LockError::Backend), and
    /// [`not_replicated`](crate::BackendError::not_replicated) returns how many replicas confirmed.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// // A primary and two replicas: a lock counts when one of these confirms it.
    /// let sentinels = ["redis://a:26379", "redis://b:26379", "redis://c:26379"];
    /// let builder = redis_locks::Locks::builder().sentinel(sentinels, "mymaster");
    /// let locks = builder.replicas(1).open()?;
    /// # Ok(()) }
    /// ```
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = count;
        self
    }

    /// Uses no server; see [`Locks::in_memory`].
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().in_memory();
    /// ```
    pub fn in_memory(mut self) -> Self {
        self.servers = Some(Ok(Servers::in_memory()));
        self
    }

    /// The prefix of every key, followed by a colon: `lock` by default. An empty text means no prefix.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().namespace("shop"); // `shop:order:42`
    /// ```
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.settings.namespace = namespace.into();
        self
    }

    /// The lease of requests that set none: 30 seconds by default.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().ttl(std::time::Duration::from_secs(40));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = whole_millis(ttl);
        self
    }

    /// How long requests wait for a busy lock, unless they set a time: for ever by default.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().wait(std::time::Duration::from_secs(2));
    /// ```
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.settings.wait = wait.into();
        self
    }

    /// How long the server may take to answer one command: 2 seconds by default, a day at most. A renewal has at most
    /// ttl / 6, but never less than 100 ms.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().command_timeout(std::time::Duration::from_secs(1));
    /// ```
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = Some(timeout);
        self
    }

    /// How long an acquisition waits for a server that can't be used; by default 10 seconds. Then it
    /// fails with [`Backend`](LockError::Backend), even if it may [`wait`](Self::wait) for longer.
    ///
    /// A shorter wait ends it earlier: when the wait is over, plus one
    /// [`command_timeout`](Self::command_timeout) at most. Errors that waiting can't fix (a wrong password, a
    /// missing right) are returned at once. `Duration::MAX` waits through every outage.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().outage(std::time::Duration::from_secs(1));
    /// ```
    pub fn outage(mut self, limit: Duration) -> Self {
        self.settings.outage = limit;
        self
    }

    /// How long mutexes keep their lease after a release, unless another process wants the lock. Zero by default; a
    /// request can override it by [`LockRequest::linger`](crate::LockRequest::linger).
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().linger(std::time::Duration::from_secs(2));
    /// ```
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.linger = Some(linger).filter(|linger| !linger.is_zero());
        self
    }

    /// Extra time that the server keeps a key after the guard's lease ends, unless the request sets it: zero by
    /// default. See [`LockRequest::margin`](crate::LockRequest::margin). Locks that never expire have none.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// use std::time::Duration;
    /// // Requests that a holder has sent may arrive for ten seconds after it has lost the lock.
    /// let builder = redis_locks::Locks::builder().url("redis://localhost");
    /// let locks = builder.margin(Duration::from_secs(10)).open()?;
    /// # Ok(()) }
    /// ```
    pub fn margin(mut self, margin: Duration) -> Self {
        self.settings.margin = Some(margin);
        self
    }

    /// How many calls may wait for one key, unless the request sets a limit: any number by default. See
    /// [`LockRequest::max_waiters`](crate::LockRequest::max_waiters).
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().max_waiters(100);
    /// ```
    pub fn max_waiters(mut self, most: usize) -> Self {
        self.settings.max_waiters = Some(most);
        self
    }

    /// The largest value that is stored for other calls, as JSON: 64 KiB by default, at most 1 MiB. See
    /// `LockRequest::replay`.
    ///
    /// All commands to a server share one connection, so renewals wait behind large values.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().largest_value(256 * 1024);
    /// ```
    pub fn largest_value(mut self, bytes: usize) -> Self {
        self.settings.largest_value = bytes;
        self
    }

    /// The label of holders, which `status` shows; by default host and process.
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().label("billing, pod 7");
    /// ```
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = printable(&label.into()).into();
        self
    }

    /// Whether to use scripts on the server. By default they are used if the server allows them.
    ///
    /// Without scripts only mutexes work, with all their options. Readers, writers, permits and locks of several keys
    /// are [`InvalidConfig`](LockError::InvalidConfig).
    ///
    /// ```
    /// let builder = redis_locks::Locks::builder().scripting(redis_locks::Scripting::Never);
    /// ```
    pub fn scripting(mut self, scripting: Scripting) -> Self {
        self.settings.scripting = scripting;
        self
    }

    /// Checks everything and connects on first use.
    ///
    /// ```
    /// assert!(redis_locks::Locks::builder().url("redis://localhost").open().is_ok()); // sends nothing
    /// ```
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig), [`NotConfigured`](LockError::NotConfigured)
    /// when no server was named.
    pub fn open(self) -> Result<Locks, LockError> {
        self.check()?;
        let mut settings = self.settings;
        let servers = self.servers.ok_or(LockError::NotConfigured)??.checked(&self.nodes)?;
        match (servers.topology, self.rejoin.or(servers.rejoin)) {
            (Topology::Quorum, rejoin) => {
                settings.on_quorum(rejoin.unwrap_or(DEFAULT_REJOIN), self.replicas)?;
            }
            (_, Some(_)) => return Err(REJOIN_ALONE.into()),
            (_, None) => {}
        }
        if self.replicas > 0 && servers.topology == Topology::Memory {
            let (needs, advice) = ("a server", "locks in memory have none");
            return Err(ConfigError::Requires { option: "replicas", needs, advice }.into());
        }
        Ok(locks(settings, &servers, &self.nodes, self.replicas))
    }

    /// Checks everything and connects now.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::builder().url("redis://localhost").connect().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Backend`](LockError::Backend) when the server can't be
    /// reached or refuses.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn connect(self) -> Result<Locks, LockError> {
        let locks = self.open()?;
        let server = &locks.settings().server;
        let failed = |fault| LockError::backend(None, &fault).at(server);
        locks.link().connect().await.map_err(failed)?;
        Ok(locks)
    }

    /// The default settings without a server: nothing in them can be wrong.
    pub(crate) fn in_memory_locks(self) -> Locks {
        locks(self.settings, &Servers::in_memory(), &self.nodes, 0)
    }

    fn check(&self) -> Result<(), LockError> {
        let settings = &self.settings;
        check_ttl("ttl", settings.ttl)?;
        let least = Duration::from_millis(1);
        if let Some(given) = settings.command_timeout.filter(|timeout| *timeout < least) {
            let (option, usual) = ("command_timeout", "2 s");
            return Err(ConfigError::TooShort { option, given, least, usual }.into());
        }
        check_max_waiters(settings.max_waiters)?;
        if settings.largest_value > MOST_VALUE {
            let (option, advice) = ("largest_value", "1 MiB is the most");
            let given = settings.largest_value as u64;
            return Err(ConfigError::TooLarge { option, given, advice }.into());
        }
        if let Some(linger) = settings.linger {
            check_millis("linger", linger, "shorten it")?;
        }
        settings.margin.map_or(Ok(()), check_margin)?;
        if settings.namespace.contains(['{', '}', '\0']) {
            return Err(ConfigError::BadNamespace.into());
        }
        Ok(())
    }
}

fn locks(settings: Settings, servers: &Servers, nodes: &NodeOptions, replicas: u32) -> Locks {
    let timeout = settings.command_timeout();
    let (scripting, namespace, ttl) =
        (settings.scripting, settings.namespace.clone(), settings.ttl);
    let (tls, rejoin) = (nodes.tls(servers), settings.rejoin.unwrap_or_default());
    let sources = nodes.sources();
    let arbiter = |manager: &Arc<str>| {
        let mut terms = Terms::new(&namespace, manager, timeout);
        (terms.scripting, terms.replicas) = (scripting, replicas);
        (terms.ttl, terms.tls) = (ttl, tls.clone());
        servers.arbiter(manager, nodes, sources.clone().map(|it| terms.by(it)), rejoin)
    };
    let link = Link::new(timeout, &arbiter);
    let in_memory = servers.topology == Topology::Memory;
    let sources = sources.into_iter().flatten().collect();
    Locks::new(Settings { server: servers.describe(), in_memory, sources, ..settings }, link)
}

impl fmt::Debug for LocksBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("LocksBuilder")
            .field("namespace", &self.settings.namespace)
            .field("ttl", &self.settings.ttl)
            .field("wait", &self.settings.wait)
            .field("label", &self.settings.label)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl LocksBuilder {
    /// Locks of an arbiter that the simulation provides.
    pub(crate) fn simulated(self, arbiter: crate::engine::ArbiterFactory<'_>) -> Locks {
        let link = Link::new(self.settings.command_timeout(), arbiter);
        Locks::new(self.settings, link)
    }
}
