//! Looking at locks from outside, and ending holds by force.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::blocking::block_on;
use crate::api::list::{BlockingListing, Listing};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::glob;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::status::{Idle, LockKind, LockStatus, Waiter};
use crate::lock::LocalView;
use crate::store::{Answer, Command, MOST_FORCED, MOST_SHOWN, ServerView, Verb};
use crate::{BackendErrorKind, NoValue, domain::value::StoredValue};
use crate::{LockError, LockKey, Locks, ServerInfo, Token};

/// How often a command is sent when its answer does not come.
const TRIES: usize = 3;

/// The longest reason. It is short because it stays on the server for some time.
const MAX_REASON: usize = 1024;

impl Locks {
    /// The holders and waiters of a lock, read by one script that writes nothing.
    ///
    /// For people and dashboards: the answer is out of date when it arrives.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// let status = locks.status("report").await?;
    /// for holder in &status.holders {
    ///     println!("{} has it for another {:?}", holder.token, holder.ttl);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Backend`](LockError::Backend) when the server can't be asked,
    /// [`InvalidKey`](LockError::InvalidKey), [`Shutdown`](LockError::Shutdown).
    ///
    /// # Cancel safety
    /// Nothing is lost and nothing is changed.
    pub async fn status(&self, key: impl Into<LockKey>) -> Result<LockStatus, LockError> {
        let key = key.into();
        key.check()?;
        let mut status = self.look(self.names_of(&key)).await?;
        if let Some(done) = &mut status.done {
            let value = self.stored_value(key.as_str(), &done.token).await;
            // A right that only values need must not fail the rest.
            done.value = value.ok().and_then(Result::ok);
        }
        Ok(status)
    }

