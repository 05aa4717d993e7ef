//! A second way to the server, on the callers' own runtime.
//!
//! The engine's thread costs two thread switches for a command: to it, and back. Whoever takes and
//! releases many locks from the tasks of a multi-threaded runtime gets a lane: a task of that runtime
//! with a connection of its own, which carries nothing but first attempts to take a free lock and
//! releases. All else stays with the engine, and so does the last word: it looks after the lane and
//! takes over what the lane does not carry out, because its runtime is blocked or gone, or its
//! connection broken. Outcomes that are unknown then are resolved as after any broken connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime;
use tokio::sync::{Notify, mpsc};

use super::{Core, Message, change};
use crate::clock::Moment;
use crate::error::{Fault, FaultClass};
use crate::observe;
use crate::store::{Answer, Command, LaneMaker, Verb};

/// How many commands a runtime must have sent the long way before it is worth a connection.
pub(super) const WORTH: u32 = 200;

/// How long an errand may wait for the lane's task to run. A runtime whose workers are all blocked
/// runs nothing, and a release must not wait for it.
const PICK_UP: Duration = Duration::from_millis(20);

/// How often the engine looks after a lane.
pub(super) const ROUND: Duration = Duration::from_millis(50);

/// The most that is sent in one batch.
const BATCH: usize = 1024;

/// A message that a lane carries: a first attempt, or a release.
#[derive(Debug)]
pub(super) struct Errand(Message);

impl Errand {
    /// The message as an errand, where a lane may carry it; else `message` keeps it.
    pub(super) fn of(message: &mut Option<Message>) -> Option<Self> {
        let fits = match message.as_ref()? {
            Message::Send { command, confirm: None, .. } => {
                matches!(command.verb, Verb::Take { .. })
            }
            Message::Reap(reap) => {
                !reap.doubtful
                    && matches!(reap.command.verb, Verb::Release { keep: None, bury: None, .. })
            }
            _ => false,
        };
        if fits { message.take().map(Self) } else { None }
    }

    /// The same for the engine.
    pub(super) fn into_message(self) -> Message {
        self.0
    }

    fn command(&self) -> Option<&Command> {
        match &self.0 {
            Message::Send { command, .. } => Some(command),
            Message::Reap(reap) => Some(&reap.command),
            _ => None,
        }
    }

    fn patience(&self) -> Duration {
        self.command().map_or(Duration::ZERO, |command| command.timeout)
    }
}

/// What callers, the lane's task and the engine share of a lane.
#[derive(Debug)]
pub(super) struct Lane {
    runtime: runtime::Id,
    traffic: Mutex<Traffic>,
    news: Notify,
}

#[derive(Debug)]
struct Traffic {
    stage: Stage,
    waiting: VecDeque<(Moment, Errand)>,
    flying: VecDeque<Batch>,
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Open,
    /// It carries nothing more; the engine takes what is left.
    Closed,
}

#[derive(Debug)]
struct Batch {
    number: u64,
    sent: Moment,
    errands: Vec<Errand>,
}

/// An errand that the engine has to see to.
#[derive(Debug)]
pub(super) enum Stranded {
    /// It was never sent.
    Unsent(Errand),
    /// It was sent at this time, and nothing was heard of it.
    Unanswered(Errand, Moment),
}

impl Lane {
    pub(super) fn new(runtime: runtime::Id) -> Self {
        let traffic = Traffic {
            stage: Stage::Connecting,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            number: 0,
        };
        Self { runtime, traffic: Mutex::new(traffic), news: Notify::new() }
    }

    pub(super) fn is_of(&self, runtime: &runtime::Handle) -> bool {
        self.runtime == runtime.id()
    }

    /// Gives it an errand; one that it does not take comes back.
    pub(super) fn offer(&self, errand: Errand) -> Option<Errand> {
        let mut traffic = self.traffic();
        if traffic.stage != Stage::Open {
            return Some(errand);
        }
        traffic.waiting.push_back((Moment::now(), errand));
        drop(traffic);
        self.news.notify_one();
        None
    }

    pub(super) fn close(&self) {
        self.traffic().stage = Stage::Closed;
        self.news.notify_one();
    }

    /// Ends when it is closed.
    async fn closed(&self) {
        while self.traffic().stage != Stage::Closed {
            self.news.notified().await;
        }
    }

    /// Whether it is closed and nothing is left of its traffic.
    pub(super) fn is_over(&self) -> bool {
        let traffic = self.traffic();
        traffic.stage == Stage::Closed && traffic.is_empty()
    }

