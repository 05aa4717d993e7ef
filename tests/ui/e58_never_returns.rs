use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k")]
async fn f() -> ! {
    loop {}
}

#[redis_lock(key = "k")]
fn g() -> ! {
    std::process::exit(1)
}

fn main() {}
