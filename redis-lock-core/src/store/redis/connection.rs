//! One connection that is always being kept, or being made again.
//!
//! The driver's own manager was measured to stay dead after some failures: it does not reconnect
//! after timeouts, and not after a reconnect that failed with anything but an I/O error. This one
//! connects again after every kind of failure, for ever, with a pause that grows to a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::cluster::Cluster;
use super::decode;
use super::probe::{Found, probe};
use crate::error::{Fault, FaultClass};
use crate::store::Event;

/// So many unanswered commands in a row, and the connection counts as dead.
const STRIKES: u32 = 2;

/// How long nothing may come from the server before it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that stands.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) connection: MultiplexedConnection,
    pub(super) found: Arc<Found>,
    pub(super) cluster: Arc<Cluster>,
    /// Counts connections: an answer says which one it came by.
    pub(super) epoch: u64,
}

#[derive(Clone)]
pub(super) enum State {
    /// Being made; nothing is known to be wrong.
    Connecting,
    Up(Up),
    /// Could not be made, and is tried again.
    Down(Fault),
}

/// What the supervisor and those who send share.
pub(super) struct Shared {
    publish: watch::Sender<State>,
    wanted: Notify,
    broken: Notify,
    strikes: AtomicU32,
    heard: AtomicBool,
}

/// The senders' side.
#[derive(Clone)]
pub(super) struct Connection {
    state: watch::Receiver<State>,
    shared: Arc<Shared>,
}

impl Connection {
    /// Starts a supervisor on the current runtime. It connects when first wanted.
    pub(super) fn supervised(
        client: redis::Client,
        namespace: String,
        patience: Duration,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let (publish, state) = watch::channel(State::Connecting);
        let shared = Arc::new(Shared {
            publish,
            wanted: Notify::new(),
            broken: Notify::new(),
            strikes: AtomicU32::new(0),
            heard: AtomicBool::new(false),
        });
        let supervisor = Supervisor {
            client,
            namespace,
            patience,
            events,
            shared: Arc::clone(&shared),
            cluster: Arc::default(),
        };
        tokio::spawn(supervisor.run_always());
        Self { state, shared }
    }

    /// The connection, when it stands or is about to.
    pub(super) async fn up(&self) -> Result<Up, Fault> {
        self.shared.wanted.notify_one();
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(up) => return Ok(up.clone()),
                State::Down(fault) => return Err(fault.clone()),
                State::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(Fault::new(FaultClass::Refused, "the engine stopped"));
            }
        }
    }

    /// Ends when a connection stands for the first time.
    pub(super) async fn stood(&self) {
        let mut state = self.state.clone();
        // An error means that the supervisor is gone, and the runtime with it.
        let _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Ends when the connection of this epoch is given up.
    pub(super) async fn given_up(&self, epoch: u64) {
        let mut state = self.state.clone();
        let other = |state: &State| !matches!(state, State::Up(up) if up.epoch == epoch);
        // An error means that the supervisor is gone, and the connection with it.
        let _ = state.wait_for(other).await;
    }

    /// An answer came by the connection.
    pub(super) fn answered(&self) {
        self.shared.strikes.store(0, Ordering::Relaxed);
        self.shared.heard.store(true, Ordering::Relaxed);
    }

    /// The connection of this epoch failed.
    pub(super) fn failed(&self, epoch: u64) {
        self.give_up(|up| up.epoch == epoch);
    }

    /// Has the connection replaced. What is sent from now on waits for the next one.
    fn give_up(&self, which: impl Fn(&Up) -> bool) {
        let given_up = self.shared.publish.send_if_modified(|state| {
            let matches = matches!(state, State::Up(up) if which(up));
            if matches {
                *state = State::Connecting;
            }
            matches
        });
        if given_up {
            self.shared.broken.notify_one();
        }
    }

    /// An answer did not come in time.
    pub(super) fn unresponsive(&self) {
        if self.shared.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
            self.shared.strikes.store(0, Ordering::Relaxed);
            self.give_up(|_| true);
        }
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }
}

