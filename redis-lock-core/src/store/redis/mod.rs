//! The arbiter on one Redis or Valkey server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::mpsc;

use self::connection::{Connection, State, Up};
use self::decode::Plain;
use self::encode::{Call, Context};
use self::probe::Delete;
use super::{Answer, Answers, Command, Event, Store, Verb, WireMaker, limits};
use crate::demand::Kind;
use crate::error::{Fault, FaultClass};

#[cfg(test)]
mod conformance;
mod connection;
mod decode;
mod encode;
mod fast;
mod listen;
mod probe;
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
}

/// Sends a batch as one pipeline, and what it turns out to need in further ones.
async fn execute(
    connection: &Connection,
    up: Up,
    batch: &[Command],
    context: &Context,
) -> Vec<Result<Answer, Fault>> {
    let mut answers: Vec<Option<Result<Answer, Fault>>> = batch.iter().map(|_| None).collect();
    let mut steps = Vec::with_capacity(batch.len());
    let mut pipeline = Pipeline::with_capacity(batch.len());
    for (index, command) in batch.iter().enumerate() {
        let step = if let Some(cmd) = encode::plain(command, context) {
            pipeline.add_command(cmd);
            Step::Plain
        } else if let Some(cmd) = fast::call(command) {
            pipeline.add_command(cmd);
            Step::Short
        } else if let Some(call) = encode::call(command, context) {
            pipeline.add_command(call.by_hash());
            Step::ByHash(call)
        } else {
            continue;
        };
        steps.push((index, step));
    }
    while !steps.is_empty() {
        match send(connection, &up, &pipeline).await {
            Ok(values) => {
                let sent = std::mem::take(&mut steps);
                pipeline.clear();
                for ((index, step), value) in sent.into_iter().zip(values) {
                    let (Some(command), Some(slot)) = (batch.get(index), answers.get_mut(index))
                    else {
                        continue;
                    };
                    match read(command, step, value, context) {
                        Ok(Ok(Answer::Seen(mut sight))) => {
                            sight.server = Some(up.found.info());
                            *slot = Some(Ok(Answer::Seen(sight)));
                        }
                        Ok(answer) => *slot = Some(answer),
                        Err(next) => {
                            match &next {
                                Step::ByHash(call) => drop(pipeline.add_command(call.by_hash())),
                                Step::InFull(call) => drop(pipeline.add_command(call.in_full())),
                                Step::PlainInFull => {
                                    let token = command.verb.token().map_or("", |token| token);
                                    let cmd = Delete::in_full(command.names.main(), token);
                                    pipeline.add_command(cmd);
                                }
                                Step::Plain | Step::Short => {}
                            }
                            steps.push((index, next));
                        }
                    }
                }
            }
            Err(fault) => {
                for (index, _) in steps.drain(..) {
                    if let Some(slot) = answers.get_mut(index) {
                        *slot = Some(Err(fault.clone()));
                    }
                }
            }
        }
    }
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

fn is_demoted(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "READONLY")
}
