//! What several nodes know of one lock.

use crate::domain::status::LockKind;
use crate::store::{Answer, ServerView};

/// One view of what the nodes that have answered know. A holder is one that may have a majority of all
/// nodes; who waits is told by the node that knows most of it.
pub(super) fn merged(views: &[&ServerView], nodes: usize, needed: usize) -> Answer {
    let silent = nodes.saturating_sub(views.len());
    let having = |token: &str| {
        let has = |view: &&&ServerView| view.holders.iter().any(|it| &**it.token.wire() == token);
        views.iter().filter(has).count()
    };
    let may_hold = |token: &str| having(token) + silent >= needed;
    let held =
        |view: &ServerView| view.holders.iter().filter(|it| may_hold(it.token.wire())).count();
    let Some(most) = views.iter().max_by_key(|view| (held(view), view.waiters.len())) else {
        return Answer::Done;
    };
    let mut view = (*most).clone();
    let is_foreign = view.kind == LockKind::Foreign && view.holders.is_empty();
    view.holders.retain(|it| may_hold(it.token.wire()));
    if view.holders.is_empty() && !is_foreign {
        (view.kind, view.foreign) = (LockKind::Free, None);
    }
    Answer::Seen(Box::new(view))
}
