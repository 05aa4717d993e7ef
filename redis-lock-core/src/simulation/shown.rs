//! Commands and answers, for people.

use std::sync::Arc;
use std::time::Duration;

use super::history::History;
use crate::domain::fault::Fault;
use crate::store::{Acquire, Answer, Command, Verb};

pub(super) fn command(command: &Command, names: &mut History) -> String {
    let keys: Vec<_> = command.names.all().map(|names| names.main()).collect();
    let keys = keys.join(" ");
    let mut of = |token: &Arc<str>| names.name(token);
    let time = |time: &Option<Duration>| time.map_or("none".into(), |time| format!("{time:?}"));
    match &command.verb {
        Verb::Take { token, ttl } => format!("take {keys} {} ttl {}", of(token), time(ttl)),
        Verb::Acquire(Acquire { token, ttl, queue, fences, .. }) => {
            let queue = if queue.is_some() { ", queues" } else { "" };
            format!("acquire {keys} {} ttl {} fences {fences}{queue}", of(token), time(ttl))
        }
        Verb::Renew { token, ttl } => format!("renew {keys} {} ttl {}", of(token), time(ttl)),
        Verb::Keep { token, time } => format!("keep {keys} {} for {time:?}", of(token)),
        Verb::Release { token, keep, tombstone, .. } => {
            let (keep, tombstone) = (time(&keep.as_ref().map(|keep| keep.time)), time(tombstone));
            format!("release {keys} {} keep {keep} tombstone {tombstone}", of(token))
        }
        Verb::Check { token } => format!("check {keys} {}", of(token)),
        Verb::Downgrade { token } => format!("downgrade {keys} {}", of(token)),
        other => format!("{other:?}").chars().take(60).collect(),
    }
}

pub(super) fn answer(answer: &Result<Answer, Fault>, names: &mut History) -> String {
    match answer {
        Ok(Answer::Busy(blocker)) => {
            let value: Option<Arc<str>> = blocker.value.as_deref().map(Into::into);
            let by = value.map_or_else(|| "another".into(), |value| names.name(&value));
            format!("busy by {by} for {:?}, queued {}", blocker.ttl, blocker.queued)
        }
        Ok(Answer::Gone { by, because }) => {
            let value: Option<Arc<str>> = by.as_deref().map(Into::into);
            let by = value.map(|value| names.name(&value));
            format!("gone, by {by:?}, because {because:?}")
        }
        Ok(answer) => format!("{answer:?}").chars().take(80).collect(),
        Err(fault) => format!("{:?}: {}", fault.class, fault.what),
    }
}
