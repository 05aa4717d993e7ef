use redis_locks::{LockError, redis_lock};

type R = Result<(), LockError>;

#[redis_lock(keys = vec!["a:{id}"])]
fn in_a_vector(id: u32) -> R {
    Ok(())
}

#[redis_lock(keys = ["a:{id}", "b:{id}".to_string()])]
fn in_a_list(id: u32) -> R {
    Ok(())
}

#[redis_lock(key("k:{x}", x = if id > 1 { "{id}" } else { "none" }))]
fn in_an_argument(id: u32) -> R {
    Ok(())
}

#[redis_lock(key = "k:{}", id)]
fn outside(id: u32) -> R {
    Ok(())
}

#[redis_lock(key = "k:{x}", x = id)]
fn outside_by_name(id: u32) -> R {
    Ok(())
}

fn main() {}
