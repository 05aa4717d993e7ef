//! A second way to the server, on the callers' own runtime.
//!
//! The engine's thread costs two thread switches for a command: to it, and back. Whoever takes and
//! releases many locks from the tasks of a multi-threaded runtime gets a lane: a connection of its
//! own that callers write to by themselves and a task of that runtime reads, for nothing but first
//! attempts to take a free lock and releases. All else stays with the engine, and so does the last
//! word: it reads the lane too when the runtime does not, because its threads are blocked, and takes
//! over what a broken lane leaves. Outcomes that are unknown then are resolved as after any broken
//! connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{Notify, mpsc};

use super::{Core, Message, change};
use crate::clock::Moment;
use crate::error::{Fault, FaultClass};
use crate::observe;
use crate::slot::Reap;
use crate::store::{Answer, Command, Reply, Verb, Wire, WireMaker};
use crate::table::SlotId;

/// How many commands a runtime must have sent the long way before it is worth a connection.
pub(super) const WORTH: u32 = 200;

/// How old an errand may get before the engine looks whether its answer is there.
const PICK_UP: Duration = Duration::from_millis(20);

/// How often the engine looks after a lane.
pub(super) const ROUND: Duration = Duration::from_millis(50);

/// What a lane carries.
#[derive(Debug)]
pub(super) enum Errand {
    /// A first attempt for a slot.
    Take(SlotId, Command),
    Release(Reap),
}

impl Errand {
    /// The message as an errand, where a lane may carry it; else the message.
    #[allow(clippy::result_large_err, reason = "what is not carried goes on as it came")]
    pub(super) fn of(message: Message) -> Result<Self, Message> {
        match message {
            Message::Send { slot, command, confirm: None }
                if matches!(command.verb, Verb::Take { .. }) =>
            {
                Ok(Self::Take(slot, command))
            }
            Message::Reap(reap)
                if reap.short
                    && !reap.doubtful
                    && matches!(
                        reap.command.verb,
                        Verb::Release { keep: None, bury: None, .. }
                    ) =>
            {
                Ok(Self::Release(reap))
            }
            other => Err(other),
        }
    }

    /// The same for the engine.
    pub(super) fn into_message(self) -> Message {
        match self {
            Self::Take(slot, command) => Message::Send { slot, command, confirm: None },
            Self::Release(reap) => Message::Reap(reap),
        }
    }

    /// Whether somebody waits for the answer.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Take(..) => true,
            Self::Release(reap) => reap.confirm.is_some(),
        }
    }

    fn is_release(&self) -> bool {
        matches!(self, Self::Release(_))
    }

    fn command(&self) -> &Command {
        match self {
            Self::Take(_, command) => command,
            Self::Release(reap) => &reap.command,
        }
    }
}

/// An errand that was sent at some time, and what was heard of it.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) errand: Errand,
    pub(super) sent: Moment,
    pub(super) reply: Result<Reply, Fault>,
}

/// What callers, the lane's task and the engine share of a lane.
#[derive(Debug)]
pub(super) struct Lane {
    runtime: runtime::Id,
    traffic: Mutex<Traffic>,
    news: Notify,
}

struct Traffic {
    stage: Stage,
    /// What has had no reply, in the order of the wire.
    flying: VecDeque<(Moment, Errand)>,
    /// How many of those have been sent as a whole.
    aloft: usize,
    /// How many of all are releases.
    releases: usize,
    /// Whether the task is about to flush by itself.
    tended: bool,
}

enum Stage {
    Connecting,
    Open(Box<dyn Wire>),
    /// It carries nothing more; the engine takes what is left.
    Closed,
}

