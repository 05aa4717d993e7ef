use std::time::Duration;

use anyhow::{Result, bail};
use redis_locks::{LockError, LockKind, Locks, Status};

use super::clock::now;
use super::event::Event;
use super::kind::PERMITS;

/// A question of unknown outcome may be executed so much later: it has crossed the network by then.
const LATE: Duration = Duration::from_secs(10);

/// Ends the holds of a lock by force.
pub(super) async fn force(locks: &Locks, key: u64, name: &str) -> Result<Option<Event>> {
    let from = now();
    let until = match locks.force_release(name, "the soak wants it so").await {
        Ok(true) => now(),
        Ok(false) => return Ok(None),
        Err(LockError::Backend { .. } | LockError::Shutdown) => {
            now() + u64::try_from(LATE.as_nanos())?
        }
        Err(error) => bail!("an error that nothing explains: {error}"),
    };
    Ok(Some(Event::Forced { key, from, until }))
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
fn seen(status: Result<Status, LockError>) -> Result<Event> {
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
    use super::*;
    use crate::soak::kind::every_kind;

    #[tokio::test]
    async fn what_is_held_is_looked_at_listed_and_forced() {
        let locks = Locks::in_memory();
        for kind in every_kind() {
            let name = kind.lock(0);
            assert_eq!(force(&locks, 0, &name).await.unwrap(), None, "nobody has it");
            let guard = kind.request(&locks, &[0]).acquire().await.unwrap();
            assert_eq!(look(&locks, &name).await.unwrap(), Event::Looked);
            assert_eq!(list(&locks, "").await.unwrap(), Event::Looked);
            let forced = force(&locks, 0, &name).await.unwrap();
            let Some(Event::Forced { key: 0, from, until }) = forced else { panic!("{forced:?}") };
            assert!(from <= until && until <= now());
            let learns = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
            assert!(learns.is_ok(), "{kind:?}: its holder does not learn of it");
        }
        locks.shutdown().await;
        assert_eq!(look(&locks, "mutex0").await.unwrap(), Event::Failed);
        let late = force(&locks, 0, "mutex0").await.unwrap();
        assert!(matches!(late, Some(Event::Forced { until, .. }) if until > now()), "{late:?}");
    }
}
