//! A task of a process: it uses the public API as a program would.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::books::{Books, CallRecord, Ended, HoldNote, What};
use super::clock::MILLI;
use super::executor::{cut_short, sleep};
use super::plan::{Act, CallEnding, PlannedCall, Sort};
use super::{clock, key_name};
use crate::api::acquire::{self, Got};
use crate::api::nesting::Caller;
use crate::domain::clock::Moment;
use crate::domain::kind::Kind;
use crate::domain::value::{Finish, StoredValue};
use crate::{Guard, LockError, LockRequest, LockState, Locks, Wait};

pub(super) struct SimulatedCaller {
    pub(super) process: usize,
    pub(super) locks: Locks,
    pub(super) command_timeout: u64,
    pub(super) sorts: Vec<Sort>,
    pub(super) books: Rc<RefCell<Books>>,
    pub(super) calm_at: u64,
}

impl SimulatedCaller {
    /// Makes one planned call after the other, until the history becomes calm.
    pub(super) async fn live(self, planned_calls: Vec<PlannedCall>) {
        // Should this task be dropped, its heirs get nothing.
        let numbers = planned_calls.iter().map(|planned| planned.number).collect();
        let _decides = DecidesAtLast::new(&self.books, numbers);
        for planned in planned_calls {
            sleep(planned.after).await;
            if clock::now() >= self.calm_at {
                return;
            }
            self.fulfil(&planned).await;
            self.books.borrow_mut().heritage.give(planned.number, None);
        }
    }

    pub(super) async fn shut_down(self) {
        let mut call = CallRecord::new(What::Shutdown, self.process, Vec::new());
        call.bound = Some(3_000 * MILLI);
        let number = self.books.borrow_mut().begin(call);
        self.locks.shutdown().await;
        self.books.borrow_mut().end(number, Ended::Good);
    }

    async fn fulfil(&self, planned: &PlannedCall) {
        let mut call = CallRecord::new(What::Acquire, self.process, planned.keys.clone());
        call.bound = planned.wait.map(|wait| wait + self.command_timeout);
        call.timeout = Some(self.command_timeout);
        let outcome = {
            let begun = BegunCall::new(self, call);
            let outcome =
                cut_short(got(self.request(planned)), planned.polls, planned.patience).await;
            let number = begun.number;
            if let Some(Ok(Got::Shared(value, _))) = &outcome {
                self.books.borrow_mut().got_value(number, self.process, value.json());
            }
            begun.end(Ended::of(outcome.as_ref()));
            outcome
        };
        if let Some(Ok(Got::Guard(guard))) = outcome {
            self.hold(planned, guard).await;
        }
    }

    pub(super) fn request(&self, planned: &PlannedCall) -> LockRequest {
        let name = key_name(planned.keys[0]);
        let mut request = match self.sorts[planned.keys[0]] {
            Sort::Mutex if planned.keys.len() > 1 => {
                self.locks.all(planned.keys.iter().map(|key| key_name(*key)))
            }
            Sort::Mutex => self.locks.mutex(name),
            Sort::ReadWrite if planned.writes => self.locks.write(name),
            Sort::ReadWrite => self.locks.read(name),
            Sort::Permit(limit) => self.locks.permit(name, limit),
        };
        let wait = planned.wait.map(Duration::from_nanos);
        request = request
            .ttl(Duration::from_nanos(planned.ttl))
            .wait(wait.map_or(Wait::Forever, Wait::from))
            .renew(planned.renew)
            .fair(planned.fair);
        let is_shared = matches!(request.kind, Kind::Read | Kind::Permit { .. });
        if planned.fenced && !is_shared {
            request = request.fenced();
        }
        // Permits have no other use for the flag. Most of them have slots, and some have none.
        request.options.slotted = !planned.fenced && request.kind.limit().is_some();
        if let Some(least) = planned.min_hold {
            request = request.min_hold(Duration::from_nanos(least));
        }
        if let Some(most) = planned.max_hold {
            request = request.max_hold(Duration::from_nanos(most));
        }
        if let Some(period) = planned.once {
            request = request.once(Duration::from_nanos(period));
        }
        request.options.share = planned.share;
        if let Some(most) = planned.queue {
            request = request.queue(most);
        }
        if planned.newest {
            request = request.newest();
        }
        if planned.margin > 0 {
            request = request.margin(Duration::from_nanos(planned.margin));
        }
        request.options.linger = planned.linger.map(Duration::from_nanos);
        request
    }

