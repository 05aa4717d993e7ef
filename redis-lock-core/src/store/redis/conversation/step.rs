//! The rounds of one command: how it was sent, and what follows from the reply.

use redis::{Cmd, Value};

use crate::domain::fault::{Fault, FaultClass};
use crate::domain::label::harmless;
use crate::store::redis::decode;
use crate::store::redis::encode::{self, Context, ScriptCall};
use crate::store::redis::probe::Delete;
use crate::store::wire::contained;
use crate::store::{Acquire, Answer, Command, Verb};

/// How a command was sent.
pub(in crate::store::redis) enum Step {
    /// With a plain command, or a script that knows only part of the lock.
    Plain,
    /// The same with the script's full text, for a server that has forgotten it.
    PlainInFull,
    Script(ScriptCall),
    /// With a script that is given the key of the lock alone. While a slot is half moved, a node serves
    /// scripts whose keys are all there, and scripts with one key. So a holder of a shared lock keeps and
    /// frees it by that key.
    Alone {
        call: ScriptCall,
        /// Whether it is sent where the slot goes.
        asking: bool,
    },
    /// With this command, which asks for the reason of this answer.
    Why(Box<Command>, Answer),
}

/// The answer, or the command that leads to it.
type Round = Result<Result<Answer, Fault>, Step>;

impl Step {
    /// How a command is sent at first; `None` when it has no form for a server.
    pub(in crate::store::redis) fn first(
        command: &Command,
        context: &Context<'_>,
    ) -> Option<(Self, Cmd)> {
        if let Some(cmd) = encode::plain(command, context) {
            return Some((Self::Plain, cmd));
        }
        let call = encode::call(command, context)?;
        let cmd = call.cmd();
        Some((Self::Script(call), cmd))
    }

    /// What follows a reply of a node that refuses several keys at once.
    pub(super) fn alone(value: &Value, command: &Command, asking: bool) -> Option<Self> {
        if !decode::is_half_moved(value) {
            return None;
        }
        Some(Self::Alone { call: encode::alone(command)?, asking })
    }

    /// What to send in a further round.
    pub(in crate::store::redis) fn cmd(
        &self,
        command: &Command,
        context: &Context<'_>,
    ) -> Option<Cmd> {
        match self {
            Self::Script(call) | Self::Alone { call, .. } => Some(call.cmd()),
            Self::Plain | Self::PlainInFull => {
                let token = command.verb.token().map_or("", |token| token);
                Some(Delete::in_full(command.names.main(), token))
            }
            Self::Why(why, _) => encode::plain(why, context),
        }
    }

    /// What to ask the node that a round of a command was sent to.
    pub(super) fn asked_elsewhere(self, command: Command) -> Command {
        match self {
            // It is known by then that the lock is gone, and only the reason is missing. The key with the
            // limits of permits may be at another node than the lock, so the whole command can't be repeated.
            Self::Why(why, _) if !command.kind.is_value() => *why,
            _ => command,
        }
    }
}

/// The answer, or the command that leads to it.
pub(in crate::store::redis) fn read(
    command: &Command,
    step: Step,
    value: Value,
    context: &Context<'_>,
) -> Round {
    // The server has executed it.
    let unclear = |fault: Fault| Ok(Err(Fault { class: FaultClass::Unknown, ..fault }));
    contained(|| understood(command, step, value, context)).unwrap_or_else(unclear)
}

fn understood(command: &Command, step: Step, value: Value, context: &Context<'_>) -> Round {
    if let Step::Why(_, gone) = step {
        return Ok(Ok(decode::why(gone, &value)));
    }
    let answer = interpret(command, step, value, context)?;
    match answer.as_ref().ok().and_then(|answer| decode::asks_why(command, answer)) {
        Some(why) => {
            answer.map_or_else(|fault| Ok(Err(fault)), |gone| Err(Step::Why(Box::new(why), gone)))
        }
        None => Ok(answer),
    }
}

fn interpret(command: &Command, step: Step, value: Value, context: &Context<'_>) -> Round {
    let (call, asking) = match step {
        Step::Plain if decode::is_forgotten(&value) => return Err(Step::PlainInFull),
        Step::Plain | Step::PlainInFull => {
            let answer = decode::plain(&command.verb, value).transpose();
            let script = || encode::call(command, context).map(Step::Script);
            return answer.map_or_else(|| script().map_or(Ok(Ok(Answer::Done)), Err), Ok);
        }
        Step::Why(_, gone) => return Ok(Ok(gone)),
        Step::Script(call) => (call, None),
        Step::Alone { call, asking } => (call, Some(asking)),
    };
    if let (Some(limit), Some(other)) = (command.kind.limit(), decode::other_limit(&value))
        && matches!(command.verb, Verb::Acquire(_))
    {
        crate::observe::log::limits_differ(command.names.user_key(), limit, other);
    }
    let Some(answer) = decode::script(&command.verb, value) else {
        let forgetful = || Fault::new(FaultClass::Refused, "the server knows no scripts");
        let call = call.in_full().ok_or_else(forgetful);
        return call.map_or_else(
            |fault| Ok(Err(fault)),
            |call| {
                Err(match asking {
                    Some(asking) => Step::Alone { call, asking },
                    None => Step::Script(call),
                })
            },
        );
    };
    let answer = answer.inspect(|answer| notice_repair(command, answer));
    Ok(match asking {
        Some(asking) => of_one_key(command, answer, asking),
        None => answer,
    })
}

/// What a script says that was given the key of the lock alone.
fn of_one_key(
    command: &Command,
    answer: Result<Answer, Fault>,
    asking: bool,
) -> Result<Answer, Fault> {
    let is_release = matches!(command.verb, Verb::Release { .. });
    match answer {
        Ok(Answer::Done) if is_release => Ok(Answer::Freed),
        // Where the slot goes, a lock is missing also when it has not come yet. And what is to be
        // released may be a place in the queue.
        Ok(Answer::Gone { .. }) if is_release || asking => {
            let what = "the slot of this key is being moved to another node, and its keys are in two places";
            Err(Fault::new(FaultClass::Moving, what))
        }
        answer => answer,
    }
}

/// Warns of a value without a ttl that an acquisition gave one.
pub(in crate::store::redis) fn notice_repair(command: &Command, answer: &Answer) {
    if let (Verb::Acquire(Acquire { repair_orphan, .. }), Answer::Busy(blocker)) =
        (&command.verb, answer)
        && blocker.repaired
    {
        let orphan = harmless(blocker.value.as_deref().unwrap_or_default(), 80);
        crate::observe::log::repaired(command.names.user_key(), &orphan, *repair_orphan);
    }
}
