//! A connection on which mutexes work without scripts. Plain commands are sent on one link, in
//! order, and transactions on separate connections.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use redis::RedisError;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::plan::is_possible;
use super::pool::Pool;
use super::{Setting, run};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::store::redis::address::redirect_in;
use crate::store::redis::dialect::Dialect;
use crate::store::redis::listen::Channel;
use crate::store::redis::probe::{AtomicBy, Found};
use crate::store::wire::{NodeName, Redirect};
use crate::store::{Answer, Command, Connected, Filled, Inbox, Pulled, Verb, Wire};

struct TransactionWire {
    link: Box<dyn Wire>,
    setting: Arc<Setting>,
    found: Found,
    /// The name of the server, where other nodes may have a key.
    node: Option<NodeName>,
    sequence: Sequence,
    engine: Handle,
    /// Its connections are closed when this is dropped.
    under_way: JoinSet<()>,
    inbox: Arc<Inbox<(u64, Result<Answer, Fault>)>>,
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
        AtomicBy::Scripts => Dialect::Values,
    };
    Box::new(TransactionWire {
        link,
        setting: Arc::new(Setting { pool, dialect, channel }),
        found,
        node,
        sequence: Sequence::default(),
        engine: Handle::current(),
        under_way: JoinSet::new(),
        inbox: Arc::default(),
        done: VecDeque::new(),
        owed: VecDeque::new(),
    })
}

impl TransactionWire {
    fn start(&mut self, seq: u64, command: Command) {
        if self.goes_on_link(&command) {
            self.owed.push_back(Moment::now());
            return self.link.push(seq, command);
        }
        self.spawn(seq, command);
    }

    /// Executes the command in a task of the engine.
    fn spawn(&mut self, seq: u64, command: Command) {
        let (setting, inbox) = (Arc::clone(&self.setting), Arc::clone(&self.inbox));
        let running = async move { inbox.put((seq, run(&setting, &command).await)) };
        self.under_way.spawn_on(running, &self.engine);
    }

    fn goes_on_link(&self, command: &Command) -> bool {
        match &command.verb {
            Verb::Release { waited_for: false, keep: None, tombstone: None, .. } => {
                self.found.delete.is_native()
            }
            Verb::Take { .. }
            | Verb::Ping
            | Verb::Probe
            | Verb::Scan { .. }
            | Verb::Fetch
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
        let answer = answer.map(|answer| answer.with_server(|| self.found.info()));
        self.done.push_back(Pulled::Done(seq, answer));
        self.go_on(seq);
    }

    /// Which node has the key of a transaction that was refused for that.
    fn redirect(&self, fault: &Fault) -> Option<Redirect> {
        let node = self.node.as_ref().filter(|_| fault.class == FaultClass::Refused)?;
        let error = fault.source.as_deref()?.downcast_ref::<RedisError>()?;
        redirect_in(error.code()?, error.detail()?, node)
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
            Some(_) if !wants(seq) => self.finish(seq, Err(Fault::unwanted())),
            Some(command) => self.spawn(seq, command),
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
        while self.under_way.try_join_next().is_some() {}
        let arrived = self.inbox.take();
        let received = self.setting.pool.take_received();
        for (seq, answer) in arrived {
            let answer = answer.map_err(|fault| self.setting.pool.judge(fault));
            self.finish(seq, answer);
        }
        let filled = self.link.fill()?;
        // While the link owes an answer, bytes on other connections must not hide that it is silent.
        Ok(Filled {
            received: filled.received || received && self.owed.is_empty(),
            more: filled.more,
        })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.link.poll_ready(context) {
            Poll::Pending => self.inbox.poll_news(context),
            ready @ Poll::Ready(_) => ready,
        }
    }

    fn unwatch(&mut self) {
        self.link.unwatch();
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

/// The running and waiting commands of all keys.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// Of each key the command that runs, and those that wait for it.
    lines: HashMap<Arc<str>, VecDeque<(u64, Command)>>,
    /// The keys of the running commands, by their numbers.
    running: HashMap<u64, Arc<str>>,
}

impl Sequence {
    /// The command if it may run now; it is kept otherwise.
    pub(crate) fn begin(&mut self, seq: u64, command: Command) -> Option<Command> {
        if is_of_no_key(&command) {
            return Some(command);
        }
        let key: Arc<str> = command.names.main().into();
        let line = self.lines.entry(Arc::clone(&key)).or_default();
        line.push_back((seq, command.clone()));
        if line.len() > 1 {
            return None;
        }
        self.running.insert(seq, key);
        Some(command)
    }

    /// The command that runs by this number, unless it is of no key.
    pub(crate) fn running(&self, seq: u64) -> Option<&Command> {
        let (_, command) = self.lines.get(self.running.get(&seq)?)?.front()?;
        Some(command)
    }

    /// The outcome of a command is unknown, and it may still be executed. Takes out the commands of its
    /// key that rely on coming after it.
    pub(crate) fn abandon(&mut self, seq: u64) -> impl Iterator<Item = u64> + use<> {
        let line = self.running.remove(&seq).and_then(|key| self.lines.remove(&key));
        line.into_iter().flatten().skip(1).map(|(seq, _)| seq)
    }

    /// A command is done with; returns the next one of its key.
    pub(crate) fn end(&mut self, seq: u64) -> Option<(u64, Command)> {
        let key = self.running.remove(&seq)?;
        let line = self.lines.get_mut(&key)?;
        line.pop_front();
        let Some((seq, command)) = line.front() else {
            self.lines.remove(&key);
            return None;
        };
        self.running.insert(*seq, key);
        Some((*seq, command.clone()))
    }
}

/// Whether a command belongs to no key, so that its order makes no difference.
fn is_of_no_key(command: &Command) -> bool {
    matches!(command.verb, Verb::Ping | Verb::Scan { .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;

    fn check(key: &str) -> Command {
        let names = Names::new("", key);
        let verb = Verb::Check { token: "t".into() };
        Command { names, kind: Kind::Mutex, verb, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn commands_of_one_key_follow_each_other_and_others_do_not_wait() {
        let mut sequence = Sequence::default();
        assert!(sequence.begin(1, check("a")).is_some());
        assert!(sequence.begin(2, check("a")).is_none());
        assert!(sequence.begin(3, check("a")).is_none());
        assert!(sequence.begin(4, check("b")).is_some());
        assert_eq!(sequence.end(1).map(|(seq, _)| seq), Some(2));
        assert!(sequence.begin(5, check("a")).is_none(), "the last comes last");
        assert_eq!(sequence.end(2).map(|(seq, _)| seq), Some(3));
        assert_eq!(sequence.end(3).map(|(seq, _)| seq), Some(5));
        assert!(sequence.end(5).is_none());
        assert!(sequence.end(4).is_none());
        assert!(sequence.lines.is_empty() && sequence.running.is_empty());
    }

    #[test]
    fn what_relies_on_an_unknown_outcome_goes_with_it_and_nothing_else_does() {
        let mut sequence = Sequence::default();
        for (seq, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "b")] {
            sequence.begin(seq, check(key));
        }
        assert_eq!(sequence.abandon(1).collect::<Vec<_>>(), [2, 4]);
        assert!(sequence.begin(6, check("a")).is_some(), "what comes later is asked");
        assert_eq!(sequence.end(3).map(|(seq, _)| seq), Some(5));
        assert!(sequence.end(6).is_none() && sequence.end(5).is_none());
        assert!(sequence.lines.is_empty() && sequence.running.is_empty());
    }
}
