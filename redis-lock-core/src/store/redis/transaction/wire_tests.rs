//! Releases that nobody but the caller drives, as long as nothing about them is unusual.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use testbed::{Server, WakeLog, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::status::Scripting;
use crate::store::redis::side_link::LineSlot;
use crate::store::redis::{RedisConnector, Terms, direct};
use crate::store::{Answer, Command, Connected, Connector, Pulled, Readiness, Verb, Watcher, Wire};

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection without scripts, and the runtime of its task, which runs only when the test says so.
struct Scene {
    runtime: Runtime,
    wire: Box<dyn Wire>,
    watcher: Watcher,
    last: u64,
}

fn terms() -> Terms {
    Terms::new("lock", "m", Duration::from_secs(5)).with_scripting(Scripting::Never)
}

fn names() -> Names {
    Names::new("lock", "lock:a")
}

impl Scene {
    fn new(client: redis::Client, terms: &Terms) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connector = RedisConnector::new(client, terms);
        let connected = runtime.block_on(connector.connect());
        let Connected { wire, watcher, .. } = connected.unwrap_or_else(|fault| panic!("{fault:?}"));
        Self { runtime, wire, watcher: watcher.unwrap(), last: 0 }
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

    /// The answer. The task runs meanwhile, or does not.
    fn ask(&mut self, verb: Verb, task_runs: bool) -> Answer {
        self.push(verb);
        let mut answer = None;
        eventually(PATIENCE, "it is answered", || {
            if task_runs {
                self.run_task(1);
            }
            answer = self.pulled();
            answer.is_some()
        });
        answer.unwrap().unwrap()
    }

    fn take(&mut self, number: usize) -> Answer {
        let (token, ttl) = (direct::token(number), Some(PATIENCE));
        self.ask(Verb::Take { token, ttl }, false)
    }

    fn release(&mut self, number: usize, task_runs: bool) -> Answer {
        let token = direct::token(number);
        let verb = Verb::Release { token, waited_for: false, keep: None, tombstone: None };
        self.ask(verb, task_runs)
    }

    /// Somebody who reads.
    fn readiness(&self) -> Box<dyn Readiness> {
        let _entered = self.runtime.enter();
        (self.watcher)().unwrap()
    }

    /// Whether somebody who reads is told that there is something to read, which is read then.
    fn has_news(&mut self, readiness: &dyn Readiness, wakes: &Arc<WakeLog>) -> bool {
        self.run_task(1);
        let _entered = self.runtime.enter();
        let task = wakes.waker();
        let ready = readiness.poll_ready(&mut Context::from_waker(&task), false);
        while self.wire.fill().unwrap().more {}
        ready.is_ready()
    }

    /// Takes and releases until there is a connection for releases.
    fn warm_up(&mut self) {
        for number in 0..20 {
            assert!(matches!(self.take(number), Answer::Held { .. }));
            assert_eq!(self.release(number, true), Answer::Done);
            self.run_task(20);
        }
    }
}

fn releases_without_its_task(server: &Server, client: redis::Client, terms: &Terms) {
    let mut scene = Scene::new(client, terms);
    scene.warm_up();
    server.reset_counts();
    for number in 20..40 {
        assert!(matches!(scene.take(number), Answer::Held { .. }));
        assert_eq!(scene.release(number, false), Answer::Done);
    }
    let counts = server.command_counts();
    assert_eq!([counts["watch"], counts["exec"], counts["del"]], [20; 3], "{counts:?}");
    assert!(!server.exists(names().main()));
}

#[test]
fn a_release_that_nobody_waits_for_needs_no_task() {
    let server = Server::start();
    releases_without_its_task(&server, server.client(), &terms());
    server.assert_clean();
}

#[test]
fn what_another_token_has_stays_and_the_task_says_so() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    scene.warm_up();
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    assert!(matches!(scene.release(2, true), Answer::Gone { .. }));
    assert_eq!(server.get(names().main()).as_deref(), Some(&*direct::token(1)));
    assert_eq!(scene.release(1, false), Answer::Done, "the connection serves on");
    server.assert_clean();
}

