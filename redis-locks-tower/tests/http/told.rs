//! What an operator is told, because the client can't know it.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use redis_locks::Locks;
use redis_locks_tower::Pass;
use testbed::Server;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::client::{serve, until};
use crate::gate::Gate;
use crate::idempotency::{counting, keyed, layer};

/// The warnings of this thread, one a line.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<String>>);

impl Warnings {
    fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(text)
    }
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        event.record(&mut Line(&mut text));
        text.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_request_that_runs_without_its_lock_is_a_warning() {
    let warnings = Warnings::default();
    let _told = tracing::subscriber::set_default(warnings.clone());
    let server = Server::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let to = serve(counting(&Gate::open()).layer(layer(&locks).on_outage(Pass))).await;
    assert_eq!(keyed("/pay", "k").send(to).await.status, 201);
    let text = "a request with an idempotency key runs without its lock";
    assert!(!warnings.has(text));
    server.kill9();
    assert_eq!(keyed("/pay", "k").send(to).await.header("idempotency-skipped"), Some("true"));
    assert!(warnings.has(text), "{:?}", warnings.0);
}

#[tokio::test]
async fn an_answer_that_cannot_be_stored_is_a_warning() {
    let warnings = Warnings::default();
    let _told = tracing::subscriber::set_default(warnings.clone());
    let large = Locks::builder().in_memory().largest_value(10).open().unwrap();
    let to = serve(counting(&Gate::open()).layer(layer(&large))).await;
    assert_eq!(keyed("/pay", "k").send(to).await.status, 201);
    assert!(warnings.has("an answer can't be stored"), "{:?}", warnings.0);

    let server = Server::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let gate = Gate::shut();
    let to = serve(counting(&gate).layer(layer(&locks))).await;
    let first = tokio::spawn(async move { keyed("/pay", "k").send(to).await });
    until("the request runs", || gate.entered() == 1).await;
    server.kill9();
    gate.let_pass(1);
    assert_eq!(first.await.unwrap().status, 201, "the client gets it");
    assert!(warnings.has("idempotency:k"), "{:?}", warnings.0);
}
