use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(kee = "k", ttl = "1s", ttl = "2s", fair = 7, wait = "5x")]
const fn f() -> R<()> {
    Ok(())
}

struct S;

impl S {
    #[redis_lock(ttl = "0s", renew)]
    fn m(&self, n: u32) -> R<u32> {
        Ok(n)
    }
}

fn calls() {
    let _ = S.m(1);
}

fn main() {}
