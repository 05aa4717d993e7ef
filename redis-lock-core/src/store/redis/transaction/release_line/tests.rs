//! Releases on a connection whose other end is the test's.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::redis::channel::Channel;
use crate::store::redis::dialect::Dialect;
use crate::store::redis::direct;
use crate::store::redis::socket::Socket;
use crate::store::redis::transaction::pool::Pool;
use crate::store::redis::transport::Transport;
use crate::store::{Answer, Verb};

const SECOND: Duration = Duration::from_secs(1);
const OWN: usize = 1;
const EXECUTED: &str = "+QUEUED\r\n*1\r\n:1\r\n";

/// The server's end of the connection is the test's.
struct Scene {
    releases: ReleaseLine,
    server: UnixStream,
    /// Whoever reads has such a copy.
    _copy: UnixStream,
    asked: mpsc::UnboundedReceiver<()>,
    _runtime: Runtime,
}

/// A connection, a copy of its socket, and the other end.
fn connected() -> (DirectLine, UnixStream, UnixStream) {
    let (own, server) = UnixStream::pair().unwrap();
    own.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    let copy = own.try_clone().unwrap();
    let line = DirectLine::over(Transport::Plain(Socket::Unix(Arc::new(own))));
    (line, copy, server)
}

fn release(timeout: Duration) -> Command {
    let (token, names) = (direct::token(OWN), Names::new("lock", "lock:a"));
    let verb = Verb::Release { token, waited_for: false, keep: None, tombstone: None };
    Command { names, kind: Kind::Mutex, verb, timeout }
}

fn opened(value: &str) -> String {
    format!("+OK\r\n${}\r\n{value}\r\n+OK\r\n", value.len())
}

fn own() -> String {
    opened(&direct::token(OWN))
}

impl Scene {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = redis::Client::open("redis://localhost").unwrap();
        let setting = Arc::new(Setting {
            pool: Pool::new(client, SECOND),
            dialect: Dialect::Millis,
            channel: Channel::listened_at("lock:~m:x"),
            is_cluster: false,
            has_compare_and_set: false,
            alive_for: Duration::ZERO,
        });
        let (line, copy, server) = connected();
        let (asks, asked) = mpsc::unbounded_channel();
        let runtime_handle = runtime.handle().clone();
        let releases = ReleaseLine {
            setting,
            line: Some(line),
            release: None,
            owes_discard: false,
            trusted: 0,
            slot: Arc::default(),
            asks,
            has_asked: false,
            may_ask_at: Moment::START,
            missed: 0,
            runtime: runtime_handle,
        };
        Self { releases, server, _copy: copy, asked, _runtime: runtime }
    }

    /// Whether a release was begun here.
    fn begins(&mut self) -> bool {
        self.releases.begin(7, release(SECOND)).is_none()
    }

    /// The names of the commands that the server has got; `None` at the end of the connection.
    fn sent(&mut self) -> Option<Vec<&'static str>> {
        let mut bytes = [0; 1024];
        let count = match self.server.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        let names = ["WATCH", "GET", "MULTI", "DEL", "EXEC", "DISCARD"];
        Some(text.lines().filter_map(|it| names.into_iter().find(|name| *name == it)).collect())
    }

    fn answered(&mut self, text: &str) -> Option<LoneOutcome> {
        self.server.write_all(text.as_bytes()).unwrap();
        self.releases.fill().1.map(|(seq, outcome)| {
            assert_eq!(seq, 7);
            outcome
        })
    }

    fn done(&mut self, text: &str) -> Result<Answer, Fault> {
        match self.answered(text) {
            Some(LoneOutcome::Done(answer)) => answer,
            Some(LoneOutcome::Unusual(command)) => {
                panic!("it is left to the task: {command:?}")
            }
            None => panic!("it is not over"),
        }
    }

    /// The server ends the connection. Returns whether another release was begun on it.
    fn answers_nothing_any_more(&mut self) -> bool {
        self.server.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(self.releases.fill().1.is_none());
        self.begins()
    }

    /// Whether the task learns that somebody may wait.
    fn left_to_task(&mut self, text: &str) -> bool {
        // It takes some time.
        std::thread::sleep(Duration::from_millis(2));
        match self.answered(text) {
            Some(LoneOutcome::Unusual(command)) => {
                assert!(command.timeout < SECOND, "what is left of its time");
                matches!(command.verb, Verb::Release { waited_for: true, .. })
            }
            Some(LoneOutcome::Done(answer)) => panic!("it is over: {answer:?}"),
            None => panic!("it goes on"),
        }
    }
}

#[test]
fn a_lock_is_watched_and_compared_before_it_is_deleted() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        assert!(scene.begins());
        assert!(!scene.begins(), "one at a time");
        assert_eq!(scene.sent().unwrap(), ["WATCH", "GET", "MULTI"]);
        assert!(scene.answered(&own()[..9]).is_none(), "half a reply says nothing");
        assert_eq!(scene.sent().unwrap(), [""; 0]);
        assert!(scene.answered(&own()[9..]).is_none());
        assert_eq!(scene.sent().unwrap(), ["DEL", "EXEC"]);
        assert!(matches!(scene.done(EXECUTED), Ok(Answer::Done)));
    }
}

