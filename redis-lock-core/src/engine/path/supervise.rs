//! Supervises the connection: when to connect, when a connection is dead, and whom to notify.

use std::time::Duration;

use super::{
    AskedBy, ConnectionState, LOOK_PAUSE, News, QueueEntry, ReadyReply, Results, Told, Traffic, Up,
};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::engine::reader::Reader;
use crate::lock::Outcome;
use crate::store::Connected;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the server may be silent before a `PING` is sent.
const SILENCE: Duration = Duration::from_secs(1);

/// The fault if it stays silent.
const SILENT: &str = "the lock server is unreachable: it fell silent; connecting again";

/// A connection that ends sooner than this without ever having answered, or because the server turned
/// us away, counts as a failed try.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// A server that turns us away may soon become a primary, or another one take its address.
const LONGEST_TURNED_AWAY: Duration = Duration::from_millis(200);

/// The first pause between two tries to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The tries to connect, and the pauses between them.
pub(super) struct Attempts {
    /// The connection that is being made: its number, and when that began.
    present: Option<(u64, Moment)>,
    count: u64,
    /// When the next one may begin.
    next: Moment,
    next_pause: Duration,
    /// When a second connection may be made beside a silent one.
    second_at: Moment,
    spread: u8,
}

impl Attempts {
    pub(super) fn new(spread: u8) -> Self {
        let (next, second_at, next_pause) = (Moment::START, Moment::START, FIRST_PAUSE);
        Self { present: None, count: 0, next, next_pause, second_at, spread }
    }

    fn are_under_way(&self) -> bool {
        self.present.is_some()
    }

    fn begin(&mut self, now: Moment) -> u64 {
        self.count += 1;
        self.present = Some((self.count, now));
        self.count
    }

    /// Returns when this attempt began, if it is under way. It ends then.
    fn end(&mut self, number: u64) -> Option<Moment> {
        self.present.take_if(|(present, _)| *present == number).map(|(_, began)| began)
    }

    pub(super) fn give_up(&mut self) {
        self.present = None;
    }

    /// The next one begins after a pause: half of it at least, and different for each manager and try.
    fn pause(&mut self, now: Moment, longest: Duration) {
        let seed = self.count.wrapping_add(u64::from(self.spread));
        let mixed = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        self.next = now.after(self.next_pause / 2 + self.next_pause * u32::from(mixed) / 512);
        self.next_pause = (self.next_pause * 2).min(longest);
    }

    /// The next one begins at this time, and those after it as if it were the first.
    fn start_over(&mut self, next: Moment) {
        (self.next, self.next_pause) = (next, FIRST_PAUSE);
    }
}

impl Traffic {
    /// Does what is due, and returns when to call it again. The caller must have read everything
    /// that has arrived, so that the server does not seem silent.
    pub(crate) fn turn(&mut self, now: Moment, results: &mut Results) -> Moment {
        self.watch_silence(now, results);
        self.connect_if_due(now, results);
        self.refuse_overdue(now, results);
        self.push_out(&mut results.settled);
        self.due()
    }

    /// When `turn` is due.
    pub(crate) fn due(&self) -> Moment {
        let link = match (&self.connection, self.queue.oldest()) {
            (ConnectionState::Up(up), Some(oldest)) => {
                let link = up.wire.owes_since(oldest.written).map_or(Moment::NEVER, |since| {
                    let silent = up.received.max(since).after(self.time_limit);
                    let suspect = since.after(oldest.limit).max(self.attempts.second_at);
                    let is_silent = up.received <= since && !self.attempts.are_under_way();
                    if is_silent { silent.min(suspect) } else { silent }
                });
                link.min(up.wire.due())
            }
            (ConnectionState::Up(up), None) if up.wire.is_instant() => Moment::NEVER,
            (ConnectionState::Up(up), None) => up.received.after(SILENCE),
            (ConnectionState::Unused, _) if !self.queue.has_waiting() => Moment::NEVER,
            (ConnectionState::Unused, _) => self.attempts.next,
            (ConnectionState::Connecting | ConnectionState::Down(_), _)
                if !self.attempts.are_under_way() =>
            {
                self.attempts.next
            }
            _ => Moment::NEVER,
        };
        let attempt =
            self.attempts.present.map_or(Moment::NEVER, |(_, since)| since.after(self.time_limit));
        link.min(attempt).min(self.deadline_check)
    }

    /// Whether the connection has something to give up, which reading does.
    pub(crate) fn is_wire_due(&self, now: Moment) -> bool {
        matches!(&self.connection, ConnectionState::Up(up) if up.wire.due() <= now)
    }

