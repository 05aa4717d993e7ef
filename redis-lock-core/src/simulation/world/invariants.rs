//! What must be true after every step, and at the end.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::domain::clock::Moment;
use crate::domain::kind::Kind;
use crate::simulation::books::{CallRecord, Ended, HoldNote, What};
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::full_key;
use crate::simulation::plan::Sort;
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::process::SimulatedProcess;
use crate::simulation::stay::Left;
use crate::{LockState, LossReason};

/// How late the engine's thread may be, beside what the plan says.
const SLACK: u64 = 15 * MILLI;

/// How long a caller may wait for a lock that is free.
const LONGEST_IDLENESS: u64 = 3_500 * MILLI;

impl World {
    /// After every step.
    pub(super) fn check(&mut self) {
        if self.executor.woke_under_lock() {
            self.violated("a waker ran while one of the engine's locks was held");
        }
        self.check_given_up();
        self.check_ended();
        self.check_holds();
    }

    /// Every now and then.
    pub(super) fn look(&mut self) {
        // A table does not grow by itself, and to look at all of an engine takes long.
        if std::mem::take(&mut self.has_happened) {
            self.check_sizes();
        }
        self.check_overdue();
        self.check_delays();
        self.check_conservation();
        self.check_heritage();
        self.check_progress();
        self.check_promptness();
    }

    pub(super) fn process_now(&self, process: usize) -> Moment {
        Moment::from_nanos(self.processes[process].clock.at(clock::now()))
    }

    /// Whether a hold is believed in, by the clock of its process.
    pub(super) fn is_valid(&self, note: &HoldNote) -> bool {
        matches!(note.hold.last_state(), LockState::Held | LockState::Uncertain)
            && self.process_now(note.process) < note.hold.deadline()
    }

    pub(super) fn is_excused(&self, note: &HoldNote) -> bool {
        let token = self.server.tokens.get(note.hold.token.wire());
        token.is_some_and(|token| token.is_excused) || self.outlives_margin(note)
    }

    fn check_holds(&mut self) {
        let books = Rc::clone(&self.books);
        let holds = books.borrow().holds.clone();
        for note in &holds {
            if !self.is_valid(note) {
                self.check_loss(note);
                self.check_margin(note);
                continue;
            }
            if note.is_fixed && note.hold.deadline() > note.first_deadline {
                return self.violated("a lease was lengthened that may not be");
            }
            if !self.is_excused(note) {
                self.check_belief(note);
                self.check_exclusion(note, &holds);
            }
        }
    }

    /// No guard relies on more lease than the server has for its token.
    fn check_belief(&self, note: &HoldNote) {
        let believed = self.processes[note.process].clock.when(note.hold.deadline());
        for key in &note.keys {
            let given = self.server.lease_end(&full_key(*key), note.hold.token.wire());
            if given.is_none_or(|given| given < believed) {
                let what = format!(
                    "p{} believes in a hold of {} until {:.4} s, and the server has it until {:?}",
                    note.process,
                    full_key(*key),
                    believed as f64 / 1e9,
                    given.map(|given| given as f64 / 1e9),
                );
                return self.violated(what);
            }
        }
    }

    /// The server keeps the key of a hold that has ended, while its guard lives, for the margin.
    fn check_margin(&self, note: &HoldNote) {
        let margin = note.hold.demand.terms.margin;
        let process = &self.processes[note.process];
        // The clocks of server and process may differ in their rates.
        let promised = process.clock.when(note.hold.deadline().after(margin * 98 / 100));
        let has_lapsed = matches!(
            note.hold.quiet_loss(self.process_now(note.process)),
            Some(LossReason::Expired | LossReason::HoldLimit)
        );
        let is_over = margin.is_zero() || clock::now() >= promised || note.is_given_up.get();
        // For as long as its clock stood still, less of the margin is left.
        let is_over = is_over || process.clock.stood_still(clock::now()).is_some();
        if is_over || !has_lapsed || process.is_closing || self.is_excused(note) {
            return;
        }
        let token = note.hold.token.wire();
        let ends = |key: &usize| self.server.lease_end(&full_key(*key), token);
        if note.keys.iter().any(|key| ends(key).is_none_or(|end| end < promised)) {
            self.violated(format!("the key of {token} has gone before its margin"));
        }
    }

