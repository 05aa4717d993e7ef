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
use super::snapshot::{Standing, is_orphan, is_ours, standing, unmarked};
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
    let Some((now, last)) = known_or_read(setting, &mut leased, names).await else {
        return Ok(None);
    };
    let own = ticket(now, last);
    let until = now.after(*place).since(Moment::START).as_millis();
    let waiter = format!("{until} {}", setting.channel.plain_name());
    is_sent.store(true, Ordering::Relaxed);
    let cmds = writes(names, token, &own, &waiter, *place + QUEUE_GRACE);
    let mut answers = leased.ask(cmds).await.map_err(decode::broken)?;
    let executed = answers.pop();
    let Some(Value::Array(mut results)) = executed else { return Ok(None) };
    let (Some(left), Some(value)) = (results.pop(), results.pop()) else { return Ok(None) };
    if results.iter().any(|result| matches!(result, Value::ServerError(_))) {
        leased.give_back();
        return Ok(None);
    }
    let before = results.into_iter().next().and_then(last_ticket).unwrap_or_default();
    if own.parse().is_ok_and(|own: f64| own <= before) {
        // The server's clock was set back, and somebody has waited since before that.
        setting.pool.clock.saw_ticket(Moment::now(), now, before);
        let mut correct = one("ZADD", &names.queue());
        correct.arg("XX").arg(ticket(now, before)).arg(&**token);
        leased.ask(vec![correct]).await.map_err(decode::broken)?;
    }
    leased.give_back();
    let Ok(Standing::Value { text, left, .. }) = standing(value, left, Dialect::Millis) else {
        return Ok(None);
    };
    let (holder, is_marked) = unmarked(&text);
    if !is_ours(&text) || !is_marked || *holder == **token || is_orphan(&text, left) {
        return Ok(None);
    }
    if may_be_idle(&text) {
        let Some(message) = waiting_message(names, holder) else { return Ok(None) };
        // If the message is lost, the holder finds out when it releases.
        let _ = setting.pool.ask_beside(vec![message.publish()]).await;
    }
    Ok(Some(Answer::Busy(Blocker {
        value: Some(holder.into()),
        ttl: left,
        queued: true,
        came_last: true,
        ..Blocker::unknown()
    })))
}

/// The time, and the last ticket where the time has to be read.
async fn known_or_read(
    setting: &Setting,
    leased: &mut Leased<'_>,
    names: &Names,
) -> Option<(Moment, f64)> {
    let (clock, sent) = (&setting.pool.clock, Moment::now());
    // What is written on a connection that was closed while it was idle is in doubt; what is read is not.
    if let Some(now) = clock.time(sent).filter(|_| leased.is_fresh()) {
        return Some((now, 0.0));
    }
    let (now, last) = read(leased, names).await?;
    clock.was_read(sent, Moment::now(), now);
    clock.saw_ticket(Moment::now(), now, last);
    Some((now, last))
}

/// The time, and the last ticket.
async fn read(leased: &mut Leased<'_>, names: &Names) -> Option<(Moment, f64)> {
    let mut answers = leased.ask(vec![redis::cmd("TIME"), last(names)]).await.ok()?;
    let ticket = last_ticket(answers.pop()?)?;
    let (seconds, micros): (u64, u64) = from_redis_value(answers.pop()?).ok()?;
    let time = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Some((Moment::START.after(time), ticket))
}

/// Reads the last waiter and its ticket.
fn last(names: &Names) -> Cmd {
    let mut last = one("ZRANGE", &names.queue());
    last.arg(-1).arg(-1).arg("WITHSCORES");
    last
}

/// 0 where nobody waits.
fn last_ticket(answer: Value) -> Option<f64> {
    let queue: Vec<(Vec<u8>, f64)> = from_redis_value(answer).ok()?;
    Some(queue.last().map_or(0.0, |(_, ticket)| *ticket))
}

