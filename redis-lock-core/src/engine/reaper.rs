//! Tokens on their way out.

use std::collections::HashMap;
use std::time::Duration;

use crate::LockError;
use crate::clock::Moment;
use crate::error::{Fault, FaultClass};
use crate::slot::Reap;
use crate::store::Answer;
use crate::{LossReason, Token};

/// What to do next about a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Done,
    SendNow,
    SendAt(Moment),
}

/// Tokens whose release was sent and not confirmed, or must be repeated because an acquisition of
/// them may still be on its way.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    open: HashMap<u64, Reaping>,
    number: u64,
}

#[derive(Debug)]
pub(super) struct Reaping {
    pub(super) reap: Reap,
    /// How often it was sent.
    tries: u32,
    /// Whether a try ended in the unknown: the next may find it done.
    unsure: bool,
}

impl Reaper {
    pub(super) fn add(&mut self, reap: Reap) -> u64 {
        self.number = self.number.wrapping_add(1);
        self.open.insert(self.number, Reaping { reap, tries: 1, unsure: false });
        self.number
    }

    pub(super) fn get(&self, number: u64) -> Option<&Reaping> {
        self.open.get(&number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether every release that was asked for has been answered at least once.
    pub(super) fn is_settled(&self) -> bool {
        self.open.values().all(|reaping| reaping.reap.doubtful && reaping.tries > 1)
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// The answer to a release.
    pub(super) fn answered(
        &mut self,
        number: u64,
        answer: &Result<Answer, Fault>,
        now: Moment,
    ) -> Next {
        let Some(reaping) = self.open.get_mut(&number) else { return Next::Done };
        let next = reaping.next(answer, now);
        if next == Next::Done {
            self.open.remove(&number);
        } else {
            reaping.tries += 1;
        }
        next
    }
}

impl Reaping {
    fn next(&mut self, answer: &Result<Answer, Fault>, now: Moment) -> Next {
        match answer {
            Ok(answer) => {
                let outcome = self.outcome(answer);
                self.tell(outcome);
                // The acquisition may be overtaken by its release, so look again until its lease
                // would have ended anyway.
                if self.reap.doubtful && now < self.reap.until {
                    return Next::SendAt(now.after(pause(self.tries, Duration::from_secs(1))));
                }
                return Next::Done;
            }
            Err(fault) if fault.class == FaultClass::Unknown => {
                self.unsure = true;
                // A connection that was cut while idle answers the first command with its end.
                if self.tries == 1 {
                    return Next::SendNow;
                }
                self.fail(fault);
            }
            Err(fault) => self.fail(fault),
        }
        if now < self.reap.until {
            Next::SendAt(now.after(pause(self.tries, Duration::from_millis(500))))
        } else {
            Next::Done
        }
    }

    fn outcome(&self, answer: &Answer) -> Result<(), LockError> {
        let Answer::Gone { by, because } = answer else { return Ok(()) };
        // Gone after a try whose answer was lost: that try did it.
        if self.unsure && by.is_none() {
            return Ok(());
        }
        let reason = match by {
            Some(by) => LossReason::Overwritten { by: Token::from_wire(by) },
            None => LossReason::Removed { because: because.clone() },
        };
        Err(LockError::Lost { key: self.key(), reason })
    }

    fn tell(&mut self, outcome: Result<(), LockError>) {
        if let Some(confirm) = self.reap.confirm.take() {
            // Whoever asked may have left.
            let _ = confirm.send(outcome);
        }
    }

    fn fail(&mut self, fault: &Fault) {
        let key = self.key();
        self.tell(Err(LockError::backend(Some(&key), fault)));
    }

    fn key(&self) -> String {
        self.reap.command.names.user_key().to_owned()
    }
}

fn pause(tries: u32, most: Duration) -> Duration {
    (Duration::from_millis(25) * (1 << tries.min(6))).min(most)
}
