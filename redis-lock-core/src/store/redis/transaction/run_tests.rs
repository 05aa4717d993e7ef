//! What happens at the server between the two round trips of a transaction, and bytes of others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use testbed::{Proxy, Server, ServerBinary, eventually};
use tokio::runtime::{Builder, Runtime};

use super::{Pool, Setting, run};
use crate::BackendErrorKind;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::redis::dialect::Dialect;
use crate::store::redis::listen::Channel;
use crate::store::redis::{Terms, test_direct};
use crate::store::{Acquire, Answer, Command, Verb};

const TTL: Duration = Duration::from_secs(30);

/// What a lock has left when it is read, and how long the answer to that takes.
const REST: Duration = Duration::from_millis(300);
const DELAY: Duration = Duration::from_millis(500);

struct Scene {
    server: Server,
    proxy: Proxy,
    runtime: Runtime,
    setting: Setting,
}

fn key() -> Names {
    Names::new("lock", "lock:k")
}

impl Scene {
    fn on(binary: ServerBinary) -> Self {
        let server = Server::builder().binary(binary).start();
        let proxy = Proxy::to(server.port());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = redis::Client::open(proxy.url()).unwrap();
        let setting = Setting {
            pool: runtime.block_on(async { Pool::new(client, &Terms::new("lock", "m", TTL)) }),
            dialect: Dialect::Ranges,
            channel: Channel::listened_at("lock:~m:x"),
        };
        Self { server, proxy, runtime, setting }
    }

    fn run(&self, verb: Verb) -> Answer {
        self.try_run(verb).unwrap()
    }

    fn try_run(&self, verb: Verb) -> Result<Answer, Fault> {
        let command = Command { names: key(), kind: Kind::Mutex, verb, timeout: TTL };
        self.runtime.block_on(run(&self.setting, &command))
    }

    /// How many bytes the server has sent.
    fn sent(&self) -> u64 {
        let info: String = self.server.run("INFO stats");
        let field = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        field.unwrap().trim().parse().unwrap()
    }

    fn set(&self, value: &[u8], left: Duration) {
        let mut set = redis::cmd("SET");
        set.arg(key().main()).arg(value).arg("PX").arg(left.as_millis() as u64);
        self.server.query::<()>(&set).unwrap();
    }

    fn stands(&self) -> Option<Vec<u8>> {
        self.server.query(redis::cmd("GET").arg(key().main())).unwrap()
    }

    /// The answer to a command that reads a lock of token 1 before it ends, and writes after that.
    fn run_while_it_ends(&self, verb: &Verb) -> Answer {
        for _ in 0..10 {
            self.run(Verb::Check { token: test_direct::token(9) });
            self.server.run::<()>("FLUSHALL");
            self.set(test_direct::token(1).as_bytes(), REST);
            self.server.reset_counts();
            self.proxy.delay_down(DELAY);
            let answer = self.run(verb.clone());
            self.proxy.pass();
            if self.server.command_counts().contains_key("exec") {
                return answer;
            }
            // It was read too late.
        }
        panic!("the lock has always ended before it was read");
    }
}

/// Runs a test on each version that can be had, side by side.
fn on_each(test: impl Fn(&Scene) + Sync) {
    let versions = [
        Some(ServerBinary::any()),
        ServerBinary::valkey(9),
        test_direct::redis_6(),
        ServerBinary::redis_6_0(),
        ServerBinary::redis_5(),
    ];
    thread::scope(|scope| {
        for binary in versions.into_iter().flatten() {
            scope.spawn(|| test(&Scene::on(binary)));
        }
    });
}

#[test]
fn a_lock_that_ends_between_reading_and_writing_is_not_believed_in() {
    let own = test_direct::token(1);
    let acquire = Acquire::of(Arc::clone(&own), Some(TTL));
    on_each(|scene| {
        let answer = scene.run_while_it_ends(&Verb::Acquire(acquire.clone()));
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
        assert_eq!(scene.stands().as_deref(), Some(own.as_bytes()));
        for verb in [
            Verb::Renew { token: Arc::clone(&own), ttl: Some(TTL) },
            Verb::Keep { token: Arc::clone(&own), time: TTL },
        ] {
            let answer = scene.run_while_it_ends(&verb);
            assert!(matches!(answer, Answer::Gone { .. }), "{verb:?}: {answer:?}");
        }
    });
}

#[test]
fn a_lock_that_ends_while_it_is_marked_is_taken() {
    on_each(|scene| {
        let acquire = Acquire { queue: Some(TTL), ..Acquire::of(test_direct::token(2), Some(TTL)) };
        let answer = scene.run_while_it_ends(&Verb::Acquire(acquire));
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
        assert_eq!(scene.stands().as_deref(), Some(test_direct::token(2).as_bytes()));
    });
}

