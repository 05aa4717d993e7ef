//! What is known of the nodes of a quorum, across their connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::Names;
use crate::domain::status::{NodeInfo, NodeRole, ServerInfo, Topology};
use crate::domain::too_few::Vote;
use crate::sync::NonPoisonMutex;

/// The uptime of a server is in whole seconds, and may have been rounded up.
const ROUNDED: Duration = Duration::from_secs(1);

/// All nodes of one quorum.
#[derive(Debug)]
pub(crate) struct Roster {
    /// How long a node must have run before it votes, by the settings of this client; zero for at once.
    own_rejoin: Duration,
    /// The same in milliseconds, by the client of the quorum that has the longest, as far as that is known.
    rejoin: AtomicU64,
    seats: NonPoisonMutex<Vec<SeatState>>,
    /// The key at which each node stores the quorum's list of servers.
    pub(super) card: Names,
    /// The key at which each node stores the `rejoin` of its clients.
    note: Names,
    /// A node can be asked again.
    pub(crate) returned: Notify,
}

#[derive(Clone, Debug)]
struct SeatState {
    name: Arc<str>,
    /// The run id of the server that was last connected to.
    run: Option<String>,
    version: Option<String>,
    trouble: Option<String>,
    /// When it was seen first, and how long it had run by then.
    seen: Option<(Moment, Duration)>,
    /// From when on it votes, by its clock.
    steady: Moment,
}

/// One node of a quorum.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    roster: Arc<Roster>,
    at: usize,
}

impl Roster {
    /// The nodes with these names. `beside` names the keys that each node has beside locks.
    pub(crate) fn new(
        names: Vec<Arc<str>>,
        rejoin: Duration,
        beside: impl Fn(&str) -> Names,
    ) -> Arc<Self> {
        let seat = |name| SeatState {
            name,
            run: None,
            version: None,
            trouble: None,
            seen: None,
            steady: Moment::START,
        };
        let seats = names.into_iter().map(seat).collect();
        let millis = AtomicU64::new(u64::try_from(rejoin.as_millis()).unwrap_or(u64::MAX));
        Arc::new(Self {
            own_rejoin: rejoin,
            rejoin: millis,
            seats: NonPoisonMutex::new(seats),
            card: beside("fleet"),
            note: beside("fleet:rejoin"),
            returned: Notify::new(),
        })
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.seats.lock().iter().map(|seat| Arc::clone(&seat.name)).collect()
    }

    pub(crate) fn seats_of(self: &Arc<Self>) -> Vec<Seat> {
        let seat = |at| Seat { roster: Arc::clone(self), at };
        (0..self.seats.lock().len()).map(seat).collect()
    }

    /// The servers that the nodes are, once all are known.
    pub(super) fn servers(&self) -> Option<Arc<str>> {
        let seats = self.seats.lock();
        let mut runs = seats.iter().map(|seat| seat.run.as_deref()).collect::<Option<Vec<_>>>()?;
        runs.sort_unstable();
        Some(runs.join(" ").into())
    }

    fn rejoin(&self) -> Duration {
        Duration::from_millis(self.rejoin.load(Ordering::Relaxed))
    }

    /// Adds all nodes to a description.
    pub(super) fn describe(&self, info: &mut ServerInfo, now: Moment) {
        info.topology = Topology::Quorum;
        let rejoin = self.rejoin();
        let node = |seat: &SeatState| NodeInfo {
            address: seat.name.to_string(),
            role: NodeRole::Primary,
            version: seat.version.clone(),
            trouble: seat.trouble.clone().or_else(|| Some(seat.bar(rejoin, now)?.to_string())),
            votes: seat.trouble.is_none() && seat.bar(rejoin, now).is_none(),
        };
        info.nodes = self.seats.lock().iter().map(node).collect();
    }
}

impl SeatState {
    /// Why its grant would not count now, if it would not.
    fn bar(&self, rejoin: Duration, now: Moment) -> Option<Vote> {
        let grown = |(at, age)| now >= Moment::after(at, rejoin.saturating_sub(age));
        match now {
            // First, since of a young node renewals count.
            _ if now < self.steady && !planted!(FastVote) => Some(Vote::Clock),
            _ if !self.seen.is_some_and(grown) && !planted!(YoungVote) => Some(Vote::Young),
            _ => None,
        }
    }
}

