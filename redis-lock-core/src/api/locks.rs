//! The manager of locks.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;

use crate::domain::demand::InCommon;
use crate::domain::label::{host_and_process, printable};
use crate::domain::status::Scripting;
use crate::domain::value::DEFAULT_MOST_VALUE;
use crate::engine::{HasLink, Link};
use crate::observe::Recording;
use crate::store::redis::login::CredentialSource;
use crate::{ConfigError, Drained, LockError, LockRecord, Wait};

/// A connection to the lock server, from which you request locks. Open one at start-up, and clone it wherever
/// you need it.
///
/// # How to get one
///
/// | You have | Call |
/// |---|---|
/// | a server that must answer before the program starts | [`Locks::connect(url).await?`](Self::connect) |
/// | a server that may come up later | [`Locks::open(url)?`](Self::open) |
/// | `REDIS_URL` in the environment | [`Locks::from_env()?`](Self::from_env) |
/// | no server: a test, or a single process | [`Locks::in_memory()`](Self::in_memory) |
/// | a namespace, other defaults, an existing client | [`Locks::builder()`](Self::builder) |
/// | nothing, somewhere deep in the program | [`Locks::global()?`](Self::global) |
///
/// Keep one for the whole program: [`install`](Self::install) it, and annotated functions find it. In tests use a
/// separate [`scope`](Self::scope) for each. You need more than one only for several servers or namespaces.
///
/// # Threads, connections, drop
///
/// It is `Send + Sync`, and cheap to clone: clones share one engine. The engine is a single thread, however many
/// locks there are. It has one connection for commands and one for messages at each server, one more with
/// [`replicas`](crate::LocksBuilder::replicas), and up to eight more without scripts. When the last clone and the
/// last guard are dropped, the engine sends pending releases and stops. A program that exits should await
/// [`shutdown`](Self::shutdown) first, or locks may stay for their ttl.
///
/// # How to lock
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use redis_locks::Locks;
/// let locks = Locks::in_memory();
/// let sum = locks.mutex("sum").blocking_run(|_guard| 1 + 1)?;
/// assert_eq!(sum, 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Manager>,
}

struct Manager {
    settings: Settings,
    link: Arc<Link>,
    /// Where nested calls that join a hold of this manager wait for each other.
    turns: OnceBox<Locks>,
    recording: OnceBox<Arc<Recording>>,
}

impl Locks {
    pub(crate) fn new(settings: Settings, link: Link) -> Self {
        Self {
            shared: Arc::new(Manager {
                settings,
                link: Arc::new(link),
                turns: OnceBox::new(),
                recording: OnceBox::new(),
            }),
        }
    }

    /// Whether this is the only handle: no later call can ask for locks of this manager.
    pub(crate) fn has_one_handle(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Ends all holds at once, and waits for up to 3 s until the server has confirmed their releases.
    ///
    /// Guards that are still held report [`LossReason::Shutdown`](crate::LossReason::Shutdown). Waiters and new calls
    /// get [`Shutdown`](crate::LockError::Shutdown). Call it, or [`drain`](Self::drain), before the program ends, so
    /// that other processes need not wait for leases to run out. A second call returns when the first is done.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = redis_locks::Locks::in_memory();
    /// locks.shutdown().await; // the last line of a program
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The shutdown continues in the background.
    pub async fn shutdown(&self) {
        self.shared.link.shutdown().await;
    }

    /// Lets held locks finish, for up to `limit`, and then [shuts down](Self::shutdown).
    ///
    /// New and waiting acquisitions get [`Shutdown`](crate::LockError::Shutdown) at once. Guards stay valid and
    /// renewed until they are dropped or the limit has passed. Reentrant calls join them as before, and `status`
    /// works. After the limit, the remaining guards lose their locks with
    /// [`LossReason::Shutdown`](crate::LossReason::Shutdown). A second call waits for the first one to end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # use std::time::Duration;
    /// let locks = redis_locks::Locks::in_memory();
    /// // … on SIGTERM:
    /// let drained = locks.drain(Duration::from_secs(20)).await;
    /// assert_eq!(drained.cut_off, 0);
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The drain continues in the background.
    pub async fn drain(&self, limit: Duration) -> Drained {
        self.shared.link.drain(limit).await
    }

    /// [`drain`](Self::drain) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// let drained = locks.blocking_drain(std::time::Duration::from_secs(20));
    /// ```
    pub fn blocking_drain(&self, limit: Duration) -> Drained {
        crate::api::blocking::block_on(self.drain(limit))
    }

    /// Waits until a drain or a shutdown begins, so that a long body can stop early. It returns at once if one has
    /// begun already.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = redis_locks::Locks::in_memory();
    /// # async fn next_part() {}
    /// # locks.shutdown().await;
    /// tokio::select! {
    ///     () = locks.draining() => println!("stopped early"),
    ///     () = next_part() => {}
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn draining(&self) {
        self.shared.link.draining().await;
    }

    /// [`shutdown`](Self::shutdown) for code without an async runtime.
    ///
    /// ```
    /// # let locks = redis_locks::Locks::in_memory();
    /// locks.blocking_shutdown();
    /// ```
    pub fn blocking_shutdown(&self) {
        crate::api::blocking::block_on(self.shutdown());
    }

    /// From now on, keeps a [record](Self::records) of each call for a lock. For tests: the record grows without a
    /// limit.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// let locks = redis_locks::Locks::in_memory().recorded();
    /// let guard = locks.mutex("order:7").blocking_acquire()?;
    /// assert!(locks.mutex("order:7").blocking_try_acquire()?.is_none());
    /// let records = locks.records();
    /// assert_eq!((records[0].key.as_str(), records[0].is_acquired()), ("order:7", true));
    /// assert!(!records[1].is_acquired());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn recorded(self) -> Self {
        self.shared.recording.get_or_init(Box::default);
        self
    }

