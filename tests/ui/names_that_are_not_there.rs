use redis_locks::{LockError, key, redis_lock};

trait Job {
    fn run(&self) -> Result<(), LockError>;
}

impl Job for u64 {
    #[redis_lock(key = "job:{self}", request = run_lock)]
    fn run(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn unknown(id: u64) -> Result<(), LockError> {
    key!("order:{ordr}:{id}")?;
    Ok(())
}

fn main() {}
