//! Several keys as one lock.

use std::{mem, slice};

use crate::domain::names::Names;
use crate::{ConfigError, LockError, LockKey};

/// The most keys of one lock: its scripts keep the server from everything else while they run.
const MOST: usize = 128;

/// The keys of a request. Most requests name one key, and need no list.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    One(LockKey),
    Several(Vec<LockKey>),
}

impl Keys {
    /// Takes the keys out, which leaves none.
    pub(crate) fn take(&mut self) -> Self {
        mem::replace(self, Self::Several(Vec::new()))
    }

    pub(crate) fn as_slice(&self) -> &[LockKey] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::Several(keys) => keys,
        }
    }

    /// The names on the server, in the order in which an acquisition that keeps some keys while it
    /// waits takes them.
    pub(crate) fn named(self, namespace: &str) -> Result<Names, LockError> {
        self.as_slice().iter().try_for_each(LockKey::check)?;
        let names = |key: &LockKey| Names::new(namespace, key.in_namespace(namespace));
        let mut keys = match self {
            Self::One(key) => return Ok(names(&key)),
            Self::Several(keys) => keys,
        };
        keys.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        keys.dedup();
        if keys.len() > MOST {
            return Err(ConfigError::TooManyKeys { given: keys.len(), most: MOST }.into());
        }
        let Some((first, others)) = keys.split_first() else {
            return Err(ConfigError::NoKeys.into());
        };
        let joined = keys.iter().map(LockKey::as_str).collect::<Vec<_>>().join(", ");
        Ok(Names::together(names(first), others.iter().map(names).collect(), &joined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[&str]) -> Result<Names, LockError> {
        Keys::Several(keys.iter().map(|key| LockKey::from(*key)).collect()).named("lock")
    }

    #[test]
    fn l7_keys_are_sorted_and_duplicates_collapse() {
        let names = of(&["b", "a", "b"]).unwrap();
        assert_eq!(names.user_key(), "a, b");
        assert_eq!(names.all().map(Names::main).collect::<Vec<_>>(), ["lock:a", "lock:b"]);
        assert!(names.cover("b") && !names.cover("a, b"));
    }

    #[test]
    fn none_or_too_many_are_refused() {
        assert!(matches!(of(&[]), Err(LockError::InvalidConfig { .. })));
        assert!(matches!(of(&["a", ""]), Err(LockError::InvalidKey { .. })));
        let many: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(of(&many), Err(LockError::InvalidConfig { .. })));
        assert!(of(&many[1..]).is_ok());
    }
}
