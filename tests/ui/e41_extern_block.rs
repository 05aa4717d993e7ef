use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

unsafe extern "C" {
    #[redis_lock(key = "k")]
    fn f(n: u32) -> u32;
}

fn main() {}
