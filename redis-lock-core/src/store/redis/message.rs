//! The messages that managers receive.

use std::time::Duration;

use crate::domain::token::WAITERS_MARK;
use crate::store::Event;

/// How often a subscription is checked with a `PING`: a half-open connection would stay silent for
/// ever.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Parses a message; `None` for text that is no message of this library.
pub(super) fn read(payload: &str) -> Option<Event> {
    let (what, whom) = payload.split_once(' ')?;
    match what {
        "g" => {
            let unmarked = whom.strip_suffix(WAITERS_MARK);
            let token = unmarked.unwrap_or(whom).to_owned();
            Some(Event::Granted { token, waited_for: unmarked.is_some() })
        }
        // The process that asked looks at the lock, whatever the answer is.
        "u" => Some(Event::Granted { token: whom.to_owned(), waited_for: false }),
        "a" => {
            // Both parts may contain spaces.
            let (length, rest) = whom.split_once(' ')?;
            let (token, key) = rest.split_at_checked(length.parse().ok()?)?;
            let key = key.strip_prefix(' ')?.to_owned();
            Some(Event::Asked { key, token: token.to_owned() })
        }
        "r" => Some(Event::Forced { token: whom.to_owned() }),
        "w" => Some(Event::WaitedFor { key: whom.to_owned() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_what_nobody_of_us_wrote_says_nothing() {
        for payload in ["", "g", "x token", "\0", "grant t"] {
            assert_eq!(read(payload), None, "{payload:?}");
        }
        let granted = |waited_for| Some(Event::Granted { token: "t 1".into(), waited_for });
        assert_eq!(read("g t 1"), granted(false));
        assert_eq!(read("g t 1+"), granted(true));
        assert_eq!(read("u t 1"), granted(false));
        let asked = Event::Asked { key: "a b".into(), token: "t 1".into() };
        assert_eq!(read("a 3 t 1 a b"), Some(asked));
        for odd in ["a t", "a 3 t", "a 99 t 1 a b", "a -1 t a", "a 2 t 1 a b", "a 1 ü a"] {
            assert_eq!(read(odd), None, "{odd}");
        }
        assert_eq!(read("w a b"), Some(Event::WaitedFor { key: "a b".into() }));
    }
}
