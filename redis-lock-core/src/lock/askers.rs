//! The callers that wait for something about their hold.

use std::time::Duration;

use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::once::OnceSender;

/// Reports to a caller the outcome of what it asked for.
pub(crate) type Confirm = OnceSender<Result<(), LockError>>;

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

/// The callers that wait for something about their hold. Most holds never have any, so that they
/// are behind a pointer.
#[derive(Debug, Default)]
pub(super) struct Askers(Option<Box<AskerList>>);

#[derive(Debug, Default)]
struct AskerList {
    requests: Vec<HoldRequest>,
}

impl Askers {
    pub(super) fn iter(&self) -> impl Iterator<Item = &HoldRequest> {
        self.0.iter().flat_map(|list| &list.requests)
    }

    /// The earliest time limit of these callers.
    pub(super) fn deadline(&self) -> Moment {
        self.iter().map(|asker| asker.deadline).fold(Moment::NEVER, Moment::min)
    }

    pub(super) fn push(&mut self, asker: HoldRequest) {
        self.0.get_or_insert_default().requests.push(asker);
    }

    /// Takes out those that are meant.
    pub(super) fn take(&mut self, is_meant: impl Fn(&HoldRequest) -> bool) -> Self {
        let requests = self
            .0
            .iter_mut()
            .flat_map(|list| list.requests.extract_if(.., |asker| is_meant(asker)));
        requests.collect()
    }
}

impl FromIterator<HoldRequest> for Askers {
    fn from_iter<I: IntoIterator<Item = HoldRequest>>(requests: I) -> Self {
        let requests: Vec<_> = requests.into_iter().collect();
        Self((!requests.is_empty()).then(|| Box::new(AskerList { requests })))
    }
}

impl Extend<HoldRequest> for Askers {
    fn extend<I: IntoIterator<Item = HoldRequest>>(&mut self, requests: I) {
        requests.into_iter().for_each(|asker| self.push(asker));
    }
}

impl IntoIterator for Askers {
    type Item = HoldRequest;
    type IntoIter = std::vec::IntoIter<HoldRequest>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|list| list.requests).unwrap_or_default().into_iter()
    }
}
