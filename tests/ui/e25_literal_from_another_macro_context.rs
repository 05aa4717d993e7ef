use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

macro_rules! make {
    ($f:ident, $a:ident) => {
        #[redis_lock(key = "k:{id}")]
        async fn $f($a: u32) -> R<u32> {
            Ok($a)
        }
    };
}

make!(f, id);

fn main() {}
