//! The ways in which a configuration can be wrong.

use std::time::Duration;

/// What is wrong with an option, or with a combination of options. The text says what would be
/// right.
///
/// ```
/// use redis_locks::{ConfigError, LockError, Locks};
///
/// let error = Locks::open("http://localhost").unwrap_err();
/// assert!(matches!(
///     error,
///     LockError::InvalidConfig { cause: ConfigError::UnknownScheme { .. }, .. }
/// ));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The server's URL names no scheme.
    #[error("the server's URL has no scheme; write e.g. redis://localhost:6379")]
    NoScheme,
    /// The server's URL is one of another protocol.
    #[error(
        "the scheme `{scheme}` is unknown; use redis, rediss, redis+unix, redis-cluster, \
         redis-sentinel, redis-quorum, or valkey"
    )]
    #[non_exhaustive]
    UnknownScheme {
        /// The part before `://`.
        scheme: String,
    },
    /// The server's URL can't be read.
    #[error(
        "the server's URL can't be used: {problem}; write it as redis://user:password@host:port/db"
    )]
    #[non_exhaustive]
    BadUrl {
        /// What is wrong with it, without the password.
        problem: String,
    },
    /// Several nodes were configured, but none was named.
    #[error("no node was named; name at least one, better several, as redis://host:port")]
    NoSeeds,
    /// The URLs of the nodes differ in more than host and port.
    #[error(
        "the URLs of the nodes differ in more than the address; all nodes are reached with the same \
         scheme, user, password and database"
    )]
    SeedsDiffer,
    /// A cluster has only database 0, and another one was asked for.
    #[error("a cluster has database 0 only, and the URL names {db}; leave the number out")]
    #[non_exhaustive]
    ClusterDatabase {
        /// The database that was asked for.
        db: i64,
    },
    /// Sentinels were given without the name of the primary.
    #[error(
        "the primary's name is missing; write it as redis-sentinel://host:26379/mymaster, or as the \
         second argument of `sentinel`"
    )]
    NoPrimaryName,
    /// `sentinel_auth` was given without sentinels.
    #[error(
        "sentinel_auth has no meaning without sentinels; credentials of a server stand in its URL"
    )]
    SentinelAuthAlone,
    /// `address_map` was given for a single server, which is reached by its own URL.
    #[error("address_map has no meaning for one server; name the address where it is reached")]
    AddressMapAlone,
    /// A quorum of an even number of nodes, or of fewer than three.
    #[error(
        "a quorum of {given} nodes survives no more failures than one of fewer; name an odd number, at \
         least 3"
    )]
    #[non_exhaustive]
    QuorumSize {
        /// How many were named.
        given: usize,
    },
    /// A server that is named twice would vote twice.
    #[error("{address} is named twice; name servers that fail independently")]
    #[non_exhaustive]
    QuorumNodeTwice {
        /// The server.
        address: String,
    },
    /// `rejoin` was given without a quorum.
    #[error("rejoin has no meaning without a quorum; leave it out, or name the nodes by `quorum`")]
    RejoinAlone,
    /// A lease that may outlast the time after which a node that has forgotten it votes again.
    #[error(
        "a lease of {lease:?}, ttl and margin together, is longer than rejoin ({rejoin:?}), so a node \
         that has started anew would vote while locks are held that it has forgotten; shorten the \
         lease or raise rejoin"
    )]
    #[non_exhaustive]
    LeaseBeyondRejoin {
        /// The ttl and the margin.
        lease: Duration,
        /// How long a node that has started does not vote.
        rejoin: Duration,
    },
    /// Something that a quorum can't offer.
    #[error("a quorum has no {what}: {why}")]
    #[non_exhaustive]
    NotOnQuorum {
        /// What was asked for.
        what: &'static str,
        /// Why there is none, and what to do instead.
        why: &'static str,
    },
    /// Replicas were asked for, and locks in memory have none.
    #[error("locks in memory have no replicas; leave `replicas` out, or name a server")]
    MemoryHasNoReplicas,
    /// The URL asks for TLS, and this program was built without it.
    #[error(
        "the server's URL asks for TLS, which is not built in; add the feature: \
         redis-locks = {{ version = \"…\", features = [\"rustls\"] }}"
    )]
    NoTls,
    /// Certificates for a server that is not reached over TLS.
    #[error(
        "certificates have no meaning without TLS; name the servers by rediss://, rediss-cluster://, \
         rediss-sentinel:// or rediss-quorum://"
    )]
    CertificatesAlone,
    /// A certificate or a key that can't be read.
    #[error("a certificate or its key can't be used: {problem}; both are PEM")]
    #[non_exhaustive]
    BadCertificate {
        /// What is wrong with it.
        problem: String,
    },
    /// The namespace can't be used as a prefix of keys.
    #[error("a namespace can't contain braces or NUL; leave them out")]
    BadNamespace,
    /// The command timeout is shorter than any server can answer in.
    #[error("a command_timeout below 1 ms leaves no time to answer")]
    CommandTimeoutTooShort,
    /// `install` was called a second time.
    #[error("a `Locks` is installed already; call `install()` once, at start-up")]
    AlreadyInstalled,
    /// `install` was called after `Locks` from the environment had been used.
    #[error(
        "the `Locks` that REDIS_URL describes are in use already, so calls before this one were \
         locked there; call `install()` at start-up, before the first annotated function"
    )]
    AlreadyInUse,
    /// The lease is too short to be renewed in time.
    #[error("a {option} of {ttl:?} is too short to be kept; the least is {least:?}, 30 s is usual")]
    #[non_exhaustive]
    TtlTooShort {
        /// The name of the option that asks for the lease: `ttl` or `repair_orphan`.
        option: &'static str,
        /// The ttl that was asked for.
        ttl: Duration,
        /// The shortest ttl.
        least: Duration,
    },
    /// The time is out of the range of the server's clock.
    #[error("{option} of {given:?} is too long; {advice}")]
    #[non_exhaustive]
    TooLong {
        /// The name of the option.
        option: &'static str,
        /// The value that was asked for.
        given: Duration,
        /// What to write instead.
        advice: &'static str,
    },
    /// A lock other than a mutex was asked for without a lease.
    #[error("only a mutex can be held without a ttl; give this lock a ttl")]
    TtlRequired,
    /// The number of a hold was asked for that has none.
    #[error("this hold has no fencing number; ask for one with `fenced`")]
    NotFenced,
    /// The fencing number of a hold does not fit into an `i64`.
    #[error(
        "the fencing number {fence} is too large for an i64; set the counter on the server lower"
    )]
    #[non_exhaustive]
    FenceTooLarge {
        /// The number.
        fence: u64,
    },
    /// A limit of zero permits.
    #[error("zero permits could never be acquired; allow at least 1")]
    ZeroPermits,
    /// A `max_waiters` of zero.
    #[error("a max_waiters of zero would refuse every call that waits; use no_wait() for that")]
    ZeroMaxWaiters,
    /// A `max_hold` of zero.
    #[error("a max_hold of zero would never hold a lock; leave it out for the default of 24 hours")]
    ZeroMaxHold,
    /// `max_hold` caps renewal, and there is none without a ttl.
    #[error("max_hold has no meaning for a lock that never expires; give it a ttl")]
    MaxHoldWithoutTtl,
    /// The lock would end before its `min_hold`.
    #[error(
        "min_hold ({min_hold:?}) is longer than the ttl ({ttl:?}), which is not renewed; raise the \
         ttl or allow renewal"
    )]
    #[non_exhaustive]
    MinHoldBeyondTtl {
        /// As asked for.
        min_hold: Duration,
        /// As asked for.
        ttl: Duration,
    },
    /// The lock would end before its `min_hold`.
    #[error("min_hold ({min_hold:?}) is longer than max_hold ({max_hold:?}); lower it")]
    #[non_exhaustive]
    MinHoldBeyondMaxHold {
        /// As asked for.
        min_hold: Duration,
        /// As asked for.
        max_hold: Duration,
    },
    /// `linger` was set for a lock other than a mutex.
    #[error("only the lease of a mutex can linger; leave `linger` out for this kind of lock")]
    LingerWithoutMutex,
    /// `linger` was set for a lock that never expires.
    #[error("linger has no meaning for a lock that never expires; give it a ttl")]
    LingerWithoutTtl,
    /// `once` was set together with something that it does not go with.
    #[error("once does not go with {other}; {advice}")]
    #[non_exhaustive]
    OnceWith {
        /// The other option, or what else it is.
        other: &'static str,
        /// What to write instead.
        advice: &'static str,
    },
    /// `queue` was set together with something that it does not go with.
    #[error("queue does not go with {other}; {advice}")]
    #[non_exhaustive]
    QueueWith {
        /// The other option, or what else it is.
        other: &'static str,
        /// What to write instead.
        advice: &'static str,
    },
    /// `complete` on a lock that was not asked for by `once`.
    #[error("only a lock that was asked for by `once` can be completed; release this one")]
    CompleteWithoutOnce,
    /// `replay` was set without `once`.
    #[error("replay needs a period for which the value is kept; set `once`")]
    ReplayWithoutOnce,
    /// `largest_value` is larger than all values may be.
    #[error("values can't be allowed to be that large; use at most {most} bytes")]
    #[non_exhaustive]
    ValueTooLarge {
        /// The most bytes that a value may have.
        most: usize,
    },
    /// `call` on a request that neither replays nor shares values.
    #[error(
        "call gives a value to other calls, and this request has none for them; add `.once(…).replay()`, or use `try_run`"
    )]
    CallWithoutValue,
    /// `margin` was set for a lock that never expires.
    #[error("margin has no meaning for a lock that never expires; give it a ttl")]
    MarginWithoutTtl,
    /// `margin` is longer than a day.
    #[error("a margin of {margin:?} is too long; use at most {most:?}")]
    #[non_exhaustive]
    MarginTooLong {
        /// The margin that was given.
        margin: Duration,
        /// The longest one.
        most: Duration,
    },
    /// `all` was called with no keys.
    #[error("no key to lock was given; name at least one")]
    NoKeys,
    /// `all` was called with too many keys.
    #[error(
        "{given} keys are more than the {most} that one lock can have; lock one key that stands for \
         all of them"
    )]
    #[non_exhaustive]
    TooManyKeys {
        /// How many different keys were given.
        given: usize,
        /// How many one lock can have.
        most: usize,
    },
    /// One key is used as several kinds of lock.
    #[error("{}{detail}", .key.as_deref().map_or_else(String::new, |key| format!("lock `{key}`: ")))]
    #[non_exhaustive]
    OtherKind {
        /// The key.
        key: Option<String>,
        /// What the key is used as.
        detail: String,
    },
    /// The server can't do what was asked for, or does not let this user.
    #[error("{}{detail}", .key.as_deref().map_or_else(String::new, |key| format!("lock `{key}`: ")))]
    #[non_exhaustive]
    Unsupported {
        /// The key.
        key: Option<String>,
        /// What is missing, and what to do.
        detail: String,
    },
    /// `extend` on a lock without a lease.
    #[error("a lock that never expires has no lease to extend; acquire it with a ttl")]
    ExtendWithoutTtl,
    /// `adopt` of a lock with a lease by a request that never expires.
    #[error(
        "this token's lock has a lease, and a request that never expires can't renew it; give it a ttl"
    )]
    AdoptWithoutTtl,
    /// The text is no token.
    #[error("`{text}` is no token of a guard; pass on what `detach` gave, unchanged")]
    #[non_exhaustive]
    BadToken {
        /// The text, cut when it is long.
        text: String,
    },
    /// A hold other than a writer's was to be downgraded.
    #[error("only the hold of a writer can be downgraded; acquire it by `write`")]
    NotAWriter,
    /// A reentrant call wants more keys than the outer hold has.
    #[error(
        "`{held}` is held already and `{missing}` is not, and a reentrant call can only join a hold \
         that has all of its keys; lock both in the outer call"
    )]
    #[non_exhaustive]
    JoinMissesKey {
        /// A key that the outer call holds.
        held: String,
        /// A key that it does not.
        missing: String,
    },
    /// A reentrant call wants another kind of lock than the outer hold is.
    #[error(
        "`{key}` is held already as another kind of lock, and a reentrant call can only join the \
         same kind; use the outer call's kind"
    )]
    #[non_exhaustive]
    JoinOtherKind {
        /// The key that the outer call holds.
        key: String,
    },
    /// A reentrant call wants a fencing number, and the outer hold has none.
    #[error(
        "a reentrant call that joins the hold of `{key}` shares its fencing number, and it has \
         none; ask for one in the outer call"
    )]
    #[non_exhaustive]
    JoinUnfenced {
        /// The key that the outer call holds.
        key: String,
    },
}

impl ConfigError {
    /// The key that it is about, where it is about one.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::OtherKind { key, .. } | Self::Unsupported { key, .. } => key.as_deref(),
            Self::JoinMissesKey { missing: key, .. }
            | Self::JoinOtherKind { key }
            | Self::JoinUnfenced { key } => Some(key),
            _ => None,
        }
    }
}

/// Checks that a node of a quorum votes again only when all leases that it may have forgotten are over.
pub(crate) fn check_rejoin(
    ttl: Duration,
    margin: Option<Duration>,
    rejoin: Duration,
) -> Result<(), ConfigError> {
    let lease = ttl.saturating_add(margin.unwrap_or_default());
    match lease > rejoin && !rejoin.is_zero() {
        true => Err(ConfigError::LeaseBeyondRejoin { lease, rejoin }),
        false => Ok(()),
    }
}
