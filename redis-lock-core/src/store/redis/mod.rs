//! The arbiter on one Redis or Valkey server.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::mpsc;

use self::connection::{Connection, State, Up};
use self::decode::{Plain, is_demoted};
use self::encode::{Call, Context};
use self::groups::{Next, Part, Split};
use self::probe::Delete;
use super::{Answer, Answers, Command, Event, Store, Verb, WireMaker, limits};
use crate::demand::Kind;
use crate::error::{Fault, FaultClass};

mod cluster;
#[cfg(test)]
mod conformance;
mod connection;
mod decode;
#[cfg(test)]
mod direct;
mod encode;
mod fast;
mod groups;
mod listen;
mod probe;
#[cfg(test)]
mod script_tests;
mod scripts;
mod wire;

/// Locks on one server, by two connections of its own: one for commands, one to be told by.
pub(crate) struct RedisStore {
    client: redis::Client,
    connection: Connection,
    events: mpsc::UnboundedReceiver<Event>,
    channel: Arc<str>,
    listening: Arc<AtomicBool>,
}

impl RedisStore {
    /// Must be called on the engine's runtime, which its tasks live on.
    pub(crate) fn new(
        client: redis::Client,
        namespace: &str,
        manager: &str,
        patience: Duration,
    ) -> Self {
        let client = prompt(client);
        let (sender, events) = mpsc::unbounded_channel();
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}:") };
        let channel = format!("{prefix}~m:{manager}");
        let connection =
            Connection::supervised(client.clone(), namespace.to_owned(), patience, sender.clone());
        let listening = Arc::new(AtomicBool::new(false));
        let (standing, own) = (connection.clone(), channel.clone());
        let channel = channel.into();
        let listener = client.clone();
        tokio::spawn(async move {
            // Who can't send need not listen.
            standing.stood().await;
            listen::listen(listener, own, patience, sender).await;
        });
        Self { client, connection, events, channel, listening }
    }
}

/// The client with settings that suit small, urgent commands.
fn prompt(client: redis::Client) -> redis::Client {
    let info = client.get_connection_info().clone();
    let settings = info.tcp_settings().clone().set_nodelay(true);
    // The settings came from a client, so a client can be made of them.
    redis::Client::open(info.set_tcp_settings(settings)).unwrap_or(client)
}

impl Store for RedisStore {
    fn execute(&mut self, batch: Arc<[Command]>) -> Answers {
        let connection = self.connection.clone();
        let told = self.listening.load(Ordering::Relaxed);
        let channel = if told { Arc::clone(&self.channel) } else { "-".into() };
        Box::pin(async move {
            let up = match connection.up().await {
                Ok(up) => up,
                Err(fault) => return batch.iter().map(|_| Err(fault.clone())).collect(),
            };
            let context = Context { delete: up.found.delete, channel };
            execute(&connection, up, &batch, &context).await
        })
    }

    fn ready(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>> {
        let connection = self.connection.clone();
        Box::pin(async move { connection.up().await.map(drop) })
    }

    fn event(&mut self) -> Pin<Box<dyn Future<Output = Event> + Send + '_>> {
        Box::pin(async move {
            match self.events.recv().await {
                Some(event) => {
                    if let Event::Listening { told } = event {
                        self.listening.store(told, Ordering::Relaxed);
                    }
                    event
                }
                None => std::future::pending().await,
            }
        })
    }

    fn wire(&self) -> Option<WireMaker> {
        let (client, standing) = (self.client.clone(), self.connection.clone());
        Some(Box::new(move || Box::pin(wire::connect(client, standing))))
    }

    fn unresponsive(&mut self) {
        self.connection.unresponsive();
    }

    fn describe(&self) -> String {
        match self.connection.state() {
            State::Up(up) => format!("{}, released by {:?}", up.found.version, up.found.delete),
            State::Connecting => "connecting".into(),
            State::Down(fault) => fault.what,
        }
    }
}

/// How a command is sent.
enum Step {
    /// Without one of the scripts that know all.
    Plain,
    /// The same for a server that has forgotten how.
    PlainInFull,
    /// By the script's name, the short way.
    Short,
    ByHash(Call),
    InFull(Call),
    /// By this command, for the reason of this answer.
    Why(Box<Command>, Answer),
}

/// What is sent together.
#[derive(Default)]
struct Round {
    pipeline: Pipeline,
    asked: Vec<Asked>,
}

/// A question to the server: for which command of a batch, and for which part of it.
struct Asked {
    index: usize,
    part: Option<Box<Part>>,
    step: Step,
}

