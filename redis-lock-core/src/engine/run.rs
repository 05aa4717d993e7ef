//! The engine's loop: take what was posted, feed answers and time into the slots, send.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use super::flight::{Flight, Flying, Landing, Sender};
use super::lane::{self, Closing, Done, Errand, Lane};
use super::reaper::{Next, Reaper};
use super::search::Search;
use super::timers::Timers;
use super::{Core, FAREWELL, Message, SHUT_DOWN, SOON, StoreFactory};
use crate::clock::Moment;
use crate::error::{Fault, FaultClass};
use crate::observe;
use crate::slot::{Act, Reap, Slot, World};
use crate::store::{Answer, Command, Event, Reply, Store, Verb};
use crate::table::{Handle, SlotId};
use crate::{LockError, LossReason, Token};

/// The most that is taken from the mailbox, and so sent in one batch.
const BATCH: usize = 1024;

/// The longest the engine sleeps: after a suspended host wakes up, clocks disagree for this long.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

pub(super) struct Engine<'a> {
    core: &'a Arc<Core>,
    store: Box<dyn Store>,
    timers: Timers<Target>,
    reaper: Reaper,
    search: Search,
    flights: FuturesUnordered<Flying>,
    /// The slots of tokens that may be queued on the server, and so may be granted by message.
    queued: HashMap<Arc<str>, SlotId>,
    commands: Vec<Command>,
    senders: Vec<Sender>,
    farewell: Option<(Moment, oneshot::Sender<()>)>,
}

enum Target {
    Slot(SlotId),
    Reap(u64),
}

impl<'a> Engine<'a> {
    /// Runs until nobody is left who could post, or until a shutdown is done.
    pub(super) fn run(
        core: &'a Arc<Core>,
        mailbox: &mut mpsc::UnboundedReceiver<Message>,
        factory: &StoreFactory,
    ) {
        let built = runtime::Builder::new_current_thread().enable_all().build();
        // Without a selector there is no I/O; dropping the mailbox tells every caller.
        let Ok(runtime) = built else { return };
        runtime.block_on(async {
            let mut engine = Self {
                core,
                store: factory(&core.manager),
                timers: Timers::new(),
                reaper: Reaper::default(),
                search: Search::default(),
                flights: FuturesUnordered::new(),
                queued: HashMap::new(),
                commands: Vec::new(),
                senders: Vec::new(),
                farewell: None,
            };
            engine.serve(mailbox).await;
            mailbox.close();
            while mailbox.try_recv().is_ok() {}
            engine.close_all(&LockError::Shutdown);
            if let Some((_, done)) = engine.farewell.take() {
                // Whoever shut down may have stopped waiting.
                let _ = done.send(());
            }
        });
    }

    /// Ends every hold and every wait after the engine failed.
    pub(super) fn bury(core: &Arc<Core>) {
        let fault = Fault::new(FaultClass::Refused, "the lock engine failed and was restarted");
        let world = core.world();
        for id in core.table.ids() {
            let Some(mut slot) = core.table.shard(&id).remove(&id) else { continue };
            let mut acts = Vec::new();
            slot.close(&LockError::backend(None, &fault), &fault.what, &world, &mut acts);
            for act in acts {
                match act {
                    // A waiter that left needs no answer.
                    Act::Fail(handle, error) => drop(handle.send(Err(error))),
                    Act::Lost(hold) => observe::lost(&hold),
                    _ => {}
                }
            }
        }
    }

    async fn serve(&mut self, mailbox: &mut mpsc::UnboundedReceiver<Message>) {
        let mut posted = Vec::with_capacity(BATCH);
        let mut open = true;
        loop {
            let now = Moment::now();
            if self.is_done(open, now) {
                return;
            }
            let longest = if self.core.lane().is_some() { lane::ROUND } else { LONGEST_SLEEP };
            let pause = self.next_due().since(now).min(longest);
            tokio::select! {
                biased;
                taken = mailbox.recv_many(&mut posted, BATCH), if open => open = taken > 0,
                Some(landed) = self.flights.next(), if !self.flights.is_empty() => self.landed(landed),
                event = self.store.event() => self.happened(event),
                () = tokio::time::sleep(pause) => {}
            }
            // All that is there goes into one batch.
            while posted.len() < BATCH {
                let Ok(message) = mailbox.try_recv() else { break };
                posted.push(message);
            }
            for message in posted.drain(..) {
                self.posted(message);
            }
            while let Some(Some(landed)) = self.flights.next().now_or_never() {
                self.landed(landed);
            }
            self.tick();
            self.send();
        }
    }

