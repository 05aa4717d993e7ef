//! Looking at one lock, and ending holds by force.

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use super::entry::Entry;
use crate::domain::clock::Moment;
use crate::domain::mark::Mark;
use crate::domain::status::{LockKind, ReleaseBy, ServerInfo};
use crate::store::{Answer, Event, ServerView, server_view};
use crate::{Holder, Token};

/// How long the reason of a forced release is kept for a holder without a lease.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How much longer than the lease would have lasted the reason of a forced release is kept.
const REASON_GRACE: Duration = Duration::from_secs(1);

impl Entry {
    pub(super) fn server_view(&self, now: Moment) -> ServerView {
        let fence = self.fence.as_ref().map(|last| last.of());
        let holders = self.holders.iter().map(|holder| {
            let left = (holder.end != Moment::NEVER).then(|| holder.end.since(now));
            let shown = server_view::holder(Token::from_wire(&holder.token), left, fence);
            Holder { slot: holder.slot, ..shown }
        });
        let kind =
            self.holders.first().map_or(LockKind::Free, |holder| match holder.kind.limit() {
                Some(limit) => LockKind::Permit { limit: self.least(limit) },
                None => holder.kind.into(),
            });
        let living = self.queue.iter().filter(|waiter| waiter.until > now);
        let mark = self.holders.first().filter(|holder| Mark::read(&holder.token).is_some());
        let view = match mark {
            Some(mark) => ServerView::of_value(&mark.token, Some(mark.end.since(now)), None)
                .of_another(Arc::clone(&mark.token)),
            None => ServerView { holders: holders.collect(), ..ServerView::of_nobody(kind) },
        };
        ServerView {
            waiters: living.map(|waiter| Token::from_wire(&waiter.token)).collect(),
            server: Some(ServerInfo::alone("memory".into(), ReleaseBy::Memory)),
            ..view
        }
    }

    pub(super) fn force(
        &mut self,
        tokens: &[Token],
        because: &Arc<str>,
        run: &mut Execution<'_>,
    ) -> Answer {
        let named = tokens.iter().map(Token::wire);
        let ended: Vec<_> = named.filter_map(|token| self.holders.remove(token)).collect();
        let Some(kind) = ended.first().map(|holder| holder.kind) else {
            let before = |token: &Token| {
                self.tombstones
                    .get(token.wire())
                    .is_some_and(|tombstone| tombstone.reason == *because)
            };
            return match tokens.iter().any(before) {
                true => Answer::Done,
                false => Answer::Gone { by: None, because: None },
            };
        };
        for holder in ended {
            let lasting = holder.end == Moment::NEVER;
            let until = if lasting { run.now.after(DAY) } else { holder.end.after(REASON_GRACE) };
            self.leave_tombstone(&holder.token, because, until);
            let token = holder.token.to_string();
            run.tell_manager_of(&holder.token, Event::Forced { token });
        }
        self.admit(kind, None, run);
        Answer::Done
    }
}
