//! The tokens that nodes were asked for, until they are given up and nothing of them is under way.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::clock::Moment;

/// Below this many, nothing looks for those that are over.
const MIN_SWEEP: usize = 1024;

/// What is known of the tokens that may stand on nodes.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    traces: HashMap<Arc<str>, Trace>,
    /// At how many to look for those that are over.
    sweep_at: usize,
}

#[derive(Clone, Debug, Default)]
struct Trace {
    /// Which nodes may have something of it.
    asked: Vec<bool>,
    under_way: usize,
    is_given_up: bool,
    /// Whether it was a writer's, and is a reader's.
    is_downgraded: bool,
    /// When the lease that was last asked for will have ended. A token that was given away is not
    /// released here.
    until: Option<Moment>,
}

impl Tokens {
    /// A node is asked for it.
    pub(super) fn ask(&mut self, token: &Arc<str>, node: usize, until: Moment) {
        if self.traces.len() > self.sweep_at {
            let now = Moment::now();
            self.traces
                .retain(|_, it| it.under_way > 0 || it.until.is_none_or(|until| until > now));
            self.sweep_at = (self.traces.len() * 2).max(MIN_SWEEP);
        }
        let trace = self.traces.entry(Arc::clone(token)).or_default();
        trace.is_given_up = false;
        if trace.asked.len() <= node {
            trace.asked.resize(node + 1, false);
        }
        if let Some(asked) = trace.asked.get_mut(node) {
            *asked = true;
        }
        trace.under_way += 1;
        trace.until = trace.until.max(Some(until));
    }

    /// What a node was asked is not under way any more.
    pub(super) fn settle(&mut self, token: &str) {
        if let Some(trace) = self.traces.get_mut(token) {
            trace.under_way = trace.under_way.saturating_sub(1);
        }
        self.forget(token);
    }

    /// It is released, or undone. Nothing is sent again that would bring it back.
    pub(super) fn give_up(&mut self, token: &str) {
        if let Some(trace) = self.traces.get_mut(token) {
            trace.is_given_up = true;
        }
        self.forget(token);
    }

    fn forget(&mut self, token: &str) {
        if self.traces.get(token).is_some_and(|trace| trace.is_given_up && trace.under_way == 0) {
            self.traces.remove(token);
        }
    }

    pub(super) fn downgrade(&mut self, token: &str) {
        if let Some(trace) = self.traces.get_mut(token) {
            trace.is_downgraded = true;
        }
    }

    /// Whether it is wanted as it was asked for at first.
    pub(super) fn may_be_repaired(&self, token: &str) -> bool {
        self.traces.get(token).is_some_and(|trace| !trace.is_given_up && !trace.is_downgraded)
    }

    pub(super) fn is_wanted(&self, token: &str) -> bool {
        self.traces.get(token).is_some_and(|trace| !trace.is_given_up)
    }

    /// Whether a node may have something of it. Of a token of another process that is not known.
    pub(super) fn may_be_at(&self, token: &str, node: usize) -> bool {
        self.traces.get(token).is_none_or(|trace| trace.asked.get(node).copied().unwrap_or(false))
    }
}