    fn is_done(&self, open: bool, now: Moment) -> bool {
        match &self.farewell {
            Some((end, _)) => self.reaper.is_settled() && self.core.lane().is_none() || now >= *end,
            None => {
                !open
                    && self.reaper.is_empty()
                    && self.flights.is_empty()
                    && self.core.lane().is_none()
            }
        }
    }

    fn next_due(&self) -> Moment {
        let farewell = self.farewell.as_ref().map_or(Moment::NEVER, |(end, _)| *end);
        let nursery = self.core.nursery().front().map_or(Moment::NEVER, |(at, _)| *at);
        self.timers.next().min(farewell).min(nursery).min(self.search.due())
    }

    fn posted(&mut self, message: Message) {
        match message {
            // Somebody asked while the shutdown began.
            Message::Send { slot, .. } if self.farewell.is_some() => {
                self.change(&slot, |slot, world, acts| {
                    slot.close(&LockError::Shutdown, SHUT_DOWN, world, acts);
                })
            }
            Message::Send { slot, command, confirm } => {
                self.enqueue(command, Sender::Slot { id: slot, confirm });
            }
            Message::Query { command, reply } => self.enqueue(command, Sender::Query(Some(reply))),
            Message::Reap(reap) => self.reap(reap, false),
            Message::ReapAgain(reap) => self.reap(reap, true),
            Message::OpenLane(runtime, mailbox) => self.open_lane(&runtime, mailbox),
            // Each round looks after it.
            Message::TendLane => {}
            Message::Forced(token) => self.happened(Event::Forced { token }),
            Message::Wake(slot, at) => self.wake(&slot, at),
            Message::Disarm(alarm) => self.timers.cancel(alarm),
            Message::Connect(reply) => {
                let ready = self.store.ready();
                tokio::spawn(async move {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(ready.await);
                });
            }
            Message::Shutdown(done) => {
                self.close_all(&LockError::Shutdown);
                if let Some(lane) = self.core.lane() {
                    lane.close();
                }
                self.farewell = Some((Moment::now().after(FAREWELL), done));
            }
            #[cfg(test)]
            Message::Panic => panic!("a planted bug"),
        }
    }

    fn enqueue(&mut self, command: Command, sender: Sender) {
        if let (Some(token), Sender::Slot { id, .. }) = (command.verb.queues(), &sender) {
            self.queued.insert(Arc::clone(token), Arc::clone(id));
        }
        self.commands.push(command);
        self.senders.push(sender);
    }

    fn send(&mut self) {
        if self.commands.is_empty() {
            return;
        }
        let commands: Arc<[Command]> = std::mem::take(&mut self.commands).into();
        let senders = std::mem::take(&mut self.senders);
        let sent = Moment::now();
        let answers = self.store.execute(Arc::clone(&commands));
        let flight = Flight::new(commands, senders, sent, answers);
        self.flights.push(Flying(Some(Box::new(flight))));
    }

    fn landed(&mut self, landed: Option<(Box<Flight>, Landing)>) {
        let Some((mut flight, landing)) = landed else { return };
        match landing {
            Landing::Answered(answers) => {
                let commands = Arc::clone(&flight.commands);
                let senders = std::mem::take(&mut flight.senders);
                let each = commands.iter().zip(senders).zip(answers).enumerate();
                for (index, ((command, sender), answer)) in each {
                    // The sender acts on "unknown" already; only news can change its mind.
                    if answer.is_ok() || !flight.is_overdue(index) {
                        self.answered(command, sender, flight.sent, answer);
                    }
                }
            }
            Landing::Late => {
                self.store.unresponsive();
                for index in flight.newly_overdue() {
                    let (Some(command), Some(sender)) =
                        (flight.commands.get(index), flight.senders.get_mut(index))
                    else {
                        continue;
                    };
                    let fault = Fault::new(
                        FaultClass::Late,
                        format!("the server did not answer within {:?}", command.timeout),
                    );
                    let sender = sender.split_off();
                    let command = command.clone();
                    self.answered(&command, sender, flight.sent, Err(fault));
                }
                self.flights.push(Flying(Some(flight)));
            }
        }
    }

