//! The demands that this thread made last.
//!
//! Who wants a lock often wants it again, in the same way. A demand is never changed, so it can be
//! shared: that saves checking the options, putting the name together, finding the terms, and two
//! allocations. It is kept by thread, because counting references to something that other threads use
//! as well takes longer.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::LockError;
use crate::domain::demand::{Demand, InCommon, Options};
use crate::domain::key_hashes::open_hash;
use crate::domain::kind::Kind;
use crate::domain::together::Keys;

/// The longest key of one that is kept.
const SHORT: usize = 128;

/// How many are kept. Each has a place by the hash of its key, and takes that of the one before.
const PLACES: usize = 128;

thread_local! {
    static RECENT: RefCell<[Option<Box<RecentDemand>>; PLACES]> =
        const { RefCell::new([const { None }; PLACES]) };
}

/// A demand, and all that it was made of beside its key and its kind.
struct RecentDemand {
    demand: Arc<Demand>,
    options: Options,
    label: Arc<str>,
    timeout: Duration,
}

impl RecentDemand {
    fn is_of(&self, key: &str, kind: Kind, options: &Options, common: &InCommon<'_>) -> bool {
        self.demand.names.are_of(common.namespace, key)
            && self.demand.kind == kind
            && self.options == *options
            && Arc::ptr_eq(&self.label, common.label)
            && self.timeout == common.timeout
    }
}

impl Options {
    /// The demand for these keys: one that this thread has made before, if it has.
    pub(crate) fn shared_demand(
        &self,
        keys: Keys,
        kind: Kind,
        common: &InCommon<'_>,
    ) -> Result<Arc<Demand>, LockError> {
        let place = match &keys {
            Keys::One(key) if key.as_str().len() <= SHORT && self.adopts.is_none() => {
                open_hash(key.as_str()) as usize % PLACES
            }
            _ => return self.demand(keys, kind, common).map(Arc::new),
        };
        let known = RECENT.try_with(|recent| {
            let (recent, [key]) = (recent.try_borrow().ok()?, keys.as_slice()) else { return None };
            let known = recent.get(place)?.as_ref()?;
            let is_it = known.is_of(key.as_str(), kind, self, common);
            is_it.then(|| Arc::clone(&known.demand))
        });
        if let Ok(Some(known)) = known {
            keys.leave_room();
            return Ok(known);
        }
        let demand = Arc::new(self.demand(keys, kind, common)?);
        keep(place, &demand, self, common);
        Ok(demand)
    }
}

