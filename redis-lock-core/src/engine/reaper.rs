//! Tokens on their way out.

use std::collections::HashMap;
use std::time::Duration;

use super::timers::Alarm;
use crate::LockError;
use crate::clock::Moment;
use crate::error::{Fault, FaultClass};
use crate::slot::Reap;
use crate::store::{Answer, Command, Verb};
use crate::{LossReason, Token};

/// What to do next about a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Done,
    /// It is being seen to already.
    Wait,
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
struct Reaping {
    reap: Reap,
    /// Until when a release that somebody waits for is repeated before it is told to have failed.
    patience: Moment,
    /// How often it was sent.
    tries: u32,
    /// Whether a try ended in the unknown: the next may find it done.
    unsure: bool,
    /// Whether a try is under way.
    sending: bool,
    /// When the next one is due.
    alarm: Option<Alarm>,
}

impl Reaper {
    /// `unsure` when it was tried before, with an unknown outcome.
    pub(super) fn add(&mut self, reap: Reap, unsure: bool, now: Moment) -> u64 {
        self.number = self.number.wrapping_add(1);
        let patience = now.after(reap.command.timeout);
        let reaping = Reaping { reap, patience, tries: 1, unsure, sending: true, alarm: None };
        self.open.insert(self.number, reaping);
        self.number
    }

    /// The command to send once more, unless a try is under way, and the timer that is void now.
    pub(super) fn resume(&mut self, number: u64) -> Option<(Command, Option<Alarm>)> {
        let reaping = self.open.get_mut(&number).filter(|reaping| !reaping.sending)?;
        reaping.sending = true;
        Some((reaping.reap.command.clone(), reaping.alarm.take()))
    }

    /// Notes when the next try is due.
    pub(super) fn pause(&mut self, number: u64, alarm: Alarm) {
        if let Some(reaping) = self.open.get_mut(&number) {
            reaping.alarm = Some(alarm);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether every release that was asked for has been answered at least once.
    pub(super) fn is_settled(&self) -> bool {
        self.open.values().all(|reaping| reaping.reap.doubtful && reaping.tries > 1)
    }

    /// Those that wait for their next try.
    pub(super) fn pausing(&self) -> Vec<u64> {
        let waits = |(number, reaping): (&u64, &Reaping)| (!reaping.sending).then_some(*number);
        self.open.iter().filter_map(waits).collect()
    }

    /// The answer to a release.
    pub(super) fn answered(
        &mut self,
        number: u64,
        answer: &Result<Answer, Fault>,
        now: Moment,
    ) -> Next {
        let Some(reaping) = self.open.get_mut(&number) else { return Next::Done };
        reaping.sending = false;
        if answer.is_err() && reaping.alarm.is_some() {
            // The answer to an earlier try came late; the next try is set already.
            return Next::Wait;
        }
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
                let outcome = outcome(&self.reap, answer, self.unsure);
                self.reap.tell(outcome);
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
                // A new connection may be a moment away, and then the answer is a good one.
                if now < self.patience {
                    return Next::SendAt(now.after(Duration::from_millis(20)).min(self.patience));
                }
                self.fail(fault);
            }
            Err(fault) => {
                self.unsure |= fault.class.is_unknown();
                self.fail(fault);
            }
        }
        if now < self.reap.until {
            Next::SendAt(now.after(pause(self.tries, Duration::from_millis(500))))
        } else {
            Next::Done
        }
    }

    fn fail(&mut self, fault: &Fault) {
        let key = self.reap.key();
        self.reap.tell(Err(LockError::backend(Some(&key), fault)));
    }
}

impl Reap {
    /// The only try that was needed has been answered.
    pub(super) fn settle(mut self, answer: &Answer) {
        let outcome = outcome(&self, answer, false);
        self.tell(outcome);
    }

    /// The same in the long form, where the short one found that somebody may be waiting.
    pub(super) fn for_waiters(mut self, waited_for: bool) -> Self {
        if let Verb::Release { waited_for: known, .. } = &mut self.command.verb {
            *known |= waited_for;
        }
        self
    }

    fn tell(&mut self, outcome: Result<(), LockError>) {
        if let Some(confirm) = self.confirm.take() {
            // Whoever asked may have left.
            let _ = confirm.send(outcome);
        }
    }

    fn key(&self) -> String {
        self.command.names.user_key().to_owned()
    }
}

/// What the answer to a release means for whoever asked for it.
fn outcome(reap: &Reap, answer: &Answer, unsure: bool) -> Result<(), LockError> {
    let Answer::Gone { by, because } = answer else { return Ok(()) };
    // Gone after a try whose answer was lost: that try did it.
    if unsure && by.is_none() {
        return Ok(());
    }
    let reason = match by {
        Some(by) => LossReason::Overwritten { by: Token::from_wire(by) },
        None => LossReason::Removed { because: because.clone() },
    };
    Err(LockError::Lost { key: reap.key(), reason })
}

fn pause(tries: u32, most: Duration) -> Duration {
    (Duration::from_millis(25) * (1 << tries.min(6))).min(most)
}