fn writes(names: &Names, token: &str, ticket: &str, waiter: &str, lasts: Duration) -> Vec<Cmd> {
    let (queue, waiters) = (names.queue(), names.waiters());
    let (mut add, mut note) = (one("ZADD", &queue), one("HSET", &waiters));
    add.arg(ticket).arg(token);
    note.arg(token).arg(waiter);
    let ends = [&queue, &waiters].map(|key| Dialect::Millis.expire(key, lasts));
    // The last waiter's ticket tells whether ours is larger.
    let mut cmds = vec![redis::cmd("MULTI"), last(names), add, note];
    cmds.extend(ends);
    cmds.extend([one("GET", names.main()), Dialect::Millis.left(names.main())]);
    cmds.push(redis::cmd("EXEC"));
    cmds
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::domain::kind::Kind;
    use crate::store::redis::Terms;
    use crate::store::redis::channel::Channel;
    use crate::store::redis::transaction::pool::Pool;

    fn client_of(server: &testbed::Server) -> (tokio::runtime::Runtime, Setting) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let pool = runtime.block_on(async {
            Pool::new(server.client(), &Terms::new("lock", "m", Duration::from_secs(5)))
        });
        let setting = Setting {
            pool,
            dialect: Dialect::Millis,
            channel: Channel::listened_at("lock:~m:x"),
            has_compare_and_set: false,
            alive_for: Duration::ZERO,
        };
        (runtime, setting)
    }

    #[test]
    fn whoever_comes_last_is_last_although_the_clock_was_set_back_long_ago() {
        let server = testbed::Server::start();
        let token = |digit: &str| format!("rl1.{}.m.0.", digit.repeat(32));
        let (holder, first, last) = (token("a"), token("b"), token("c"));
        let names = Names::new("lock", "lock:k");
        let (seconds, _): (u64, u64) = server.run("TIME");
        // It has waited since before the clock was set back by ten minutes, and has renewed its place.
        let ticket = (seconds + 600) * 1_000_000;
        server.run::<()>(&format!("SET {} {holder}+ PX 60000", names.main()));
        server.run::<()>(&format!("ZADD {} {ticket} {first}", names.queue()));
        let until = (seconds + 5) * 1_000;
        server.run::<()>(&format!("HSET {} {first} {until}", names.waiters()));
        let (runtime, setting) = client_of(&server);
        // The time was read a moment ago, for another lock.
        let now = Moment::now();
        setting.pool.clock.was_read(now, now, Moment::START.after(Duration::from_secs(seconds)));
        let place = Some(Duration::from_secs(5));
        let acquire =
            Acquire { queue: place, is_new: true, ..Acquire::of(last.as_str().into(), place) };
        let (verb, timeout) = (Verb::Acquire(acquire), Duration::from_secs(5));
        let command = Command { names: names.clone(), kind: Kind::Mutex, verb, timeout };
        let answer = runtime.block_on(line_up(&setting, &command, &AtomicBool::new(false)));
        assert!(matches!(answer, Ok(Some(Answer::Busy(_)))), "{answer:?}");
        let order: Vec<String> = server.run(&format!("ZRANGE {} 0 -1", names.queue()));
        assert_eq!(order, [first, last]);
    }

    #[test]
    fn a_lock_that_has_lost_its_ttl_is_reported_at_once_although_others_wait_for_it() {
        let server = testbed::Server::start();
        let token = |digit: &str| format!("rl1.{}.m.0.", digit.repeat(32));
        let (holder, asker) = (token("a"), token("b"));
        let names = Names::new("lock", "lock:k");
        server.run::<()>(&format!("SET {} {holder}+", names.main()));
        let (runtime, setting) = client_of(&server);
        let place = Some(Duration::from_secs(5));
        let ask = |repair_orphan| {
            let acquire = Acquire {
                queue: place,
                is_new: true,
                repair_orphan,
                ..Acquire::of(asker.as_str().into(), place)
            };
            let (verb, timeout) = (Verb::Acquire(acquire), Duration::from_secs(5));
            let names = names.clone();
            let command = Command { names, kind: Kind::Mutex, verb, timeout };
            runtime.block_on(crate::store::redis::transaction::run(&setting, &command))
        };
        let refused = ask(None).unwrap_err();
        assert!(refused.what.contains("ttl"), "{}", refused.what);
        let repaired = ask(Some(Duration::from_secs(30)));
        let is_repaired = matches!(&repaired, Ok(Answer::Busy(blocker)) if blocker.repaired);
        assert!(is_repaired, "{repaired:?}");
        let left: i64 = server.run(&format!("PTTL {}", names.main()));
        assert!((1..=30_000).contains(&left), "{left}");
    }

    #[test]
    fn a_granted_lock_is_claimed_where_mget_has_another_name() {
        let server = testbed::Server::builder().rename_command("MGET", "MGOT").start();
        let token = format!("rl1.{}.m.0.", "a".repeat(32));
        let names = Names::new("lock", "lock:k");
        server.run::<()>(&format!("SET {} {token} PX 1000", names.main()));
        let (runtime, setting) = client_of(&server);
        let ttl = Some(Duration::from_secs(30));
        let acquire =
            Acquire { queue: ttl, notified: true, ..Acquire::of(token.as_str().into(), ttl) };
        let (verb, timeout) = (Verb::Acquire(acquire), Duration::from_secs(5));
        let command = Command { names, kind: Kind::Mutex, verb, timeout };
        let answer = runtime.block_on(crate::store::redis::transaction::run(&setting, &command));
        assert!(matches!(answer, Ok(Answer::Held { .. })), "{answer:?}");
    }

    #[test]
    fn a_connection_that_was_closed_while_it_was_idle_leaves_no_token_in_doubt() {
        let server = testbed::Server::start();
        let token = |digit: &str| format!("rl1.{}.m.0.", digit.repeat(32));
        let names = Names::new("lock", "lock:k");
        server.run::<()>(&format!("SET {} {}+ PX 60000", names.main(), token("a")));
        let (runtime, setting) = client_of(&server);
        let ask = |token: &str| {
            let place = Some(Duration::from_secs(5));
            let acquire =
                Acquire { queue: place, is_new: true, ..Acquire::of(token.into(), place) };
            let (verb, timeout) = (Verb::Acquire(acquire), Duration::from_secs(5));
            let names = names.clone();
            let command = Command { names, kind: Kind::Mutex, verb, timeout };
            runtime.block_on(crate::store::redis::transaction::run(&setting, &command))
        };
        let first = ask(&token("b"));
        assert!(matches!(first, Ok(Answer::Busy(_))), "{first:?}");
        let closed: u64 = server.run("CLIENT KILL TYPE normal SKIPME yes");
        assert!(closed >= 1);
        setting.pool.age();
        // The time is still known.
        let second = ask(&token("c"));
        assert!(matches!(second, Ok(Answer::Busy(_))), "{second:?}");
        assert_eq!(server.run::<u64>(&format!("ZCARD {}", names.queue())), 2);
    }
}
