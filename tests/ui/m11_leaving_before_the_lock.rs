use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

fn known(id: u32) -> Option<u32> {
    Some(id)
}

macro_rules! leave {
    () => {
        return Ok(0)
    };
}

#[redis_lock(key("k:{}", if id == 0 { return Ok(id) } else { id }))]
async fn key(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(key("k:{}", match known(id) { Some(id) => id, None => return Ok(0) }))]
fn blocking_key(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(keys = match known(id) { Some(id) => [id.to_string()], None => leave!() })]
async fn by_a_macro(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(key = "k", ttl = if id == 0 { return Ok(0) } else { Duration::from_secs(1) })]
async fn ttl(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(key = "k", permits = if id == 0 { return Ok(0) } else { 2 })]
fn permits(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(key = "k", via = match locks { Some(locks) => locks, None => return 0 }, on_error = |_| 0)]
async fn via(locks: Option<&Locks>) -> u32 {
    1
}

#[redis_lock(key = "k", via = match locks { Some(locks) => locks, None => return Ok(0) }, on_error = |_| 0)]
fn blocking_via(locks: Option<&Locks>) -> u32 {
    1
}

#[redis_lock(key("k:{}", later(return Ok(0)).await))]
async fn awaited(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(key("k:{}", known(id)?), on_error = |_| None)]
async fn none(id: u32) -> Option<u32> {
    Some(id)
}

#[redis_lock(key("k:{}", if (|| known(id))().is_none() { return Ok(0) } else { async { id }.await }))]
async fn beside_closures(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[redis_lock(key("k:{}", { if id == 0 { leave!(); } id }))]
fn in_a_statement(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

async fn later(id: u32) -> u32 {
    id
}

fn main() {}
