//! What is shown of a lock.

use redis::{Script, Value};

use super::snapshot::{Snapshot, Standing, is_ours, unmarked};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::status::LockKind;
use crate::store::{Answer, MOST_SHOWN, ServerView};

/// What others wrote may be of any size; so much of it is shown.
const MOST_BYTES: usize = 200;

/// So much of a value names it.
const MOST_NAMING: usize = 4096;

/// A lock at which a string stands, or nothing.
pub(super) fn seen(snapshot: &Snapshot) -> Answer {
    let fence = snapshot.fence.as_ref().map(|(last, owner)| (*last, owner.as_str()));
    let mut view = match &snapshot.lock {
        Standing::Value { text, left } => {
            let mut view = ServerView::of_value(shown(unmarked(text).0), *left, fence);
            view.foreign = (!is_ours(text)).then(|| digest(text).into());
            view
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

/// A lock that several hold, from its members with their ends.
pub(super) fn members(members: Value, now: Moment) -> Answer {
    let nobody = || ServerView::of_nobody(LockKind::Foreign);
    let Ok(members) = redis::from_redis_value::<Vec<(String, f64)>>(members) else {
        return Answer::Seen(Box::new(nobody()));
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds since 1970"
    )]
    let end = |at: f64| Moment::START.after(std::time::Duration::from_millis(at as u64));
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

/// A value as it is shown.
pub(super) fn shown(value: &str) -> &str {
    if is_ours(value) { value } else { cut(value, MOST_BYTES) }
}

/// Names the value of another program, as `digest.lua` does where the value is text.
pub(super) fn digest(value: &str) -> String {
    let named = format!("{} {}", cut(value, MOST_NAMING), value.len());
    Script::new(&named).get_hash().to_owned()
}

fn cut(value: &str, most: usize) -> &str {
    let end = (0..=most.min(value.len())).rev().find(|end| value.is_char_boundary(*end));
    value.get(..end.unwrap_or(0)).unwrap_or(value)
}
