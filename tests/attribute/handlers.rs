//! What `on_error`, `on_busy` and `via` may be, and what they see.

use std::sync::Arc;

use redis_locks::{LockError, Locks, redis_lock};

use crate::support::{R, locks, until_free};

struct Path<T>(T);

struct Order<'a> {
    id: u32,
    owner: &'a str,
    _lines: Vec<u32>,
}

#[redis_lock(key = "handler:{id}", wait = "none", on_error = |_| format!("{id} is busy"))]
async fn destructured(Path(id): Path<u64>) -> String {
    format!("{id} done")
}

#[redis_lock(key = "handler:{id}", wait = "none", on_busy = format!("{owner} waits for {id}"), on_error = |error| {
    let _ = error;
    owner.to_owned()
})]
async fn fields(Order { id, owner, .. }: Order<'_>, (a, &b): (u32, &u32)) -> String {
    format!("{owner} {id} {a} {b}")
}

#[redis_lock(key = "handler:{id}", wait = "none", on_error = |_| format!("{id} is busy"))]
fn blocking(Path(id): Path<u64>, mut names: Vec<String>) -> String {
    names.push(format!("{id} done"));
    names.concat()
}

#[redis_lock(key = "handler:{n}", wait = "none", on_error = |_| -1)]
fn mutable(mut n: i32, (mut a, ref b): (i32, String)) -> i32 {
    n += 1;
    a += n;
    a + b.len() as i32
}

#[tokio::test]
async fn m07_on_error_sees_destructured_arguments() -> R<()> {
    let held = locks().mutex("handler:7").acquire().await?;
    assert_eq!(destructured(Path(7)).await, "7 is busy");
    assert_eq!(blocking(Path(7), vec![]), "7 is busy");
    let order = Order { id: 7, owner: "eve", _lines: vec![] };
    assert_eq!(fields(order, (1, &2)).await, "eve waits for 7");
    assert_eq!(mutable(7, (1, "ab".into())), -1);
    held.release().await?;
    assert_eq!(destructured(Path(7)).await, "7 done");
    assert_eq!(blocking(Path(7), vec![]), "7 done");
    let order = Order { id: 7, owner: "eve", _lines: vec![] };
    assert_eq!(fields(order, (1, &2)).await, "eve 7 1 2");
    assert_eq!(mutable(7, (1, "ab".into())), 11);
    until_free("handler:7").await;
    Ok(())
}

#[derive(Default)]
struct Counter {
    done: u32,
    failed: u32,
    names: Vec<String>,
}

impl Counter {
    fn fail(&mut self) -> u32 {
        self.failed += 1;
        self.failed
    }

    #[redis_lock(key = "mutable", wait = "none", on_error = |_| self.fail())]
    async fn count(&mut self, name: String) -> u32 {
        self.done += 1;
        self.names.push(name);
        self.done + 10
    }

    #[redis_lock(key = "mutable", wait = "none", on_error = |_| self.fail())]
    fn count_blocking(&mut self, name: String) -> u32 {
        self.done += 1;
        self.names.push(name);
        self.done + 10
    }
}

#[redis_lock(key = "mutable", wait = "none", on_error = |_| { log.push(by); false })]
async fn logged(log: &mut Vec<u32>, by: u32) -> bool {
    log.push(0);
    true
}

#[tokio::test]
async fn m07_on_error_uses_what_is_behind_a_mutable_reference() -> R<()> {
    let held = locks().mutex("mutable").acquire().await?;
    let (mut counter, mut log) = (Counter::default(), vec![]);
    assert_eq!(counter.count("a".into()).await, 1);
    assert_eq!(counter.count_blocking("b".into()), 2);
    assert!(!logged(&mut log, 5).await);
    held.release().await?;
    assert_eq!(counter.count("c".into()).await, 11);
    assert_eq!(counter.count_blocking("d".into()), 12);
    assert!(logged(&mut log, 6).await);
    assert_eq!((counter.names.concat(), log), ("cd".into(), vec![5, 0]));
    until_free("mutable").await;
    Ok(())
}

