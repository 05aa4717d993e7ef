//! Queueing for a lock that others wait for already.
//!
//! Its value is marked, so whoever releases it looks into the queue, and nothing has to be watched: the
//! place is written first and the lock read behind it. That is never aborted, however often the lock
//! changes hands meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, Value, from_redis_value};

use super::pool::{Lane, Leased};
use super::setting::Setting;
use super::snapshot::{Standing, is_ours, standing, unmarked};
use super::writes::{may_be_idle, one, ticket, waiting_message};
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::domain::names::Names;
use crate::store::memory::entry::QUEUE_GRACE;
use crate::store::redis::decode;
use crate::store::redis::dialect::Dialect;
use crate::store::{Acquire, Answer, Blocker, Command, Verb};

/// Queues a token that is in no queue yet. `None` when that is not enough, or not possible.
pub(super) async fn line_up(
    setting: &Setting,
    command: &Command,
    is_sent: &AtomicBool,
) -> Result<Option<Answer>, Fault> {
    let Verb::Acquire(Acquire { token, queue: Some(place), is_new: true, .. }) = &command.verb
    else {
        return Ok(None);
    };
    if setting.dialect != Dialect::Millis {
        return Ok(None);
    }
    let mut leased = setting.pool.lease(Lane::Others).await?;
    let names = &command.names;
    // Where the clock is known, no queue that was read lately has tickets beyond it.
    let clock = &setting.pool.clock;
    let (now, last) = match clock.time(Moment::now()) {
        Some(now) => (now, 0.0),
        None => {
            let sent = Moment::now();
            let Some((now, last)) = read(&mut leased, names).await else { return Ok(None) };
            clock.was_read(sent, Moment::now(), now);
            clock.saw_ticket(Moment::now(), now, last);
            (now, last)
        }
    };
    let until = now.after(*place).since(Moment::START).as_millis();
    let waiter = format!("{until} {}", setting.channel.plain_name());
    is_sent.store(true, Ordering::Relaxed);
    let cmds = writes(names, token, &ticket(now, last), &waiter, *place + QUEUE_GRACE);
    let mut answers = leased.ask(cmds).await.map_err(decode::broken)?;
    let executed = answers.pop();
    let Some(Value::Array(mut results)) = executed else { return Ok(None) };
    leased.give_back();
    let (Some(left), Some(value)) = (results.pop(), results.pop()) else { return Ok(None) };
    if results.iter().any(|result| matches!(result, Value::ServerError(_))) {
        return Ok(None);
    }
    let Ok(Standing::Value { text, left }) = standing(value, left, Dialect::Millis) else {
        return Ok(None);
    };
    let (holder, is_marked) = unmarked(&text);
    if !is_ours(&text) || !is_marked || *holder == **token {
        return Ok(None);
    }
    if may_be_idle(&text) {
        let Some(message) = waiting_message(names, holder) else { return Ok(None) };
        // If the message is lost, the holder finds out when it releases.
        let _ = setting.pool.ask_beside(vec![message.publish()]).await;
    }
    let blocker =
        Blocker { value: Some(holder.into()), ttl: left, queued: true, ..Blocker::unknown() };
    Ok(Some(Answer::Busy(blocker)))
}

/// The time, and the last ticket.
async fn read(leased: &mut Leased<'_>, names: &Names) -> Option<(Moment, f64)> {
    let mut last = one("ZRANGE", &names.queue());
    last.arg(-1).arg(-1).arg("WITHSCORES");
    let mut answers = leased.ask(vec![redis::cmd("TIME"), last]).await.ok()?;
    let queue: Vec<(Vec<u8>, f64)> = from_redis_value(answers.pop()?).ok()?;
    let (seconds, micros): (u64, u64) = from_redis_value(answers.pop()?).ok()?;
    let time = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Some((Moment::START.after(time), queue.last().map_or(0.0, |(_, ticket)| *ticket)))
}

fn writes(names: &Names, token: &str, ticket: &str, waiter: &str, lasts: Duration) -> Vec<Cmd> {
    let (queue, waiters) = (names.queue(), names.waiters());
    let (mut add, mut note) = (one("ZADD", &queue), one("HSET", &waiters));
    add.arg(ticket).arg(token);
    note.arg(token).arg(waiter);
    let ends = [&queue, &waiters].map(|key| Dialect::Millis.expire(key, lasts));
    let mut cmds = vec![redis::cmd("MULTI"), add, note];
    cmds.extend(ends);
    cmds.extend([one("GET", names.main()), Dialect::Millis.left(names.main())]);
    cmds.push(redis::cmd("EXEC"));
    cmds
}
