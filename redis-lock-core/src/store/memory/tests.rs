//! Locks in memory at the limits of their times, and the messages to their managers.

use std::time::Duration;

use super::*;
use crate::Token;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::status::LockKind;
use crate::store::{Acquire, Blocker, Newest, ServerView};

const SECOND: Duration = Duration::from_secs(1);
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// One lock, its manager, and the tokens that were granted it.
#[derive(Default)]
struct OneLock {
    state: State,
    granted: Vec<String>,
}

fn command(verb: Verb) -> Command {
    let names = Names::new("lock", "lock:a");
    Command { names, kind: Kind::Mutex, verb, timeout: SECOND }
}

impl OneLock {
    /// Executes a command at this number of milliseconds. Every manager listens.
    fn send(&mut self, millis: u64, command: &Command) -> Answer {
        let granted = &mut self.granted;
        let mut tell = |to: To<'_>, event: Option<Event>| {
            if let (To::Waiter(_), Some(Event::Granted { token, .. })) = (to, event) {
                granted.push(token);
            }
            true
        };
        let now = Moment::at_millis(millis);
        self.state.answer(command, &"m".into(), now, &mut tell).unwrap()
    }

    fn at(&mut self, millis: u64, verb: Verb) -> Answer {
        self.send(millis, &command(verb))
    }

    fn is_empty_at(&mut self, millis: u64) -> bool {
        self.at(millis, Verb::Look);
        self.state.entries.is_empty()
    }

    fn seen_at(&mut self, millis: u64) -> ServerView {
        match self.at(millis, Verb::Look) {
            Answer::Seen(view) => *view,
            other => panic!("{other:?}"),
        }
    }
}

fn take(token: &str, ttl: Option<Duration>) -> Verb {
    Verb::Take { token: token.into(), ttl }
}

fn acquire(token: &str) -> Acquire {
    Acquire::of(token.into(), Some(SECOND))
}

/// An acquisition that queues for a second.
fn queue(token: &str) -> Verb {
    Verb::Acquire(Acquire { queue: Some(SECOND), ..acquire(token) })
}

/// An acquisition that does not wait, but asks for the lease if it is idle.
fn ask(token: &str) -> Verb {
    Verb::Acquire(Acquire { ask: Some(SECOND), ..acquire(token) })
}

fn renew(token: &str, ttl: Duration) -> Verb {
    Verb::Renew { token: token.into(), ttl: Some(ttl) }
}

fn release(token: &str, tombstone: Option<Duration>) -> Verb {
    Verb::Release { token: token.into(), waited_for: false, keep: None, share: None, tombstone }
}

fn force(token: &str, because: &str) -> Verb {
    let tokens = vec![Token::from_wire(token)];
    Verb::Force { tokens, foreign: None, because: because.into() }
}

fn gone(because: Option<&str>) -> Answer {
    Answer::Gone { by: None, because: because.map(Into::into) }
}

#[test]
fn a_token_is_refused_until_its_tombstone_ends() {
    let mut lock = OneLock::default();
    lock.at(0, release("a", Some(SECOND)));
    assert_eq!(lock.at(999, Verb::Acquire(acquire("a"))), Answer::Tombstone);
    assert_eq!(lock.at(999, renew("a", SECOND)), gone(None), "it was not ended by force");
    assert_eq!(
        lock.at(1_000, Verb::Acquire(acquire("a"))),
        Answer::Held { fence: None, slot: None }
    );
}

#[test]
fn a_waiter_whose_place_has_ended_is_not_granted_the_lock() {
    for (at, granted) in [(999, vec!["b".to_owned()]), (1_000, Vec::new())] {
        let mut lock = OneLock::default();
        lock.at(0, take("a", None));
        lock.at(0, queue("b"));
        lock.at(
            at,
            Verb::Release {
                token: "a".into(),
                waited_for: true,
                keep: None,
                share: None,
                tombstone: None,
            },
        );
        assert_eq!(lock.granted, granted);
    }
}

#[test]
fn a_lock_that_was_taken_past_the_queue_is_freed_without_a_look_at_it() {
    let mut lock = OneLock::default();
    lock.at(0, take("a", Some(SECOND / 2)));
    lock.at(0, queue("b"));
    assert_eq!(lock.at(600, take("c", None)), Answer::Held { fence: None, slot: None });
    assert_eq!(lock.at(700, release("c", None)), Answer::Done);
    assert!(lock.granted.is_empty(), "{:?}", lock.granted);
}

