//! Programs that use locks of a quorum, and what they have of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::kind::Kind;
use crate::lock::hold::Hold;
use crate::simulation::clock::{self, MILLI};
use crate::simulation::executor::sleep;
use crate::simulation::random::Random;
use crate::{Guard, LockError, LockRequest, Locks, LossReason, Token};

/// The lease of those who take locks at random.
pub(super) const TTL: Duration = Duration::from_millis(1_000);

/// A shutdown waits so long for answers, and for the turns of its engine.
const SHUTDOWN: Duration = Duration::from_millis(3_200);

/// The key of which holds are numbered.
pub(super) const FENCED: &str = "mutex";

/// A guard of a process.
pub(super) struct QuorumHold {
    process: usize,
    key: &'static str,
    hold: Arc<Hold>,
    /// It is about to become a reader.
    is_leaving: Cell<bool>,
}

#[derive(Default)]
pub(super) struct QuorumNotes {
    holds: Vec<Rc<QuorumHold>>,
    /// The last fencing number of each key.
    pub(super) fences: BTreeMap<&'static str, (u64, Arc<str>)>,
    pub(super) grants: u32,
    pub(super) losses: u32,
    /// Tokens that were given away.
    gifts: Vec<(&'static str, Token)>,
    /// Tokens, as the nodes have them, of which a clock that jumped has ended a lease that counted.
    pub(super) excused: BTreeSet<String>,
    /// When processes began to drain.
    drains: BTreeMap<usize, u64>,
    violation: Option<String>,
}

impl QuorumNotes {
    pub(super) fn readers(&self) -> usize {
        self.holds.iter().filter(|it| it.hold.last_kind() == Kind::Read).count()
    }

    pub(super) fn check(&mut self, believes: &dyn Fn(usize, &Hold) -> bool) -> Result<(), String> {
        let is_sure = |it: &&Rc<QuorumHold>| {
            believes(it.process, &it.hold) && !self.excused.contains(&**it.hold.token.wire())
        };
        let held: Vec<_> = self.holds.iter().filter(is_sure).collect();
        let reads = |it: &QuorumHold| it.is_leaving.get() || it.hold.last_kind() == Kind::Read;
        for (at, one) in held.iter().enumerate() {
            let excluded = |it: &&&Rc<QuorumHold>| it.key == one.key && !(reads(it) && reads(one));
            if let Some(other) = held.iter().skip(at + 1).find(excluded) {
                let (one, other) = (&one.hold.token, &other.hold.token);
                return Err(format!("{one} and {other} have one lock"));
            }
        }
        self.violation.take().map_or(Ok(()), Err)
    }
}

/// A guard with its entry in the notes.
pub(super) struct Noted {
    guard: Option<Guard>,
    note: Rc<QuorumHold>,
    notes: Rc<RefCell<QuorumNotes>>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.notes.borrow_mut().holds.retain(|it| !Rc::ptr_eq(it, &self.note));
    }
}

pub(super) struct QuorumCaller {
    pub(super) locks: Locks,
    pub(super) random: Random,
    pub(super) notes: Rc<RefCell<QuorumNotes>>,
}

impl QuorumCaller {
    fn request(&mut self, key: &'static str) -> LockRequest {
        match key {
            FENCED => self.locks.mutex(key).fenced(),
            _ if self.random.percent(50) => self.locks.read(key),
            _ => self.locks.write(key),
        }
    }

    fn note(&self, key: &'static str, process: usize, guard: Guard) -> Noted {
        let hold = Arc::clone(guard.hold());
        let note = Rc::new(QuorumHold { process, key, hold, is_leaving: Cell::default() });
        let mut notes = self.notes.borrow_mut();
        notes.grants += 1;
        if let Some(fence) = guard.fence().filter(|_| guard.hold().demand.adopts.is_none()) {
            let given = (fence, Arc::clone(guard.token().wire()));
            let last = notes.fences.insert(key, given).map_or(0, |(last, _)| last);
            if fence <= last {
                notes
                    .violation
                    .get_or_insert_with(|| format!("{key} has fence {fence} after {last}"));
            }
        }
        notes.holds.push(Rc::clone(&note));
        Noted { guard: Some(guard), note, notes: Rc::clone(&self.notes) }
    }

