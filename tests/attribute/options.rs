//! Every option does what it says.

use std::sync::Arc;
use std::time::Duration;

use redis_locks::{LockError, LockState, Locks, redis_lock};

use crate::support::{R, is_locked, locks, until_free};

const LEASE: Duration = Duration::from_secs(20);

#[redis_lock(key = "ttl:a", ttl = "1m30s", guard = lock)]
async fn ttl_literal() -> R<Duration> {
    Ok(lock.remaining())
}

#[redis_lock(key = "ttl:b", ttl = LEASE * 2, guard = lock)]
async fn ttl_expression() -> R<Duration> {
    Ok(lock.remaining())
}

#[redis_lock(key = "ttl:c", ttl = "none", guard = lock)]
async fn ttl_none() -> R<Duration> {
    Ok(lock.remaining())
}

#[tokio::test]
async fn ttl() -> R<()> {
    locks();
    let within = |time: Duration, most: u64| {
        time <= Duration::from_secs(most) && time > Duration::from_secs(most - 5)
    };
    assert!(within(ttl_literal().await?, 90));
    assert!(within(ttl_expression().await?, 40));
    assert_eq!(ttl_none().await?, Duration::MAX);
    Ok(())
}

#[redis_lock(key = "wait:{n}", wait = "none")]
async fn wait_none(n: u32) -> R<()> {
    Ok(())
}

#[redis_lock(key = "wait:{n}", wait = "20ms")]
async fn wait_short(n: u32) -> R<()> {
    Ok(())
}

#[redis_lock(key = "wait:{n}", wait = limit)]
async fn wait_expression(n: u32, limit: Duration) -> R<()> {
    Ok(())
}

#[redis_lock(key = "wait:{n}", wait = "forever", fair = false, renew = true, min_hold = "1ms", max_hold = "10m", repair_orphan = "30s", release = wait)]
async fn wait_forever(n: u32) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn wait() -> R<()> {
    let held = locks().mutex("wait:1").acquire().await?;
    for busy in [
        wait_none(1).await,
        wait_short(1).await,
        wait_expression(1, Duration::from_millis(20)).await,
        wait_expression(1, Duration::ZERO).await,
    ] {
        assert!(busy.unwrap_err().is_busy());
    }
    let waiting = tokio::spawn(wait_forever(1));
    tokio::task::yield_now().await;
    held.release().await?;
    waiting.await.unwrap()
}

#[redis_lock(key = "busy:{n}", wait = "none", on_busy = Ok(Some(format!("{name} was busy"))))]
async fn on_busy(n: u32, name: String) -> R<Option<String>> {
    drop(name);
    Ok(None)
}

#[redis_lock(key = "busy:{n}", wait = "none", on_busy = Ok(None), on_error = |_| Ok(Some(0)))]
fn on_busy_sync(n: u32) -> R<Option<u32>> {
    Ok(Some(n))
}

#[tokio::test]
async fn on_busy_sees_the_arguments() -> R<()> {
    let held = locks().mutex("busy:1").acquire().await?;
    let called = tokio::spawn(on_busy(1, "it".into())).await.unwrap();
    assert_eq!(called?, Some("it was busy".into()));
    let sync = std::thread::spawn(|| on_busy_sync(1)).join().unwrap();
    assert_eq!(sync?, None);
    held.release().await?;
    assert_eq!(on_busy(1, "it".into()).await?, None);
    Ok(())
}

#[redis_lock(key = "err:{n}", wait = "none", on_error = |error| { assert!(error.is_busy()); fallback + n })]
async fn on_error(n: u32, fallback: u32) -> u32 {
    n
}

#[redis_lock(key = "err:{n}", wait = "none", on_error = describe)]
fn on_error_sync(n: u32) -> String {
    n.to_string()
}

fn describe(error: LockError) -> String {
    error.key().unwrap_or_default().into()
}

#[redis_lock(key = "err:{n}", wait = "none", on_error = drop)]
async fn on_error_unit(n: u32) {
    assert_ne!(n, 1, "the body never runs without the lock");
}

#[tokio::test]
async fn on_error_allows_any_return_type() -> R<()> {
    let held = locks().mutex("err:1").acquire().await?;
    assert_eq!(on_error(1, 10).await, 11);
    assert_eq!(on_error(2, 10).await, 2);
    assert_eq!((on_error_sync(1), on_error_sync(2)), ("err:1".into(), "2".into()));
    on_error_unit(1).await;
    on_error_unit(2).await;
    held.release().await
}