    /// The kind of a hold. One that is being downgraded counts as a reader's, because the server
    /// may have done that already.
    fn kind_of(&self, note: &HoldNote) -> Kind {
        let token = note.hold.token.wire();
        let books = self.books.borrow();
        let is_sinking = books
            .calls
            .iter()
            .any(|call| call.what == What::Downgrade && call.token.as_ref() == Some(token));
        if is_sinking { Kind::Read } else { note.hold.last_kind() }
    }

    fn check_exclusion(&self, note: &HoldNote, holds: &[Rc<HoldNote>]) {
        for key in &note.keys {
            let others = holds.iter().filter(|other| {
                other.keys.contains(key) && self.is_valid(other) && !self.is_excused(other)
            });
            // Those who have adopted one token share one hold.
            let others: BTreeMap<_, _> = others.map(|it| (it.hold.token.to_string(), it)).collect();
            let kinds: Vec<_> = others.values().map(|other| self.kind_of(other)).collect();
            let fits = match self.plan.keys[*key] {
                Sort::Mutex => kinds.len() <= 1,
                Sort::ReadWrite => kinds.len() <= 1 || !kinds.contains(&Kind::Write),
                Sort::Permit(limit) => kinds.len() <= limit as usize,
            };
            if !fits {
                return self.violated(format!("{} are valid at once: {kinds:?}", kinds.len()));
            }
            let slots = others.values().filter_map(|other| other.hold.slot);
            if note.hold.slot.is_some_and(|own| slots.filter(|slot| *slot == own).count() > 1) {
                return self.violated(format!("{:?} is the slot of two holds", note.hold.slot));
            }
            if let Sort::Permit(limit) = self.plan.keys[*key]
                && note.hold.slot.is_some_and(|slot| slot >= limit)
            {
                return self.violated(format!("{:?} is a slot of {limit}", note.hold.slot));
            }
        }
    }

    fn check_granted(&mut self) {
        let granted = std::mem::take(&mut self.books.borrow_mut().granted);
        for note in granted {
            let token = self.server.note(note.hold.token.wire());
            (token.guards, token.guards_ever) = (token.guards + 1, token.guards_ever + 1);
            token.given_up = None;
            if self.is_valid(&note) {
                self.check_terms(&note);
                self.check_fence(&note);
            }
        }
    }

    /// A hold is what its waiter asked for.
    fn check_terms(&self, note: &HoldNote) {
        let (hold, now) = (&note.hold, self.process_now(note.process));
        let Some(ttl) = hold.demand.terms.ttl else { return };
        if hold.deadline().since(now) > ttl {
            return self.violated("a waiter was given a longer lease than it asked for");
        }
        let is_adopted = hold.demand.adopts.is_some();
        let was_handed_on = !is_adopted && hold.token.to_string().contains('#');
        let fresh = hold.deadline().since(hold.since) + Duration::from_millis(1) > ttl / 2;
        if was_handed_on && !fresh && hold.deadline() < hold.limit() {
            self.violated("a waiter was given a lease of which less than half was left");
        }
    }

    fn check_fence(&mut self, note: &HoldNote) {
        if self.is_excused(note) {
            return;
        }
        let Some(fence) = note.hold.fence else { return };
        for key in &note.keys {
            if self.plan.keys[*key] != Sort::Mutex {
                continue;
            }
            // The adopter of a hold may have the number of its last guard.
            let least = self.fences[*key] + u64::from(note.hold.demand.adopts.is_none());
            if fence < least {
                let before = self.fences[*key];
                return self.violated(format!("fence {fence} came after {before}"));
            }
            self.fences[*key] = fence;
        }
    }

