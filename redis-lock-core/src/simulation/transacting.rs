//! The server as transactions use it: its keys, and what it refuses.

use redis::{Cmd, Value};

use super::key_space::{WatchedKeys, needs_memory};
use super::planned_trouble::Refusal;
use super::server::{Messages, SimulatedServer, asked};
use crate::domain::fault::Fault;
use crate::domain::names::Names;
use crate::store::redis::{NextStep, TransactionSteps};
use crate::store::{Answer, Blocker, Command, Verb};

pub(super) fn error(code: &str) -> Value {
    let line = format!("-{code} as the simulation wants it\r\n");
    redis::parse_redis_value(line.as_bytes()).expect("an error")
}

/// What follows from the first round trip. `listens` says whether a channel has a subscriber.
pub(super) fn decide(
    steps: &mut TransactionSteps,
    answers: Vec<Value>,
    listens: &mut dyn FnMut(&str) -> bool,
) -> NextStep {
    let mut next = steps.read(answers).unwrap_or_else(|fault| NextStep::Done(Err(fault)));
    while let NextStep::AskListeners(channels) = next {
        let heard: Vec<_> = channels.into_iter().map(|it| (listens(&it), it)).collect();
        next = steps.hear(heard.into_iter().map(|(hears, channel)| (channel, hears)));
    }
    match next {
        NextStep::AskType(_) => TransactionSteps::of_another_type(),
        next => next,
    }
}

/// The answer as the caller gets it, with why a lock is gone; `ask` sends a command.
pub(super) fn explained(
    steps: &TransactionSteps,
    answer: Answer,
    ask: impl FnOnce(Cmd) -> Value,
) -> Answer {
    match steps.asks_why(&answer) {
        Some(why) => TransactionSteps::explained(answer, &ask(why)),
        None => answer,
    }
}

impl SimulatedServer {
    fn micros(&self, now: u64) -> u64 {
        self.clock(now).as_nanos() / 1_000
    }

