//! Claiming a granted lock where the server compares a value and sets it in one command.
//!
//! Without that, the lock is watched, read and written, in five commands and two round trips.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::pool::Lane;
use super::setting::Setting;
use crate::domain::error::Fault;
use crate::domain::token::WAITERS_MARK;
use crate::store::redis::decode;
use crate::store::{Acquire, Answer, CLAIM, Command, Verb};

/// Claims a lock that was granted to the token. `None` when that is not enough, or not possible: then
/// nothing was changed.
pub(super) async fn claim(
    setting: &Setting,
    command: &Command,
    is_sent: &AtomicBool,
) -> Result<Option<Answer>, Fault> {
    let Verb::Acquire(acquire) = &command.verb else { return Ok(None) };
    // A lease that is shorter than the grant could end sooner than what stands there.
    let Acquire { token, ttl: Some(ttl), notified: true, fences: 0, .. } = acquire else {
        return Ok(None);
    };
    let may_compare = &setting.pool.may_compare;
    if *ttl <= CLAIM || !setting.has_compare_and_set || !may_compare.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut leased = setting.pool.lease(Lane::Others).await?;
    if !leased.is_fresh() {
        // What is written on a connection that was closed while it was idle is in doubt.
        leased.give_back();
        return Ok(None);
    }
    let mut value = token.to_string();
    if acquire.waited_for {
        value.push(WAITERS_MARK);
    }
    let mut set = setting.dialect.set(command.names.main(), &value, Some(*ttl));
    set.arg("IFEQ").arg(&value);
    is_sent.store(true, Ordering::Relaxed);
    let answer = leased.ask(vec![set]).await.map_err(decode::broken)?.pop();
    is_sent.store(false, Ordering::Relaxed);
    leased.give_back();
    match answer {
        Some(Value::Okay) => return Ok(Some(Answer::Held { fence: None })),
        // The grant has ended, or somebody has begun to wait since the message was sent.
        Some(Value::Nil) => {}
        Some(Value::ServerError(error)) if decode::code_of(&error) == "ERR" => {
            // It has no such option.
            may_compare.store(false, Ordering::Relaxed);
        }
        // Refused, and not executed: the transaction tells why.
        _ => {}
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testbed::{Server, ServerBinary};

    use super::*;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;
    use crate::store::redis::Terms;
    use crate::store::redis::channel::Channel;
    use crate::store::redis::dialect::Dialect;
    use crate::store::redis::transaction::pool::Pool;

    /// The answer to a claim of a lock that has this value, where `waited_for` is what the message said;
    /// whether a transaction was needed; and the rest of the ttl.
    fn claimed(server: &Server, value: &str, waited_for: bool) -> (Answer, bool, i64) {
        let names = Names::new("lock", "lock:k");
        server.run::<()>(&format!("SET {} {value} PX 900", names.main()));
        server.reset_counts();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let setting = Setting {
            pool: runtime.block_on(async {
                Pool::new(server.client(), &Terms::new("lock", "m", Duration::from_secs(5)))
            }),
            dialect: Dialect::Millis,
            channel: Channel::listened_at("lock:~m:x"),
            has_compare_and_set: true,
            alive_for: Duration::ZERO,
        };
        let ttl = Some(Duration::from_secs(30));
        let own = format!("rl1.{}.m.0.", "a".repeat(32));
        let acquire =
            Acquire { notified: true, waited_for, ..Acquire::of(own.as_str().into(), ttl) };
        let (verb, timeout) = (Verb::Acquire(acquire), Duration::from_secs(5));
        let command = Command { names: names.clone(), kind: Kind::Mutex, verb, timeout };
        let answer = runtime.block_on(super::super::run(&setting, &command)).unwrap();
        let is_watched = server.command_counts().contains_key("watch");
        assert_eq!(server.get(names.main()).as_deref(), Some(value));
        (answer, is_watched, server.run(&format!("PTTL {}", names.main())))
    }

    #[test]
    fn a_grant_is_claimed_by_one_command_unless_something_else_stands_there() {
        let Some(binary) = ServerBinary::valkey(9) else { return };
        let server = Server::builder().binary(binary).start();
        let (own, other) = ["a", "b"].map(|it| format!("rl1.{}.m.0.", it.repeat(32))).into();
        let marked = format!("{own}+");
        for (value, waited_for, by_transaction) in
            [(&own, false, false), (&marked, true, false), (&marked, false, true)]
        {
            let (answer, is_watched, left) = claimed(&server, value, waited_for);
            assert!(matches!(answer, Answer::Held { .. }), "{value}: {answer:?}");
            assert_eq!(is_watched, by_transaction, "{value}");
            assert!(left > 20_000, "{value}: {left}");
        }
        let (answer, _, left) = claimed(&server, &other, false);
        assert!(matches!(answer, Answer::Busy(_)), "{answer:?}");
        assert!(left <= 900, "the lease of somebody else was lengthened: {left}");
    }

    #[test]
    fn a_grant_is_claimed_by_a_transaction_where_the_server_has_no_such_option() {
        let server = Server::start();
        let own = format!("rl1.{}.m.0.", "a".repeat(32));
        let (answer, is_watched, left) = claimed(&server, &own, false);
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
        assert!(is_watched && left > 20_000, "{left}");
    }
}
