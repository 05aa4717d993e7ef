//! Following hints, but not every one of a flood.

use std::time::Duration;

use crate::clock::Moment;

/// The shortest time between two questions that messages cause: whoever may publish may lie.
const PACE: Duration = Duration::from_millis(10);

/// When a hint was followed last.
#[derive(Debug, Default)]
pub(super) struct Heed(Option<Moment>);

impl Heed {
    /// When to follow a hint that comes now: at once, or when the last one is long enough ago.
    pub(super) fn follow_at(&self, now: Moment) -> Moment {
        self.0.map_or(now, |last| last.after(PACE)).max(now)
    }

    pub(super) fn followed(&mut self, now: Moment) {
        self.0 = Some(now);
    }
}
