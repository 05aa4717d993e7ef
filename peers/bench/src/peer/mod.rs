//! The libraries that are compared, all behind one trait.

mod bare;
mod bare_cluster;
mod bare_renewing;
mod bare_replicated;
mod distributed_lock;
mod ours;
mod redlock;
mod rlock;
mod rslock;
mod tokio_mutex;

pub(crate) use bare::{Bare, BareNoDelay, RELEASE};
pub(crate) use bare_cluster::BareCluster;
pub(crate) use bare_renewing::BareRenewing;
pub(crate) use bare_replicated::BareReplicated;
pub(crate) use distributed_lock::DistributedLock;
pub(crate) use ours::{InBackground, Lingering, Ours, Replicated};
pub(crate) use redlock::Redlock;
pub(crate) use rlock::RLock;
pub(crate) use rslock::Rslock;
pub(crate) use tokio_mutex::TokioMutex;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// How many pairs come before a measurement.
const WARM_UP: usize = 600;

/// A lock library as its own documentation says to use it.
pub(crate) trait Peer: Clone + Send + Sync + Sized + 'static {
    type Guard: Send + 'static;

    /// Connects. Every lock has this lease.
    fn open(url: &str, ttl: Duration) -> impl Future<Output = Result<Self>> + Send;

    /// Waits for the lock, however long that takes.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Guard>> + Send;

    fn release(&self, guard: Self::Guard) -> impl Future<Output = Result<()>> + Send;

    /// Takes and gives back a lock often enough that everything a library opens or learns on the
    /// way is there before the measurement.
    fn warm_up(&self) -> impl Future<Output = Result<()>> + Send {
        async {
            let key = format!("warm-up:{}", std::process::id());
            for _ in 0..WARM_UP {
                let guard = self.acquire(&key).await?;
                self.release(guard).await?;
            }
            Ok(())
        }
    }

    /// Whether the guard says that it has its lock; `true` where it does not say.
    fn is_held(guard: &Self::Guard) -> bool {
        let _ = guard;
        true
    }
}