    /// The code with which a command of a transaction is refused now.
    fn code(&self, cmd: Option<&Cmd>, queues_when_full: bool, now: u64) -> Option<&'static str> {
        let publishes = cmd.is_some_and(|cmd| {
            matches!(cmd.args_iter().next(), Some(redis::Arg::Simple(b"PUBLISH")))
        });
        self.refused_by(now).find_map(|why| match why {
            Refusal::Loading => Some("LOADING"),
            Refusal::OutOfMemory => {
                let refuses = |cmd: &Cmd| needs_memory(cmd) || !queues_when_full;
                cmd.is_some_and(refuses).then_some("OOM")
            }
            Refusal::ReadOnly => (cmd.is_some() && !publishes).then_some("READONLY"),
            Refusal::NoReplicas => (cmd.is_some() && !publishes).then_some("NOREPLICAS"),
        })
    }

    /// The first round trip of a transaction.
    pub(super) fn read(
        &mut self,
        steps: &mut TransactionSteps,
        now: u64,
    ) -> (WatchedKeys, Vec<Value>) {
        let (watch, reads) = steps.begin();
        let (micros, is_loading) = (self.micros(now), self.code(None, true, now).is_some());
        let Some(server) = &mut self.by_transactions else { return Default::default() };
        let watched = server.keys.watch(&watch, micros / 1_000);
        let around = if watch.is_empty() { None } else { Some(Value::Okay) };
        let read = |cmd: &Cmd| server.keys.execute(cmd, micros, &mut Vec::new());
        let answers = around.clone().into_iter().chain(reads.iter().map(read)).chain(around);
        let mut answers: Vec<_> = answers.collect();
        if is_loading {
            answers.fill(error("LOADING"));
        }
        (watched, answers)
    }

    /// The second one: an `EXEC` behind these commands. Messages come with their channels.
    pub(super) fn exec(
        &mut self,
        cmds: &[Cmd],
        watched: &WatchedKeys,
        now: u64,
    ) -> (Vec<Value>, Vec<(String, String)>) {
        let micros = self.micros(now);
        let Some(server) = &self.by_transactions else { return Default::default() };
        let full = server.queues_when_full;
        let refused = |cmd: &Cmd| self.code(Some(cmd), full, now).map(error);
        let queued = |refused: Option<Value>| {
            refused.unwrap_or_else(|| Value::SimpleString("QUEUED".into()))
        };
        let mut answers: Vec<_> = cmds.iter().map(|cmd| queued(refused(cmd))).collect();
        let is_refused = self.code(None, full, now).is_some()
            || answers.iter().any(|answer| matches!(answer, Value::ServerError(_)));
        let mut published = Vec::new();
        let Some(server) = &mut self.by_transactions else { return Default::default() };
        answers.push(if is_refused {
            error("EXECABORT")
        } else if server.keys.has_changed(watched, micros / 1_000, server.notices_expiry) {
            Value::Nil
        } else {
            let run = |cmd: &Cmd| server.keys.execute(cmd, micros, &mut published);
            Value::Array(cmds.iter().map(run).collect())
        });
        (answers, published)
    }

    /// What is read beside a transaction.
    pub(super) fn ask(&mut self, cmd: &Cmd, now: u64) -> Value {
        let micros = self.micros(now);
        let server = self.by_transactions.as_mut();
        server.map_or(Value::Nil, |it| it.keys.execute(cmd, micros, &mut Vec::new()))
    }

    /// Lets the oracles see what stands at a lock's keys.
    pub(super) fn show(&mut self, names: &Names, now: u64) {
        let millis = self.micros(now) / 1_000;
        let Some(server) = &self.by_transactions else { return };
        let entry = server.keys.entry(names, millis);
        self.state.entries.insert(names.main().to_owned(), entry);
    }

    /// Who is told by a message.
    pub(super) fn tell(
        &self,
        published: Vec<(String, String)>,
        node: usize,
        messages: &mut Messages,
    ) {
        for (channel, text) in published {
            if let Some(process) = self.listener(node, &channel)
                && let Some(event) = TransactionSteps::event_of(&text)
            {
                messages.push((process, event));
            }
        }
    }

    /// The process that listens at a channel.
    pub(super) fn listener(&self, node: usize, channel: &str) -> Option<usize> {
        let (_, manager) = channel.rsplit_once("~m:")?;
        self.subscribers.get(&(node, manager.into())).copied()
    }

    /// Executes a command without anything between its round trips.
    pub(super) fn at_once(
        &mut self,
        command: &Command,
        (node, channel): (usize, &str),
        now: u64,
        messages: &mut Messages,
    ) -> Result<Answer, Fault> {
        if let Verb::Take { token, ttl } = &command.verb {
            let mut cmd = redis::cmd("SET");
            cmd.arg(command.names.main()).arg(&**token).arg("NX");
            if let Some(ttl) = ttl {
                cmd.arg("PX").arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
            }
            let is_free = self.ask(&cmd, now) == Value::Okay;
            let busy = Answer::Busy(Blocker::unknown());
            return Ok(if is_free { Answer::Held { fence: None, slot: None } } else { busy });
        }
        let mut steps = TransactionSteps::simulated(command.clone(), channel.into());
        loop {
            let (watched, answers) = self.read(&mut steps, now);
            let mut listens = |channel: &str| self.listener(node, channel).is_some();
            let mut next = decide(&mut steps, answers, &mut listens);
            if let NextStep::Write(cmds) = next {
                let (answers, published) = self.exec(&cmds, &watched, now);
                self.tell(published, node, messages);
                next = steps.executed(answers).unwrap_or_else(|fault| NextStep::Done(Err(fault)));
            }
            if let NextStep::Done(answer) = next {
                return answer.map(|it| explained(&steps, it, |cmd| self.ask(&cmd, now)));
            }
        }
    }

    /// A command begins that may change what stands at its keys.
    pub(super) fn begin(&mut self, command: &Command, now: u64) {
        if let Some(token) = command.verb.token() {
            let asked = asked(&command.verb);
            let note = self.note(token);
            note.longest = note.longest.max(asked);
            if asked > 0 {
                note.meant_to_end = None;
            }
        }
        for names in command.names.all() {
            self.look_back(names.main(), now, None);
        }
    }

    /// A transaction has been executed; its messages were told.
    pub(super) fn conclude(&mut self, command: &Command, answer: &Result<Answer, Fault>, now: u64) {
        self.show(&command.names, now);
        self.look_back(command.names.main(), now, Some(&command.verb));
        self.follow(command, answer, now);
    }

    /// Why commands are refused now.
    pub(super) fn refused_by(&self, now: u64) -> impl Iterator<Item = Refusal> {
        self.refusals.iter().filter(move |(_, until)| *until > now).map(|(why, _)| *why)
    }
}