impl Seat {
    /// Whether nodes vote at once, for which they have to persist every write.
    pub(crate) fn votes_at_once(&self) -> bool {
        self.roster.own_rejoin.is_zero()
    }

    /// Its server does not execute scripts for this user.
    pub(crate) fn denies_scripts(&self) -> Fault {
        let what = format!(
            "{} of the quorum denies scripts, which its nodes need; give the user the rights `+eval +evalsha`",
            self.name()
        );
        Fault::new(FaultClass::Unsupported, what)
    }

    /// A connection leads to this server, which has run for this time.
    ///
    /// # Errors
    /// Fails when another node of the quorum is the same server. A server whose connection ended may have
    /// another address now.
    pub(crate) fn introduced(
        &self,
        run: Option<&str>,
        uptime: Option<Duration>,
        version: &str,
        now: Moment,
    ) -> Result<(), Fault> {
        let mut seats = self.roster.seats.lock();
        let is_there = |seat: &SeatState| seat.trouble.is_none() && seat.run.as_deref() == run;
        let mut others = seats.iter().enumerate().filter(|(at, _)| *at != self.at);
        let same = others.find(|(_, seat)| run.is_some() && is_there(seat));
        if let (Some((_, same)), Some(own)) = (same, seats.get(self.at)) {
            let what = format!(
                "{} and {} of the quorum are one server; name servers that fail independently",
                same.name, own.name
            );
            return Err(Fault::new(FaultClass::Unsupported, what));
        }
        let Some(seat) = seats.get_mut(self.at) else { return Ok(()) };
        let is_known = run.is_some() && seat.run.as_deref() == run;
        if !is_known {
            // One that was restarted under our eyes counts from here, whatever its clock says.
            let is_first = seat.run.is_none() && run.is_some();
            let age = uptime.filter(|_| is_first).unwrap_or_default().saturating_sub(ROUNDED);
            seat.seen = Some((now, age));
            seat.run = run.map(Into::into);
        }
        (seat.version, seat.trouble) = (Some(version.into()), None);
        Ok(())
    }

    pub(super) fn own_rejoin(&self) -> Duration {
        self.roster.own_rejoin
    }

    pub(super) fn rejoin_names(&self) -> Names {
        self.roster.note.clone()
    }

    /// Another client of the quorum has this `rejoin`.
    pub(super) fn found_rejoin(&self, found: Duration) {
        let Roster { own_rejoin, rejoin, .. } = &*self.roster;
        let millis = u64::try_from(found.as_millis()).unwrap_or(u64::MAX);
        if rejoin.fetch_max(millis, Ordering::Relaxed) < millis {
            crate::observe::log::longer_rejoin(*own_rejoin, found);
        }
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.with(|seat| Arc::clone(&seat.name)).unwrap_or_default()
    }

    /// There is a connection to it again.
    pub(super) fn returned(&self) {
        self.roster.returned.notify_one();
    }

    /// There is no connection to it.
    pub(super) fn lost(&self, fault: &Fault) {
        self.with(|seat| seat.trouble = Some(fault.what.clone()));
    }

    /// A lease ran out faster there than by our clock. It does not vote for `rejoin`, or until the longest
    /// lease that it has of us has ended.
    pub(super) fn runs_fast(&self, longest: Duration, now: Moment) {
        let until = now.after(self.roster.rejoin().max(longest));
        self.with(|seat| {
            if seat.steady <= now {
                crate::observe::log::fast_node(&seat.name);
            }
            seat.steady = until;
        });
    }

    /// Why its grant does not count now, if it does not.
    pub(super) fn bar(&self, now: Moment) -> Option<Vote> {
        let rejoin = self.roster.rejoin();
        self.with(|seat| seat.bar(rejoin, now)).flatten()
    }

    fn with<T>(&self, work: impl FnOnce(&mut SeatState) -> T) -> Option<T> {
        self.roster.seats.lock().get_mut(self.at).map(work)
    }
}
