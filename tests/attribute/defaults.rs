//! `#[redis_lock_defaults]`: options for all annotated functions of a block.

use std::time::Duration;

use async_trait::async_trait;
use redis_locks::{Locks, redis_lock, redis_lock_defaults};

use crate::support::{R, locks};

struct Orders {
    locks: Locks,
    other: Locks,
}

fn orders() -> Orders {
    Orders { locks: Locks::in_memory(), other: Locks::in_memory() }
}

fn seconds(left: Duration) -> u64 {
    left.as_secs_f64().round() as u64
}

#[redis_lock_defaults(via = self.locks, ttl = "10s", wait = "none", prefix = "orders:")]
impl Orders {
    #[redis_lock(key = "{id}", guard = lock)]
    async fn charge(&self, id: u64) -> R<(String, u64)> {
        assert!(self.locks.status(lock.key()).await?.is_held());
        Ok((lock.key().into(), seconds(lock.remaining())))
    }

    #[redis_lock(key = "report", ttl = "30s", via = self.other, guard = lock, request = report_lock)]
    fn report(&self) -> R<(String, u64)> {
        assert!(self.other.blocking_status(lock.key())?.is_held());
        Ok((lock.key().into(), seconds(lock.remaining())))
    }

    #[redis_lock(keys = ["a:{id}", "b"], guard = lock)]
    async fn several(&self, id: u64) -> R<String> {
        Ok(lock.key().into())
    }

    #[redis_lock(key("{}", id + 1), guard = lock)]
    async fn token_form(&self, id: u64) -> R<String> {
        Ok(lock.key().into())
    }

    fn plain(&self) -> u64 {
        1
    }
}

#[tokio::test]
async fn functions_take_what_they_do_not_set() -> R<()> {
    let orders = orders();
    assert_eq!(orders.charge(7).await?, ("orders:7".into(), 10));
    assert_eq!(orders.report()?, ("orders:report".into(), 30));
    assert_eq!(orders.report_lock()?.acquire().await?.key(), "orders:report");
    assert_eq!(orders.several(1).await?, "orders:a:1, orders:b");
    assert_eq!(orders.token_form(1).await?, "orders:2");
    let held = orders.locks.mutex("orders:7").acquire().await?;
    assert!(orders.charge(7).await.unwrap_err().is_busy());
    drop(held);
    assert_eq!(orders.plain(), 1);
    Ok(())
}

#[redis_lock_defaults(ttl = "10s", prefix = "outer:", wait = "none")]
mod module {
    use redis_locks::{redis_lock, redis_lock_defaults};

    use super::{R, seconds};

    #[redis_lock(key = "k", guard = lock)]
    pub(super) fn outside() -> R<(String, u64)> {
        Ok((lock.key().into(), seconds(lock.remaining())))
    }

    pub(super) struct Inner;

    #[redis_lock_defaults(ttl = "20s", prefix = "inner:")]
    impl Inner {
        #[redis_lock(key = "k:{n}", guard = lock)]
        pub(super) fn inside(&self, n: u32) -> R<(String, u64)> {
            Ok((lock.key().into(), seconds(lock.remaining())))
        }
    }
}

#[test]
fn the_inner_block_wins() -> R<()> {
    locks();
    assert_eq!(module::outside()?, ("outer:k".into(), 10));
    assert_eq!(module::Inner.inside(3)?, ("inner:k:3".into(), 20));
    Ok(())
}

#[redis_lock_defaults(prefix = "traits:", on_error = |_| 0)]
trait Counting {
    #[redis_lock(key = "{n}", guard = lock)]
    fn count(&self, n: u32) -> usize {
        lock.key().len()
    }
}

impl Counting for Orders {}

#[async_trait]
trait Boxed {
    async fn boxed(&self, n: u32) -> R<String>;
    async fn with_its_own(&self) -> R<String>;
}

#[redis_lock_defaults(via = self.locks, prefix = "boxed:", label = "the boxed one")]
#[async_trait]
impl Boxed for Orders {
    #[redis_lock(key = "{n}", guard = lock, outage = "5s")]
    async fn boxed(&self, n: u32) -> R<String> {
        assert!(n > 0);
        let holders = self.locks.status(lock.key()).await?.holders;
        assert!(holders[0].label.as_deref().is_some_and(|it| it.ends_with(" the boxed one")));
        Ok(lock.key().into())
    }

    #[cfg_attr(all(), redis_lock(key = "own", label = format!("no {}", 7)))]
    async fn with_its_own(&self) -> R<String> {
        let label = self.locks.status("boxed:own").await?.holders[0].label.clone();
        Ok(label.unwrap_or_default())
    }
}

#[tokio::test]
async fn traits_and_other_attributes_have_them_as_well() -> R<()> {
    locks();
    let orders = orders();
    assert_eq!(orders.count(7), "traits:7".len());
    assert_eq!(orders.boxed(7).await?, "boxed:7");
    assert!(orders.with_its_own().await?.ends_with(" no 7"));
    Ok(())
}

/// An attribute that comes through a macro, and a block that does.
macro_rules! service {
    ($(#[$meta:meta])* $name:ident, $block:item) => {
        #[redis_lock_defaults(via = self.locks, prefix = "made:")]
        impl Orders {
            $(#[$meta])*
            async fn $name(&self) -> R<bool> {
                Ok(self.locks.status("made:k").await?.is_held())
            }

            #[redis_lock(key = "other")]
            async fn other_made(&self) -> R<bool> {
                Ok(self.locks.status("made:other").await?.is_held())
            }
        }

        #[redis_lock_defaults(prefix = "passed:")]
        $block
    };
}

service! {
    #[redis_lock(key = "k")] made_by_a_macro,
    impl Orders {
        #[redis_lock(key = "k", via = self.locks)]
        async fn passed_through_a_macro(&self) -> R<bool> {
            Ok(self.locks.status("passed:k").await?.is_held())
        }
    }
}

#[tokio::test]
async fn attributes_and_blocks_that_come_through_a_macro_have_them_as_well() -> R<()> {
    let orders = orders();
    assert!(orders.other_made().await?);
    assert!(orders.made_by_a_macro().await?);
    assert!(orders.passed_through_a_macro().await?);
    Ok(())
}

#[redis_lock_defaults(via = &self.locks, prefix = "named:")]
mod named {
    use redis_locks::{Locks, redis_lock};

    use super::R;

    pub(super) struct First {
        pub(super) locks: Locks,
    }

    pub(super) struct Second {
        pub(super) locks: Locks,
    }

    impl First {
        #[redis_lock(key = "k")]
        pub(super) async fn label(&self) -> R<String> {
            Ok(self.locks.status("named:k").await?.holders[0].label.clone().unwrap_or_default())
        }
    }

    impl Second {
        #[redis_lock(key = "k")]
        pub(super) async fn label(&self) -> R<String> {
            Ok(self.locks.status("named:k").await?.holders[0].label.clone().unwrap_or_default())
        }
    }
}

#[tokio::test]
async fn methods_are_called_by_the_type_of_their_block() -> R<()> {
    let first = named::First { locks: Locks::in_memory() };
    let second = named::Second { locks: Locks::in_memory() };
    let (first, second) = (first.label().await?, second.label().await?);
    assert!(first.ends_with("named::First::label"), "{first}");
    assert!(second.ends_with("named::Second::label"), "{second}");
    Ok(())
}