#[redis_lock(key = "fence", fence = token, guard = lock)]
async fn fence() -> R<u64> {
    assert_eq!(lock.fence(), Some(token));
    Ok(token)
}

#[redis_lock(key = "fence", fence = token)]
fn fence_sync() -> R<u64> {
    let number: u64 = token;
    Ok(number)
}

#[tokio::test]
async fn fences_rise() -> R<()> {
    locks();
    let (first, second) = (fence().await?, fence_sync()?);
    assert!(first < second, "{first} {second}");
    Ok(())
}

#[redis_lock(key = "guard", guard = lock)]
async fn guard() -> R<(String, LockState)> {
    lock.verify().await?;
    Ok((lock.key().into(), lock.state()))
}

#[tokio::test]
async fn the_body_sees_the_guard() -> R<()> {
    locks();
    assert_eq!(guard().await?, ("guard".into(), LockState::Held));
    Ok(())
}

#[redis_lock(key = "kinds:{name}", read, wait = "none")]
async fn reads(name: &str) -> R<()> {
    let shared = locks().read(format!("kinds:{name}")).no_wait();
    let exclusive = locks().write(format!("kinds:{name}")).no_wait();
    let elsewhere = || (shared.blocking_acquire(), exclusive.blocking_acquire());
    let (shared, exclusive) = std::thread::spawn(elsewhere).join().unwrap();
    assert!(exclusive.unwrap_err().is_busy());
    shared.map(drop)
}

#[redis_lock(key = "kinds:{name}", write)]
fn writes(name: &str) -> R<()> {
    let shared = locks().read(format!("kinds:{name}")).no_wait();
    let busy = std::thread::spawn(|| shared.blocking_acquire()).join().unwrap();
    assert!(busy.unwrap_err().is_busy());
    Ok(())
}

#[redis_lock(key = "kinds:permits", permits = limit)]
async fn permits(limit: u32) -> R<u32> {
    let request = locks().permit("kinds:permits", limit).no_wait();
    let others = move || (0..limit).map(|_| request.clone().blocking_acquire()).collect::<Vec<_>>();
    let others = std::thread::spawn(others).join().unwrap();
    Ok(others.iter().filter(|other| other.is_ok()).count() as u32)
}

#[redis_lock(key = "kinds:gpu", permits = 2, slot = device, guard = lock)]
async fn numbered() -> R<(u32, u32)> {
    assert_eq!(lock.slot(), Some(device));
    Ok((device, std::thread::spawn(numbered_blocking).join().unwrap()?))
}

#[redis_lock(key = "kinds:gpu", permits = 2, slot = device, on_error = Err)]
fn numbered_blocking() -> R<u32> {
    Ok(device)
}

#[tokio::test]
async fn a_permit_binds_its_number() -> R<()> {
    locks();
    assert_eq!(numbered().await?, (0, 1));
    Ok(())
}

#[tokio::test]
async fn kinds_of_locks() -> R<()> {
    locks();
    reads("catalog").await?;
    writes("catalog")?;
    assert_eq!(permits(3).await?, 2);
    Ok(())
}

#[redis_lock(keys = ["acct:{from}", "acct:{to}", "ledger"], guard = lock)]
async fn transfer(from: u32, to: u32) -> R<String> {
    assert!(["acct:1", "acct:2", "ledger"].into_iter().all(is_locked));
    let again = transfer_again(to, from).await?;
    assert_eq!(again, lock.key());
    assert!(matches!(audit(from).await, Err(LockError::WrongHold { .. })));
    assert!(matches!(locks().mutex("ledger").acquire().await, Err(LockError::Reentrant { .. })));
    Ok(again)
}

#[redis_lock(keys = ["acct:{from}", format!("acct:{to}")], guard = lock, reentrant)]
async fn transfer_again(from: u32, to: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(keys = ["acct:{id}", "audit"], reentrant)]
async fn audit(id: u32) -> R<()> {
    Ok(())
}

#[redis_lock(keys = ids.iter().map(|id| format!("each:{id}")))]
fn each(ids: &[u32]) -> R<bool> {
    Ok(ids.iter().all(|id| is_locked(&format!("each:{id}"))))
}

#[tokio::test]
async fn several_keys() -> R<()> {
    locks();
    assert_eq!(transfer(1, 2).await?, "acct:1, acct:2, ledger");
    assert!(!is_locked("acct:1") && !is_locked("ledger"));
    assert!(each(&[3, 1, 2])?);
    assert!(matches!(each(&[]), Err(LockError::InvalidConfig { .. })));
    Ok(())
}

