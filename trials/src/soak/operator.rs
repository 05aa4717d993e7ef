use anyhow::{Result, bail};
use redis_locks::{LockError, LockKind, LockStatus, Locks};

use super::clock::now;
use super::event::Event;
use super::kind::PERMITS;

/// Ends the holds of a lock by force, unless it can't even be looked at.
pub(super) async fn force(
    locks: &Locks,
    key: u64,
    name: &str,
    tell: impl Fn(Event) -> Result<()>,
) -> Result<()> {
    if let Event::Failed = look(locks, name).await? {
        return tell(Event::Failed);
    }
    let from = now();
    // The process that asks may be killed before it can say that it did.
    tell(Event::Forcing { key, from })?;
    match locks.force_release(name, "the soak wants it so").await {
        Ok(is_ended) => tell(Event::Forced { key, from, until: is_ended.then(now) }),
        Err(LockError::Backend { .. } | LockError::Shutdown) => tell(Event::Failed),
        Err(error) => bail!("an error that nothing explains: {error}"),
    }
}

/// Looks at one lock.
pub(super) async fn look(locks: &Locks, name: &str) -> Result<Event> {
    seen(locks.status(name).await)
}

/// Looks at all locks of a sort. Those that can't be looked at end the list.
pub(super) async fn list(locks: &Locks, sort: &str) -> Result<Event> {
    let mut listing = locks.list(format!("{sort}*"));
    while let Some(found) = listing.next().await {
        if let Event::Failed = seen(found)? {
            return Ok(Event::Failed);
        }
    }
    Ok(Event::Looked)
}

/// Fails when more have the lock than may.
fn seen(status: Result<LockStatus, LockError>) -> Result<Event> {
    let status = match status {
        Ok(status) => status,
        Err(LockError::Backend { .. } | LockError::Shutdown) => return Ok(Event::Failed),
        Err(error) => bail!("an error that nothing explains: {error}"),
    };
    let most = match status.kind {
        LockKind::Free => 0,
        LockKind::Mutex | LockKind::Write => 1,
        LockKind::Permit { .. } => PERMITS as usize,
        _ => usize::MAX,
    };
    if status.holders.len() > most {
        bail!("{} have a lock at once: {status:?}", status.holders.len());
    }
    Ok(Event::Looked)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;
    use crate::soak::kind::every_kind;

    #[tokio::test]
    async fn what_is_held_is_looked_at_listed_and_forced() {
        let locks = Locks::in_memory();
        for kind in every_kind() {
            let (name, told) = (kind.lock(0), RefCell::new(Vec::new()));
            let tell = |event| {
                told.borrow_mut().push(event);
                Ok(())
            };
            force(&locks, 0, &name, tell).await.unwrap();
            let [Event::Forcing { from, .. }, nobody] = &told.take()[..] else { panic!("{name}") };
            assert_eq!(*nobody, Event::Forced { key: 0, from: *from, until: None });
            let guard = kind.request(&locks, &[0]).acquire().await.unwrap();
            assert_eq!(look(&locks, &name).await.unwrap(), Event::Looked);
            assert_eq!(list(&locks, "").await.unwrap(), Event::Looked);
            force(&locks, 0, &name, tell).await.unwrap();
            let [_, Event::Forced { from, until: Some(until), .. }] = told.take()[..] else {
                panic!("{name}")
            };
            assert!(from <= until && until <= now());
            let learns = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
            assert!(learns.is_ok(), "{kind:?}: its holder does not learn of it");
        }
        locks.shutdown().await;
        assert_eq!(look(&locks, "mutex0").await.unwrap(), Event::Failed);
        let told = RefCell::new(Vec::new());
        let tell = |event| {
            told.borrow_mut().push(event);
            Ok(())
        };
        force(&locks, 0, "mutex0", tell).await.unwrap();
        assert_eq!(told.take(), [Event::Failed]);
    }
}