#[test]
fn who_passes_the_queue_takes_several_locks_before_those_who_wait() {
    for (fair, granted) in [(false, Vec::new()), (true, vec!["b".to_owned()])] {
        let mut lock = OneLock::default();
        lock.at(0, take("a", Some(SECOND)));
        lock.at(500, queue("b"));
        let [first, second] = ["a", "z"].map(|key| Names::new("lock", format!("lock:{key}")));
        let names = Names::together(first, vec![second], "");
        let verb = Verb::Acquire(Acquire { fair, ..acquire("c") });
        let both = Command { names, kind: Kind::All { ordered: false }, ..command(verb) };
        let answer = lock.send(1_000, &both);
        assert_eq!((matches!(answer, Answer::Held { .. }), lock.granted), (!fair, granted));
    }
}

#[test]
fn a_renewal_tells_of_a_lease_that_is_more_than_a_second_longer() {
    let three = 3 * SECOND;
    for (ttl, longer) in [(2_000, None), (1_999, Some(three))] {
        let mut lock = OneLock::default();
        lock.at(0, take("a", Some(three)));
        let answer = lock.at(0, renew("a", Duration::from_millis(ttl)));
        assert_eq!(answer, Answer::Renewed { longer, waited_for: false, slot: None });
    }
}

#[test]
fn only_a_holder_that_may_be_idle_is_asked_for_its_lease() {
    for (token, is_asked) in [(Token::lingering("m1", ""), true), (Token::fresh("m1", ""), false)] {
        let mut lock = OneLock::default();
        lock.at(0, take(token.wire(), Some(SECOND)));
        let Answer::Busy(Blocker { asked, queued, .. }) = lock.at(0, ask("b")) else {
            panic!("the lock is held")
        };
        assert_eq!((asked, queued), (is_asked, is_asked));
    }
}

#[test]
fn a_plain_delete_grants_the_lock_to_nobody_who_only_asked() {
    let mut lock = OneLock::default();
    let holder = Token::lingering("m1", "");
    lock.at(0, take(holder.wire(), Some(SECOND)));
    lock.at(0, ask("b"));
    lock.at(0, release(holder.wire(), None));
    assert!(lock.granted.is_empty() && lock.seen_at(0).kind == LockKind::Free);
    lock.at(0, take(holder.wire(), Some(SECOND)));
    lock.at(0, queue("c"));
    lock.at(0, release(holder.wire(), None));
    assert_eq!(lock.granted, ["b"], "the holder was marked, and that takes the script");
}

#[test]
fn the_last_fencing_number_is_remembered_for_a_day() {
    let mut lock = OneLock::default();
    lock.at(0, Verb::Acquire(Acquire { fences: 1, ..acquire("a") }));
    lock.at(0, release("a", None));
    assert!(!lock.is_empty_at(DAY_MS - 1));
    assert!(lock.is_empty_at(DAY_MS));
}

#[test]
fn fencing_numbers_are_raised_unless_another_token_has_one() {
    let mut lock = OneLock::default();
    let several = |verb| Command { kind: Kind::All { ordered: false }, ..command(verb) };
    for (token, fence, reached) in
        [("a", 7, (7, "a")), ("a", 9, (9, "a")), ("a", 8, (9, "a")), ("b", 99, (9, "a"))]
    {
        let verb = Verb::Raise { token: token.into(), fence };
        assert_eq!(lock.send(fence, &several(verb)), Answer::Done);
        assert_eq!(lock.state.entries["lock:a"].fence.as_ref().unwrap().of(), reached);
    }
    // Raising the counter to the number that it has does not keep it for longer.
    lock.send(500, &several(Verb::Raise { token: "a".into(), fence: 9 }));
    assert!(!lock.is_empty_at(DAY_MS + 8) && lock.is_empty_at(DAY_MS + 9));
}

#[test]
fn why_a_hold_was_ended_is_known_until_its_lease_would_have_been_over() {
    for (ttl, until) in [(Some(SECOND), 2_000), (None, DAY_MS)] {
        let mut lock = OneLock::default();
        lock.at(0, take("a", ttl));
        assert_eq!(lock.at(0, force("a", "it hangs")), Answer::Done);
        assert_eq!(lock.at(0, force("a", "it hangs")), Answer::Done, "again, by a second try");
        assert_eq!(lock.at(0, force("a", "by hand")), gone(None));
        assert_eq!(lock.at(until - 1, renew("a", SECOND)), gone(Some("it hangs")));
        assert_eq!(lock.at(until, renew("a", SECOND)), gone(None));
        assert!(lock.is_empty_at(until));
    }
}

