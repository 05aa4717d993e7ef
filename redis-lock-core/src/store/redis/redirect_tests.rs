//! What a conversation does when another node has the key.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::conversation::Conversation;
use super::encode;
use super::line::CommandSink;
use super::listen::Channel;
use super::nodes::Member;
use super::probe::Found;
use super::test_direct::{acquire, command, names, release, token};
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::wire::Redirect;
use crate::store::{Answer, Command, Keep, Pulled, Verb};

/// A conversation whose server the test plays.
struct Played {
    conversation: Conversation,
    /// The names of the commands that were sent.
    sent: Sent,
}

#[derive(Default)]
struct Sent(Vec<String>);

impl CommandSink for Sent {
    fn send(&mut self, cmd: Cmd) {
        self.0.push(name(&cmd));
    }
}

impl Played {
    fn with(member: Option<Member>, is_cluster: bool) -> Self {
        let found = Found { cluster: is_cluster, ..Found::default() };
        let conversation = Conversation::new(found, Arc::default(), Channel::default(), member);
        Self { conversation, sent: Sent::default() }
    }

    /// A node of a cluster of several.
    fn node() -> Self {
        Self::with(Some(Member::of_cluster("a:7000")), false)
    }

    fn ask(&mut self, seq: u64, command: Command) {
        let sent = &mut self.sent;
        self.conversation.ask(seq, command, sent);
    }

    fn ask_asking(&mut self, seq: u64, command: Command) {
        let sent = &mut self.sent;
        self.conversation.ask_asking(seq, command, sent);
    }

    /// The server says this, in its own form.
    fn hear(&mut self, reply: &str) -> Option<Pulled> {
        let value = redis::parse_redis_value(reply.as_bytes()).unwrap();
        self.hear_value(value)
    }

    fn hear_value(&mut self, value: Value) -> Option<Pulled> {
        let sent = &mut self.sent;
        self.conversation.take_reply(value, &mut |_| true, sent);
        self.conversation.next_done()
    }
}

fn name(cmd: &Cmd) -> String {
    let redis::Arg::Simple(name) = cmd.args_iter().next().unwrap() else { panic!("no name") };
    String::from_utf8_lossy(name).into_owned()
}

fn mutex(verb: Verb) -> Command {
    command(Kind::Mutex, verb)
}

fn moved_to_b(pulled: Option<Pulled>) -> (u64, Verb) {
    let Some(Pulled::Redirected(seq, command, redirect)) = pulled else { panic!("{pulled:?}") };
    assert_eq!(redirect, Redirect::Moved { slot: 7, to: "b:7001".into() });
    (seq, command.verb)
}

const MOVED: &str = "-MOVED 7 b:7001\r\n";
const TRY_AGAIN: &str = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";

#[test]
fn g16_a_moved_command_is_handed_back_and_those_around_it_are_answered() {
    for at in 0..3 {
        let mut played = Played::node();
        for seq in 0..3 {
            let ttl = Some(std::time::Duration::from_secs(30));
            played.ask(seq, mutex(Verb::Take { token: token(1), ttl }));
        }
        for seq in 0..3 {
            let pulled = played.hear(if seq == at { MOVED } else { "+OK\r\n" });
            match pulled {
                Some(Pulled::Redirected(redirected, _, _)) => {
                    assert_eq!((redirected, seq), (at, at))
                }
                Some(Pulled::Done(done, Ok(Answer::Held { .. }))) => assert_eq!(done, seq),
                other => panic!("{other:?}"),
            }
        }
        assert!(played.conversation.next_done().is_none());
    }
}

#[test]
fn a_command_is_handed_back_whole_in_whatever_round_it_is_moved() {
    let mut played = Played::node();
    let release = || {
        mutex(Verb::Release {
            token: token(1),
            waited_for: false,
            keep: None,
            share: None,
            tombstone: None,
        })
    };
    played.ask(1, release());
    assert!(matches!(moved_to_b(played.hear(MOVED)), (1, Verb::Release { .. })), "plain");
    played.ask(2, release());
    assert!(played.hear("-NOSCRIPT No matching script\r\n").is_none());
    assert!(matches!(moved_to_b(played.hear(MOVED)), (2, Verb::Release { .. })), "in full");
    played.ask(3, release());
    assert!(played.hear(":0\r\n").is_none(), "the script knows more");
    assert!(matches!(moved_to_b(played.hear(MOVED)), (3, Verb::Release { .. })), "by script");
    played.ask(4, mutex(Verb::Check { token: token(1) }));
    assert!(played.hear("*1\r\n:0\r\n").is_none(), "why is asked");
    assert!(matches!(moved_to_b(played.hear(MOVED)), (4, Verb::Check { .. })), "why");
}

