//! What was asked of a `Locks`, kept for a test to look at.

use std::sync::{Mutex, PoisonError};

use crate::domain::demand::Demand;
use crate::{LockError, LockKind, Token};

/// A call for a lock, and how it ended, as [`Locks::records`](crate::Locks::records) gives it.
///
/// ```
/// # let locks = redis_locks::Locks::in_memory().recorded();
/// let _guard = locks.mutex("order:7").blocking_acquire()?;
/// assert_eq!(locks.records()[0].key, "order:7");
/// # Ok::<_, redis_locks::LockError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct LockRecord {
    /// The key; of several keys, all of them with commas between.
    pub key: String,
    /// How it was to be held.
    pub kind: LockKind,
    /// The annotated function that asked, or nothing.
    pub function: &'static str,
    /// The token of the hold, or why the call was refused. `None` when the call was dropped before.
    pub outcome: Option<Result<Token, LockError>>,
}

impl LockRecord {
    /// Whether the call got its lock.
    #[must_use]
    pub fn is_acquired(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }
}

/// All calls of a `Locks` that have ended, in that order.
#[derive(Debug, Default)]
pub(crate) struct Recording(Mutex<Vec<LockRecord>>);

impl Recording {
    pub(super) fn add(&self, demand: &Demand, outcome: Option<Result<&Token, &LockError>>) {
        let outcome = outcome.map(|it| it.cloned().map_err(Clone::clone));
        let (key, kind) = (demand.key().to_owned(), demand.kind.into());
        let record = LockRecord { key, kind, function: demand.title.function, outcome };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub(crate) fn records(&self) -> Vec<LockRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
