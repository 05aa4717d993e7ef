use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

trait T: Sync {
    #[redis_lock(key = "k:{n}")]
    fn b(&self, n: u32) -> R<u32>;
}

struct S;

impl T for S {
    fn b(&self, n: u32) -> R<u32> {
        Ok(n)
    }
}

fn main() {}