    /// A hold may be granted and given up in one step, and the grant is noted first: otherwise the hold would count as
    /// one that was never given up, and a call that was busy because of it as one that was busy for nothing.
    pub(super) fn check_given_up(&mut self) {
        self.check_granted();
        let given_up = std::mem::take(&mut self.books.borrow_mut().given_up);
        for (note, is_alone) in given_up {
            let now = clock::now();
            let wire = note.hold.token.wire();
            let heritage = &self.books.borrow().heritage;
            let is_given = heritage.is_given(wire);
            let token = self.server.note(wire);
            token.guards = token.guards.saturating_sub(1);
            // Of two who have one token, the first release ends the hold of both.
            token.is_excused |= heritage.is_copied(wire);
            if token.guards == 0 {
                (token.given_up, token.given_up_by) = (Some(now), note.given_up_by.get());
                token.was_alone = is_alone && token.guards_ever == 1 && !is_given;
            }
        }
    }

    fn check_ended(&mut self) {
        let ended = std::mem::take(&mut self.books.borrow_mut().ended);
        for (call, how) in ended {
            self.check_bound(&call);
            match call.what {
                What::Acquire if how.is_busy() => self.check_busy(&call),
                What::Acquire if how.is_backend() => self.check_backend(&call, &how),
                What::Release | What::Verify | What::Extend | What::Downgrade if how.is_taken() => {
                    self.check_false_loss(&call);
                }
                What::Release if matches!(how, Ended::Good) => self.check_released(&call),
                What::Complete => self.check_completed(&call, &how),
                What::Acquire if how.is_done() => self.check_done(&call),
                What::Adopt => self.check_adopted(&call, &how),
                _ => {}
            }
        }
    }

    /// By how much a call is later than it may be.
    fn check_bound(&self, call: &CallRecord) {
        let Some(bound) = call.bound else { return };
        let process = &self.processes[call.process];
        if !process.is_alive || process.tasks_stand_until() > clock::now() {
            return;
        }
        let stalled = self.books.borrow().stalled[call.process] - call.stalled;
        let elapsed = process.clock.at(clock::now()) - process.clock.at(call.began);
        let slack = SLACK + 4 * self.plan.path.sluggish;
        if elapsed > bound + stalled + slack {
            self.violated(format!(
                "call {} of p{} may take {} ms and took {} ms",
                call.number,
                call.process,
                bound / MILLI,
                elapsed / MILLI,
            ));
        }
    }

    fn check_overdue(&mut self) {
        let calls = self.books.borrow().calls.clone();
        calls.iter().for_each(|call| self.check_bound(call));
    }

    /// "Busy" means that another holder had it during the call.
    fn check_busy(&self, call: &CallRecord) {
        let manager = Arc::clone(&self.processes[call.process].core.manager);
        let is_quiet = clock::now() >= self.troubled_until
            && self.plan.path.slow == 0
            && self.plan.path.rounds == 0
            && self.plan.path.late_transactions.is_none_or(|late| late == 0);
        let (in_machines, _) = self.processes[call.process].core.tokens();
        let (mut anybody, mut somebody) = (false, false);
        for key in &call.keys {
            for stay in self.server.stays_since(&full_key(*key), call.began) {
                anybody = true;
                let note = self.server.tokens.get(&stay.token);
                let is_own = crate::Token::from_wire(&stay.token).manager() == Some(&*manager);
                let is_past = note.is_some_and(|note| {
                    note.was_alone
                        && note.guards == 0
                        && note.given_up.is_some_and(|at| at < call.began)
                        && note.kept_until == 0
                });
                somebody |= !(is_own && is_past && !in_machines.contains(&stay.token));
            }
        }
        // A hold that was ended by force is believed in until its process learns of it, or gives it
        // up.
        let is_believed = self.server.tokens.iter().any(|(token, note)| {
            let is_given_up = note.given_up.is_some_and(|at| at >= call.began);
            note.is_excused && (in_machines.contains(token) || is_given_up)
        });
        if !anybody && !is_believed && !call.met_guard && !self.is_believed_in_standstill(call) {
            self.violated(format!("call {} got `Busy`, and it was free", call.number));
        } else if anybody && is_quiet && call.is_alone && !somebody {
            let what = "got `Busy` for a lock that its own process had released before";
            self.violated(format!("call {} {what}", call.number));
        }
    }