/// Where the nodes of a quorum are, or the one server that a URL names.
fn nodes(url: &str) -> Vec<String> {
    let Some(hosts) = url.strip_prefix("redis-quorum://") else { return vec![url.to_owned()] };
    hosts.split(',').map(|host| format!("redis://{host}")).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeerId {
    Ours,
    InBackground,
    Bare,
    BareNoDelay,
    Rslock,
    Rlock,
    Redlock,
    DistributedLock,
    /// Ours, where leases stay for a while after the release.
    Lingering,
    /// Ours, where a replica must have each lock.
    Replicated,
    /// The driver's own client of a cluster.
    BareCluster,
    /// The driver, and each lock renewed by itself.
    BareRenewing,
    /// The driver and `WAIT`.
    BareReplicated,
    /// A mutex of the process, without a server.
    TokioMutex,
    /// No lock at all: what the server's push alone takes.
    Floor,
    /// No lock at all: two round trips of a plain socket.
    RoundTrips,
}

impl PeerId {
    pub(crate) const ALL: &[Self] = &[
        Self::Ours,
        Self::InBackground,
        Self::Bare,
        Self::BareNoDelay,
        Self::Rslock,
        Self::Rlock,
        Self::Redlock,
        Self::DistributedLock,
    ];

    /// The driver without a library, in both forms.
    pub(crate) const BARE: &[Self] = &[Self::Bare, Self::BareNoDelay];

    /// Those that differ when locks are waited for.
    pub(crate) const WAITING: &[Self] =
        &[Self::Ours, Self::Bare, Self::Rslock, Self::Rlock, Self::Redlock, Self::DistributedLock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "redis-locks",
            Self::InBackground => "redis-locks, background release",
            Self::Bare => "bare redis driver",
            Self::BareNoDelay => "bare redis driver, TCP_NODELAY",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::Redlock => "redlock",
            Self::DistributedLock => "distributed-lock-redis",
            Self::Lingering => "redis-locks, linger",
            Self::Replicated => "redis-locks, replicas(1)",
            Self::BareCluster => "bare cluster client of redis-rs",
            Self::BareRenewing => "bare redis driver, renewing one by one",
            Self::BareReplicated => "bare redis driver and WAIT",
            Self::TokioMutex => "tokio::sync::Mutex, in one process",
            Self::Floor => "push floor",
            Self::RoundTrips => "two round trips of a plain socket",
        }
    }

    /// As the command line and the results have it.
    pub(crate) fn id(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }

    /// The colour of a library, the same in all plots.
    pub(crate) fn colour(self) -> &'static str {
        match self {
            Self::Ours => "#c0392b",
            Self::InBackground => "#e08e79",
            Self::Bare => "#5d6d7e",
            Self::BareNoDelay => "#85929e",
            Self::Rslock => "#2e86c1",
            Self::Rlock => "#28935a",
            Self::Redlock => "#b9770e",
            Self::DistributedLock => "#8e44ad",
            Self::Replicated | Self::Lingering => "#e67e22",
            Self::BareCluster | Self::BareRenewing | Self::BareReplicated => "#34495e",
            Self::Floor | Self::RoundTrips | Self::TokioMutex => "#aab7b8",
        }
    }

    /// Why the library can't do what a work asks for, where it can't.
    pub(crate) fn lacks(self, need: Need) -> Option<&'static str> {
        match (self, need) {
            (Self::DistributedLock, Need::Waiting | Need::WaitingInNumbers) => {
                Some("never waits: `acquire` fails at once when the lock is held")
            }
            (Self::Redlock, Need::WaitingInNumbers) => {
                Some("sleeps on the runtime's threads while it waits, so that two tasks stop all")
            }
            (Self::Bare | Self::BareNoDelay | Self::Rslock | Self::Redlock, Need::Renewal) => {
                Some("does not renew what is held")
            }
            _ => None,
        }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a work asks of a library beyond locking what is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Waiting for a lock that is held.
    Waiting,
    /// A hundred tasks doing so on two threads.
    WaitingInNumbers,
    /// Keeping a lock beyond its lease.
    Renewal,
}

/// Runs code that is generic over a [`Peer`] for the one that an id names.
macro_rules! with_peer {
    ($id:expr, $peer:ident => $body:expr) => {{
        use $crate::peer::{Bare, BareNoDelay, DistributedLock, InBackground, Ours, PeerId};
        use $crate::peer::{BareCluster, BareRenewing, BareReplicated, RLock, Redlock, Replicated};
        use $crate::peer::{Lingering, Rslock, TokioMutex};
        macro_rules! as_peer {
            ($library:ty) => {{
                type $peer = $library;
                $body
            }};
        }
        match $id {
            PeerId::Ours => as_peer!(Ours),
            PeerId::InBackground => as_peer!(InBackground),
            PeerId::Bare => as_peer!(Bare),
            PeerId::BareNoDelay => as_peer!(BareNoDelay),
            PeerId::Rslock => as_peer!(Rslock),
            PeerId::Rlock => as_peer!(RLock),
            PeerId::Redlock => as_peer!(Redlock),
            PeerId::DistributedLock => as_peer!(DistributedLock),
            PeerId::Lingering => as_peer!(Lingering),
            PeerId::TokioMutex => as_peer!(TokioMutex),
            PeerId::Replicated => as_peer!(Replicated),
            PeerId::BareCluster => as_peer!(BareCluster),
            PeerId::BareRenewing => as_peer!(BareRenewing),
            PeerId::BareReplicated => as_peer!(BareReplicated),
            PeerId::Floor | PeerId::RoundTrips => anyhow::bail!("{} is no lock", $id),
        }
    }};
}
pub(crate) use with_peer;