#[test]
fn a_lease_that_is_long_enough_is_confirmed_only_while_it_stands() {
    let scene = Scene::on(ServerBinary::any());
    scene.run(Verb::Check { token: test_direct::token(9) });
    scene.set(test_direct::token(1).as_bytes(), TTL * 4);
    scene.server.reset_counts();
    scene.proxy.delay_down(DELAY);
    let renew = Verb::Renew { token: test_direct::token(1), ttl: Some(TTL) };
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            let is_read = || scene.server.command_counts().contains_key("multi");
            eventually(TTL, "it is read", is_read);
            scene.set(test_direct::token(2).as_bytes(), TTL * 4);
        });
        scene.run(renew)
    });
    assert!(matches!(answer, Answer::Gone { .. }), "{answer:?}");
}

#[test]
fn a_lock_that_another_takes_between_reading_and_writing_stays() {
    let scene = Scene::on(ServerBinary::any());
    scene.run(Verb::Check { token: test_direct::token(9) });
    scene.set(test_direct::token(1).as_bytes(), TTL);
    scene.server.reset_counts();
    scene.proxy.delay_down(DELAY);
    let token = test_direct::token(1);
    let release =
        Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            let is_read = || scene.server.command_counts().contains_key("multi");
            eventually(TTL, "it is read", is_read);
            scene.set(test_direct::token(2).as_bytes(), TTL);
        });
        scene.run(release)
    });
    assert!(matches!(answer, Answer::Gone { .. }), "{answer:?}");
    assert_eq!(scene.stands().as_deref(), Some(test_direct::token(2).as_bytes()));
}

#[test]
fn a_mark_leaves_the_bytes_of_a_token_as_they_are() {
    let scene = Scene::on(ServerBinary::any());
    let token = [test_direct::token(1).as_bytes(), b"caf\xe9"].concat();
    scene.set(&token, TTL);
    let queue = Acquire { queue: Some(TTL), ..Acquire::of(test_direct::token(2), Some(TTL)) };
    let answer = scene.run(Verb::Acquire(queue));
    assert!(matches!(answer, Answer::Busy(_)), "{answer:?}");
    assert_eq!(scene.stands(), Some([&*token, b"+"].concat()));
}

#[test]
fn a_long_value_of_another_program_is_ended_by_force() {
    let scene = Scene::on(ServerBinary::any());
    for value in ["x".repeat(201), "x".repeat(10_000), "ü".repeat(3_000)] {
        scene.set(value.as_bytes(), TTL);
        let Answer::Seen(seen) = scene.run(Verb::Look) else { panic!("a look shows something") };
        assert!(seen.foreign.is_some());
        let force =
            Verb::Force { tokens: Vec::new(), foreign: seen.foreign.clone(), because: "".into() };
        assert_eq!(scene.run(force), Answer::Done);
        assert_eq!(scene.stands(), None);
    }
}

#[test]
fn of_a_value_at_the_key_of_a_fence_or_a_tombstone_only_the_beginning_is_read() {
    let scene = Scene::on(ServerBinary::any());
    let token = test_direct::token(2);
    for key in [key().fence(), key().tombstone(&token)] {
        scene.server.query::<()>(redis::cmd("SETRANGE").arg(key).arg(70 << 20).arg("x")).unwrap();
    }
    let before = scene.sent();
    let acquire = |fences| Acquire { fences, ..Acquire::of(Arc::clone(&token), Some(TTL)) };
    let fenced = scene.try_run(Verb::Acquire(acquire(1)));
    assert!(fenced.is_err_and(|fault| fault.kind == BackendErrorKind::Foreign));
    let answer = scene.run(Verb::Acquire(acquire(0)));
    assert!(!matches!(answer, Answer::Held { .. }), "its token is refused: {answer:?}");
    let check = scene.run(Verb::Check { token });
    assert!(matches!(check, Answer::Gone { because: Some(_), .. }), "{check:?}");
    assert!(scene.sent() - before < 200_000, "{}", scene.sent() - before);
    // What is empty is there.
    let token = test_direct::token(3);
    scene.server.query::<()>(redis::cmd("SET").arg(key().tombstone(&token)).arg("")).unwrap();
    let answer = scene.run(Verb::Acquire(Acquire::of(token, Some(TTL))));
    assert!(!matches!(answer, Answer::Held { .. }), "{answer:?}");
    scene.server.query::<()>(redis::cmd("SET").arg(key().fence()).arg("")).unwrap();
    let acquire = Acquire { fences: 1, ..Acquire::of(test_direct::token(4), Some(TTL)) };
    assert!(scene.try_run(Verb::Acquire(acquire)).is_err(), "no number follows an empty value");
}

