//! `request = name`: the lock of an annotated function, from outside.

use std::time::Duration;

use proptest::prelude::*;
use redis_locks::{KeySegment, LockError, Locks, redis_lock};

use crate::scenery::{R, locks};

#[redis_lock(key = "order:{order_id}:{region}", ttl = "7s", guard = lock, request = charge_lock)]
pub(crate) async fn charge(order_id: u64, mut amount: u32, region: &str) -> R<String> {
    amount += 1;
    Ok(format!("{} {amount}", lock.key()))
}

#[redis_lock(key("pair:{a}:{}", b.len()), wait = limit, guard = lock, request = pair_lock)]
fn pair((a, b): (u32, Vec<u8>), limit: Duration, _unused: bool) -> R<String> {
    Ok(format!("{} {}", lock.key(), b.len()))
}

#[redis_lock(keys = ["a:{from}", "b:{to}"], guard = lock, request = transfer_lock)]
fn transfer(from: u32, to: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key = "{id}:{N}", permits = 2, guard = lock, request = generic_lock)]
fn generic<'a, const N: usize, K: KeySegment + 'a, U>(id: &'a K, value: U) -> R<(String, U)>
where
    U: Clone,
{
    Ok((lock.key().into(), value))
}

struct Billing {
    locks: Locks,
}

impl Billing {
    #[redis_lock(key = "close:{month}", via = self.locks, fence = number, request = close_lock)]
    async fn close(&self, month: u32, by: &str) -> R<u64> {
        let _ = by;
        Ok(number)
    }

    #[redis_lock(key = "all", request = all_lock)]
    fn all(&self) -> R<()> {
        Ok(())
    }
}

trait Job {
    fn name(&self) -> &str;

    #[redis_lock(key = "job:{self.name()}", guard = lock, request = run_lock)]
    fn run(&self) -> R<String> {
        Ok(lock.key().into())
    }
}

impl Job for String {
    fn name(&self) -> &str {
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_locks_what_the_function_locks(id: u64, amount in 0..9_u32, region in "\\PC{1,12}", list: Vec<u8>) {
        locks();
        let of = |request: redis_locks::Request| request.blocking_acquire().unwrap().key().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let charged = runtime.block_on(charge(id, amount, &region)).unwrap();
        prop_assert_eq!(format!("{} {}", of(charge_lock(id, &region).unwrap()), amount + 1), charged);
        let (limit, len) = (Duration::from_secs(1), list.len());
        let key = of(pair_lock((amount, list.clone()), limit).unwrap());
        prop_assert_eq!(format!("{key} {len}"), pair((amount, list), limit, true).unwrap());
        prop_assert_eq!(of(transfer_lock(1, amount).unwrap()), transfer(1, amount).unwrap());
        let key = of(generic_lock::<3, u64>(&id).unwrap());
        prop_assert_eq!(key, generic::<3, u64, ()>(&id, ()).unwrap().0);
        prop_assert_eq!(of(region.run_lock().unwrap()), region.run().unwrap());
    }
}

#[tokio::test]
async fn it_looks_at_the_lock_ends_it_and_has_its_options() -> R<()> {
    locks();
    let billing = Billing { locks: Locks::in_memory() };
    let guard = billing.close_lock(3)?.acquire().await?;
    assert!(guard.fence().is_some());
    let held = billing.close_lock(3)?.try_acquire().await?;
    assert!(held.is_none());
    assert!(billing.locks.force_release("close:3", "a test").await?);
    assert!(billing.close(3, "me").await? > 0);
    Billing::all_lock()?.acquire().await?.release().await?;
    billing.all()?;
    let ttl = charge_lock(1, "eu")?.acquire().await?.remaining();
    assert!(ttl > Duration::from_secs(6) && ttl <= Duration::from_secs(7));
    assert!(matches!(charge_lock(1, ""), Err(LockError::InvalidKey { .. })));
    Ok(())
}