    /// [`status`](Self::status) for code without an async runtime.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn blocking_status(&self, key: impl Into<LockKey>) -> Result<LockStatus, LockError> {
        block_on(self.status(key))
    }

    /// Lists the locks of this namespace whose keys match `pattern`. Pages are fetched as you read them.
    ///
    /// The pattern has the server's syntax: `*` is any text, `?` one byte, `[a-z]` one byte of that range, and `\`
    /// escapes the next byte. It is compared with the keys that callers use, without the namespace.
    ///
    /// It uses `SCAN`, never `KEYS`, so no single command blocks the server for long. A lock that is held during the
    /// whole listing appears at least once, even if a replica takes the server's place. A lock that is acquired or
    /// released during the listing may be missing, and so may a lock that a cluster moves to another node. A lock may
    /// appear twice. In an empty namespace, the listing looks at all keys of the database, and includes those of
    /// other programs.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("order:42").acquire().await?;
    /// let mut listing = locks.list("order:*");
    /// while let Some(status) = listing.next().await {
    ///     let status = status?;
    ///     println!("{}: {}, {} wait", status.key, status.kind, status.waiters.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list(&self, pattern: impl AsRef<str>) -> Listing {
        let namespace = &self.settings().namespace;
        let pattern = pattern.as_ref();
        let whole = LockKey::from(pattern).in_namespace(&glob::escape(namespace));
        Listing::new(self.clone(), Names::new(namespace, whole))
    }

    /// [`list`](Self::list) as an iterator, for code without an async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("order:42").blocking_acquire()?;
    /// let held = locks.blocking_list("*").collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(held[0].key, "order:42");
    /// # Ok(()) }
    /// ```
    pub fn blocking_list(&self, pattern: impl AsRef<str>) -> BlockingListing {
        BlockingListing { listing: self.list(pattern) }
    }

    /// Takes the lock from its holders, and gives it to the first waiter. Returns whether it ended a hold. Use it
    /// when you know that a holder hangs.
    ///
    /// The holder gets the reason: its [`lost`](crate::Guard::lost) resolves at once if the server's
    /// messages reach it, else at its next renewal. An async body under `run` or the attribute is then
    /// dropped. A blocking body runs on without the lock. The next fencing number is larger, so a store
    /// that compares numbers refuses what such a body still writes.
    ///
    /// It also ends the mark of a call with [`once`](crate::LockRequest::once) that succeeded, and the time for which
    /// `min_hold` keeps a lock. All holders that the call finds lose the lock: a mutex, a writer, all readers, all
    /// permits, a hold that never expires, and the lock of a foreign client, whose key is deleted. A holder that
    /// acquires it later keeps it. Data of other types is never touched.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// assert!(locks.force_release("report", "hangs since Monday").await?);
    /// let reason = guard.lost().await.to_string();
    /// assert_eq!(reason, "it was removed from the server (hangs since Monday)");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Backend`](LockError::Backend) when the server can't be asked or the key has data of
    /// another program, [`InvalidKey`](LockError::InvalidKey), [`Shutdown`](LockError::Shutdown).
    /// After a retryable error the call can be repeated.
    ///
    /// # Cancel safety
    /// The hold may have been ended or not.
    pub async fn force_release(
        &self,
        key: impl Into<LockKey>,
        reason: impl AsRef<str>,
    ) -> Result<bool, LockError> {
        let key = key.into();
        key.check()?;
        let names = self.names_of(&key);
        let seen = self.server_view(&names).await?;
        if seen.holders.is_empty() && seen.done.is_none() {
            return match seen.kind {
                LockKind::Foreign => Err(self.failed(Some(key.as_str()), &not_a_lock())),
                _ => Ok(false),
            };
        }
        let because = reason_of(reason.as_ref());
        let mut ended = self.end_those(&names, &seen, &because).await?;
        // As many rounds as the first look needs for its holders. Those who acquire the lock
        // meanwhile keep it.
        for _ in 0..seen.more_holders.div_ceil(MOST_SHOWN) {
            let rest = self.server_view(&names).await?;
            ended |= self.end_those(&names, &rest, &because).await?;
        }
        if ended {
            crate::observe::forced(key.as_str(), reason.as_ref());
        }
        Ok(ended)
    }

    /// Ends the holds that were seen, some at once.
    async fn end_those(
        &self,
        names: &Names,
        seen: &ServerView,
        because: &Arc<str>,
    ) -> Result<bool, LockError> {
        let because = || Arc::clone(because);
        if let Some(value) = &seen.foreign {
            let foreign = Some(Arc::clone(value));
            let verb = Verb::Force { tokens: Vec::new(), foreign, because: because() };
            return Ok(self.ask(names, verb).await? == Answer::Done);
        }
        let tokens: Vec<_> = seen.holders.iter().map(|holder| holder.token.clone()).collect();
        let mut ended = false;
        for some in tokens.chunks(MOST_FORCED) {
            let verb = Verb::Force { tokens: some.to_vec(), foreign: None, because: because() };
            if self.ask(names, verb).await? == Answer::Done {
                ended = true;
                // Holders in this process are notified directly.
                some.iter().for_each(|token| self.link().forced(token));
            }
        }
        Ok(ended)
    }

    /// [`force_release`](Self::force_release) for code without an async runtime.
    ///
    /// ```
    /// assert_eq!(redis_locks::Locks::in_memory().blocking_force_release("a", "it hangs"), Ok(false));
    /// ```
    ///
    /// # Errors
    /// As [`force_release`](Self::force_release).
    pub fn blocking_force_release(
        &self,
        key: impl Into<LockKey>,
        reason: impl AsRef<str>,
    ) -> Result<bool, LockError> {
        block_on(self.force_release(key, reason))
    }

    /// The status of one lock.
    pub(crate) async fn look(&self, names: Names) -> Result<LockStatus, LockError> {
        let server_view = self.server_view(&names).await?;
        let views = self.link().views(names.main());
        let mut status = status(names.user_key(), server_view, views);
        status.server.warnings.extend(self.settings().troubles());
        Ok(status)
    }

    /// What the server alone knows of the lock at a key.
    pub(crate) async fn server_view_of(&self, key: &LockKey) -> Result<ServerView, LockError> {
        key.check()?;
        self.server_view(&self.names_of(key)).await
    }

    async fn server_view(&self, names: &Names) -> Result<ServerView, LockError> {
        match self.ask(names, Verb::Look).await? {
            Answer::Seen(server_view) => Ok(*server_view),
            _ => Err(self.failed(Some(names.user_key()), &unforeseen())),
        }
    }

    /// The value that the hold of this token has stored.
    pub(crate) async fn stored_value(
        &self,
        key: &str,
        token: &Token,
    ) -> Result<Result<StoredValue, NoValue>, LockError> {
        match self.ask(&self.names_of(&LockKey::from(key)), Verb::Fetch).await? {
            Answer::Value(Some(value)) => Ok(value.stored_by(token.wire()).map(StoredValue::new)),
            Answer::Value(None) => Ok(Err(NoValue::Foreign)),
            _ => Err(self.failed(Some(key), &unforeseen())),
        }
    }

    /// One page of the keys that match the pattern in `names`.
    pub(crate) async fn scan(
        &self,
        names: &Names,
        cursor: u64,
    ) -> Result<(Vec<String>, Option<u64>), LockError> {
        match self.ask(names, Verb::Scan { cursor }).await? {
            Answer::Keys { mut keys, next } => {
                keys.retain(|key| !names.has_side(key));
                Ok((keys, next))
            }
            _ => Err(self.failed(None, &unforeseen())),
        }
    }

    /// Tells a majority of a quorum the fencing number of a token, which may be on one node only.
    pub(crate) async fn spread_fence(
        &self,
        keys: &[LockKey],
        token: &Token,
        fence: u64,
    ) -> Result<(), LockError> {
        for key in keys.iter().filter(|_| self.settings().rejoin.is_some()) {
            let verb = Verb::Raise { token: Arc::clone(token.wire()), fence };
            self.ask(&self.names_of(key), verb).await?;
        }
        Ok(())
    }

    /// Sends a command that may be sent more than once.
    async fn ask(&self, names: &Names, verb: Verb) -> Result<Answer, LockError> {
        let scan = matches!(verb, Verb::Scan { .. });
        let timeout = self.settings().command_timeout();
        let kind = match verb {
            Verb::Raise { .. } => Kind::All { ordered: false },
            _ => Kind::Mutex,
        };
        let mut command = Command { names: names.clone(), kind, verb, timeout };
        let link = self.link();
        if link.is_closed() {
            return Err(LockError::Shutdown);
        }
        let asked = Moment::now();
        let mut answer = link.query(command.clone()).await;
        // A connection that was closed while idle is noticed only by the next command.
        for tries in 1.. {
            let class = answer.as_ref().err().map(|fault| fault.class);
            let is_moving = class.is_some_and(FaultClass::is_moving) && link.has_map();
            let is_unknown = class == Some(FaultClass::Unknown) && tries < TRIES;
            if !(is_moving || is_unknown) || Moment::now().since(asked) >= timeout {
                break;
            }
            command.timeout = timeout.saturating_sub(Moment::now().since(asked));
            answer = match is_moving {
                true => link.query_again(command.clone()).await,
                false => link.query(command.clone()).await,
            };
        }
        let key = (!scan).then(|| names.user_key());
        answer.map_err(|fault| {
            if link.is_closed() { LockError::Shutdown } else { self.failed(key, &fault) }
        })
    }

    pub(crate) fn failed(&self, key: Option<&str>, fault: &Fault) -> LockError {
        LockError::backend(key, fault).at(&self.settings().server)
    }

    /// The names of the lock at a key.
    pub(crate) fn names_of(&self, key: &LockKey) -> Names {
        let namespace = &self.settings().namespace;
        Names::new(namespace, key.in_namespace(namespace))
    }
}

