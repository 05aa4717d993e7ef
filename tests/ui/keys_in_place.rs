use redis_locks::{LockError, Locks, key, redis_lock};

struct Custom;

fn mistakes(id: u64, user: &Custom, price: f64) -> Result<(), LockError> {
    key!("order:{id}{price}")?;
    key!("order:{}")?;
    key!("order:{id + 1}")?;
    key!("")?;
    key!()?;
    key!(id)?;
    Ok(())
}

fn values(id: u64, user: &Custom, price: f64) -> Result<(), LockError> {
    key!("user:{user}")?;
    key!("price:{price}")?;
    key!("id:{id:?}")?;
    key!("id:{id.none}")?;
    Ok(())
}

// The function and its companion stay, so that callers cause no more errors.
#[redis_lock(key = "order:{id}", ttl = 30, request = charge_lock)]
async fn charge(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key("order:{}", id(7).await), request = awaited_lock)]
async fn awaited() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k", request = "name")]
async fn quoted() -> Result<(), LockError> {
    Ok(())
}

async fn id(of: u64) -> u64 {
    of
}

async fn callers() -> Result<(), LockError> {
    charge(7).await?;
    charge_lock(7)?.acquire().await?.release().await
}

fn main() {}
