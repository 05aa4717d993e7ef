//! What the scripts do on servers that are full, that became replicas, that have foreign values or
//! many waiters, and with few rights.

mod crowds;
mod newest;
mod rights;

use std::sync::Arc;
use std::time::Duration;

use redis::Commands;

use super::encode::{self, Context};
use super::listen::Channel;
use super::probe::Delete;
use super::test_direct::{Direct, acquire, command, names, newest, release, token};
use crate::domain::fault::FaultClass;
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Newest, ServerView, Verb};

const ALL: Kind = Kind::All { ordered: false };
const KINDS: [Kind; 5] = [Kind::Mutex, Kind::Read, Kind::Write, Kind::Permit { limit: 2 }, ALL];

fn fenced(number: usize) -> Verb {
    let ttl = Some(Duration::from_secs(30));
    Verb::Acquire(Acquire { fences: 8, ..Acquire::of(token(number), ttl) })
}

fn is_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Held { .. })
}

fn seen(direct: &mut Direct) -> ServerView {
    match direct.ask(Kind::Mutex, Verb::Look).unwrap() {
        Answer::Seen(seen) => *seen,
        other => panic!("{other:?} is nothing to be seen"),
    }
}

fn is_queued(answer: &Answer) -> bool {
    matches!(answer, Answer::Busy(blocker) if blocker.queued)
}

#[test]
fn a_mutex_is_renewed_checked_kept_and_plainly_released_by_its_own_key_alone() {
    let token = token(1);
    let verbs = [
        Verb::Renew { token: token.clone(), ttl: Some(Duration::from_secs(1)) },
        Verb::Check { token: token.clone() },
        Verb::Keep { token: token.clone(), time: Duration::from_secs(1) },
        Verb::Why { token: token.clone() },
        Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None },
    ];
    let context = Context { delete: Delete::Script, channel: &Channel::default() };
    for verb in verbs {
        let command = command(Kind::Mutex, verb);
        let cmd = encode::plain(&command, &context)
            .unwrap_or_else(|| encode::call(&command, &context).unwrap().cmd());
        let words: Vec<_> = cmd.args_iter().map(|arg| format!("{arg:?}")).collect();
        let text = String::from_utf8(cmd.get_packed_command()).unwrap();
        let keys = text.matches("lock:a").count();
        assert_eq!(keys, 1, "{words:?}");
        assert!(text.contains("EVALSHA") == text.contains("\r\n$1\r\n1\r\n"), "{words:?}");
    }
}

#[test]
fn a_renewal_lengthens_only_and_a_keep_cuts() {
    for mut direct in Direct::each() {
        for kind in KINDS {
            direct.server.run::<()>("FLUSHALL");
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            let renew =
                |seconds| Verb::Renew { token: token(1), ttl: Some(Duration::from_secs(seconds)) };
            let left = |direct: &Direct| direct.server.pttl("lock:a").unwrap();
            let Answer::Renewed { longer: Some(longer), waited_for: false, slot: None } =
                direct.ask(kind, renew(10)).unwrap()
            else {
                panic!("30 s are longer than 10")
            };
            assert!(longer > Duration::from_secs(25) && left(&direct) > 25_000, "{kind:?}");
            let renewed = direct.ask(kind, renew(50)).unwrap();
            assert_eq!(renewed, Answer::Renewed { longer: None, waited_for: false, slot: None });
            assert!(left(&direct) > 45_000);
            let again = direct.ask(kind, acquire(1, false)).unwrap();
            assert!(is_held(&again) && left(&direct) > 45_000, "recognised, and not cut");
            let time = Duration::from_secs(5);
            let kept = direct.ask(kind, Verb::Keep { token: token(1), time }).unwrap();
            assert_eq!(kept, Answer::Done);
            assert!(left(&direct) <= 5_000);
            assert!(matches!(direct.ask(kind, release(1)).unwrap(), Answer::Done));
            let gone = direct.ask(kind, renew(10)).unwrap();
            assert_eq!(gone, Answer::Gone { by: None, because: None });
        }
    }
}

