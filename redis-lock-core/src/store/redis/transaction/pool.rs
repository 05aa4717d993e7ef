//! Connections that serve one transaction at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, RedisError, Value};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::store::redis::dialect::words;
use crate::store::redis::driver::Driver;
use crate::store::redis::{Terms, connect, decode};
use crate::store::{Command, Verb};
use crate::sync::NonPoisonMutex;

/// How many transactions run at once, and how many renewals beside them.
const SIZE: usize = 8;

/// The connections of one server, and what was found out about it.
pub(in crate::store::redis) struct Pool {
    client: redis::Client,
    terms: Terms,
    idle: NonPoisonMutex<Vec<IdleConnection>>,
    /// Renewals must not wait for other commands, or leases would end.
    renewals: Semaphore,
    others: Semaphore,
    /// For what is asked while a transaction is open.
    beside: Semaphore,
    /// How many connections are made at once. Callers that have run out of time leave theirs to
    /// others.
    making: Arc<Semaphore>,
    pub(super) may_publish: AtomicBool,
    pub(super) may_ask_listeners: AtomicBool,
    /// Whether something has arrived since the last call of `take_received`.
    has_received: AtomicBool,
}

struct IdleConnection {
    connection: Driver,
    since: Moment,
    /// Whether it was used before.
    is_used: bool,
}

/// A connection for one transaction. It is closed unless it is given back: it is unknown what a
/// transaction that was dropped halfway has left on it.
pub(super) struct Leased<'a> {
    pool: &'a Arc<Pool>,
    connection: Driver,
    _quiet: OwnedMutexGuard<()>,
    /// Whether it was used before. The server may have closed it since.
    pub(super) is_used: bool,
    _slot: Option<SemaphorePermit<'a>>,
}

impl Pool {
    pub(in crate::store::redis) fn new(client: redis::Client, terms: &Terms) -> Arc<Self> {
        Arc::new(Self {
            client,
            terms: terms.clone(),
            idle: NonPoisonMutex::default(),
            renewals: Semaphore::new(SIZE),
            others: Semaphore::new(SIZE),
            beside: Semaphore::new(SIZE),
            making: Arc::new(Semaphore::new(2 * SIZE)),
            may_publish: AtomicBool::new(true),
            may_ask_listeners: AtomicBool::new(true),
            has_received: AtomicBool::new(false),
        })
    }

    /// Callers of one lane wait for each other when all its connections are in use.
    pub(super) fn lane(&self, command: &Command) -> &Semaphore {
        if matches!(command.verb, Verb::Renew { .. }) { &self.renewals } else { &self.others }
    }

