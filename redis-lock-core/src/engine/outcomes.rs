//! Hands outcomes to those who asked.

use super::core::{Core, Work};
use super::lock_id::LockId;
use super::notices::Notice;
use super::path::{Origin, Settled};
use super::table::Shard;
use crate::domain::error::Fault;
use crate::lock::{Machine, Outcome};
use crate::store::Answer;

/// For how many outcomes memory is kept.
const MOST_SPARE: usize = 256;

impl Core {
    /// Hands outcomes to those who asked.
    pub(super) fn settle(&self, work: &mut Work) {
        let mut all = std::mem::take(&mut work.settled);
        // One counts for others as well, so it is kept until all of them are handed over.
        work.hands.extend(all.iter_mut().filter_map(Settled::take_hand));
        if all.len() > 1 && all.iter().any(Settled::is_owed) {
            // The reaper has unanswered releases before the machine of their key asks again.
            all.sort_by_key(|settled| !settled.is_owed());
        }
        for settled in all.drain(..) {
            let (origin, sent, outcome) = match settled {
                Settled::Done { origin, sent, outcome, .. } => (origin, sent, outcome),
                Settled::Redirected(entry, redirect) => {
                    self.redirect(*entry, redirect, work);
                    continue;
                }
                Settled::Failed(failed) => {
                    self.release_failed(*failed, work);
                    continue;
                }
            };
            self.doubt_map(&outcome);
            match origin {
                Origin::Lock(id, number) => self.tell_outcome(&id, number, outcome, work),
                Origin::Reap(reap) => self.reaped(reap, outcome, sent, work),
                Origin::Part(gathering, group) => self.gather(&gathering, group, outcome, work),
                Origin::Query(reply) => {
                    work.notices.extend(reply.map(|reply| Notice::reply(reply, answer(outcome))));
                }
                Origin::Ping => {}
            }
        }
        if work.settled.is_empty() && all.capacity() <= MOST_SPARE {
            work.settled = all;
        }
    }

    fn tell_outcome(&self, id: &LockId, number: u64, outcome: Outcome, work: &mut Work) {
        let is_unknown = matches!(outcome, Outcome::Unknown(_));
        self.note_outcome(&self.places.of(&id.main), &outcome, &mut work.notices);
        let is_busy = matches!(outcome, Outcome::Answered(Answer::Busy(_)));
        let waiting =
            |shard: &Shard| match shard.get(id).filter(|_| is_busy && id.has_own_machine()) {
                Some(resident) if resident.machine.may_be_crowded() => {
                    Machine::refused_before(shard.of_key(&id.main))
                }
                _ => 0,
            };
        self.step_in(id, false, waiting, work, |machine, env, out| {
            machine.outcome(number, outcome, env, out);
        });
        if is_unknown {
            self.places.of(&id.main).path.traffic().unknown_reported(number);
        }
    }
}

fn answer(outcome: Outcome) -> Result<Answer, Fault> {
    match outcome {
        Outcome::Answered(answer) => Ok(answer),
        Outcome::Refused(fault) | Outcome::Unknown(fault) => Err(fault),
    }
}