impl Round {
    fn with_capacity(count: usize) -> Self {
        Self { pipeline: Pipeline::with_capacity(count), asked: Vec::with_capacity(count) }
    }

    /// Adds what asks for a command, or for a part of it; not for what has no form here.
    fn ask(&mut self, index: usize, command: &Command, part: Option<Box<Part>>, context: &Context) {
        let command = part.as_ref().map_or(command, |part| &part.command);
        let step = if let Some(cmd) = encode::plain(command, context) {
            self.pipeline.add_command(cmd);
            Step::Plain
        } else if let Some(cmd) = fast::call(command) {
            self.pipeline.add_command(cmd);
            Step::Short
        } else if let Some(call) = encode::call(command, context) {
            self.pipeline.add_command(call.by_hash());
            Step::ByHash(call)
        } else {
            return;
        };
        self.asked.push(Asked { index, part, step });
    }

    /// Adds the next step of what was asked before.
    fn go_on(&mut self, step: &Step, command: &Command, context: &Context) {
        match step {
            Step::ByHash(call) => drop(self.pipeline.add_command(call.by_hash())),
            Step::InFull(call) => drop(self.pipeline.add_command(call.in_full())),
            Step::PlainInFull => {
                let token = command.verb.token().map_or("", |token| token);
                self.pipeline.add_command(Delete::in_full(command.names.main(), token));
            }
            Step::Why(why, _) => {
                if let Some(why) = encode::plain(why, context) {
                    self.pipeline.add_command(why);
                }
            }
            Step::Plain | Step::Short => {}
        }
    }
}

/// What is known of a batch on its way.
struct Progress {
    answers: Vec<Option<Result<Answer, Fault>>>,
    /// Commands for keys of several slots, where that takes several steps.
    splits: HashMap<usize, Split>,
    round: Round,
}

impl Progress {
    fn answer(&mut self, index: usize, answer: Result<Answer, Fault>) {
        self.splits.remove(&index);
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = Some(answer);
        }
    }

    fn split(&mut self, index: usize, command: &Command, up: &Up, context: &Context) {
        let (split, next) = Split::start(command, &up.cluster);
        self.splits.insert(index, split);
        self.follow(index, command, next, context);
    }

    fn follow(&mut self, index: usize, command: &Command, next: Next, context: &Context) {
        match next {
            Next::Ask(parts) => {
                for part in parts {
                    self.round.ask(index, command, Some(Box::new(part)), context);
                }
            }
            Next::Done(answer) => self.answer(index, answer),
        }
    }
}

/// Sends a batch as one pipeline, and what it turns out to need in further ones.
async fn execute(
    connection: &Connection,
    up: Up,
    batch: &[Command],
    context: &Context,
) -> Vec<Result<Answer, Fault>> {
    let mut progress = Progress {
        answers: batch.iter().map(|_| None).collect(),
        splits: HashMap::new(),
        round: Round::with_capacity(batch.len()),
    };
    for (index, command) in batch.iter().enumerate() {
        if up.cluster.is_one() && groups::is_split(command) {
            progress.split(index, command, &up, context);
        } else {
            progress.round.ask(index, command, None, context);
        }
    }
    while !progress.round.asked.is_empty() {
        let Round { pipeline, asked } = std::mem::take(&mut progress.round);
        let values = match send(connection, &up, &pipeline).await {
            Ok(values) => values,
            Err(fault) => {
                for Asked { index, .. } in asked {
                    let fault = fault.clone();
                    match progress.splits.remove(&index) {
                        Some(split) => progress.answer(index, split.broken(fault)),
                        None => progress.answer(index, Err(fault)),
                    }
                }
                break;
            }
        };
        for (Asked { index, part, step }, value) in asked.into_iter().zip(values) {
            let Some(whole) = batch.get(index) else { continue };
            if part.is_none() && decode::crosses_slots(&value) && groups::is_split(whole) {
                // The server runs in cluster mode, and may not tell us so.
                up.cluster.found(true);
                progress.split(index, whole, &up, context);
                continue;
            }
            let command = part.as_ref().map_or(whole, |part| &part.command);
            match read(command, step, value, context) {
                Ok(answer) => match (part, answer) {
                    (Some(part), answer) => {
                        if let Some(split) = progress.splits.get_mut(&index) {
                            split.answered(part.group, answer);
                        }
                    }
                    (None, Ok(Answer::Seen(mut sight))) => {
                        sight.server = Some(up.found.info());
                        progress.answer(index, Ok(Answer::Seen(sight)));
                    }
                    (None, answer) => progress.answer(index, answer),
                },
                Err(step) => {
                    progress.round.go_on(&step, command, context);
                    progress.round.asked.push(Asked { index, part, step });
                }
            }
        }
        let split = progress.splits.iter_mut();
        let ready: Vec<_> = split.filter_map(|(index, it)| Some((*index, it.next()?))).collect();
        for (index, next) in ready {
            if let Some(command) = batch.get(index) {
                progress.follow(index, command, next, context);
            }
        }
    }
    let Progress { answers, .. } = progress;
    let nothing = || Err(Fault::new(FaultClass::Permanent, "the command has no form here"));
    answers.into_iter().map(|answer| answer.unwrap_or_else(nothing)).collect()
}