#[test]
fn what_changes_between_reading_and_writing_is_not_deleted() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    scene.warm_up();
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    server.reset_counts();
    let token = direct::token(1);
    assert_eq!(scene.wire.due(), Moment::NEVER);
    scene.push(Verb::Release { token, waited_for: false, keep: None, tombstone: None });
    let limit = Moment::now().after(Duration::from_secs(5));
    assert!(scene.wire.due() <= limit, "the engine learns when to give it up");
    // The lock was read by now, and nobody has looked at the answer.
    let was_read = || server.command_counts().get("multi").is_some_and(|count| *count > 0);
    eventually(PATIENCE, "it is read", was_read);
    server.run::<()>(&format!("SET {} {} PX 60000", names().main(), direct::token(2)));
    let mut answer = None;
    eventually(PATIENCE, "it is answered", || {
        answer = scene.pulled();
        scene.run_task(1);
        answer.is_some()
    });
    assert!(matches!(answer, Some(Ok(Answer::Gone { .. }))), "{answer:?}");
    assert_eq!(server.get(names().main()).as_deref(), Some(&*direct::token(2)));
}

#[test]
fn a_connection_that_was_closed_while_it_was_idle_leaves_no_release_in_doubt() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    scene.warm_up();
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    close_those_of_transactions(&server);
    assert_eq!(scene.release(1, true), Answer::Done);
    server.assert_clean();
}

/// Whatever has executed a transaction.
fn close_those_of_transactions(server: &Server) {
    let list: String = server.run("CLIENT LIST TYPE normal");
    let others: Vec<_> = list.lines().filter(|line| line.contains("cmd=exec")).collect();
    assert!(!others.is_empty(), "{list}");
    for line in others {
        let id = line.split(['=', ' ']).nth(1).unwrap();
        server.run::<u64>(&format!("CLIENT KILL ID {id}"));
    }
}

fn a_closed_connection_keeps_nobody_busy(server: &Server, client: redis::Client, terms: &Terms) {
    let mut scene = Scene::new(client, terms);
    scene.warm_up();
    let (readiness, wakes) = (scene.readiness(), WakeLog::new());
    close_those_of_transactions(server);
    let woken = (0..100).filter(|_| scene.has_news(&*readiness, &wakes)).count();
    assert!(woken < 20, "whoever reads is woken again and again by nothing: {woken}");
}

#[test]
fn a_connection_that_is_closed_while_it_is_idle_keeps_nobody_busy() {
    let server = Server::start();
    a_closed_connection_keeps_nobody_busy(&server, server.client(), &terms());
}

#[test]
fn whoever_reads_is_woken_although_one_that_has_lost_the_role_looks_once_more() {
    let server = Server::start();
    let mut scene = Scene::new(server.client(), &terms());
    scene.warm_up();
    assert!(matches!(scene.take(1), Answer::Held { .. }));
    let (former, present) = (scene.readiness(), scene.readiness());
    let (late_wakes, wakes) = (WakeLog::new(), WakeLog::new());
    eventually(PATIENCE, "nothing is new", || !scene.has_news(&*present, &wakes));
    eventually(PATIENCE, "nothing is new", || !scene.has_news(&*former, &late_wakes));
    drop(former);
    let (token, before) = (direct::token(1), wakes.count());
    scene.push(Verb::Release { token, waited_for: true, keep: None, tombstone: None });
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
        let (slot, link) = (Arc::new(LineSlot::default()), connector.side_link(run, PATIENCE));
        let (asks, asked) = mpsc::unbounded_channel();
        asks.send(()).unwrap();
        drop(asks);
        runtime.block_on(link.serve(asked, Arc::clone(&slot)));
        assert_eq!(slot.take().unwrap().is_ok(), is_trusted);
    }
}

#[cfg(feature = "rustls")]
#[test]
fn a_release_over_tls_needs_no_task() {
    let Some(certificates) = testbed::Certificates::new() else { return };
    let server = Server::builder().tls(&certificates).start();
    crate::store::tls::provide();
    let authority = Some(std::fs::read(certificates.authority_file()).unwrap());
    let own = crate::store::tls::Certificates { authority, identity: None };
    let client = redis::Client::open(server.tls_url()).unwrap();
    let settings = own.settings(&client);
    let terms = terms().with_tls(settings.as_ref());
    releases_without_its_task(&server, own.added_to(&client).unwrap(), &terms);
    a_closed_connection_keeps_nobody_busy(&server, own.added_to(&client).unwrap(), &terms);
}
