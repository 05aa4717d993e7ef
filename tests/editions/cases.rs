//! The attribute in crates of every edition: one file, compiled by three packages.
//!
//! Each function is plain without the feature `lock`, so that what clippy says about both can be
//! compared (`tests/attribute_lints.rs`).
#![no_std]
#![deny(warnings, missing_docs, elided_lifetimes_in_paths)]
#![allow(async_fn_in_trait)]

extern crate alloc;
#[cfg(test)]
extern crate std;

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Display;
use core::future::Future;
use core::pin::Pin;

#[cfg(feature = "lock")]
use redis_locks::redis_lock;
use redis_locks::LockError;

type R<T> = Result<T, LockError>;

/// A resource that is dropped.
#[derive(Debug, Default)]
pub struct Tx(Vec<u8>);

impl Drop for Tx {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// An argument with parts.
#[derive(Debug, Default)]
pub struct Ctx {
    /// A part.
    pub id: u32,
    /// Another.
    pub tx: Tx,
}

/// E01
#[cfg_attr(feature = "lock", redis_lock(key = "e01:{n}"))]
pub async fn e01(mut n: u64) -> R<u64> {
    n += 1;
    Ok(n)
}

/// E02
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e02(mut arg: &str) -> R<usize> {
    let local = String::from("longer");
    if arg.is_empty() {
        arg = &local;
    }
    Ok(arg.len())
}

/// E05
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e05(_: Tx) -> R<()> {
    Ok(())
}

/// E07
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e07(_tx: Tx) -> R<()> {
    Ok(())
}

/// E07
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub fn e07_sync(_tx: Tx) -> R<()> {
    Ok(())
}

/// E08
#[cfg_attr(feature = "lock", redis_lock(key = "k:{a}:{b}"))]
pub async fn e08((a, mut b): (u32, u32)) -> R<u32> {
    b += a;
    Ok(b)
}

/// E10
#[cfg_attr(feature = "lock", redis_lock(key = "k:{id}"))]
pub fn e10(Ctx { id, .. }: Ctx) -> R<u32> {
    Ok(id)
}

/// E11
#[cfg_attr(feature = "lock", redis_lock(key = "k:{c.id}"))]
pub async fn e11(c: Ctx) -> R<u32> {
    Ok(c.id)
}

/// E13
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e13(t: impl Display + Send, g: impl FnOnce() -> u32 + Send) -> R<String> {
    let mut text = t.to_string();
    text.push_str(&g().to_string());
    Ok(text)
}

/// E16
#[cfg_attr(feature = "lock", redis_lock(key = "k:{type}"))]
pub async fn e16(r#type: u32) -> R<u32> {
    Ok(r#type)
}

impl Ctx {
    /// E20
    #[cfg_attr(feature = "lock", redis_lock(key = "k:{n}"))]
    pub async fn e20(&mut self, n: u32) -> R<&mut u32> {
        self.id = n;
        Ok(&mut self.id)
    }

    /// E20
    #[cfg_attr(feature = "lock", redis_lock(key = "k:{self.id}"))]
    pub fn e20_sync(&mut self) -> R<&mut u32> {
        Ok(&mut self.id)
    }

    /// E21
    #[cfg_attr(feature = "lock", redis_lock(key = "k:{self.id}"))]
    pub async fn e21(self: Arc<Self>) -> R<u32> {
        Ok(self.id)
    }

    /// E21
    #[cfg_attr(feature = "lock", redis_lock(key = "k"))]
    pub async fn e21_mut(mut self) -> R<Self> {
        self.id = 7;
        Ok(self)
    }
}

/// E32
pub trait Default32 {
    /// E32
    #[cfg_attr(feature = "lock", redis_lock(key = "k:{n}"))]
    fn e32(&self, n: u32) -> R<u32> {
        Ok(n)
    }

    /// E34
    async fn e34(&self, n: u32) -> R<u32>;
}

impl Default32 for Ctx {
    #[cfg_attr(feature = "lock", redis_lock(key = "k:{n}"))]
    async fn e34(&self, n: u32) -> R<u32> {
        Ok(n)
    }
}

/// E36
#[allow(clippy::manual_async_fn, reason = "this way of writing it is the case")]
#[cfg_attr(feature = "lock", redis_lock(key = "k:{n}"))]
pub fn e36(n: u32) -> impl Future<Output = R<u32>> + Send {
    async move { Ok(n) }
}

/// E36
#[allow(clippy::manual_async_fn, reason = "this way of writing it is the case")]
#[cfg_attr(feature = "lock", redis_lock(key = "k:{n}"))]
pub fn e36_pinned(n: u32) -> Pin<Box<dyn Future<Output = R<u32>> + Send>> {
    Box::pin(async move { Ok(n) })
}

/// E40
///
/// # Safety
/// `p` can be read.
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async unsafe fn e40(p: *const u8) -> R<u8> {
    // SAFETY: as the caller says.
    Ok(unsafe { *p })
}

/// E40
///
/// # Safety
/// `p` can be read.
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub unsafe fn e40_sync(p: *const u8) -> R<u8> {
    // SAFETY: as the caller says.
    Ok(unsafe { *p })
}

/// E45
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e45() -> R<()> {
    #![allow(unused_variables)]
    let i = 1;
    Ok(())
}

/// E53
#[cfg_attr(feature = "lock", redis_lock(key = "k:{n}"))]
pub async fn e53(n: u32) -> R<u32> {
    if n == 0 {
        return Err(LockError::NotConfigured);
    }
    let n = e01(u64::from(n)).await?;
    Ok(n.to_string().len() as u32)
}

/// E55
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e55(n: u32) -> R<Box<dyn Display + Send>> {
    if n == 1 {
        return Ok(Box::new("x"));
    }
    Ok(Box::new(n))
}

/// E56
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e56(n: u32) -> R<impl Iterator<Item = u32>> {
    Ok((0..9).filter(move |x| *x < n))
}

/// E57
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub fn e57(x: &mut u32) -> R<&mut u32> {
    Ok(x)
}

/// E75
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn e75(m: Rc<RefCell<u32>>) -> R<u32> {
    Ok(*m.borrow())
}

/// E75
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub fn e75_sync(m: Rc<RefCell<u32>>) -> R<u32> {
    Ok(*m.borrow())
}

/// E98
#[cfg_attr(feature = "lock", redis_lock(key = "k:{n:>08}", ttl = "5s", wait = "1s", renew = true))]
#[rustfmt::skip]
pub fn e98(n: u32) -> R<u32> { Ok(n) }

/// Options, each with the code that it makes.
#[cfg_attr(feature = "lock", redis_lock(key("k:{}:{n}", n + 1), on_busy = Ok(0), on_lost = finish))]
pub async fn options(n: u32) -> R<u32> {
    Ok(n)
}

/// Options, each with the code that it makes.
#[cfg_attr(
    feature = "lock",
    redis_lock(key = "k:{n}", on_error = |_| 0, release = background, reentrant)
)]
pub fn more_options(n: u32) -> u32 {
    n
}

