//! Each loss needs a reason, and each lease that ends an excuse.

use std::time::Duration;

use super::World;
use crate::simulation::books::HoldNote;
use crate::simulation::planned_trouble::{PlannedTrouble, Refusal};
use crate::simulation::server::nanos;
use crate::simulation::stay::Left;
use crate::{LockState, LossReason};

impl World {
    /// A hold ends only for one of the known reasons.
    pub(super) fn check_loss(&self, note: &HoldNote) {
        if note.loss_seen.get() || note.hold.last_state() != LockState::Lost {
            return;
        }
        note.loss_seen.set(true);
        let now = self.process_now(note.process);
        if self.lost_by_moves(note, now) {
            return self
                .violated("a hold was lost although nothing was wrong but that slots moved");
        }
        let process = &self.processes[note.process];
        let left = self.server.tokens.get(note.hold.token.wire()).and_then(|token| token.left);
        let is_true = match note.hold.quiet_loss(now) {
            Some(LossReason::Expired) => {
                if !self.may_expire(note) {
                    let what = format!("a lease of p{} ended, and nothing was wrong", note.process);
                    return self.violated(what);
                }
                now >= note.hold.deadline()
            }
            Some(LossReason::HoldLimit) => now >= note.hold.limit(),
            Some(_) => self.is_excused(note) || left == Some(Left::Expired) || process.is_closing,
            None => true,
        };
        if !is_true {
            self.violated(format!("a hold of p{} was lost for no reason", note.process));
        }
    }

    /// Whether something explains that a lease ended before it was renewed. Where nothing goes wrong, one
    /// that is renewed and lasts for several round trips does not.
    fn may_expire(&self, note: &HoldNote) -> bool {
        let (plan, path) = (&self.plan, &self.plan.path);
        // A full server renews what is held.
        let is_full = |(_, trouble): &(u64, PlannedTrouble)| {
            matches!(trouble, PlannedTrouble::Refuse { why: Refusal::OutOfMemory, .. })
        };
        let is_calm = plan.troubles.iter().all(is_full) && !self.is_hold_disturbed(note);
        let answers = path.slow + path.rounds + path.unconfirmed == 0
            && path.late_transactions.is_none()
            && plan.nodes.is_none()
            && !path.replaces;
        let (ttl, is_adopted) = (note.hold.demand.terms.ttl, note.hold.demand.adopts.is_some());
        let round_trips = Duration::from_nanos(16 * path.latency + 8 * path.sluggish);
        let lasts = ttl.is_none_or(|ttl| ttl > round_trips);
        let is_closing = self.processes[note.process].is_closing;
        let renews = note.hold.demand.terms.renew;
        !is_calm || !answers || !lasts || !renews || is_adopted || is_closing
    }
    /// Whether a message that deviated may have kept a lease from being renewed. A lease that was idle, or another
    /// caller's, is older than the hold.
    pub(super) fn is_hold_disturbed(&self, note: &HoldNote) -> bool {
        let began = self.processes[note.process].clock.when(note.hold.since);
        let age = note.hold.demand.terms.ttl.map_or(u64::MAX, nanos);
        self.is_disturbed(note.process, began.saturating_sub(age))
    }
}