    /// A server that answers everything in time fails no caller that wants one lock. A message of another process
    /// may be lost.
    fn check_backend(&self, call: &CallRecord, how: &Ended) {
        let (plan, path) = (&self.plan, &self.plan.path);
        let answers = plan.troubles.is_empty()
            && !self.is_disturbed(call.process, call.began)
            && plan.nodes.is_none()
            && !path.replaces
            && path.late_transactions.is_none()
            && path.slow + path.rounds + path.unconfirmed == 0;
        // The connection has to be made, and a question may have been open when the caller came.
        let answered = 12 * path.latency + 8 * path.sluggish + SLACK;
        let least = plan.planned_calls.iter().map(|planned| planned.ttl).min();
        let has_lease = least.is_none_or(|least| 4 * (path.latency + path.sluggish) < least);
        let is_in_time = has_lease && call.timeout.is_some_and(|timeout| answered < timeout);
        if answers && is_in_time && call.keys.len() == 1 {
            let what =
                format!("call {} failed, and nothing was wrong: {}", call.number, how.shown());
            self.violated(what);
        }
    }

    /// A lock is lost only when it was taken.
    fn check_false_loss(&self, call: &CallRecord) {
        let note = call.token.as_ref().and_then(|token| self.server.tokens.get(token));
        let Some(note) = note else { return };
        if self.processes[call.process].is_closing {
            return;
        }
        // Of several keys, one may have expired on the way, and the others be released.
        let has_expired = call.keys.len() > 1 && note.expired_at.is_some_and(|at| at >= call.began);
        let is_released = note.left == Some(Left::Released) && !has_expired;
        if call.was_valid && !note.is_excused && is_released {
            let what = "got the error that its lock was lost, and it was released";
            self.violated(format!("call {} {what}", call.number));
        }
    }

    /// After a release the server has nothing of the token.
    fn check_released(&self, call: &CallRecord) {
        let Some(token) = &call.token else { return };
        let is_given = self.books.borrow().heritage.is_given(token);
        if call.is_adopted {
            self.books.borrow_mut().heritage.ended(token, call.process);
        }
        let process = &self.processes[call.process];
        let (in_machines, leaving) = process.core.tokens();
        let has = |key: &usize| {
            let end = self.server.lease_end(&full_key(*key), token);
            end.is_some_and(|end| end > clock::now())
        };
        let note = self.server.tokens.get(token);
        let is_kept = note.is_some_and(|note| note.kept_until > 0 || note.is_doubtful);
        let is_passed_on = in_machines.contains(token) || leaving.contains(token);
        // The next guard of the same lease may have given it away.
        let is_passed_on = is_passed_on || is_given && !call.is_adopted;
        if call.was_valid && call.keys.iter().any(has) && !is_kept && !is_passed_on {
            self.violated(format!("call {}: released, and the server has it still", call.number));
        }
    }

    /// Whatever the server has of a living manager, that manager knows of.
    fn check_conservation(&mut self) {
        for process in self.processes.iter().filter(|it| it.is_alive && !it.is_over) {
            let manager = &process.core.manager;
            let tokens = LazyCell::new(|| process.core.tokens());
            for (key, token) in self.server.present(clock::now()) {
                let is_own = crate::Token::from_wire(token).manager() == Some(&**manager);
                let note = self.server.tokens.get(token);
                let is_kept = note.is_some_and(|note| note.stays_at(clock::now()));
                let is_given = self.books.borrow().heritage.is_given(token);
                let is_known = || is_given || tokens.0.contains(token) || tokens.1.contains(token);
                if is_own && !is_kept && !is_known() {
                    let what = format!("p{} has forgotten {token} at {key}", process.index);
                    return self.violated(what);
                }
            }
        }
    }

