use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is wrong with one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) up: Flow,
    pub(super) down: Flow,
    pub(super) cut_reply: Option<Arc<CutReply>>,
    pub(super) cut_after: Option<usize>,
}

/// What is wrong in one direction.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    pub(super) delay: Duration,
    pub(super) hole: bool,
    pub(super) split: Option<usize>,
}

/// A cut that happens once, on whichever connection the request passes first.
#[derive(Debug)]
pub(super) struct CutReply {
    /// What the request contains.
    text: Vec<u8>,
    due: AtomicBool,
}

impl CutReply {
    pub(super) fn to(text: &str) -> Arc<Self> {
        Arc::new(Self { text: text.as_bytes().to_vec(), due: AtomicBool::new(true) })
    }

    /// Whether `request` is the one, and no reader has had it yet.
    pub(super) fn fires_at(&self, request: &[u8]) -> bool {
        contains(request, &self.text) && self.due.swap(false, Ordering::SeqCst)
    }
}

/// Whether `data` contains `text`, whatever the case.
pub(super) fn contains(data: &[u8], text: &[u8]) -> bool {
    text.is_empty() || data.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text))
}
