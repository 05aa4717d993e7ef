//! One order for each lock, where there are several places.
//!
//! Whatever asks for a key has to come behind the releases of this key that were begun before. At one
//! place its queue sees to that. But when a slot moves, or a place fails, a release may be at one place
//! or between two, and the question at another. So it is noted where each release is that no server has
//! answered yet, and a question waits while one is anywhere but in front of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::lock_id::PlaceId;
use crate::domain::names::Names;

/// The releases that are on their way, and what waits for them.
#[derive(Debug)]
pub(super) struct LockOrder<E> {
    leaving: HashMap<Arc<str>, Vec<Leaving>>,
    /// Acquisitions, by a key whose release has to come first.
    behind: HashMap<Arc<str>, Vec<E>>,
    /// Acquisitions that have waited for a release that is somewhere else now, or ended.
    freed: Vec<E>,
}

/// A token that is being released.
#[derive(Debug)]
struct Leaving {
    token: Arc<str>,
    /// The place in whose queue its release is; `None` between two places.
    at: Option<PlaceId>,
}

impl<E> Default for LockOrder<E> {
    fn default() -> Self {
        Self { leaving: HashMap::new(), behind: HashMap::new(), freed: Vec::new() }
    }
}

impl<E> LockOrder<E> {
    /// The release of a token is at a place now, or between two.
    pub(super) fn goes_to(&mut self, names: &Names, token: &Arc<str>, at: Option<PlaceId>) {
        for key in names.all().map(Names::shared_main) {
            self.free(&key);
            let leaving = self.leaving.entry(key).or_default();
            match leaving.iter_mut().find(|it| it.token == *token) {
                Some(it) => it.at = at,
                None => leaving.push(Leaving { token: Arc::clone(token), at }),
            }
        }
    }

    /// The release of a token, or a part of it, has left a place.
    pub(super) fn leaves(&mut self, names: &Names, token: &Arc<str>, place: PlaceId) {
        for names in names.all() {
            let leaving = self.leaving.get_mut(names.main()).into_iter().flatten();
            let here = |it: &&mut Leaving| it.token == *token && it.at == Some(place);
            leaving.filter(here).for_each(|it| it.at = None);
        }
    }

    /// The release of a token is not on its way any more.
    pub(super) fn stops(&mut self, names: &Names, token: &Arc<str>) {
        for names in names.all() {
            let Some(leaving) = self.leaving.get_mut(names.main()) else { continue };
            leaving.retain(|it| it.token != *token);
            if leaving.is_empty() {
                self.leaving.remove(names.main());
            }
            self.free(names.main());
        }
    }

    /// The key of a release that is not in front of what a place is asked for these keys.
    pub(super) fn in_the_way(&self, names: &Names, place: PlaceId) -> Option<Arc<str>> {
        let is_elsewhere = |key: &str| {
            let mut leaving = self.leaving.get(key).into_iter().flatten();
            leaving.any(|it| it.at != Some(place))
        };
        names.all().find(|names| is_elsewhere(names.main())).map(Names::shared_main)
    }

    /// Has an acquisition wait until something happens to the releases of this key.
    pub(super) fn wait_behind(&mut self, key: Arc<str>, entry: E) {
        self.behind.entry(key).or_default().push(entry);
    }

    fn free(&mut self, key: &str) {
        if !self.behind.is_empty() {
            self.freed.extend(self.behind.remove(key).into_iter().flatten());
        }
    }

    /// Takes out the acquisitions that are to be put on a queue, or have to wait anew.
    pub(super) fn take_freed(&mut self) -> Vec<E> {
        std::mem::take(&mut self.freed)
    }

    pub(super) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Whether no release is on its way.
    pub(super) fn is_settled(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Whether nothing waits, either.
    pub(super) fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.behind.is_empty() && self.freed.is_empty()
    }
}
