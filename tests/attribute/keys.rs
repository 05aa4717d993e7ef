//! E80-E87 and E95: what a key may look like.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis_locks::{KeySegment, LockError, SegmentWriter, redis_lock};

use crate::support::{R, is_locked, locks, tick};

#[redis_lock(key = "k:{id:>08}:{id:width$}:{id:<5}:{name:>5}:{name:^5}|", guard = lock)]
async fn e80(id: i32, width: usize, name: &str) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key("k:{:1$}:{n:w$}", id, 4, n = id + 1, w = 3), guard = lock)]
fn e80_tokens(id: u8) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e80_format_specs() -> R<()> {
    locks();
    assert_eq!(e80(-42, 4, "ab").await?, "k:-0000042: -42:-42  :   ab: ab  |");
    assert_eq!(e80_tokens(7)?, "k:   7:  8");
    Ok(())
}

#[redis_lock(key = r#"{{lit}}:"{id}""#, guard = lock)]
async fn e81(id: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key = "\u{1F600}\t{{}}:\
                    {id.0}", guard = lock)]
fn e81_sugar(id: (u32,)) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key = "{{constant}}", guard = lock)]
fn e81_constant() -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e81_escapes() -> R<()> {
    locks();
    assert_eq!(e81(1).await?, "{lit}:\"1\"");
    assert_eq!(e81_sugar((1,))?, "\u{1F600}\t{}:1");
    assert_eq!(e81_constant()?, "{constant}");
    Ok(())
}

const TENANT: &str = "acme";
static REGION: &str = "eu";

#[redis_lock(key = "k:{TENANT}:{REGION}:{n}", guard = lock)]
async fn e82(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e82_constants_and_statics() -> R<()> {
    locks();
    assert_eq!(e82(1).await?, "k:acme:eu:1");
    Ok(())
}

#[redis_lock(key = "e83:{id}", guard = lock)]
async fn e83(id: u32) -> R<(String, &'static str)> {
    let id = if id == 1 { "shadowed" } else { "other" };
    Ok((lock.key().into(), id))
}

#[tokio::test]
async fn e83_name_shadowed_in_the_body() -> R<()> {
    locks();
    assert_eq!(e83(1).await?, ("e83:1".into(), "shadowed"));
    Ok(())
}

static NEXT: AtomicU32 = AtomicU32::new(1);

fn next() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[redis_lock(key("k:{}", next()), guard = lock)]
async fn e84() -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e84_evaluated_once() -> R<()> {
    locks();
    assert_eq!(e84().await?, "k:1");
    assert_eq!(NEXT.load(Ordering::Relaxed), 2);
    Ok(())
}

fn id(ok: bool) -> R<u32> {
    if ok { Ok(5) } else { Err(LockError::NotConfigured) }
}

#[redis_lock(key("k:{}:{n}", id(n > 0)?), guard = lock)]
async fn e85(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key("k:{}", id(n > 0)?), guard = lock)]
fn e85_sync(n: u32) -> R<String> {
    Ok(lock.key().into())
}

async fn later(n: u32) -> u32 {
    tick().await;
    n + 1
}