#[test]
fn the_limit_of_a_permit_that_ended_is_noted_again_and_one_that_was_left_is_removed() {
    let kind = Kind::Permit { limit: 2 };
    for mut direct in Direct::each() {
        let limits =
            |direct: &mut Direct| -> i64 { direct.connection.zcard(names().limit()).unwrap() };
        for number in [1, 2] {
            assert!(is_held(&direct.ask(kind, acquire(number, false)).unwrap()));
        }
        let () = direct.connection.zrem(names().limit(), &*token(1)).unwrap();
        let ttl = Some(Duration::from_secs(40));
        direct.ask(kind, Verb::Renew { token: token(1), ttl }).unwrap();
        assert_eq!(limits(&mut direct), 2);
        let () = direct.connection.zrem("lock:a", format!("p:{}", token(1))).unwrap();
        let released = direct.ask(kind, release(1)).unwrap();
        assert_eq!(released, Answer::Gone { by: None, because: None });
        assert_eq!(limits(&mut direct), 1);
        direct.ask(kind, release(2)).unwrap();
        direct.server.assert_clean();
    }
}

#[test]
fn a_lock_that_never_expires_is_given_no_end_by_a_renewal() {
    for mut direct in Direct::each() {
        direct.server.run::<()>(&format!("SET lock:a {}", token(1)));
        let ttl = Some(Duration::from_secs(1));
        let renewed = direct.ask(Kind::Mutex, Verb::Renew { token: token(1), ttl }).unwrap();
        assert_eq!(
            renewed,
            Answer::Renewed { longer: Some(Duration::MAX), waited_for: false, slot: None }
        );
        assert_eq!(direct.server.run::<i64>("PTTL lock:a"), -1);
    }
}

#[test]
fn a_renewal_says_that_somebody_waits_and_why_a_hold_was_ended() {
    for mut direct in Direct::each() {
        for kind in [Kind::Mutex, ALL] {
            direct.server.run::<()>("FLUSHALL");
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            assert!(is_queued(&direct.ask(kind, acquire(2, true)).unwrap()));
            let renew = || Verb::Renew { token: token(1), ttl: Some(Duration::from_secs(40)) };
            let renewed = direct.ask(kind, renew()).unwrap();
            assert_eq!(renewed, Answer::Renewed { longer: None, waited_for: true, slot: None });
            let tokens = vec![crate::Token::from_wire(&token(1))];
            let force = Verb::Force { tokens, foreign: None, because: "it hangs".into() };
            assert_eq!(direct.ask(Kind::Mutex, force).unwrap(), Answer::Done);
            let because = Some("it hangs".to_owned());
            let gone = Answer::Gone { by: None, because };
            assert_eq!(direct.ask(kind, renew()).unwrap(), gone, "although the next has it");
            assert_eq!(direct.ask(kind, Verb::Check { token: token(1) }).unwrap(), gone);
            assert!(is_held(&direct.ask(kind, acquire(2, false)).unwrap()));
        }
    }
}

#[test]
fn a_fence_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it() {
    let day = 86_400_000_i64;
    for mut direct in Direct::each() {
        for kind in [Kind::Mutex, Kind::Write, ALL] {
            direct.server.run::<()>("FLUSHALL");
            let (seconds, _): (u64, u64) = direct.server.run("TIME");
            let ahead = (seconds + 2 * 86_400) * 1_000_000;
            let fence = names().fence();
            let () = direct.connection.set(&fence, format!("{ahead} x")).unwrap();
            let held = direct.ask(kind, fenced(1)).unwrap();
            assert_eq!(held, Answer::Held { fence: Some(ahead + 8), slot: None });
            let left = direct.server.pttl(&fence).unwrap();
            assert!((3 * day - 60_000..=3 * day + 1_000).contains(&left), "{kind:?}: {left}");
        }
    }
}

