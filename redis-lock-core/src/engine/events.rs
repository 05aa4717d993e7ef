//! Events of a place: messages, and the beginning or end of a subscription.

use std::sync::atomic::Ordering;

use super::core::{Core, Work};
use super::lock_id::LockId;
use super::places::PlaceId;
use crate::Token;
use crate::store::Event;

impl Core {
    /// Handles an event that is no answer to a question.
    pub(crate) fn receive(&self, place: PlaceId, event: Event, work: &mut Work) {
        match event {
            Event::Granted { token, waited_for } => {
                let Some(id) = self.index().get(token.as_str()).cloned() else { return };
                self.step(&id, work, |machine, env, out| {
                    machine.hinted(&token, waited_for, env, out);
                });
            }
            Event::WaitedFor { key } => {
                let id = LockId::mutex(&key);
                self.step(&id, work, |machine, env, out| machine.somebody_waits(env, out));
            }
            Event::Asked { key, token } => {
                let (id, asker) = (LockId::mutex(&key), Token::from_wire(&token));
                self.step(&id, work, |machine, env, out| {
                    let may_answer = || self.in_use_answers.may_answer(env.now);
                    machine.asked_for(&asker, may_answer, env, out);
                });
            }
            Event::Forced { token } => {
                self.search().add(token);
                self.waker.wake();
            }
            Event::Returned => {
                self.step_all_at(place, work, |machine, env, out| machine.connected(env, out));
            }
            Event::Listening { hints_enabled } => {
                let place = if planted!(CountedElsewhere) { place % 2 + 1 } else { place };
                let Some(place) = self.places.get(place) else { return };
                let before = place.hints_enabled.swap(hints_enabled, Ordering::Relaxed);
                if before != hints_enabled {
                    // A node that has lost its slots ends the subscription, before anything is
                    // asked there. No message reported what changed before the subscription began.
                    self.look_soon();
                }
                self.step_all_at(place.id, work, |machine, env, out| machine.listening(env, out));
            }
        }
    }
}
