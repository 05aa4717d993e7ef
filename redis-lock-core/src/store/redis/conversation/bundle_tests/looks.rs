//! Looks of many waiters for one lock in one call.

use std::time::Duration;

use redis::ConnectionLike;

use super::{Answers, TTL, Talk};
use crate::domain::error::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::redis::direct::{Direct, names, token};
use crate::store::{Acquire, Answer, Command, Verb};

pub(super) const PERMIT: Kind = Kind::Permit { limit: 2 };

pub(super) fn look(number: usize, kind: Kind, stays: bool) -> Command {
    let queue = Some(Duration::from_secs(5));
    let terms = Acquire { queue, stays, ..Acquire::of(token(number), Some(TTL)) };
    let names = Names::new("lock", "lock:a");
    let timeout = Duration::from_secs(1);
    Command { names, kind, verb: Verb::Acquire(terms), timeout }
}

/// Pushes the looks with these `numbers` before anything is sent.
fn ask_all(
    direct: &mut Direct,
    numbers: std::ops::Range<usize>,
    kind: Kind,
    stays: bool,
) -> (Answers, Vec<usize>) {
    let mut talk = Talk::new();
    for number in numbers {
        talk.ask(number as u64, look(number, kind, stays));
    }
    let answers = talk.finish(direct);
    (answers, talk.breaths)
}

fn blocker(answer: &Result<Answer, Fault>) -> &crate::store::Blocker {
    match answer {
        Ok(Answer::Busy(blocker)) => blocker,
        other => panic!("{other:?}"),
    }
}

#[test]
fn those_who_wait_for_a_permit_look_together_and_keep_their_places() {
    for mut direct in Direct::each() {
        let (answers, breaths) = ask_all(&mut direct, 0..402, PERMIT, false);
        assert_eq!(breaths[0], 402, "who is not known to wait asks alone");
        assert!((0..2).all(|seq| matches!(answers[&seq], Ok(Answer::Held { .. }))));
        let alone = blocker(&answers[&2]).clone();
        let names = Names::new("lock", "lock:a");
        let in_order = format!("ZRANGE {} 0 -1", names.queue());
        let order = direct.server.run::<Vec<String>>(&in_order);
        assert_eq!(order.len(), 400);
        direct.server.run::<()>(&format!("PEXPIRE {} 1500", names.waiters()));
        let (answers, breaths) = ask_all(&mut direct, 2..402, PERMIT, true);
        assert_eq!(breaths[0], 2, "256 and 144");
        assert_eq!(answers.len(), 400);
        for (seq, answer) in &answers {
            let blocker = blocker(answer);
            assert!(blocker.queued && blocker.is_far == (*seq >= 34), "{seq}: {blocker:?}");
            assert_eq!(blocker.value, alone.value);
            assert!(blocker.ttl.unwrap() <= TTL && blocker.ttl.unwrap() > TTL / 2);
        }
        let after = direct.server.run::<Vec<String>>(&in_order);
        assert_eq!(after, order, "nobody loses its place");
        assert!(direct.server.pttl(&names.waiters()).unwrap() > 4_000, "places last again");
    }
}

#[test]
fn whoever_is_let_in_refused_or_forgotten_is_told_so_among_those_who_stay() {
    for mut direct in Direct::each() {
        for kind in [PERMIT, Kind::Write, Kind::Read] {
            direct.server.run::<()>("FLUSHALL");
            let (holder, fits) = match kind {
                Kind::Read => (Kind::Write, 10),
                Kind::Write => (Kind::Write, 1),
                _ => (kind, 2),
            };
            let holders = if kind == PERMIT { 0..2 } else { 0..1 };
            ask_all(&mut direct, holders, holder, false);
            ask_all(&mut direct, 2..12, kind, false);
            let names = Names::new("lock", "lock:a");
            let tombstone = names.tombstone(&token(3));
            let tombstone_time = Some(Duration::from_secs(60));
            let (token_3, waited_for) = (token(3), true);
            let release =
                Verb::Release { token: token_3, waited_for, keep: None, tombstone: tombstone_time };
            direct.ask(kind, release).unwrap();
            let (answers, _) = ask_all(&mut direct, 2..12, kind, true);
            assert_eq!(answers[&3], Ok(Answer::Tombstone), "{kind:?}");
            assert!(blocker(&answers[&4]).queued);
            direct.server.run::<()>(&format!("DEL {tombstone}"));
            direct.server.run::<()>(&format!("ZREM {} {}", names.queue(), token(5)));
            direct.server.run::<()>(&format!("HDEL {} {}", names.waiters(), token(5)));
            let (answers, _) = ask_all(&mut direct, 2..12, kind, true);
            assert!(blocker(&answers[&5]).queued && blocker(&answers[&6]).queued);
            direct.server.run::<()>("DEL lock:a");
            let (answers, _) = ask_all(&mut direct, 2..12, kind, true);
            let held = answers.values().filter(|it| matches!(it, Ok(Answer::Held { .. }))).count();
            assert_eq!(held, fits, "{kind:?}: {answers:?}");
        }
    }
}

