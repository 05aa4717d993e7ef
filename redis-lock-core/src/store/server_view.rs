//! What an arbiter shows of one lock.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::fence::first_fence;
use crate::domain::kind::Kind;
use crate::domain::status::{LockKind, ServerInfo};
use crate::{Holder, Token};

/// One lock, as the arbiter sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerView {
    pub(crate) kind: LockKind,
    pub(crate) holders: Vec<Holder>,
    /// The tokens that wait, in the order of their coming.
    pub(crate) waiters: Vec<Token>,
    /// How many more there are than are shown.
    pub(crate) more_holders: usize,
    pub(crate) more_waiters: usize,
    /// What names the value of another program, so that this one and no other is ended by force.
    pub(crate) foreign: Option<Arc<str>>,
    /// Filled in by who knows it.
    pub(crate) server: Option<ServerInfo>,
}

impl ServerView {
    /// A key at which a string stands.
    pub(crate) fn of_value(value: &str, ttl: Option<Duration>, fence: Option<(u64, &str)>) -> Self {
        let token = Token::from_wire(value);
        let kind = if token.is_ours() { LockKind::Mutex } else { LockKind::Foreign };
        let holders = vec![holder(token, ttl, fence)];
        Self { holders, ..Self::of_nobody(kind) }
    }

    /// A key at which a set of holders stands, each with its mode before its token.
    pub(crate) fn of_members(
        members: &[(String, Duration)],
        limit: u32,
        fence: Option<(u64, &str)>,
    ) -> Self {
        let read = |(member, left): &(String, Duration)| {
            let (mode, token) = member.split_once(':')?;
            let token = Token::from_wire(token);
            token.is_ours().then(|| (mode.to_owned(), holder(token, Some(*left), fence)))
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

    /// A key at which nothing stands, or nothing that can be a lock.
    pub(crate) fn of_nobody(kind: LockKind) -> Self {
        Self {
            kind,
            holders: Vec::new(),
            waiters: Vec::new(),
            more_holders: 0,
            more_waiters: 0,
            foreign: None,
            server: None,
        }
    }
}

/// A holder, with its number where the last numbers given out were given to it.
pub(crate) fn holder(token: Token, ttl: Option<Duration>, fence: Option<(u64, &str)>) -> Holder {
    let fence = fence.filter(|(_, owner)| *owner == &**token.wire());
    let fence = fence.map(|(last, _)| first_fence(last));
    Holder { fence, ..Holder::of(token, ttl) }
}