/// Combines what the server knows and what this process knows.
fn status(key: &str, server_view: ServerView, views: Vec<LocalView>) -> LockStatus {
    let mut holders = server_view.holders;
    let held = views.iter().filter_map(|view| view.held.as_ref());
    // In a map, because there may be thousands of holders on the server and here.
    let held: HashMap<_, _> = held.map(|(token, fence)| (token.wire(), (token, fence))).collect();
    let idle: HashMap<_, _> = views.iter().filter_map(|view| view.kept.clone()).collect();
    for holder in &mut holders {
        if let Some((token, fence)) = held.get(holder.token.wire()) {
            (holder.token, holder.fence) = (Token::clone(token), **fence);
            holder.idle = Idle::No;
        } else if let Some(since) = idle.get(&holder.token) {
            holder.idle = Idle::Since(*since);
        }
    }
    let (queued, here): (Vec<_>, Vec<_>) =
        views.into_iter().partition(|view| view.queued.is_some());
    let named = |view: LocalView| Some((Arc::clone(view.queued.as_ref()?.wire()), view.waiters));
    let mut queued: HashMap<_, _> = queued.into_iter().filter_map(named).collect();
    let mut waiters = Vec::new();
    for token in server_view.waiters {
        match queued.remove(token.wire()) {
            Some(mut ours) => waiters.append(&mut ours),
            None => waiters.push(Waiter {
                label: token.label(),
                since: token.since(),
                second_call: token.second_call(),
            }),
        }
    }
    // Those who wait for a hand-over inside this process are not in the server's queue.
    let elsewhere = here.into_iter().map(|view| view.waiters).chain(queued.into_values());
    waiters.extend(elsewhere.flatten());
    // The answer to a look contains the description of the server.
    let server = server_view.server.unwrap_or_else(crate::domain::status::unknown_server);
    let (key, kind, done) = (key.to_owned(), server_view.kind, server_view.done);
    let kept_until = holders.first().and_then(|holder| holder.kept_until);
    LockStatus { key, kind, holders, done, kept_until, waiters, server }
}