#[test]
fn a_server_that_may_not_write_says_so_and_not_that_a_lock_is_busy() {
    let ways = [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
    ];
    for mut direct in Direct::each() {
        for kind in KINDS {
            direct.server.run::<()>("FLUSHALL");
            let limit =
                if matches!(kind, Kind::Permit { .. }) { Kind::Permit { limit: 1 } } else { kind };
            let other = if kind == Kind::Read { Kind::Write } else { limit };
            assert!(is_held(&direct.ask(limit, acquire(1, false)).unwrap()));
            for (break_it, mend_it, code) in ways {
                // Before Redis 6.2 no script is refused for want of replicas.
                if code == "NOREPLICAS" && direct.server.binary().version() < (6, 2, 0) {
                    continue;
                }
                direct.server.run::<()>(break_it);
                for patient in [true, false] {
                    let fault = direct.ask(other, acquire(2, patient)).unwrap_err();
                    assert_eq!(fault.class, FaultClass::Refused, "{kind:?} {}", fault.what);
                    assert!(fault.what.contains(code), "{}", fault.what);
                }
                let tombstone = Some(Duration::from_secs(9));
                let abandon = Verb::Release {
                    token: token(2),
                    waited_for: true,
                    keep: None,
                    share: None,
                    tombstone,
                };
                let fault = direct.ask(other, abandon).unwrap_err();
                assert!(fault.what.contains(code), "{}", fault.what);
                direct.server.run::<()>(mend_it);
            }
            assert!(is_queued(&direct.ask(other, acquire(2, true)).unwrap()));
            assert!(direct.server.keys().iter().all(|key| direct.server.pttl(key).is_some()));
        }
    }
}

#[test]
fn a_full_server_takes_no_lock_more_but_keeps_and_gives_up_those_it_has() {
    for mut direct in Direct::each() {
        for kind in KINDS {
            direct.server.run::<()>("FLUSHALL");
            direct.server.run::<()>("CONFIG SET maxmemory 0");
            let kind =
                if let Kind::Permit { .. } = kind { Kind::Permit { limit: 1 } } else { kind };
            let other = if kind == Kind::Read { Kind::Write } else { kind };
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            direct.server.run::<()>("CONFIG SET maxmemory 1");
            let busy = direct.ask(other, acquire(2, true)).unwrap();
            assert!(matches!(&busy, Answer::Busy(blocker) if !blocker.queued), "{busy:?}");
            let ttl = Some(Duration::from_secs(60));
            assert!(direct.ask(kind, Verb::Renew { token: token(1), ttl }).is_ok());
            assert_eq!(direct.ask(kind, release(1)).unwrap(), Answer::Done);
            for _ in 0..1_000 {
                let fault = direct.ask(other, fenced(2)).unwrap_err();
                assert!(fault.what.contains("OOM"), "{}", fault.what);
            }
            assert!(direct.server.keys().is_empty(), "{:?}", direct.server.keys());
        }
    }
}

#[test]
fn a_first_question_that_comes_again_does_not_end_a_newer_call_that_found_the_lock_free() {
    for mut direct in Direct::each() {
        // Nobody listens there, so the call that waits counts as dead when the lock is given back.
        let mut ask = |verb| direct.send(&command(Kind::Mutex, verb), "lock:~m:x").unwrap();
        assert!(is_held(&ask(acquire(1, false))));
        assert!(is_queued(&ask(newest(1))));
        assert_eq!(ask(release(1)), Answer::Done);
        assert!(is_held(&ask(newest(2))));
        assert_eq!(ask(newest(1)), Answer::Superseded { held: false });
        let token = Arc::clone(newest(2).token().unwrap());
        assert_eq!(ask(Verb::Newer { token }), Answer::Done);
    }
}

#[test]
fn who_asks_without_a_place_leaves_the_queue() {
    for mut direct in Direct::each() {
        for kind in [Kind::Mutex, Kind::Write, Kind::Permit { limit: 1 }, ALL] {
            direct.server.run::<()>("FLUSHALL");
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            assert!(is_queued(&direct.ask(kind, acquire(2, true)).unwrap()));
            assert!(!is_queued(&direct.ask(kind, acquire(2, false)).unwrap()));
            assert!(!direct.server.exists(&names().queue()), "{kind:?}");
            assert!(!direct.server.exists(&names().waiters()), "{kind:?}");
        }
    }
}

