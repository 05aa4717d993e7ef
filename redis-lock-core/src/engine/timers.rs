//! The timers of the engine, and why each is set.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::lifecycle::LifeStage;
use super::places::{Place, Several};
use crate::domain::clock::Moment;

/// A reason to set a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// A machine renews or asks again, or one of its callers has waited for long enough.
    Machine,
    /// A token is released again, or its caller learns that no answer came in time.
    Release,
    /// The machines of tokens that were ended by force are informed.
    Search,
    /// The map of the nodes is read.
    Map,
    /// A connection is made, tested or given up, an answer may be late that the engine does not read, or a
    /// caller learns that no answer came in time.
    Connection,
    /// A drain looks whether guards are left.
    Drain,
    /// A shutdown waits no longer.
    Shutdown,
    /// The host may have been suspended, and all other timers with it. They are late by this much at most.
    Suspension,
}

/// The longest time that the engine sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How often a drain looks. Nothing is counted while there is no drain.
const DRAIN_PAUSE: Duration = Duration::from_millis(10);

impl Timer {
    pub(crate) const ALL: [Self; 8] = [
        Self::Machine,
        Self::Release,
        Self::Search,
        Self::Map,
        Self::Connection,
        Self::Drain,
        Self::Shutdown,
        Self::Suspension,
    ];

    /// When it is due, as things are at `now`.
    pub(crate) fn due(self, core: &Core, now: Moment) -> Moment {
        match self {
            Self::Machine => core.table.next_due(),
            Self::Release => core.reaper.lock().due(),
            Self::Search => core.search.lock().due(),
            Self::Map => core.places.as_several().map_or(Moment::NEVER, Several::look_due),
            Self::Connection => {
                let due = |place: &Arc<Place>| {
                    let traffic = place.path.traffic();
                    traffic.due().min(traffic.late_check(now))
                };
                core.places.all().iter().map(due).fold(Moment::NEVER, Moment::min)
            }
            Self::Drain => match core.life.stage() {
                LifeStage::Draining(end) => end.min(now.after(DRAIN_PAUSE)),
                _ => Moment::NEVER,
            },
            Self::Shutdown => match core.life.stage() {
                LifeStage::Closing(Some(end)) => end,
                _ => Moment::NEVER,
            },
            Self::Suspension => now.after(LONGEST_SLEEP),
        }
    }

    /// When the first of all is due.
    pub(crate) fn first(core: &Core, now: Moment) -> Moment {
        Self::ALL.into_iter().map(|timer| timer.due(core, now)).fold(Moment::NEVER, Moment::min)
    }
}