    pub(super) async fn lease<'a>(
        self: &'a Arc<Self>,
        lane: &'a Semaphore,
    ) -> Result<Leased<'a>, Fault> {
        // The semaphore is never closed.
        let slot = lane.acquire().await.ok();
        loop {
            let idle = self.idle.lock().pop();
            if let Some(IdleConnection { connection, is_used, .. }) = idle {
                let _quiet = connection.quiet().await;
                return Ok(Leased { pool: self, connection, _quiet, is_used, _slot: slot });
            }
            let place = Arc::clone(&self.making).acquire_owned().await.map_err(|_| ended())?;
            if self.idle.lock().is_empty() {
                // Another caller may take the one that is made.
                self.make(place).await.unwrap_or_else(|_| Err(ended()))?;
            }
        }
    }

    /// Makes a connection. It is kept even when the caller that needed it has run out of time. Otherwise,
    /// where connecting takes longer than a transaction may, none would ever be made.
    fn make(self: &Arc<Self>, place: OwnedSemaphorePermit) -> JoinHandle<Result<(), Fault>> {
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            let connection = pool.connect().await?;
            pool.keep(connection, false);
            Ok(())
        })
    }

    fn keep(&self, connection: Driver, is_used: bool) {
        let mut idle = self.idle.lock();
        if idle.len() < 2 * SIZE {
            idle.push(IdleConnection { connection, since: Moment::now(), is_used });
        }
    }

    /// Nothing has come on a connection since that time. Those that have been idle since then may have
    /// died in the same silence, and are closed; a new one is made at once.
    pub(super) fn distrust(self: &Arc<Self>, silent_since: Moment) {
        let is_empty = {
            let mut idle = self.idle.lock();
            idle.retain(|it| it.since > silent_since);
            idle.is_empty()
        };
        if is_empty && let Ok(place) = Arc::clone(&self.making).try_acquire_owned() {
            self.make(place);
        }
    }

    async fn connect(&self) -> Result<Driver, Fault> {
        let connecting = connect::driver(&self.client, &self.terms, connect::config());
        match timeout(self.terms.time_limit, connecting).await {
            Ok(connected) => connected,
            Err(_) => {
                let what = "the server can't be used: it accepts no connection for transactions";
                Err(Fault::new(FaultClass::Refused, what).of(BackendErrorKind::Unreachable))
            }
        }
    }

    /// Sends commands that only read, outside of transactions.
    pub(super) async fn ask_beside(self: &Arc<Self>, cmds: Vec<Cmd>) -> Result<Vec<Value>, Fault> {
        loop {
            let mut leased = self.lease(&self.beside).await?;
            match leased.ask(cmds.clone()).await {
                Ok(answers) => {
                    leased.give_back();
                    return Ok(answers);
                }
                // The server may have closed it while it was idle.
                Err(_) if leased.is_used => {}
                Err(error) => return Err(lost(&error)),
            }
        }
    }

    /// What became of a command.
    pub(super) fn judge(&self, fault: Fault) -> Fault {
        self.terms.judge(fault)
    }

    /// Whether something has arrived since the last call.
    pub(super) fn take_received(&self) -> bool {
        self.has_received.swap(false, Ordering::Relaxed)
    }
}

impl Leased<'_> {
    pub(super) async fn ask(&mut self, cmds: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        let answers = self.connection.ask_all(cmds).await;
        if answers.is_ok() {
            self.pool.has_received.store(true, Ordering::Relaxed);
        }
        answers
    }

    /// To be called when nothing is watched and nothing is queued on it.
    pub(super) fn give_back(self) {
        self.pool.keep(self.connection, true);
    }
}

fn ended() -> Fault {
    Fault::new(FaultClass::Refused, "the engine has ended")
}

/// The connection ended before anything was written.
pub(super) fn lost(error: &RedisError) -> Fault {
    let what = format!("the connection for a transaction broke before it began: {error}");
    Fault::new(FaultClass::Refused, what).of(BackendErrorKind::Unreachable)
}

/// Tests whether the server honours `WATCH`: some accept it and do nothing. Changes a key while it is
/// watched, which belongs to no lock.
pub(in crate::store::redis) async fn self_test(pool: &Arc<Pool>, key: &str) -> Result<(), Fault> {
    let (watching, changing) = tokio::join!(pool.lease(&pool.others), pool.lease(&pool.others));
    let (mut watching, mut changing) = (watching?, changing?);
    let with = |name: &str| words([name, key]);
    ask_or_refuse(&mut watching, vec![with("WATCH"), with("GET"), redis::cmd("MULTI")]).await?;
    let mut change = with("SETEX");
    change.arg(2).arg("-");
    ask_or_refuse(&mut changing, vec![change]).await?;
    let executed = ask_or_refuse(&mut watching, vec![with("GET"), redis::cmd("EXEC")]).await?;
    ask_or_refuse(&mut changing, vec![with("DEL")]).await?;
    if !matches!(executed.last(), Some(Value::Nil)) {
        let what = "the server accepts WATCH but does not honour it, so two holders could have one lock; \
                    grant the rights `+eval +evalsha`, or use another server";
        return Err(Fault::new(FaultClass::Permanent, what));
    }
    watching.give_back();
    changing.give_back();
    Ok(())
}

