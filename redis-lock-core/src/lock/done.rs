//! Callers that find that what they want to do once was done.

use super::{Effects, Machine};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::mark::Mark;

impl<W> Machine<W> {
    /// Tells callers that what they want to do once was done. Returns whether more of them came after the
    /// question was sent.
    pub(super) fn tell_done(&mut self, done: &Mark, sent: Moment, out: &mut Effects<W>) -> bool {
        let once = self.waiters.iter().filter(|waiter| waiter.demand.terms.once.is_some());
        let once: Vec<_> = once.map(|waiter| (waiter.id, waiter.asked)).collect();
        for (id, _) in once.iter().filter(|(_, asked)| *asked <= sent) {
            if let Some(waiter) = self.waiters.leave(*id) {
                let key = waiter.demand.key().to_string();
                out.fail(
                    waiter.handle,
                    LockError::Done { key, by: done.token.label(), at: done.at },
                );
            }
        }
        once.iter().any(|(_, asked)| *asked > sent)
    }
}
