//! What a node may have of the tokens that it was asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::kind::Kind;
use crate::domain::lease::whole_millis;
use crate::domain::names::Names;
use crate::domain::status::LockKind;
use crate::store::{Answer, Command, ServerView, Verb};

/// Below this many, nothing looks for those that are over.
const MIN_SWEEP: usize = 1024;

const TIMEOUT: Duration = Duration::from_secs(2);

/// How much of a lease may be missing by rounding.
const ROUNDED: Duration = Duration::from_millis(2);

/// The tokens that one node may have, until it has confirmed their release.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    all: HashMap<Arc<str>, TokenTrace>,
    /// At how many to look for those that are over.
    sweep_at: usize,
}

#[derive(Debug)]
struct TokenTrace {
    names: Names,
    kind: Kind,
    /// When the node forgets it without a release. A token that was given away is not released
    /// here.
    until: Moment,
    under_way: usize,
    /// Whether something was never answered, so that it may be executed late.
    is_in_doubt: bool,
    is_given_up: bool,
    /// Until when a release that was never answered may end what it has here.
    may_end_until: Moment,
    /// What it is brought back as, if it may be.
    repair_as: Option<Kind>,
    /// The lease that this connection last had confirmed: when that was asked for, and for how long.
    lease: Option<(Moment, Duration)>,
}

impl Tokens {
    /// The node is asked for something that may stay there until then.
    pub(super) fn asked(
        &mut self,
        token: &Arc<str>,
        (names, kind): (&Names, Kind),
        until: Moment,
        now: Moment,
    ) {
        if self.all.len() > self.sweep_at {
            self.all.retain(|_, it| it.under_way > 0 || it.until > now || it.is_in_doubt);
            self.sweep_at = (self.all.len() * 2).max(MIN_SWEEP);
        }
        let trace = self.all.entry(Arc::clone(token)).or_insert_with(|| TokenTrace {
            names: names.clone(),
            kind,
            until,
            under_way: 0,
            is_in_doubt: false,
            is_given_up: false,
            may_end_until: Moment::START,
            repair_as: Some(kind),
            lease: None,
        });
        trace.until = trace.until.max(until);
        (trace.under_way, trace.is_given_up) = (trace.under_way + 1, false);
    }

    /// That has its answer, or none that will ever come: then it may be executed until then.
    pub(super) fn settled(&mut self, token: &str, in_doubt_until: Option<Moment>) {
        if let Some(trace) = self.all.get_mut(token) {
            trace.under_way = trace.under_way.saturating_sub(1);
            if let Some(until) = in_doubt_until {
                (trace.is_in_doubt, trace.until) = (true, trace.until.max(until));
            }
        }
    }

    /// The node has the token, with the lease that was asked for then, or a longer one.
    pub(super) fn leased(&mut self, token: &str, asked: Moment, ttl: Duration) {
        if let Some(trace) = self.all.get_mut(token) {
            trace.lease = Some((asked, ttl));
        }
    }

    /// Whether less is left of its lease than a clock that runs as ours could have left.
    pub(super) fn has_run_fast(&self, token: &str, left: Duration, now: Moment) -> bool {
        let lease = self.all.get(token).and_then(|it| it.lease);
        // Some servers tell whole seconds only.
        let rounded = if left.subsec_nanos() == 0 { Duration::from_secs(1) } else { ROUNDED };
        lease.is_some_and(|(asked, ttl)| {
            let passed = now.since(asked);
            ttl > left.saturating_add(passed).saturating_add(passed / 100).saturating_add(rounded)
        })
    }

    /// Whether the token is wanted from now on, or given up.
    pub(super) fn give_up(&mut self, token: &str, is_given_up: bool) {
        if let Some(trace) = self.all.get_mut(token) {
            trace.is_given_up = is_given_up;
        }
    }

    /// A release of it was not answered, and may be executed until then.
    pub(super) fn release_lost(&mut self, token: &str, until: Moment) {
        if let Some(trace) = self.all.get_mut(token) {
            trace.may_end_until = trace.may_end_until.max(until);
            trace.until = trace.until.max(until);
        }
    }

    /// Whether an earlier release may end what the token has here, so that it does not count.
    pub(super) fn may_end(&self, token: &str, now: Moment) -> bool {
        self.all.get(token).is_some_and(|it| now < it.may_end_until) && !planted!(UndoForgotten)
    }