    /// The calls for locks that have ended since [`recorded`](Self::recorded), in that order.
    #[must_use]
    pub fn records(&self) -> Vec<LockRecord> {
        self.recording().map(|recording| recording.records()).unwrap_or_default()
    }

    pub(crate) fn recording(&self) -> Option<&Arc<Recording>> {
        self.shared.recording.get()
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.shared.link
    }

    /// The locks of this process by which nested calls take turns, whatever server the holds are on.
    pub(crate) fn turns(&self) -> &Self {
        self.shared.turns.get_or_init(|| Box::new(Self::in_memory()))
    }

    /// The most bytes of a value that is stored for other calls, as
    /// [`LocksBuilder::largest_value`](crate::LocksBuilder::largest_value) says.
    #[must_use]
    pub fn largest_value(&self) -> usize {
        self.settings().largest_value
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }
}

impl HasLink for Locks {
    fn link(&self) -> &Arc<Link> {
        &self.shared.link
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        f.debug_struct("Locks")
            .field("server", &settings.server)
            .field("namespace", &settings.namespace)
            .field("ttl", &settings.ttl)
            .field("label", &settings.label)
            .finish_non_exhaustive()
    }
}

/// The defaults of all requests of a `Locks`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) label: Arc<str>,
    pub(crate) outage: Duration,
    pub(crate) linger: Option<Duration>,
    pub(crate) margin: Option<Duration>,
    /// How many calls may wait for one key.
    pub(crate) max_waiters: Option<usize>,
    /// Whether there is no server.
    pub(crate) in_memory: bool,
    /// The address of the server for messages, without secrets.
    pub(crate) server: String,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) scripting: Scripting,
    /// Of a quorum, how long a node that has started does not vote.
    pub(crate) rejoin: Option<Duration>,
    /// The largest value that is stored for other calls, in bytes.
    pub(crate) largest_value: usize,
    /// Where the credentials come from, if not from URLs.
    pub(crate) sources: Vec<Arc<CredentialSource>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "lock".into(),
            ttl: Duration::from_secs(30),
            wait: Wait::default(),
            label: printable(&host_and_process()).into(),
            outage: Duration::from_secs(10),
            linger: None,
            margin: None,
            max_waiters: None,
            in_memory: false,
            server: String::new(),
            command_timeout: None,
            scripting: Scripting::default(),
            rejoin: None,
            largest_value: DEFAULT_MOST_VALUE,
            sources: Vec::new(),
        }
    }
}

impl Settings {
    /// What the providers of credentials suffer from.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = String> {
        self.sources.iter().filter_map(|source| source.trouble())
    }

    /// What all demands have in common.
    pub(crate) fn in_common(&self) -> InCommon<'_> {
        InCommon {
            namespace: &self.namespace,
            label: &self.label,
            timeout: self.command_timeout(),
            rejoin: self.rejoin,
        }
    }

    /// The settings for a quorum, if it can offer what they ask for.
    pub(crate) fn on_quorum(&mut self, rejoin: Duration, replicas: u32) -> Result<(), ConfigError> {
        let no = |what, why| Err(ConfigError::NotOnQuorum { what, why });
        if replicas > 0 {
            return no("replicas", "its nodes are independent; leave `replicas` out");
        }
        if self.scripting == Scripting::Never {
            return no("locks without scripts", "its nodes need the rights `+eval +evalsha`");
        }
        (self.rejoin, self.linger) = (Some(rejoin), None);
        Ok(())
    }

    /// How long a command may take.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout.unwrap_or(Duration::from_secs(2)).min(LONGEST_TIMEOUT)
    }
}

/// The longest `command_timeout`, so that sums of it do not overflow.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The `Locks` of the process.
static PROCESS: OnceCell<Process> = OnceCell::new();

struct Process {
    locks: Locks,
    is_installed: bool,
}