#[test]
fn a_look_shows_how_long_holders_have_the_lock_and_who_still_waits() {
    let mut lock = OneLock::default();
    lock.at(0, take("a", None));
    lock.at(0, queue("b"));
    lock.at(1, queue("c"));
    let view = lock.seen_at(999);
    let ttls: Vec<_> = view.holders.iter().map(|holder| holder.ttl).collect();
    assert_eq!((ttls, view.waiters.len()), (vec![None], 2));
    let waiting = |view: ServerView| view.waiters.iter().map(Token::to_string).collect::<Vec<_>>();
    assert_eq!(waiting(lock.seen_at(1_000)), ["c"]);
    let mut lock = OneLock::default();
    lock.at(0, take("a", Some(SECOND)));
    assert_eq!(lock.seen_at(400).holders[0].ttl, Some(Duration::from_millis(600)));
}

#[test]
fn locks_that_have_ended_are_removed_when_there_are_many() {
    let take_at = |state: &mut State, number: usize, now: Moment| {
        let names = Names::new("lock", format!("lock:{number}"));
        let verb = take(&number.to_string(), Some(SECOND));
        let command = Command { names, ..command(verb) };
        let answer = state.answer(&command, &"m".into(), now, &mut |_, _| false);
        assert_eq!(answer.unwrap(), Answer::Held { fence: None, slot: None });
    };
    let mut state = State::default();
    for number in 1..=MIN_SWEEP {
        take_at(&mut state, number, Moment::at_millis(0));
    }
    let later = Moment::at_millis(1_000);
    for number in 5_000..5_010 {
        take_at(&mut state, number, later);
        assert_eq!(state.entries.len(), number - 5_000 + 1, "the first removes the ended ones");
    }
    // A few are left where they are.
    let mut state = State::default();
    (0..3).for_each(|number| take_at(&mut state, number, Moment::at_millis(0)));
    take_at(&mut state, 3, later);
    assert_eq!(state.entries.len(), 4);
    // If all entries were searched each time, so many that have not ended would make each command
    // slower.
    let mut state = State::default();
    for number in 1..=MIN_SWEEP + 1 {
        take_at(&mut state, number, later);
    }
    assert_eq!((state.entries.len(), state.sweep_at), (MIN_SWEEP + 1, 2 * (MIN_SWEEP + 1)));
}

#[test]
fn a_fencing_counter_is_kept_until_the_clock_has_passed_it() {
    let lock_at = |state: &mut State, number: usize, micros: u64| {
        let names = Names::new("lock", format!("lock:{number}"));
        let now = Moment::from_nanos(micros * 1_000);
        let token: Arc<str> = format!("{number} at {micros}").into();
        let acquire = Acquire { fences: 32, ..Acquire::of(Arc::clone(&token), Some(SECOND)) };
        let release =
            Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
        let [held, _] = [Verb::Acquire(acquire), release].map(|verb| {
            let command = Command { names: names.clone(), ..command(verb) };
            state.answer(&command, &"m".into(), now, &mut |_, _| false).unwrap()
        });
        let Answer::Held { fence: Some(last), slot: None } = held else { panic!("{held:?}") };
        last
    };
    let mut state = State { is_steady: true, ..State::default() };
    let lasts = [1_000, 1_010, 1_100, 1_131, 1_132].map(|at| lock_at(&mut state, 0, at));
    assert_eq!(lasts, [1_031, 1_063, 1_131, 1_163, 1_195], "none is given twice");
    let many = 3 * MIN_SWEEP;
    (0..many).for_each(|number| _ = lock_at(&mut state, number, 10_000 + 100 * number as u64));
    assert!(state.entries.len() <= MIN_SWEEP + 1, "{} are kept", state.entries.len());
}

#[test]
fn fencing_numbers_rise_when_the_machine_starts_anew() {
    use crate::domain::env::simulated;
    let number_after = |uptime: u64, wall: u64| {
        simulated::begin(uptime * 1_000_000_000, 1);
        simulated::set_wall(wall * 1_000_000_000);
        let mut wire = Memory::default().connector(&"m".into()).connected();
        let acquire = Acquire { fences: 1, ..Acquire::of("t".into(), Some(SECOND)) };
        wire.push(0, command(Verb::Acquire(acquire)));
        simulated::end();
        match wire.pull(&mut |_| true) {
            Some(Pulled::Done(0, Ok(Answer::Held { fence: Some(number), slot: None }))) => number,
            _ => panic!("it is free"),
        }
    };
    let before = number_after(1_000_000, 1_700_000_000);
    assert_eq!(before, 1_700_000_000_000_000);
    assert!(before < number_after(3_000, 1_700_000_060), "after a minute");
}

