//! Keys: one, or several as one lock, and how they are checked.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, mem, slice};

use crate::domain::names;
use crate::domain::names::Names;
use crate::{ConfigError, LockError};

/// The longest key, namespace not counted.
const MAX_BYTES: usize = 4096;

/// What is locked, as the caller names it. The library adds the namespace.
///
/// ```
/// use redis_locks::LockKey;
/// let key: LockKey = format!("order:{}", 42).into();
/// assert_eq!(key.as_str(), "order:42");
/// assert!("".parse::<LockKey>().is_err(), "`parse` checks what `into` leaves to the lock");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey(Cow<'static, str>);

impl LockKey {
    /// A key that is known at compile time. It does not allocate.
    ///
    /// ```
    /// const KEY: redis_locks::LockKey = redis_locks::LockKey::from_static("report");
    /// ```
    #[must_use]
    pub const fn from_static(key: &'static str) -> Self {
        Self(Cow::Borrowed(key))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn check(&self) -> Result<(), LockError> {
        let reason = if self.0.is_empty() {
            "an empty key would lock everything against everything; name what is locked".into()
        } else if self.0.len() > MAX_BYTES {
            format!(
                "{} bytes are more than {MAX_BYTES}; lock a shorter name, such as a hash of this one",
                self.0.len()
            )
        } else if self.0.contains('\0') {
            "it contains a NUL, which no name needs; leave it out".into()
        } else if names::is_reserved(&self.0) {
            "this library uses names of this form for the queues of other locks; choose a key that \
             does not begin with `{`"
                .into()
        } else {
            return Ok(());
        };
        Err(LockError::InvalidKey { key: self.0.chars().take(80).collect(), reason })
    }

    /// The key on the server.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Arc<str> {
        if namespace.is_empty() {
            self.as_str().into()
        } else {
            [namespace, ":", &self.0].concat().into()
        }
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Checks the key, which `From` leaves to the acquisition: [`InvalidKey`](LockError::InvalidKey).
impl FromStr for LockKey {
    type Err = LockError;

    fn from_str(key: &str) -> Result<Self, LockError> {
        let key = Self::from(key);
        key.check().map(|()| key)
    }
}

impl From<&str> for LockKey {
    fn from(key: &str) -> Self {
        Self(Cow::Owned(key.to_owned()))
    }
}

impl From<String> for LockKey {
    fn from(key: String) -> Self {
        Self(Cow::Owned(key))
    }
}

impl From<&String> for LockKey {
    fn from(key: &String) -> Self {
        Self::from(key.as_str())
    }
}

impl From<&Self> for LockKey {
    fn from(key: &Self) -> Self {
        match &key.0 {
            Cow::Borrowed(text) => Self(Cow::Borrowed(text)),
            Cow::Owned(text) => Self::from(text),
        }
    }
}

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
        let given = keys.len();
        let Some((first, others)) = keys.split_first().filter(|_| given <= MOST) else {
            return Err(ConfigError::KeyCount { given, most: MOST }.into());
        };
        let joined = keys.iter().map(LockKey::as_str).collect::<Vec<_>>().join(", ");
        Ok(Names::together(names(first), others.iter().map(names).collect(), &joined))
    }
}

/// Keys and tokens as serde sees them: their text.
#[cfg(feature = "serde")]
mod serialized {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    use crate::{LockKey, Token};

    macro_rules! as_text {
        ($($type:ty),+) => {$(
            /// As its text. Needs the feature `serde`.
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            /// From its text, which is checked as by `parse`. Needs the feature `serde`.
            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                }
            }
        )+};
    }

    as_text!(LockKey, Token);

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::Locks;

        #[test]
        fn keys_and_tokens_are_read_back_and_checked() {
            let key = LockKey::from("order:42");
            let json = serde_json::to_string(&key).unwrap();
            assert_eq!(json, r#""order:42""#);
            assert_eq!(serde_json::from_str::<LockKey>(&json).unwrap(), key);
            assert!(serde_json::from_str::<LockKey>(r#""""#).is_err());
            let token = Locks::in_memory().mutex("k").blocking_acquire().unwrap().detach();
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), token);
            assert!(serde_json::from_str::<Token>(r#""no token""#).is_err());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked() {
        assert!(matches!(LockKey::from("").check(), Err(LockError::InvalidKey { .. })));
        assert!(LockKey::from("k".repeat(MAX_BYTES)).check().is_ok());
        assert!(matches!(
            LockKey::from("k".repeat(MAX_BYTES + 1)).check(),
            Err(LockError::InvalidKey { .. })
        ));
    }

    #[test]
    fn what_belongs_to_another_lock_is_no_key() {
        for key in ["{lock:a}:~q", "{b}:lock:a{b}:~w", "{a}:~f", "{a}:~n", "{a}:~x:rl1.1", "a\0b"] {
            let refused = LockKey::from(key).check();
            assert!(matches!(refused, Err(LockError::InvalidKey { .. })), "{key}");
        }
        for key in ["user:~quentin", "a:~q", "{a}:~quentin", "{a}", "~q", "{a}:b"] {
            assert!(LockKey::from(key).check().is_ok(), "{key}");
        }
    }

    #[test]
    fn the_namespace_is_put_in_front() {
        assert_eq!(LockKey::from("a").in_namespace("lock").as_ref(), "lock:a");
        assert_eq!(LockKey::from("a").in_namespace("").as_ref(), "a");
    }
}

#[cfg(test)]
mod together_tests {
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
