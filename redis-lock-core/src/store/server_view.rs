//! What the arbiter knows of one lock.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::kind::Kind;
use crate::domain::lease::reserved_fences;
use crate::domain::mark::Mark;
use crate::domain::status::{LockKind, ServerInfo};
use crate::{Done, Holder, Token};

/// One lock as the arbiter sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerView {
    pub(crate) kind: LockKind,
    pub(crate) holders: Vec<Holder>,
    /// What was done, while that stays known.
    pub(crate) done: Option<Done>,
    /// The tokens in the queue, in order.
    pub(crate) waiters: Vec<Token>,
    /// How many more there are than are listed.
    pub(crate) more_holders: usize,
    pub(crate) more_waiters: usize,
    /// Identifies the value of another program, or a mark, so that a forced release ends exactly this
    /// value.
    pub(crate) foreign: Option<Arc<str>>,
    /// Filled in by the connection.
    pub(crate) server: Option<ServerInfo>,
}

impl ServerView {
    /// A lock whose key has a string.
    pub(crate) fn of_value(value: &str, ttl: Option<Duration>, fence: Option<(u64, &str)>) -> Self {
        if let done @ Some(_) = Done::read(value, ttl) {
            return Self { done, ..Self::of_nobody(LockKind::Mutex) };
        }
        if Mark::read(value).is_some() {
            let holders = vec![Holder::of_value(value, ttl)];
            return Self { holders, ..Self::of_nobody(LockKind::Mutex) };
        }
        let token = Token::from_wire(value);
        let kind = if token.is_ours() { LockKind::Mutex } else { LockKind::Foreign };
        let holders = vec![holder(token, ttl, fence)];
        Self { holders, ..Self::of_nobody(kind) }
    }

    /// The same for a value that is no token, whatever it looks like.
    pub(crate) fn of_another(self, name: Arc<str>) -> Self {
        let is_mark =
            self.done.is_some() || self.holders.iter().any(|holder| holder.kept_until.is_some());
        let kind = if is_mark { self.kind } else { LockKind::Foreign };
        Self { kind, foreign: Some(name), ..self }
    }

    /// A lock whose key has a set of holders, each with its mode before its token.
    pub(crate) fn of_members(
        members: &[(String, Duration, Option<u32>)],
        limit: u32,
        fence: Option<(u64, &str)>,
    ) -> Self {
        let read = |(member, left, slot): &(String, Duration, Option<u32>)| {
            let (mode, token) = member.split_once(':')?;
            let token = Token::from_wire(token);
            let holder = |token| Holder { slot: *slot, ..holder(token, Some(*left), fence) };
            token.is_ours().then(|| (mode.to_owned(), holder(token)))
        };
        let known: Option<Vec<_>> = members.iter().map(read).collect();
        let kind = match known.as_deref().map(|known| known.first().map(|(mode, _)| mode.as_str()))
        {
            Some(None) => LockKind::Free,
            Some(Some(mode)) => {
                Kind::of_mode(mode, limit).map_or(LockKind::Foreign, LockKind::from)
            }
            None => LockKind::Foreign,
        };
        if kind == LockKind::Foreign {
            return Self::of_nobody(kind);
        }
        let holders = known.unwrap_or_default().into_iter().map(|(_, holder)| holder).collect();
        Self { holders, ..Self::of_nobody(kind) }
    }

    /// A key that does not exist, or has a value that can't be a lock.
    pub(crate) fn of_nobody(kind: LockKind) -> Self {
        Self {
            kind,
            holders: Vec::new(),
            done: None,
            waiters: Vec::new(),
            more_holders: 0,
            more_waiters: 0,
            foreign: None,
            server: None,
        }
    }
}

/// A holder, with its fencing number if the last numbers were given to it.
pub(crate) fn holder(token: Token, ttl: Option<Duration>, fence: Option<(u64, &str)>) -> Holder {
    let fence = fence.filter(|(_, owner)| *owner == &**token.wire());
    let fence = fence.map(|(last, _)| reserved_fences(last).start);
    Holder { fence, ..Holder::of(token, ttl) }
}
