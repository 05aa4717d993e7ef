//! Tokens that the engine remembers: recent releases, and holds that were ended by force.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use super::places::PlaceId;
use crate::domain::clock::Moment;
use crate::lock::Reap;

/// The most releases that are remembered of each place. They are counted for each place, because a
/// failure is noticed only seconds later, and releases at other places must not displace those of
/// the failed one. A replica is only milliseconds behind.
const MOST: usize = 512;

/// Releases that were answered, in that order, until the leases of their tokens would have ended. By
/// the place that had their first key.
#[derive(Debug, Default)]
pub(crate) struct Released(BTreeMap<PlaceId, VecDeque<Answered>>);

#[derive(Debug)]
struct Answered {
    reap: Box<Reap>,
    /// The places that had the other keys; none where all keys have one slot.
    others: Vec<PlaceId>,
}

impl Answered {
    /// Whether one of its keys is at another place than when it was answered.
    fn has_moved(&self, first: PlaceId, place_of: &impl Fn(&str) -> PlaceId) -> bool {
        let places = std::iter::once(first).chain(self.others.iter().copied());
        self.reap.names().all().zip(places).any(|(names, place)| place_of(names.main()) != place)
    }
}

impl Released {
    /// Remembers a release. `place` has its first key, and `others` have the others, if those may be
    /// elsewhere.
    pub(crate) fn add(
        &mut self,
        reap: Box<Reap>,
        (place, others): (PlaceId, Vec<PlaceId>),
        now: Moment,
    ) {
        let lately = self.0.entry(place).or_default();
        if lately.len() == MOST {
            lately.pop_front();
        }
        while lately.front().is_some_and(|first| first.reap.gone_by() <= now) {
            lately.pop_front();
        }
        if reap.gone_by() > now {
            lately.push_back(Answered { reap, others });
        }
    }

    /// Takes out the releases that have a key at another place by now, and whose tokens that may still
    /// have: of each place the newest first, with the number of newer ones.
    pub(crate) fn take_moved(
        &mut self,
        now: Moment,
        place_of: impl Fn(&str) -> PlaceId,
    ) -> Vec<(usize, Box<Reap>)> {
        let mut again = Vec::new();
        for (place, lately) in &mut self.0 {
            let left = std::mem::take(lately).into_iter().filter(|it| it.reap.gone_by() > now);
            let (moved, here): (Vec<_>, _) = left.partition(|it| it.has_moved(*place, &place_of));
            *lately = here.into();
            again.extend(moved.into_iter().rev().map(|it| it.reap).enumerate());
        }
        self.0.retain(|_, lately| !lately.is_empty());
        again
    }
}

/// The shortest time between two searches. A search looks at every lock of this process, and
/// messages may be forged.
const INTERVAL: Duration = Duration::from_millis(50);

/// The most tokens to search for at once. A hold whose token is dropped here notices by its next
/// renewal.
const MOST_SEARCHED: usize = 1024;

/// Tokens to search for.
#[derive(Debug, Default)]
pub(super) struct Search {
    tokens: HashSet<String>,
    last: Option<Moment>,
}

