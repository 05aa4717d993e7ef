//! Commands for keys of several slots: sends their parts, and combines the outcomes.

use std::sync::Arc;

use super::core::{Core, Work};
use super::path::{Gathering, PartEntry, QueueEntry, Settled};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::lock::Outcome;
use crate::store::redis::NextPart;

/// Why a part is not sent any more.
pub(super) const UNWANTED: &str = "no caller wants the lock any more";

impl Core {
    /// An entry, or its parts where its keys have several slots.
    pub(super) fn parts(
        &self,
        main: &Arc<str>,
        entry: QueueEntry,
        now: Moment,
        settled: &mut Vec<Settled>,
    ) -> Vec<PartEntry> {
        match self.places.cluster() {
            Some(cluster) if entry.is_split() => {
                if let Some((names, token)) = entry.first_release() {
                    // Its parts may be anywhere until all are answered.
                    self.reaper().goes_to(&names, &token, None);
                }
                let (parts, outcome) = Gathering::begin(entry, now, cluster);
                settled.extend(outcome);
                parts
            }
            _ => vec![(Arc::clone(main), entry)],
        }
    }

    /// A part has its outcome.
    pub(super) fn gather(
        &self,
        gathering: &Arc<Gathering>,
        group: usize,
        outcome: Outcome,
        work: &mut Work,
    ) {
        match gathering.answered(group, outcome) {
            None => {}
            Some(NextPart::Done(answer)) => work.settled.extend(gathering.settle(answer)),
            Some(NextPart::Ask(_)) if !self.is_wanted(gathering) => {
                // Its token is being released; another round would overtake the release.
                let dropped = Err(Fault::new(FaultClass::Refused, UNWANTED));
                work.settled.extend(gathering.settle(dropped));
            }
            Some(NextPart::Ask(parts)) => {
                for (main, entry) in gathering.entries(parts) {
                    let place = self.places.of(&main);
                    self.put_at(&place, entry, work);
                }
            }
        }
    }

    pub(super) fn is_wanted(&self, gathering: &Gathering) -> bool {
        let Some(asked_by) = gathering.asked_by() else { return false };
        asked_by.is_none_or(|(id, number)| {
            let shard = self.table.shard(&id.main);
            shard.get(&id).is_some_and(|resident| resident.machine.wants(number))
        })
    }
}
