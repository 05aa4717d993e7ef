use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

static TENANT: &str = "acme";

#[redis_lock(key = "order:{TENNANT}")]
async fn constant(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key("order:{id}", id = oder_id))]
async fn expression(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key("order:{id}:{order_id}", id = oder_id))]
async fn expression_beside_a_name(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key("order:{id}", id = oder_id))]
fn blocking_expression(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key("order:{}", oder_id + 1))]
async fn position(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(keys = [format!("acct:{form}"), to.to_string()])]
async fn list(from: u64, to: u64) -> R<()> { Ok(()) }

#[redis_lock(keys = acounts.iter())]
async fn iterator(accounts: Vec<String>) -> R<()> { Ok(()) }

#[redis_lock(key = "k", via = lokcs)]
async fn via(locks: &redis_locks::Locks) -> R<()> { Ok(()) }

#[redis_lock(key = "k", permits = limt)]
async fn permits(limit: u32) -> R<()> { Ok(()) }

#[redis_lock(key = "k", ttl = leese)]
async fn ttl(lease: std::time::Duration) -> R<()> { Ok(()) }

#[redis_lock(key = "k", label = lable)]
async fn label(label: &str) -> R<()> { Ok(()) }

fn main() {}
