//! Searches all machines for the holds of tokens, at a limited rate.

use std::collections::HashSet;
use std::time::Duration;

use crate::domain::clock::Moment;

/// The shortest time between two searches. A search looks at every lock of this process, and
/// messages may be forged.
const INTERVAL: Duration = Duration::from_millis(50);

/// The most tokens to search for at once. A hold whose token is dropped here notices by its next
/// renewal.
const MOST: usize = 1024;

/// Tokens to search for.
#[derive(Debug, Default)]
pub(super) struct Search {
    tokens: HashSet<String>,
    last: Option<Moment>,
}

impl Search {
    pub(super) fn add(&mut self, token: String) {
        if self.tokens.len() < MOST {
            self.tokens.insert(token);
        }
    }

    /// When to search.
    pub(super) fn due(&self) -> Moment {
        match self.last {
            _ if self.tokens.is_empty() => Moment::NEVER,
            Some(last) => last.after(INTERVAL),
            None => Moment::START,
        }
    }

    /// The tokens to search for now, if a search is due.
    pub(super) fn begin(&mut self, now: Moment) -> Option<HashSet<String>> {
        if self.due() > now {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_the_first_is_looked_for_at_once_and_a_flood_at_a_bounded_pace() {
        let mut search = Search::default();
        assert_eq!(search.due(), Moment::NEVER);
        let mut searches = 0;
        for now in 0..1_000 {
            search.add(format!("forged {now}"));
            searches += usize::from(search.begin(Moment::at_millis(now)).is_some());
            assert!(now > 0 || searches == 1);
        }
        assert_eq!(searches, 20);
        for number in 0..2 * MOST {
            search.add(number.to_string());
        }
        let found = search.begin(Moment::at_millis(2_000)).unwrap();
        assert_eq!(found.len(), MOST);
    }
}
