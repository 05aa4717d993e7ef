//! E41-E51: qualifiers, attributes and visibility. E40, `unsafe`, is in the editions' fixture: this
//! package forbids it.

use std::cell::Cell;
use std::panic::Location;

use redis_locks::redis_lock;

use crate::support::{R, is_locked, locks, tick};

#[redis_lock(key = "k")]
#[expect(improper_ctypes_definitions)]
extern "C" fn e41() -> R<u32> {
    Ok(1)
}

#[test]
fn e41_extern_c() -> R<()> {
    locks();
    assert_eq!(e41()?, 1);
    Ok(())
}

mod m {
    use redis_locks::redis_lock;

    use crate::support::R;

    #[redis_lock(key = "k")]
    pub(in crate::qualifiers) async fn e43() -> R<()> {
        Ok(())
    }
}

#[tokio::test]
async fn e43_visibility() -> R<()> {
    locks();
    m::e43().await
}

/// Documented before.
#[must_use]
#[redis_lock(key = "k")]
/// Documented after.
#[inline]
#[allow(clippy::unnecessary_wraps)]
fn e44() -> R<()> {
    Ok(())
}

#[deprecated]
#[redis_lock(key = "k")]
async fn e44_deprecated() -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e44_other_attributes() -> R<()> {
    locks();
    #[expect(unused_must_use)]
    {
        e44();
    }
    #[expect(deprecated)]
    let done = e44_deprecated();
    done.await
}

#[redis_lock(key = "k")]
async fn e45() -> R<()> {
    #![allow(unused_variables)]
    let i = 1;
    Ok(())
}

#[redis_lock(key = "k")]
fn e45_sync() -> R<()> {
    #![allow(unused_variables)]
    let i = 1;
    Ok(())
}

#[tokio::test]
async fn e45_inner_attributes() -> R<()> {
    locks();
    e45().await?;
    e45_sync()
}

#[expect(dead_code)]
#[redis_lock(key = "k")]
async fn e46() -> R<()> {
    Ok(())
}

#[expect(dead_code)]
#[redis_lock(key = "k:{n}")]
fn e46_sync(n: u32) -> R<()> {
    Ok(())
}

struct Unused;

impl Unused {
    #[expect(dead_code)]
    #[redis_lock(key = "k")]
    async fn e46_method(&self) -> R<()> {
        Ok(())
    }
}

#[test]
fn e46_dead_code_is_still_reported() {
    // The `expect` attributes above warn if it is not.
    let _ = Unused;
}

#[cfg_attr(all(), redis_lock(key = "e47"))]
fn e47() -> R<bool> {
    Ok(is_locked("e47"))
}

#[cfg_attr(any(), redis_lock(key = "e47_off"))]
fn e47_off() -> R<bool> {
    Ok(is_locked("e47_off"))
}

#[test]
fn e47_cfg_attr() -> R<()> {
    locks();
    assert!(e47()?);
    assert!(!e47_off()?);
    Ok(())
}

/// Counts the spans that this thread is in.
struct Inside;

thread_local! {
    static DEPTH: Cell<i32> = const { Cell::new(0) };
}

impl tracing::Subscriber for Inside {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("attribute")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {
        DEPTH.set(DEPTH.get() + 1);
    }

    fn exit(&self, _: &tracing::span::Id) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// The locks; evaluated when the lock is about to be taken.
fn noting(depth: &Cell<i32>) -> &'static redis_locks::Locks {
    depth.set(DEPTH.get());
    locks()
}

#[tracing::instrument(skip_all)]
#[redis_lock(key = "e49:{n}", via = noting(waiting))]
async fn e49_above(n: u32, waiting: &Cell<i32>) -> R<i32> {
    tick().await;
    Ok(DEPTH.get())
}

#[redis_lock(key = "e49:{n}", via = noting(waiting))]
#[tracing::instrument(skip_all)]
async fn e49_below(n: u32, waiting: &Cell<i32>) -> R<i32> {
    tick().await;
    Ok(DEPTH.get())
}

#[redis_lock(key = "e49:{n}", via = noting(waiting))]
#[tracing::instrument(skip_all, err)]
fn e49_sync(n: u32, waiting: &Cell<i32>) -> R<i32> {
    Ok(DEPTH.get())
}

#[tokio::test]
async fn e49_instrument_above_spans_the_body_and_below_the_wait_too() -> R<()> {
    locks();
    let _on = tracing::subscriber::set_default(Inside);
    let waiting = Cell::new(-1);
    assert_eq!((e49_above(1, &waiting).await?, waiting.get()), (1, 0));
    assert_eq!((e49_below(2, &waiting).await?, waiting.get()), (1, 1));
    assert_eq!((e49_sync(3, &waiting)?, waiting.get()), (1, 1));
    Ok(())
}

#[tokio::test]
#[redis_lock(key = "e50", via = locks())]
async fn e50_tokio_test_above() -> R<()> {
    tick().await;
    assert!(is_locked("e50"));
    Ok(())
}

#[redis_lock(key = "e50b", via = locks())]
#[tokio::test]
async fn e50_tokio_test_below() -> R<()> {
    tick().await;
    assert!(is_locked("e50b"));
    Ok(())
}

#[track_caller]
#[redis_lock(key = "k")]
fn e51() -> R<u32> {
    Ok(Location::caller().line())
}

#[test]
fn e51_track_caller_compiles_and_names_the_attribute() -> R<()> {
    locks();
    // A closure loses the caller (rust-lang/rust#87417), so the line is not this one.
    assert_ne!(e51()?, line!());
    Ok(())
}