#[test]
fn a_holder_that_may_be_idle_gets_a_message_at_every_look_of_a_waiter_that_has_a_channel() {
    for mut direct in Direct::each() {
        for kind in [Kind::Mutex, ALL] {
            direct.server.run::<()>("FLUSHALL");
            let mut listening = direct.server.client().get_connection().unwrap();
            let mut listening = listening.as_pubsub();
            listening.subscribe("lock:~m:a").unwrap();
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            assert!(is_queued(&direct.ask(kind, acquire(2, true)).unwrap()), "it has no channel");
            for _ in 0..2 {
                let again = direct.send(&command(kind, acquire(2, true)), "lock:~m:b");
                assert!(is_queued(&again.unwrap()));
            }
            let another = direct.send(&command(kind, acquire(3, true)), "lock:~m:b");
            assert!(is_queued(&another.unwrap()));
            direct.server.run::<i64>("PUBLISH lock:~m:a over");
            let mut heard = || listening.get_message().unwrap().get_payload::<String>().unwrap();
            for look in 0..3 {
                assert_eq!(heard(), "w lock:a", "{kind:?}: a message may be lost; look {look}");
            }
            assert_eq!(heard(), "over", "{kind:?}");
        }
    }
}

#[test]
fn a_holder_that_is_never_idle_gets_one_message_that_somebody_waits() {
    for mut direct in Direct::each() {
        let mut listening = direct.server.client().get_connection().unwrap();
        let mut listening = listening.as_pubsub();
        listening.subscribe("lock:~m:a").unwrap();
        let never_idle = token(1).replace(".a.0.", ".a.1.");
        direct.server.run::<()>(&format!("SET lock:a {never_idle} PX 30000"));
        for number in [2, 2, 3] {
            let asked = direct.send(&command(Kind::Mutex, acquire(number, true)), "lock:~m:b");
            assert!(is_queued(&asked.unwrap()));
        }
        direct.server.run::<i64>("PUBLISH lock:~m:a over");
        let mut heard = || listening.get_message().unwrap().get_payload::<String>().unwrap();
        assert_eq!(heard(), "w lock:a");
        assert_eq!(heard(), "over", "its release finds the mark");
    }
}

#[test]
fn dead_waiters_are_passed_over_whoever_subscribes_to_patterns() {
    for mut direct in Direct::each() {
        let mut everything = direct.server.client().get_connection().unwrap();
        let mut everything = everything.as_pubsub();
        everything.psubscribe("*").unwrap();
        for kind in [Kind::Mutex, Kind::Write, Kind::Permit { limit: 1 }] {
            direct.server.run::<()>("FLUSHALL");
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            for dead in 2..5 {
                let queued = direct.send(&command(kind, acquire(dead, true)), "lock:~m:dead");
                assert!(is_queued(&queued.unwrap()));
            }
            assert!(is_queued(&direct.ask(kind, acquire(5, true)).unwrap()));
            assert_eq!(direct.ask(kind, release(1)).unwrap(), Answer::Done);
            let check = direct.ask(kind, Verb::Check { token: token(5) }).unwrap();
            assert_eq!(check, Answer::Done, "{kind:?}: the one that lives has it");
        }
    }
}

#[test]
fn a_manager_that_asks_before_it_subscribes_again_keeps_its_waiters() {
    for mut direct in Direct::each() {
        for kind in [Kind::Write, Kind::Permit { limit: 1 }, Kind::Mutex, ALL] {
            direct.server.run::<()>("FLUSHALL");
            assert!(is_held(&direct.ask(kind, acquire(1, false)).unwrap()));
            let queue = |direct: &mut Direct, number, channel| {
                direct.send(&command(kind, acquire(number, true)), channel).unwrap()
            };
            // While it does not listen, it has no channel.
            let asked = [(2, "lock:~m:a"), (3, "lock:~m:a"), (3, "-"), (2, "lock:~m:a")];
            for (number, channel) in asked {
                let answer = queue(&mut direct, number, channel);
                assert!(is_queued(&answer), "{kind:?} {number}: {answer:?}");
            }
            direct.server.run::<()>("DEL lock:a");
            let other = queue(&mut direct, 3, "-");
            assert!(matches!(other, Answer::Busy(_)), "{kind:?}: the other came first");
            assert!(is_held(&queue(&mut direct, 2, "-")), "{kind:?}");
        }
    }
}

