//! A request for a lock.

use std::time::Duration;

use crate::domain::demand::Options;
use crate::domain::key::Keys;
use crate::domain::kind::{Kind, Title};
use crate::domain::label::printable;
use crate::domain::value::fingerprint;
use crate::{ConfigError, LockError, Locks, Wait};

/// Says which lock a call wants, how long to wait for it, and how long to hold it. Then [`acquire`](Self::acquire),
/// [`try_acquire`](Self::try_acquire), [`run`](Self::run) or [`lead`](Self::lead) acquires it. Made by
/// [`Locks::mutex`], [`read`](Locks::read), [`write`](Locks::write), [`permit`](Locks::permit) and
/// [`all`](Locks::all).
///
/// | You want | Set |
/// |---|---|
/// | an error instead of a long wait | [`wait`](Self::wait), [`no_wait`](Self::no_wait) |
/// | another process to take over soon after a crash | a short [`ttl`](Self::ttl) |
/// | a job that hangs to lose its lock | [`max_hold`](Self::max_hold) |
/// | a job to succeed once, on any machine | [`once`](Self::once) |
/// | a quick job to run once on ten machines | [`min_hold`](Self::min_hold) |
/// | late writes to be refused | [`fenced`](Self::fenced) |
/// | to know the number of a permit | [`slotted`](Self::slotted) |
/// | calls without a round trip | [`linger`](Self::linger) |
///
/// That call checks all values before it sends anything. A request is `Send + Sync`, and can be cloned and used
/// again.
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use std::time::Duration;
/// let locks = redis_locks::Locks::in_memory();
/// let guard = locks
///     .mutex("report")
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(2))
///     .blocking_acquire()?;
/// assert_eq!(guard.key(), "report");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request takes no lock until it is acquired or run"]
pub struct LockRequest {
    pub(crate) locks: Locks,
    pub(crate) kind: Kind,
    pub(crate) keys: Keys,
    pub(crate) options: Options,
}

impl LockRequest {
    pub(crate) fn new(locks: Locks, kind: Kind, keys: Keys) -> Self {
        let settings = locks.settings();
        let max_waiters = settings.max_waiters;
        let unset = Options::unset(settings.ttl, settings.wait, settings.outage);
        let options = Options { max_waiters, ..unset };
        Self { locks, kind, keys, options }
    }

    /// How long the lock outlives a holder that died. While the guard lives, the engine renews it.
    ///
    /// From 100 ms to 100 years; a fraction of a millisecond counts as a whole one.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").ttl(std::time::Duration::from_secs(10));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// No lease: the lock stays until its guard releases it, or `force_release` ends it. Mutexes only.
    ///
    /// A holder that dies leaves it locked. Use it only if an operator must check before the work may
    /// run again.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").never_expires();
    /// ```
    pub fn never_expires(mut self) -> Self {
        self.options.ttl = None;
        self
    }

