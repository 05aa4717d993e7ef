//! From a request to a guard.

use std::sync::Arc;

use crate::{Guard, LockError, Request, nesting};

/// Checks the request and waits for the lock.
pub(crate) async fn acquire(request: Request) -> Result<Guard, LockError> {
    if let Some(outer) = nesting::outer(&request)? {
        return nesting::join(outer, request).await;
    }
    anew(request).await
}

/// [`acquire`] for what cannot be held already.
pub(crate) async fn anew(request: Request) -> Result<Guard, LockError> {
    let Request { locks, kind, keys, options } = request;
    let mut keys = keys.into_iter();
    let key = keys.next().ok_or_else(|| LockError::config("no key to lock was given"))?;
    let settings = locks.settings();
    let timeout = settings.command_timeout(options.ttl);
    let demand = options.demand(key, kind, &settings.namespace, &settings.label, timeout)?;
    let link = locks.link();
    if link.is_closed() {
        return Err(LockError::Shutdown);
    }
    let mut asking = link.ask(Arc::new(demand));
    let hold = asking.granted().await?;
    Ok(Guard::new(Arc::clone(link), Arc::clone(asking.slot()), hold))
}
