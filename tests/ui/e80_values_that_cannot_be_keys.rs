use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

struct Custom;

#[redis_lock(key = "order:{price}")]
async fn float(price: f64) -> R<f64> {
    Ok(price)
}

#[redis_lock(key = "order:{custom}")]
fn custom(custom: &Custom) -> R<()> {
    let _ = custom;
    Ok(())
}

#[redis_lock(key("order:{}", Some(id)))]
async fn option(id: u32) -> R<u32> {
    Ok(id)
}

fn main() {}