    /// The node has released it, and refuses what comes later.
    pub(super) fn released(&mut self, token: &str) {
        let Some(trace) = self.all.get_mut(token) else { return };
        if !trace.is_given_up || trace.under_way > 0 {
            return;
        }
        // What comes later the tombstone refuses.
        trace.is_in_doubt = false;
        if trace.may_end_until == Moment::START {
            self.all.remove(token);
        }
    }

    /// From now on it is brought back as that, if at all.
    pub(super) fn repair_as(&mut self, token: &str, kind: Option<Kind>) {
        if let Some(trace) = self.all.get_mut(token) {
            trace.repair_as = kind;
        }
    }

    pub(super) fn is_wanted(&self, token: &str) -> bool {
        self.all.get(token).is_some_and(|it| !it.is_given_up)
    }

    /// What it is brought back as, if that is known to be another kind than its renewals are for, or none.
    pub(super) fn other_kind(&self, token: &str, kind: Kind) -> Option<Option<Kind>> {
        let trace = self.all.get(token)?;
        (trace.repair_as != Some(kind)).then_some(trace.repair_as)
    }

    /// The command that gives the token back to a node that has lost it, if there is one. `other` is what
    /// the other nodes know.
    pub(super) fn repaired_as(&mut self, token: &str, other: Option<Option<Kind>>) -> Option<Kind> {
        let trace = self.all.get_mut(token).filter(|it| !it.is_given_up)?;
        trace.repair_as = other.unwrap_or(trace.repair_as);
        trace.repair_as
    }

    /// For how long a release has to refuse the token.
    pub(super) fn tombstone(&self, token: &str, now: Moment) -> Option<Duration> {
        let trace = self.all.get(token).filter(|it| it.is_in_doubt)?;
        let rest = trace.until.since(now);
        (!rest.is_zero()).then(|| whole_millis(rest))
    }

    /// The releases that a new connection begins with. What was never answered may be executed just now,
    /// by a server that stood still, and leave a lease that ends only then.
    pub(super) fn given_up(&mut self, may_end: Moment, now: Moment) -> Vec<Command> {
        self.all.retain(|_, it| it.until > now || it.is_in_doubt);
        for trace in self.all.values_mut() {
            // It may be another server, or one that has lost its last writes.
            trace.lease = None;
            if trace.is_in_doubt {
                trace.until = trace.until.max(may_end);
            }
        }
        let given_up = self.all.iter().filter(|(_, it)| it.is_given_up);
        given_up.map(|(token, it)| release(token, &it.names, it.kind)).collect()
    }
}

/// The release of a token that was given up.
pub(super) fn release(token: &Arc<str>, names: &Names, kind: Kind) -> Command {
    let verb = Verb::Release {
        token: Arc::clone(token),
        waited_for: true,
        keep: None,
        share: None,
        tombstone: None,
    };
    Command { names: names.clone(), kind, verb, timeout: TIMEOUT }
}

/// One view of what the nodes that have answered know. A holder is a token that may have a majority of
/// all nodes. The waiters are those of the node that knows most of them.
pub(super) fn merged(views: &[&ServerView], nodes: usize, needed: usize) -> Answer {
    let silent = nodes.saturating_sub(views.len());
    let having = |token: &str| {
        let has = |view: &&&ServerView| view.holders.iter().any(|it| &**it.token.wire() == token);
        views.iter().filter(has).count()
    };
    let may_hold = |token: &str| having(token) + silent >= needed;
    let held =
        |view: &ServerView| view.holders.iter().filter(|it| may_hold(it.token.wire())).count();
    // One that missed a downgrade shows a writer where the others show a reader.
    let alike = |kind| views.iter().filter(|view| view.kind == kind).count();
    let known = |view: &&&ServerView| (held(view), alike(view.kind), view.waiters.len());
    let Some(most) = views.iter().max_by_key(known) else {
        return Answer::Done;
    };
    let mut view = (*most).clone();
    let is_foreign = view.kind == LockKind::Foreign && view.holders.is_empty();
    view.holders.retain(|it| may_hold(it.token.wire()));
    for holder in &mut view.holders {
        // One that has granted it late has a number of its own.
        let of_it = views.iter().flat_map(|view| &view.holders);
        let of_it = of_it.filter(|it| it.token == holder.token);
        holder.fence = of_it.filter_map(|it| it.fence).max();
    }
    if view.holders.is_empty() && !is_foreign {
        (view.kind, view.foreign) = (LockKind::Free, None);
    }
    Answer::Seen(Box::new(view))
}
