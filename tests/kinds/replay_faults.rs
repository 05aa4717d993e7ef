//! Stored values, where connections are cut, processes are killed and servers are full: a mark has its value but in
//! the cases that the documentation names, no second body runs in the period, and no value of a failed run is seen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis_locks::{LockError, LockRequest, Locks, NoValue, Origin, Scripting};
use testbed::{Child, ChildIo, Proxy, Server, eventually};

use crate::arena::{PATIENCE, ms};

const HOUR: Duration = Duration::from_secs(3_600);

/// The lease of those that die.
const LEASE: Duration = ms(1_000);

fn replay(locks: &Locks, key: &str) -> LockRequest {
    locks.mutex(key).once(HOUR).replay().wait(PATIENCE)
}

/// What stands at a key: whether it was done, and its value if there is one.
fn stands(locks: &Locks, key: &str) -> Option<Option<String>> {
    let done = locks.blocking_status(key).unwrap().done?;
    Some(done.value.map(|value| value.json().to_owned()))
}

/// A later call gets the value of the first one, or `Done` without one.
#[track_caller]
fn is_replayed(locks: &Locks, key: &str, value: usize) -> bool {
    let later = replay(locks, key).blocking_call(|_| -> Result<usize, LockError> {
        panic!("{key}: a second body in the period");
    });
    match later {
        Ok(reply) => {
            assert_eq!((reply.origin(), *reply), (Origin::Replayed, value));
            true
        }
        Err(LockError::Done { no_value: Some(NoValue::Missing), .. }) => false,
        other => panic!("{key}: {other:?}"),
    }
}

/// The connection is cut after each byte of the replies that a call gets.
#[test]
fn whichever_reply_is_cut_off_the_mark_has_its_value_and_no_second_body_runs() {
    for scripting in [Scripting::Auto, Scripting::Never] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let open = |url| Locks::builder().url(url).scripting(scripting).open().unwrap();
        let (cut_off, direct) = (open(proxy.url()), open(server.url()));
        let (mut calls, mut with_value, mut cuts) = (0, 0, 0);
        for bytes in (1..400).step_by(if scripting == Scripting::Auto { 3 } else { 17 }) {
            let (key, bodies) = (format!("k{bytes}"), AtomicUsize::new(0));
            proxy.existing().cut_after(bytes);
            let before = proxy.count();
            let reply = replay(&cut_off, &key).blocking_call(|_| {
                bodies.fetch_add(1, Ordering::SeqCst);
                Ok::<_, LockError>(bytes)
            });
            let reply = reply.unwrap();
            assert_eq!((reply.origin(), *reply), (Origin::Body, bytes), "its own `Ok` comes back");
            assert_eq!(bodies.load(Ordering::SeqCst), 1, "{bytes} bytes");
            calls += 1;
            cuts += usize::from(proxy.count() > before);
            with_value += usize::from(is_replayed(&direct, &key, bytes));
        }
        println!("{scripting:?}: {cuts} calls were cut off, {with_value} have their value");
        assert!(cuts > 5, "{cuts} calls were cut off");
        assert_eq!(with_value, calls, "each mark has its value");
    }
}

/// Each command of a call is executed, and its reply lost.
#[test]
fn whichever_command_loses_its_reply_the_value_is_there() {
    for text in ["lock:k", "~v", "EVAL"] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let (cut_off, direct) =
            (Locks::open(proxy.url()).unwrap(), Locks::open(server.url()).unwrap());
        cut_off.mutex("warm").blocking_run(|_| ()).unwrap();
        proxy.cut_reply_to(text);
        let own = replay(&cut_off, "k").blocking_call(|_| Ok::<_, LockError>(7)).unwrap();
        assert_eq!((own.origin(), *own), (Origin::Body, 7), "{text}");
        assert_eq!(proxy.cuts(), 1, "{text}");
        assert!(is_replayed(&direct, "k", 7), "{text}");
    }
}

fn locks_of_child() -> Locks {
    Locks::builder().url(std::env::var("SERVER").unwrap()).ttl(LEASE).open().unwrap()
}

