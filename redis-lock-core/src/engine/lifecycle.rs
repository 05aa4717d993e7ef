//! The life of an engine, from its first call until its thread has ended.
//!
//! ```text
//!   Open --drain--> Draining --the last guard is gone, or it takes too long--> Closing
//!    |  |                                                                        ^  |
//!    |  +-------------------------------shutdown---------------------------------+  | all is released,
//!    |                                                                              | or it takes too long
//!    +--the last `Locks` is dropped--> Abandoned --all is released--> Ended <-------+
//! ```
//!
//! An engine that has failed continues with nothing, at the same stage.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use crate::Drained;
use crate::domain::clock::Moment;
use crate::sync::{NewsWaiters, NonPoisonMutex};

/// A stage of the life of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum LifeStage {
    #[default]
    Open,
    /// New locks are refused, until this time at the latest.
    Draining(Moment),
    /// No more requests can come.
    Abandoned,
    /// Every hold and every wait has ended. Its releases are awaited until this time, once all of them are
    /// queued: before that, the engine would find nothing to wait for.
    Closing(Option<Moment>),
    Ended,
}

impl LifeStage {
    const fn rank(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Draining(_) => Self::DRAINING,
            Self::Abandoned => 2,
            Self::Closing(_) => Self::CLOSING,
            Self::Ended => Self::ENDED,
        }
    }

    pub(super) const DRAINING: u8 = 1;
    pub(super) const CLOSING: u8 = 3;
    const ENDED: u8 = 4;
}

/// The stage of an engine, and those who wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    stage: NonPoisonMutex<LifeStage>,
    /// The stage, readable without a lock: each call reads it, even in a forked child process.
    rank: AtomicU8,
    /// How a drain has ended, once the engine closes.
    pub(super) drained: OnceLock<Drained>,
    pub(super) waiting: Arc<NewsWaiters>,
}

impl Lifecycle {
    pub(super) fn stage(&self) -> LifeStage {
        *self.stage.lock()
    }

    /// Begins another stage, unless `next` says that there is none.
    pub(super) fn advance(&self, next: impl FnOnce(LifeStage) -> Option<LifeStage>) -> bool {
        let mut stage = self.stage.lock();
        let next = next(*stage);
        if let Some(next) = next {
            *stage = next;
            self.rank.store(next.rank(), Ordering::SeqCst);
        }
        next.is_some()
    }

    /// Returns `false` if it was closing before.
    pub(super) fn begin_closing(&self) -> bool {
        self.advance(|stage| {
            (stage.rank() < LifeStage::CLOSING).then_some(LifeStage::Closing(None))
        })
    }

    pub(super) fn is_at(&self, rank: u8) -> bool {
        self.rank.load(Ordering::SeqCst) >= rank
    }

    pub(super) fn has_ended(&self) -> bool {
        self.is_at(LifeStage::ENDED)
    }
}
