use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use testbed::{WakeLog, eventually};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::redis::{Terms, Way};

const SECOND: Duration = Duration::from_secs(1);
const WRITTEN: &str = "+OK\r\n:1\r\n:1\r\n";

/// A connection that has answered these commands, and that waits until `due` before it wakes.
#[derive(Clone)]
struct Answers {
    given: Arc<Mutex<VecDeque<u64>>>,
    due: Moment,
}

impl Answers {
    fn answer(&self, seq: u64) {
        self.given.lock().unwrap().push_back(seq);
    }
}

impl Wire for Answers {
    fn push(&mut self, _: u64, _: Command) {}

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn due(&self) -> Moment {
        self.due
    }

    fn fill(&mut self) -> io::Result<Filled> {
        Ok(Filled { received: false, more: false })
    }

    fn pull(&mut self, _: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        let seq = self.given.lock().unwrap().pop_front()?;
        Some(Pulled::Done(seq, Ok(Answer::Held { fence: None, slot: None })))
    }
}

struct Scene {
    wire: ReplicatedWire,
    answers: Answers,
    server: UnixStream,
    /// It runs no task.
    _runtime: Runtime,
}

impl Scene {
    fn new() -> Self {
        Self::over(Moment::NEVER)
    }

    /// Over a connection that has something to give up at that time.
    fn over(due: Moment) -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        let entered = runtime.enter();
        let client = redis::Client::open("redis://localhost").unwrap();
        let way = Way::Alone(Box::new(client));
        let link = SideLink::new(way, Terms::new("lock", "a", SECOND), None);
        let answers = Answers { given: Arc::default(), due };
        let inner = Box::new(answers.clone());
        let mut wire = ReplicatedWire::new(inner, 1, link);
        let (own, server) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        server.set_nonblocking(true).unwrap();
        wire.line = Some(ServerLine::over(own.into(), None));
        drop(entered);
        Self { wire, answers, server, _runtime: runtime }
    }

    /// Takes a lock with the token `t`.
    fn take(&mut self, seq: u64) {
        let names = Names::new("lock", "lock:a");
        let verb = Verb::Take { token: "t".into(), ttl: Some(SECOND) };
        self.wire.push(seq, Command { names, kind: Kind::Mutex, verb, timeout: SECOND });
        self.wire.flush().unwrap();
    }

    /// The names of the commands that the second connection has got.
    fn sent(&mut self) -> Vec<&'static str> {
        let mut bytes = [0; 1024];
        let count = self.server.read(&mut bytes).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        let names = ["GET", "SET", "PEXPIRE", "WAIT"];
        text.lines().filter_map(|line| names.into_iter().find(|name| *name == line)).collect()
    }

    fn reply(&mut self, text: &str) {
        self.server.write_all(text.as_bytes()).unwrap();
    }

    fn pulled(&mut self) -> Option<Result<Answer, Fault>> {
        self.wire.fill().unwrap();
        match self.wire.pull(&mut |_| true)? {
            Pulled::Done(1, answer) => Some(answer),
            other => panic!("{other:?}"),
        }
    }

    /// Why the command is answered by an error, which comes soon.
    fn failed(&mut self) -> Fault {
        let mut answer = None;
        eventually(20 * SECOND, "it is answered", || {
            answer = self.pulled();
            answer.is_some()
        });
        answer.unwrap().unwrap_err()
    }
}

#[test]
fn what_was_waited_for_before_its_answer_came_is_not_waited_for_again() {
    let mut scene = Scene::new();
    scene.take(1);
    assert_eq!(scene.sent(), ["GET", "SET", "PEXPIRE", "WAIT"]);
    scene.reply(&["$1\r\nt\r\n", WRITTEN].concat());
    assert!(scene.pulled().is_none(), "it has no answer yet");
    scene.answers.answer(1);
    assert!(scene.pulled().unwrap().is_ok());
    assert!(scene.sent().is_empty());
}

#[test]
fn a_lock_that_was_not_there_when_it_was_looked_for_is_waited_for_again() {
    let mut scene = Scene::new();
    scene.take(1);
    scene.sent();
    scene.answers.answer(1);
    scene.reply(&["$-1\r\n", WRITTEN].concat());
    assert!(scene.pulled().is_none());
    assert_eq!(scene.sent(), ["SET", "PEXPIRE", "WAIT"]);
    scene.reply(WRITTEN);
    assert!(scene.pulled().unwrap().is_ok());
}

#[test]
fn what_is_heard_while_no_command_is_answered_does_not_hide_that_silence() {
    let mut scene = Scene::new();
    scene.take(1);
    scene.reply(&["$-1\r\n", WRITTEN].concat());
    assert!(!scene.wire.fill().unwrap().received, "the connection of the commands may be dead");
    scene.answers.answer(1);
    assert!(scene.pulled().is_none());
    scene.reply(WRITTEN);
    assert!(scene.wire.fill().unwrap().received);
}

#[test]
fn when_the_second_connection_ends_an_answer_waits_for_another_or_is_unknown() {
    let mut scene = Scene::new();
    scene.take(1);
    scene.answers.answer(1);
    assert!(scene.pulled().is_none());
    scene.reply("$1\r\nt\r\n");
    scene.server.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(scene.failed().class.is_unknown());
    scene.take(1);
    assert!(scene.wire.is_connecting, "another connection is asked for");
    scene.answers.answer(1);
    assert!(scene.pulled().is_none(), "it waits for that");
}

#[test]
fn a_replica_that_says_nothing_has_nothing() {
    let mut scene = Scene::new();
    scene.take(1);
    scene.answers.answer(1);
    assert!(scene.pulled().is_none());
    scene.reply("$1\r\nt\r\n");
    assert!(scene.pulled().is_none());
    let (due, now) = (scene.wire.due(), Moment::now());
    assert!(now < due && due <= now.after(2 * LONGEST));
    let fault = scene.failed();
    assert!(Moment::now() >= due);
    assert!(fault.what.contains("0 of the 1 required replicas"), "{}", fault.what);
    assert!(scene.wire.due() == Moment::NEVER);
}

#[test]
fn what_the_connection_itself_has_to_give_up_is_given_up_in_time() {
    let soon = Moment::now().after(SECOND / 1_000);
    let mut scene = Scene::over(soon);
    assert_eq!(scene.wire.due(), soon);
    scene.take(1);
    assert_eq!(scene.wire.due(), soon, "a round that lasts longer does not hide it");
}

#[test]
fn a_second_connection_that_cannot_be_watched_does_not_keep_the_first_one_from_it() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    // No runtime can watch a file.
    let file = UnixStream::from(OwnedFd::from(File::open("Cargo.toml").unwrap()));
    file.set_nonblocking(true).unwrap();
    let mut line = ServerLine::over(file.into(), None);
    let wakes = WakeLog::new();
    let task = wakes.waker();
    let mut context = Context::from_waker(&task);
    assert!(matches!(line.poll_ready(&mut context, false), Poll::Ready(Err(_))));
    let mut scene = Scene::new();
    scene.wire.slot.put(Ok(line));
    assert!(scene.wire.poll_ready(&mut context).is_ready(), "there is a new connection");
    scene.wire.line = scene.wire.slot.take().pop_front().and_then(Result::ok);
    assert!(scene.wire.poll_ready(&mut context).is_pending());
    scene.wire.slot.wake();
    assert_eq!(wakes.count(), 1);
}
