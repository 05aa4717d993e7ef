//! E53-E68: return types and control flow.

use std::error::Error;
use std::fmt::{self, Display};
use std::future::{Ready, ready};
use std::sync::Arc;

use redis_locks::{LockError, redis_lock};

use crate::support::{R, is_locked, locks, tick};

#[redis_lock(key = "e53:{n}")]
async fn e53(n: u32) -> Result<u32, Box<dyn Error + Send + Sync>> {
    if n == 0 {
        return Err("zero".into());
    }
    tick().await;
    let n: u32 = n.to_string().repeat(6).parse::<u8>().map(u32::from)?;
    Ok(n)
}

#[redis_lock(key = "e53:{n}")]
fn e53_blocks(n: u32) -> R<u32> {
    let found = 'search: {
        if n > 1 {
            break 'search n;
        }
        return Ok(0);
    };
    Ok(found)
}

#[tokio::test]
async fn e53_early_return_and_question_mark_release() -> R<()> {
    locks();
    assert_eq!(e53(0).await.unwrap_err().to_string(), "zero");
    assert!(!is_locked("e53:0"));
    assert!(e53(7).await.is_err());
    assert!(!is_locked("e53:7"));
    assert_eq!((e53_blocks(1)?, e53_blocks(2)?), (0, 2));
    assert!(!is_locked("e53:1") && !is_locked("e53:2"));
    Ok(())
}

#[redis_lock(key = "k")]
async fn e54(s: &str) -> Result<u32, Box<dyn Error + Send + Sync>> {
    Ok(s.parse()?)
}

#[redis_lock(key = "k")]
fn e54_sync(s: &str) -> anyhow::Result<u32> {
    Ok(s.parse()?)
}

#[tokio::test]
async fn e54_error_type_of_question_mark_is_inferred() {
    locks();
    assert_eq!(e54("5").await.unwrap(), 5);
    assert!(e54_sync("x").is_err());
}

#[redis_lock(key = "k")]
async fn e55(n: u32) -> R<Box<dyn Display + Send>> {
    if n == 1 {
        return Ok(Box::new("one"));
    }
    Ok(Box::new(n))
}

#[redis_lock(key = "k")]
fn e55_sync(n: u32) -> R<Box<dyn Display + Send>> {
    if n == 1 {
        return Ok(Box::new("one"));
    }
    Ok(Box::new(n))
}

#[redis_lock(key = "k")]
async fn e55_deref(s: &String) -> Result<&str, LockError> {
    if s.is_empty() {
        return Ok("none");
    }
    Ok(s)
}

#[tokio::test]
async fn e55_coercions_in_tail_and_return() -> R<()> {
    locks();
    assert_eq!(format!("{}{}", e55(1).await?, e55(2).await?), "one2");
    assert_eq!(format!("{}{}", e55_sync(1)?, e55_sync(2)?), "one2");
    assert_eq!(e55_deref(&"a".to_owned()).await?, "a");
    Ok(())
}

#[redis_lock(key = "k")]
async fn e56(n: u32) -> R<impl Iterator<Item = u32>> {
    Ok((0..9).filter(move |x| *x < n))
}

#[redis_lock(key = "k")]
fn e56_sync(n: u32) -> R<impl Iterator<Item = u32> + use<>> {
    Ok((0..9).filter(move |x| *x < n))
}

#[redis_lock(key = "k", on_error = |_| 0)]
fn e56_bare(n: u32) -> impl Display {
    n
}

#[tokio::test]
async fn e56_impl_trait_inside_the_return_type() -> R<()> {
    locks();
    assert_eq!(e56(2).await?.count() + e56_sync(3)?.count(), 5);
    assert_eq!(e56_bare(4).to_string(), "4");
    Ok(())
}

#[redis_lock(key = "k")]
fn e57(x: &mut u32) -> R<&mut u32> {
    Ok(x)
}

#[redis_lock(key = "k")]
async fn e57_async(x: &mut u32) -> R<&mut u32> {
    Ok(x)
}

#[tokio::test]
async fn e57_returned_borrow_of_a_mutable_reference() -> R<()> {
    locks();
    let mut x = 1;
    *e57(&mut x)? += 1;
    *e57_async(&mut x).await? += 1;
    assert_eq!(x, 3);
    Ok(())
}

#[redis_lock(key = "k")]
async fn e61() -> R<Vec<u32>> {
    fn nested(x: u32) -> u32 {
        if x == 2 {
            return 9;
        }
        x
    }
    let Some(three) = Some(3).filter(|x| *x > 2) else { return Ok(vec![]) };
    Ok((0..three)
        .map(|x| {
            if x == 1 {
                return 7;
            }
            nested(x)
        })
        .collect())
}

#[tokio::test]
async fn e61_return_in_closures_and_nested_functions() -> R<()> {
    locks();
    assert_eq!(e61().await?, [0, 7, 9]);
    Ok(())
}