    pub(super) async fn hold(&self, planned: &PlannedCall, guard: Guard) {
        let held = HeldGuard {
            books: Rc::clone(&self.books),
            note: self.note(planned, &guard),
            locks: self.locks.clone(),
        };
        let mut guard = Some(guard);
        for act in &planned.acts {
            if clock::now() >= self.calm_at {
                break;
            }
            guard = self.act(*act, planned, guard, &held).await;
        }
        let Some(guard) = guard else { return };
        self.end(planned, guard, &held).await;
    }

    fn note(&self, planned: &PlannedCall, guard: &Guard) -> Rc<HoldNote> {
        let hold = Arc::clone(guard.hold());
        let extends = planned.acts.iter().any(|act| matches!(act, Act::Extend(_)));
        let note = Rc::new(HoldNote {
            process: self.process,
            keys: planned.keys.clone(),
            first_deadline: hold.deadline(),
            hold,
            is_fixed: !planned.renew && !extends,
            is_given_up: false.into(),
            given_up_by: 0.into(),
            loss_seen: false.into(),
        });
        let mut books = self.books.borrow_mut();
        let (token, fence) = (Arc::clone(guard.token().wire()), guard.fence());
        let process = self.process;
        books.history.step(31, process as u64);
        let left = guard.remaining();
        books.history.line(|names| {
            let name = names.name(&token);
            format!("p{process} has {name}, fence {fence:?}, for another {left:?}")
        });
        books.granted.push(Rc::clone(&note));
        books.holds.push(Rc::clone(&note));
        note
    }

    async fn act(
        &self,
        act: Act,
        planned: &PlannedCall,
        guard: Option<Guard>,
        held: &HeldGuard,
    ) -> Option<Guard> {
        let guard = guard?;
        let of_hold = |what| {
            let mut call = CallRecord::new(what, self.process, planned.keys.clone());
            call.token = Some(Arc::clone(guard.token().wire()));
            call.bound = Some(self.command_timeout);
            BegunCall::new(self, call)
        };
        match act {
            // Half of the bodies leave when they are asked to.
            Act::Work(time) if planned.newest && planned.number.is_multiple_of(2) => {
                let _ = cut_short(guard.superseded(), None, Some(time)).await;
            }
            Act::Work(time) => sleep(time).await,
            Act::Verify => {
                let begun = of_hold(What::Verify);
                let outcome = guard.verify().await;
                begun.end(Ended::of(Some(&outcome)));
            }
            Act::Extend(ttl) => {
                let begun = of_hold(What::Extend);
                let outcome = guard.extend(Duration::from_nanos(ttl)).await;
                begun.end(Ended::of(Some(&outcome)));
            }
            Act::Downgrade if self.can_downgrade(&guard) => {
                let begun = of_hold(What::Downgrade);
                let outcome = guard.downgrade().await;
                begun.end(Ended::of(Some(&outcome)));
                if outcome.is_err() {
                    held.give_up();
                }
                return outcome.ok();
            }
            Act::Downgrade => {}
            Act::Force => {
                let begun = BegunCall::new(
                    self,
                    CallRecord::new(What::Force, self.process, planned.keys.clone()),
                );
                let outcome = self.locks.force_release(key_name(planned.keys[0]), "of age").await;
                begun.end(Ended::of(Some(&outcome)));
            }
        }
        Some(guard)
    }

