//! From a request to a guard.

use std::sync::Arc;

use crate::engine::Asking;
use crate::nesting::{self, Outer};
use crate::observe::Acquiring;
use crate::{Guard, LockError, Request};

/// An acquisition under way: checked, and in the queue. Small, because it lives in every caller's
/// future; what the request was made of is gone by then.
pub(crate) struct Begun {
    asking: Asking,
    /// What it joins, when it asks for nothing but its turn there.
    joins: Option<Box<Outer>>,
    told: Option<Box<Acquiring>>,
}

/// Checks the request and joins the queue.
pub(crate) fn begin(request: Request) -> Result<Begun, LockError> {
    match nesting::outer(&request)? {
        Some(outer) => {
            let turn = outer.turn(&request)?;
            Ok(Begun { joins: Some(Box::new(outer)), ..anew(turn)? })
        }
        None => anew(request),
    }
}

fn anew(request: Request) -> Result<Begun, LockError> {
    let Request { locks, kind, keys, options } = request;
    let settings = locks.settings();
    let timeout = settings.command_timeout(options.ttl);
    let demand = options.demand(keys, kind, &settings.namespace, &settings.label, timeout)?;
    if locks.link().is_closed() {
        return Err(LockError::Shutdown);
    }
    let demand = Arc::new(demand);
    let told = Acquiring::begin(&demand);
    let asking = Asking::begin(locks, demand);
    if let (Some(told), Some(holder)) = (&told, &asking.behind) {
        told.contended(holder);
    }
    Ok(Begun { asking, joins: None, told })
}

impl Begun {
    /// Waits for the lock.
    pub(crate) async fn granted(self) -> Result<Guard, LockError> {
        let granted = self.asking.granted().await;
        let guard = granted.map(|(locks, id, hold)| Guard::new(locks, id, hold));
        if let Some(told) = self.told {
            told.ended(guard.as_ref().map(Guard::hold));
        }
        match self.joins {
            Some(outer) => outer.joined(guard),
            None => guard,
        }
    }
}