    /// No caller waits long for a lock that is free, while there is no fault.
    fn check_progress(&mut self) {
        let now = clock::now();
        let calm = self.calm_since();
        let calls = self.books.borrow().calls.clone();
        let kept = LazyCell::new(|| self.kept());
        for call in calls.iter().filter(|call| call.what == What::Acquire) {
            let process = &self.processes[call.process];
            if !process.is_alive || process.tasks_stand_until() > now {
                continue;
            }
            let idle = |key: &usize| {
                let key = full_key(*key);
                let free = self.server.free_since(&key, now);
                free.or_else(|| kept.get(&self.server.holder(&key, now)?).copied())
            };
            let since = call.keys.iter().map(idle).try_fold(0, |most, free| Some(most.max(free?)));
            let Some(free) = since else { continue };
            let from = free.max(call.began).max(calm);
            if now > from + LONGEST_IDLENESS {
                let what = format!("call {} waits for what nobody has", call.number);
                return self.violated(what);
            }
        }
    }

    /// Idle leases of processes that can answer, and since when they are idle.
    fn kept(&self) -> BTreeMap<Arc<str>, u64> {
        let now = clock::now();
        let awake = |it: &&SimulatedProcess| it.is_alive && it.tasks_stand_until() <= now;
        let kept = self.processes.iter().filter(awake).flat_map(|process| {
            let kept = process.core.kept().into_iter();
            kept.map(|(token, since)| (token, process.clock.when(since)))
        });
        kept.collect()
    }

    /// When the last trouble is over, and the last slow message or transaction.
    pub(super) fn calm_since(&self) -> u64 {
        self.troubled_until.max(self.quiet_from())
    }

    /// From when on no message and no transaction is slow.
    fn quiet_from(&self) -> u64 {
        let path = &self.plan.path;
        if path.slow + path.bad_hints + path.late_transactions.unwrap_or(0) == 0 {
            0
        } else {
            self.plan.calm_at + 6 * SECOND
        }
    }

    /// A shutdown without trouble leaves nothing.
    pub(super) fn check_after_shutdown(&self, index: usize) {
        let process = &self.processes[index];
        let late = self.plan.path.late_transactions.unwrap_or(0);
        // A slow transaction of a release may take longer than the shutdown waits.
        let is_whole = clock::now() >= self.calm_since();
        let ends = |(_, it): &(u64, PlannedTrouble)| matches!(it, PlannedTrouble::Shutdown { .. });
        let only_shutdowns = self.plan.path.slow + late == 0 && self.plan.troubles.iter().all(ends);
        if is_whole || only_shutdowns {
            let manager = Arc::clone(&process.core.manager);
            self.check_nothing_of(&manager, "after its shutdown");
            self.check_left_heritage(index);
        }
    }

    pub(super) fn check_left_tokens(&self) {
        for process in self.processes.iter().filter(|it| it.is_alive && !it.is_over) {
            self.check_nothing_of(&process.core.manager, "at rest");
        }
    }

    fn check_nothing_of(&self, manager: &str, when: &str) {
        for (key, token) in self.server.present(clock::now()) {
            let note = self.server.tokens.get(token);
            let is_kept = note.is_some_and(|note| note.kept_until > clock::now())
                || self.books.borrow().heritage.is_given(token);
            if crate::Token::from_wire(token).manager() == Some(manager) && !is_kept {
                return self.violated(format!("{token} is left at {key} {when}"));
            }
        }
    }

    pub(super) fn check_leftovers(&mut self) {
        let leftovers = self.server.leftovers(clock::now());
        if !leftovers.is_empty() {
            self.violated(format!("something is left on the server at {leftovers:?}"));
        }
    }

    /// No table has more entries than there are things to be noted in it.
    pub(super) fn check_sizes(&self) {
        for process in self.processes.iter().filter(|it| it.is_alive && !it.is_over) {
            let sizes = process.core.sizes(self.plan.keys.len());
            for (what, count, most) in sizes.into_iter().filter(|(_, count, most)| count > most) {
                let index = process.index;
                self.violated(format!("p{index} has {count} {what}, of at most {most}"));
            }
        }
    }
}
