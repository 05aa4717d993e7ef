use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

struct User {
    id: u64,
}

#[redis_lock(key = "u:{usr.id}")]
async fn base(user: User) -> R<u64> {
    Ok(user.id)
}

#[redis_lock(key = "u:{user.idd}")]
async fn field(user: User) -> R<u64> {
    Ok(user.id)
}

#[redis_lock(key = "u:{v[0]}")]
async fn index(v: Vec<u64>) -> R<u64> {
    Ok(v[0])
}

#[redis_lock(key = "u:{user.get(1)}")]
async fn call(user: User) -> R<u64> {
    Ok(user.id)
}

#[redis_lock(key = "u:{user + 1}")]
async fn sum(user: u64) -> R<u64> {
    Ok(user)
}

#[redis_lock(key("u:{id}", id = user.idd))]
async fn tokens(user: User) -> R<u64> {
    Ok(user.id)
}

#[redis_lock(key("u:{id}", id = user.id, extra = 1))]
async fn unused(user: User) -> R<u64> {
    Ok(user.id)
}

fn main() {}
