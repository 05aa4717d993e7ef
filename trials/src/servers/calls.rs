//! The public calls, each as a small story that ends well or does not.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_locks::{ConfigError, Guard, LockError, Locks};

use super::settings::Started;

const PATIENCE: Duration = Duration::from_secs(20);

/// A lease that has to be renewed soon, on a machine that does other things besides.
const SHORT: Duration = Duration::from_millis(1_500);

/// A waiter that is not told of a release looks after a second.
const AT_ONCE: Duration = Duration::from_millis(700);

/// More than are looked at in one call of a script.
const CROWD: usize = 40;

/// The telling of a story.
type Telling = Pin<Box<dyn Future<Output = Result<(), Problem>> + Send>>;

/// A story, and what it is told about.
pub(super) struct Call {
    pub(super) name: &'static str,
    /// Whether it is about locks that need scripts.
    pub(super) needs_scripts: bool,
    tell: fn(Scene) -> Telling,
}

/// Two processes that use a server, and a key that is used in this story only.
struct Scene {
    key: String,
    one: Locks,
    other: Locks,
    on: Arc<Started>,
}

pub(super) enum Told {
    Works,
    /// By a message that says what the server lacks.
    Refused,
    Failed(String),
}

enum Problem {
    Unsupported,
    Wrong(String),
}

macro_rules! call {
    ($name:literal, |$scene:ident| $story:block) => {
        call!($name, needs_scripts: false, |$scene| $story)
    };
    ($name:literal, needs_scripts: $needs:literal, |$scene:ident| $story:block) => {
        Call {
            name: $name,
            needs_scripts: $needs,
            tell: |$scene| {
                Box::pin(async move {
                    $story
                    Ok(())
                })
            },
        }
    };
}

/// What a full server does with locks that are held; a full server grants no others.
pub(super) const HELD_WHILE_FULL: Call = call!("held while the server is full", |it| {
    let guard = it.one.mutex(&*it.key).ttl(SHORT).acquire().await?;
    it.on.server.run::<()>("CONFIG SET maxmemory 1");
    let granted = it.other.mutex("another").outage(SHORT).acquire().await;
    let held = stays(&guard, SHORT * 3).await;
    let released = guard.release().await;
    it.on.server.run::<()>("CONFIG SET maxmemory 0");
    ensure(matches!(granted, Err(LockError::Backend { .. })), "no other lock is granted")?;
    held?;
    released?;
});