    fn answered(
        &mut self,
        command: &Command,
        sender: Sender,
        sent: Moment,
        answer: Result<Answer, Fault>,
    ) {
        if let (Ok(Answer::Gone { .. } | Answer::Buried), Some(token)) =
            (&answer, command.verb.token())
        {
            self.queued.remove(token);
        }
        if let Err(fault) = &answer {
            observe::failed(command.names.user_key(), fault);
        }
        if let Verb::Renew { .. } = command.verb {
            observe::renewed(command.names.user_key(), answer.as_ref().map(drop));
        }
        match sender {
            Sender::Slot { id, confirm } => {
                let outcome = confirm.is_some().then(|| outcome(command, &answer));
                self.change(&id, |slot, world, acts| match command.verb {
                    Verb::Yield { .. } => slot.yielded(command, sent, answer, world, acts),
                    Verb::Renew { .. } | Verb::Check { .. } | Verb::Downgrade { .. } => {
                        slot.renewed(command, sent, &answer, world, acts);
                    }
                    _ => slot.asked(command, sent, answer, world, acts),
                });
                if let (Some(confirm), Some(outcome)) = (confirm, outcome) {
                    // Whoever asked may have left.
                    let _ = confirm.send(outcome);
                }
            }
            Sender::Reaper(number) => {
                let next = self.reaper.answered(number, &answer, Moment::now());
                self.follow_up(number, next);
            }
            Sender::Query(Some(reply)) => drop(reply.send(answer)),
            Sender::Query(None) => {}
        }
    }

    fn open_lane(&mut self, runtime: &runtime::Handle, mailbox: mpsc::UnboundedSender<Message>) {
        if self.farewell.is_some() || self.core.lane().is_some() {
            return;
        }
        if let Some(maker) = self.store.wire() {
            let lane = Arc::new(Lane::new(runtime.id()));
            self.core.set_lane(Some(Arc::clone(&lane)));
            let closing = Closing { lane, engine: mailbox };
            runtime.spawn(lane::serve(closing, Arc::clone(self.core), maker));
        }
    }

    /// Takes over what the lane does not carry out.
    fn tend_lane(&mut self, now: Moment) {
        let Some(lane) = self.core.lane() else { return };
        for Done { errand, sent, reply } in lane.strand(now) {
            match (errand, reply) {
                (Errand::Take(slot, command), reply) => {
                    let answer = lane::answer(reply);
                    self.change(&slot, |slot, world, acts| {
                        slot.asked(&command, sent, answer, world, acts);
                    });
                }
                (Errand::Release(reap), Ok(Reply::Answer(answer))) => reap.settle(&answer),
                (Errand::Release(reap), Ok(Reply::Unclear { waited_for })) => {
                    self.reap(reap.for_waiters(waited_for), false);
                }
                (Errand::Release(reap), Err(_)) => self.reap(reap, true),
            }
        }
        if lane.is_over() {
            self.core.set_lane(None);
        }
    }

    fn reap(&mut self, reap: Reap, unsure: bool) {
        if let Verb::Release { token, .. } = &reap.command.verb {
            self.queued.remove(token);
        }
        let command = reap.command.clone();
        let number = self.reaper.add(reap, unsure, Moment::now());
        self.enqueue(command, Sender::Reaper(number));
    }

    fn follow_up(&mut self, number: u64, next: Next) {
        match next {
            Next::Done | Next::Wait => {}
            Next::SendNow => self.reap_again(number),
            Next::SendAt(at) => {
                let alarm = self.timers.set(at, Target::Reap(number));
                self.reaper.pause(number, alarm);
            }
        }
    }

    fn reap_again(&mut self, number: u64) {
        if let Some((command, alarm)) = self.reaper.resume(number) {
            if let Some(alarm) = alarm {
                self.timers.cancel(alarm);
            }
            self.enqueue(command, Sender::Reaper(number));
        }
    }

    fn tick(&mut self) {
        let now = Moment::now();
        self.tend_lane(now);
        self.search(now);
        while let Some(id) = self.core.grown_up(now) {
            if let Some(slot) = self.core.table.shard(&id).get_mut(&id) {
                slot.nursed = false;
                let due = slot.due(now);
                arm(&mut self.timers, &id, slot, due);
            }
        }
        while let Some(target) = self.timers.pop(now) {
            match target {
                Target::Slot(id) => {
                    self.change(&id, |slot, world, acts| {
                        slot.alarm = None;
                        slot.tick(world, acts);
                    });
                }
                Target::Reap(number) => self.reap_again(number),
            }
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Granted { token, waited_for } => {
                let Some(id) = self.queued.get(token.as_str()).cloned() else { return };
                self.change(&id, |slot, world, acts| {
                    if slot.contends_as(&token) {
                        slot.hinted(world, acts);
                        if waited_for {
                            slot.waited_for(world);
                        }
                    }
                });
            }
            Event::WaitedFor { key } => {
                if let Some(slot) = self.core.table.shard(&key).get_mut(key.as_str()) {
                    slot.waited_for(&self.core.world());
                }
            }
            Event::Forced { token } => self.search.add(token),
            Event::Connected => {
                self.change_all(|slot, world, acts| {
                    slot.hinted(world, acts);
                    slot.doubt(world, acts);
                });
                // Releases that wait for a retry need not wait any longer.
                for number in self.reaper.pausing() {
                    self.reap_again(number);
                }
            }
            Event::Listening { told } => {
                self.core.told.store(told, Ordering::Relaxed);
                self.change_all(Slot::hinted);
            }
        }
    }

