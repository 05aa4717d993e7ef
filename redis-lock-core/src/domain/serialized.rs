//! Keys and tokens as serde sees them: their text.

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