#[test]
fn of_a_value_of_another_program_only_the_beginning_is_read() {
    let scene = Scene::on(ServerBinary::any());
    scene.set(&vec![b'x'; 70 << 20], TTL);
    let before = scene.sent();
    let queue = || Acquire { queue: Some(TTL), ..Acquire::of(test_direct::token(2), Some(TTL)) };
    assert!(matches!(scene.run(Verb::Acquire(queue())), Answer::Busy(_)));
    assert!(matches!(scene.run(Verb::Check { token: test_direct::token(2) }), Answer::Gone { .. }));
    let Answer::Seen(seen) = scene.run(Verb::Look) else { panic!("a look shows something") };
    assert!(scene.sent() - before < 200_000, "{}", scene.sent() - before);
    let force = Verb::Force { tokens: Vec::new(), foreign: seen.foreign, because: "".into() };
    assert_eq!(scene.run(force), Answer::Done);
    assert_eq!(scene.stands(), None);
    scene.set(b"", TTL);
    assert!(matches!(scene.run(Verb::Acquire(queue())), Answer::Busy(_)), "it is empty, and there");
}

#[test]
fn the_last_waiter_is_last_although_the_clock_was_set_back() {
    let scene = Scene::on(ServerBinary::any());
    let (first, last) = (test_direct::token(2), test_direct::token(3));
    scene.set(format!("{}+", test_direct::token(1)).as_bytes(), TTL);
    let (seconds, _): (u64, u64) = scene.server.run("TIME");
    // It has waited since before the clock was set back by ten minutes, and has renewed its place.
    let ticket = (seconds + 600) * 1_000_000;
    scene.server.run::<()>(&format!("ZADD {} {ticket} {first}", key().queue()));
    let until = (seconds + 5) * 1_000;
    let mut place = redis::cmd("HSET");
    place.arg(key().waiters()).arg(&*first).arg(format!("{until} -"));
    scene.server.query::<()>(&place).unwrap();
    let queue = Acquire { queue: Some(TTL), ..Acquire::of(Arc::clone(&last), Some(TTL)) };
    let answer = scene.run(Verb::Acquire(queue));
    assert!(matches!(answer, Answer::Busy(_)), "{answer:?}");
    let order: Vec<String> = scene.server.run(&format!("ZRANGE {} 0 -1", key().queue()));
    assert_eq!(order, [&*first, &*last]);
}

#[test]
fn a_connection_that_was_closed_while_it_was_idle_leaves_no_token_in_doubt() {
    let scene = Scene::on(ServerBinary::any());
    scene.set(format!("{}+", test_direct::token(1)).as_bytes(), TTL);
    for number in [2, 3] {
        let token = test_direct::token(number);
        let queue = Acquire { queue: Some(TTL), ..Acquire::of(token, Some(TTL)) };
        let answer = scene.run(Verb::Acquire(queue));
        assert!(matches!(answer, Answer::Busy(_)), "{answer:?}");
        let closed: u64 = scene.server.run("CLIENT KILL TYPE normal SKIPME yes");
        assert!(closed >= 1);
    }
    assert_eq!(scene.server.run::<u64>(&format!("ZCARD {}", key().queue())), 2);
}

#[test]
fn a_first_question_that_comes_again_does_not_end_a_newer_call_that_found_the_lock_free() {
    let scene = Scene::on(ServerBinary::any());
    let is_held = |verb| matches!(scene.run(verb), Answer::Held { .. });
    assert!(is_held(test_direct::acquire(1, false)));
    // Nobody listens for its process, so it counts as dead when the lock is given back.
    assert!(!is_held(test_direct::newest(1)));
    assert_eq!(scene.run(test_direct::release(1)), Answer::Done);
    assert!(is_held(test_direct::newest(2)));
    assert_eq!(scene.run(test_direct::newest(1)), Answer::Superseded { held: false });
}

#[test]
fn a_newer_call_does_not_wait_for_news_of_a_waiter_whose_place_has_ended() {
    let place = Duration::from_millis(50);
    for may_ask_listeners in [true, false] {
        let scene = Scene::on(ServerBinary::any());
        scene.setting.pool.may_ask_listeners.store(may_ask_listeners, Ordering::Relaxed);
        scene.run(test_direct::acquire(1, false));
        let Verb::Acquire(first) = test_direct::newest(1) else { unreachable!() };
        scene.run(Verb::Acquire(Acquire { queue: Some(place), ..first }));
        // Its queue lasts a second longer.
        let queue_lasts = || scene.server.run::<i64>(&format!("PTTL {}", key().queue()));
        eventually(TTL, "the place ends", || queue_lasts() < 1_000);
        assert!(matches!(scene.run(test_direct::newest(2)), Answer::Busy(_)));
    }
}
