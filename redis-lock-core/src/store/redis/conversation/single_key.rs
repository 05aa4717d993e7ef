//! Commands for a node that refuses several keys at once.
//!
//! While a slot is half moved, a node serves scripts whose keys are all there, and scripts with one
//! key. So a holder of a shared lock keeps and frees it by the key of the lock alone.

use redis::{Cmd, Value};

use super::{Step, forgetful};
use crate::domain::error::{Fault, FaultClass};
use crate::store::redis::decode;
use crate::store::redis::encode::{self, ScriptCall};
use crate::store::{Answer, Command, Verb};

/// A script that is given the lock's key alone.
pub(in crate::store::redis) struct Alone {
    call: ScriptCall,
    in_full: bool,
    /// Whether it is sent where the slot goes.
    asking: bool,
}

impl Alone {
    /// What to send after this reply.
    pub(super) fn after(value: &Value, command: &Command, asking: bool) -> Option<Self> {
        if !decode::is_half_moved(value) {
            return None;
        }
        Some(Self { call: encode::alone(command)?, in_full: false, asking })
    }

    pub(super) fn cmd(&self) -> Cmd {
        if self.in_full { self.call.in_full() } else { self.call.by_hash() }
    }

    pub(super) fn interpret(
        self,
        command: &Command,
        value: Value,
    ) -> Result<Result<Answer, Fault>, Step> {
        let Some(answer) = decode::script(&command.verb, value) else {
            let again = Self { in_full: true, ..self };
            return if self.in_full { Ok(Err(forgetful())) } else { Err(Step::Alone(again)) };
        };
        let is_release = matches!(command.verb, Verb::Release { .. });
        Ok(match answer {
            Ok(Answer::Done) if is_release => Ok(Answer::Freed),
            // Where the slot goes, a lock is missing also when it has not come yet. And what is to be
            // released may be a place in the queue.
            Ok(Answer::Gone { .. }) if is_release || self.asking => Err(on_its_way()),
            answer => answer,
        })
    }
}

fn on_its_way() -> Fault {
    let what =
        "the slot of this key is being moved to another node, and its keys are in two places";
    Fault::new(FaultClass::Moving, what)
}
