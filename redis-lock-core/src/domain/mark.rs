//! Marks: values that take the place of a token at the key of a mutex.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Token;
use crate::domain::env;

/// The prefix of marks. Nothing that is done to a token is done to a value that begins so.
const MARK_PREFIX: &str = "rl1=";

/// Why a lock is not free although it has no holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MarkKind {
    /// What it was held for was done, which stays known for a period.
    Done,
    /// `min_hold` keeps it.
    Kept,
}

/// A value that takes the place of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) kind: MarkKind,
    /// The token that had the lock.
    pub(crate) token: Token,
    /// When the lock was given back, by the clock of the machine that held it.
    pub(crate) at: SystemTime,
}

impl Mark {
    /// The mark that takes the place of a token now.
    pub(crate) fn value(kind: MarkKind, token: &str) -> Arc<str> {
        let kind = if kind == MarkKind::Done { 'd' } else { 'k' };
        let at = env::wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        format!("{MARK_PREFIX}{kind}.{at:x}.{token}").into()
    }

    /// The mark that a value is, if it is one.
    pub(crate) fn read(value: &str) -> Option<Self> {
        let (kind, rest) = value.strip_prefix(MARK_PREFIX)?.split_once('.')?;
        let kind = match kind {
            "d" => MarkKind::Done,
            "k" => MarkKind::Kept,
            _ => return None,
        };
        let (at, token) = rest.split_once('.')?;
        let at = Duration::from_millis(u64::from_str_radix(at, 16).ok()?);
        let (at, token) = (UNIX_EPOCH.checked_add(at)?, Token::from_wire(token));
        token.is_ours().then_some(Self { kind, token, at })
    }

    /// The mark that a value is, if it says that something was done.
    pub(crate) fn read_done(value: &str) -> Option<Self> {
        Self::read(value).filter(|mark| mark.kind == MarkKind::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_is_no_token() {
        let token = Token::fresh("m1", "host/17 job.v2");
        for kind in [MarkKind::Done, MarkKind::Kept] {
            let value = Mark::value(kind, token.wire());
            let mark = Mark::read(&value).unwrap();
            assert_eq!((mark.kind, &mark.token), (kind, &token));
            assert!(mark.at.elapsed().unwrap().as_secs() < 5);
            assert_eq!(Mark::read_done(&value).is_some(), kind == MarkKind::Done);
            assert!(!Token::from_wire(&value).is_ours(), "nothing that is done to a token fits it");
        }
        for value in ["", "rl1=", "rl1=d", "rl1=d.1.abc", "rl1=x.1.rl1.a.b.0.", "rl1=d.g.rl1.a"] {
            assert_eq!(Mark::read(value), None, "{value}");
        }
        assert_eq!(Mark::read(token.wire()), None);
    }
}
