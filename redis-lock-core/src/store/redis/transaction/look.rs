//! Looks at a lock without scripts.

use redis::{Script, Value};

use super::snapshot::{Snapshot, Standing, is_ours, unmarked};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::mark::Mark;
use crate::domain::status::LockKind;
use crate::domain::token::cut;
use crate::store::memory::fences::Last;
use crate::store::redis::dialect::MOST_READ;
use crate::store::redis::edge;
use crate::store::{Answer, MOST_SHOWN, ServerView};

/// The most bytes of another program's value that are shown.
const MOST_BYTES: usize = 200;

/// A lock whose key has a string, or does not exist.
pub(super) fn seen(snapshot: &Snapshot) -> Answer {
    let fence = snapshot.fence.as_ref().map(Last::of);
    let mut view = match &snapshot.lock {
        Standing::Value { text, left, .. } => {
            let view = ServerView::of_value(shown(unmarked(text).0), *left, fence);
            if is_ours(text) { view } else { view.of_another(digest(text).into()) }
        }
        Standing::Nothing => ServerView::of_nobody(LockKind::Free),
        Standing::Other => ServerView::of_nobody(LockKind::Foreign),
    };
    let entry = snapshot.entry();
    let living = entry.queue.iter().take(MOST_SHOWN);
    let living = living.filter(|waiter| waiter.until > snapshot.now);
    view.waiters = living.map(|waiter| Token::from_wire(&waiter.token)).collect();
    view.more_waiters = entry.queue.len().saturating_sub(MOST_SHOWN);
    Answer::Seen(Box::new(view))
}

/// A lock that several can hold, from the members of its sorted set.
pub(super) fn members(members: Value, now: Moment) -> Answer {
    let nobody = || ServerView::of_nobody(LockKind::Foreign);
    let Ok(members) = redis::from_redis_value::<Vec<(String, f64)>>(members) else {
        return Answer::Seen(Box::new(nobody()));
    };
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
    let end = |at: f64| Moment::START.after(edge::left(at as i64).unwrap_or_default());
    let living = members.into_iter().map(|(member, at)| (member, end(at)));
    let living: Vec<_> = living
        .filter(|(_, end)| *end > now)
        .map(|(member, end)| (member, end.since(now)))
        .collect();
    let more = living.len().saturating_sub(MOST_SHOWN);
    let mut view = ServerView::of_members(living.get(..MOST_SHOWN).unwrap_or(&living), 0, None);
    view.more_holders = more;
    Answer::Seen(Box::new(view))
}

/// The part of a value that is shown.
pub(super) fn shown(value: &str) -> &str {
    if is_ours(value) || Mark::read(value).is_some() { value } else { cut(value, MOST_BYTES) }
}

/// Identifies the value of another program, as `digest.lua` does for text.
pub(super) fn digest(value: &str) -> String {
    let named = format!("{} {}", cut(value, MOST_READ), value.len());
    Script::new(&named).get_hash().to_owned()
}