thread_local! {
    /// The `Locks` of the innermost scope that this thread is in.
    static SCOPED: RefCell<Option<Locks>> = const { RefCell::new(None) };
}

impl Locks {
    /// Makes this the `Locks` that annotated functions use, in the whole process. Call it once, at
    /// start-up. In tests use [`scope`](Self::scope) instead.
    ///
    /// ```no_run
    /// redis_locks::Locks::open("redis://localhost")?.install()?;
    /// # Ok::<_, redis_locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig) if there is one already: either installed
    /// ([`AlreadyInstalled`](ConfigError::AlreadyInstalled)), or made from the environment by an earlier call
    /// ([`AlreadyInUse`](ConfigError::AlreadyInUse)).
    pub fn install(&self) -> Result<(), LockError> {
        let process = Process { locks: self.clone(), is_installed: true };
        PROCESS.try_insert(process).map(drop).map_err(|(present, _)| {
            let installed = present.is_installed;
            if installed { ConfigError::AlreadyInstalled } else { ConfigError::AlreadyInUse }.into()
        })
    }

    /// The `Locks` of the [`scope`](Self::scope) around this code, else the [installed](Self::install) one, else one
    /// from the environment.
    ///
    /// Annotated functions use it. The value is a clone, which shares everything:
    ///
    /// ```
    /// # fn main() -> Result<(), redis_locks::LockError> {
    /// use redis_locks::Locks;
    /// # Locks::in_memory().install()?;
    /// let guard = Locks::global()?.mutex("report").blocking_acquire()?;
    /// let locks: &Locks = &Locks::global()?;
    /// assert!(locks.mutex("report").blocking_try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env) when there is none.
    pub fn global() -> Result<Self, LockError> {
        // A thread that ends may have lost its storage, and is in no scope then.
        if let Ok(Some(locks)) = SCOPED.try_with(|scoped| scoped.borrow().clone()) {
            return Ok(locks);
        }
        let from_env = || Ok(Process { locks: Self::from_env()?, is_installed: false });
        PROCESS.get_or_try_init(from_env).map(|process| process.locks.clone())
    }

    /// Runs `future` with this as the [`global`](Self::global) `Locks`: all annotated functions that it calls use it,
    /// directly or not. One line isolates a test from all others:
    ///
    /// ```
    /// # use redis_locks::{LockError, Locks, redis_lock};
    /// #[redis_lock(key = "order:{id}", wait = "none")]
    /// async fn charge(id: u64) -> Result<u64, LockError> {
    ///     Ok(id)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// Locks::in_memory().scope(async {
    ///     assert_eq!(charge(7).await?, 7); // needs no server, and shares no key with another test
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// Scopes nest, and the innermost one applies. A scope covers what the future itself calls, including the
    /// branches of a `join!`. It does not cover tasks and threads that the future spawns, so give those a scope, too.
    /// It works in every executor.
    ///
    /// # Cancel safety
    /// As that of `future`, which is dropped within the scope.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        // In a box, because a future may be as large as it likes and would be moved twice here.
        let mut scoped = Scoped { locks: self.clone(), future: Some(Box::pin(future)) };
        poll_fn(move |context| {
            let _entered = Entered::enter(&scoped.locks);
            match &mut scoped.future {
                Some(future) => future.as_mut().poll(context),
                None => std::task::Poll::Pending,
            }
        })
    }

    /// [`scope`](Self::scope) for code without an async runtime: this is the [`global`](Self::global) `Locks` in
    /// `body`, and in everything that it calls on this thread.
    ///
    /// ```
    /// # use redis_locks::{LockError, Locks, redis_lock};
    /// #[redis_lock(key = "report")]
    /// fn report() -> Result<&'static str, LockError> {
    ///     Ok("done")
    /// }
    ///
    /// assert_eq!(Locks::in_memory().blocking_scope(report), Ok("done"));
    /// ```
    pub fn blocking_scope<T>(&self, body: impl FnOnce() -> T) -> T {
        let _entered = Entered::enter(self);
        body()
    }
}

/// A future, and the `Locks` that it uses.
struct Scoped<F> {
    locks: Locks,
    future: Option<std::pin::Pin<Box<F>>>,
}

impl<F> Drop for Scoped<F> {
    fn drop(&mut self) {
        // What it owns may still call annotated functions while it is dropped.
        let _entered = Entered::enter(&self.locks);
        self.future = None;
    }
}

/// Puts this thread into a scope. Dropping it restores the previous scope.
struct Entered {
    outer: Option<Locks>,
}

impl Entered {
    fn enter(locks: &Locks) -> Self {
        let enter = || SCOPED.try_with(|scoped| scoped.replace(Some(locks.clone())));
        Self { outer: enter().unwrap_or_default() }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let outer = self.outer.take();
        // Dropped outside of the cell: the last reference to an engine runs other code.
        drop(SCOPED.try_with(|scoped| scoped.replace(outer)));
    }
}
