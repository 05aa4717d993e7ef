//! A connection on which mutexes work without scripts: plain commands are sent on one link, in
//! order, and transactions on connections of their own.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::RedisError;
use tokio::sync::mpsc;

use super::plan::is_possible;
use super::pool::Pool;
use super::run::{Setting, run};
use super::sequence::Sequence;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::store::link_slot::both;
use crate::store::redis::address::redirect_in;
use crate::store::redis::channel::Channel;
use crate::store::redis::dialect::Dialect;
use crate::store::redis::probe::{AtomicBy, Found};
use crate::store::wire::{NodeName, Redirect};
use crate::store::{Answer, Command, Connected, Filled, Inbox, Pulled, Verb, Wire};

/// What a transaction came to.
type EndedTransaction = (u64, Result<Answer, Fault>);

struct TransactionWire {
    link: Box<dyn Wire>,
    setting: Arc<Setting>,
    /// Whether the server compares and deletes by itself.
    has_native_delete: bool,
    found: Found,
    /// The name of the server, where other nodes may have a key.
    node: Option<NodeName>,
    sequence: Sequence,
    jobs: mpsc::UnboundedSender<(u64, Command)>,
    inbox: Arc<Inbox<EndedTransaction>>,
    done: VecDeque<Pulled>,
    /// When the commands were pushed to which the link owes the answers.
    owed: VecDeque<Moment>,
}

/// Makes a wire from a link, on the engine's runtime.
pub(in crate::store::redis) fn wire(
    link: Connected,
    pool: Arc<Pool>,
    found: Found,
    channel: Channel,
    node: Option<NodeName>,
) -> Connected {
    let dialect = match found.atomic_by {
        AtomicBy::Transactions(dialect) => dialect,
        AtomicBy::Scripts => Dialect::Millis,
    };
    let setting = Setting { pool, dialect, channel };
    let setting = Arc::new(setting);
    let (jobs, receiver) = mpsc::unbounded_channel();
    let inbox = Arc::new(Inbox::default());
    tokio::spawn(serve(Arc::clone(&setting), receiver, Arc::clone(&inbox)));
    let watcher = link.watcher.map(|watcher| both(watcher, inbox.watcher()));
    let wire = TransactionWire {
        link: link.wire,
        setting,
        has_native_delete: found.delete.is_native(),
        found,
        node,
        sequence: Sequence::default(),
        jobs,
        inbox,
        done: VecDeque::new(),
        owed: VecDeque::new(),
    };
    Connected { wire: Box::new(wire), watcher }
}

impl TransactionWire {
    fn start(&mut self, seq: u64, command: Command) {
        if self.goes_on_link(&command) {
            self.owed.push_back(Moment::now());
            return self.link.push(seq, command);
        }
        self.ask_task(seq, command);
    }

    fn ask_task(&mut self, seq: u64, command: Command) {
        if self.jobs.send((seq, command)).is_err() {
            let fault = Fault::new(FaultClass::Refused, "the engine has ended");
            self.finish(seq, Err(fault));
        }
    }

    fn goes_on_link(&self, command: &Command) -> bool {
        match &command.verb {
            Verb::Take { .. } => self.setting.dialect != Dialect::Seconds,
            Verb::Release { waited_for: false, keep: None, tombstone: None, .. } => {
                self.has_native_delete
            }
            Verb::Ping
            | Verb::Probe
            | Verb::Scan { .. }
            | Verb::Why { .. }
            | Verb::InUse { .. } => true,
            _ => false,
        }
    }

    /// Ends a command, and starts the next one of its key.
    fn go_on(&mut self, seq: u64) {
        if let Some((seq, command)) = self.sequence.end(seq) {
            self.start(seq, command);
        }
    }

    fn finish(&mut self, seq: u64, answer: Result<Answer, Fault>) {
        if let Some(redirect) = answer.as_ref().err().and_then(|fault| self.redirect(fault))
            && let Some(command) = self.sequence.running(seq).cloned()
        {
            self.done.push_back(Pulled::Redirected(seq, command, redirect));
            return self.go_on(seq);
        }
        if let Err(fault) = &answer
            && fault.class.is_unknown()
        {
            // It may still be executed, so commands that rely on coming after it are not sent.
            for seq in std::iter::once(seq).chain(self.sequence.abandon(seq)) {
                self.done.push_back(Pulled::Done(seq, Err(fault.clone())));
            }
            return;
        }
        let answer = answer.map(|answer| self.introduce(answer));
        self.done.push_back(Pulled::Done(seq, answer));
        self.go_on(seq);
    }