    async fn end(&self, planned: &PlannedCall, guard: Guard, held: &HeldGuard) {
        match planned.ending {
            CallEnding::Drop => {
                held.give_up();
                return drop(guard);
            }
            CallEnding::Detach => return self.give_away(planned, guard, held),
            CallEnding::Release
            | CallEnding::Impatient
            | CallEnding::Complete
            | CallEnding::Share => {}
        }
        let completes = planned.ending == CallEnding::Complete;
        let what = if completes { What::Complete } else { What::Release };
        let mut call = CallRecord::new(what, self.process, planned.keys.clone());
        let period = planned.once.map(Duration::from_nanos);
        call.known_until = period.map(|period| guard.hold().since.after(period));
        call.token = Some(Arc::clone(guard.token().wire()));
        call.bound = Some(self.command_timeout);
        call.is_adopted = guard.hold().demand.adopts.is_some();
        call.was_valid = matches!(guard.state(), LockState::Held | LockState::Uncertain);
        let begun = BegunCall::new(self, call);
        held.give_up();
        let polls = (planned.ending == CallEnding::Impatient).then_some(1);
        let run = begun.number;
        let shares = planned.ending == CallEnding::Share && planned.share;
        if shares {
            self.books.borrow_mut().runs.begin(run, self.process);
            let finish = Finish::Share(StoredValue::new(run.to_string()));
            let outcome = cut_short(guard.released(&finish), polls, None).await;
            let ended = Ended::of(outcome.as_ref());
            self.books.borrow_mut().runs.end(run, &ended);
            return begun.end(ended);
        }
        // Every second success stores a value, as `replay` does.
        let value = (completes && run.is_multiple_of(2)).then(|| StoredValue::new(run.to_string()));
        let token = guard.token().wire();
        if value.is_some() {
            self.books.borrow_mut().values.insert(Arc::clone(token), run);
        } else if completes {
            // An earlier success may have handed on the token after its period had ended.
            self.books.borrow_mut().values.remove(token);
        }
        let finish = if completes { Finish::Complete(value) } else { Finish::Release };
        let outcome = cut_short(guard.released(&finish), polls, None).await;
        begun.end(Ended::of(outcome.as_ref()));
    }
}

/// What an acquisition comes to.
async fn got(mut request: LockRequest) -> Result<Got, LockError> {
    acquire::begin(&mut request, Caller::Task)?.got().await
}

/// Decides in the end that heirs get nothing, unless that is decided.
pub(super) struct DecidesAtLast {
    books: Rc<RefCell<Books>>,
    givers: Vec<usize>,
}

impl DecidesAtLast {
    pub(super) fn new(books: &Rc<RefCell<Books>>, givers: Vec<usize>) -> Self {
        Self { books: Rc::clone(books), givers }
    }
}

impl Drop for DecidesAtLast {
    fn drop(&mut self) {
        for giver in &self.givers {
            self.books.borrow_mut().heritage.give(*giver, None);
        }
    }
}

/// The entry of a guard in the books. It is closed when the guard ends, in whatever way.
pub(super) struct HeldGuard {
    books: Rc<RefCell<Books>>,
    note: Rc<HoldNote>,
    locks: Locks,
}

impl HeldGuard {
    pub(super) fn give_up(&self) {
        if !self.note.is_given_up.get() {
            self.note.given_up_by.set(self.locks.link().core().number());
        }
        self.books.borrow_mut().give_up(&self.note);
    }
}

impl Drop for HeldGuard {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The entry of a call in the books. It is closed when the call ends, in whatever way.
pub(super) struct BegunCall<'a> {
    caller: &'a SimulatedCaller,
    number: u64,
    is_over: bool,
}

impl<'a> BegunCall<'a> {
    pub(super) fn new(caller: &'a SimulatedCaller, call: CallRecord) -> Self {
        let number = caller.books.borrow_mut().begin(call);
        Self { caller, number, is_over: false }
    }

    pub(super) fn end(mut self, ended: Ended) {
        self.is_over = true;
        self.caller.books.borrow_mut().end(self.number, ended);
    }
}

impl Drop for BegunCall<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.caller.books.borrow_mut().end(self.number, Ended::Dropped);
        }
    }
}

/// What a child process sees of its parent's guards.
pub(super) fn look_from_child(books: &Books, process: usize) -> Result<(), String> {
    for note in books.holds.iter().filter(|note| note.process == process) {
        if note.hold.state(Moment::now()) != LockState::Lost {
            return Err(format!("a child of p{process} believes in its parent's guard"));
        }
    }
    Ok(())
}
