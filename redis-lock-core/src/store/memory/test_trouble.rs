//! Lets the model behave like a server that refuses commands for a while, or loses its data.

use std::sync::Arc;

use super::{State, Tell};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Answer, Command, Verb};

/// Why a server refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// It is not the primary.
    ReadOnly,
    /// It has too few replicas to write.
    NoReplicas,
    /// It is full.
    OutOfMemory,
    /// It is loading its data.
    Loading,
}

impl State {
    /// Executes a command while there is trouble. What is refused changes nothing.
    pub(crate) fn answer_in(
        &mut self,
        trouble: Option<Trouble>,
        command: &Command,
        manager: &Arc<str>,
        now: Moment,
        tell: Tell<'_>,
    ) -> Result<Answer, Fault> {
        let Some(trouble) = trouble else { return self.answer(command, manager, now, tell) };
        // No message is sent before it is certain that the command is not refused.
        let mut trial = self.clone();
        let answer = trial.answer(command, manager, now, &mut |to, _| tell(to, None));
        if self.refuses(trouble, command, &answer, &trial, now) {
            let code = match trouble {
                Trouble::ReadOnly => "READONLY",
                Trouble::NoReplicas => "NOREPLICAS",
                Trouble::OutOfMemory => "OOM",
                Trouble::Loading => "LOADING",
            };
            return Err(Fault::new(FaultClass::Refused, format!("the server refused: {code}")));
        }
        self.answer(command, manager, now, tell)
    }

    /// Forgets everything, like a server that restarts without its data. After a restart with its
    /// data, a server has all that has not expired by then.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn refuses(
        &mut self,
        trouble: Trouble,
        command: &Command,
        answer: &Result<Answer, Fault>,
        after: &Self,
        now: Moment,
    ) -> bool {
        let take = matches!(command.verb, Verb::Take { .. });
        match trouble {
            Trouble::Loading => true,
            // An acquisition writes even when the answer is "busy", and so do all commands for
            // locks that several can hold.
            Trouble::ReadOnly | Trouble::NoReplicas => {
                let asks = matches!(command.verb, Verb::Acquire(_));
                let refused = |answer: &Answer| {
                    matches!(
                        answer,
                        Answer::Busy(_) | Answer::Crowded { .. } | Answer::Superseded { .. }
                    )
                };
                let busy = asks && answer.as_ref().is_ok_and(refused);
                let shared = !matches!(command.kind, Kind::Mutex | Kind::All { .. });
                let held = shared && matches!(answer, Ok(Answer::Held { .. }));
                take || busy
                    || held
                    || self.shown(command, now) != after.clone().shown(command, now)
            }
            // A full server still renews and releases.
            Trouble::OutOfMemory => {
                let held = matches!(answer, Ok(Answer::Held { .. }));
                let had = command.verb.token().is_some_and(|token| {
                    let mut all = command.names.all();
                    all.any(|names| self.entry(names.main(), now).has(token))
                });
                take || held && !had || matches!(command.verb, Verb::Raise { .. })
            }
        }
    }

    /// The state of all keys of a command, as text.
    fn shown(&mut self, command: &Command, now: Moment) -> String {
        let entries =
            command.names.all().map(|names| format!("{:?}", self.entry(names.main(), now)));
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::names::Names;

    fn command(verb: Verb) -> Command {
        let names = Names::new("", "k");
        Command { names, kind: Kind::Mutex, verb, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn a_full_server_takes_no_lock_more_and_gives_up_those_it_has() {
        let (mut state, now) = (State::default(), Moment::at_millis(1_000));
        let mut ask = |trouble, verb, now| {
            state.answer_in(trouble, &command(verb), &"m".into(), now, &mut |_, _| true)
        };
        let take =
            |token: &str| Verb::Take { token: token.into(), ttl: Some(Duration::from_secs(9)) };
        ask(None, take("a"), now).unwrap();
        let full = Some(Trouble::OutOfMemory);
        assert!(ask(full, take("b"), now).unwrap_err().what.contains("OOM"));
        assert!(ask(Some(Trouble::Loading), Verb::Look, now).is_err());
        let token: Arc<str> = "a".into();
        let release =
            Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
        assert_eq!(ask(full, release, now).unwrap(), Answer::Done);
        assert!(ask(full, take("b"), now).is_err());
        ask(None, take("b"), now).unwrap();
        // Setting the clock back ends no lease.
        assert!(matches!(ask(None, take("c"), Moment::at_millis(1)), Ok(Answer::Busy(_))));
        state.clear();
        assert!(state.entries.is_empty());
    }
}
