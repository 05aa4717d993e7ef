//! The terms on which locks are wanted, which most acquisitions of a program have in common.

use std::sync::Arc;
use std::time::Duration;

use once_cell::race::OnceBox;

use crate::Wait;
use crate::domain::label::Label;

/// The checked options of a request, whatever its key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LockTerms {
    /// In whole milliseconds; `None` never expires.
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Wait,
    pub(crate) renew: bool,
    pub(crate) max_hold: Duration,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) fenced: bool,
    pub(crate) fair: bool,
    pub(crate) repair_orphan: Option<Duration>,
    pub(crate) label: Label,
    /// How long one command may take.
    pub(crate) timeout: Duration,
    /// In whole milliseconds; with `None` the last release gives the lease back.
    pub(crate) linger: Option<Duration>,
    /// How long an acquisition waits for a server that can't be used, whatever its wait.
    pub(crate) outage: Duration,
}

/// For how many different terms of a manager one copy is kept.
const SHARED: usize = 4;

/// The first terms that were asked for. Who asks for the same ones shares them, so that 100,000 held
/// locks need them once. Nobody waits for whoever keeps them, which a forked child would do for ever.
#[derive(Clone, Default, Debug)]
pub(crate) struct SharedTerms([OnceBox<Arc<LockTerms>>; SHARED]);

impl SharedTerms {
    /// These terms, shared if others asked for the same.
    pub(crate) fn share(&self, terms: LockTerms) -> Arc<LockTerms> {
        for known in &self.0 {
            let known = known.get_or_init(|| Box::new(Arc::new(terms.clone())));
            if **known == terms {
                return Arc::clone(known);
            }
        }
        Arc::new(terms)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::domain::demand::tests::demand;

    #[test]
    fn equal_terms_are_shared_and_others_kept_apart() {
        let shared = SharedTerms::default();
        let of = |seconds: u64| {
            let terms = LockTerms::clone(&demand("k").terms);
            LockTerms { ttl: Some(Duration::from_secs(seconds)), ..terms }
        };
        let first = shared.share(of(1));
        for seconds in 1..10 {
            assert_eq!(*shared.share(of(seconds)), of(seconds));
        }
        assert!(Arc::ptr_eq(&first, &shared.share(of(1))));
        assert!(Arc::ptr_eq(&shared.share(of(4)), &shared.share(of(4))));
        assert!(!Arc::ptr_eq(&shared.share(of(5)), &shared.share(of(5))), "too many to keep");
    }

    #[test]
    fn whoever_keeps_terms_holds_up_nobody_else() {
        let shared = Arc::new(SharedTerms::default());
        let terms = LockTerms::clone(&demand("k").terms);
        let (keeping, is_keeping) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (keeper, kept) = (Arc::clone(&shared), terms.clone());
        let keeper = thread::spawn(move || {
            keeper.0[0].get_or_init(|| {
                keeping.send(()).unwrap();
                let _ = ended.recv();
                Box::new(Arc::new(kept))
            });
        });
        is_keeping.recv().unwrap();
        let (says, said) = mpsc::channel();
        let asker = thread::spawn(move || says.send(shared.share(terms)).unwrap());
        let is_answered = said.recv_timeout(Duration::from_secs(5)).is_ok();
        drop(end);
        keeper.join().unwrap();
        asker.join().unwrap();
        assert!(is_answered, "in a forked child nobody else would ever end");
    }
}
