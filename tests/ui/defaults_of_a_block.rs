use redis_locks::{LockError, Locks, redis_lock, redis_lock_defaults};

type R<T> = Result<T, LockError>;

struct Orders {
    locks: Locks,
}

// Each mistake once, at the block.
#[redis_lock_defaults(ttl = 30, key = "k", wait = None, prefix = "a:{id}", tll = "1s")]
impl Orders {
    #[redis_lock(key = "a:{id}")]
    async fn one(&self, id: u64) -> R<()> {
        Ok(())
    }

    #[redis_lock(key = "b:{id}")]
    async fn two(&self, id: u64) -> R<()> {
        Ok(())
    }
}

#[redis_lock_defaults(ttl = "30s", wait = "1s", permits = 2)]
impl Orders {
    #[redis_lock(key = "a:{id}", ttl = "1s", write)]
    async fn three(&self, id: u64) -> R<()> {
        Ok(())
    }

    #[redis_lock(key = "b:{id}", ttl = "2s", read)]
    async fn four(&self, id: u64) -> R<()> {
        Ok(())
    }
}

#[redis_lock_defaults(ttl = "30s")]
mod module {
    #[super::redis_lock_defaults(ttl = "20s")]
    impl super::Orders {
        #[redis_locks::redis_lock(key = "a:{id}")]
        async fn five(&self, id: u64) -> super::R<()> {
            Ok(())
        }
    }
}

#[redis_lock_defaults(via = self.locks)]
impl Orders {
    fn six(&self) {}
}

#[redis_lock_defaults(prefix = "orders:")]
impl Orders {
    #[redis_lock(keys = ids.iter().map(|id| format!("item:{id}")))]
    async fn seven(&self, ids: &[u64]) -> R<()> {
        Ok(())
    }
}

#[redis_lock_defaults(ttl = "30s")]
#[redis_lock(key = "k")]
async fn eight() -> R<()> {
    Ok(())
}

#[redis_lock_defaults(ttl = "30s")]
struct Nine;

// What contradicts an option of a function is reported as within one attribute.
#[redis_lock_defaults(max_hold = "1m")]
impl Orders {
    #[redis_lock(key = "a", ttl = "never")]
    async fn ten(&self) -> R<()> {
        Ok(())
    }
}

#[redis_lock(key = "a", prefix = "orders:")]
async fn eleven() -> R<()> {
    Ok(())
}

fn main() {}