impl std::fmt::Debug for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traffic").field("flying", &self.flying).finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(runtime: runtime::Id) -> Self {
        let flying = VecDeque::new();
        let traffic =
            Traffic { stage: Stage::Connecting, flying, aloft: 0, releases: 0, tended: false };
        Self { runtime, traffic: Mutex::new(traffic), news: Notify::new() }
    }

    pub(super) fn is_of(&self, runtime: &runtime::Handle) -> bool {
        self.runtime == runtime.id()
    }

    /// Gives it an errand; one that it does not take comes back. `from_here`: the caller is on the
    /// lane's runtime. Others use the lane only to keep the order: what was released in the
    /// background is free for whoever asks afterwards in this process.
    pub(super) fn offer(&self, errand: Errand, from_here: bool) -> Option<Errand> {
        let mut traffic = self.traffic();
        if !from_here && traffic.releases == 0 {
            return Some(errand);
        }
        let Stage::Open(wire) = &mut traffic.stage else { return Some(errand) };
        let first = wire.is_flushed();
        if !wire.push(errand.command()) {
            return Some(errand);
        }
        let awaited = errand.is_awaited();
        traffic.releases += usize::from(errand.is_release());
        traffic.flying.push_back((Moment::now(), errand));
        if awaited && traffic.aloft == 0 || !from_here {
            traffic.flush();
        }
        // What nobody waits for goes with the next that somebody does; and with others under way
        // it goes with theirs. The task runs after those who run now.
        let told = match traffic.stage {
            Stage::Closed => false,
            _ => traffic.tended || traffic.is_flushed() || !first,
        };
        drop(traffic);
        if !told {
            self.news.notify_one();
        }
        None
    }

    pub(super) fn close(&self) {
        self.traffic().stage = Stage::Closed;
        self.news.notify_one();
    }

    /// Whether it is closed and nothing is left of its traffic.
    pub(super) fn is_over(&self) -> bool {
        let traffic = self.traffic();
        matches!(traffic.stage, Stage::Closed) && traffic.flying.is_empty()
    }

    /// What the engine has to see to: answers that nobody has read for too long, and all that a
    /// closed lane leaves.
    pub(super) fn strand(&self, now: Moment) -> Vec<Done> {
        let mut traffic = self.traffic();
        let age = traffic.flying.front().map_or(Duration::ZERO, |(sent, _)| now.since(*sent));
        if age <= PICK_UP && !matches!(traffic.stage, Stage::Closed) {
            return Vec::new();
        }
        traffic.flush();
        let mut done = traffic.receive();
        let patience = |errand: &Errand| errand.command().timeout;
        let silent = |(sent, errand): &(Moment, Errand)| now.since(*sent) > patience(errand);
        let mut fault = Fault::new(FaultClass::Unknown, "the connection broke");
        if traffic.flying.front().is_some_and(silent) {
            traffic.stage = Stage::Closed;
            self.news.notify_one();
            fault = Fault::new(FaultClass::Late, "no answer came in time");
        }
        if matches!(traffic.stage, Stage::Closed) {
            traffic.releases = 0;
            done.extend(std::mem::take(&mut traffic.flying).into_iter().map(|(sent, errand)| {
                let reply = Err(fault.clone());
                Done { errand, sent, reply }
            }));
        }
        done
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traffic {
    fn is_flushed(&self) -> bool {
        match &self.stage {
            Stage::Open(wire) => wire.is_flushed(),
            Stage::Connecting | Stage::Closed => true,
        }
    }

    /// Whether the lane goes on and has all sent.
    fn is_done(&self) -> bool {
        matches!(&self.stage, Stage::Open(wire) if wire.is_flushed())
    }

    fn flush(&mut self) {
        let Stage::Open(wire) = &mut self.stage else { return };
        match wire.flush() {
            Ok(()) if wire.is_flushed() => self.aloft = self.flying.len(),
            Ok(()) => {}
            Err(_) => self.stage = Stage::Closed,
        }
    }

    /// The errands whose replies have arrived.
    fn receive(&mut self) -> Vec<Done> {
        let Stage::Open(wire) = &mut self.stage else { return Vec::new() };
        let mut done = Vec::new();
        let mut more = true;
        let mut broken = false;
        while more && !broken {
            let filled = wire.fill();
            (more, broken) = (matches!(filled, Ok(true)), filled.is_err());
            while let Some((_, errand)) = self.flying.front()
                && let Some(reply) = wire.pull(&errand.command().verb)
            {
                broken |= reply.as_ref().is_err_and(|fault| fault.class == FaultClass::Unknown);
                self.aloft = self.aloft.saturating_sub(1);
                if let Some((sent, errand)) = self.flying.pop_front() {
                    self.releases -= usize::from(errand.is_release());
                    done.push(Done { errand, sent, reply });
                }
            }
        }
        if broken || wire.is_spent() {
            self.stage = Stage::Closed;
        }
        done
    }
}

/// Closes the lane when its task ends, for whatever reason, and has the engine see to what is left.
pub(super) struct Closing {
    pub(super) lane: Arc<Lane>,
    pub(super) engine: mpsc::UnboundedSender<Message>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.lane.close();
        // Without an engine nobody is left to see to it.
        let _ = self.engine.send(Message::TendLane);
    }
}