/// Works through the keys of a round until it is killed. A body whose number is divisible by three fails.
pub(crate) fn works_until_killed(io: &mut ChildIo) {
    let locks = locks_of_child();
    let client = redis::Client::open(std::env::var("SERVER").unwrap()).unwrap();
    let mut store = client.get_connection().unwrap();
    io.say("ready");
    let round: usize = io.hear().parse().unwrap();
    for number in 0.. {
        let key = format!("{round}:{}", number % 200);
        let outcome = replay(&locks, &key).blocking_call(|_| {
            let ran: usize = redis::cmd("INCR").arg(format!("ran:{key}")).query(&mut store)?;
            match ran % 3 {
                1 => Err(Failed::Itself),
                _ => Ok(ran),
            }
        });
        if let Err(Failed::Other(error)) = outcome {
            panic!("{error}");
        }
    }
}

#[derive(Debug)]
enum Failed {
    Itself,
    Other(String),
}

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<redis::RedisError> for Failed {
    fn from(error: redis::RedisError) -> Self {
        Self::Other(error.to_string())
    }
}

#[test]
fn a_process_that_is_killed_leaves_a_mark_with_its_value_or_neither() {
    let server = Server::start();
    let locks = Locks::builder().url(server.url()).ttl(LEASE).open().unwrap();
    let spawn = || {
        let mut child = Child::spawn("replay_works_until_killed", &[("SERVER", &server.url())]);
        drop(child.expect("ready"));
        child
    };
    let mut marked = 0;
    for round in 0..6 {
        let mut children = [spawn(), spawn()];
        children.iter_mut().for_each(|child| child.tell(&round.to_string()));
        // Each round is killed elsewhere in the work.
        let begun = || server.run::<u64>(&format!("EXISTS ran:{round}:{}", 7 * round + 3)) == 1;
        eventually(PATIENCE, "they are at work", begun);
        children.iter_mut().for_each(Child::kill9);
        let ran = |key: &str| server.run::<Option<usize>>(&format!("GET ran:{key}")).unwrap_or(0);
        for number in 0..200 {
            let key = format!("{round}:{number}");
            let Some(value) = stands(&locks, &key) else { continue };
            let (value, bodies) = (value.expect("a mark has its value"), ran(&key));
            // The value of the last body, which is none that failed.
            assert_eq!(value, bodies.to_string(), "{key}");
            assert_ne!(bodies % 3, 1, "{key}: the value of a run that failed");
            assert!(is_replayed(&locks, &key, bodies));
            marked += 1;
        }
    }
    assert!(marked > 0, "none was done");
    println!("{marked} marks, each with its value");
}

#[test]
fn on_a_server_that_is_full_from_the_beginning_nothing_is_half_stored() {
    for scripting in [Scripting::Auto, Scripting::Never] {
        let server = Server::start();
        let open = || Locks::builder().url(server.url()).scripting(scripting).open().unwrap();
        let (one, other) = (open(), open());
        let mut kinds = [0; 3];
        for number in 0..20 {
            let key = format!("k{number}");
            let own = replay(&one, &key).blocking_call(|_| {
                server.run::<String>("CONFIG SET maxmemory 1");
                Ok::<_, LockError>(number)
            });
            // It is full for some tries of the complete, or for all of them.
            if number % 2 == 0 {
                server.run::<String>("CONFIG SET maxmemory 0");
            }
            let own = own.unwrap();
            assert_eq!((own.origin(), *own), (Origin::Body, number));
            server.run::<String>("CONFIG SET maxmemory 0");
            eventually(PATIENCE, "its end is certain", || {
                let status = other.blocking_status(key.as_str()).unwrap();
                status.done.is_some() || !status.is_held()
            });
            match stands(&other, &key) {
                Some(Some(value)) => {
                    assert_eq!(value, number.to_string());
                    assert!(is_replayed(&other, &key, number));
                    kinds[0] += 1;
                }
                Some(None) => {
                    assert!(!is_replayed(&other, &key, number));
                    kinds[1] += 1;
                }
                None => kinds[2] += 1,
            }
        }
        let [with_value, without, neither] = kinds;
        println!("{scripting:?}: {with_value} with a value, {without} without, {neither} neither");
        if scripting == Scripting::Auto {
            assert_eq!(kinds, [20, 0, 0], "a script stores both, also where memory is short");
        }
    }
}
