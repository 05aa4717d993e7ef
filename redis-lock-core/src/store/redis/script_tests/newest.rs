//! What the scripts note of calls with `newest`, and whom they end.

use super::*;

fn ask(direct: &mut Direct, verb: Verb) -> Answer {
    direct.send(&command(Kind::Mutex, verb), "lock:~m:x").unwrap()
}

/// A later question of the call that [`newest`] begins.
fn later(number: usize) -> Verb {
    match newest(number) {
        Verb::Acquire(first) => Verb::Acquire(Acquire { newest: Some(Newest::Later), ..first }),
        other => other,
    }
}

#[test]
fn a_newest_call_that_a_full_server_did_not_note_is_not_ended_by_an_older_one() {
    for mut direct in Direct::each() {
        assert!(is_held(&ask(&mut direct, acquire(1, false))));
        assert!(is_queued(&ask(&mut direct, newest(1))));
        direct.server.run::<()>("CONFIG SET maxmemory 1");
        let busy = ask(&mut direct, newest(2));
        assert!(matches!(&busy, Answer::Busy(blocker) if !blocker.queued), "{busy:?}");
        direct.server.run::<()>("CONFIG SET maxmemory 0");
        assert_eq!(ask(&mut direct, later(2)), Answer::Tombstone);
        assert!(is_queued(&ask(&mut direct, later(1))));
        // The list can have dropped a call only once it is full.
        let most = 32;
        (3..=most).for_each(|number| assert!(is_queued(&ask(&mut direct, newest(number)))));
        assert_eq!(ask(&mut direct, later(2)), Answer::Tombstone);
        (1..=2).for_each(|more| assert!(is_queued(&ask(&mut direct, newest(most + more)))));
        assert_eq!(ask(&mut direct, later(1)), Answer::Superseded { held: false });
    }
}

#[test]
fn a_foreign_value_at_the_end_of_the_calls_ends_none_of_them() {
    for mut direct in Direct::each() {
        assert!(is_held(&ask(&mut direct, acquire(1, false))));
        assert!(is_queued(&ask(&mut direct, newest(1))));
        let (seconds, _): (u64, u64) = direct.server.run("TIME");
        let far = (seconds + 3_600) * 1_000_000;
        let () = direct.connection.zadd(names().latest(), "theirs", far).unwrap();
        assert_eq!(ask(&mut direct, later(1)), Answer::Tombstone);
        let token = Arc::clone(newest(1).token().unwrap());
        assert_eq!(ask(&mut direct, Verb::Newer { token }), Answer::Done);
        assert!(is_queued(&ask(&mut direct, newest(2))));
        let waiting: usize = direct.connection.zcard(names().queue()).unwrap();
        assert_eq!(waiting, 2, "it takes nobody's place");
        assert_eq!(ask(&mut direct, later(1)), Answer::Superseded { held: false });
        // A value of another type.
        let () = direct.connection.del(names().latest()).unwrap();
        let () = direct.connection.lpush(names().latest(), "theirs").unwrap();
        assert!(is_queued(&ask(&mut direct, newest(3))));
        assert_eq!(ask(&mut direct, later(3)), Answer::Tombstone);
    }
}