async fn ask_or_refuse(leased: &mut Leased<'_>, cmds: Vec<Cmd>) -> Result<Vec<Value>, Fault> {
    let answers = leased.ask(cmds).await.map_err(|error| lost(&error))?;
    let refused = answers.iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(decode::refusal(error)),
        _ => None,
    });
    match refused {
        Some(fault) => {
            let what = format!("locks need scripts or transactions: {}", fault.what);
            Err(Fault { what, ..fault })
        }
        None => Ok(answers),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;
    use testbed::Server;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    async fn until_one_is_free(pool: &Pool) {
        let free = async {
            while pool.idle.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, free).await.unwrap();
    }

    #[test]
    fn a_server_that_is_silent_is_not_flooded_with_connections() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = format!("redis://{}", silent.local_addr().unwrap());
            let client = redis::Client::open(client).unwrap();
            let pool = Pool::new(client, &Terms::new("lock", "m", PATIENCE));
            // What commands do when they have run out of time all at once.
            for _ in 0..100 {
                pool.distrust(Moment::now());
                assert!(pool.lease(&pool.others).now_or_never().is_none());
            }
            let mut made = Vec::new();
            while let Ok(one) = timeout(Duration::from_millis(500), silent.accept()).await {
                made.push(one);
            }
            assert!((1..=2 * SIZE).contains(&made.len()), "{} were made", made.len());
        });
    }

    #[test]
    fn whoever_waits_gets_a_connection_although_others_take_and_close_those_that_are_made() {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pool = Pool::new(server.client(), &Terms::new("lock", "m", PATIENCE));
            let mut waiting = pin!(pool.lease(&pool.others));
            for _ in 0..3 {
                assert!(waiting.as_mut().now_or_never().is_none());
                until_one_is_free(&pool).await;
                let taken = pool.lease(&pool.renewals).await.unwrap();
                assert!(waiting.as_mut().now_or_never().is_none(), "there is none left");
                drop(taken);
            }
            assert!(timeout(PATIENCE, waiting).await.is_ok(), "nobody makes one");
        });
    }

    /// Reads the name of the next command, if there is one.
    fn command(input: &mut impl BufRead) -> Option<String> {
        let mut line = || {
            let mut line = String::new();
            input.read_line(&mut line).ok().filter(|count| *count > 0)?;
            Some(line.trim_end().to_owned())
        };
        let count: usize = line()?.strip_prefix('*')?.parse().ok()?;
        let words: Option<Vec<_>> = (0..count).map(|_| line().and_then(|_| line())).collect();
        words?.first().map(|word| word.to_uppercase())
    }

    /// A server that executes transactions although watched keys have changed.
    fn serve(stream: &TcpStream) {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut in_transaction = false;
        while let Some(name) = command(&mut input) {
            let answer = match name.as_str() {
                "EXEC" => "*1\r\n$-1\r\n",
                "MULTI" | "WATCH" | "SETEX" | "CLIENT" => "+OK\r\n",
                _ if in_transaction => "+QUEUED\r\n",
                "DEL" => ":1\r\n",
                _ => "$-1\r\n",
            };
            in_transaction = name == "MULTI" || in_transaction && name != "EXEC";
            if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    #[test]
    fn s4_a_server_that_does_not_honour_watch_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(&stream));
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let test = |port: u16| {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
            let pool = Pool::new(client, &Terms::new("lock", "m", Duration::from_secs(5)));
            runtime.block_on(self_test(&pool, "lock:~m:x:~probe"))
        };
        let fault = test(port).unwrap_err();
        assert_eq!(fault.class, FaultClass::Permanent);
        assert!(fault.what.contains("does not honour it"), "{}", fault.what);
        let server = Server::start();
        assert_eq!(test(server.port()), Ok(()));
        server.assert_clean();
    }
}
