//! The callers that wait for something about their hold.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::LockError;
use crate::domain::clock::Moment;

/// Reports to a caller the outcome of what it asked for.
pub(crate) type Confirm = oneshot::Sender<Result<(), LockError>>;

/// A caller that wants something of a hold.
#[derive(Debug)]
pub(super) struct HoldRequest {
    pub(super) confirm: Confirm,
    /// When it gets the error that no answer came in time.
    pub(super) deadline: Moment,
    pub(super) wants: Wants,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    Extend(Duration),
    Check,
    Downgrade,
}

/// The callers that wait for something about their hold.
#[derive(Debug, Default)]
pub(super) struct Askers(Vec<HoldRequest>);

impl Askers {
    pub(super) fn iter(&self) -> impl Iterator<Item = &HoldRequest> {
        self.0.iter()
    }

    /// The earliest time limit of these callers.
    pub(super) fn deadline(&self) -> Moment {
        self.iter().map(|asker| asker.deadline).fold(Moment::NEVER, Moment::min)
    }

    pub(super) fn push(&mut self, asker: HoldRequest) {
        self.0.push(asker);
    }

    /// Takes out those that are meant.
    pub(super) fn take(&mut self, is_meant: impl Fn(&HoldRequest) -> bool) -> Self {
        Self(self.0.extract_if(.., |asker| is_meant(asker)).collect())
    }
}

impl Extend<HoldRequest> for Askers {
    fn extend<I: IntoIterator<Item = HoldRequest>>(&mut self, requests: I) {
        self.0.extend(requests);
    }
}

impl IntoIterator for Askers {
    type Item = HoldRequest;
    type IntoIter = std::vec::IntoIter<HoldRequest>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
