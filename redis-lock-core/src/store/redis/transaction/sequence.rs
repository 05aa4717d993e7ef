//! Runs the commands of one key one after the other.

use std::collections::{HashMap, VecDeque};

use crate::store::{Command, Verb};

/// The running command of one key, and those that wait for it.
#[derive(Debug, Default)]
struct Line {
    /// The number of the command that runs.
    running: u64,
    waiting: VecDeque<(u64, Command)>,
}

/// The running and waiting commands of all keys.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    lines: HashMap<Box<str>, Line>,
    /// The running commands, by their numbers.
    running: HashMap<u64, Command>,
}

impl Sequence {
    /// The command if it may run now; it is kept otherwise.
    pub(crate) fn begin(&mut self, seq: u64, command: Command) -> Option<Command> {
        if is_of_no_key(&command) {
            return Some(command);
        }
        match self.lines.get_mut(command.names.main()) {
            Some(line) => {
                line.waiting.push_back((seq, command));
                None
            }
            None => {
                let line = Line { running: seq, waiting: VecDeque::new() };
                self.lines.insert(command.names.main().into(), line);
                self.running.insert(seq, command.clone());
                Some(command)
            }
        }
    }

    /// The command that runs by this number, unless it is of no key.
    pub(crate) fn running(&self, seq: u64) -> Option<&Command> {
        self.running.get(&seq)
    }

    /// The outcome of a command is unknown, and it may still be executed. Takes out the commands of its
    /// key that rely on coming after it.
    pub(crate) fn abandon(&mut self, seq: u64) -> impl Iterator<Item = u64> + use<> {
        let abandoned = self.running.remove(&seq);
        let line = abandoned.and_then(|command| self.lines.remove(command.names.main()));
        line.into_iter().flat_map(|line| line.waiting).map(|(seq, _)| seq)
    }

    /// A command is done with; returns the next one of its key.
    pub(crate) fn end(&mut self, seq: u64) -> Option<(u64, Command)> {
        let ended = self.running.remove(&seq)?;
        let key = ended.names.main();
        let line = self.lines.get_mut(key)?;
        debug_assert_eq!(line.running, seq, "one runs at a time");
        let Some((seq, command)) = line.waiting.pop_front() else {
            self.lines.remove(key);
            return None;
        };
        line.running = seq;
        self.running.insert(seq, command.clone());
        Some((seq, command))
    }
}

/// Whether a command belongs to no key, so that its order makes no difference.
fn is_of_no_key(command: &Command) -> bool {
    matches!(command.verb, Verb::Ping | Verb::Scan { .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;

    fn check(key: &str) -> Command {
        let names = Names::new("", key);
        let verb = Verb::Check { token: "t".into() };
        Command { names, kind: Kind::Mutex, verb, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn commands_of_one_key_follow_each_other_and_others_do_not_wait() {
        let mut sequence = Sequence::default();
        assert!(sequence.begin(1, check("a")).is_some());
        assert!(sequence.begin(2, check("a")).is_none());
        assert!(sequence.begin(3, check("a")).is_none());
        assert!(sequence.begin(4, check("b")).is_some());
        assert_eq!(sequence.end(1).map(|(seq, _)| seq), Some(2));
        assert!(sequence.begin(5, check("a")).is_none(), "the last comes last");
        assert_eq!(sequence.end(2).map(|(seq, _)| seq), Some(3));
        assert_eq!(sequence.end(3).map(|(seq, _)| seq), Some(5));
        assert!(sequence.end(5).is_none());
        assert!(sequence.end(4).is_none());
        assert!(sequence.lines.is_empty() && sequence.running.is_empty());
    }

    #[test]
    fn what_relies_on_an_unknown_outcome_goes_with_it_and_nothing_else_does() {
        let mut sequence = Sequence::default();
        for (seq, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "b")] {
            sequence.begin(seq, check(key));
        }
        assert_eq!(sequence.abandon(1).collect::<Vec<_>>(), [2, 4]);
        assert!(sequence.begin(6, check("a")).is_some(), "what comes later is asked");
        assert_eq!(sequence.end(3).map(|(seq, _)| seq), Some(5));
        assert!(sequence.end(6).is_none() && sequence.end(5).is_none());
        assert!(sequence.lines.is_empty() && sequence.running.is_empty());
    }
}
