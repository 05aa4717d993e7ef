//! The ways in which a configuration can be wrong.

use std::time::Duration;

/// What is wrong with an option, or with a combination of options. The message says what to write instead.
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
    #[error("no node was given; give at least one, better several, as redis://host:port")]
    NoSeeds,
    /// The URLs of the nodes differ in something other than host and port.
    #[error(
        "the URLs of the nodes differ in more than the address; all nodes must have the same scheme, \
         user, password and database"
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
    /// An option or a method that needs another one.
    #[error("{option} has no meaning without {needs}; {advice}")]
    #[non_exhaustive]
    Requires {
        /// The option or the method.
        option: &'static str,
        /// What is missing.
        needs: &'static str,
        /// What to write instead.
        advice: &'static str,
    },
    /// Two options that exclude each other, or an option that this kind of lock can't have.
    #[error("{option} does not go with {with}; {advice}")]
    #[non_exhaustive]
    Conflict {
        /// The option.
        option: &'static str,
        /// The other option, or the kind of lock.
        with: &'static str,
        /// What to write instead.
        advice: &'static str,
    },
    /// A quorum of an even number of nodes, or of fewer than three.
    #[error("a quorum needs an odd number of nodes, at least 3, and {given} were given")]
    #[non_exhaustive]
    QuorumSize {
        /// How many were named.
        given: usize,
    },
    /// The server is named twice, so it would vote twice.
    #[error("{address} is named twice; name servers that fail independently")]
    #[non_exhaustive]
    QuorumNodeTwice {
        /// The server.
        address: String,
    },
    /// A lease that may outlast `rejoin`, after which a node that has forgotten it votes again.
    #[error(
        "the lease of {lease:?} (ttl and margin) is longer than rejoin ({rejoin:?}): a restarted node \
         could vote while locks that it forgot are still held; shorten the lease or raise rejoin"
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
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// The URL asks for TLS, and this program was built without it.
    #[error(
        "the server's URL asks for TLS, which is not built in; add the feature: \
         redis-locks = {{ version = \"…\", features = [\"rustls\"] }}"
    )]
    NoTls,
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
    /// `install` was called a second time.
    #[error("a `Locks` is installed already; call `install()` once, at start-up")]
    AlreadyInstalled,
    /// `install` was called after `Locks` from the environment had been used.
    #[error(
        "the `Locks` that REDIS_URL describes are in use already, so calls before this one were \
         locked there; call `install()` at start-up, before the first annotated function"
    )]
    AlreadyInUse,
    /// The time is too short: a lease could not be renewed, or no answer could arrive.
    #[error("a {option} of {given:?} is too short; the minimum is {least:?}, and {usual} is usual")]
    #[non_exhaustive]
    TooShort {
        /// The name of the option.
        option: &'static str,
        /// The value that was asked for.
        given: Duration,
        /// The shortest that is accepted.
        least: Duration,
        /// What most programs use.
        usual: &'static str,
    },
    /// The time is longer than a lock can last, or out of the range of the server's clock.
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
    /// A number is larger than can be stored.
    #[error("{option} of {given} is too large; {advice}")]
    #[non_exhaustive]
    TooLarge {
        /// What has the number.
        option: &'static str,
        /// The number.
        given: u64,
        /// What to do.
        advice: &'static str,
    },
    /// A number of zero where at least one is needed.
    #[error("{option} of zero {why}")]
    #[non_exhaustive]
    Zero {
        /// The name of the option.
        option: &'static str,
        /// What that would do, and what to write instead.
        why: &'static str,
    },
    /// `all` was called with no keys, or with too many.
    #[error(
        "one lock takes 1 to {most} keys, and {given} were given; for more, lock one key that stands \
         for all of them"
    )]
    #[non_exhaustive]
    KeyCount {
        /// How many different keys were given.
        given: usize,
        /// How many one lock can have.
        most: usize,
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
    /// The text is no token.
    #[error("`{text}` is not the token of a guard; pass on the text from `detach` unchanged")]
    #[non_exhaustive]
    BadToken {
        /// The text, cut when it is long.
        text: String,
    },
}

impl ConfigError {
    /// The key, if the error is about one.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Unsupported { key, .. } => key.as_deref(),
            _ => None,
        }
    }
}

/// `rejoin` was set for servers that are no quorum.
pub(crate) const REJOIN_ALONE: ConfigError = ConfigError::Requires {
    option: "rejoin",
    needs: "a quorum",
    advice: "leave it out, or name the nodes by `quorum`",
};

/// A lock without `once` was completed.
pub(crate) const NOT_ONCE: ConfigError = ConfigError::Requires {
    option: "complete",
    needs: "`once`",
    advice: "ask for the lock by it, or release this one",
};

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
