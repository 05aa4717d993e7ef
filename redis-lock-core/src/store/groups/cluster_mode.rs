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
    /// The number of the latest attempt.
    attempt: u64,
    stage: AttemptStage,
    /// The group in whose queue the token is, if nothing else is known of it on the server.
    place: Option<usize>,
    /// Whether a command of some attempt may still be executed, so that `place` can't be relied on.
    doubtful: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The token has every key, or the server has nothing left of it.
    Clear,
    /// The token waits in the queue of this group.
    Queued(usize),
    /// The outcome is unknown.
    Unknown,
}

/// One attempt to acquire keys in several slots.
#[derive(Debug)]
pub(super) struct GroupAttempt {
    cluster: Arc<ClusterMode>,
    token: Arc<str>,
    number: u64,
}

/// How far the latest attempt with a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AttemptStage {
    Running,
    /// Keys are being given back, and this is not confirmed yet.
    GivingBack,
    Ended,
}

impl ClusterMode {
    /// Whether the server runs in cluster mode.
    pub(crate) fn is_one(&self) -> bool {
        self.is_one.load(Ordering::Relaxed)
    }

    pub(crate) fn found(&self, is_one: bool) {
        self.is_one.store(is_one, Ordering::Relaxed);
    }

    /// Begins an attempt. Returns the attempt, and the group in whose queue the token is, if
    /// nothing else is left of earlier attempts. `None` when the token can't be used again.
    pub(super) fn begin(
        self: &Arc<Self>,
        token: &Arc<str>,
    ) -> Option<(GroupAttempt, Option<usize>)> {
        let mut tokens = self.tokens.lock();
        let fresh =
            || KnownToken { attempt: 0, stage: AttemptStage::Ended, place: None, doubtful: false };
        let known = tokens.entry(Arc::clone(token)).or_insert_with(fresh);
        match known.stage {
            AttemptStage::GivingBack => return None,
            AttemptStage::Running => known.doubtful = true,
            AttemptStage::Ended => {}
        }
        (known.attempt, known.stage) = (known.attempt.wrapping_add(1), AttemptStage::Running);
        let place = known.place.take().filter(|_| !known.doubtful);
        let (cluster, token, number) = (Arc::clone(self), Arc::clone(token), known.attempt);
        Some((GroupAttempt { cluster, token, number }, place))
    }

    /// The token is released, and will not be asked for again.
    pub(super) fn forget(&self, token: &Arc<str>) {
        self.tokens.lock().remove(token);
    }
}

impl GroupAttempt {
    /// Whether the token was asked for again since.
    pub(super) fn is_superseded(&self) -> bool {
        let tokens = self.cluster.tokens.lock();
        tokens.get(&self.token).is_some_and(|known| known.attempt != self.number)
    }

    /// Called before keys are given back; returns `false` when that is no longer allowed.
    pub(super) fn gives_back(&self) -> bool {
        self.go_on(AttemptStage::GivingBack)
    }

    /// Called when giving back is confirmed.
    pub(super) fn gave_back(&self) {
        self.go_on(AttemptStage::Running);
    }

    /// Ends it. An older attempt changes nothing, nor does one of which it is not known whether keys were
    /// given back.
    pub(super) fn end(&self, end: End) {
        let mut tokens = self.cluster.tokens.lock();
        let is_this = |known: &&mut KnownToken| {
            known.attempt == self.number && known.stage != AttemptStage::GivingBack
        };
        let Some(known) = tokens.get_mut(&self.token).filter(is_this) else { return };
        known.stage = AttemptStage::Ended;
        match end {
            End::Queued(place) => known.place = Some(place),
            End::Unknown => known.doubtful = true,
            End::Clear if known.doubtful => {}
            End::Clear => drop(tokens.remove(&self.token)),
        }
    }

    /// Returns `false` when the token was asked for again. A token that was released is given back as
    /// well.
    fn go_on(&self, stage: AttemptStage) -> bool {
        let mut tokens = self.cluster.tokens.lock();
        tokens.get_mut(&self.token).is_none_or(|known| {
            let is_this = known.attempt == self.number;
            known.stage = if is_this { stage } else { known.stage };
            is_this
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(cluster: &Arc<ClusterMode>) -> (GroupAttempt, Option<usize>) {
        cluster.begin(&"t".into()).unwrap()
    }

    #[test]
    fn a_place_is_remembered_until_the_next_attempt() {
        let cluster = Arc::<ClusterMode>::default();
        let (first, place) = begun(&cluster);
        assert_eq!(place, None);
        assert!(first.gives_back());
        first.gave_back();
        first.end(End::Queued(3));
        let (second, place) = begun(&cluster);
        assert_eq!(place, Some(3));
        second.end(End::Clear);
        assert!(cluster.tokens.lock().is_empty());
    }

    #[test]
    fn only_the_newest_attempt_gives_back() {
        let cluster = Arc::<ClusterMode>::default();
        let (first, _) = begun(&cluster);
        let (second, _) = begun(&cluster);
        assert!(first.is_superseded() && !first.gives_back());
        assert!(second.gives_back());
        second.gave_back();
        second.end(End::Queued(3));
        // The end of an older attempt changes nothing.
        first.end(End::Clear);
        // Its commands may still be executed, so every group has to be asked.
        assert_eq!(begun(&cluster).1, None);
    }

    #[test]
    fn a_token_that_may_yet_be_given_back_is_not_used_again() {
        let (cluster, token): (_, Arc<str>) = (Arc::<ClusterMode>::default(), "t".into());
        let (first, _) = begun(&cluster);
        assert!(first.gives_back());
        first.end(End::Unknown);
        assert!(cluster.begin(&token).is_none());
        assert!(cluster.begin(&token).is_none());
        cluster.forget(&token);
        assert!(cluster.tokens.lock().is_empty());
    }

    #[test]
    fn after_an_unknown_end_no_place_is_trusted() {
        let (cluster, token): (_, Arc<str>) = (Arc::<ClusterMode>::default(), "t".into());
        let (first, _) = begun(&cluster);
        first.end(End::Unknown);
        let (second, _) = begun(&cluster);
        second.end(End::Queued(1));
        let (third, place) = begun(&cluster);
        assert_eq!(place, None);
        cluster.forget(&token);
        third.end(End::Queued(1));
        assert!(cluster.tokens.lock().is_empty());
    }
}