#[test]
fn what_is_known_to_be_gone_is_not_asked_again_where_its_reason_is() {
    let mut played = Played::node();
    played.ask(1, command(Kind::Permit { limit: 2 }, Verb::Check { token: token(1) }));
    assert!(played.hear("*1\r\n:0\r\n").is_none(), "why is asked");
    assert!(matches!(moved_to_b(played.hear(MOVED)), (1, Verb::Why { .. })));
}

#[test]
fn each_round_for_a_key_on_its_way_here_is_asked_for_by_itself() {
    let mut played = Played::node();
    played.ask_asking(1, mutex(acquire(1, true)));
    assert_eq!(played.sent.0, ["ASKING", "EVALSHA"]);
    assert!(played.hear("+OK\r\n").is_none());
    assert!(played.hear("-NOSCRIPT No matching script\r\n").is_none());
    assert_eq!(played.sent.0, ["ASKING", "EVALSHA", "ASKING", "EVAL"]);
    assert!(played.hear("+OK\r\n").is_none());
    let pulled = played.hear("*2\r\n:1\r\n$0\r\n\r\n");
    assert!(matches!(pulled, Some(Pulled::Done(1, Ok(Answer::Held { .. })))), "{pulled:?}");
    // The next one is not asked for that way.
    played.ask(2, mutex(acquire(1, true)));
    assert_eq!(played.sent.0.last().unwrap(), "EVALSHA");
    assert_eq!(played.sent.0.len(), 5);
}

#[test]
fn an_ask_says_where_the_key_is_and_another_may_follow() {
    let mut played = Played::node();
    played.ask_asking(1, mutex(release(1)));
    assert!(played.hear("-ERR This instance has cluster support disabled\r\n").is_none());
    let pulled = played.hear("-ASK 7 ?:7001\r\n");
    let Some(Pulled::Redirected(1, _, redirect)) = pulled else { panic!("{pulled:?}") };
    assert_eq!(redirect, Redirect::Ask { to: "a:7001".into() }, "the host that was asked");
}

#[test]
fn faults_that_pass_are_explained_and_can_be_retried() {
    let replies = [
        (TRY_AGAIN, FaultClass::Moving, "is being moved"),
        ("-CLUSTERDOWN The cluster is down\r\n", FaultClass::Refused, "does not serve"),
        ("-LOADING Redis is loading\r\n", FaultClass::Refused, "just started"),
        ("-MASTERDOWN Link with MASTER is down\r\n", FaultClass::Refused, "lost its primary"),
    ];
    for (reply, class, words) in replies {
        let mut played = Played::node();
        played.ask(1, mutex(acquire(1, true)));
        let pulled = played.hear(reply);
        let Some(Pulled::Done(1, Err(fault))) = pulled else { panic!("{pulled:?}") };
        assert_eq!(fault.class, class, "{reply}");
        assert!(fault.what.contains(words), "{}", fault.what);
        assert!(played.conversation.next_done().is_none(), "the connection stays");
    }
}

fn renew(limit: u32) -> Command {
    let ttl = Some(std::time::Duration::from_secs(30));
    command(Kind::Permit { limit }, Verb::Renew { token: token(1), ttl })
}

/// The outcome of a command whose keys are in two places, after these replies.
fn half_moved(asking: bool, command: Command, replies: &[&str]) -> (Played, Result<Answer, Fault>) {
    let mut played = Played::node();
    if asking {
        played.ask_asking(1, command);
        assert!(played.hear("+OK\r\n").is_none());
    } else {
        played.ask(1, command);
    }
    let mut pulled = played.hear(TRY_AGAIN);
    for reply in replies {
        assert!(pulled.is_none(), "{pulled:?} before {reply}");
        pulled = played.hear(reply);
    }
    let Some(Pulled::Done(1, answer)) = pulled else { panic!("{pulled:?}") };
    (played, answer)
}