#[redis_lock(key = "via:{first}", via = if first { a } else { b })]
async fn chosen(first: bool, a: &Locks, b: &Locks) -> R<bool> {
    let _ = b;
    Ok(matches!(a.mutex("via:true").no_wait().acquire().await, Err(LockError::Reentrant { .. })))
}

#[redis_lock(key = "via:m", via = match n { 0 => &shared, _ => &*shared })]
fn matched(n: u32, shared: Arc<Locks>) -> R<u32> {
    Ok(n)
}

async fn pool() -> Arc<Locks> {
    Arc::new(locks().clone())
}

#[redis_lock(key = "via:w", via = pool().await)]
async fn awaited() -> R<u32> {
    Ok(3)
}

#[redis_lock(key = "via:b", via = { let chosen: &Locks = locks; chosen })]
fn block(locks: &Locks) -> R<u32> {
    Ok(4)
}

#[tokio::test]
async fn m06_via_is_any_expression_that_leads_to_locks() -> R<()> {
    let other = Locks::in_memory();
    let held = other.mutex("via:false").acquire().await?;
    assert!(chosen(true, &other, locks()).await?);
    assert!(!chosen(false, &other, locks()).await?);
    assert_eq!(matched(1, Arc::new(other.clone()))?, 1);
    assert_eq!(awaited().await?, 3);
    assert_eq!(block(&other)?, 4);
    held.release().await
}

macro_rules! locked {
    ($name:ident, $id:ident, $key:literal, $ttl:literal, $renew:literal) => {
        #[redis_lock(keys = [$key], ttl = $ttl, renew = $renew, guard = lock)]
        async fn $name($id: u32) -> R<String> {
            let _ = $id;
            Ok(lock.key().into())
        }
    };
}

locked!(fragments, id, "ka:{id}", "30s", false);

#[tokio::test]
async fn m04_m05_literals_from_macros_are_templates_and_durations() -> R<()> {
    locks();
    assert_eq!(fragments(7).await?, "ka:7");
    Ok(())
}

#[redis_lock(key = "k", on_error = |error: LockError| usize::from(error.is_busy()))]
fn typed() -> usize {
    7
}

#[test]
fn a_handler_may_name_the_type_of_the_error() {
    locks();
    assert_eq!(typed(), 7);
}

struct Word<'a> {
    text: &'a str,
    length: usize,
}

#[redis_lock(key = "handler:{length}", wait = "none", on_error = |_| (*length, length))]
async fn behind_a_reference<'a>(Word { length, .. }: &'a Word<'_>) -> (usize, &'a usize) {
    (*length + 1, length)
}

#[redis_lock(key = "handler:{length}", wait = "none", on_error = |_| (*length, *text))]
fn inside_a_tuple<'a>((Word { length, text }, _): (&Word<'a>, String)) -> (usize, &'a str) {
    (*length + 1, text)
}

#[redis_lock(key = "handler:{a}", wait = "none", on_error = |_| *a)]
async fn by_ref((ref a, ref mut names): (usize, Vec<String>)) -> usize {
    names.push(String::new());
    *a + names.len()
}

#[redis_lock(key = "handler:{length}", wait = "none", on_error = |_| *length)]
fn behind_a_mutable_reference(Word { length, .. }: &mut Word<'_>) -> usize {
    *length += 1;
    *length
}

#[tokio::test]
async fn m13_on_error_sees_arguments_as_the_body_does() -> R<()> {
    let held = locks().mutex("handler:4").acquire().await?;
    let mut word = Word { text: "word", length: 4 };
    assert_eq!(behind_a_reference(&word).await, (4, &4));
    assert_eq!(inside_a_tuple((&word, String::new())), (4, "word"));
    assert_eq!(by_ref((4, vec![])).await, 4);
    assert_eq!(behind_a_mutable_reference(&mut word), 4);
    held.release().await?;
    assert_eq!(behind_a_reference(&word).await, (5, &4));
    assert_eq!(inside_a_tuple((&word, String::new())), (5, "word"));
    assert_eq!(by_ref((4, vec![])).await, 5);
    assert_eq!(behind_a_mutable_reference(&mut word), 5);
    until_free("handler:4").await;
    Ok(())
}