impl Search {
    pub(super) fn add(&mut self, token: String) {
        if self.tokens.len() < MOST_SEARCHED {
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
    use crate::domain::demand::Demand;
    use crate::domain::demand::tests::demand;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;
    use crate::lock::tests::Bench;
    use crate::lock::{Next, Outcome};
    use crate::store::{Answer, Verb};

    /// A release of a lease of 30 s that was answered at this time, in milliseconds.
    fn answered(millis: u64) -> Box<Reap> {
        answered_of(demand("k"), millis)
    }

    fn answered_of(demand: Demand, millis: u64) -> Box<Reap> {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand);
        let _confirmed = bench.release(&hold);
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

    /// Remembers a release of one key at this place.
    fn add(released: &mut Released, place: PlaceId, reap: Box<Reap>, now: Moment) {
        released.add(reap, (place, Vec::new()), now);
    }

    /// Takes out everything, as if all places were others.
    fn take(released: &mut Released, now: Moment) -> Vec<(usize, Box<Reap>)> {
        released.take_moved(now, |_| PlaceId::MAX)
    }

    fn tokens_of(released: &[(usize, Box<Reap>)]) -> Vec<String> {
        released.iter().map(|(_, reap)| token(reap)).collect()
    }

    #[test]
    fn what_was_released_is_remembered_until_its_lease_would_have_ended() {
        let mut released = Released::default();
        let (first, second) = (answered(1_000), answered(20_000));
        let end = first.gone_by();
        assert!(end >= Moment::at_millis(31_000) && end <= Moment::at_millis(33_000), "{end:?}");
        let expected = token(&second);
        add(&mut released, 1, first, Moment::at_millis(1_000));
        add(&mut released, 1, second, Moment::at_millis(20_000));
        let left = take(&mut released, end);
        assert_eq!(tokens_of(&left), [expected]);
        assert!(take(&mut released, Moment::START).is_empty(), "they were taken out");
        add(&mut released, 1, answered(1_000), end);
        assert!(take(&mut released, Moment::START).is_empty(), "its lease is over already");
    }

    #[test]
    fn the_last_of_many_are_remembered() {
        let (mut released, now) = (Released::default(), Moment::at_millis(1_000));
        let mut tokens = Vec::new();
        for _ in 0..MOST + 3 {
            let reap = answered(1_000);
            tokens.push(token(&reap));
            add(&mut released, 1, reap, now);
        }
        let elsewhere = answered(1_000);
        tokens.push(token(&elsewhere));
        add(&mut released, 2, elsewhere, now);
        let kept = take(&mut released, now);
        let (of_one, of_other) = kept.split_at(MOST);
        assert_eq!(tokens_of(of_other), tokens.split_off(MOST + 3));
        tokens.reverse();
        tokens.truncate(MOST);
        assert_eq!(tokens_of(of_one), tokens, "the newest first");
        assert!(of_one.iter().map(|(newer, _)| *newer).eq(0..MOST));
        assert_eq!(of_other[0].0, 0, "counted for each place");
    }

    #[test]
    fn only_releases_of_keys_that_are_elsewhere_by_now_are_taken_out() {
        let (mut released, now) = (Released::default(), Moment::at_millis(1_000));
        let here = answered(1_000);
        let expected = token(&here);
        add(&mut released, 2, here, now);
        add(&mut released, 1, answered(1_000), now);
        assert_eq!(released.take_moved(now, |_| 2).len(), 1, "its server has left");
        assert_eq!(released.take_moved(now, |_| 2).len(), 0, "the other one is where it was");
        let moved = released.take_moved(now, |_| 3);
        assert_eq!(tokens_of(&moved), [expected]);
        assert_eq!(released.0.len(), 0, "nothing is kept for servers that are gone");
    }

    #[test]
    fn one_of_several_keys_that_is_elsewhere_is_enough() {
        let (mut released, now) = (Released::default(), Moment::at_millis(1_000));
        let names = Names::together(Names::new("", "a"), vec![Names::new("", "b")], "a, b");
        let (names, kind) = (names, Kind::All { ordered: false });
        let both = answered_of(Demand { names, kind, ..demand("k") }, 1_000);
        released.add(both, (1, vec![2]), now);
        let mut moved = |other| released.take_moved(now, |key| if key == "a" { 1 } else { other });
        assert_eq!((moved(2).len(), moved(3).len()), (0, 1));
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

#[cfg(test)]
mod search_tests {
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
        for number in 0..2 * MOST_SEARCHED {
            search.add(number.to_string());
        }
        let found = search.begin(Moment::at_millis(2_000)).unwrap();
        assert_eq!(found.len(), MOST_SEARCHED);
    }
}