    /// Takes a lock and becomes a reader of it, for this long.
    pub(super) async fn reads_what_it_wrote(self, process: usize, ttl: Duration, time: u64) {
        let Ok(guard) = self.locks.write("files").ttl(ttl).acquire().await else { return };
        let noted = self.downgraded(self.note("files", process, guard)).await;
        sleep(time).await;
        drop(noted);
    }

    async fn downgraded(&self, mut noted: Noted) -> Noted {
        noted.note.is_leaving.set(true);
        if let Some(guard) = noted.guard.take() {
            noted.guard = guard.downgrade().await.ok();
        }
        noted
    }

    /// Has its process end when no lock of it is held, or after this long.
    pub(super) async fn drains(self, process: usize, limit: Duration) {
        let began = clock::now();
        self.notes.borrow_mut().drains.insert(process, began);
        let cut_off = self.locks.drain(limit).await.cut_off;
        let took = Duration::from_nanos(clock::now() - began);
        let what = match cut_off {
            0 if took <= limit + SHUTDOWN => return,
            0.. if took > limit + SHUTDOWN => format!("a drain of {limit:?} took {took:?}"),
            _ if took < limit * 98 / 100 => format!("{cut_off} are cut off after {took:?}"),
            _ => return,
        };
        self.notes.borrow_mut().violation.get_or_insert(what);
    }

    /// Holds a lock for this long.
    pub(super) async fn holds(self, process: usize, time: u64) {
        let Ok(guard) = self.locks.mutex("mutex").ttl(TTL).acquire().await else { return };
        let noted = self.note("mutex", process, guard);
        sleep(time).await;
        drop(noted);
    }

    /// Takes one lock after the other until this time.
    pub(super) async fn lives(mut self, process: usize, until: u64) {
        while clock::now() < until {
            sleep(self.random.below(120) * MILLI).await;
            let gift = self.notes.borrow_mut().gifts.pop();
            let key = self.random.pick(&[FENCED, "files"]);
            let wait = Duration::from_millis(self.random.pick(&[0, 150, 1_500, 6_000]));
            let began = clock::now();
            let is_gift = gift.is_some();
            let (key, outcome) = match gift {
                Some((key, token)) => (key, self.locks.mutex(key).ttl(TTL).adopt(token).await),
                None => (key, self.request(key).ttl(TTL).wait(wait).acquire().await),
            };
            let drains = self.notes.borrow().drains.get(&process).copied();
            if outcome.is_ok() && drains.is_some_and(|since| since < began) {
                let what = format!("p{process} drains, and got a lock");
                self.notes.borrow_mut().violation.get_or_insert(what);
            }
            let took = Duration::from_nanos(clock::now() - began);
            // Who adopts waits for as long as usual.
            if !is_gift && took > wait + Duration::from_millis(1_600) {
                let what = format!("a wait of {wait:?} took {took:?}");
                self.notes.borrow_mut().violation.get_or_insert(what);
            }
            if let Ok(guard) = outcome {
                let noted = self.note(key, process, guard);
                self.uses(key, noted).await;
            }
        }
    }

    async fn uses(&mut self, key: &'static str, mut noted: Noted) {
        sleep(self.random.pick(&[0, 10, 60, 300, 2_500]) * MILLI).await;
        let is_writer = noted.note.hold.last_kind() == Kind::Write;
        if is_writer && self.random.percent(50) {
            noted = self.downgraded(noted).await;
            sleep(self.random.pick(&[0, 10, 300, 1_500]) * MILLI).await;
        }
        let Some(guard) = noted.guard.take() else { return };
        if self.random.percent(20) {
            let _ = guard.extend(Duration::from_millis(1_200)).await;
            sleep(self.random.pick(&[0, 300]) * MILLI).await;
        }
        let is_cut_off = |reason: &LossReason| matches!(reason, LossReason::Shutdown);
        if matches!(guard.loss(), Some(LockError::Lost { reason, .. }) if !is_cut_off(&reason)) {
            self.notes.borrow_mut().losses += 1;
        }
        let gives = key == FENCED && guard.is_held() && self.random.percent(15);
        drop(noted);
        match self.random.below(2) {
            _ if gives => {
                let token = guard.detach();
                self.notes.borrow_mut().gifts.push((key, token));
            }
            0 => drop(guard),
            _ => drop(guard.release().await),
        }
    }
}