/// The answer, or what has to be sent to get it.
fn read(
    command: &Command,
    step: Step,
    value: Value,
    context: &Context,
) -> Result<Result<Answer, Fault>, Step> {
    if let Step::Why(_, gone) = step {
        return Ok(Ok(decode::why(gone, &value)));
    }
    let answer = told(command, step, value, context)?;
    match answer.as_ref().ok().and_then(|answer| decode::asks_why(command, answer)) {
        Some(why) => {
            answer.map_or_else(|fault| Ok(Err(fault)), |gone| Err(Step::Why(Box::new(why), gone)))
        }
        None => Ok(answer),
    }
}

fn told(
    command: &Command,
    step: Step,
    value: Value,
    context: &Context,
) -> Result<Result<Answer, Fault>, Step> {
    match step {
        Step::Plain if decode::is_forgotten(&value) => Err(Step::PlainInFull),
        Step::Plain | Step::PlainInFull => match decode::plain(&command.verb, value) {
            Ok(Plain::Answer(answer)) => Ok(Ok(answer)),
            Ok(Plain::AskScript) => {
                encode::call(command, context).map(Step::ByHash).map_or(Ok(Ok(Answer::Done)), Err)
            }
            Err(fault) => Ok(Err(fault)),
        },
        Step::Short => decode::script(&command.verb, value).map_or_else(
            || encode::call(command, context).map(Step::InFull).map_or(Ok(Ok(Answer::Done)), Err),
            Ok,
        ),
        Step::ByHash(call) => {
            notice(command, &value);
            decode::script(&command.verb, value).ok_or(Step::InFull(call))
        }
        Step::Why(_, gone) => Ok(Ok(gone)),
        Step::InFull(_) => {
            notice(command, &value);
            let forgetful = || Fault::new(FaultClass::Refused, "the server knows no scripts");
            Ok(decode::script(&command.verb, value).unwrap_or_else(|| Err(forgetful())))
        }
    }
}

/// Tells operators what an acquisition found: callers that disagree on a number of permits, or a
/// value that it gave a ttl.
fn notice(command: &Command, value: &Value) {
    let Verb::Acquire { repair_orphan, .. } = &command.verb else { return };
    let key = command.names.user_key();
    if let (Kind::Permit { limit }, Some(other)) = (command.kind, decode::other_limit(value)) {
        limits::differ(key, limit, other);
    }
    if let Some(orphan) = decode::repaired(value) {
        crate::log::repaired(key, &orphan, *repair_orphan);
    }
}

/// Sends a pipeline by a connection, and tells its supervisor how it went.
async fn send(supervisor: &Connection, up: &Up, pipeline: &Pipeline) -> Result<Vec<Value>, Fault> {
    let mut driver = up.connection.clone();
    let answered = tokio::select! {
        biased;
        answered = driver.send_packed_commands(pipeline, 0, pipeline.len()) => answered,
        // A connection that is given up may never say so to those who wait for it.
        () = supervisor.given_up(up.epoch) => {
            return Err(Fault::new(FaultClass::Unknown, "the connection was given up as dead"));
        }
    };
    match answered {
        Ok(values) if values.len() == pipeline.len() => {
            supervisor.answered();
            if values.iter().any(is_demoted) {
                // Whoever is the primary now is found by connecting again.
                supervisor.failed(up.epoch);
            }
            Ok(values)
        }
        Ok(_) => {
            supervisor.failed(up.epoch);
            Err(Fault::new(FaultClass::Unknown, "the server gave fewer answers than questions"))
        }
        Err(error) => {
            supervisor.failed(up.epoch);
            Err(decode::broken(error))
        }
    }
}
