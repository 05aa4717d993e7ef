use std::fmt;

use redis_locks::{LockRequest, Locks};

/// How many keys each sort of lock has. Even, so that each sort is on both servers; and few, where
/// more holders fit, so that there are always some who must wait.
const MUTEXES: u64 = 6;
const CATALOGS: u64 = 2;
const POOLS: u64 = 2;

/// Mutexes of which each is used by one process most of the time. All of them survive, since their leases
/// linger.
const HOMES: u64 = 3;

/// How many may have a permit of one pool.
pub(crate) const PERMITS: u32 = 2;

/// Half of the keys survive all that happens: on a server that keeps its data, or confirmed by a
/// replica. The other half is lost now and then.
pub(crate) fn is_volatile(key: u64) -> bool {
    key % 2 == 1
}

/// Holds of these are ended by force now and then: two mutexes, a catalog and a pool. All of them survive.
const FIRST_FORCED: u64 = MUTEXES + CATALOGS + POOLS + 2 * HOMES;
const FORCED: [(Kind, u64); 4] = [
    (Kind::Mutex, FIRST_FORCED),
    (Kind::Mutex, FIRST_FORCED + 2),
    (Kind::Read, FIRST_FORCED + 4),
    (Kind::Permit(PERMITS), FIRST_FORCED + 6),
];

/// The names of all locks.
pub(crate) fn every_lock() -> Vec<String> {
    let mutexes = (0..MUTEXES).map(|key| Kind::Mutex.lock(key));
    let catalogs = (MUTEXES..MUTEXES + CATALOGS).map(|key| Kind::Read.lock(key));
    let first_pool = MUTEXES + CATALOGS;
    let pools = (first_pool..first_pool + POOLS).map(|key| Kind::Permit(PERMITS).lock(key));
    let homes = (0..HOMES).map(|worker| Kind::Mutex.lock(home_of(worker)));
    let forced = FORCED.iter().map(|(kind, key)| kind.lock(*key));
    mutexes.chain(catalogs).chain(pools).chain(homes).chain(forced).collect()
}

/// Whether a mutex is one of those that single workers use, now and then.
pub(crate) fn is_home(key: u64) -> bool {
    (home_of(0)..FIRST_FORCED).contains(&key)
}

/// Whether holds of this key are ended by force now and then.
pub(crate) fn is_forced(key: u64) -> bool {
    key >= FIRST_FORCED
}

/// One of the keys whose holds are ended by force, and the name of its lock.
pub(crate) fn pick_forced(mutexes_only: bool, mut below: impl FnMut(u64) -> u64) -> (u64, String) {
    let (kind, key) = FORCED[if mutexes_only { below(2) } else { below(4) } as usize];
    (key, kind.lock(key))
}

/// The mutex that is mostly used by the worker with this number.
pub(crate) fn home_of(worker: u64) -> u64 {
    MUTEXES + CATALOGS + POOLS + 2 * (worker % HOMES)
}

/// The kind of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Read,
    Write,
    /// A permit, with its limit.
    Permit(u32),
    /// Several mutexes at once, for which holders of single ones contend as well.
    All,
}

