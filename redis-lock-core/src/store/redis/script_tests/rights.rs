//! The rights that the documentation lists are all that the scripts need.

use std::time::Duration;

use super::{KINDS, fenced, is_held, is_queued};
use crate::domain::kind::Kind;
use crate::store::redis::test_direct::{Direct, acquire, release, token};
use crate::store::{Answer, Verb};

/// All that docs/PROTOCOL.md asks for, taken from there.
fn documented_rights() -> Vec<String> {
    let text = include_str!("../../../../../docs/PROTOCOL.md");
    let (_, rights) = text.split_once("## Rights").unwrap();
    let block = |at: usize| {
        let (_language, listing) = rights.split("```").nth(at).unwrap().split_once('\n').unwrap();
        listing.replace('\n', " ")
    };
    let (mutexes, others) = (block(1), block(3));
    let mutexes = mutexes.split_once(">secret").unwrap().1.to_owned();
    vec![mutexes.clone(), mutexes + &others]
}

/// Takes a lock, lets others wait for it, passes it on and gives it up, and expects that each is allowed.
fn assert_passes_on(direct: &mut Direct, kind: Kind) {
    assert!(is_held(&direct.ask(kind, fenced(1)).unwrap()), "{kind:?}");
    let other = if kind == Kind::Read { Kind::Write } else { kind };
    let other = if let Kind::Permit { .. } = kind { Kind::Permit { limit: 1 } } else { other };
    let busy = direct.ask(other, acquire(2, true)).unwrap();
    assert!(is_queued(&busy), "{kind:?}");
    assert!(!is_queued(&direct.ask(other, acquire(3, false)).unwrap()));
    for verb in [
        Verb::Renew { token: token(1), ttl: Some(Duration::from_secs(60)) },
        Verb::Check { token: token(1) },
        Verb::Keep { token: token(1), time: Duration::from_secs(60) },
    ] {
        let answer = direct.ask(kind, verb).unwrap();
        assert!(matches!(answer, Answer::Done | Answer::Renewed { .. }), "{answer:?}");
    }
    if kind == Kind::Write {
        assert_eq!(direct.ask(kind, Verb::Downgrade { token: token(1) }).unwrap(), Answer::Done);
    }
    assert_eq!(direct.ask(kind, release(1)).unwrap(), Answer::Done);
    assert!(is_held(&direct.ask(other, acquire(2, false)).unwrap()));
    let gone = direct.ask(kind, Verb::Check { token: token(1) }).unwrap();
    assert!(matches!(gone, Answer::Gone { .. }));
    let tombstone = Some(Duration::from_secs(2));
    let abandon =
        Verb::Release { token: token(2), waited_for: true, keep: None, share: None, tombstone };
    assert_eq!(direct.ask(other, abandon).unwrap(), Answer::Done);
    assert_eq!(direct.ask(other, acquire(2, false)).unwrap(), Answer::Tombstone);
}

#[test]
fn the_documented_rights_are_all_that_is_needed_and_each_of_them_is() {
    for mut direct in Direct::each_with_users() {
        let [few, all] = &documented_rights()[..] else { panic!() };
        for (rights, kinds) in [(few, &KINDS[..1]), (all, &KINDS[..])] {
            direct.server.run::<()>("FLUSHALL");
            direct.become_user(rights);
            for kind in kinds {
                assert_passes_on(&mut direct, *kind);
                direct.server.run::<()>("FLUSHALL");
            }
            direct.server.run::<()>("LPUSH lock:a x");
            let fault = direct.ask(Kind::Mutex, acquire(1, false)).unwrap_err();
            assert!(
                !fault.what.contains("NOPERM"),
                "a foreign type is reported as such: {}",
                fault.what
            );
            if rights == all {
                direct.server.run::<()>("FLUSHALL");
                assert!(is_held(&direct.ask(Kind::Mutex, acquire(1, false)).unwrap()));
                assert!(matches!(direct.ask(Kind::Mutex, Verb::Look).unwrap(), Answer::Seen(_)));
                let tokens = vec![crate::Token::from_wire(&token(1))];
                let force = Verb::Force { tokens, foreign: None, because: "x".into() };
                assert_eq!(direct.ask(Kind::Mutex, force).unwrap(), Answer::Done);
                let scan = direct.ask(Kind::Mutex, Verb::Scan { cursor: 0 });
                assert!(matches!(scan.unwrap(), Answer::Keys { .. }));
            }
        }
    }
}
