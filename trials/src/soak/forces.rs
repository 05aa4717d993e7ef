use std::time::Duration;

use super::LONGEST_TTL;
use super::clock::nanos;

/// A question without an answer may be executed so much later: it has crossed the network by then.
const LATE: Duration = Duration::from_secs(10);

/// When holds were ended by force, in nanoseconds of the boot clock.
#[derive(Debug, Default)]
pub(crate) struct Forces {
    spans: Vec<ForcedTime>,
}

/// Whatever has the key in this time may be ended.
#[derive(Debug)]
struct ForcedTime {
    key: u64,
    from: u64,
    until: u64,
}

impl Forces {
    /// An operator asks for it. Whether it had an effect, no answer may ever say.
    pub(crate) fn begin(&mut self, key: u64, from: u64) {
        self.spans.push(ForcedTime { key, from, until: from.saturating_add(nanos(LATE)) });
    }

    /// What began at `from` has had its effect by this time, or has none.
    pub(crate) fn end(&mut self, key: u64, from: u64, until: Option<u64>) {
        let is_it = |span: &ForcedTime| (span.key, span.from) == (key, from);
        match until {
            Some(until) => {
                self.spans.iter_mut().filter(|span| is_it(span)).for_each(|it| it.until = until);
            }
            None => self.spans.retain(|span| !is_it(span)),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.spans.len()
    }

    /// Whether holders of a key may believe in their holds at this time although these were ended. A message
    /// may be lost, but no renewal makes the lease longer. Such a hold may even begin later than it was ended:
    /// its grant is still on its way, or is passed on within the process.
    pub(crate) fn are_believed_in(&self, key: u64, now: u64) -> bool {
        let longest = nanos(LONGEST_TTL);
        self.spans.iter().any(|span| {
            span.key == key && (span.from..=span.until.saturating_add(longest)).contains(&now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_key_may_believe_in_its_hold_for_a_lease() {
        let longest = nanos(LONGEST_TTL);
        let mut forces = Forces::default();
        forces.begin(1, 100);
        forces.end(1, 100, Some(200));
        assert!(forces.are_believed_in(1, 100) && forces.are_believed_in(1, 200 + longest));
        assert!(!forces.are_believed_in(2, 150), "another key");
        assert!(!forces.are_believed_in(1, 99), "no operator had forced it yet");
        assert!(!forces.are_believed_in(1, 201 + longest), "its lease must be over");
    }

    #[test]
    fn what_has_no_answer_may_be_executed_later() {
        let (late, longest) = (nanos(LATE), nanos(LONGEST_TTL));
        let mut forces = Forces::default();
        forces.begin(1, 100);
        assert!(forces.are_believed_in(1, 100 + late + longest));
        assert!(!forces.are_believed_in(1, 101 + late + longest));
        forces.begin(1, 300);
        forces.end(1, 100, None);
        assert!(!forces.are_believed_in(1, 299), "it was free");
        assert_eq!((forces.count(), forces.are_believed_in(1, 300)), (1, true));
    }
}
