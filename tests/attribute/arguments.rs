//! E01-E19: every way to write an argument.

use std::fmt::Display;

use redis_locks::redis_lock;

use crate::support::{Log, R, Watch, is_locked, locks, tick};

#[redis_lock(key = "k:{n}")]
async fn e01(mut n: u64) -> R<u64> {
    n += 1;
    Ok(n)
}

#[expect(unused_mut)]
#[redis_lock(key = "k:{n}")]
async fn e01_needless(mut n: u64) -> R<u64> {
    Ok(n)
}

#[tokio::test]
async fn e01_mut_argument() -> R<()> {
    locks();
    assert_eq!(e01(1).await?, 2);
    assert_eq!(e01_needless(1).await?, 1);
    Ok(())
}

#[redis_lock(key = "k")]
async fn e02(mut arg: &str) -> R<usize> {
    let local = String::from("longer");
    if arg.is_empty() {
        arg = &local;
    }
    Ok(arg.len())
}

#[tokio::test]
async fn e02_argument_reassigned_to_a_local_borrow() -> R<()> {
    locks();
    assert_eq!(e02("").await?, 6);
    Ok(())
}

#[redis_lock(key = "order:{id}")]
async fn e03(id: u64) -> R<()> {
    Ok(())
}

#[redis_lock(key = "order:{id}:{place.0}")]
fn e03_sync(id: u64, place: (u8, u8)) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e03_argument_used_only_in_the_key() -> R<()> {
    locks();
    e03(1).await?;
    e03_sync(1, (2, 3))
}

#[expect(unused_variables)]
#[redis_lock(key = "k")]
async fn e04(id: u64) -> R<()> {
    Ok(())
}

#[expect(unused_variables)]
#[redis_lock(key = "k")]
fn e04_sync(id: u64) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e04_argument_used_nowhere_is_still_reported() -> R<()> {
    locks();
    e04(1).await?;
    e04_sync(1)
}

#[redis_lock(key = "e05")]
async fn e05(_: Watch) -> R<()> {
    Ok(())
}

#[redis_lock(key = "e05s")]
fn e05_sync(_: Watch) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e05_wildcard_argument_drops_before_the_release() -> R<()> {
    let log = Log::default();
    e05(log.watch("wildcard", "e05")).await?;
    e05_sync(log.watch("wildcard", "e05s"))?;
    assert_eq!(log.lines(), ["wildcard locked", "wildcard locked"]);
    Ok(())
}

#[redis_lock(key = "e07")]
async fn e07(_tx: Watch) -> R<()> {
    Ok(())
}

#[tokio::test]
async fn e07_underscore_named_argument_drops_before_the_release() -> R<()> {
    let log = Log::default();
    e07(log.watch("tx", "e07")).await?;
    assert_eq!(log.lines(), ["tx locked"]);
    Ok(())
}

#[redis_lock(key = "k:{a}:{b}")]
async fn e08((a, b): (u32, u32)) -> R<u32> {
    Ok(a + b)
}

#[redis_lock(key = "k:{a}")]
async fn e08_mut((mut a, b): (u32, u32)) -> R<u32> {
    a += b;
    Ok(a)
}

#[redis_lock(key = "k:{a}:{b}")]
fn e08_slice([a, .., b]: [u32; 4]) -> R<u32> {
    Ok(a + b)
}

#[redis_lock(key = "k:{a}:{all.1}")]
async fn e08_whole(all @ (a, _): (u32, u32)) -> R<(u32, u32)> {
    Ok((a + all.0, all.1))
}

#[redis_lock(key = "k:{id}")]
async fn e08_reference(&id: &u32) -> R<u32> {
    Ok(id)
}

#[redis_lock(key = "k:{s}")]
async fn e08_by_ref(ref s: String) -> R<usize> {
    tick().await;
    Ok(s.len())
}

#[tokio::test]
async fn e08_tuple_pattern() -> R<()> {
    locks();
    assert_eq!(e08((1, 2)).await?, 3);
    assert_eq!(e08_mut((1, 2)).await?, 3);
    assert_eq!(e08_slice([1, 2, 3, 4])?, 5);
    assert_eq!(e08_whole((1, 2)).await?, (2, 2));
    assert_eq!(e08_reference(&3).await?, 3);
    assert_eq!(e08_by_ref("abc".into()).await?, 3);
    Ok(())
}

struct OrderId(u32);

#[redis_lock(key = "k:{id}")]
async fn e09(OrderId(id): OrderId) -> R<u32> {
    Ok(id)
}

#[tokio::test]
async fn e09_newtype_pattern() -> R<()> {
    locks();
    assert_eq!(e09(OrderId(4)).await?, 4);
    Ok(())
}

struct Ctx {
    id: u32,
    #[expect(dead_code)]
    tx: Watch,
}

