//! Splits one command for keys of several slots into parts for the places that have them.

use std::sync::{Arc, Mutex};

use super::entry::{QueueEntry, Settled};
use super::in_hand::InHand;
use super::origin::{Gathered, Gathering, Origin};
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::lock::Outcome;
use crate::store::Answer;
use crate::store::redis::{ClusterMode, NextPart, Part, Split};

/// A part, and the key that decides where it goes.
pub(crate) type PartEntry = (Arc<str>, QueueEntry);

impl Gathering {
    /// Splits an entry for keys of several slots into parts. There may be an outcome at once.
    pub(crate) fn begin(
        mut entry: QueueEntry,
        now: Moment,
        cluster: &Arc<ClusterMode>,
    ) -> (Vec<PartEntry>, Option<Settled>) {
        if let Origin::Reap(reap) = &mut entry.origin {
            // Its parts may go to other queues than those of the acquisition that it undoes.
            reap.doubt_dropped(now);
        }
        let Some(command) = entry.take_command(now) else { return (Vec::new(), None) };
        let (split, next) = Split::start(&command, cluster);
        let (sent, deadline) = (entry.sent, entry.deadline());
        let origin = Some(entry.into_sent().origin);
        let gathered = Gathered { split, origin, sent, deadline };
        let gathering = Arc::new(Self(Mutex::new(gathered)));
        match next {
            NextPart::Ask(parts) => (gathering.entries(parts), None),
            NextPart::Done(answer) => (Vec::new(), gathering.settle(answer)),
        }
    }

    pub(crate) fn entries(self: &Arc<Self>, parts: Vec<Part>) -> Vec<PartEntry> {
        let (sent, deadline) = {
            let gathered = self.gathered();
            (gathered.sent, gathered.deadline)
        };
        let entry = |part: Part| {
            let main = part.command.names.shared_main();
            let times = (sent, deadline);
            (main, QueueEntry::part(Arc::clone(self), part.group, part.command, times))
        };
        parts.into_iter().map(entry).collect()
    }

    pub(crate) fn settle(&self, answer: Result<Answer, Fault>) -> Option<Settled> {
        let mut gathered = self.gathered();
        let (origin, sent) = (gathered.origin.take()?, gathered.sent);
        let outcome = match answer {
            Ok(answer) => Outcome::Answered(answer),
            Err(fault) if fault.class.is_unknown() => Outcome::Unknown(fault),
            Err(fault) => Outcome::Refused(fault),
        };
        Some(Settled::Done { origin, sent, outcome, hand: InHand::default() })
    }
}
