//! Reads answers on a thread that waits for one.
//!
//! A blocking call on a thread without a runtime would cost two thread switches for each answer
//! that the engine's thread reads. So when threads send many commands, the one that waits takes the
//! role of the reader and waits at the socket itself, until the answer to its question has come. If
//! no other answer is to come then, nobody reads until the next question is put: a thread that
//! locks again and again wakes no other. Otherwise the engine reads.
//!
//! Code of other users must not delay this thread, so it hands over only what follows from its own
//! answer. What follows from others is left to the threads for notices.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::blocking_call::{BlockingCall, OnBehalfOfOthers, blocked_thread};
use super::core::{Core, Work};
use super::path::Reader;
use super::places::Place;
use crate::domain::clock::Moment;
use crate::store::{Parker, Pollable};

/// How long to wait at the socket before looking whether the role is still ours.
const LONGEST_POLL: Duration = Duration::from_secs(1);

thread_local! {
    /// The engine that this thread has asked, until it has waited for the answer.
    static ASKED: RefCell<Weak<Core>> = const { RefCell::new(Weak::new()) };
}

/// A blocking call during which this thread may read.
pub(crate) struct ReadingCall(BlockingCall);

impl ReadingCall {
    pub(crate) fn begin() -> Self {
        Self(BlockingCall::begin())
    }
}

impl Drop for ReadingCall {
    fn drop(&mut self) {
        if self.0.is_outermost() {
            // The answer may have come without waiting for it.
            let _ = ASKED.try_with(RefCell::take);
        }
    }
}

/// Whether this thread has asked something that it has not waited for.
#[cfg(test)]
pub(super) fn has_asked() -> bool {
    ASKED.with(|asked| asked.borrow().strong_count() > 0)
}

/// Waits until the thread is woken or `limit` has passed, and reads answers meanwhile if that is
/// worth it. May return early.
pub(crate) fn wait(parker: &Parker, limit: Option<Duration>) {
    let asked = ASKED.try_with(|asked| asked.take().upgrade()).ok().flatten();
    let asked = asked.filter(|core| !core.is_forked());
    let role = asked.as_deref().filter(|_| parker.can_poll()).and_then(Reading::take);
    match role {
        Some(role) => role.read(parker, limit),
        None => parker.park(limit),
    }
}

impl Core {
    /// Notes that this thread waits for something that was sent at a place where threads may read.
    pub(super) fn note_asked(&self) {
        let _ = ASKED.try_with(|asked| {
            let mut asked = asked.borrow_mut();
            if !Weak::ptr_eq(&asked, &self.me) {
                *asked = Weak::clone(&self.me);
            }
        });
    }
}

/// The role of the reader, while a thread has it.
struct Reading<'a> {
    core: &'a Core,
    place: &'a Place,
    socket: Arc<dyn Pollable>,
    epoch: u64,
    number: u64,
}

impl<'a> Reading<'a> {
    /// Takes the role, unless a task or another thread has it, or no answer is to come.
    fn take(core: &'a Core) -> Option<Self> {
        let place = core.places.only().filter(|place| place.path.is_read_by_threads())?;
        let (epoch, socket, number, before) = {
            let mut traffic = place.path.traffic();
            let before = traffic.reader();
            if !matches!(before, Reader::Engine | Reader::Nobody) || !traffic.expects_answers() {
                return None;
            }
            if !place.path.is_read_by_threads() {
                // Another thread has given the role to the engine meanwhile.
                return None;
            }
            let (epoch, socket) = traffic.pollable()?;
            (epoch, socket, traffic.set_reader(Reader::Thread), before)
        };
        if before == Reader::Engine {
            // It must stop watching the socket, or it would wake for each answer.
            core.waker.wake();
        }
        Some(Self { core, place, socket, epoch, number })
    }

    fn read(&self, parker: &Parker, limit: Option<Duration>) {
        let end = limit.map(|limit| Moment::now().after(limit));
        let mut work = Box::<Work>::default();
        while let Some(sending) = self.is_sending() {
            let left = end.map_or(LONGEST_POLL, |end| end.since(Moment::now()).min(LONGEST_POLL));
            let is_woken = left.is_zero() || !parker.poll(&*self.socket, sending, left);
            if is_woken || self.receive(&mut work) {
                return;
            }
        }
    }

    /// Whether there is more to send; `None` when the role is gone, or nothing is to come.
    fn is_sending(&self) -> Option<bool> {
        let traffic = self.place.path.traffic();
        let goes_on = traffic.is_read_by(self.epoch, self.number) && traffic.expects_answers();
        goes_on.then(|| !traffic.is_sent())
    }

    /// Reads what has arrived. Returns whether that was the answer to this thread's question.
    fn receive(&self, work: &mut Work) -> bool {
        let is_alone = {
            let mut traffic = self.place.path.traffic();
            if !traffic.is_read_by(self.epoch, self.number) {
                return false;
            }
            let is_alone = blocked_thread().is_some_and(|own| traffic.expects_only(own));
            traffic.pump(Moment::now(), &mut work.settled);
            traffic.push_out(&mut work.settled);
            is_alone
        };
        let is_answered = !work.settled.is_empty();
        {
            // The consequences of other callers' answers are not handled by this thread.
            let _others = (!is_alone).then(OnBehalfOfOthers::begin);
            self.core.send(work);
        }
        if is_alone
            && work.notices.len() == 1
            && let Some(notice) = work.notices.pop_front()
        {
            self.core.carry_out(notice, work);
            self.core.send(work);
        }
        if !work.notices.is_empty() {
            self.core.leave_to_threads(work);
        }
        is_alone && is_answered
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut traffic = self.place.path.traffic();
        if !traffic.is_read_by(self.epoch, self.number) {
            return;
        }
        let is_awaited = traffic.expects_answers();
        traffic.set_reader(if is_awaited { Reader::Engine } else { Reader::Nobody });
        if is_awaited {
            // Others wait as well: the engine serves them better.
            self.place.path.thread_commands.store(0, Ordering::Relaxed);
            drop(traffic);
            self.core.waker.wake();
        }
    }
}