    /// Notifies `reply` when the server can be used, or can't be.
    pub(crate) fn when_ready(&mut self, reply: ReadyReply, results: &mut Results) {
        match &self.connection {
            ConnectionState::Up(_) => results.told.push(Told::ready(reply, Ok(()))),
            ConnectionState::Down(fault) => {
                results.told.push(Told::ready(reply, Err(fault.clone())));
            }
            ConnectionState::Unused | ConnectionState::Connecting => self.ready.push(reply),
            ConnectionState::Retired => {}
        }
    }

    /// Tells those who wait for a connection what came of it.
    fn tell_ready(&mut self, outcome: &Result<(), Fault>, results: &mut Results) {
        let told = self.ready.drain(..).map(|reply| Told::ready(reply, outcome.clone()));
        results.told.extend(told);
    }

    /// Closes a connection that has been silent for too long, and begins a second one beside one
    /// that is about to be.
    fn watch_silence(&mut self, now: Moment, results: &mut Results) {
        let ConnectionState::Up(up) = &self.connection else { return };
        let Some(oldest) = self.queue.oldest() else {
            if now >= up.received.after(SILENCE)
                && !up.wire.is_instant()
                && !self.queue.has_waiting()
            {
                let entry = QueueEntry::ping(self.time_limit, now);
                self.put(entry, &mut results.settled);
            }
            return;
        };
        let Some(since) = up.wire.owes_since(oldest.written) else { return };
        let silence = now.since(up.received.max(since));
        let is_twice_late = now.since(oldest.written) >= oldest.limit * 2;
        if silence >= self.time_limit || planted!(LimitCloses) && is_twice_late {
            let what = format!("nothing came from the server for {silence:.1?}");
            let fault = Fault::new(FaultClass::Unknown, what);
            self.close(&fault, &mut results.settled);
            let told = Fault { what: SILENT.into(), ..fault };
            results.news.push(News::Unreachable(told));
            return;
        }
        let is_late = now.since(since) >= oldest.limit;
        let is_silent = up.received <= since;
        if is_late && is_silent && !self.attempts.are_under_way() && now >= self.attempts.second_at
        {
            // If a second connection works, the first one is half open, and no caller need wait for
            // its time limit. If not, the network is slow or the server frozen, and the first one
            // can stay.
            self.attempts.second_at = now.after(self.time_limit);
            results.connects.push(self.attempts.begin(now));
        }
    }

    fn connect_if_due(&mut self, now: Moment, results: &mut Results) {
        if let Some((number, since)) = self.attempts.present
            && now >= since.after(self.time_limit)
        {
            self.failed(number, Fault::no_connection(self.time_limit), now, results);
        }
        let wanted = self.queue.has_waiting() || !self.ready.is_empty();
        if wanted && matches!(self.connection, ConnectionState::Unused) {
            self.connection = ConnectionState::Connecting;
        }
        let tries =
            matches!(self.connection, ConnectionState::Connecting | ConnectionState::Down(_));
        if tries && !self.attempts.are_under_way() && now >= self.attempts.next {
            results.connects.push(self.attempts.begin(now));
        }
    }

    /// The first connection was made, before anything is asked.
    pub(crate) fn connect_at_once(&mut self, made: Connected, now: Moment) {
        let number = self.attempts.begin(now);
        self.connected(number, made, now, &mut Results::default());
    }

    /// A connection was made. It is dropped if its attempt was given up.
    pub(crate) fn connected(
        &mut self,
        number: u64,
        made: Connected,
        now: Moment,
        results: &mut Results,
    ) {
        let Some(began) = self.attempts.end(number) else { return };
        if let (ConnectionState::Up(up), Some(oldest)) = (&self.connection, self.queue.oldest())
            && up.wire.owes_since(oldest.written).is_none_or(|since| up.received > since.min(began))
        {
            // Something has arrived on the first one meanwhile, or no answer is due on it. What is oldest
            // now may have been asked after that, and its answer be on its way.
            return;
        }
        if let (ConnectionState::Up(_), None) = (&self.connection, self.queue.oldest()) {
            return;
        }
        let half_open = "another connection got through where this one was silent";
        self.close(&Fault::new(FaultClass::Unknown, half_open), &mut results.settled);
        self.role.on_connected(made.is_instant());
        self.connection = ConnectionState::Up(Up {
            wire: made,
            epoch: number,
            made: now,
            received: now,
            has_answered: false,
            turned_away: false,
        });
        self.attempts.next = now;
        self.tell_ready(&Ok(()), results);
        results.news.push(News::Up);
        if planted!(QueueReversed) {
            let waiting = self.queue.take_waiting();
            waiting.into_iter().rev().for_each(|entry| self.queue.put(entry));
        }
        self.push_out(&mut results.settled);
        // No caller reads the answers to what the engine has sent.
        if let Reader::Callers = self.role.reader() {
            self.pump(now, &mut results.settled);
        }
    }