type Aliased<T, E = Box<dyn Error + Send + Sync>> = Result<T, E>;

#[redis_lock(key = "k")]
async fn e65() -> Aliased<u32> {
    Ok(1)
}

#[derive(Debug)]
enum AppError {
    Lock(LockError),
    Own,
}

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Own => f.write_str("own"),
        }
    }
}

#[redis_lock(key = "k:{own}")]
async fn e65_own(own: bool) -> Aliased<u32, AppError> {
    if own { Err(AppError::Own) } else { Ok(1) }
}

#[redis_lock(key = "k")]
async fn e65_generic<T, E: From<LockError>>(n: T) -> Result<T, E> {
    Ok(n)
}

#[tokio::test]
async fn e65_aliases_are_judged_by_type() {
    locks();
    assert_eq!(e65().await.unwrap(), 1);
    assert_eq!(e65_own(true).await.unwrap_err().to_string(), "own");
    assert_eq!(e65_own(false).await.unwrap(), 1);
    assert_eq!(e65_generic::<_, AppError>(2).await.unwrap(), 2);
}

#[redis_lock(key = "e67:{n}")]
async fn e67(n: u32) -> R<u32> {
    if n == 0 {
        return Ok(0);
    }
    Ok(Box::pin(e67(n - 1)).await? + 1)
}

#[tokio::test]
async fn e67_async_recursion_under_different_keys() -> R<()> {
    locks();
    assert_eq!(e67(3).await?, 3);
    Ok(())
}

#[redis_lock(key = "k")]
async fn e68() -> R<Ready<u32>> {
    Ok(ready(1))
}

#[tokio::test]
async fn e68_returned_future() -> R<()> {
    locks();
    assert_eq!(e68().await?.await, 1);
    Ok(())
}

/// Two levels of `impl`, one of them in the arguments of a trait.
#[redis_lock(key = "k")]
async fn m10_nested() -> R<impl Iterator<Item = impl Display>> {
    Ok(["a", "b"].into_iter())
}

#[redis_lock(key = "k", on_error = |error| panic!("{error}"))]
fn m10_nested_bare() -> (impl Iterator<Item = impl Display>, u32) {
    if false {
        return (["c"].into_iter(), 0);
    }
    (["d"].into_iter(), 1)
}

#[tokio::test]
async fn m10_impl_trait_inside_associated_types() -> R<()> {
    locks();
    assert_eq!(m10_nested().await?.map(|it| it.to_string()).collect::<String>(), "ab");
    assert_eq!(m10_nested_bare().0.map(|it| it.to_string()).collect::<String>(), "d");
    Ok(())
}

#[redis_lock(key = "k", on_error = |_| (None, Vec::new()))]
fn no_future_inside<T: Default>() -> (Option<Box<T>>, Vec<std::pin::Pin<Box<T>>>) {
    (Some(Box::default()), Vec::new())
}

#[redis_lock(key = "k", on_error = Err)]
fn m12_shown(id: u64) -> R<impl Display> {
    if id == 0 {
        return Err(LockError::Shutdown);
    }
    Ok(id)
}

#[redis_lock(key = "k", on_error = |_| None)]
fn m12_several(id: u64) -> Option<impl Iterator<Item = u64>> {
    Some([id].into_iter())
}

#[test]
fn m12_impl_trait_inside_a_value_is_a_value() {
    locks();
    assert_eq!(m12_shown(1).unwrap().to_string(), "1");
    assert!(matches!(m12_shown(0).map(|it| it.to_string()), Err(LockError::Shutdown)));
    assert_eq!(m12_several(2).unwrap().sum::<u64>(), 2);
}

type Job = Box<dyn FnOnce() -> u32 + Send>;

#[redis_lock(key = "k")]
fn m12_job() -> R<(Option<Job>, [Job; 1])> {
    Ok((None, [Box::new(|| 1)]))
}

#[redis_lock(key = "k")]
fn m12_generic<T, I: Iterator<Item = T>>(mut it: I) -> R<(Box<I::Item>, Arc<T>)> {
    let mut next = || it.next().ok_or(LockError::Shutdown);
    Ok((Box::new(next()?), Arc::new(next()?)))
}

#[redis_lock(key = "k", on_error = |_| panic!("no lock"))]
fn m12_task() -> (tokio::task::JoinHandle<u32>, u32) {
    (tokio::spawn(async { 2 }), 1)
}

#[tokio::test]
async fn m12_what_is_no_future_may_stand_anywhere_in_a_value() -> R<()> {
    locks();
    let (_, [job]) = m12_job()?;
    assert_eq!(job(), 1);
    assert_eq!(m12_generic([1, 2].into_iter())?, (Box::new(1), Arc::new(2)));
    assert_eq!(m12_task().0.await.unwrap(), 2);
    Ok(())
}

#[test]
fn m12_values_without_a_future_inside_are_values() {
    locks();
    assert_eq!(no_future_inside::<u32>().0, Some(Box::new(0)));
}
