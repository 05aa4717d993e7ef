//! A subscriber that blocks or panics in an event when a test asks for that. There is one for the
//! whole process.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::trouble::{Gate, Trouble};

type Armed = Vec<(String, Option<Arc<Gate>>)>;

static ARMED: Mutex<Armed> = Mutex::new(Vec::new());

/// The keys and messages of the events in which it blocked or panicked.
static MET: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What it does to threads that serve several callers when they ask it whether it listens.
static WHEN_ASKED: Mutex<Option<Trouble>> = Mutex::new(None);

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(FaultySubscriber).unwrap());
}

pub(crate) fn when_asked(trouble: Option<Trouble>) {
    listen();
    *WHEN_ASKED.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
}

fn serves_several() -> bool {
    let name = thread::current().name().unwrap_or_default().to_owned();
    name.starts_with("redis-locks") || name.starts_with("tokio-r")
}

/// In how many of these events it has blocked or panicked.
pub(crate) fn have_met(names: &[String]) -> usize {
    names.iter().filter(|name| has_met(name)).count()
}

pub(crate) fn has_met(what: &str) -> bool {
    MET.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|met| met == what)
}

/// From now on it blocks at a gate, or panics, in an event of this key, or with this message.
pub(crate) fn arm(key: &str, gate: Option<Arc<Gate>>) {
    listen();
    ARMED.lock().unwrap_or_else(PoisonError::into_inner).push((key.to_owned(), gate));
}

struct FaultySubscriber;

#[derive(Default)]
struct Names(Vec<String>);

impl Visit for Names {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let "key" | "message" = field.name() {
            self.0.push(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl Subscriber for FaultySubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let trouble = WHEN_ASKED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match trouble.filter(|_| serves_several()) {
            Some(Trouble::Blocks(gate)) => gate.pass(),
            Some(_) => panic!("a subscriber panics when it is asked, as planned"),
            None => {}
        }
        metadata.target() == "redis_locks"
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut names = Names::default();
        event.record(&mut names);
        let armed = {
            let armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
            armed.iter().find(|(armed, _)| names.0.contains(armed)).cloned()
        };
        let Some((name, gate)) = armed else { return };
        MET.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        match gate {
            Some(gate) => gate.pass(),
            None => panic!("a subscriber panics, as planned"),
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
