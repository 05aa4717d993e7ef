use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

struct Town {
    id: u64,
}

struct User {
    town: Town,
    name: String,
}

#[redis_lock(key = "{oder_id}:{region}:pay")]
async fn first(order_id: u64, region: &str) -> R<()> { Ok(()) }

#[redis_lock(key = "pay:{order_id}:{regoin}:{day}")]
async fn middle(order_id: u64, region: &str, day: u32) -> R<()> { Ok(()) }

#[redis_lock(key = "pay:{order_id}:{regoin}")]
async fn last(order_id: u64, region: &str) -> R<()> { Ok(()) }

#[redis_lock(key = "{{pay}}:{oder_id}}}")]
async fn between_braces(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key = "{order_id}:{usr.town.id}")]
async fn nested_field(order_id: u64, user: &User) -> R<()> { Ok(()) }

#[redis_lock(key = "{usr.name.as_str().trim()}:{order_id}")]
async fn method(order_id: u64, user: &User) -> R<()> { Ok(()) }

#[redis_lock(key = "{pari.0}")]
async fn index(pair: (u64, u64)) -> R<()> { Ok(()) }

#[redis_lock(key = "{oder_id:>08}:{region:<4}")]
async fn format_spec(order_id: u64, region: &str) -> R<()> { Ok(()) }

#[redis_lock(key = "{order_id:0widht$}:{region}")]
async fn width_of_a_spec(order_id: u64, region: &str, width: usize) -> R<()> { Ok(()) }

#[redis_lock(key = "{usr.town.id:08}")]
async fn field_with_a_spec(user: &User) -> R<()> { Ok(()) }

#[redis_lock(key = "{Order_id}")]
async fn capital(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key("pay:{oder_id}:{n}", n = 1))]
async fn beside_an_expression(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(keys = ["stock:{order_id}", "pay:{oder_id}"])]
fn of_several_keys(order_id: u64) -> R<()> { Ok(()) }

fn main() {}
