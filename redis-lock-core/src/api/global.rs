//! The `Locks` that code uses without being given one: those of its scope, or those of the process.

use std::cell::RefCell;
use std::future::{Future, poll_fn};

use once_cell::sync::OnceCell;

use crate::{ConfigError, LockError, Locks};

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
    /// # Errors
    /// [`InvalidConfig`](LockError::InvalidConfig) when there is one already: installed before
    /// ([`AlreadyInstalled`](ConfigError::AlreadyInstalled)), or made from the environment by a
    /// call that came before ([`AlreadyInUse`](ConfigError::AlreadyInUse)).
    pub fn install(&self) -> Result<(), LockError> {
        let process = Process { locks: self.clone(), is_installed: true };
        PROCESS.try_insert(process).map(drop).map_err(|(present, _)| {
            let installed = present.is_installed;
            if installed { ConfigError::AlreadyInstalled } else { ConfigError::AlreadyInUse }.into()
        })
    }

    /// The `Locks` of the [`scope`](Self::scope) that this code runs in, else the
    /// [installed](Self::install) ones, else those that the environment describes.
    ///
    /// It is what annotated functions use. The value is a clone, which shares everything:
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

    /// Runs `future` with these as the [`global`](Self::global) `Locks`: annotated functions that
    /// it calls use them, however deep. One line keeps a test apart from all others:
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
    /// Scopes nest: the innermost counts. A scope covers what the future itself calls, also in the
    /// branches of a `join!`, not the tasks and threads that it spawns; give those a scope of their
    /// own. It works in every executor.
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

    /// [`scope`](Self::scope) for code without an async runtime: within `body`, and whatever it
    /// calls on this thread, these are the [`global`](Self::global) `Locks`.
    ///
    /// ```
    /// # use redis_locks::{LockError, Locks, redis_lock};
    /// #[redis_lock(key = "report")]
    /// fn report() -> Result<&'static str, LockError> {
    ///     Ok("done")
    /// }
    ///
    /// assert_eq!(Locks::in_memory().scope_blocking(report), Ok("done"));
    /// ```
    pub fn scope_blocking<T>(&self, body: impl FnOnce() -> T) -> T {
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

/// Puts this thread into a scope. Dropping it restores the former scope.
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