/// Keeps it where one with the same place was kept before.
fn keep(place: usize, demand: &Arc<Demand>, options: &Options, common: &InCommon<'_>) {
    let kept = RecentDemand {
        demand: Arc::clone(demand),
        options: options.clone(),
        label: Arc::clone(common.label),
        timeout: common.timeout,
    };
    let before = RECENT.try_with(|recent| {
        let mut recent = recent.try_borrow_mut().ok()?;
        let at = recent.get_mut(place)?;
        match at {
            Some(known) => Some(mem::replace(&mut **known, kept)),
            None => {
                *at = Some(Box::new(kept));
                None
            }
        }
    });
    drop(before);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lock_terms::{LockTerms, SharedTerms};
    use crate::{Token, Wait};

    /// What a manager with this namespace and label asks for.
    struct Manager(&'static str, Arc<str>, SharedTerms, Duration);

    impl Manager {
        fn new(namespace: &'static str, label: &str) -> Self {
            Self(namespace, label.into(), SharedTerms::default(), Duration::from_secs(2))
        }

        fn common(&self) -> InCommon<'_> {
            let Self(namespace, label, terms, timeout) = self;
            InCommon { namespace, label, timeout: *timeout, terms }
        }

        fn demand(&self, key: &str, options: &Options) -> Arc<Demand> {
            let keys = Keys::One(key.into());
            options.shared_demand(keys, Kind::Mutex, &self.common()).unwrap()
        }
    }

    fn options() -> Options {
        Options::unset(Duration::from_secs(30), Wait::Forever, Duration::from_secs(10))
    }

    /// One option after the other changed.
    fn each_changed() -> Vec<Options> {
        let second = Duration::from_secs(1);
        let changes: [fn(&mut Options, Duration); 11] = [
            |it, time| it.ttl = Some(time),
            |it, _| (it.ttl, it.renew) = (None, false),
            |it, time| it.wait = Wait::For(time),
            |it, _| it.renew = false,
            |it, time| it.max_hold = Some(time),
            |it, time| it.min_hold = Some(time),
            |it, _| it.fenced = true,
            |it, _| it.fair = false,
            |it, time| it.repair_orphan = Some(time),
            |it, time| it.linger = Some(time),
            |it, time| it.outage = time,
        ];
        let changed = changes.map(|change| {
            let mut options = options();
            change(&mut options, second);
            options
        });
        let labels = ["one", "two"].map(|own| Options { label: Some(own.into()), ..options() });
        changed.into_iter().chain(labels).collect()
    }

    fn made_anew(options: &Options, manager: &Manager) -> LockTerms {
        let made = options.demand(Keys::One("k".into()), Kind::Mutex, &manager.common());
        LockTerms::clone(&made.unwrap().terms)
    }

    #[test]
    fn who_asks_for_the_same_shares_it() {
        let manager = Manager::new("lock", "host");
        let first = manager.demand("k", &options());
        assert!(Arc::ptr_eq(&first, &manager.demand("k", &options())));
        for options in each_changed() {
            let first = manager.demand("k", &options);
            assert!(Arc::ptr_eq(&first, &manager.demand("k", &options)), "{options:?}");
        }
    }

    #[test]
    fn who_asks_for_anything_else_gets_that() {
        let manager = Manager::new("lock", "host");
        let mut other_time = Manager::new("lock", "host");
        other_time.3 = Duration::from_millis(300);
        let managers = [manager, other_time, Manager::new("lock", "other"), Manager::new("", "")];
        let all: Vec<Options> = each_changed().into_iter().chain([options()]).collect();
        for manager in &managers {
            for (before, after) in all.iter().flat_map(|it| all.iter().map(move |to| (it, to))) {
                drop(managers[0].demand("k", before));
                let made = manager.demand("k", after);
                assert_eq!(*made.terms, made_anew(after, manager), "{after:?} after {before:?}");
                assert!(made.names.are_of(manager.0, "k"));
            }
        }
    }

    #[test]
    fn names_that_read_alike_are_distinguished() {
        let label: Arc<str> = "host".into();
        let names = [("a", "b:c"), ("a:b", "c"), ("", "a:b:c"), ("a", "c"), ("b", "c"), ("", "c")];
        for (namespace, key) in names.into_iter().chain(names) {
            let manager = Manager::new(namespace, "");
            // One label for all, so that nothing else distinguishes them.
            let manager = Manager(namespace, Arc::clone(&label), manager.2, manager.3);
            let made = manager.demand(key, &options());
            let main = crate::LockKey::from(key).in_namespace(namespace);
            assert_eq!((made.names.main(), made.key()), (&*main, key));
            let keys = Keys::One(key.into());
            let write = options().shared_demand(keys, Kind::Write, &manager.common()).unwrap();
            assert_eq!((write.kind, made.kind), (Kind::Write, Kind::Mutex));
        }
    }

    #[test]
    fn what_rounds_to_something_known_is_still_checked() {
        let manager = Manager::new("lock", "");
        let least = Options { ttl: Some(Duration::from_millis(100)), ..options() };
        drop(manager.demand("k", &least));
        let less = Options { ttl: Some(Duration::from_micros(99_500)), ..options() };
        let refused = less.shared_demand(Keys::One("k".into()), Kind::Mutex, &manager.common());
        assert!(refused.is_err());
    }

    #[test]
    fn adoptions_and_long_keys_are_not_kept() {
        let manager = Manager::new("lock", "");
        let long = "k".repeat(SHORT + 1);
        let [one, other] = [(); 2].map(|()| manager.demand(&long, &options()));
        assert!(!Arc::ptr_eq(&one, &other));
        let adopted = crate::domain::demand::Adopted { token: Token::fresh("", ""), fence: None };
        let adopts = Options { adopts: Some(Box::new(adopted)), ..options() };
        assert!(manager.demand("k", &adopts).adopts.is_some());
        assert!(manager.demand("k", &options()).adopts.is_none());
    }
}
