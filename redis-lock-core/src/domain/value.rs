//! What a body has returned, as other calls get it.

use std::fmt;
use std::sync::Arc;

/// The longest value that a builder may allow. All commands of a server share one ordered connection, so a
/// larger one would delay renewals.
pub(crate) const MOST_VALUE: usize = 1 << 20;

/// The longest value unless the builder says otherwise.
pub(crate) const DEFAULT_MOST_VALUE: usize = 64 << 10;

/// The value that a body returned, as it is stored for other calls. `Debug` shows nothing but its size.
///
/// ```
/// # fn show(done: &redis_locks::Done) {
/// let json = done.value.as_ref().map(|value| value.json());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoredValue(Arc<str>);

impl StoredValue {
    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// What is stored in place of a value that could not be stored.
    #[cfg(feature = "serde")]
    pub(crate) fn without(why: &NoValue) -> Self {
        Self::new(match why {
            NoValue::TooLarge { bytes } => format!("!{bytes}"),
            _ => "!".to_owned(),
        })
    }

    /// The value as it is stored, with the token of the hold in front: a mark is never read with the value of
    /// another hold.
    pub(crate) fn of_token(&self, token: &str) -> Self {
        Self::new([token, " ", &self.0].concat())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this library may have written it.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.starts_with("rl1.")
    }

    /// The value that the hold of `token` has stored, without the token.
    pub(crate) fn stored_by(&self, token: &str) -> Result<&str, NoValue> {
        if !self.0.is_empty() && !self.is_ours() {
            return Err(NoValue::Foreign);
        }
        let stored = self.0.strip_prefix(token).and_then(|rest| rest.strip_prefix(' '));
        match stored.map(|text| (text, text.strip_prefix('!'))) {
            None => Err(NoValue::Missing),
            Some((text, None)) => Ok(text),
            Some((_, Some(bytes))) => Err(bytes
                .parse()
                .map_or(NoValue::NotSerialized, |bytes| NoValue::TooLarge { bytes })),
        }
    }
}

impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredValue({} bytes)", self.0.len())
    }
}

/// How a hold ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Finish {
    /// The lock is given back.
    #[default]
    Release,
    /// What was to be done is done, and this is the value.
    Complete(Option<StoredValue>),
    /// The lock is given back, and those who wait get the value.
    #[cfg_attr(not(feature = "serde"), allow(dead_code, reason = "only values are shared"))]
    Share(StoredValue),
}

impl Finish {
    /// Of a body whose value no other call gets.
    pub(crate) fn of_body(has_succeeded: bool) -> Self {
        if has_succeeded { Self::Complete(None) } else { Self::Release }
    }

    /// For a function that may fail.
    pub(crate) fn of<T, E>(value: &Result<T, E>) -> Self {
        Self::of_body(value.is_ok())
    }
}

/// Why a call that could get the value of another call gets [`Done`](crate::LockError::Done) instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoValue {
    /// There is none. The other call stored none, or the server has evicted or lost it.
    Missing,
    /// It was larger than [`largest_value`](crate::LocksBuilder::largest_value).
    #[non_exhaustive]
    TooLarge {
        /// Its size as JSON.
        bytes: usize,
    },
    /// It could not be written as JSON.
    NotSerialized,
    /// It is not JSON, or not that of the type that this call expects.
    OtherType,
    /// The key of the value has a value of another program.
    Foreign,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is not stored, or the server has lost it"),
            Self::TooLarge { bytes } => {
                write!(f, "with {bytes} bytes it was too large to be stored; raise `largest_value`")
            }
            Self::NotSerialized => f.write_str("it could not be written as JSON"),
            Self::OtherType => f.write_str("it is not of the type that this call expects"),
            Self::Foreign => f.write_str("a value of another program is in its place"),
        }
    }
}

/// The fingerprint of a call's input: the first 128 bits of its SHA-1. Tokens contain it, so it must never
/// change.
pub(crate) fn fingerprint(bytes: &[u8]) -> u128 {
    let digest = sha1_smol::Sha1::from(bytes).digest().bytes();
    let first: [u8; 16] = std::array::from_fn(|at| digest.get(at).copied().unwrap_or_default());
    u128::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_the_same_in_every_build() {
        assert_eq!(fingerprint(b""), 0xda39_a3ee_5e6b_4b0d_3255_bfef_9560_1890);
        assert_eq!(fingerprint(b"abc"), 0xa999_3e36_4706_816a_ba3e_2571_7850_c26c);
    }

    #[test]
    fn what_stands_beside_a_lock_is_read_as_what_wrote_it_meant() {
        let stored = |text: &str| StoredValue::new(text).of_token("rl1.t");
        assert_eq!(stored("{} 1").as_str(), "rl1.t {} 1");
        assert_eq!(stored("{} 1").stored_by("rl1.t"), Ok("{} 1"));
        for (value, token, why) in [
            (stored("1"), "rl1.other", NoValue::Missing),
            (stored("1"), "rl1", NoValue::Missing),
            (StoredValue::new(""), "rl1.t", NoValue::Missing),
            (StoredValue::new("rl1.t"), "rl1.t", NoValue::Missing),
            (stored("!"), "rl1.t", NoValue::NotSerialized),
            (stored("!70000"), "rl1.t", NoValue::TooLarge { bytes: 70_000 }),
            (StoredValue::new("theirs"), "rl1.t", NoValue::Foreign),
        ] {
            assert_eq!(value.stored_by(token), Err(why), "{}", value.as_str());
        }
        assert_eq!(format!("{:?}", stored("secret")), "StoredValue(12 bytes)");
    }
}
