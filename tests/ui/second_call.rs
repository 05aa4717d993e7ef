use redis_locks::{LockError, redis_lock};

type R<T> = Result<T, LockError>;

#[redis_lock(key = "k", queue = 0, on_busy = Ok(()))]
async fn f0() -> R<()> { Ok(()) }

#[redis_lock(key = "k", queue = -1)]
async fn f1() -> R<()> { Ok(()) }

#[redis_lock(key = "k", queue = "one")]
async fn f2() -> R<()> { Ok(()) }

#[redis_lock(key = "k", queue)]
async fn f3() -> R<()> { Ok(()) }

#[redis_lock(key = "k", queue = 1, wait = "none")]
async fn f4() -> R<()> { Ok(()) }

#[redis_lock(key = "k", wait = "none", queue = 1)]
async fn f5() -> R<()> { Ok(()) }

#[redis_lock(key = "k", queue = 1, linger = "2s")]
async fn f6() -> R<()> { Ok(()) }

#[redis_lock(key = "k", queue = 1, share)]
async fn f7() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, queue = 1)]
async fn f8() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, wait = "none")]
async fn f9() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, min_hold = "1m")]
async fn f10() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, ttl = "never")]
async fn f11() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, renew = false)]
async fn f12() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, on_lost = finish)]
async fn f13() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, fair = false)]
async fn f14() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, reentrant)]
async fn f15() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, linger = "2s")]
async fn f16() -> R<()> { Ok(()) }

#[redis_lock(key = "k", once = "24h", newest)]
async fn f17() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, share)]
async fn f18() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, read)]
async fn f19() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest, write)]
async fn f20() -> R<()> { Ok(()) }

#[redis_lock(key = "k", permits = 4, newest)]
async fn f21() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest = true)]
async fn f22() -> R<()> { Ok(()) }

#[redis_lock(key = "k", on_superseded = Ok(()))]
async fn f23() -> R<()> { Ok(()) }

#[redis_lock(key = "k", share, once = "24h")]
async fn f24() -> R<()> { Ok(()) }

#[redis_lock(key = "k", share, ttl = "never")]
async fn f25() -> R<()> { Ok(()) }

#[redis_lock(key = "k", share, reentrant)]
async fn f26() -> R<()> { Ok(()) }

#[redis_lock(key = "k", share, linger = "2s")]
async fn f27() -> R<()> { Ok(()) }

#[redis_lock(key = "k", share, read)]
async fn f28() -> R<()> { Ok(()) }

#[redis_lock(key = "k", share, permits = 4)]
async fn f29() -> R<()> { Ok(()) }

#[redis_lock(key = "k", replay)]
async fn f30() -> R<()> { Ok(()) }

#[redis_lock(key = "k", once = "24h", replay, on_done = Ok(()))]
async fn f31() -> R<()> { Ok(()) }

#[redis_lock(key = "k", same = "payload")]
async fn f32() -> R<()> { Ok(()) }

#[redis_lock(key = "k", slot = device)]
async fn f33() -> R<()> { Ok(()) }

#[redis_lock(key = "k", slot = device, read)]
async fn f34() -> R<()> { Ok(()) }

#[redis_lock(key = "k", permits = 4, slot = n, fence = n)]
async fn f35() -> R<()> { Ok(()) }

#[redis_lock(key = "k", permits = 4, slot = device)]
async fn numbered() -> R<()> { let _: u32 = device; Ok(()) }

#[redis_lock(key = "k", permits = 4, slot = 3)]
async fn f36() -> R<()> { Ok(()) }

#[redis_lock(keys = ["a", "b"], queue = 1)]
async fn several_queue() -> R<()> { Ok(()) }

#[redis_lock(keys = ["a", "b"], newest)]
async fn several_newest() -> R<()> { Ok(()) }

#[redis_lock(keys = ["a", "b"], share)]
async fn several_share() -> R<()> { Ok(()) }

#[redis_lock(keys = ["a", "b"], slot = n)]
async fn several_slot() -> R<()> { Ok(()) }

#[redis_lock(key = "k", newest)]
fn blocking_newest() -> R<()> { Ok(()) }

fn main() {}