/// The reason in the form in which it is stored. It must not be empty, because that means that
/// there is none.
fn reason_of(reason: &str) -> Arc<str> {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    match reason.get(..end).unwrap_or_default().trim() {
        "" => "no reason was given".into(),
        reason => reason.into(),
    }
}

fn not_a_lock() -> Fault {
    let what = "the key has data of another program, which is no lock and was left alone";
    Fault::new(FaultClass::Permanent, what)
}

fn unforeseen() -> Fault {
    Fault::new(FaultClass::Permanent, "the server gave the answer of another command")
}

impl Locks {
    /// How long the server takes to answer, connecting included, for readiness probes. Of several nodes the slowest
    /// counts. It takes at most the [`command_timeout`](crate::LocksBuilder::command_timeout), and no time in memory.
    ///
    /// The command is a write that changes nothing, so a read-only or full server is an error. A failing provider of
    /// [`credentials`](crate::LocksBuilder::credentials) is one, too, even while the last credentials are still
    /// valid.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory();
    /// assert!(locks.ping().await?.is_zero());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Backend`](LockError::Backend) with its [`kind`](crate::BackendError::kind);
    /// [`Shutdown`](LockError::Shutdown).
    ///
    /// # Cancel safety
    /// Nothing is lost and nothing is changed.
    pub async fn ping(&self) -> Result<Duration, LockError> {
        let (begun, limit, link) = (Moment::now(), self.settings().command_timeout(), self.link());
        loop {
            if link.is_closed() {
                return Err(LockError::Shutdown);
            }
            if self.settings().in_memory {
                return Ok(Duration::ZERO);
            }
            let names = |number: u32| self.names_of(&LockKey::from(format!("ping:{number}")));
            // Of several commands in a row, each has the time that is left.
            let command = |names| {
                let timeout = limit.saturating_sub(Moment::now().since(begun));
                Command { names, kind: Kind::Mutex, verb: Verb::Probe, timeout }
            };
            let fault = match link.query_each(names, command).await {
                Ok(()) => match self.settings().troubles().next() {
                    None => return Ok(Moment::now().since(begun)),
                    Some(why) => Fault::new(FaultClass::Refused, why).of(BackendErrorKind::Rights),
                },
                Err(fault) => fault,
            };
            // A connection that was closed while idle, or a key that has moved, is noticed only by the
            // next command.
            let passes = fault.class.is_unknown() || fault.class.is_moving();
            if !passes || Moment::now().since(begun) >= limit {
                let is_over = link.is_closed();
                return Err(if is_over { LockError::Shutdown } else { self.failed(None, &fault) });
            }
        }
    }

    /// What the server is and can do, as [`status`](Self::status) reports for the server of one lock. It takes at
    /// most the [`command_timeout`](crate::LocksBuilder::command_timeout).
    ///
    /// ```
    /// # async fn show(locks: redis_locks::Locks) -> Result<(), redis_locks::LockError> {
    /// println!("{}", locks.server_info().await?.version);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`status`](Self::status).
    ///
    /// # Cancel safety
    /// Nothing is lost and nothing is changed.
    pub async fn server_info(&self) -> Result<ServerInfo, LockError> {
        let looked = self.look(self.names_of(&LockKey::from_static("ping:0"))).await;
        looked.map(|status| status.server).map_err(LockError::of_no_lock)
    }

    /// [`ping`](Self::ping) for code without an async runtime.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    pub fn blocking_ping(&self) -> Result<Duration, LockError> {
        block_on(self.ping())
    }

    /// [`server_info`](Self::server_info) for code without an async runtime.
    ///
    /// # Errors
    /// As [`server_info`](Self::server_info).
    pub fn blocking_server_info(&self) -> Result<ServerInfo, LockError> {
        block_on(self.server_info())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_the_server_names_no_lock() {
        let locks = Locks::builder().url("redis://127.0.0.1:1");
        let locks = locks.command_timeout(Duration::from_millis(50)).open().unwrap();
        let error = locks.blocking_server_info().unwrap_err();
        assert!(error.key().is_none() && !error.to_string().contains("ping"), "{error}");
    }

    #[test]
    fn a_reason_is_never_empty_and_never_long() {
        assert_eq!(&*reason_of(" \n"), "no reason was given");
        assert_eq!(&*reason_of(" it hangs "), "it hangs");
        assert!(reason_of(&"ü".repeat(MAX_REASON)).len() <= MAX_REASON);
    }
}