#[test]
fn values_of_others_at_side_keys_are_met_before_anything_is_written() {
    let sides = [names().queue(), names().waiters(), names().limit(), names().tombstone(&token(1))];
    for mut direct in Direct::each() {
        for kind in KINDS {
            for side in sides.iter().chain([&names().fence()]) {
                direct.server.run::<()>("FLUSHALL");
                let () = direct.connection.lpush(side, "theirs").unwrap();
                if *side == names().tombstone(&token(1)) {
                    assert_eq!(direct.ask(kind, acquire(1, false)).unwrap(), Answer::Tombstone);
                    continue;
                }
                let held = direct.ask(kind, fenced(1));
                if *side == names().fence() {
                    let fault = held.unwrap_err();
                    assert_eq!(fault.class, FaultClass::Permanent, "{}", fault.what);
                    assert_eq!(direct.server.keys().len(), 1, "no lock stands");
                    continue;
                }
                assert!(is_held(&held.unwrap()), "{kind:?} {side}");
                let exclusive = matches!(kind, Kind::Mutex | Kind::Write | Kind::All { .. });
                if exclusive && *side != names().limit() {
                    let busy = direct.ask(kind, acquire(2, true)).unwrap();
                    assert!(matches!(&busy, Answer::Busy(blocker) if !blocker.queued), "{busy:?}");
                }
                assert!(matches!(direct.ask(Kind::Mutex, Verb::Look).unwrap(), Answer::Seen(_)));
                let ttl = Some(Duration::from_secs(60));
                assert!(direct.ask(kind, Verb::Renew { token: token(1), ttl }).is_ok());
                assert_eq!(direct.ask(kind, release(1)).unwrap(), Answer::Done);
                assert!(!direct.server.exists("lock:a"), "{kind:?} {side}");
                assert_eq!(direct.server.pttl(side), Some(-1), "what is not ours is left alone");
            }
        }
    }
}

#[test]
fn no_side_key_stays_without_an_end_when_a_right_is_missing() {
    for mut direct in Direct::each_with_users() {
        for denied in ["hset", "pexpire"] {
            direct.server.run::<()>("FLUSHALL");
            assert!(is_held(&direct.ask(Kind::Mutex, acquire(1, false)).unwrap()));
            let standing = std::mem::replace(
                &mut direct.connection,
                direct.server.client().get_connection().unwrap(),
            );
            direct.become_user(&format!("~* &* +@all -{denied}"));
            let fault = direct.ask(Kind::Mutex, acquire(2, true)).unwrap_err();
            assert_eq!(fault.class, FaultClass::Permanent, "{}", fault.what);
            assert!(fault.what.contains("NOPERM"), "{}", fault.what);
            assert_eq!(direct.server.keys(), ["lock:a"], "without {denied}");
            direct.connection = standing;
        }
    }
}

#[test]
fn limits_that_nobody_has_any_more_cap_nobody() {
    for mut direct in Direct::each() {
        let permit = |limit| Kind::Permit { limit };
        assert!(is_held(&direct.ask(permit(1), acquire(1, false)).unwrap()));
        direct.server.run::<()>("DEL lock:a");
        for number in 2..5 {
            assert!(is_held(&direct.ask(permit(3), acquire(number, false)).unwrap()), "{number}");
        }
    }
}

#[test]
fn values_of_others_are_neither_marked_nor_shown_in_full_nor_mistaken_for_each_other() {
    for mut direct in Direct::each() {
        for foreign in ["rl1.deadbeef".to_owned(), "x".repeat(100_000)] {
            let () = direct.connection.pset_ex("lock:a", &foreign, 60_000).unwrap();
            let Answer::Busy(blocker) = direct.ask(Kind::Mutex, acquire(1, true)).unwrap() else {
                panic!("somebody else has it")
            };
            assert!(blocker.queued && blocker.value.unwrap().len() <= 200);
            assert_eq!(direct.server.get("lock:a").unwrap(), foreign, "no mark");
        }
        direct.server.run::<()>("FLUSHALL");
        direct.server.run::<()>("SET lock:a theirs PX 60000");
        let shown = seen(&mut direct);
        direct.server.run::<()>("SET lock:a another PX 60000");
        let force = |foreign| Verb::Force { tokens: Vec::new(), foreign, because: "stale".into() };
        let missed = direct.ask(Kind::Mutex, force(shown.foreign)).unwrap();
        assert!(matches!(missed, Answer::Gone { .. }) && direct.server.exists("lock:a"));
        let shown = seen(&mut direct);
        assert_eq!(direct.ask(Kind::Mutex, force(shown.foreign)).unwrap(), Answer::Done);
        assert!(!direct.server.exists("lock:a"));
    }
}