    /// Which node has the key of a transaction that was refused for that.
    fn redirect(&self, fault: &Fault) -> Option<Redirect> {
        let node = self.node.as_ref().filter(|_| fault.class == FaultClass::Refused)?;
        let error = fault.source.as_deref()?.downcast_ref::<RedisError>()?;
        redirect_in(error.code()?, error.detail()?, node)
    }

    /// Adds the description of the server to the answer of a look.
    fn introduce(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Seen(mut server_view) => {
                server_view.server = Some(self.found.info());
                Answer::Seen(server_view)
            }
            answer => answer,
        }
    }

    /// The link has answered. A plain delete that found nothing does not say why.
    fn linked(
        &mut self,
        seq: u64,
        answer: Result<Answer, Fault>,
        wants: &mut dyn FnMut(u64) -> bool,
    ) {
        let command = self.sequence.running(seq);
        let unexplained = matches!(answer, Ok(Answer::Gone { .. }))
            && command.is_some_and(|command| matches!(command.verb, Verb::Release { .. }));
        match command.filter(|_| unexplained).cloned() {
            Some(_) if !wants(seq) => {
                let fault = Fault::new(FaultClass::Refused, "no caller wants the lock any more");
                self.finish(seq, Err(fault));
            }
            Some(command) => self.ask_task(seq, command),
            None => self.finish(seq, answer),
        }
    }
}

impl Wire for TransactionWire {
    fn push(&mut self, seq: u64, command: Command) {
        if let Err(fault) = is_possible(&command) {
            self.done.push_back(Pulled::Done(seq, Err(fault)));
            self.inbox.wake();
        } else if let Some(command) = self.sequence.begin(seq, command) {
            self.start(seq, command);
        }
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        if !self.goes_on_link(&command) {
            let what = "its slot is being moved to another node, and no transaction can follow it";
            let fault = Fault::new(FaultClass::Moving, what);
            self.done.push_back(Pulled::Done(seq, Err(fault)));
            return self.inbox.wake();
        }
        if let Some(command) = self.sequence.begin(seq, command) {
            self.owed.push_back(Moment::now());
            self.link.push_asking(seq, command);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.flush()
    }

    fn is_flushed(&self) -> bool {
        self.link.is_flushed()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let arrived = self.inbox.take();
        let received = self.setting.pool.take_received();
        for (seq, answer) in arrived {
            self.finish(seq, answer);
        }
        let filled = self.link.fill()?;
        // While the link owes an answer, bytes on other connections must not hide that it is silent.
        Ok(Filled {
            received: filled.received || received && self.owed.is_empty(),
            more: filled.more,
        })
    }

    fn due(&self) -> Moment {
        self.link.due()
    }

    fn owes_since(&self, _: Moment) -> Option<Moment> {
        self.owed.front().copied()
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        loop {
            if let Some(done) = self.done.pop_front() {
                return Some(done);
            }
            let pulled = self.link.pull(wants)?;
            self.owed.pop_front();
            match pulled {
                Pulled::Done(seq, answer) => self.linked(seq, answer, wants),
                Pulled::Redirected(seq, command, redirect) => {
                    // Others of its key wait behind it.
                    self.go_on(seq);
                    return Some(Pulled::Redirected(seq, command, redirect));
                }
                Pulled::Broken(fault) => return Some(Pulled::Broken(fault)),
            }
        }
    }
}

/// Executes commands until the sender is dropped. Its connections are closed when the task ends.
async fn serve(
    setting: Arc<Setting>,
    mut jobs: mpsc::UnboundedReceiver<(u64, Command)>,
    inbox: Arc<Inbox<EndedTransaction>>,
) {
    let setting = &*setting;
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            job = jobs.recv() => {
                let Some((seq, command)) = job else { return };
                under_way.push(async move { (seq, run(setting, &command).await) });
            }
            Some((seq, answer)) = under_way.next(), if !under_way.is_empty() => inbox.put((seq, answer)),
        }
    }
}