#[redis_lock(key = "e10:{id}")]
async fn e10(Ctx { id, .. }: Ctx) -> R<u32> {
    Ok(id)
}

#[redis_lock(key = "e10:{id}")]
fn e10_sync(Ctx { id, .. }: Ctx) -> R<u32> {
    Ok(id)
}

#[tokio::test]
async fn e10_what_a_pattern_leaves_behind_drops_before_the_release() -> R<()> {
    let log = Log::default();
    e10(Ctx { id: 1, tx: log.watch("tx", "e10:1") }).await?;
    e10_sync(Ctx { id: 2, tx: log.watch("tx", "e10:2") })?;
    assert_eq!(log.lines(), ["tx locked", "tx locked"]);
    Ok(())
}

#[redis_lock(key = "e11")]
async fn e11(c: Ctx) -> R<u32> {
    Ok(c.id)
}

#[redis_lock(key = "e11s")]
fn e11_sync(c: Ctx) -> R<u32> {
    Ok(c.id)
}

impl Ctx {
    #[redis_lock(key = "e11m")]
    async fn e11_self(self) -> R<u32> {
        Ok(self.id)
    }
}

#[tokio::test]
async fn e11_disjoint_capture_takes_the_whole_argument_inside() -> R<()> {
    let log = Log::default();
    e11(Ctx { id: 1, tx: log.watch("tx", "e11") }).await?;
    e11_sync(Ctx { id: 1, tx: log.watch("tx", "e11s") })?;
    Ctx { id: 1, tx: log.watch("tx", "e11m") }.e11_self().await?;
    assert_eq!(log.lines(), ["tx locked", "tx locked", "tx locked"]);
    Ok(())
}

#[redis_lock(key = "e12")]
async fn e12(_a: Watch, _: Watch, b: Watch, log: Log) -> R<()> {
    drop(b);
    log.add("body");
    Ok(())
}

#[tokio::test]
async fn e12_several_arguments_drop_in_the_order_of_the_plain_function() -> R<()> {
    async fn plain(_a: Watch, _: Watch, b: Watch, log: Log) -> R<()> {
        drop(b);
        log.add("body");
        Ok(())
    }
    let (log, plainly) = (Log::default(), Log::default());
    let [a, b, c] = ["a", "wildcard", "b"].map(|name| log.watch(name, "e12"));
    e12(a, b, c, log.clone()).await?;
    assert_eq!(log.lines(), ["b locked", "body", "wildcard locked", "a locked"]);
    let [a, b, c] = ["a", "wildcard", "b"].map(|name| plainly.watch(name, "nothing"));
    plain(a, b, c, plainly.clone()).await?;
    let names = |log: &Log| -> Vec<String> {
        log.lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&log), names(&plainly));
    Ok(())
}

#[redis_lock(key = "k")]
async fn e13(t: impl Display + Send, g: impl FnOnce() -> u32) -> R<String> {
    Ok(format!("{t}{}", g()))
}

#[redis_lock(key = "k:{name}")]
async fn e13_more(
    name: &str,
    pick: impl for<'a> Fn(&'a str) -> &'a str,
    shown: &(dyn Display + Sync),
) -> R<String> {
    Ok(format!("{}{shown}", pick(name)))
}

#[tokio::test]
async fn e13_impl_trait_argument() -> R<()> {
    locks();
    assert_eq!(e13("a", || 1).await?, "a1");
    assert_eq!(e13_more("ab", |s| &s[1..], &2).await?, "b2");
    Ok(())
}

#[redis_lock(key = "k:{n}:{here}")]
async fn e14(n: u32, #[cfg(any())] gone: u32, #[cfg(test)] here: u32) -> R<u32> {
    Ok(n + here)
}

#[redis_lock(key = "k:{n}:{gone}")]
fn e14_in_the_key(n: u32, #[cfg(any())] gone: String, #[cfg(test)] gone: u32) -> R<u32> {
    Ok(n + gone)
}

#[tokio::test]
async fn e14_cfg_on_an_argument() -> R<()> {
    locks();
    assert_eq!(e14(1, 2).await?, 3);
    assert_eq!(e14_in_the_key(1, 2)?, 3);
    Ok(())
}

#[redis_lock(key = "k:{key}", guard = lock)]
async fn e15(key: u32, guard: u32, out: u32, __key: u32, __scope: u32, __body: u32) -> R<u32> {
    assert!(lock.is_held());
    Ok(key + guard + out + __key + __scope + __body)
}

#[tokio::test]
async fn e15_arguments_named_like_internals() -> R<()> {
    locks();
    assert_eq!(e15(1, 2, 3, 4, 5, 6).await?, 21);
    Ok(())
}