/// Ends in `return`, as `clippy::implicit_return` wants it.
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub async fn explicit(n: u32) -> R<u32> {
    #[allow(clippy::needless_return)]
    return Ok(n);
}

/// Ends in `return`, as `clippy::implicit_return` wants it.
#[cfg_attr(feature = "lock", redis_lock(key = "k"))]
pub fn explicit_sync(n: u32) -> R<u32> {
    #[allow(clippy::needless_return)]
    return Ok(n);
}

/// Options that bind something.
#[cfg(feature = "lock")]
#[redis_lock(key = "k:{n}", fence = token, guard = lock)]
pub async fn bound(n: u32) -> R<u64> {
    lock.ensure(core::time::Duration::from_secs(u64::from(n)))?;
    Ok(token)
}

#[cfg(all(test, feature = "lock"))]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn e105_every_edition_without_std() -> R<()> {
        redis_locks::Locks::in_memory().install()?;
        assert_eq!(e01(1).await?, 2);
        assert_eq!(e02("").await?, 6);
        e05(Tx::default()).await?;
        e07(Tx::default()).await?;
        e07_sync(Tx::default())?;
        assert_eq!(e08((1, 2)).await?, 3);
        assert_eq!(e10(Ctx::default())? + e11(Ctx::default()).await?, 0);
        assert_eq!(e13("a", || 1).await?, "a1");
        assert_eq!(e16(3).await?, 3);
        let mut ctx = Ctx::default();
        *ctx.e20(1).await? += 1;
        *ctx.e20_sync()? += 1;
        assert_eq!(ctx.e32(1)? + ctx.e34(1).await?, 2);
        assert_eq!(Arc::new(ctx).e21().await?, 3);
        assert_eq!(Ctx::default().e21_mut().await?.id, 7);
        assert_eq!(e36(1).await? + e36_pinned(1).await?, 2);
        let byte = 5;
        // SAFETY: a reference can be read.
        assert_eq!(unsafe { e40(&byte).await? + e40_sync(&byte)? }, 10);
        e45().await?;
        assert_eq!(e53(9).await?, 2);
        assert_eq!(e55(1).await?.to_string(), "x");
        assert_eq!(e56(2).await?.count(), 2);
        assert_eq!(*e57(&mut 1)?, 1);
        let shared = Rc::new(RefCell::new(4));
        assert_eq!(e75(shared.clone()).await? + e75_sync(shared)?, 8);
        assert_eq!(e98(1)? + options(2).await? + more_options(3), 6);
        assert_eq!(explicit(1).await? + explicit_sync(1)?, 2);
        assert!(bound(1).await? > 0);
        Ok(())
    }
}