    /// How long to wait while another holder has the lock: for ever by default, or what the builder sets.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").wait(std::time::Duration::from_secs(2));
    /// ```
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.options.wait = wait.into();
        self
    }

    /// Waits until the lock is acquired.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").wait_forever();
    /// ```
    pub fn wait_forever(self) -> Self {
        self.wait(Wait::Forever)
    }

    /// Makes one attempt: [`LockError::Busy`](crate::LockError::Busy) if another holder has the lock.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let _held = locks.mutex("report").blocking_acquire()?;
    /// assert!(locks.mutex("report").no_wait().blocking_acquire().unwrap_err().is_busy());
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    pub fn no_wait(self) -> Self {
        self.wait(Wait::None)
    }

    /// How many calls of this `Locks` and its clones may wait for the key. The next one gets
    /// [`LockError::Crowded`](crate::LockError::Crowded) at once.
    ///
    /// Calls that don't wait don't count. For several keys, the limit applies to each key, and a call that has to
    /// wait counts at every key. Calls for several keys that come at the same moment may exceed it by a few. A
    /// call beyond the limit does not ask the server, so it does not learn that its work was [`once`](Self::once)
    /// done already.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").max_waiters(10);
    /// ```
    pub fn max_waiters(mut self, most: usize) -> Self {
        self.options.max_waiters = Some(most);
        self
    }

    /// How many calls may wait in the server's queue, across all processes. The next one gets
    /// [`LockError::Crowded`](crate::LockError::Crowded) at once, and leaves nothing behind.
    ///
    /// With 1, calls that only bring something up to date share a run. After a call got `Crowded`, the waiting call
    /// begins its body, unless it gives up or dies. So the refused call has nothing to do.
    ///
    /// The limit counts places in the server's queue. Each call with `queue` has one. Calls without it share one per
    /// process; readers, writers and permits have up to 32. Dead processes don't count if they are among the first
    /// 32. If [`max_waiters`](Self::max_waiters) is set as well, whichever limit is reached first refuses the call.
    /// Not for several keys, and not on a quorum.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let sync = locks.mutex("sync:42").queue(1);
    /// let runs = sync.clone().acquire().await?;
    /// let next = tokio::spawn(sync.clone().acquire());
    /// # while locks.status("sync:42").await?.waiters.is_empty() { tokio::task::yield_now().await; }
    /// assert!(sync.acquire().await.is_err_and(|error| error.is_busy()));
    /// runs.release().await?;
    /// let _next = next.await.unwrap()?;
    /// # Ok(()) }
    /// ```
    pub fn queue(mut self, most: usize) -> Self {
        self.options.queue = Some(most);
        self
    }

    /// The newest call wins: it ends earlier calls with `newest` for this key, in all processes.
    ///
    /// Waiting calls get [`LockError::Superseded`](crate::LockError::Superseded). The running call is asked to leave:
    /// its async body is dropped when it next yields, and its call returns `Superseded`. Only then does the newest
    /// call get the lock, so two bodies never run at once. A body that ends before it is dropped returns its result.
    /// Blocking bodies, and code that keeps a guard, check [`Guard::is_superseded`](crate::Guard::is_superseded).
    ///
    /// Calls without `newest` are neither ended nor overtaken. If calls come faster than a body runs, only the last
    /// one returns a result. For a mutex of one key that waits, is fair and is renewed. Not on a quorum.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # use redis_locks::LockError;
    /// # let locks = redis_locks::Locks::in_memory();
    /// let preview = locks.mutex("preview:42").newest();
    /// let older = preview.clone().acquire().await?;
    /// let newer = tokio::spawn(preview.acquire());
    /// older.superseded().await;
    /// older.release().await?;
    /// let _newer = newer.await.unwrap()?;
    /// # Ok(()) }
    /// ```
    pub fn newest(mut self) -> Self {
        self.options.newest = true;
        self
    }

    /// Whether the engine renews the lease while the guard lives. It does by default.
    ///
    /// With `false` the lock is lost when its ttl has passed. It can't be combined with
    /// [`max_hold`](Self::max_hold), which limits renewal.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").ttl(std::time::Duration::from_secs(60)).renew(false);
    /// ```
    pub fn renew(mut self, renew: bool) -> Self {
        self.options.renew = renew;
        self
    }

    /// Ends the hold this long after it began, even if the guard is still alive.
    ///
    /// For bodies that may hang: without it, the engine renews them for up to 24 hours.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").max_hold(std::time::Duration::from_secs(2 * 60 * 60));
    /// ```
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.options.max_hold = Some(limit);
        self
    }

    /// Keeps the lock for at least this long after it was acquired, even if it is released earlier.
    ///
    /// For jobs that several machines start at about the same time: the first one runs, and the others find the lock
    /// busy, even if the job was quick.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").no_wait().min_hold(std::time::Duration::from_secs(600));
    /// ```
    pub fn min_hold(mut self, least: Duration) -> Self {
        self.options.min_hold = Some(least);
        self
    }

    /// Remembers success: once the work is done, other calls with `once`, waiting ones included, get
    /// [`LockError::Done`](crate::LockError::Done) until `period` after the acquisition. A failure releases the lock,
    /// so another call can try at once.
    ///
    /// Success is the `Ok` of [`try_run`](Self::try_run), or [`Guard::complete`](crate::Guard::complete). A holder
    /// that dies has not succeeded. `run`, `blocking_run` and `lead` can't tell success from failure, and refuse it.
    /// For mutexes only, which then don't linger, whatever the builder says. `force_release` deletes the record.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # use std::time::Duration;
    /// # use redis_locks::LockError;
    /// # let locks = redis_locks::Locks::in_memory();
    /// let nightly = locks.mutex("nightly:2026-11-26").once(Duration::from_secs(24 * 60 * 60));
    /// nightly.clone().try_run(async |_| Ok::<_, LockError>(())).await?;
    /// let again = nightly.try_run(async |_| Ok::<_, LockError>(())).await;
    /// assert!(matches!(again, Err(LockError::Done { .. })));
    /// # Ok(()) }
    /// ```
    pub fn once(mut self, period: Duration) -> Self {
        self.options.once = Some(period);
        self
    }

    /// Refuses a call with [`LockError::Mismatch`](crate::LockError::Mismatch) if its bytes differ from those of the
    /// call that runs or has completed. For keys that a client chooses, such as an `Idempotency-Key`: one key must
    /// not mean two payloads. Needs [`once`](Self::once) or `share`.
    ///
    /// Only a fingerprint is kept, in the token of the hold: the first 128 bits of the SHA-1 of the bytes. Everyone
    /// who sees tokens sees it, so don't pass secrets that can be guessed. Calls without `same` never mismatch.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// # use std::time::Duration;
    /// # use redis_locks::LockError;
    /// # let locks = redis_locks::Locks::in_memory();
    /// let pay = |body: &str| locks.mutex("pay:42").once(Duration::from_secs(60)).same(body);
    /// pay("995 cents").blocking_acquire()?.blocking_complete()?;
    /// assert!(matches!(pay("995 cents").blocking_acquire(), Err(LockError::Done { .. })));
    /// assert!(matches!(pay("1 cent").blocking_acquire(), Err(LockError::Mismatch { .. })));
    /// # Ok(()) }
    /// ```
    pub fn same(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.options.same = Some(fingerprint(bytes.as_ref()));
        self
    }

    /// The request of a call that shares no value.
    pub(crate) fn alone(&self) -> Self {
        let mut alone = self.clone();
        (alone.options.share, alone.options.same) = (false, None);
        alone
    }

    /// Refuses to share where a value can't be given in place of a guard.
    pub(crate) fn needs_guard(&self) -> Result<(), LockError> {
        let (option, with, advice) = ("share", "a call that wants the guard", "use `call`");
        let refused = ConfigError::Conflict { option, with, advice };
        if self.options.share { Err(refused.into()) } else { Ok(()) }
    }

    /// Asks for a fencing token: each holder of a key gets a larger number than the one before.
    ///
    /// Pass it to the store that the lock protects, and let the store refuse smaller ones. Not for readers and
    /// permits, because several valid holders have different numbers. [`Guard::fence`](crate::Guard::fence) returns
    /// the number.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").fenced().blocking_acquire()?;
    /// assert!(guard.fence().is_some());
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    pub fn fenced(mut self) -> Self {
        self.options.fenced = true;
        self
    }

    /// Gives the permit the lowest free number. It can name the GPU, port or account that is yours.
    ///
    /// [`Guard::slot`](crate::Guard::slot) returns the number. The permit keeps it through renewals and adoptions,
    /// until it is released or lost. If limits differ, a newcomer gets a number below the smallest limit. Permits
    /// without this option have no number. For [`permit`](Locks::permit) with a limit of at most 500.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let gpu = locks.permit("gpu", 4).slotted();
    /// let (first, second) = (gpu.clone().blocking_acquire()?, gpu.clone().blocking_acquire()?);
    /// assert_eq!((first.slot(), second.slot()), (Some(0), Some(1)));
    /// first.blocking_release()?;
    /// assert_eq!(gpu.blocking_acquire()?.slot(), Some(0));
    /// # Ok(()) }
    /// ```
    pub fn slotted(mut self) -> Self {
        self.options.slotted = true;
        self
    }

    /// Whether to queue behind the calls that came first. `true` by default.
    ///
    /// With `false`, a call that finds the lock free takes it ahead of the queue. It matters only after a holder has
    /// died, because a released lock goes straight to the first waiter.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").fair(false);
    /// ```
    pub fn fair(mut self, fair: bool) -> Self {
        self.options.fair = fair;
        self
    }

    /// Joins the hold of the enclosing body if it holds the same key, instead of failing with
    /// [`LockError::Reentrant`](crate::LockError::Reentrant). Annotated functions, `run` and `lead` have such bodies.
    /// A guard of `acquire` can't be joined.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let inner = || locks.mutex("tree").reentrant().run(async |_| "joined");
    /// let value = locks.mutex("tree").run(async |_| inner().await).await??;
    /// assert_eq!(value, "joined");
    /// # Ok(()) }
    /// ```
    pub fn reentrant(mut self) -> Self {
        self.options.reentrant = true;
        self
    }

    /// If an old client left a lock without a ttl, this sets one, once. A warning names the value.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").repair_orphan(std::time::Duration::from_secs(60));
    /// ```
    pub fn repair_orphan(mut self, grace: Duration) -> Self {
        self.options.repair_orphan = Some(grace);
        self
    }

    /// Keeps the lease for up to this long after the last release in this process, as long as no other process wants
    /// the lock. The next call here with the same key then needs no round trip. For mutexes with a ttl. Zero releases
    /// the lock at once, even if the builder sets a time.
    ///
    /// A waiter in another process gets the lock at once. A call there that does not wait gets it, too, with three
    /// exceptions: a body runs here, the call wants several keys, or this process does not answer within 50 ms or
    /// three round trips. A process that dies blocks others for the rest of the lease.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").linger(std::time::Duration::from_secs(2));
    /// ```
    pub fn linger(mut self, linger: Duration) -> Self {
        self.options.linger = Some(linger);
        self
    }

    /// How long to wait for a server that can't be used, instead of the builder's
    /// [`outage`](crate::LocksBuilder::outage). [`wait`](Self::wait) is for a busy lock.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").outage(std::time::Duration::from_secs(600));
    /// ```
    pub fn outage(mut self, limit: Duration) -> Self {
        self.options.outage = limit;
        self
    }

    /// Extra time that the server keeps the key after the guard's lease ends; by default none.
    ///
    /// A holder may act once more before it notices that its lease has ended: after a paused virtual machine, a long
    /// page fault, or a server clock that jumps ahead. If that took less than the margin, no other holder has the
    /// lock yet. A release still frees the lock at once. A holder that dies blocks the others for ttl and margin.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let request = locks.mutex("report").margin(std::time::Duration::from_secs(5));
    /// ```
    ///
    /// # Errors
    /// The acquisition fails with [`InvalidConfig`](crate::LockError::InvalidConfig) when the margin is
    /// longer than 24 hours, or when the lock never expires.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.options.margin = Some(margin);
        self
    }

    /// The name of this group of locks in metrics and events, as the label `lock`. Keys are not used as labels,
    /// because there may be millions of them. The attribute uses the template of the key. With the feature `metrics`,
    /// the labels of each name stay in memory and are found by the address of its text, so don't leak names by the
    /// thousand.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// # let (locks, order_id) = (redis_locks::Locks::in_memory(), 7);
    /// let key = format!("order:{order_id}");
    /// let guard = locks.mutex(key).metric_name("order").blocking_acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn metric_name(mut self, lock: &'static str) -> Self {
        self.options.title = Title { lock, function: "" };
        self
    }

    /// A name for this holder, added to the label of its `Locks`. [`status`](Locks::status) and the command-line
    /// program show it.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// # let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").label("nightly run").blocking_acquire()?;
    /// let holder = &locks.blocking_status("report")?.holders[0];
    /// assert!(holder.label.as_deref().is_some_and(|label| label.ends_with(" nightly run")));
    /// # Ok(()) }
    /// ```
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.options.label = Some(printable(label.as_ref()).into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::checks::needs_ttl;

    #[test]
    fn a_ttl_after_never_expires_is_renewed() {
        let locks = Locks::in_memory();
        assert!(locks.mutex("k").never_expires().ttl(Duration::from_secs(1)).options.renew);
    }

    #[test]
    fn locks_that_never_expire_linger_neither_by_default_nor_when_asked_to() {
        let time = Duration::from_secs(2);
        let locks = Locks::builder().in_memory().linger(time).open().unwrap();
        let by_default = locks.mutex("k").never_expires().blocking_acquire().unwrap();
        by_default.blocking_release().unwrap();
        let asked = locks.mutex("k").linger(time);
        for wrong in [asked.clone().never_expires(), locks.mutex("k").never_expires().linger(time)]
        {
            let error = wrong.blocking_acquire().unwrap_err();
            assert_eq!(Err(error), needs_ttl::<()>("linger"));
        }
        let token = locks.mutex("k").never_expires().blocking_acquire().unwrap().detach();
        asked.blocking_adopt(token).unwrap().blocking_release().unwrap();
        locks.read("k").blocking_acquire().unwrap().blocking_release().unwrap();
    }
}