#[test]
fn those_who_wait_for_other_locks_or_in_other_terms_do_not_look_together() {
    let mut talk = Talk::new();
    talk.ask(1, look(1, PERMIT, true));
    talk.ask(2, look(2, Kind::Permit { limit: 3 }, true));
    talk.ask(3, look(3, Kind::Read, true));
    talk.ask(4, Command { kind: Kind::Mutex, ..look(4, PERMIT, true) });
    talk.ask(5, look(5, PERMIT, false));
    assert_eq!(talk.flush().len(), 5);
}

#[test]
fn a_full_or_demoted_server_says_so_to_those_who_look_together() {
    for mut direct in Direct::each() {
        ask_all(&mut direct, 0..6, PERMIT, false);
        direct.server.run::<()>("CONFIG SET maxmemory 1");
        let (answers, _) = ask_all(&mut direct, 2..6, PERMIT, true);
        assert!(answers.values().all(|it| it.is_ok()), "{answers:?}");
        direct.server.run::<()>("CONFIG SET maxmemory 0");
        if direct.server.binary().version() < (6, 2, 0) {
            // There no script is refused for want of replicas.
            continue;
        }
        direct.server.run::<()>("CONFIG SET min-replicas-to-write 1");
        let (answers, _) = ask_all(&mut direct, 2..6, PERMIT, true);
        assert!(answers.values().all(Result::is_err), "{answers:?}");
    }
}

/// How many stand in the queue, and how many entries there are.
fn queue_and_entries(direct: &Direct) -> [usize; 2] {
    let names = Names::new("lock", "lock:a");
    [format!("ZCARD {}", names.queue()), format!("HLEN {}", names.waiters())]
        .map(|line| direct.server.run::<usize>(&line))
}

#[test]
fn a_look_of_many_gives_nobody_a_place_who_has_none() {
    for mut direct in Direct::each() {
        ask_all(&mut direct, 0..6, PERMIT, false);
        // From here on the server knows the script.
        ask_all(&mut direct, 2..6, PERMIT, true);
        let mut talk = Talk::new();
        (4..8).for_each(|number| talk.ask(number as u64, look(number, PERMIT, true)));
        let cmd = talk.flush().remove(0);
        let packed = cmd.get_packed_command();
        let value = direct.connection.req_packed_commands(&packed, 0, 1).unwrap().remove(0);
        talk.hear(value, &mut |_| false);
        assert!(talk.flush().is_empty(), "whoever has no place does not want one any more");
        assert_eq!(queue_and_entries(&direct), [4, 4]);
    }
}

#[test]
fn whoever_has_an_entry_and_no_place_gets_one() {
    for mut direct in Direct::each() {
        ask_all(&mut direct, 0..6, PERMIT, false);
        direct.server.run::<()>(&format!("ZREM {} {}", names().queue(), token(3)));
        let (answers, _) = ask_all(&mut direct, 2..6, PERMIT, true);
        assert!((2..6).all(|number| blocker(&answers[&number]).queued));
        assert_eq!(queue_and_entries(&direct), [4, 4]);
    }
}

#[test]
fn users_who_may_not_count_entries_look_together_as_well() {
    for mut direct in Direct::each_with_users() {
        ask_all(&mut direct, 0..6, PERMIT, false);
        direct.server.run::<()>("ACL SETUSER default -hlen");
        let (answers, breaths) = ask_all(&mut direct, 2..8, PERMIT, true);
        assert_eq!(breaths.iter().sum::<usize>(), 1 + 1 + 2, "in full, and two who are new");
        assert!((2..8).all(|number| blocker(&answers[&number]).queued));
        direct.server.run::<()>("ACL SETUSER default +hlen");
        assert_eq!(queue_and_entries(&direct), [6, 6]);
    }
}
