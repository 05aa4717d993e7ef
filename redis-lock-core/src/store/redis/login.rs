//! Logins: what connections know of the answers of the provider.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisConnectionInfo, RedisError, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::decode;
use super::dialect::words;
use super::provider::{Known, Provider, ProviderThread, Request};
use crate::domain::credentials::Credentials;
use crate::domain::env::wall;
use crate::domain::fault::{BackendErrorKind, Fault, FaultClass};
use crate::store::BoxFuture;
use crate::sync::NonPoisonMutex;

/// How long a connection waits for an answer while it has credentials that should do.
const PATIENCE: Duration = Duration::from_millis(200);

/// The provider, its last answer, and the time of the next question.
pub(crate) struct CredentialSource {
    provider: Provider,
    known: Arc<Known>,
    /// To the thread that asks. It is closed where there is none.
    requests: NonPoisonMutex<mpsc::UnboundedSender<Request>>,
}

impl CredentialSource {
    pub(crate) fn new(provider: Provider) -> Arc<Self> {
        let requests = NonPoisonMutex::new(mpsc::unbounded_channel().0);
        Arc::new(Self { provider, known: Arc::default(), requests })
    }

    /// The credentials for a connection that is about to be made. The provider is asked first, unless that
    /// was done within the last second.
    ///
    /// # Errors
    /// The provider has not given any yet.
    pub(super) async fn login(self: &Arc<Self>, limit: Duration) -> Result<Login, Fault> {
        let (waiting, answered) = oneshot::channel();
        self.request(Some(waiting));
        let is_good = |known: &Credentials| !known.is_expired(wall());
        let may_do = !self.known.is_refused.load(Ordering::Relaxed)
            && self.known.answers.borrow().as_ref().is_some_and(is_good);
        let _ = timeout(if may_do { PATIENCE } else { limit }, answered).await;
        let login = Login::new(Arc::clone(self));
        login.ok_or_else(|| {
            let why = self.trouble().unwrap_or_else(|| "it has not answered yet".into());
            let what = format!("the server can't be used: no credentials: {why}");
            Fault::new(FaultClass::Refused, what).of(BackendErrorKind::Rights)
        })
    }

    /// As if the provider had answered.
    #[cfg(test)]
    pub(super) fn publish(&self, credentials: Credentials) {
        self.known.answers.send_replace(Some(credentials));
    }

    /// Looks at a reply: the server may want other credentials.
    pub(super) fn hear(&self, reply: &Value) {
        if let Value::ServerError(error) = reply
            && matches!(decode::code_of(error), "NOAUTH" | "WRONGPASS")
        {
            self.demand();
        }
    }

    /// A fault of a server that wants other credentials passes: the provider is asked for them.
    pub(super) fn judge(&self, fault: Fault) -> Fault {
        let error = fault.source.as_deref().and_then(|it| it.downcast_ref::<RedisError>());
        if !error.is_some_and(wants_credentials) {
            return fault;
        }
        self.demand();
        let what = "the server refused the credentials; their provider is asked for others";
        Fault { class: FaultClass::Refused, what: what.into(), source: None, ..fault }
    }

    /// A server has refused the last answer, or wants credentials.
    fn demand(&self) {
        self.known.is_refused.store(true, Ordering::Relaxed);
        self.request(None);
    }

    fn request(&self, request: Request) {
        let mut requests = self.requests.lock();
        // A thread that could not be started, or has panicked, is replaced.
        if requests.is_closed() {
            let (sender, receiver) = mpsc::unbounded_channel();
            ProviderThread::spawn(Arc::clone(&self.provider), Arc::clone(&self.known), receiver);
            *requests = sender;
        }
        let _ = requests.send(request);
    }

    /// Why the provider does not answer, if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.known.trouble.lock();
        trouble.as_ref().map(|why| format!("the provider of credentials {why}"))
    }
}

/// Shows no credentials.
impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSource").finish_non_exhaustive()
    }
}

/// The login of one connection, which follows the answers of the provider.
pub(super) struct Login {
    source: Arc<CredentialSource>,
    /// The one that the connection has used last is marked as seen.
    answers: watch::Receiver<Option<Credentials>>,
    /// For the reader of the connection.
    change: Option<BoxFuture<'static, ()>>,
}

impl Login {
    /// `None` as long as there are no credentials.
    fn new(source: Arc<CredentialSource>) -> Option<Self> {
        let answers = source.known.answers.subscribe();
        let has_some = answers.borrow().is_some();
        has_some.then_some(Self { source, answers, change: None })
    }

    /// The settings of a connection with the credentials.
    pub(super) fn added_to(&mut self, settings: &RedisConnectionInfo) -> RedisConnectionInfo {
        let settings = settings.clone();
        let Some(credentials) = self.answers.borrow_and_update().clone() else { return settings };
        let is_default = credentials.user.is_empty() && settings.username().is_none();
        let settings = settings.set_password(credentials.password);
        match credentials.user.as_str() {
            _ if is_default => settings,
            "" => settings.set_username("default"),
            user => settings.set_username(user),
        }
    }

    /// The command that authenticates the connection anew, when there are other credentials.
    pub(super) fn renewed(&mut self) -> Option<Cmd> {
        // The sender lives as long as this.
        self.answers.has_changed().unwrap_or_default().then(|| self.auth()).flatten()
    }

    /// The same, as soon as there are.
    pub(super) async fn changed(&mut self) -> Option<Cmd> {
        if self.answers.changed().await.is_err() {
            pending::<()>().await;
        }
        self.auth()
    }

    fn auth(&mut self) -> Option<Cmd> {
        let answer = self.answers.borrow_and_update();
        let Credentials { user, password, .. } = answer.as_ref()?;
        // Servers before version 6 have no users.
        Some(match user.as_str() {
            "" | "default" => words(["AUTH", password]),
            user => words(["AUTH", user, password]),
        })
    }

    pub(super) fn source(&self) -> &Arc<CredentialSource> {
        &self.source
    }

    /// Ready when there are other credentials, or have been since the last poll.
    pub(super) fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let change = self.change.get_or_insert_with(|| {
            let mut answers = self.answers.clone();
            // The sender lives as long as this.
            Box::pin(async move { answers.changed().await.unwrap_or_default() })
        });
        change.as_mut().poll(context).map(|()| self.change = None)
    }
}

fn wants_credentials(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.to_string().contains("Authentication required")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn cr5_where_no_thread_asks_the_provider_the_next_connection_starts_one() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let source = CredentialSource::new(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(Credentials::new("app", "secret")) })
        }));
        let limit = Duration::from_secs(10);
        for questions in 1..=3 {
            *source.requests.lock() = mpsc::unbounded_channel().0;
            assert!(source.login(limit).await.is_ok());
            assert_eq!(asked.load(Ordering::Relaxed), questions);
        }
    }
}