#[redis_lock(key("k:{}:{n}", later(n).await), guard = lock)]
async fn e85_await(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e85_question_mark_and_await_in_key_arguments() -> R<()> {
    locks();
    assert_eq!(e85(1).await?, "k:5:1");
    assert!(matches!(e85(0).await, Err(LockError::NotConfigured)));
    assert!(matches!(e85_sync(0), Err(LockError::NotConfigured)));
    assert_eq!(tokio::spawn(e85_await(1)).await.unwrap()?, "k:2:1");
    Ok(())
}

#[redis_lock(key = "{a}:{b}", guard = lock)]
async fn e86(a: &str, b: &str) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e86_separator_inside_a_value() -> R<()> {
    locks();
    let (one, other) = (e86("x:y", "z").await?, e86("x", "y:z").await?);
    assert_eq!((one.as_str(), other.as_str()), ("x%3Ay:z", "x:y%3Az"));
    Ok(())
}

#[redis_lock(key = "global")]
async fn e87() -> R<bool> {
    Ok(is_locked("global"))
}

#[redis_lock(key = "k:{name}")]
async fn e87_value(name: &str) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e87_no_placeholder_is_a_global_lock_and_an_empty_value_is_invalid() -> R<()> {
    locks();
    assert!(e87().await?);
    let error = e87_value("").await.unwrap_err();
    assert!(matches!(&error, LockError::InvalidKey { key, .. } if key == "k:"), "{error}");
    let error = e87_value(&"x".repeat(4095)).await.unwrap_err();
    assert!(matches!(&error, LockError::InvalidKey { .. }), "{error}");
    e87_value(&"x".repeat(4094)).await
}

struct User {
    id: u64,
    at: (String, Vec<u8>),
}

impl User {
    fn region(&self) -> &str {
        "eu-1"
    }
}

#[redis_lock(key = "u:{user.id:04}:{user.at.0}:{user.region()}:{user.at.1.len()}:{n}", guard = lock)]
async fn dotted(user: &User, n: u8) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e78_fields_and_methods_in_the_string() -> R<()> {
    locks();
    let user = User { id: 7, at: ("a/b".into(), vec![1, 2]) };
    assert_eq!(dotted(&user, 1).await?, "u:0007:a%2Fb:eu-1:2:1");
    Ok(())
}

struct OrderId(u64);

impl KeySegment for OrderId {
    fn write_segment(&self, out: &mut SegmentWriter<'_>) -> fmt::Result {
        self.0.write_segment(out)
    }
}

#[redis_lock(key = "{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}", guard = lock)]
#[expect(clippy::too_many_arguments)]
async fn typed(
    a: Arc<str>,
    b: &&String,
    c: Box<OrderId>,
    d: char,
    e: Cow<'_, str>,
    f: NonZero<u8>,
    g: bool,
    h: i128,
) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn what_a_key_may_hold() -> R<()> {
    locks();
    let f = NonZero::<u8>::MIN;
    let b = &"b".to_owned();
    let key = typed("a".into(), &b, OrderId(3).into(), '/', "e".into(), f, true, -1);
    assert_eq!(key.await?, "a/b/3/%2F/e/1/true/-1");
    Ok(())
}

#[redis_lock(key = "e95")]
async fn e95() -> R<()> {
    Ok(())
}

#[redis_lock(key("e95:{n}", n = n,),)]
async fn e95_arguments(n: u32) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e95_trailing_comma() -> R<()> {
    locks();
    e95().await?;
    e95_arguments(1).await
}

/// The result of asking for an id.
macro_rules! asked {
    ($ok:expr) => {
        if $ok { 5 } else { return Err(LockError::NotConfigured) }
    };
}

#[redis_lock(key("k:{}", asked!(n > 0)), ttl = std::time::Duration::from_secs(id(n < 9)?.into()), guard = lock)]
async fn m11(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key("k:{}", asked!(n > 0)), wait = if n > 8 { return Err(LockError::Shutdown) } else { std::time::Duration::from_secs(1) }, guard = lock)]
fn m11_sync(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(keys = vec![format!("k:{}", later(names.len() as u32).await)], on_error = |_| String::new(), guard = lock)]
async fn m11_handled(names: Vec<String>) -> String {
    format!("{} {}", lock.key(), names.concat())
}

#[redis_lock(key("k:{}", id(n > 0)?))]
fn m11_opaque(n: u32) -> R<impl Iterator<Item = u32>> {
    Ok(0..n)
}

#[redis_lock(key = "k", wait = { if n == 0 { return Err("none".into()) } std::time::Duration::from_secs(1) })]
async fn m11_own_error(n: u32) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    Ok(n)
}

#[tokio::test]
async fn m11_only_an_error_leaves_a_function_before_its_lock() -> R<()> {
    locks();
    assert_eq!(m11(1).await?, "k:5");
    assert!(matches!(m11(0).await, Err(LockError::NotConfigured)));
    assert!(matches!(tokio::spawn(m11(9)).await.unwrap(), Err(LockError::NotConfigured)));
    assert_eq!(m11_sync(1)?, "k:5");
    assert!(matches!(m11_sync(0), Err(LockError::NotConfigured)));
    assert!(matches!(m11_sync(9), Err(LockError::Shutdown)));
    assert_eq!(m11_opaque(3)?.count(), 3);
    assert!(m11_opaque(0).is_err());
    assert_eq!(m11_own_error(0).await.unwrap_err().to_string(), "none");
    assert_eq!(m11_own_error(2).await.unwrap(), 2);
    let handled = tokio::spawn(m11_handled(vec!["a".into()])).await.unwrap();
    assert_eq!(handled, "k:2 a");
    Ok(())
}

#[redis_lock(key("k:{t}", t = tokio::join!(later(n)).0), guard = lock)]
async fn m11_awaited_by_a_macro(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key("k:{t}", t = runtime().block_on(async { R::Ok(later(id(n > 0)?).await) })?), guard = lock)]
fn m11_async_block_of_its_own(n: u32) -> R<String> {
    Ok(lock.key().into())
}

#[redis_lock(key("k:{t}", t = (|| Some(name?.len()))().unwrap_or(0)), on_error = |_| String::new(), guard = lock)]
async fn m11_closure_of_its_own(name: Option<&str>) -> String {
    lock.key().into()
}

#[redis_lock(keys = vec![format!("k:{}", (|| Some(name?.len()))().unwrap_or(0))], on_error = |_| String::new(), guard = lock)]
async fn m11_closure_in_a_macro(name: Option<&str>) -> String {
    lock.key().into()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn m11_a_blocking_function_may_await_in_an_async_block_of_its_own() -> R<()> {
    locks();
    assert_eq!(m11_async_block_of_its_own(1)?, "k:6");
    assert!(matches!(m11_async_block_of_its_own(0), Err(LockError::NotConfigured)));
    Ok(())
}

#[tokio::test]
async fn m11_closures_and_macros_of_an_option_fail_and_await_by_themselves() -> R<()> {
    locks();
    assert_eq!(m11_awaited_by_a_macro(3).await?, "k:4");
    assert_eq!(m11_closure_of_its_own(Some("ab")).await, "k:2");
    assert_eq!(m11_closure_in_a_macro(None).await, "k:0");
    Ok(())
}
