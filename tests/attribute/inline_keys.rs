//! `key!`: the keys of the attribute, as values.

use redis_locks::{KeySegment, LockError, LockKey, Locks, key, redis_lock};

use crate::support::{R, locks};

const TENANT: &str = "acme:eu";

#[derive(KeySegment)]
struct Shelf {
    warehouse: String,
    number: u32,
}

#[redis_lock(key = "user:{name}:{TENANT}:{shelf}:{id:04}", guard = lock)]
fn locked(name: &str, shelf: &Shelf, id: u32) -> R<String> {
    Ok(lock.key().into())
}

#[test]
fn it_is_what_the_attribute_locks() -> R<()> {
    locks();
    for name in ["ab", "a:b", "größe", "50%", "a b", "ü", "\u{1F600}"] {
        let (shelf, id) = (Shelf { warehouse: name.into(), number: 7 }, 3);
        let key = key!("user:{name}:{TENANT}:{shelf}:{id:04}")?;
        assert_eq!(key.as_str(), locked(name, &shelf, id)?);
    }
    assert_eq!(key!("user:{}", "ö/%")?.as_str(), "user:%C3%B6%2F%25");
    Ok(())
}

#[test]
fn it_takes_what_the_attribute_takes() -> R<()> {
    let shelf = Shelf { warehouse: "north".into(), number: 7 };
    let r#type = 1;
    assert_eq!(key!("{{k}}:{shelf.warehouse}/{shelf.number:>3}")?.as_str(), "{k}:north/  7");
    assert_eq!(key!("{type}:{}:{n}", shelf.number + 1, n = "x",)?.as_str(), "1:8:x");
    let fixed: Result<LockKey, LockError> = key!("catalog");
    assert_eq!(fixed?.as_str(), "catalog");
    let empty = "";
    assert!(matches!(key!("user:{empty}"), Err(LockError::InvalidKey { .. })));
    Ok(())
}

struct Service {
    tenant: String,
}

impl Service {
    fn key(&self, id: u64) -> R<LockKey> {
        key!("{self.tenant}:{id}")
    }
}

macro_rules! order_key {
    ($id:expr) => {
        key!("order:{id}", id = $id)
    };
}

#[test]
fn it_works_in_methods_and_macros_and_wherever_a_key_is_taken() -> R<()> {
    let service = Service { tenant: "a:b".into() };
    assert_eq!(service.key(7)?.as_str(), "a%3Ab:7");
    assert_eq!(order_key!(1 + 1)?.as_str(), "order:2");
    let locks = Locks::in_memory();
    let guard = locks.mutex(service.key(7)?).blocking_acquire()?;
    assert!(locks.blocking_status(service.key(7)?)?.is_held());
    drop(guard);
    drop(locks.all([service.key(1)?, service.key(2)?]).blocking_acquire()?);
    Ok(())
}

#[redis_lock(keys = ids.iter().map(|id| key!("item:{id}").unwrap()), guard = lock)]
fn several(ids: &[u64]) -> R<String> {
    Ok(lock.key().into())
}

#[test]
fn it_makes_the_keys_of_an_iterator() -> R<()> {
    locks();
    assert_eq!(several(&[1, 2])?, "item:1, item:2");
    Ok(())
}
