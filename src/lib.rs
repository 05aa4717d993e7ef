//! One attribute serialises a function across a cluster, with Redis or Valkey as the arbiter.

pub use redis_lock_core::*;
