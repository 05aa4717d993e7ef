//! Which servers fail, and what operators read: a line when an outage begins, one a minute while
//! it lasts, and one when it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::places::{Place, PlaceId};
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::observe::OutageLine;
use crate::sync::NonPoisonMutex;

/// The shortest time between two warnings of one kind about one server. A flapping server causes
/// two lines in this time.
const PAUSE: Duration = Duration::from_secs(60);

/// The failures of one kind at one server, the present ones or the last ones.
#[derive(Debug)]
struct Outage {
    line: OutageLine,
    kind: BackendErrorKind,
    place: PlaceId,
    began: Moment,
    /// Whether a new connection ends it.
    is_of_connection: bool,
    /// Whether operators know of it.
    is_told: bool,
    /// When the last warning was given, which may have been about earlier failures.
    warned: Option<Moment>,
}

#[derive(Debug, Default)]
pub(crate) struct Outages {
    known: NonPoisonMutex<HashMap<(PlaceId, BackendErrorKind), Outage>>,
    /// How many are not over.
    open: AtomicUsize,
}

impl Outages {
    pub(super) fn are_any(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Something failed at a place. Returns whether that is new, and the line that is due.
    pub(super) fn fails(
        &self,
        place: &Place,
        fault: &Fault,
        now: Moment,
    ) -> (bool, Option<OutageLine>) {
        let mut known = self.known.lock();
        let outage = known.entry((place.id, fault.kind)).or_insert_with(|| Outage {
            line: OutageLine {
                server: place.name.clone(),
                why: String::new(),
                lasted: Duration::ZERO,
                is_over: true,
            },
            kind: fault.kind,
            place: place.id,
            began: now,
            is_of_connection: false,
            is_told: false,
            warned: None,
        });
        let is_new = std::mem::take(&mut outage.line.is_over);
        if is_new {
            self.open.fetch_add(1, Ordering::Relaxed);
            (outage.began, outage.is_told, outage.is_of_connection) = (now, false, false);
        }
        if outage.warned.is_some_and(|warned| now.since(warned) < PAUSE) {
            return (is_new, None);
        }
        (outage.warned, outage.is_told) = (Some(now), true);
        outage.line.why.clone_from(&fault.what);
        outage.line.lasted = now.since(outage.began);
        (is_new, Some(outage.line.clone()))
    }

    /// A connection to a place can't be made, or it broke.
    pub(super) fn disconnects(
        &self,
        place: &Place,
        fault: &Fault,
        now: Moment,
    ) -> (bool, Option<OutageLine>) {
        let told = self.fails(place, fault, now);
        let outage = (place.id, fault.kind);
        self.known.lock().entry(outage).and_modify(|outage| outage.is_of_connection = true);
        told
    }

    /// What fits works again. Returns the lines about it.
    fn end(&self, now: Moment, fits: impl Fn(&Outage) -> bool) -> Vec<OutageLine> {
        let mut known = self.known.lock();
        let ended = known.values_mut().filter(|outage| !outage.line.is_over && fits(outage));
        let lines = ended.filter_map(|outage| {
            self.open.fetch_sub(1, Ordering::Relaxed);
            (outage.line.is_over, outage.line.lasted) = (true, now.since(outage.began));
            outage.is_told.then(|| outage.line.clone())
        });
        lines.collect()
    }

    /// A place has answered. Only a lock that was acquired shows that all kinds of commands are
    /// served: a full server, or a replica, answers others.
    pub(super) fn answers(
        &self,
        place: PlaceId,
        has_written: bool,
        now: Moment,
    ) -> Vec<OutageLine> {
        self.end(now, |outage| outage.place == place && (has_written || !needs_write(outage.kind)))
    }

    /// A connection to a place was made.
    pub(super) fn connects(&self, place: PlaceId, now: Moment) -> Vec<OutageLine> {
        self.end(now, |outage| outage.place == place && outage.is_of_connection)
    }

    /// These are all places that there are.
    pub(super) fn retain(&self, places: &[PlaceId], now: Moment) -> Vec<OutageLine> {
        let lines = self.end(now, |outage| !places.contains(&outage.place));
        self.known.lock().retain(|(place, _), _| places.contains(place));
        lines
    }
}

/// Whether only a write can show that this failure is over.
fn needs_write(kind: BackendErrorKind) -> bool {
    use BackendErrorKind::{Full, NotReplicated, ReadOnly, Rights};
    matches!(kind, Full | NotReplicated | ReadOnly | Rights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fault::FaultClass;
    use crate::engine::path::Path;

    const SECOND: Duration = Duration::from_secs(1);

    fn place(id: PlaceId) -> Place {
        let path = Path::new(SECOND, 0);
        Place::new(id, None, path, None)
    }

    fn at(seconds: u64) -> Moment {
        Moment::START.after(SECOND * u32::try_from(seconds).unwrap())
    }

    fn full() -> Fault {
        Fault::new(FaultClass::Refused, "OOM").of(BackendErrorKind::Full)
    }

    #[test]
    fn an_outage_is_told_at_its_beginning_each_minute_and_at_its_end() {
        let (outages, place) = (Outages::default(), place(1));
        let told: Vec<_> = (100..=260)
            .filter_map(|second| outages.fails(&place, &full(), at(second)).1)
            .map(|line| (line.lasted.as_secs(), line.is_over))
            .collect();
        assert_eq!(told, [(0, false), (60, false), (120, false)]);
        assert!(outages.answers(1, false, at(261)).is_empty(), "a full server reads");
        assert!(outages.connects(1, at(261)).is_empty(), "a full server accepts connections");
        assert!(outages.answers(2, true, at(261)).is_empty(), "it is another server");
        let [over] = outages.answers(1, true, at(263)).try_into().unwrap();
        assert_eq!((over.lasted, over.is_over, over.why.as_str()), (SECOND * 163, true, "OOM"));
        assert!(outages.answers(1, true, at(264)).is_empty() && !outages.are_any());
    }

    #[test]
    fn a_server_that_fails_and_works_by_turns_gets_two_lines_a_minute() {
        let (outages, place) = (Outages::default(), place(1));
        let mut lines = 0;
        for second in 0..600 {
            lines += usize::from(outages.fails(&place, &full(), at(second)).1.is_some());
            lines += outages.answers(1, true, at(second)).len();
        }
        assert_eq!(lines, 20);
    }

    #[test]
    fn each_kind_at_each_server_is_told_by_itself() {
        let (outages, places) = (Outages::default(), [place(1), place(2)]);
        let gone = Fault::new(FaultClass::Unknown, "refused");
        for place in &places {
            assert!(outages.fails(place, &full(), at(1)).1.is_some());
            assert!(outages.disconnects(place, &gone, at(1)).1.is_some());
        }
        let [back] = outages.connects(1, at(5)).try_into().unwrap();
        assert_eq!((back.why.as_str(), back.lasted), ("refused", SECOND * 4));
        let left = outages.retain(&[1], at(7));
        assert_eq!(left.iter().map(|line| line.lasted).collect::<Vec<_>>(), [SECOND * 6; 2]);
        assert!(outages.are_any(), "the first server is full");
    }
}
