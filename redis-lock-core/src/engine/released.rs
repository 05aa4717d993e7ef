//! Recent releases, for servers that never received them.
//!
//! A primary answers before its replica has received the release. If it fails a moment later, the
//! replica that replaces it still has the lock, which would stay until its lease ends. So recent
//! releases are repeated whenever a server has left the map.

use std::collections::{BTreeMap, VecDeque};

use super::places::PlaceId;
use crate::domain::clock::Moment;
use crate::lock::Reap;

/// The most releases that are remembered of each place. They are counted for each place, because a
/// failure is noticed only seconds later, and releases at other places must not displace those of
/// the failed one. A replica is only milliseconds behind.
const MOST: usize = 512;

/// Releases that were answered, in that order, until the leases of their tokens would have ended.
#[derive(Debug, Default)]
pub(crate) struct Released(BTreeMap<PlaceId, VecDeque<Box<Reap>>>);

impl Released {
    pub(crate) fn add(&mut self, place: PlaceId, reap: Box<Reap>, now: Moment) {
        let lately = self.0.entry(place).or_default();
        if lately.len() == MOST {
            lately.pop_front();
        }
        while lately.front().is_some_and(|first| first.gone_by() <= now) {
            lately.pop_front();
        }
        if reap.gone_by() > now {
            lately.push_back(reap);
        }
    }

    /// Takes out the releases whose tokens some server may still have, whichever place answered
    /// them, because a slot may have been moved at that time.
    pub(crate) fn take(&mut self, now: Moment) -> impl Iterator<Item = Box<Reap>> + use<> {
        let all = std::mem::take(&mut self.0).into_values().flatten();
        all.filter(move |reap| reap.gone_by() > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::demand::tests::demand;
    use crate::lock::tests::Bench;
    use crate::lock::{Next, Outcome};
    use crate::store::{Answer, Verb};

    /// A release of a lease of 30 s that was answered at this time, in milliseconds.
    fn answered(millis: u64) -> Box<Reap> {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k"));
        let _told = bench.release(&hold);
        let at = Moment::at_millis(millis);
        match bench.released().take().outcome(Outcome::Answered(Answer::Done), at, at).1 {
            Next::Done(reap) => reap,
            next @ Next::Again(..) => panic!("{next:?}"),
        }
    }

    fn token(reap: &Reap) -> String {
        let Verb::Release { token, .. } = reap.command(Moment::START).verb else { panic!() };
        token.to_string()
    }

    #[test]
    fn what_was_released_is_remembered_until_its_lease_would_have_ended() {
        let mut released = Released::default();
        let (first, second) = (answered(1_000), answered(20_000));
        let end = first.gone_by();
        assert!(end >= Moment::at_millis(31_000) && end <= Moment::at_millis(33_000), "{end:?}");
        let expected = token(&second);
        released.add(1, first, Moment::at_millis(1_000));
        released.add(1, second, Moment::at_millis(20_000));
        let left: Vec<_> = released.take(end).collect();
        assert_eq!(left.iter().map(|reap| token(reap)).collect::<Vec<_>>(), [expected]);
        assert_eq!(released.take(Moment::START).count(), 0, "they were taken out");
        released.add(1, answered(1_000), end);
        assert_eq!(released.take(Moment::START).count(), 0, "its lease is over already");
    }

    #[test]
    fn the_last_of_many_are_remembered() {
        let (mut released, now) = (Released::default(), Moment::at_millis(1_000));
        let mut tokens = Vec::new();
        for _ in 0..MOST + 3 {
            let reap = answered(1_000);
            tokens.push(token(&reap));
            released.add(1, reap, now);
        }
        let elsewhere = answered(1_000);
        tokens.push(token(&elsewhere));
        released.add(2, elsewhere, now);
        let kept: Vec<_> = released.take(now).map(|reap| token(&reap)).collect();
        assert_eq!(kept, tokens[3..], "one place pushes out nothing of another");
    }

    #[test]
    fn one_that_is_repeated_holds_up_no_shutdown_and_is_remembered_again_for_no_longer() {
        let reap = answered(1_000);
        let end = reap.gone_by();
        let reap = reap.repeated();
        assert!(reap.was_answered() && !reap.is_awaited());
        let at = Moment::at_millis(20_000);
        let gone = Outcome::Answered(Answer::Gone { by: None, because: None });
        match reap.outcome(gone, at, at) {
            (None, Next::Done(reap)) => assert_eq!(reap.gone_by(), end),
            other => panic!("{other:?}"),
        }
    }
}
