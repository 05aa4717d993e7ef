//! What this process remembers about acquisitions on a server in cluster mode.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::NonPoisonMutex;

/// Whether the server is in cluster mode, where a script may use keys of one slot only, and which
/// acquisitions of several slots are under way for that reason.
///
/// When such an acquisition gives keys back, that command may arrive late: after the same token was
/// asked for again and got everything. So a token is not used again while the outcome of giving
/// back is unknown. And an attempt whose token was asked for again, because its answer took too
/// long, no longer gives anything back.
#[derive(Debug, Default)]
pub(crate) struct ClusterMode {
    is_one: AtomicBool,
    tokens: NonPoisonMutex<HashMap<Arc<str>, KnownToken>>,
}

#[derive(Debug)]
struct KnownToken {
    attempt: Arc<GroupAttempt>,
    /// The group in whose queue the token is, if nothing else is known of it on the server.
    place: Option<usize>,
    /// Whether a command of some attempt may still be executed, so that `place` can't be relied on.
    doubtful: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The token has every key, or nothing of it is left on the server.
    Clear,
    /// The token waits in the queue of this group.
    Queued(usize),
    /// The outcome is unknown.
    Unknown,
}

/// One attempt to acquire keys in several slots.
#[derive(Debug, Default)]
pub(super) struct GroupAttempt(NonPoisonMutex<AttemptStage>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum AttemptStage {
    #[default]
    Running,
    Ended,
    /// The token was asked for again.
    Superseded,
    /// Keys are being given back, and this is not confirmed yet.
    GivingBack,
}

/// Whether a new attempt may replace an older one.
enum Superseding {
    Ended,
    Running,
    /// No: the older one is giving keys back.
    Refused,
}

impl ClusterMode {
    /// Whether the server runs in cluster mode.
    pub(super) fn is_one(&self) -> bool {
        self.is_one.load(Ordering::Relaxed)
    }

    pub(super) fn found(&self, is_one: bool) {
        self.is_one.store(is_one, Ordering::Relaxed);
    }

    /// Begins an attempt. Returns it, and the group in whose queue the token is, if nothing else is
    /// left of earlier attempts. `None` when the token can't be used any more.
    pub(super) fn begin(&self, token: &Arc<str>) -> Option<(Arc<GroupAttempt>, Option<usize>)> {
        let attempt = Arc::new(GroupAttempt::default());
        let mut tokens = self.tokens.lock();
        let fresh = || KnownToken { attempt: Arc::clone(&attempt), place: None, doubtful: false };
        let known = tokens.entry(Arc::clone(token)).or_insert_with(fresh);
        if !Arc::ptr_eq(&known.attempt, &attempt) {
            match known.attempt.supersede() {
                Superseding::Refused => return None,
                Superseding::Running => known.doubtful = true,
                Superseding::Ended => {}
            }
            known.attempt = Arc::clone(&attempt);
        }
        let place = known.place.take().filter(|_| !known.doubtful);
        Some((attempt, place))
    }

    /// Ends an attempt.
    pub(super) fn end(&self, token: &Arc<str>, attempt: &Arc<GroupAttempt>, end: End) {
        let mut tokens = self.tokens.lock();
        let Some(known) = tokens.get_mut(token) else { return };
        if !Arc::ptr_eq(&known.attempt, attempt) || !attempt.end() {
            return;
        }
        match end {
            End::Queued(place) => known.place = Some(place),
            End::Unknown => known.doubtful = true,
            End::Clear if known.doubtful => {}
            End::Clear => drop(tokens.remove(token)),
        }
    }

    /// The token is released, and will not be asked for again.
    pub(super) fn forget(&self, token: &Arc<str>) {
        self.tokens.lock().remove(token);
    }
}

impl GroupAttempt {
    /// Whether the token was asked for again since.
    pub(super) fn is_superseded(&self) -> bool {
        *self.0.lock() == AttemptStage::Superseded
    }

    /// Called before keys are given back; returns `false` when that is no longer allowed.
    pub(super) fn gives_back(&self) -> bool {
        let mut stage = self.0.lock();
        if *stage == AttemptStage::Running {
            *stage = AttemptStage::GivingBack;
        }
        *stage == AttemptStage::GivingBack
    }

    /// Called when giving back is confirmed.
    pub(super) fn gave_back(&self) {
        *self.0.lock() = AttemptStage::Running;
    }

    /// Another attempt with the same token begins.
    fn supersede(&self) -> Superseding {
        let mut stage = self.0.lock();
        let how = match *stage {
            AttemptStage::GivingBack => return Superseding::Refused,
            AttemptStage::Ended => Superseding::Ended,
            AttemptStage::Running | AttemptStage::Superseded => Superseding::Running,
        };
        *stage = AttemptStage::Superseded;
        how
    }

    /// Returns `false` when it is not known whether keys were given back.
    fn end(&self) -> bool {
        let mut stage = self.0.lock();
        if *stage == AttemptStage::Running {
            *stage = AttemptStage::Ended;
        }
        *stage == AttemptStage::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(cluster: &ClusterMode) -> (Arc<GroupAttempt>, Option<usize>) {
        cluster.begin(&"t".into()).unwrap()
    }

    #[test]
    fn a_place_is_remembered_until_the_next_attempt() {
        let (cluster, token) = (ClusterMode::default(), "t".into());
        let (first, place) = begun(&cluster);
        assert_eq!(place, None);
        assert!(first.gives_back());
        first.gave_back();
        cluster.end(&token, &first, End::Queued(3));
        let (second, place) = begun(&cluster);
        assert_eq!(place, Some(3));
        cluster.end(&token, &second, End::Clear);
        assert!(cluster.tokens.lock().is_empty());
    }

    #[test]
    fn only_the_newest_attempt_gives_back() {
        let (cluster, token) = (ClusterMode::default(), "t".into());
        let (first, _) = begun(&cluster);
        let (second, _) = begun(&cluster);
        assert!(first.is_superseded() && !first.gives_back());
        assert!(second.gives_back());
        second.gave_back();
        cluster.end(&token, &second, End::Queued(3));
        // The end of an older attempt changes nothing.
        cluster.end(&token, &first, End::Clear);
        // Its commands may still be executed, so every group has to be asked.
        assert_eq!(begun(&cluster).1, None);
    }

    #[test]
    fn a_token_that_may_yet_be_given_back_is_not_used_again() {
        let (cluster, token) = (ClusterMode::default(), "t".into());
        let (first, _) = begun(&cluster);
        assert!(first.gives_back());
        cluster.end(&token, &first, End::Unknown);
        assert!(cluster.begin(&token).is_none());
        assert!(cluster.begin(&token).is_none());
        cluster.forget(&token);
        assert!(cluster.tokens.lock().is_empty());
    }

    #[test]
    fn after_an_unknown_end_no_place_is_trusted() {
        let (cluster, token) = (ClusterMode::default(), "t".into());
        let (first, _) = begun(&cluster);
        cluster.end(&token, &first, End::Unknown);
        let (second, _) = begun(&cluster);
        cluster.end(&token, &second, End::Queued(1));
        let (third, place) = begun(&cluster);
        assert_eq!(place, None);
        cluster.forget(&token);
        cluster.end(&token, &third, End::Queued(1));
        assert!(cluster.tokens.lock().is_empty());
    }
}
