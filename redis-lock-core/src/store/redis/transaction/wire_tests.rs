//! A connection without scripts, as the engine sees it.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use testbed::{Server, WakeLog, eventually};
use tokio::runtime::{Builder, Runtime};

use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::status::Scripting;
use crate::store::redis::side_link::{LineSlot, SideLink};
use crate::store::redis::{RedisConnector, Terms, test_direct};
use crate::store::{Answer, Command, Connector, Pulled, Verb, Wire};

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection without scripts, and the runtime of its task, which runs only when the test says so.
struct Scene {
    runtime: Runtime,
    wire: Box<dyn Wire>,
    last: u64,
}

fn terms() -> Terms {
    let terms = Terms::new("lock", "m", Duration::from_secs(5));
    Terms { scripting: Scripting::Never, ..terms }
}

fn names() -> Names {
    Names::new("lock", "lock:a")
}

impl Scene {
    fn new(client: redis::Client, terms: &Terms) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connector = RedisConnector::new(client, terms);
        let connected = runtime.block_on(connector.connect());
        let wire = connected.unwrap_or_else(|fault| panic!("{fault:?}"));
        Self { runtime, wire, last: 0 }
    }

    /// Lets the task run for so many milliseconds.
    fn run_task(&self, millis: u64) {
        let sleep = async { tokio::time::sleep(Duration::from_millis(millis)).await };
        self.runtime.block_on(sleep);
    }

    fn push(&mut self, verb: Verb) {
        self.last += 1;
        let (kind, timeout) = (Kind::Mutex, Duration::from_secs(5));
        self.wire.push(self.last, Command { names: names(), kind, verb, timeout });
        self.wire.flush().unwrap();
    }

    fn pulled(&mut self) -> Option<Result<Answer, Fault>> {
        while self.wire.fill().unwrap().more {}
        match self.wire.pull(&mut |_| true)? {
            Pulled::Done(seq, answer) => {
                assert_eq!(seq, self.last);
                Some(answer)
            }
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, verb: Verb) -> Answer {
        self.push(verb);
        let mut answer = None;
        eventually(PATIENCE, "it is answered", || {
            self.run_task(1);
            answer = self.pulled();
            answer.is_some()
        });
        answer.unwrap().unwrap()
    }

    fn take(&mut self, number: usize) -> Answer {
        let (token, ttl) = (test_direct::token(number), Some(PATIENCE));
        self.ask(Verb::Take { token, ttl })
    }

    fn release(&mut self, number: usize) -> Answer {
        let token = test_direct::token(number);
        let verb =
            Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
        self.ask(verb)
    }

    /// Whether a reader is told that there is something to read, which is read then.
    fn has_news(&mut self, wakes: &Arc<WakeLog>) -> bool {
        self.run_task(1);
        let _entered = self.runtime.enter();
        let task = wakes.waker();
        let ready = self.wire.poll_ready(&mut Context::from_waker(&task));
        while self.wire.fill().unwrap().more {}
        ready.is_ready()
    }
}

#[test]
fn what_another_token_has_stays() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    assert!(matches!(scene.release(2), Answer::Gone { .. }));
    assert_eq!(server.get(names().main()).as_deref(), Some(&*test_direct::token(1)));
    assert_eq!(scene.release(1), Answer::Done, "the connection serves on");
    server.assert_clean();
}

#[test]
fn a_connection_that_was_closed_while_it_was_idle_leaves_no_release_in_doubt() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    assert!(matches!(scene.release(2), Answer::Gone { .. }));
    close_those_of_transactions(&server);
    assert_eq!(scene.release(1), Answer::Done);
    server.assert_clean();
}

#[test]
fn a_look_is_answered_although_a_connection_was_closed_while_it_was_idle() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    server.run::<u64>(&format!(
        "ZADD {} 99999999999999 r:{}",
        names().main(),
        test_direct::token(1)
    ));
    let mut look = || {
        let seen = scene.ask(Verb::Look);
        assert!(matches!(seen, Answer::Seen(view) if view.holders.len() == 1));
    };
    look();
    // The first time it is named last.
    look();
    close_those_with(&server, "cmd=type");
    look();
}

/// Whatever has executed a transaction.
fn close_those_of_transactions(server: &Server) {
    close_those_with(server, "cmd=exec");
}

/// Whatever is so in the list of connections.
fn close_those_with(server: &Server, what: &str) {
    let list: String = server.run("CLIENT LIST TYPE normal");
    let others: Vec<_> = list.lines().filter(|line| line.contains(what)).collect();
    assert!(!others.is_empty(), "{list}");
    for line in others {
        let id = line.split(['=', ' ']).nth(1).unwrap();
        server.run::<u64>(&format!("CLIENT KILL ID {id}"));
    }
}

#[test]
fn the_reader_is_woken_by_a_transaction_after_the_role_has_changed_hands() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    let (former, wakes) = (WakeLog::new(), WakeLog::new());
    eventually(PATIENCE, "nothing is new", || !scene.has_news(&former));
    scene.wire.unwatch();
    eventually(PATIENCE, "nothing is new", || !scene.has_news(&wakes));
    let (token, before) = (test_direct::token(1), wakes.count());
    scene.push(Verb::Release { token, waited_for: true, keep: None, share: None, tombstone: None });
    eventually(PATIENCE, "whoever reads learns of the answer", || {
        scene.run_task(1);
        wakes.count() > before
    });
    assert!(matches!(scene.pulled(), Some(Ok(Answer::Done))));
}

#[test]
fn a_server_that_has_replaced_the_first_one_gets_no_releases() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let connector = RedisConnector::new(server.client(), &terms());
    for (run, is_trusted) in [(Some("another".into()), false), (None, true)] {
        let slot = Arc::new(LineSlot::default());
        let link = SideLink::new(connector.way.clone(), connector.terms.clone(), run);
        let link = Arc::new(link);
        eventually(PATIENCE, "it is trusted or not", || {
            runtime.block_on(Arc::clone(&link).connect(Arc::clone(&slot)));
            match slot.take().pop_front().unwrap() {
                Ok(_) => is_trusted,
                Err(fault) => !is_trusted && fault.what.contains("another server"),
            }
        });
    }
}