impl Kind {
    /// The kinds by name, as the report lists them.
    pub(crate) const NAMES: [&'static str; 5] = ["mutex", "read", "write", "permit", "all"];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permit(_) => "permit",
            Self::All => "all",
        }
    }

    /// A kind, and the keys to ask for, by a number that decides both. Sorts of locks share no key,
    /// except that `All` takes mutexes.
    pub(crate) fn pick(mutexes_only: bool, mut below: impl FnMut(u64) -> u64) -> (Self, Vec<u64>) {
        let choice = if mutexes_only { 0 } else { below(5) };
        match choice {
            0 => (Self::Mutex, vec![below(MUTEXES)]),
            1 => (Self::Read, vec![MUTEXES + below(CATALOGS)]),
            2 => (Self::Write, vec![MUTEXES + below(CATALOGS)]),
            3 => (Self::Permit(PERMITS), vec![MUTEXES + CATALOGS + below(POOLS)]),
            _ => {
                // Two or three in a circle, all on one server, in an order that varies.
                let (first, count) = (below(MUTEXES), 2 + below(2));
                (Self::All, (0..count).map(|step| (first + 2 * step) % MUTEXES).collect())
            }
        }
    }

    /// The same of the locks whose holds are ended by force.
    pub(crate) fn pick_forced(
        mutexes_only: bool,
        mut below: impl FnMut(u64) -> u64,
    ) -> (Self, Vec<u64>) {
        let choice = if mutexes_only { 0 } else { below(5) };
        let [one, other, catalog, pool] = FORCED.map(|(_, key)| key);
        match choice {
            0 => (Self::Mutex, vec![one + 2 * below(2)]),
            1 => (Self::Read, vec![catalog]),
            2 => (Self::Write, vec![catalog]),
            3 => (Self::Permit(PERMITS), vec![pool]),
            _ => (Self::All, if below(2) == 0 { vec![one, other] } else { vec![other, one] }),
        }
    }

    /// The name of the lock with this number.
    pub(crate) fn lock(self, key: u64) -> String {
        let sort = match self {
            Self::Mutex | Self::All => "mutex",
            Self::Read | Self::Write => "catalog",
            Self::Permit(_) => "pool",
        };
        format!("{sort}{key}")
    }

    /// A request for the lock with this number, or for several mutexes.
    pub(crate) fn request(self, locks: &Locks, keys: &[u64]) -> LockRequest {
        let key = keys[0];
        match self {
            Self::Mutex => locks.mutex(self.lock(key)),
            Self::Read => locks.read(self.lock(key)),
            Self::Write => locks.write(self.lock(key)),
            Self::Permit(limit) => locks.permit(self.lock(key), limit),
            Self::All => locks.all(keys.iter().map(|key| self.lock(*key))),
        }
    }

    /// Whether the hold counts as that of a mutex.
    pub(crate) fn is_mutex(self) -> bool {
        matches!(self, Self::Mutex | Self::All)
    }

    /// Whether it asks for a fence: those do that have the key for themselves.
    pub(crate) fn is_fenced(self) -> bool {
        matches!(self, Self::Mutex | Self::Write | Self::All)
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "m" => Self::Mutex,
            "r" => Self::Read,
            "w" => Self::Write,
            "a" => Self::All,
            _ => Self::Permit(word.strip_prefix('p')?.parse().ok()?),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("m"),
            Self::Read => f.write_str("r"),
            Self::Write => f.write_str("w"),
            Self::Permit(limit) => write!(f, "p{limit}"),
            Self::All => f.write_str("a"),
        }
    }
}

/// One of each kind.
#[cfg(test)]
pub(crate) fn every_kind() -> [Kind; 5] {
    [Kind::Mutex, Kind::Read, Kind::Write, Kind::Permit(PERMITS), Kind::All]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::random::Random;

    #[test]
    fn each_kind_has_keys_of_its_own_on_both_servers_and_all_shares_the_mutexes() {
        let mut random = Random::new(7);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..2000 {
            let (kind, keys) = Kind::pick(false, |limit| random.below(limit));
            assert!(keys.iter().all(|key| is_volatile(*key) == is_volatile(keys[0])), "{keys:?}");
            assert_eq!(keys.len() > 1, kind == Kind::All);
            let sorted: std::collections::BTreeSet<u64> = keys.iter().copied().collect();
            assert_eq!(sorted.len(), keys.len(), "{keys:?}");
            for key in keys {
                // On one key there is one limit.
                let sort = match kind {
                    Kind::Read | Kind::Write => "rw".to_owned(),
                    Kind::Mutex | Kind::All => "m".to_owned(),
                    Kind::Permit(_) => kind.to_string(),
                };
                assert_eq!(*seen.entry(key).or_insert_with(|| sort.clone()), sort);
            }
        }
        assert_eq!(seen.len() as u64, MUTEXES + CATALOGS + POOLS);
        assert!(!seen.keys().any(|key| is_home(*key)));
        for home in (0..HOMES).map(home_of) {
            assert!(!seen.contains_key(&home) && !is_volatile(home) && is_home(home), "{home}");
        }
        let forced: Vec<_> =
            (0..500).map(|_| Kind::pick_forced(false, |limit| random.below(limit))).collect();
        for (kind, keys) in &forced {
            assert!(keys.iter().all(|key| is_forced(*key) && !is_home(*key) && !is_volatile(*key)));
            assert!(!keys.iter().any(|key| seen.contains_key(key)), "{kind:?} {keys:?}");
            let names: Vec<_> = keys.iter().map(|key| kind.lock(*key)).collect();
            assert!(names.iter().all(|name| every_lock().contains(name)), "{names:?}");
        }
        assert!(Kind::NAMES.iter().all(|name| forced.iter().any(|(kind, _)| kind.name() == *name)));
    }
}
