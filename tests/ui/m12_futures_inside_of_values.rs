use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis_locks::{LockError, redis_lock};

type Work = Pin<Box<dyn Future<Output = u32>>>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

#[redis_lock(key = "k", on_error = |_| None)]
fn option() -> Option<Pin<Box<dyn Future<Output = u32>>>> {
    Some(Box::pin(async { 1 }))
}

#[redis_lock(key = "k", on_error = |_| (0, Box::pin(async { 0 })))]
fn tuple() -> (u32, BoxFuture<'static, u32>) {
    (1, Box::pin(async { 1 }))
}

#[redis_lock(key = "k", on_error = |_| Vec::new())]
fn list() -> Vec<HashMap<u32, Box<dyn Future<Output = u32> + Unpin>>> {
    Vec::new()
}

#[redis_lock(key = "k")]
fn result() -> Result<Pin<Box<dyn Future<Output = u32>>>, LockError> {
    Ok(Box::pin(async { 1 }))
}

#[redis_lock(key = "k")]
fn opaque() -> Result<impl Future<Output = u32>, LockError> {
    Ok(async { 1 })
}

#[redis_lock(key = "k", on_error = |_| None)]
fn behind_an_alias() -> Option<Work> {
    Some(Box::pin(async { 1 }))
}

#[redis_lock(key = "k", on_error = |error| Err(error))]
fn result_of_an_alias() -> Result<Vec<Work>, LockError> {
    Ok(Vec::new())
}

#[redis_lock(key = "k")]
fn alias_without_a_handler() -> Result<Work, LockError> {
    Ok(Box::pin(async { 1 }))
}

#[redis_lock(key = "k", on_error = |_| (0, None))]
fn alias_in_a_tuple() -> (u32, Option<Work>) {
    (1, Some(Box::pin(async { 1 })))
}

#[redis_lock(key = "k")]
fn alias_in_a_tuple_in_a_result() -> Result<Vec<(Work, Work)>, LockError> {
    Ok(Vec::new())
}

#[redis_lock(key = "k", on_error = |_| None)]
fn array() -> Option<[Work; 1]> {
    Some([Box::pin(async { 1 })])
}

#[redis_lock(key = "k", on_error = |_| HashMap::new())]
fn map() -> HashMap<u32, Work> {
    HashMap::new()
}

#[redis_lock(key = "k", on_error = |_| None)]
fn shared() -> Option<Arc<Work>> {
    None
}

#[redis_lock(key = "k", on_error = |error| Err(error))]
fn hidden() -> Result<impl Sized, LockError> {
    let work: Work = Box::pin(async { 1 });
    Ok(Some(work))
}

fn main() {}