#[test]
fn g9_a_permit_in_two_places_is_kept_by_its_lock_alone() {
    let renewed = Ok(Answer::Renewed { longer: None, waited_for: false, slot: None });
    let (played, answer) = half_moved(false, renew(2), &[":1\r\n"]);
    assert_eq!((answer, played.sent.0.len()), (renewed.clone(), 2));
    let replies = ["+OK\r\n", "-NOSCRIPT No matching script\r\n", "+OK\r\n", ":1\r\n"];
    let (played, answer) = half_moved(true, renew(2), &replies);
    assert_eq!(answer, renewed);
    assert_eq!(played.sent.0[2..], ["ASKING", "EVALSHA", "ASKING", "EVAL"]);
    let alone = encode::alone(&renew(2)).unwrap().into_keys();
    assert!(alone.iter().all(|key| key == names().main()), "{alone:?}");
}

#[test]
fn g9_what_has_not_come_yet_is_not_gone() {
    let gone = "*1\r\n:0\r\n";
    let is_moving = |(_, answer): (Played, Result<Answer, Fault>)| {
        let class = answer.unwrap_err().class;
        assert_eq!(class, FaultClass::Moving);
    };
    is_moving(half_moved(true, renew(2), &["+OK\r\n", gone]));
    for asking in [false, true] {
        let replies = if asking { &["+OK\r\n", gone][..] } else { &[gone] };
        is_moving(half_moved(asking, command(Kind::Read, release(1)), replies));
    }
    // Where the slot was, a lock that is missing is asked for elsewhere by the server itself.
    let (_, answer) = half_moved(false, renew(2), &[gone, "$-1\r\n"]);
    assert_eq!(answer, Ok(Answer::Gone { by: None, because: None }));
}

#[test]
fn g9_a_lock_in_two_places_that_several_hold_is_freed_by_its_own_key() {
    for kind in [Kind::Read, Kind::Write, Kind::Permit { limit: 2 }] {
        let (_, answer) = half_moved(false, command(kind, release(1)), &["*1\r\n:1\r\n"]);
        assert_eq!(answer, Ok(Answer::Freed), "{kind:?}");
        let time = std::time::Duration::from_secs(1);
        let keep = Keep { time, mark: "m".into(), value: None };
        for (keep, tombstone) in [(Some(keep), None), (None, Some(time))] {
            let verb =
                Verb::Release { token: token(1), waited_for: true, keep, share: None, tombstone };
            let (_, answer) = half_moved(false, command(kind, verb), &[]);
            assert_eq!(answer.unwrap_err().class, FaultClass::Moving, "with more keys only");
        }
    }
}

#[test]
fn the_error_for_one_url_says_how_to_name_several() {
    let mut played = Played::with(None, false);
    played.ask(1, mutex(acquire(1, true)));
    let pulled = played.hear(MOVED);
    let Some(Pulled::Done(1, Err(fault))) = pulled else { panic!("{pulled:?}") };
    assert!(fault.what.contains("redis-cluster://"), "{}", fault.what);
}

#[test]
fn a_part_that_is_moved_fails_the_whole_and_gives_back_what_was_acquired() {
    let mut played = Played::with(Some(Member::of_cluster("a:7000")), true);
    let each = ["foo", "bar"].map(|key| Names::new("", key.to_owned()));
    let [foo, bar] = each;
    let names = Names::together(foo, vec![bar], "foo, bar");
    let kind = Kind::All { ordered: false };
    played.ask(1, Command { names, ..command(kind, acquire(1, true)) });
    assert_eq!(played.sent.0.len(), 2, "one for each slot");
    assert!(played.hear("*2\r\n:1\r\n$0\r\n\r\n").is_none());
    assert!(played.hear(MOVED).is_none(), "what was acquired is given back first");
    assert_eq!(played.sent.0.len(), 3);
    let pulled = played.hear(":1\r\n");
    let Some(Pulled::Done(1, Err(fault))) = pulled else { panic!("{pulled:?}") };
    assert_eq!(fault.class, FaultClass::Refused);
}
