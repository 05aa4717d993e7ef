//! The public calls, each as a small story that ends well or does not.

use std::time::{Duration, Instant};

use redis_locks::{ConfigError, Guard, LockError, Locks};

use super::settings::Started;

/// Long enough for any hand-over, and short enough to show that nobody was told.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Mutex,
    Renewal,
    HandOver,
    Fence,
    NeverExpires,
    ForceRelease,
    Adopt,
    Linger,
    RepairOrphan,
    MinHold,
    Margin,
    List,
    ReadWrite,
    Permits,
    All,
    HeldWhileFull,
}

pub(super) enum Told {
    Works,
    /// By a message that says what the server lacks.
    Refused,
    Failed(String),
}

type Story = Result<(), String>;

impl Call {
    pub(super) const ALL: [Self; 16] = [
        Self::Mutex,
        Self::Renewal,
        Self::HandOver,
        Self::Fence,
        Self::NeverExpires,
        Self::ForceRelease,
        Self::Adopt,
        Self::Linger,
        Self::RepairOrphan,
        Self::MinHold,
        Self::Margin,
        Self::List,
        Self::ReadWrite,
        Self::Permits,
        Self::All,
        Self::HeldWhileFull,
    ];

    pub(super) async fn run(self, on: &Started) -> Told {
        let (one, other) = match (on.locks(), on.locks()) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(error), _) | (_, Err(error)) => return Told::Failed(error.to_string()),
        };
        let key = format!("{self:?}").to_lowercase();
        let told = match tokio::time::timeout(PATIENCE * 3, self.tell(&key, &one, &other, on)).await
        {
            Ok(told) => told,
            Err(_) => Err(Problem::Wrong("it did not end".to_owned())),
        };
        one.shutdown().await;
        other.shutdown().await;
        match told {
            Ok(()) => Told::Works,
            Err(Problem::Unsupported) => Told::Refused,
            Err(Problem::Wrong(what)) => Told::Failed(what),
        }
    }

    async fn tell(
        self,
        key: &str,
        one: &Locks,
        other: &Locks,
        on: &Started,
    ) -> Result<(), Problem> {
        match self {
            Self::Mutex => {
                let guard = one.mutex(key).acquire().await?;
                guard.verify().await?;
                guard.extend(PATIENCE * 6).await?;
                ensure(other.mutex(key).try_acquire().await?.is_none(), "it excludes")?;
                guard.release().await?;
                other.mutex(key).no_wait().acquire().await?.release().await?;
            }
            Self::Renewal => {
                let guard = one.mutex(key).ttl(SHORT).acquire().await?;
                stays(&guard, SHORT * 4).await?;
                guard.release().await?;
            }
            Self::HandOver => {
                let guard = one.mutex(key).acquire().await?;
                let waits = tokio::spawn(other.mutex(key).wait(PATIENCE).acquire());
                queued(other, key).await?;
                guard.release().await?;
                let released = Instant::now();
                let next = waits.await.map_err(|error| Problem::Wrong(error.to_string()))??;
                ensure(released.elapsed() < SHORT, "it was handed over at once")?;
                next.release().await?;
            }
            Self::Fence => {
                let mut last = None;
                for locks in [one, other, one] {
                    let guard = locks.mutex(key).fenced().wait(PATIENCE).acquire().await?;
                    ensure(guard.fence() > last, "the fences rise")?;
                    last = guard.fence();
                    guard.release().await?;
                }
            }
            _ => return self.tell_options(key, one, other, on).await,
        }
        Ok(())
    }

    /// What requests can ask for.
    async fn tell_options(
        self,
        key: &str,
        one: &Locks,
        other: &Locks,
        on: &Started,
    ) -> Result<(), Problem> {
        match self {
            Self::NeverExpires => {
                let guard = one.mutex(key).never_expires().acquire().await?;
                ensure(other.mutex(key).try_acquire().await?.is_none(), "it excludes")?;
                guard.release().await?;
            }
            Self::ForceRelease => {
                let guard = one.mutex(key).acquire().await?;
                ensure(other.force_release(key, "to try it").await?, "it was held")?;
                let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
                ensure(lost.is_ok(), "its holder learns of it")?;
            }
            Self::Adopt => {
                let token = one.mutex(key).acquire().await?.detach();
                let adopted = other.mutex(key).adopt(token).await?;
                adopted.verify().await?;
                adopted.release().await?;
            }
            Self::Linger => {
                let lingering = || one.mutex(key).linger(PATIENCE).acquire();
                lingering().await?.release().await?;
                lingering().await?.release().await?;
                other.mutex(key).wait(PATIENCE).acquire().await?.release().await?;
            }
            Self::RepairOrphan => {
                on.server.run::<()>(&format!("SET lock:{key} orphan"));
                let repaired = one.mutex(key).repair_orphan(SHORT).wait(PATIENCE).acquire().await?;
                repaired.release().await?;
            }
            Self::MinHold => {
                one.mutex(key).min_hold(SHORT).acquire().await?.release().await?;
                ensure(other.mutex(key).try_acquire().await?.is_none(), "it is kept")?;
                other.mutex(key).wait(PATIENCE).acquire().await?.release().await?;
            }
            Self::Margin => {
                let guard = one.mutex(key).ttl(SHORT).margin(PATIENCE).acquire().await?;
                stays(&guard, SHORT * 2).await?;
                guard.release().await?;
                other.mutex(key).no_wait().acquire().await?.release().await?;
            }
            _ => return self.tell_others(key, one, other, on).await,
        }
        Ok(())
    }

    /// Other kinds of lock, looking at locks, and a full server.
    async fn tell_others(
        self,
        key: &str,
        one: &Locks,
        other: &Locks,
        on: &Started,
    ) -> Result<(), Problem> {
        match self {
            Self::List => {
                let guard = one.mutex(key).acquire().await?;
                let mut listing = other.list("*");
                let listed = listing.next().await.is_some_and(|status| status.is_ok());
                ensure(listed, "it is listed")?;
                ensure(other.status(key).await?.is_held(), "it is shown as held")?;
                guard.release().await?;
            }
            Self::ReadWrite => {
                let (first, second) =
                    (one.read(key).acquire().await?, other.read(key).acquire().await?);
                ensure(other.write(key).try_acquire().await?.is_none(), "readers exclude writers")?;
                first.release().await?;
                second.release().await?;
                let writer = one.write(key).wait(PATIENCE).acquire().await?;
                writer.downgrade().await?.release().await?;
            }
            Self::Permits => {
                let (first, second) =
                    (one.permit(key, 2).acquire().await?, other.permit(key, 2).acquire().await?);
                ensure(one.permit(key, 2).try_acquire().await?.is_none(), "there are two")?;
                first.release().await?;
                second.release().await?;
            }
            Self::All => {
                let keys = [format!("{key}:1"), format!("{key}:2")];
                let guard = one.all(keys.clone()).acquire().await?;
                ensure(other.mutex(keys[1].as_str()).try_acquire().await?.is_none(), "each")?;
                guard.release().await?;
            }
            Self::HeldWhileFull => {
                let guard = one.mutex(key).ttl(SHORT * 2).acquire().await?;
                on.server.run::<()>("CONFIG SET maxmemory 1");
                let held = stays(&guard, SHORT * 6).await;
                let released = guard.release().await;
                on.server.run::<()>("CONFIG SET maxmemory 0");
                held?;
                released?;
            }
            _ => {}
        }
        Ok(())
    }
}

enum Problem {
    Unsupported,
    Wrong(String),
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        match error {
            LockError::InvalidConfig { cause: ConfigError::Unsupported { .. }, .. } => {
                Self::Unsupported
            }
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl From<String> for Problem {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

fn ensure(holds: bool, what: &str) -> Story {
    if holds { Ok(()) } else { Err(format!("not so: {what}")) }
}

/// The guard is held for so long.
async fn stays(guard: &Guard, time: Duration) -> Story {
    match tokio::time::timeout(time, guard.lost()).await {
        Ok(reason) => Err(format!("it was lost: {reason}")),
        Err(_) => Ok(()),
    }
}

/// Waits until somebody stands in the queue.
async fn queued(locks: &Locks, key: &str) -> Result<(), Problem> {
    let began = Instant::now();
    while locks.status(key).await?.waiters.is_empty() {
        ensure(began.elapsed() < PATIENCE, "the waiter queues")?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
