//! What the answers to the two round trips of a transaction say.

use redis::{Arg, Cmd, ServerError, Value};

use crate::domain::error::{Fault, FaultClass};
use crate::store::redis::decode;

/// The answers to the reads of the first round trip, if it opened a transaction.
pub(super) fn opened(
    watches: bool,
    mut answers: Vec<Value>,
) -> Result<impl Iterator<Item = Value>, Fault> {
    if watches {
        for answer in [answers.pop(), answers.first().cloned()] {
            match answer {
                Some(Value::Okay) => {}
                Some(Value::ServerError(error)) => return Err(decode::refusal(&error)),
                other => return Err(unexpected(other.as_ref())),
            }
        }
    }
    Ok(answers.into_iter().skip(usize::from(watches)))
}

fn unexpected(value: Option<&Value>) -> Fault {
    let value: String = format!("{value:?}").chars().take(80).collect();
    Fault::new(FaultClass::Unknown, format!("a transaction was answered by {value}"))
}

/// What became of the second round trip.
pub(super) enum Executed {
    /// It was executed, but for one command that may have failed.
    Done(Option<Fault>),
    /// What was read had changed. Nothing was written, or nothing of the lock itself.
    Aborted,
    /// Nothing was written, because this command was refused.
    Refused(usize, ServerError),
    /// The connection may be in any state.
    Unclear(Fault),
}

/// Whether a command writes to the lock's own key.
pub(super) fn is_of(lock: &str, write: &Cmd) -> bool {
    write.args_iter().nth(1) == Some(Arg::Simple(lock.as_bytes()))
}

/// Reads the answers to the writes and the `EXEC`. For each write, `are_of_lock` says whether it is one
/// to the lock's own key.
///
/// Every such write changes what was read there, so one that finds nothing means that the lock has
/// ended since: servers before Redis 6.0.9 execute a transaction although a watched key has expired.
pub(super) fn executed(mut answers: Vec<Value>, are_of_lock: &[bool]) -> Executed {
    let executed = answers.pop();
    let count = answers.len();
    let problem = answers.into_iter().enumerate().find_map(|(at, answer)| match answer {
        Value::ServerError(error) => Some((at, error)),
        _ => None,
    });
    match (executed, problem) {
        (Some(Value::Array(results)), None) if results.len() != count => {
            Executed::Unclear(unexpected(Some(&Value::Array(results))))
        }
        (Some(Value::Array(results)), None) if found_nothing(&results, are_of_lock) => {
            Executed::Aborted
        }
        (Some(Value::Array(results)), None) => Executed::Done(results.iter().find_map(failed)),
        (Some(Value::Nil), None) => Executed::Aborted,
        (Some(Value::ServerError(_)), Some((at, error))) => Executed::Refused(at, error),
        // Before Redis 6.0 a replica executes a transaction without the commands that it has refused.
        (Some(Value::Array(results)), Some((at, error))) if results.is_empty() => {
            Executed::Refused(at, error)
        }
        (Some(Value::Array(_)), Some((_, error))) => {
            let fault = decode::refusal(&error);
            Executed::Unclear(Fault { class: FaultClass::Unknown, ..fault })
        }
        (Some(Value::ServerError(error)), None) => Executed::Unclear(decode::refusal(&error)),
        (other, _) => Executed::Unclear(unexpected(other.as_ref())),
    }
}

/// Whether a write to the lock's own key had no effect.
fn found_nothing(results: &[Value], are_of_lock: &[bool]) -> bool {
    if planted!(NothingFoundIsDone) {
        return false;
    }
    let of_lock = results.iter().zip(are_of_lock).filter(|(_, is_of_lock)| **is_of_lock);
    of_lock.into_iter().any(|(result, _)| matches!(result, Value::Int(0) | Value::Nil))
}

/// The failure of one command of a transaction whose other commands were executed.
fn failed(result: &Value) -> Option<Fault> {
    match result {
        Value::ServerError(error) => {
            let fault = decode::refusal(error);
            Some(Fault { class: FaultClass::Unknown, ..fault })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_without_the_commands_that_were_refused_is_no_success() {
        let refused = || redis::parse_redis_value(b"-READONLY You can't write\r\n").unwrap();
        let queued = || Value::SimpleString("QUEUED".into());
        let none = executed(vec![refused(), Value::Array(Vec::new())], &[true]);
        assert!(matches!(none, Executed::Refused(0, _)));
        let results = Value::Array(vec![Value::Int(1)]);
        let Executed::Unclear(some) = executed(vec![queued(), refused(), results], &[true, false])
        else {
            panic!("a part was executed")
        };
        assert!(some.class == FaultClass::Unknown && some.what.contains("READONLY"), "{some:?}");
    }
}
