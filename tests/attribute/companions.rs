//! `request = name`: the lock of an annotated function, from outside.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::*;
use redis_locks::{KeySegment, LockError, Locks, redis_lock};

use crate::support::{R, locks};

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

struct Place {
    id: u32,
    name: String,
}

struct Site {
    name: String,
}

impl Site {
    #[redis_lock(key = "site:{self.name}:{id}", request = moved_lock)]
    fn moved(mut self, Place { id, ref name }: Place, _: u8) -> R<String> {
        self.name.push_str(name);
        Ok(format!("{}{id}", self.name))
    }

    #[redis_lock(key = "site:{self.name}:{b}", request = shared_lock)]
    async fn shared(self: Arc<Self>, &(mut a, b): &(u32, u32), [c, ..]: [u32; 2]) -> R<u32> {
        a += c;
        Ok(a + b)
    }

    #[redis_lock(key = "{id}", request = bounded_lock)]
    async fn bounded<'a, T, F>(&'a self, id: &'a T, f: F) -> R<usize>
    where
        T: KeySegment + Sync + ?Sized,
        F: for<'x> Fn(&'x T) -> usize + Send,
        Self: 'a,
    {
        Ok(f(id) + self.name.len())
    }
}

#[tokio::test]
async fn receivers_patterns_and_bounds_are_those_of_the_function() -> R<()> {
    locks();
    let site = || Site { name: "s".into() };
    let place = || Place { id: 7, name: "p".into() };
    assert_eq!(site().moved_lock(place())?.acquire().await?.key(), "site:s:7");
    assert_eq!(site().moved(place(), 1)?, "sp7");
    let shared = Arc::new(site());
    assert_eq!(Arc::clone(&shared).shared_lock(&(1, 2))?.acquire().await?.key(), "site:s:2");
    assert_eq!(shared.shared(&(1, 2), [3, 4]).await?, 6);
    assert_eq!(Site::bounded_lock("t")?.acquire().await?.key(), "t");
    assert_eq!(site().bounded("tt", str::len).await?, 3);
    Ok(())
}

trait Nightly {
    #[redis_lock(key = "nightly", request = nightly_lock)]
    fn nightly(&self) -> R<u32> {
        Ok(1)
    }
}

#[async_trait]
trait Hourly: Sync {
    #[redis_lock(key = "hourly:{n}", request = hourly_lock)]
    async fn hourly(&self, n: u32) -> R<u32> {
        Ok(n)
    }
}

impl Nightly for String {}
impl Hourly for String {}

#[tokio::test]
async fn a_trait_whose_method_has_one_can_still_be_an_object() -> R<()> {
    locks();
    let (nightly, hourly): (Box<dyn Nightly>, Box<dyn Hourly>) =
        (Box::new(String::new()), Box::new(String::new()));
    assert_eq!((nightly.nightly()?, hourly.hourly(2).await?), (1, 2));
    assert_eq!(<String as Nightly>::nightly_lock()?.acquire().await?.key(), "nightly");
    assert_eq!(<String as Hourly>::hourly_lock(3)?.acquire().await?.key(), "hourly:3");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_locks_what_the_function_locks(id: u64, amount in 0..9_u32, region in "\\PC{1,12}", list: Vec<u8>) {
        locks();
        let of = |request: redis_locks::LockRequest| request.blocking_acquire().unwrap().key().to_owned();
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