    /// Has those look who have a token that was ended by force, says a message.
    fn search(&mut self, now: Moment) {
        let Some(tokens) = self.search.begin(now) else { return };
        for id in self.core.table.ids() {
            let mut held = None;
            if let Some(slot) = self.core.table.shard(&id).get(&id) {
                held = slot.had_by().map(|hold| Arc::clone(hold.token.wire()));
            }
            if held.is_some_and(|held| tokens.contains(&*held)) {
                self.change(&id, Slot::alarmed);
            }
        }
    }

    fn change_all(&mut self, change: impl Fn(&mut Slot<Handle>, &World, &mut Vec<Act<Handle>>)) {
        for id in self.core.table.ids() {
            self.change(&id, |slot, world, acts| change(slot, world, acts));
        }
    }

    fn close_all(&mut self, error: &LockError) {
        self.change_all(|slot, world, acts| slot.close(error, SHUT_DOWN, world, acts));
    }

    fn wake(&mut self, id: &SlotId, at: Moment) {
        if let Some(slot) = self.core.table.shard(id).get_mut(id) {
            arm(&mut self.timers, id, slot, at);
        }
    }

    /// Changes a slot, does what it wants done, and sets its timer.
    fn change(
        &mut self,
        id: &SlotId,
        change: impl FnOnce(&mut Slot<Handle>, &World, &mut Vec<Act<Handle>>),
    ) {
        let mut acts = Vec::new();
        let world = self.core.world();
        let mut slots = self.core.table.shard(id);
        let mut gone = Slot::new();
        let known = slots.contains_key(id);
        // An answer may come for a slot that is gone; it knows what to undo all the same.
        let slot = slots.get_mut(id).unwrap_or(&mut gone);
        change(slot, &world, &mut acts);
        if slot.is_idle() {
            if let Some(alarm) = slot.alarm.take() {
                self.timers.cancel(alarm);
            }
            slots.remove(id);
        } else if known {
            let due = slot.due(world.now);
            if slot.alarm.is_none() && due > world.now.after(SOON) {
                if !slot.nursed {
                    slot.nursed = true;
                    self.core.nurse(world.now, id);
                }
            } else {
                arm(&mut self.timers, id, slot, due);
            }
        }
        drop(slots);
        for act in acts {
            self.act(id, act);
        }
    }

    fn act(&mut self, id: &SlotId, act: Act<Handle>) {
        match act {
            Act::Send(command) => {
                self.enqueue(command, Sender::Slot { id: Arc::clone(id), confirm: None });
            }
            Act::Grant(handle, hold) => {
                if let Err(Ok(hold)) = handle.send(Ok(hold)) {
                    self.change(id, |slot, world, acts| slot.release(&hold, None, world, acts));
                }
            }
            Act::Fail(handle, error) => drop(handle.send(Err(error))),
            Act::Reap(reap) => self.reap(reap, false),
            Act::Wake(at) => self.wake(id, at),
            Act::Lost(hold) => observe::lost(&hold),
            Act::Contended(demand, holder) => observe::contended(&demand, holder.as_deref()),
        }
    }
}

/// Sets the slot's timer to `at`, unless it goes off earlier anyway.
fn arm(timers: &mut Timers<Target>, id: &SlotId, slot: &mut Slot<Handle>, at: Moment) {
    if slot.alarm.is_some_and(|alarm| alarm.at <= at) {
        return;
    }
    if let Some(alarm) = slot.alarm.take() {
        timers.cancel(alarm);
    }
    if at != Moment::NEVER {
        slot.alarm = Some(timers.set(at, Target::Slot(Arc::clone(id))));
    }
}

/// What the answer to `Renew` or `Check` means for whoever asked.
fn outcome(command: &Command, answer: &Result<Answer, Fault>) -> Result<(), LockError> {
    let key = command.names.user_key();
    match answer {
        Ok(Answer::Gone { by, because }) => {
            let reason = match by {
                Some(by) => LossReason::Overwritten { by: Token::from_wire(by) },
                None => LossReason::Removed { because: because.clone() },
            };
            Err(LockError::Lost { key: key.to_owned(), reason })
        }
        Ok(_) => Ok(()),
        Err(fault) => Err(LockError::backend(Some(key), fault)),
    }
}

impl Sender {
    /// The part that is told once; what stays behind can be told again when an answer comes late.
    fn split_off(&mut self) -> Self {
        match self {
            Self::Slot { id, confirm } => {
                Self::Slot { id: Arc::clone(id), confirm: confirm.take() }
            }
            Self::Reaper(number) => Self::Reaper(*number),
            Self::Query(reply) => Self::Query(reply.take()),
        }
    }
}