#[redis_lock(key = "k:{type}:{größe}", guard = lock)]
async fn e16(r#type: u32, größe: u32) -> R<String> {
    assert_eq!(r#type + größe, 3);
    Ok(lock.key().into())
}

#[redis_lock(key = "k:{type.0}", guard = lock)]
fn e16_path(r#type: (u32,)) -> R<String> {
    Ok(lock.key().into())
}

#[tokio::test]
async fn e16_raw_and_non_ascii_names() -> R<()> {
    locks();
    assert_eq!(e16(1, 2).await?, "k:1:2");
    assert_eq!(e16_path((5,))?, "k:5");
    Ok(())
}

#[redis_lock(key = "k:{s}")]
async fn e17(s: String) -> R<String> {
    Ok(s)
}

#[tokio::test]
async fn e17_moved_by_the_body() -> R<()> {
    locks();
    assert_eq!(e17("moved".into()).await?, "moved");
    assert!(!is_locked("k:moved"));
    Ok(())
}

#[redis_lock(key = "e19")]
async fn e19(a: [u8; 4096]) -> R<u8> {
    tick().await;
    Ok(a[7])
}

#[tokio::test]
async fn e19_large_by_value_argument_does_not_double_the_future() -> R<()> {
    async fn plain(a: [u8; 4096]) -> R<u8> {
        tick().await;
        Ok(a[7])
    }
    locks();
    let (ours, plainly) = (e19([1; 4096]), plain([1; 4096]));
    assert!(size_of_val(&ours) <= size_of_val(&plainly) + 1024, "{}", size_of_val(&ours));
    assert_eq!(ours.await?, plainly.await?);
    Ok(())
}

struct Name(String);

impl Name {
    fn into_text(self) -> String {
        self.0
    }
}

#[redis_lock(key("e17:{a}:{b.into_text()}", a = a.into_boxed_str()))]
async fn e17_taken_by_the_key(a: String, b: Name) -> R<bool> {
    Ok(is_locked("e17:a:b"))
}

#[tokio::test]
async fn e17_the_key_may_take_what_the_body_leaves() -> R<()> {
    locks();
    assert!(e17_taken_by_the_key("a".into(), Name("b".into())).await?);
    Ok(())
}

#[redis_lock(key = "k:{n}")]
async fn m13((ref mut text, n): (String, u32)) -> R<usize> {
    text.push('a');
    Ok(text.len() + n as usize)
}

#[redis_lock(key = "k:{n}")]
fn m13_sync((ref mut text, n): (String, u32), &mut (ref mut a, _): &mut (u32, u32)) -> R<usize> {
    text.push('a');
    *a += 1;
    Ok(text.len() + n as usize)
}

#[redis_lock(key = "k:{n}", on_error = |_| 0)]
fn m13_handled((ref mut text, n): (String, u32)) -> usize {
    text.push('a');
    text.len() + n as usize
}

#[tokio::test]
async fn m13_patterns_that_borrow_mutably() -> R<()> {
    locks();
    let mut pair = (1, 2);
    assert_eq!(m13(("b".into(), 1)).await?, 3);
    assert_eq!(m13_sync(("b".into(), 1), &mut pair)?, 3);
    assert_eq!(m13_handled(("b".into(), 1)), 3);
    assert_eq!(pair.0, 2);
    Ok(())
}

/// Arguments that only the attribute uses are used.
mod only_the_attribute {
    #![deny(unused)]

    use std::time::Duration;

    use redis_locks::{Locks, redis_lock};

    use crate::support::R;

    #[redis_lock(key = "k:{id}", via = locks, ttl = ttl, on_error = |_| 0)]
    pub(crate) fn m14(id: u32, locks: &Locks, ttl: Duration) -> u32 {
        1
    }

    #[redis_lock(key = "k:{a}", wait = wait, on_error = |_| u32::from(c))]
    pub(crate) fn m14_patterns((a, wait, c): (u32, Duration, bool)) -> u32 {
        1
    }

    #[redis_lock(keys = keys, on_busy = Ok(busy), on_error = |_| Ok(0))]
    pub(crate) fn m14_taken(keys: Vec<String>, busy: u32) -> R<u32> {
        Ok(1)
    }

    #[redis_lock(keys = keys, wait = wait, on_busy = Ok(busy), on_error = |_| Ok(0))]
    pub(crate) async fn m14_async(keys: Vec<String>, busy: u32, wait: Duration) -> R<u32> {
        Ok(1)
    }
}

#[tokio::test]
async fn m14_arguments_that_only_the_attribute_uses_with_a_handler() -> R<()> {
    let second = std::time::Duration::from_secs(1);
    assert_eq!(only_the_attribute::m14(1, locks(), second), 1);
    assert_eq!(only_the_attribute::m14_patterns((1, second, true)), 1);
    assert_eq!(only_the_attribute::m14_taken(vec!["a".into()], 2)?, 1);
    assert_eq!(only_the_attribute::m14_async(vec!["a".into()], 2, second).await?, 1);
    Ok(())
}