#[derive(Clone)]
struct Supervisor {
    client: redis::Client,
    namespace: String,
    patience: Duration,
    events: mpsc::UnboundedSender<Event>,
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
}

impl Supervisor {
    /// Runs, and again after the driver has panicked: whoever waits must hear of it, and what was
    /// wrong may be repaired.
    async fn run_always(self) {
        loop {
            let run = tokio::spawn(self.clone().run());
            if !run.await.is_err_and(|end| end.is_panic()) {
                return;
            }
            let what = "the driver failed while connecting; standard error has its message";
            let fault = Fault::new(FaultClass::Permanent, what);
            self.shared.publish.send_replace(State::Down(fault));
            sleep(LONGEST_PAUSE).await;
            self.shared.wanted.notify_one();
        }
    }

    async fn run(self) {
        self.shared.wanted.notified().await;
        let mut epoch = 0_u64;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect(epoch).await {
                Ok(up) => {
                    pause = FIRST_PAUSE;
                    epoch += 1;
                    self.shared.publish.send_replace(State::Up(up.clone()));
                    // The engine has ended if nobody listens, and this task with it.
                    let _ = self.events.send(Event::Connected);
                    self.watch(up).await;
                    self.shared.publish.send_replace(State::Connecting);
                }
                Err(fault) => {
                    crate::log::unreachable(&fault.what, pause);
                    self.shared.publish.send_replace(State::Down(fault));
                    sleep(jittered(pause, epoch)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    epoch += 1;
                }
            }
        }
    }

    /// Connects, with everything that a first command needs.
    async fn connect(&self, epoch: u64) -> Result<Up, Fault> {
        // A broken notice that came for an older connection must not end the new one.
        let _ = timeout(Duration::ZERO, self.shared.broken.notified()).await;
        self.shared.strikes.store(0, Ordering::Relaxed);
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connecting = async {
            let mut connection =
                self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let found = probe(&mut connection, &self.namespace).await?;
            Ok((connection, found))
        };
        let patience = self.patience.max(Duration::from_millis(500));
        match timeout(patience, connecting).await {
            Ok(Ok((connection, found))) => {
                crate::log::connected(&found.version, &found.warnings);
                self.cluster.found(found.cluster);
                let (found, cluster) = (Arc::new(found), Arc::clone(&self.cluster));
                Ok(Up { connection, found, cluster, epoch })
            }
            Ok(Err(error)) => Err(decode::unreachable(error)),
            Err(_) => Err(Fault::new(
                FaultClass::Refused,
                format!("the server can't be used: no connection within {patience:?}"),
            )),
        }
    }

    /// Watches a connection until it has to be replaced.
    async fn watch(&self, mut up: Up) {
        let ping = redis::cmd("PING");
        loop {
            tokio::select! {
                () = self.shared.broken.notified() => return,
                () = sleep(SILENCE) => {}
            }
            if self.shared.heard.swap(false, Ordering::Relaxed) {
                continue;
            }
            let asked = Instant::now();
            match timeout(self.patience, up.connection.send_packed_command(&ping)).await {
                Ok(Ok(_)) => self.shared.strikes.store(0, Ordering::Relaxed),
                Ok(Err(error)) if error.is_unrecoverable_error() || error.is_io_error() => return,
                // An error is an answer: somebody is there.
                Ok(Err(_)) => {}
                Err(_) => {
                    crate::log::silent(asked.elapsed());
                    return;
                }
            }
        }
    }
}

/// Between half of the pause and all of it, differently for each manager and try.
fn jittered(pause: Duration, seed: u64) -> Duration {
    let mixed =
        seed.wrapping_add(u64::from(std::process::id())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    pause / 2 + pause * u32::from((mixed >> 56) as u8) / 512
}
