use redis_locks::redis_lock;

struct Path<T>(T);

#[redis_lock(key = "k", on_error = None)]
fn value() -> Option<u32> {
    Some(1)
}

#[redis_lock(key = "k", on_error = async |error| 1)]
async fn asynchronous() -> u32 {
    1
}

#[redis_lock(key = "k", on_error = || 1)]
fn without_the_error() -> u32 {
    1
}

#[redis_lock(key = "k", on_error = |_| name.clone())]
async fn owned(Path(name): Path<String>) -> String {
    name
}

fn main() {}