/// A manager of these locks that listens.
struct Listening {
    wire: Box<dyn Wire>,
    /// Listens as long as it exists.
    _listen: BoxFuture<'static, Fault>,
    events: tokio::sync::mpsc::UnboundedReceiver<(u64, Event)>,
}

impl Listening {
    fn new(memory: &Memory, name: &str) -> Self {
        let connector = memory.connector(&name.into());
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        let mut listen = connector.listen(Hints::new(0, sender));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(listen.as_mut().poll(&mut context).is_pending());
        let mut new = Self { wire: connector.connected(), _listen: listen, events };
        assert!(matches!(new.heard(), Some(Event::Listening { hints_enabled: true })));
        new
    }

    fn heard(&mut self) -> Option<Event> {
        Some(self.events.try_recv().ok()?.1)
    }

    fn ask(&mut self, verb: Verb) -> Answer {
        self.ask_as(Kind::Mutex, verb)
    }

    fn ask_as(&mut self, kind: Kind, verb: Verb) -> Answer {
        assert!(!self.wire.fill().unwrap().received, "nothing is owed");
        self.wire.push(7, Command { kind, ..command(verb) });
        assert!(self.wire.is_instant() && self.wire.is_flushed(), "nothing has to be sent");
        assert!(self.wire.fill().unwrap().received);
        match self.wire.pull(&mut |_| true) {
            Some(Pulled::Done(7, answer)) => answer.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_manager_of_a_holder_hears_who_asks_and_who_waits() {
    let memory = Memory::default();
    let [mut one, mut two] = ["m1", "m2"].map(|name| Listening::new(&memory, name));
    let (holder, asker) = (Token::lingering("m1", ""), Token::fresh("m2", ""));
    one.ask(take(holder.wire(), Some(SECOND)));
    two.ask(ask(asker.wire()));
    let Some(Event::Asked { key, token }) = one.heard() else { panic!("it was not asked") };
    assert_eq!((&*key, &*token), ("lock:a", &**asker.wire()));
    one.ask(Verb::InUse { asker: Arc::clone(asker.wire()) });
    let Some(Event::Granted { token, waited_for: false }) = two.heard() else {
        panic!("it got no message to look again")
    };
    assert_eq!(*token, **asker.wire());
    two.ask(queue(asker.wire()));
    assert!(matches!(one.heard(), Some(Event::WaitedFor { key }) if key == "lock:a"));
    one.ask(Verb::Ping);
    assert!(one.heard().is_none() && two.heard().is_none());
    let (tokens, because) = (vec![holder.clone()], "".into());
    two.ask(Verb::Force { tokens, foreign: None, because });
    assert!(matches!(one.heard(), Some(Event::Forced { token }) if *token == **holder.wire()));
    assert!(matches!(two.heard(), Some(Event::Granted { waited_for: false, .. })));
    drop((one, two));
    assert!(memory.shared.lock().managers.is_empty(), "nobody listens any more");
}

#[test]
fn a_waiter_whose_engine_has_ended_keeps_nobody_out() {
    let memory = Memory::default();
    let [mut one, mut two] = ["m1", "m2"].map(|name| Listening::new(&memory, name));
    let read = |token| Verb::Acquire(acquire(token));
    assert_eq!(one.ask_as(Kind::Read, read("a")), Answer::Held { fence: None, slot: None });
    assert!(matches!(two.ask_as(Kind::Write, queue("b")), Answer::Busy(_)));
    assert!(matches!(one.ask_as(Kind::Read, read("c")), Answer::Busy(_)), "the writer is first");
    two.events.close();
    assert_eq!(one.ask_as(Kind::Read, read("c")), Answer::Held { fence: None, slot: None });
}

#[test]
fn a_manager_that_asks_before_it_subscribes_again_keeps_its_waiters() {
    let tokens = ["other", "m", "m"].map(|manager| Token::fresh(manager, "").wire().to_string());
    let [a, b, c] = tokens.each_ref().map(String::as_str);
    for kind in [Kind::Write, Kind::Permit { limit: 1 }, Kind::Mutex] {
        let mut state = State::default();
        let mut at = |millis, channel: &str, verb| {
            let command = Command { kind, ..command(verb) };
            let mut nobody_listens = |to: To<'_>, _: Option<Event>| to.name() == "-";
            let now = Moment::at_millis(millis);
            state.answer(&command, &channel.into(), now, &mut nobody_listens).unwrap()
        };
        assert_eq!(
            at(0, "other", Verb::Acquire(acquire(a))),
            Answer::Held { fence: None, slot: None }
        );
        let mut is_queued = |millis, channel: &str, token| {
            matches!(at(millis, channel, queue(token)), Answer::Busy(Blocker { queued: true, .. }))
        };
        // While it does not listen, it has no channel.
        for (channel, token) in [("m", b), ("m", c), ("-", c), ("m", b), ("m", c)] {
            assert!(is_queued(1, channel, token), "{kind:?}");
        }
        // The lease has ended.
        assert!(is_queued(1_000, "-", c), "{kind:?}: the other waiter came first");
        assert_eq!(at(1_000, "-", queue(b)), Answer::Held { fence: None, slot: None }, "{kind:?}");
    }
}

/// The first question of a call that ends older ones, which queues for a second.
fn first(token: &str) -> Verb {
    let (queue, newest) = (Some(SECOND), Some(Newest::First));
    Verb::Acquire(Acquire { queue, newest, ..acquire(token) })
}

#[test]
fn a_newer_call_tells_the_older_one_while_its_place_lasts() {
    for (at, told) in [(999, vec!["older".to_owned()]), (1_000, Vec::new())] {
        let mut lock = OneLock::default();
        lock.at(0, take("x", None));
        lock.at(0, first("older"));
        assert!(matches!(lock.at(at, first("newer")), Answer::Busy(_)));
        assert_eq!(lock.granted, told, "at {at}");
    }
}

#[test]
fn a_first_question_that_comes_again_does_not_end_a_newer_call_which_found_the_lock_free() {
    let mut lock = OneLock::default();
    lock.at(0, take("x", Some(SECOND)));
    assert!(matches!(lock.at(0, first("older")), Answer::Busy(_)));
    // Its answer was lost, and its place has ended when the lock is given back.
    assert_eq!(lock.at(1_000, release("x", None)), Answer::Gone { by: None, because: None });
    assert_eq!(lock.at(1_000, first("newer")), Answer::Held { fence: None, slot: None });
    assert_eq!(lock.at(1_001, first("older")), Answer::Superseded { held: false });
    assert_eq!(lock.at(1_001, Verb::Newer { token: "newer".into() }), Answer::Done);
    assert_eq!(lock.at(1_001, release("newer", None)), Answer::Done);
    assert!(lock.is_empty_at(10_000));
}

#[test]
fn a_newest_call_that_a_promoted_replica_never_heard_of_is_not_ended_by_an_older_one() {
    let later = |token: &str| {
        let (queue, newest) = (Some(SECOND), Some(Newest::Later));
        Verb::Acquire(Acquire { queue, newest, ..acquire(token) })
    };
    let mut primary = OneLock::default();
    primary.at(0, take("x", None));
    primary.at(0, first("older"));
    // It has executed what its primary has until now, and nothing that follows.
    let mut replica = OneLock::default();
    replica.at(0, take("x", None));
    replica.at(0, first("older"));
    assert!(matches!(primary.at(1, first("newer")), Answer::Busy(_)));
    assert_eq!(primary.at(2, later("older")), Answer::Superseded { held: false });
    assert_eq!(
        replica.at(3, later("newer")),
        Answer::Tombstone,
        "the client asks without the flag"
    );
    // If it were noted, a holder with the flag that has come since would leave for it.
    let mut forgetful = OneLock::default();
    forgetful.at(0, take("newest", None));
    assert_eq!(forgetful.at(0, later("older")), Answer::Tombstone);
}

#[test]
fn a_call_that_many_newer_ones_have_pushed_off_the_list_ends() {
    let mut lock = OneLock::default();
    lock.at(0, take("x", None));
    let calls: Vec<String> = (0..40).map(|number| format!("call {number}")).collect();
    for call in &calls {
        lock.at(0, first(call));
    }
    for call in &calls[..39] {
        let later = Acquire { queue: Some(SECOND), newest: Some(Newest::Later), ..acquire(call) };
        assert_eq!(lock.at(1, Verb::Acquire(later)), Answer::Superseded { held: false }, "{call}");
    }
}
