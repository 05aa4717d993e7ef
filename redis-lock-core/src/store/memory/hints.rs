//! The messages that follow from an executed command, apart from those about grants.

use crate::Token;
use crate::store::{Answer, Blocker, Command, Event, Verb};

/// The message that follows from an answer, and the name of the manager that it is for.
pub(crate) fn hint_of(command: &Command, answer: &Answer) -> Option<(String, Event)> {
    let manager = |value: &str| Token::from_wire(value).manager().map(ToOwned::to_owned);
    let key = || command.names.main().to_owned();
    match (&command.verb, answer) {
        (Verb::Acquire(terms), Answer::Busy(Blocker { value: Some(holder), asked: true, .. })) => {
            let token = terms.token.to_string();
            Some((manager(holder)?, Event::Asked { key: key(), token }))
        }
        (Verb::Acquire(_), Answer::Busy(Blocker { value: Some(holder), queued: true, .. })) => {
            Some((manager(holder)?, Event::WaitedFor { key: key() }))
        }
        (Verb::InUse { asker }, Answer::Done) => {
            let token = asker.to_string();
            Some((manager(asker)?, Event::Granted { token, waited_for: false }))
        }
        _ => None,
    }
}
