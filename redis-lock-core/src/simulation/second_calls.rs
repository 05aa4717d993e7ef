//! Histories in which few calls may wait, or a call ends older ones, and what must hold then.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clock::MILLI;
use super::plan::{CallEnding, HistoryPlan, Sort};
use super::planned_trouble::PlannedTrouble;
use super::random::Random;
use crate::Token;
use crate::domain::clock::Moment;
use crate::store::memory::entry::Entry;
use crate::store::{ASK, Acquire, Answer, Blocker, Command, Newest, Verb};

impl HistoryPlan {
    /// Some calls of the first mutex end older ones, some wait only with few others, and some do neither.
    pub(super) fn with_second_calls(seed: u64) -> Self {
        let (mut plan, random) = (Self::of(seed), &mut Random::new(seed ^ 0x6e65_7765));
        plan.keys[0] = Sort::Mutex;
        // They end what is known of calls, which is excused.
        let is_excused = |trouble: &PlannedTrouble| {
            use PlannedTrouble::{Flush, LoseSide, NodeClock, Restart, ServerClock};
            matches!(
                trouble,
                ServerClock { .. }
                    | NodeClock { .. }
                    | Flush
                    | LoseSide { .. }
                    | Restart { keeps_data: false, .. }
            )
        };
        plan.troubles.retain(|(_, trouble)| !is_excused(trouble));
        for planned in &mut plan.planned_calls {
            if random.percent(70) {
                planned.keys = vec![0];
            }
            if planned.keys != [0] || planned.wait == Some(0) {
                continue;
            }
            match random.below(4) {
                0 => {}
                1 => {
                    planned.queue = Some(random.between(1, 3) as usize);
                    (planned.linger, planned.share) = (None, false);
                }
                _ => {
                    planned.newest = true;
                    (planned.min_hold, planned.linger, planned.once) = (None, None, None);
                    (planned.renew, planned.fair, planned.share) = (true, true, false);
                    planned.after = planned.after.min(150 * MILLI);
                    if planned.ending == CallEnding::Complete {
                        planned.ending = CallEnding::Release;
                    }
                }
            }
        }
        // The keys have changed, and an heir wants those of the hold.
        plan.name_heirs();
        plan
    }
}

/// What the server has told calls about others.
#[derive(Default)]
pub(super) struct SecondCalls {
    /// The tokens of calls that end older ones, by key, in the order in which their first questions were
    /// executed, and whether they may end others.
    order: BTreeMap<String, Vec<(Arc<str>, bool)>>,
    /// Whether a question may be sent again behind later ones, because the server did not know its script.
    pub(super) has_rounds: bool,
}

impl SecondCalls {
    /// Returns what an answer has violated. `entry` is the lock afterwards.
    pub(super) fn follow(
        &mut self,
        command: &Command,
        answer: &Answer,
        entry: Option<&Entry>,
        clock: Moment,
    ) -> Option<String> {
        let token = command.verb.token()?;
        let order = self.order.entry(command.names.main().to_owned()).or_default();
        if let Verb::Acquire(Acquire { newest: Some(question), .. }) = &command.verb
            && *answer != Answer::Tombstone
        {
            let ends = *question == Newest::First;
            // The first question of a call may arrive after a later one.
            order.retain(|(known, may_end)| known != token || *may_end || !ends);
            if order.iter().all(|(known, _)| known != token) {
                order.push((Arc::clone(token), ends));
            }
        }
        let mut newer = order.iter().rev().take_while(|(known, _)| known != token);
        let this = Token::from_wire(token);
        // Of two calls of a process, the later one is newer.
        let is_earlier = |known: &str| {
            let known = Token::from_wire(known);
            !self.has_rounds && known.manager() == this.manager() && known.since() < this.since()
        };
        if let Answer::Superseded { .. } = answer
            && !(this.is_newest() && newer.any(|(known, may_end)| *may_end && !is_earlier(known)))
        {
            return Some(format!("{token} was ended, and no newer call has come"));
        }
        if let Verb::Acquire(Acquire { most_waiting: Some(most), .. }) = &command.verb
            && let Answer::Busy(Blocker { queued: true, .. }) = answer
        {
            // Those behind it may have come without a limit.
            let counted = |waiter: &&_| {
                let waiter: &&crate::store::memory::entry::StoredWaiter = waiter;
                waiter.until > clock.after(ASK)
            };
            let before = entry?.queue.iter().take_while(|waiter| waiter.token != *token);
            let waiting = before.filter(counted).count() + 1;
            if waiting > *most {
                return Some(format!("{token} waits as number {waiting}, and {most} may"));
            }
        }
        None
    }
}

#[test]
fn histories_with_second_calls_keep_every_promise() {
    super::tests::keep_every_promise(HistoryPlan::with_second_calls, 140);
}