/// The lane's task.
pub(super) async fn serve(closing: Closing, core: Arc<Core>, maker: WireMaker) {
    let Closing { lane, engine } = &closing;
    let connecting = maker();
    let made = tokio::select! {
        made = connecting => made,
        // It was closed; nothing else is told before it is open.
        () = lane.news.notified() => None,
    };
    let Some((wire, readiness)) = made else { return };
    {
        let mut traffic = lane.traffic();
        if matches!(traffic.stage, Stage::Closed) {
            return;
        }
        traffic.stage = Stage::Open(wire);
    }
    loop {
        let unsent = !lane.traffic().is_flushed();
        let arrived = tokio::select! {
            biased;
            ready = readiness.ready(unsent) => match ready {
                Ok(()) => true,
                Err(_) => return,
            },
            () = lane.news.notified() => false,
        };
        let mut woken = 0;
        if arrived {
            let done = {
                let mut traffic = lane.traffic();
                traffic.tended = true;
                traffic.receive()
            };
            woken = done.iter().filter(|done| done.errand.is_awaited()).count();
            for done in done {
                land(&core, engine, done);
            }
        } else if lane.traffic().is_done() {
            continue;
        }
        // Those who were told, or who come along with whoever told us, have something to send as
        // well: they run first, and one batch takes it all.
        if woken > 1 || !arrived {
            tokio::task::yield_now().await;
        }
        let mut traffic = lane.traffic();
        traffic.tended = false;
        traffic.flush();
        if matches!(traffic.stage, Stage::Closed) {
            return;
        }
    }
}

fn land(core: &Arc<Core>, engine: &mpsc::UnboundedSender<Message>, done: Done) {
    let post = |message| engine.send(message).is_ok();
    let Done { errand, sent, reply } = done;
    if let Err(fault) = &reply {
        observe::failed(errand.command().names.user_key(), fault);
    }
    match (errand, reply) {
        (Errand::Take(slot, command), reply) => {
            let answer = answer(reply);
            change(core, &post, &slot, |slot, world, acts| {
                slot.asked(&command, sent, answer, world, acts);
            });
        }
        (Errand::Release(reap), Ok(Reply::Answer(answer))) => reap.settle(&answer),
        (Errand::Release(reap), Ok(Reply::Unclear { waited_for })) => {
            post(Message::Reap(reap.for_waiters(waited_for)));
        }
        // What it takes to release after a failure is the engine's business.
        (Errand::Release(reap), Err(_)) => {
            post(Message::ReapAgain(reap));
        }
    }
}

/// The answer to a first attempt.
pub(super) fn answer(reply: Result<Reply, Fault>) -> Result<Answer, Fault> {
    match reply? {
        Reply::Answer(answer) => Ok(answer),
        Reply::Unclear { .. } => Err(Fault::new(FaultClass::Refused, "the server gave no answer")),
    }
}
