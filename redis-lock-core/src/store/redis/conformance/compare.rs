//! Whether the model and the server agree.

use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::store::Answer;
use crate::store::memory::State;

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
        let mut slots: Vec<u32> = entry.holders.iter().filter_map(|holder| holder.slot).collect();
        slots.sort_unstable();
        if slots.windows(2).any(|two| two[0] == two[1]) {
            return Err(format!("{key} has the slots {slots:?}"));
        }
    }
    Ok(())
}

pub(super) fn alike(
    kind: Kind,
    model: &Result<Answer, Fault>,
    server: &Result<Answer, Fault>,
) -> bool {
    match (model, server) {
        (Ok(Answer::Busy(one)), Ok(Answer::Busy(other))) => {
            // Of several holders whose leases end at the same time, either may be named.
            let named = matches!(kind, Kind::Read | Kind::Permit { .. } | Kind::Write)
                || one.value.as_deref()
                    == other.value.as_deref().map(|value| value.trim_end_matches('+'));
            one.ttl == other.ttl && named && one.queued == other.queued
        }
        (
            Ok(Answer::Crowded { waiting: one, left: its_left, .. }),
            Ok(Answer::Crowded { waiting: other, left, .. }),
        ) => one == other && (kind != Kind::Mutex || its_left == left),
        (Ok(Answer::Gone { .. }), Ok(Answer::Gone { .. })) => true,
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one.class == other.class,
        _ => false,
    }
}
