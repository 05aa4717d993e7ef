//! A subscriber that keeps what is reported: events, and the opening and closing of spans.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Something that was reported: an event, or the opening or closing of a span.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    /// `acquired`, or `+hold` and `-hold` for a span.
    pub(crate) what: String,
    pub(crate) level: Level,
    pub(crate) fields: HashMap<String, String>,
    /// The spans that it was reported in, from the outermost on.
    pub(crate) within: Vec<String>,
}

impl Reported {
    pub(crate) fn number(&self, field: &str) -> f64 {
        self.fields[field].parse().unwrap()
    }
}

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) reported: Vec<Reported>,
    /// The spans that are open, and how many handles each has.
    pub(crate) spans: HashMap<u64, (Reported, usize)>,
    next: u64,
}

pub(crate) fn records() -> MutexGuard<'static, Records> {
    static RECORDS: OnceLock<Mutex<Records>> = OnceLock::new();
    RECORDS.get_or_init(Mutex::default).lock().unwrap()
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Recorder;

#[derive(Default)]
struct Fields(HashMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

fn reported(records: &Records, metadata: &Metadata<'_>, what: String, fields: Fields) -> Reported {
    let within = ENTERED
        .with_borrow(|entered| entered.iter().map(|id| records.spans[id].0.what.clone()).collect());
    Reported { what, level: *metadata.level(), fields: fields.0, within }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redis_locks"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut records = records();
        records.next += 1;
        let id = records.next;
        let name = span.metadata().name();
        let opened = reported(&records, span.metadata(), name.into(), fields);
        records.reported.push(Reported { what: format!("+{name}"), ..opened.clone() });
        records.spans.insert(id, (opened, 1));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let what = fields.0.remove("message").unwrap_or_default();
        let mut records = records();
        let reported = reported(&records, event.metadata(), what, fields);
        records.reported.push(reported);
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            let _ = entered.pop();
        });
    }

    fn clone_span(&self, id: &Id) -> Id {
        records().spans.get_mut(&id.into_u64()).unwrap().1 += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut records = records();
        let (span, handles) = records.spans.get_mut(&id.into_u64()).unwrap();
        *handles -= 1;
        let last = *handles == 0;
        if last {
            let closed = Reported { what: format!("-{}", span.what), ..span.clone() };
            records.reported.push(closed);
        }
        last
    }
}
