//! Whether the model and the server agree.

use std::collections::BTreeSet;

use super::seen::Window;
use crate::domain::error::Fault;
use crate::domain::kind::Kind;
use crate::store::Answer;
use crate::store::memory::State;
use crate::store::memory::entry::Entry;

/// A text by which states are compared.
pub(super) fn shape(state: &State) -> String {
    let mut keys: Vec<_> = state.entries.iter().collect();
    keys.sort_by_key(|(key, _)| *key);
    let show = |(key, entry): &(&String, &Entry)| {
        let holders: BTreeSet<_> = entry
            .holders
            .iter()
            .map(|holder| (&holder.token[30..36], format!("{:?}", holder.kind)))
            .collect();
        let queue: Vec<_> = entry.queue.iter().map(|waiter| &waiter.token[30..36]).collect();
        format!("{key}: {holders:?} then {queue:?}")
    };
    keys.iter().map(show).collect::<Vec<_>>().join("; ")
}

/// Checks that the holders of each lock may hold it together.
pub(super) fn exclusive(state: &State) -> Result<(), String> {
    for (key, entry) in &state.entries {
        let kinds: Vec<Kind> = entry.holders.iter().map(|holder| holder.kind).collect();
        let count = kinds.len();
        let fits = kinds.iter().all(|kind| match kind {
            Kind::Mutex | Kind::Write | Kind::All { .. } => count == 1,
            Kind::Read => kinds.iter().all(|kind| *kind == Kind::Read),
            Kind::Permit { limit } => count <= *limit as usize,
        });
        if !fits {
            return Err(format!("{key} is held by {kinds:?}"));
        }
    }
    Ok(())
}

pub(super) fn alike(
    kind: Kind,
    model: &Result<Answer, Fault>,
    server: &Result<Answer, Fault>,
    window: Window,
) -> bool {
    match (model, server) {
        (Ok(Answer::Held { fence: one }), Ok(Answer::Held { fence: other })) => {
            // The numbers themselves are compared with those that the counters show.
            one.is_some() == other.is_some()
        }
        (Ok(Answer::Busy(one)), Ok(Answer::Busy(other))) => {
            let close = match (one.ttl, other.ttl) {
                (Some(one), Some(other)) => one.abs_diff(other) <= window.tolerance(),
                (None, None) => true,
                _ => false,
            };
            // Of several holders whose leases end at about the same time, either may be named.
            let named = matches!(kind, Kind::Read | Kind::Permit { .. } | Kind::Write)
                || one.value.as_deref()
                    == other.value.as_deref().map(|value| value.trim_end_matches('+'));
            close && named && one.queued == other.queued
        }
        (
            Ok(Answer::Renewed { longer: one, waited_for }),
            Ok(Answer::Renewed { longer: other, waited_for: marked }),
        ) => {
            let close = match (one, other) {
                (Some(one), Some(other)) => one.abs_diff(*other) <= window.tolerance(),
                (None, None) => true,
                _ => false,
            };
            close && waited_for == marked
        }
        (Ok(Answer::Crowded { waiting: one, .. }), Ok(Answer::Crowded { waiting: other, .. })) => {
            one == other
        }
        (Ok(Answer::Gone { .. }), Ok(Answer::Gone { .. })) => true,
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one.class == other.class,
        _ => false,
    }
}