    /// Takes what the lane has had for too long, or all when it is closed.
    pub(super) fn strand(&self, now: Moment) -> Vec<Stranded> {
        let mut traffic = self.traffic();
        let silent = |batch: &Batch| {
            let patience = batch.errands.iter().map(Errand::patience).min();
            patience.is_some_and(|patience| now.since(batch.sent) > patience)
        };
        if traffic.flying.front().is_some_and(silent) {
            traffic.stage = Stage::Closed;
        }
        let late = |(posted, _): &(Moment, Errand)| now.since(*posted) > PICK_UP;
        let mut stranded = Vec::new();
        if traffic.stage == Stage::Closed {
            for batch in std::mem::take(&mut traffic.flying) {
                let unanswered = |errand| Stranded::Unanswered(errand, batch.sent);
                stranded.extend(batch.errands.into_iter().map(unanswered));
            }
        }
        if traffic.stage == Stage::Closed || traffic.waiting.front().is_some_and(late) {
            let waiting = std::mem::take(&mut traffic.waiting);
            stranded.extend(waiting.into_iter().map(|(_, errand)| Stranded::Unsent(errand)));
        }
        stranded
    }

    /// Takes the next batch to send; `None` when the lane is closed.
    fn load(&self) -> Option<(u64, Moment, Arc<[Command]>)> {
        let mut traffic = self.traffic();
        if traffic.stage == Stage::Closed {
            return None;
        }
        let count = traffic.waiting.len().min(BATCH);
        let errands: Vec<_> = traffic.waiting.drain(..count).map(|(_, errand)| errand).collect();
        let commands = errands.iter().filter_map(|errand| errand.command().cloned()).collect();
        traffic.number = traffic.number.wrapping_add(1);
        let (number, sent) = (traffic.number, Moment::now());
        if !errands.is_empty() {
            traffic.flying.push_back(Batch { number, sent, errands });
        }
        Some((number, sent, commands))
    }

    /// The errands of a batch that has landed, unless the engine has taken them.
    fn unload(&self, number: u64) -> Option<Vec<Errand>> {
        let mut traffic = self.traffic();
        let index = traffic.flying.iter().position(|batch| batch.number == number)?;
        traffic.flying.remove(index).map(|batch| batch.errands)
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traffic {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }
}

/// Closes the lane when its task ends, for whatever reason.
pub(super) struct Closing(pub(super) Arc<Lane>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The lane's task.
pub(super) async fn serve(
    lane: Closing,
    core: Arc<Core>,
    engine: mpsc::UnboundedSender<Message>,
    maker: LaneMaker,
) {
    let lane = &lane.0;
    let made = tokio::select! {
        made = maker() => made,
        () = lane.closed() => None,
    };
    let Some(mut store) = made else { return };
    {
        let mut traffic = lane.traffic();
        if traffic.stage == Stage::Connecting {
            traffic.stage = Stage::Open;
        }
    }
    let mut flights = FuturesUnordered::new();
    loop {
        let Some((number, sent, commands)) = lane.load() else { return };
        if !commands.is_empty() {
            let answers = store.execute(Arc::clone(&commands));
            flights.push(answers.map(move |answers| (number, sent, answers)));
            // Send it before anything else happens, and look whether more has come meanwhile.
            if let Some(Some(landed)) = flights.next().now_or_never() {
                land(lane, &core, &engine, landed);
            }
            continue;
        }
        tokio::select! {
            biased;
            Some(landed) = flights.next(), if !flights.is_empty() => {
                land(lane, &core, &engine, landed);
            }
            () = lane.news.notified() => {
                // The runtime runs what was woken last first: without this the first of many
                // errands would travel alone. A lone errand, with none under way, does.
                if !flights.is_empty() {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

fn land(
    lane: &Lane,
    core: &Arc<Core>,
    engine: &mpsc::UnboundedSender<Message>,
    (number, sent, answers): (u64, Moment, Vec<Result<Answer, Fault>>),
) {
    let Some(errands) = lane.unload(number) else { return };
    let post = |message| engine.send(message).is_ok();
    for (errand, answer) in errands.into_iter().zip(answers) {
        if answer.as_ref().is_err_and(|fault| fault.class == FaultClass::Unknown) {
            lane.close();
        }
        if let (Err(fault), Some(command)) = (&answer, errand.command()) {
            observe::failed(command.names.user_key(), fault);
        }
        match (errand.0, answer) {
            (Message::Send { slot, command, .. }, answer) => {
                change(core, &post, &slot, |slot, world, acts| {
                    slot.asked(&command, sent, answer, world, acts);
                });
            }
            (Message::Reap(reap), Ok(answer)) => reap.settle(&answer),
            // What it takes to release after a failure is the engine's business.
            (Message::Reap(reap), Err(_)) => drop(post(Message::ReapAgain(reap))),
            _ => {}
        }
    }
}