#[test]
fn what_has_another_value_is_not_deleted_and_the_connection_serves_on() {
    let other = direct::token(OWN + 1).to_string();
    let marked = format!("{}+", direct::token(OWN));
    for reply in [opened(&other), opened(&marked), "+OK\r\n$-1\r\n+OK\r\n".into()] {
        let mut scene = Scene::new();
        assert!(scene.begins());
        assert!(scene.left_to_task(&reply), "the queue has to be read");
        assert_eq!(scene.sent().unwrap(), ["WATCH", "GET", "MULTI", "DISCARD"]);
        assert!(scene.begins());
        assert!(scene.answered(&format!("+OK\r\n{}", own())).is_none());
        assert!(matches!(scene.done(EXECUTED), Ok(Answer::Done)));
    }
}

#[test]
fn a_connection_on_which_something_is_unclear_is_closed() {
    let refused = "-ERR WATCH inside MULTI is not allowed\r\n";
    for (at_once, reply) in [
        (true, [refused, "$-1\r\n+OK\r\n"].concat()),
        (true, ["+OK\r\n$-1\r\n", refused].concat()),
        // The answer to a `DISCARD`.
        (false, [refused, &own()].concat()),
    ] {
        let mut scene = Scene::new();
        assert!(scene.begins());
        if !at_once {
            scene.left_to_task(&opened("x"));
            assert!(scene.begins());
        }
        assert!(!scene.left_to_task(&reply));
        scene.sent();
        assert_eq!(scene.sent(), None, "it is closed");
        assert!(!scene.begins());
    }
}

#[test]
fn a_connection_on_which_a_transaction_may_be_open_is_closed() {
    let mut scene = Scene::new();
    assert!(scene.begins());
    assert!(scene.answered(&own()).is_none());
    let refused = scene.done("+QUEUED\r\n-NOPERM this user can't run EXEC\r\n");
    assert!(!refused.unwrap_err().class.is_unknown(), "it was not executed");
    scene.sent();
    assert_eq!(scene.sent(), None, "it is closed");
}

#[test]
fn a_new_connection_owes_nothing_of_what_the_one_before_did() {
    let mut scene = Scene::new();
    assert!(scene.begins());
    scene.left_to_task(&opened("x"));
    assert!(!scene.answers_nothing_any_more());
    let (line, copy, server) = connected();
    scene.releases.slot.put(Ok(line));
    (scene.server, scene._copy) = (server, copy);
    assert!(scene.answered("").is_none());
    assert!(scene.begins());
    assert!(scene.answered(&own()).is_none());
    assert!(matches!(scene.done(EXECUTED), Ok(Answer::Done)));
}

#[test]
fn what_was_not_executed_is_tried_in_the_usual_way() {
    for refused in
        ["+QUEUED\r\n*-1\r\n", "-READONLY it is a replica\r\n-EXECABORT previous errors\r\n"]
    {
        let mut scene = Scene::new();
        assert!(scene.begins());
        assert!(scene.answered(&own()).is_none());
        assert!(!scene.left_to_task(refused));
        assert!(scene.begins(), "nothing is left on the connection");
    }
}

#[test]
fn only_what_was_sent_is_in_doubt_when_the_connection_ends() {
    let mut scene = Scene::new();
    assert!(scene.begins());
    scene.server.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(!scene.left_to_task(""));
    assert!(!scene.begins(), "the connection is gone");

    let mut scene = Scene::new();
    assert!(scene.begins());
    assert!(scene.answered(&own()).is_none());
    scene.server.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(scene.done("").unwrap_err().class, FaultClass::Unknown);
}

#[test]
fn a_connection_that_ends_or_says_something_while_it_is_idle_is_closed() {
    let mut scene = Scene::new();
    scene.server.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(scene.releases.fill().1.is_none());
    assert_eq!(scene.sent(), None, "whoever watches it would be woken for ever");
    let mut scene = Scene::new();
    assert!(scene.answered("+OK\r\n").is_none(), "nobody asked for this");
    assert_eq!(scene.sent(), None, "what it says next would be an answer to something else");
}

#[test]
fn a_release_that_is_late_is_given_up_with_its_connection() {
    for (is_sent, class) in [(false, FaultClass::Refused), (true, FaultClass::Unknown)] {
        let mut scene = Scene::new();
        assert_eq!(scene.releases.due(), Moment::NEVER);
        let limit = Duration::from_millis(200);
        assert!(scene.releases.begin(7, release(limit)).is_none());
        let due = scene.releases.due();
        assert!(due <= Moment::now().after(limit), "the engine learns when to give it up");
        if is_sent {
            assert!(scene.answered(&own()).is_none());
        }
        std::thread::sleep(due.since(Moment::now()));
        assert_eq!(scene.done("").unwrap_err().class, class);
        scene.sent();
        assert_eq!(scene.sent(), None, "it is closed, whoever has a copy of the socket");
        assert_eq!(scene.releases.due(), Moment::NEVER);
    }
}

#[test]
fn a_connection_that_may_have_died_with_another_is_not_used() {
    let mut scene = Scene::new();
    let _entered = scene.releases.runtime.clone();
    let _entered = _entered.enter();
    scene.releases.setting.pool.distrust(Moment::now());
    assert!(!scene.begins());
    assert_eq!(scene.sent(), None, "it is closed");
}

#[test]
fn whoever_releases_much_gets_a_connection_and_asks_for_one_at_a_time() {
    let mut scene = Scene::new();
    scene.releases.close();
    for _ in 0..FEW {
        assert!(!scene.begins());
    }
    assert!(scene.asked.try_recv().is_err(), "these are few");
    for _ in 0..3 {
        assert!(!scene.begins());
    }
    assert!(scene.asked.try_recv().is_ok());
    assert!(scene.asked.try_recv().is_err());
}
