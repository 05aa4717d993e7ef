//! Heirs: who adopts what another process gives away, and when.

use std::future::poll_fn;
use std::sync::Arc;

use super::books::{CallRecord, Ended, What};
use super::caller::{BegunCall, DecidesAtLast, HeldGuard, SimulatedCaller};
use super::clock::{self, MILLI, SECOND};
use super::executor::{cut_short, sleep};
use super::heritage::Gift;
use super::plan::{self, Act, CallEnding, HistoryPlan, PlannedCall, TTLS};
use super::planned_trouble::PlannedTrouble;
use super::random::{self, Random};
use crate::domain::kind::Kind;
use crate::{Guard, Token};

/// Makes the random numbers for heirs differ from others of the same seed.
const OF_HEIRS: u64 = 91;

impl HistoryPlan {
    /// Names an heir, or none, for whatever is given away.
    pub(super) fn name_heirs(&mut self) {
        let random = &mut Random::new(random::hash([self.seed, OF_HEIRS, 0, 0]));
        let processes = self.processes.len() as u64;
        for planned in &mut self.planned_calls {
            planned.heir = (planned.ending == CallEnding::Detach)
                .then(|| heir_of(planned, processes, 85, random))
                .flatten();
        }
    }

    /// The history of a seed in which much is given away, on connections that end with bytes on
    /// their way, and at a server whose clock is set back.
    pub(super) fn giving_away(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        let random = &mut Random::new(random::hash([seed, OF_HEIRS, 1, 0]));
        plan.path.latency = random.pick(&[1, 5, 31]) * MILLI;
        // A command that is late by seconds may reach a server whose clock was set back after
        // everything that guards against it has ended.
        plan.path.slow = 0;
        let fenced = random.percent(50);
        for planned in plan.planned_calls.iter_mut().filter(|planned| planned.keys.len() == 1) {
            (planned.max_hold, planned.min_hold, planned.patience, planned.polls) =
                (None, None, None, None);
            planned.ttl = random.pick(&[300, 400, 600, 2_000]) * MILLI;
            (planned.renew, planned.fenced) = (true, planned.fenced || fenced);
            if random.percent(60) {
                planned.ending = CallEnding::Detach;
                planned.acts = vec![Act::Work(random.pick(&[0, 1, 30, 150, 400, 1_200]) * MILLI)];
            }
        }
        plan.troubles.clear();
        if random.percent(15) {
            plan.part(random);
            plan.name_heirs();
            return plan;
        }
        for _ in 0..random.between(6, 14) {
            let process = random.below(plan.processes.len() as u64) as usize;
            let late = Some(random.between(10, 4_000) * MILLI);
            let trouble = match random.below(10) {
                0..3 => PlannedTrouble::Cut { process, late },
                3..5 => PlannedTrouble::HalfOpen { process, late },
                _ => {
                    let by = random.pick(&[1_500, 1_500, 5_100]) * MILLI;
                    PlannedTrouble::ServerClock { forward: false, by }
                }
            };
            plan.troubles.push((random.below(plan.calm_at), trouble));
        }
        plan.troubles.sort_by_key(|(at, _)| *at);
        plan.name_heirs();
        plan
    }
}

fn heir_of(
    of: &PlannedCall,
    processes: u64,
    chance: u64,
    random: &mut Random,
) -> Option<Box<PlannedCall>> {
    if !random.percent(chance) {
        return None;
    }
    let mut heir = PlannedCall {
        process: random.below(processes) as usize,
        after: random.pick(&[0, 0, 0, 1, 20, 150, 400, 1_000]) * MILLI,
        ttl: random.pick(&TTLS) * MILLI,
        wait: Some(2 * SECOND),
        renew: random.percent(85),
        acts: (0..random.between(0, 2)).map(|_| plan::act(random)).collect(),
        ending: match random.below(10) {
            0..5 => CallEnding::Release,
            5..7 => CallEnding::Drop,
            7 => CallEnding::Impatient,
            _ => CallEnding::Detach,
        },
        fenced: false,
        ..of.clone()
    };
    (heir.min_hold, heir.max_hold, heir.linger, heir.once) = (None, None, None, None);
    (heir.queue, heir.newest) = (None, false);
    (heir.polls, heir.patience) = (None, None);
    heir.heir = heir_of(&heir, processes, 40, random);
    Some(Box::new(heir))
}

impl SimulatedCaller {
    /// Takes over what another planned call gives away, if it does before the history becomes calm.
    pub(super) async fn inherit(self, giver: usize, planned: PlannedCall) {
        let _decides = DecidesAtLast::new(&self.books, vec![planned.number]);
        let left = self.calm_at.saturating_sub(clock::now());
        let books = &self.books;
        let given = poll_fn(|context| books.borrow_mut().heritage.given(giver, context.waker()));
        let gift = cut_short(given, None, Some(left)).await.flatten();
        if let Some(gift) = gift {
            self.adopt(&planned, gift).await;
        }
    }

    async fn adopt(&self, planned: &PlannedCall, gift: Gift) {
        let Ok(token) = gift.text.parse::<Token>() else {
            return self.books.borrow_mut().violated(format!("{} is no token", gift.text));
        };
        if planned.ending != CallEnding::Detach && planned.heir.is_some() {
            let heritage = &mut self.books.borrow_mut().heritage;
            heritage.copied(token.wire());
            heritage.give(planned.number, Some(gift.clone()));
        }
        sleep(planned.after).await;
        if clock::now() >= self.calm_at {
            return;
        }
        let mut call = CallRecord::new(What::Adopt, self.process, planned.keys.clone());
        call.token = Some(Arc::clone(token.wire()));
        let begun = BegunCall::new(self, call);
        let planned = PlannedCall { writes: gift.writes, ..planned.clone() };
        let outcome = self.request(&planned).adopt(token).await;
        begun.end(Ended::of(Some(&outcome)));
        if let Ok(guard) = outcome {
            self.hold(&planned, guard).await;
        }
    }

    /// Whether a guard is a writer's. Of two who have one token, neither turns it into a reader's under
    /// the other.
    pub(super) fn can_downgrade(&self, guard: &Guard) -> bool {
        let is_copied = self.books.borrow().heritage.is_copied(guard.token().wire());
        guard.hold().kind() == Kind::Write && !is_copied
    }

    /// Gives a hold away, to the heir of the planned call if it has one.
    pub(super) fn give_away(&self, planned: &PlannedCall, guard: Guard, held: &HeldGuard) {
        let writes = guard.hold().last_kind() == Kind::Write;
        let token = Arc::clone(guard.token().wire());
        held.give_up();
        let given = guard.detach();
        let heritage = &mut self.books.borrow_mut().heritage;
        if *given.wire() == token {
            heritage.detached(&token);
        }
        heritage.give(planned.number, Some(Gift { text: given.to_string(), writes }));
    }
}
