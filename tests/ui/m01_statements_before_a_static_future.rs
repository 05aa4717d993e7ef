use std::future::Future;
use std::pin::Pin;

use redis_locks::{LockError, redis_lock};

struct S(u32);

impl S {
    #[redis_lock(key = "k")]
    fn call(&mut self) -> Pin<Box<dyn Future<Output = Result<u32, LockError>>>> {
        let n = self.0;
        Box::pin(async move { Ok(n) })
    }
}

#[redis_lock(key = "k")]
fn f(name: &str) -> Pin<Box<dyn Future<Output = Result<usize, LockError>> + Send + 'static>> {
    let n = name.len();
    Box::pin(async move { Ok(n) })
}

fn main() {}
