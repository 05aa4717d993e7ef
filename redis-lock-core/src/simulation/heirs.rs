//! Heirs: who adopts what another process gives away, and when.

use std::sync::Arc;

use super::books::{CallRecord, Ended, What};
use super::caller::{BegunCall, HeldGuard, SimulatedCaller};
use super::clock::{self, MILLI, SECOND};
use super::executor::{cut_short, sleep};
use super::heritage::{Gift, given};
use super::plan::{self, Act, CallEnding, HistoryPlan, TTLS, Wish};
use super::planned_trouble::PlannedTrouble;
use super::random::{self, Random};
use super::world::World;
use crate::domain::kind::Kind;
use crate::{Guard, Token};

/// Distinguishes the chances of heirs from others of the same seed.
const OF_HEIRS: u64 = 91;

impl HistoryPlan {
    /// Names an heir, or none, for whatever is given away.
    pub(super) fn name_heirs(&mut self) {
        let random = &mut Random::new(random::hash([self.seed, OF_HEIRS, 0, 0]));
        let processes = self.processes.len() as u64;
        for wish in &mut self.wishes {
            wish.heir = (wish.ending == CallEnding::Detach)
                .then(|| heir_of(wish, processes, 85, random))
                .flatten();
        }
    }

    /// The history of a seed in which much is given away, on connections that end with bytes on
    /// their way, and at a server whose clock is set back.
    pub(super) fn giving_away(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        let random = &mut Random::new(random::hash([seed, OF_HEIRS, 1, 0]));
        plan.path.latency = random.pick(&[1, 5, 31]) * MILLI;
        // What is late by seconds, at a server whose clock is set back, may outlast what is remembered
        // of it.
        plan.path.slow = 0;
        let fenced = random.percent(50);
        for wish in plan.wishes.iter_mut().filter(|wish| wish.keys.len() == 1) {
            (wish.max_hold, wish.min_hold, wish.patience, wish.polls) = (None, None, None, None);
            wish.ttl = random.pick(&[300, 400, 600, 2_000]) * MILLI;
            (wish.renew, wish.fenced) = (true, wish.fenced || fenced);
            if random.percent(60) {
                wish.ending = CallEnding::Detach;
                wish.acts = vec![Act::Work(random.pick(&[0, 1, 30, 150, 400, 1_200]) * MILLI)];
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

fn heir_of(of: &Wish, processes: u64, chance: u64, random: &mut Random) -> Option<Box<Wish>> {
    if !random.percent(chance) {
        return None;
    }
    let mut heir = Wish {
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
    (heir.min_hold, heir.max_hold, heir.linger) = (None, None, None);
    (heir.polls, heir.patience) = (None, None);
    heir.heir = heir_of(&heir, processes, 40, random);
    Some(Box::new(heir))
}

impl World {
    /// Numbers all wishes, also those of heirs, by which they find what is given to them.
    pub(super) fn number_wishes(&mut self) {
        let mut number = 0;
        for wish in &mut self.plan.wishes {
            let mut next = Some(wish);
            while let Some(wish) = next {
                number += 1;
                wish.number = number;
                next = wish.heir.as_deref_mut();
            }
        }
    }

    /// Lets each heir wait for what it is to be given.
    pub(super) fn add_heirs(&mut self) {
        for wish in self.plan.wishes.clone() {
            let mut giver = wish;
            while let Some(heir) = giver.heir.take() {
                let caller = self.caller(heir.process, &self.processes[heir.process]);
                let task = caller.inherit(giver.number, Wish::clone(&heir));
                self.executor.spawn(heir.process, task);
                giver = *heir;
            }
        }
    }
}

impl SimulatedCaller {
    /// Takes over what another wish gives away, if it does before the history becomes calm.
    async fn inherit(self, giver: usize, wish: Wish) {
        let left = self.calm_at.saturating_sub(clock::now());
        let gift = cut_short(given(&self.books, giver), None, Some(left)).await.flatten();
        if let Some(gift) = gift {
            self.adopt(&wish, gift).await;
        }
        self.books.borrow_mut().heritage.give(wish.number, None);
    }

    async fn adopt(&self, wish: &Wish, gift: Gift) {
        let Ok(token) = gift.text.parse::<Token>() else {
            return self.books.borrow_mut().violated(format!("{} is no token", gift.text));
        };
        if wish.ending != CallEnding::Detach && wish.heir.is_some() {
            let heritage = &mut self.books.borrow_mut().heritage;
            heritage.copied(token.wire());
            heritage.give(wish.number, Some(gift.clone()));
        }
        sleep(wish.after).await;
        if clock::now() >= self.calm_at {
            return;
        }
        let mut call = CallRecord::new(What::Adopt, self.process, wish.keys.clone());
        call.token = Some(Arc::clone(token.wire()));
        let begun = BegunCall::new(self, call);
        let wish = Wish { writes: gift.writes, ..wish.clone() };
        let outcome = self.request(&wish).adopt(token).await;
        begun.end(Ended::of(Some(&outcome)));
        if let Ok(guard) = outcome {
            self.hold(&wish, guard).await;
        }
    }

    /// Whether a guard is a writer's. Of two who have one token, neither turns it into a reader's under
    /// the other.
    pub(super) fn can_downgrade(&self, guard: &Guard) -> bool {
        let is_copied = self.books.borrow().heritage.is_copied(guard.token().wire());
        guard.hold().kind() == Kind::Write && !is_copied
    }

    /// Gives a hold away, to the heir of the wish if it has one.
    pub(super) fn give_away(&self, wish: &Wish, guard: Guard, held: &HeldGuard) {
        let writes = guard.hold().last_kind() == Kind::Write;
        let token = Arc::clone(guard.token().wire());
        held.give_up();
        let given = guard.detach();
        let heritage = &mut self.books.borrow_mut().heritage;
        if *given.wire() == token {
            heritage.detached(&token);
        }
        heritage.give(wish.number, Some(Gift { text: given.to_string(), writes }));
    }
}