pub(super) static CALLS: [Call; 19] = [
    call!("mutex, verify, extend", |it| {
        let guard = it.one.mutex(&*it.key).acquire().await?;
        guard.verify().await?;
        guard.extend(PATIENCE * 6).await?;
        it.is_busy().await?;
        guard.release().await?;
        it.is_free().await?;
    }),
    call!("run", |it| {
        let inside = it.one.mutex(&*it.key).run(async |guard| guard.is_held()).await?;
        ensure(inside, "it is held inside")?;
        it.is_free().await?;
    }),
    call!("lead", |it| {
        let leads = it.one.mutex(&*it.key).ttl(SHORT);
        leads.lead(async |guard| stays(guard, SHORT * 2).await).await??;
        it.is_free().await?;
    }),
    call!("from threads", |it| {
        let blocking = move || -> Result<(), Problem> {
            let guard = it.one.mutex(&*it.key).blocking_acquire()?;
            guard.blocking_verify()?;
            ensure(it.other.mutex(&*it.key).blocking_try_acquire()?.is_none(), "it excludes")?;
            guard.blocking_release()?;
            Ok(it.other.mutex(&*it.key).blocking_run(|_| ())?)
        };
        let joined = tokio::task::spawn_blocking(blocking).await;
        joined.map_err(|error| Problem::Wrong(error.to_string()))??;
    }),
    call!("renewal", |it| {
        let guard = it.one.mutex(&*it.key).ttl(SHORT).acquire().await?;
        stays(&guard, SHORT * 3).await?;
        guard.release().await?;
    }),
    call!("hand-over", |it| {
        let mut took = Vec::new();
        while took.iter().all(|time| *time > AT_ONCE) {
            ensure(took.len() < 3, &format!("a waiter is told at once: {took:?}"))?;
            let guard = it.one.mutex(&*it.key).acquire().await?;
            let waits = tokio::spawn(it.other.mutex(&*it.key).wait(PATIENCE).acquire());
            queued(&it.other, &it.key).await?;
            guard.release().await?;
            let released = Instant::now();
            let next = waits.await.map_err(|error| Problem::Wrong(error.to_string()))??;
            took.push(released.elapsed());
            next.release().await?;
        }
    }),
    call!("fences", |it| {
        let mut last = None;
        for locks in [&it.one, &it.other, &it.one] {
            let guard = locks.mutex(&*it.key).fenced().wait(PATIENCE).acquire().await?;
            ensure(guard.fence() > last, "the fences rise")?;
            last = guard.fence();
            guard.release().await?;
        }
    }),
    call!("a lock that never expires", |it| {
        let guard = it.one.mutex(&*it.key).never_expires().acquire().await?;
        it.is_busy().await?;
        guard.release().await?;
        it.is_free().await?;
    }),
    call!("an end by force", |it| {
        let guard = it.one.mutex(&*it.key).acquire().await?;
        ensure(it.other.force_release(&*it.key, "to try it").await?, "it was held")?;
        let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
        ensure(lost.is_ok(), "its holder learns of it")?;
    }),
    call!("detach and adopt", |it| {
        let token = it.one.mutex(&*it.key).acquire().await?.detach();
        let adopted = it.other.mutex(&*it.key).adopt(token).await?;
        adopted.verify().await?;
        adopted.release().await?;
    }),
    call!("linger", |it| {
        let lingering = || it.one.mutex(&*it.key).linger(PATIENCE).acquire();
        lingering().await?.release().await?;
        lingering().await?.release().await?;
        it.is_handed_over().await?;
    }),
    call!("the repair of an orphan", |it| {
        it.on.server.run::<()>(&format!("SET lock:{} orphan", it.key));
        let repairs = it.one.mutex(&*it.key).repair_orphan(SHORT);
        repairs.wait(PATIENCE).acquire().await?.release().await?;
    }),
    call!("a least time", |it| {
        it.one.mutex(&*it.key).min_hold(SHORT).acquire().await?.release().await?;
        it.is_busy().await?;
        it.is_handed_over().await?;
    }),
    call!("margin", |it| {
        let guard = it.one.mutex(&*it.key).ttl(SHORT).margin(PATIENCE).acquire().await?;
        stays(&guard, SHORT * 2).await?;
        guard.release().await?;
        it.is_free().await?;
    }),
    call!("list, status", |it| {
        let guard = it.one.mutex(&*it.key).acquire().await?;
        let mut listing = it.other.list(&it.key);
        let listed = listing.next().await.is_some_and(|status| status.is_ok());
        ensure(listed, "it is listed")?;
        ensure(it.other.status(&*it.key).await?.is_held(), "it is shown as held")?;
        guard.release().await?;
    }),
    call!("readers, writers", needs_scripts: true, |it| {
        let first = it.one.read(&*it.key).acquire().await?;
        let second = it.other.read(&*it.key).acquire().await?;
        let written = it.other.write(&*it.key).try_acquire().await?;
        ensure(written.is_none(), "readers exclude writers")?;
        first.release().await?;
        second.release().await?;
        let writer = it.one.write(&*it.key).wait(PATIENCE).acquire().await?;
        writer.downgrade().await?.release().await?;
    }),
    call!("permits", needs_scripts: true, |it| {
        let first = it.one.permit(&*it.key, 2).acquire().await?;
        let second = it.other.permit(&*it.key, 2).acquire().await?;
        ensure(it.one.permit(&*it.key, 2).try_acquire().await?.is_none(), "there are two")?;
        first.release().await?;
        second.release().await?;
    }),
    call!("a crowd that waits", needs_scripts: true, |it| {
        let first = it.one.permit(&*it.key, 1).acquire().await?;
        let waits = || it.other.permit(&*it.key, 1).wait(PATIENCE).acquire();
        let crowd: Vec<_> = (0..CROWD).map(|_| tokio::spawn(waits())).collect();
        // As long as it takes for places to be looked after together.
        stays(&first, SHORT * 2).await?;
        first.release().await?;
        for waiter in crowd {
            let got = waiter.await.map_err(|error| Problem::Wrong(error.to_string()))?;
            got?.release().await?;
        }
    }),
    call!("several keys", needs_scripts: true, |it| {
        let keys = [format!("{}:1", it.key), format!("{}:2", it.key)];
        let guard = it.one.all(keys.clone()).acquire().await?;
        ensure(it.other.mutex(&*keys[1]).try_acquire().await?.is_none(), "it has each")?;
        guard.release().await?;
    }),
];

impl Call {
    pub(super) async fn run(&self, on: Arc<Started>) -> Told {
        let (one, other) = match (on.locks(), on.locks()) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(error), _) | (_, Err(error)) => return Told::Failed(error.to_string()),
        };
        let key = self.name.replace(|letter: char| !letter.is_ascii_lowercase(), "-");
        let scene = Scene { key, one: one.clone(), other: other.clone(), on };
        let told = tokio::time::timeout(PATIENCE * 3, (self.tell)(scene)).await;
        one.shutdown().await;
        other.shutdown().await;
        match told {
            Ok(Ok(())) => Told::Works,
            Ok(Err(Problem::Unsupported)) => Told::Refused,
            Ok(Err(Problem::Wrong(what))) => Told::Failed(what),
            Err(_) => Told::Failed("it did not end".to_owned()),
        }
    }
}

impl Scene {
    async fn is_busy(&self) -> Result<(), Problem> {
        ensure(self.other.mutex(&*self.key).try_acquire().await?.is_none(), "it is held")
    }

    async fn is_free(&self) -> Result<(), Problem> {
        Ok(self.other.mutex(&*self.key).no_wait().acquire().await?.release().await?)
    }

    /// The other process gets it in time.
    async fn is_handed_over(&self) -> Result<(), Problem> {
        Ok(self.other.mutex(&*self.key).wait(PATIENCE).acquire().await?.release().await?)
    }
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

fn ensure(holds: bool, what: &str) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err(Problem::Wrong(format!("not so: {what}"))) }
}

/// The guard is held for so long.
async fn stays(guard: &Guard, time: Duration) -> Result<(), Problem> {
    match tokio::time::timeout(time, guard.lost()).await {
        Ok(reason) => Err(Problem::Wrong(format!("it was lost: {reason}"))),
        Err(_) => Ok(()),
    }
}

/// Waits until a waiter stands in the queue.
async fn queued(locks: &Locks, key: &str) -> Result<(), Problem> {
    let began = Instant::now();
    while locks.status(key).await?.waiters.is_empty() {
        ensure(began.elapsed() < PATIENCE, "the waiter queues")?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