struct Service {
    locks: Locks,
    shared: Arc<Locks>,
}

impl Service {
    #[redis_lock(key = "via", via = self.locks)]
    async fn field(&self) -> R<bool> {
        Ok(is_locked("via"))
    }

    #[redis_lock(key = "via", via = self.shared)]
    fn shared(&self) -> R<bool> {
        Ok(is_locked("via"))
    }

    fn get(&self) -> Arc<Locks> {
        Arc::clone(&self.shared)
    }

    #[redis_lock(key = "via:{n}", via = self.get())]
    async fn temporary(&self, n: u32) -> R<bool> {
        Ok(is_locked("via"))
    }
}

#[redis_lock(key = "via", via = locks)]
async fn reference(locks: &Locks) -> R<bool> {
    Ok(is_locked("via"))
}

#[redis_lock(key = "via", via = locks, wait = "none")]
fn owned(locks: Locks) -> R<Locks> {
    Ok(locks)
}

#[tokio::test]
async fn via_borrows_whatever_derefs_to_locks() -> R<()> {
    let elsewhere = Locks::in_memory();
    let service = Service { locks: elsewhere.clone(), shared: Arc::new(elsewhere.clone()) };
    assert!(!service.field().await? && !service.shared()?, "not the process-wide locks");
    assert!(!tokio::spawn(async move { service.temporary(1).await }).await.unwrap()?);
    let _held = elsewhere.mutex("via").acquire().await?;
    assert!(owned(elsewhere.clone()).unwrap_err().is_busy());
    assert!(reference(locks()).await?);
    Ok(())
}

#[redis_lock(key = "background", release = background)]
async fn background() -> R<bool> {
    Ok(is_locked("background"))
}

#[tokio::test]
async fn release_in_the_background() -> R<()> {
    locks();
    assert!(background().await?);
    until_free("background").await;
    Ok(())
}

mod renamed {
    pub(crate) use redis_locks as locks;

    #[locks::redis_lock(key = "k", crate = crate::options::renamed::locks)]
    pub(crate) async fn e104() -> Result<u32, locks::LockError> {
        Ok(1)
    }
}

#[tokio::test]
async fn e104_crate_renamed_or_re_exported() -> R<()> {
    locks();
    assert_eq!(renamed::e104().await?, 1);
    Ok(())
}

#[redis_lock(key = "margin:{n}", ttl = "1s", margin = "20s")]
async fn with_a_margin(n: u32) -> R<Option<Duration>> {
    Ok(locks().status("margin:1").await?.holders[0].ttl.filter(|_| n == 1))
}

#[tokio::test]
async fn the_server_keeps_the_lock_for_the_margin() -> R<()> {
    locks();
    let kept = with_a_margin(1).await?.map_or(0, |ttl| ttl.as_secs());
    assert!((19..=21).contains(&kept), "{kept}");
    Ok(())
}

#[redis_lock(key = "crowd:{n}", max_waiters = 2)]
async fn crowded(n: u32) -> R<u32> {
    Ok(n)
}

#[redis_lock(key = "crowd:{n}", max_waiters = most, wait = "forever", on_busy = Ok(0))]
async fn crowded_answer(n: u32, most: usize) -> R<u32> {
    Ok(n)
}

#[redis_lock(key = "crowd:{n}", max_waiters = 2, on_busy = Ok(0))]
fn crowded_sync(n: u32) -> R<u32> {
    Ok(n)
}

#[tokio::test]
async fn no_more_calls_wait_than_may() -> R<()> {
    let held = locks().mutex("crowd:1").acquire().await?;
    let waiting = [tokio::spawn(crowded(1)), tokio::spawn(crowded_answer(1, 2))];
    while locks().status("crowd:1").await?.waiters.len() < 2 {
        tokio::task::yield_now().await;
    }
    let third = crowded(1).await.unwrap_err();
    assert!(matches!(third, LockError::Crowded { waiting: 2, .. }), "{third:?}");
    assert_eq!(crowded_answer(1, 2).await?, 0);
    assert_eq!(std::thread::spawn(|| crowded_sync(1)).join().unwrap()?, 0);
    assert!(matches!(crowded_answer(2, 0).await, Err(LockError::InvalidConfig { .. })));
    held.release().await?;
    for call in waiting {
        assert_eq!(call.await.unwrap()?, 1);
    }
    Ok(())
}
