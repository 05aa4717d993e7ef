//! Asks the provider of credentials, for all connections of a manager.
//!
//! The provider is user code: it may block, fail, hang or panic. So it runs on separate threads, one question
//! at a time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::domain::credentials::Credentials;
use crate::domain::env::wall;
use crate::domain::label::harmless;
use crate::observe::log;
use crate::store::BoxFuture;
use crate::sync::NonPoisonMutex;

/// What the user gives us.
pub(crate) type Provider = Arc<dyn Fn() -> BoxFuture<'static, ProviderAnswer> + Send + Sync>;

pub(crate) type ProviderAnswer = Result<Credentials, Box<dyn Error + Send + Sync>>;

/// The shortest time between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The shortest time between two warnings.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// The most characters of a provider's error that are shown.
const MOST_SHOWN: usize = 300;

/// A connection that waits for the next answer, until this is dropped; `None` when a server wants one.
pub(super) type Request = Option<oneshot::Sender<()>>;

/// What connections know of the provider.
#[derive(Default)]
pub(super) struct Known {
    pub(super) answers: watch::Sender<Option<Credentials>>,
    /// Whether a server has refused the last answer.
    pub(super) is_refused: AtomicBool,
    /// Why the provider does not answer.
    pub(super) trouble: NonPoisonMutex<Option<String>>,
}

/// Asks the provider.
pub(super) struct ProviderThread {
    provider: Provider,
    known: Arc<Known>,
    requests: mpsc::UnboundedReceiver<Request>,
    /// Connections that wait for the next answer.
    waiting: Vec<oneshot::Sender<()>>,
    /// When the last question began.
    begun: Option<Instant>,
    /// When to ask without a request.
    due: Option<Instant>,
    /// When operators were last warned, and whether the trouble lasts.
    warned: Option<Instant>,
    is_told: bool,
}

impl ProviderThread {
    fn new(
        provider: Provider,
        known: Arc<Known>,
        requests: mpsc::UnboundedReceiver<Request>,
    ) -> Self {
        let (waiting, begun, due) = (Vec::new(), None, None);
        Self { provider, known, requests, waiting, begun, due, warned: None, is_told: false }
    }

    /// Starts to serve these requests, until all senders are dropped.
    pub(super) fn spawn(
        provider: Provider,
        known: Arc<Known>,
        requests: mpsc::UnboundedReceiver<Request>,
    ) {
        let asking = Self::new(provider, known, requests);
        let serve = move || {
            let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(asking.serve());
            // A provider that blocks is left behind.
            runtime.shutdown_background();
        };
        let _ = thread::Builder::new().name("redis-locks-login".into()).spawn(serve);
    }

    /// Asks until no connection is left that could want to know.
    async fn serve(mut self) {
        while self.is_asked().await {
            if let Some(begun) = self.begun {
                sleep_until(begun + PAUSE).await;
            }
            let begun = *self.begun.insert(Instant::now());
            match self.ask().await {
                Some(Ok(answer)) => self.take(answer, begun),
                Some(Err(why)) => {
                    self.fail(&why, Instant::now());
                    self.due = Some(begun + PAUSE);
                }
                None => return,
            }
            // Those that came meanwhile have the same answer.
            while self.requests.try_recv().is_ok() {}
            self.waiting.clear();
        }
    }

    /// Waits until it is time to ask the provider; `false` if that time never comes.
    async fn is_asked(&mut self) -> bool {
        while self.waiting.is_empty() && !self.known.is_refused.load(Ordering::Relaxed) {
            let due = self.due;
            let renewal = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                request = self.requests.recv() => match request {
                    None => return false,
                    Some(request) if !self.is_fresh() => self.waiting.extend(request),
                    Some(_) => {}
                },
                () = renewal => return true,
            }
        }
        !self.requests.is_closed()
    }

    /// Whether the last answer is so new that no other is asked for.
    fn is_fresh(&self) -> bool {
        self.begun.is_some_and(|begun| begun.elapsed() < PAUSE)
            && self.known.trouble.lock().is_none()
    }

    /// Asks the provider; `None` if no caller needs the answer now.
    async fn ask(&mut self) -> Option<Result<Credentials, String>> {
        let provider = Arc::clone(&self.provider);
        let answer = async move {
            match timeout(LIMIT, async { provider().await }).await {
                // To show an error is user code as well.
                Ok(answer) => answer.map_err(|error| format!("fails: {error}")),
                Err(_) => Err(format!("has not answered within {LIMIT:?}")),
            }
        };
        // It may block the thread that polls it, and its own tasks run on this one.
        let asking = move || Handle::current().block_on(answer);
        let mut asking = tokio::task::spawn_blocking(asking);
        let panicked = |_| Err("panicked; standard error has its message".into());
        loop {
            match timeout(LIMIT + PAUSE, &mut asking).await {
                Ok(answer) => return Some(answer.unwrap_or_else(panicked)),
                Err(_) if self.requests.is_closed() => return None,
                // There is one question at a time, so there is no other before this one ends.
                Err(_) => {
                    self.fail("blocks its thread", Instant::now());
                    while self.requests.try_recv().is_ok() {}
                    self.waiting.clear();
                }
            }
        }
    }

    /// Open connections get an answer that differs, or that a server has asked for.
    fn take(&mut self, answer: Credentials, begun: Instant) {
        let is_due = self.due.is_some_and(|due| due <= begun);
        let was_refused = self.known.is_refused.swap(false, Ordering::Relaxed);
        let is_known = self.known.answers.borrow().as_ref().is_some_and(|known| match is_due {
            true => *known == answer,
            false => known.is_same_login(&answer),
        });
        if is_due || was_refused || !is_known {
            let now = wall();
            let pause = answer.renewal(now).map(|at| at.duration_since(now).unwrap_or_default());
            self.due = pause.and_then(|pause| Instant::now().checked_add(pause));
        }
        if was_refused || !is_known {
            self.known.answers.send_replace(Some(answer));
        }
        *self.known.trouble.lock() = None;
        if std::mem::take(&mut self.is_told) {
            log::credentials(None);
        }
    }

    /// The provider does not answer at this time.
    fn fail(&mut self, why: &str, now: Instant) {
        let known = self.known.answers.borrow().clone();
        let why = known.map_or_else(|| why.to_owned(), |known| known.hidden_in(why));
        let why = harmless(why, MOST_SHOWN);
        if self.warned.is_none_or(|warned| now - warned >= WARNING_PAUSE) {
            (self.warned, self.is_told) = (Some(now), true);
            log::credentials(Some(&why));
        }
        *self.known.trouble.lock() = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cr4_a_provider_that_fails_is_told_at_the_beginning_and_once_a_minute() {
        let (_sender, requests) = mpsc::unbounded_channel();
        let provider: Provider = Arc::new(|| Box::pin(async { Err("no".into()) }));
        let mut thread = ProviderThread::new(provider, Arc::default(), requests);
        let (mut told, mut last, start) = (Vec::new(), None, Instant::now());
        for second in 0..150 {
            let now = start + Duration::from_secs(second);
            thread.fail("fails", now);
            if thread.warned != last {
                told.push(second);
            }
            last = thread.warned;
            // One that answers now and then gets no more lines.
            if second % 10 == 0 {
                thread.take(Credentials::new("u", "p"), now);
                assert_eq!(*thread.known.trouble.lock(), None);
            }
        }
        assert_eq!(told, [0, 60, 120]);
    }
}
