//! The `#[redis_lock]` attribute. Use it through the `redis-locks` crate.