    /// A connection could not be made.
    pub(crate) fn failed(&mut self, number: u64, fault: Fault, now: Moment, results: &mut Results) {
        if self.attempts.end(number).is_none() {
            return;
        }
        if let ConnectionState::Up(_) = self.connection {
            // This was a second connection beside one that may only be slow.
            return;
        }
        self.attempts.pause(now, LONGEST_PAUSE);
        self.connection = ConnectionState::Down(fault.clone());
        for entry in self.queue.take_waiting() {
            self.settle(entry, Outcome::Refused(fault.clone()), &mut results.settled);
        }
        self.tell_ready(&Err(fault.clone()), results);
        let what = format!("{}; trying again", fault.what);
        results.news.push(News::Unreachable(Fault { what, ..fault }));
    }

    /// Reads the map again. Only for the unrouted place, where entries without a node wait. Returns
    /// `false` while another read is under way.
    pub(crate) fn look(&mut self, now: Moment, results: &mut Results) -> bool {
        let begins = !self.attempts.are_under_way();
        if begins {
            results.connects.push(self.attempts.begin(now));
        }
        begins
    }

    /// The map was read, so no entry has to stay in the unrouted place. Returns `false` if that read had
    /// been given up.
    pub(crate) fn looked(&mut self, number: u64, now: Moment, results: &mut Results) -> bool {
        if self.attempts.end(number).is_none() {
            return false;
        }
        self.connection = ConnectionState::Unused;
        self.attempts.start_over(now.after(LOOK_PAUSE));
        let waiting = self.queue.take_waiting();
        self.send_elsewhere(waiting, results);
        self.tell_ready(&Ok(()), results);
        true
    }

    /// Closes the path to a node that has lost its keys. Its queued entries are redirected.
    pub(crate) fn retire(&mut self, fault: &Fault, results: &mut Results) {
        self.close(fault, &mut results.settled);
        self.connection = ConnectionState::Retired;
        self.attempts.give_up();
        let waiting = self.queue.take_waiting();
        self.send_elsewhere(waiting, results);
        self.tell_ready(&Err(fault.clone()), results);
    }

    /// Gives up entries that wait here although another node has their key by now: this one may not
    /// be reached for long.
    pub(crate) fn give_up_moved(&mut self, is_here: impl Fn(&str) -> bool, results: &mut Results) {
        if !self.queue.has_waiting() {
            return;
        }
        let stays = |entry: &QueueEntry| {
            let is_bound = entry.asks || matches!(entry.origin, AskedBy::Query(_) | AskedBy::Ping);
            is_bound || entry.route().is_none_or(|main| is_here(&main))
        };
        let (here, moved): (Vec<_>, _) = self.queue.take_waiting().into_iter().partition(stays);
        here.into_iter().for_each(|entry| self.queue.put(entry));
        self.send_elsewhere(moved, results);
    }

    /// What was waiting here goes to other places.
    fn send_elsewhere(&mut self, entries: Vec<QueueEntry>, results: &mut Results) {
        results.settled.extend(entries.into_iter().map(QueueEntry::elsewhere));
        self.forget_dropped();
    }

    /// Sets the pause before the next try after an epoch has ended.
    pub(super) fn closed(&mut self, up: &Up) {
        let now = Moment::now();
        self.role.depose();
        let was_useless = !up.has_answered || up.turned_away;
        if was_useless && now.since(up.made) < SHORT_LIFE {
            let longest = if up.turned_away { LONGEST_TURNED_AWAY } else { LONGEST_PAUSE };
            self.attempts.pause(now, longest);
        } else {
            self.attempts.start_over(now);
        }
    }

    /// Refuses callers whose time limit has passed.
    fn refuse_overdue(&mut self, now: Moment, results: &mut Results) {
        if now < self.deadline_check {
            return;
        }
        let mut next = Moment::NEVER;
        for entry in self.queue.all_mut() {
            if entry.deadline <= now {
                results.told.extend(entry.overdue());
            }
            next = next.min(entry.deadline);
        }
        self.deadline_check = next;
    }
}
