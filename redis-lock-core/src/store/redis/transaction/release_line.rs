//! The connection on which lone releases are executed, by whoever has the wire.
//!
//! Through the task that executes transactions, and the driver's own task behind it, an answer
//! wakes three tasks on two threads before its caller. Here the reader of the wire reads it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::RedisError;
use tokio::runtime;
use tokio::sync::mpsc;

use super::lone_release::{LineAfter, LoneOutcome, LoneRelease, NextStep};
use super::run::late;
use super::setting::Setting;
use crate::domain::clock::Moment;
use crate::store::Command;
use crate::store::redis::decode;
use crate::store::redis::direct_line::DirectLine;
use crate::store::redis::side_link::{LineSlot, SideLink};

/// A program that releases fewer locks needs no connection for them.
const FEW: u32 = 4;

/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// The outcome of a release, and its number.
pub(super) type LoneEnd = (u64, LoneOutcome);

pub(super) struct ReleaseLine {
    setting: Arc<Setting>,
    line: Option<DirectLine>,
    release: Option<LoneRelease>,
    /// Whether the next reply is that to a `DISCARD`.
    owes_discard: bool,
    /// How often the pool had become distrustful when this connection was last heard of.
    trusted: u64,
    slot: Arc<LineSlot>,
    /// Asks for a new connection.
    asks: mpsc::UnboundedSender<()>,
    has_asked: bool,
    may_ask_at: Moment,
    /// How many releases were executed in the usual way for want of a connection.
    missed: u32,
    /// The engine's.
    runtime: runtime::Handle,
}

impl ReleaseLine {
    /// To be called on the engine's runtime.
    pub(super) fn new(setting: Arc<Setting>, link: SideLink, slot: Arc<LineSlot>) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        tokio::spawn(link.serve(asked, Arc::clone(&slot)));
        Self {
            setting,
            line: None,
            release: None,
            owes_discard: false,
            trusted: 0,
            slot,
            asks,
            has_asked: false,
            may_ask_at: Moment::START,
            missed: 0,
            runtime: runtime::Handle::current(),
        }
    }

    /// Begins a release. Gives the command back if it has to be executed in the usual way.
    pub(super) fn begin(&mut self, seq: u64, command: Command) -> Option<Command> {
        if self.release.is_some() {
            return Some(command);
        }
        if self.trusted != self.setting.pool.distrusted() {
            // It may have died in the same silence.
            self.close();
        }
        let Some(line) = &mut self.line else {
            self.ask_for_line();
            return Some(command);
        };
        let (release, cmds) = LoneRelease::begin(seq, command, self.setting.terms());
        if line.send(cmds).is_err() {
            self.close();
            return Some(release.usual(false));
        }
        self.release = Some(release);
        None
    }

    /// Takes in a new connection, and what has arrived. Returns whether anything has, and the release
    /// that is over.
    pub(super) fn fill(&mut self) -> (bool, Option<LoneEnd>) {
        self.take_line();
        let Some(line) = &mut self.line else { return (false, None) };
        // Also while nothing is released: a connection that has ended wakes whoever watches it until
        // it is closed.
        let filled = line.fill();
        let received = matches!(filled, Ok(true));
        if received {
            self.trusted = self.setting.pool.distrusted();
        }
        // Replies that arrived before the end still count.
        let end = self.read().or_else(|| match filled {
            Err(error) => self.broke(error.into()),
            Ok(_) => self.give_up_late(),
        });
        (received, end)
    }

    /// When a release has to be given up.
    pub(super) fn due(&self) -> Moment {
        self.release.as_ref().map_or(Moment::NEVER, LoneRelease::due)
    }

    fn take_line(&mut self) {
        let Some(made) = self.slot.take() else { return };
        self.has_asked = false;
        if let Ok(line) = made {
            (self.line, self.owes_discard) = (Some(line), false);
            self.trusted = self.setting.pool.distrusted();
        }
    }

    fn ask_for_line(&mut self) {
        let now = Moment::now();
        self.missed = self.missed.saturating_add(1);
        if self.missed > FEW && !self.has_asked && now >= self.may_ask_at {
            (self.has_asked, self.may_ask_at) = (true, now.after(PAUSE));
            // When the other end is gone, so is the engine.
            let _ = self.asks.send(());
        }
    }

    /// Reads the replies that are complete, until a release is over.
    fn read(&mut self) -> Option<LoneEnd> {
        loop {
            let line = self.line.as_mut()?;
            let reply = match line.next_reply() {
                Ok(reply) => reply?,
                Err(what) => return self.broke(std::io::Error::other(what).into()),
            };
            if std::mem::take(&mut self.owes_discard) {
                if reply != redis::Value::Okay {
                    let what = std::io::Error::other("a transaction was not discarded");
                    return self.broke(what.into());
                }
                continue;
            }
            let Some(release) = &mut self.release else {
                return self.broke(std::io::Error::other("nobody asked for this").into());
            };
            match release.take(reply) {
                NextStep::Wait => {}
                NextStep::Send(cmds) => {
                    if let Err(error) = line.send(cmds) {
                        return self.broke(error.into());
                    }
                }
                NextStep::Over(outcome, after) => {
                    let seq = release.seq();
                    self.release = None;
                    self.tidy(after);
                    return Some((seq, outcome));
                }
            }
        }
    }

    /// Makes the connection ready for another release, or closes it.
    fn tidy(&mut self, after: LineAfter) {
        let is_ready = match (after, &mut self.line) {
            (LineAfter::Nothing, _) => true,
            (LineAfter::OpenTransaction, Some(line)) => {
                self.owes_discard = true;
                line.send([redis::cmd("DISCARD")]).is_ok()
            }
            (LineAfter::OpenTransaction | LineAfter::Unclear, _) => false,
        };
        if !is_ready {
            self.close();
        }
    }

    /// The connection has ended.
    fn broke(&mut self, error: RedisError) -> Option<LoneEnd> {
        self.close();
        let release = self.release.take()?;
        let outcome = match release.is_sent() {
            true => LoneOutcome::Done(Err(decode::broken(error))),
            false => LoneOutcome::Unusual(release.usual(false)),
        };
        Some((release.seq(), outcome))
    }

    /// Gives up a release whose time is over.
    fn give_up_late(&mut self) -> Option<LoneEnd> {
        let release = self.release.take_if(|release| release.due() <= Moment::now())?;
        self.close();
        // Another connection is made on the engine's runtime.
        let _entered = self.runtime.enter();
        let fault = late(&self.setting, release.begun(), &AtomicBool::new(release.is_sent()));
        Some((release.seq(), LoneOutcome::Done(Err(fault))))
    }

    /// A late reply would be taken for that to something else, and keys would stay watched, so the
    /// connection is not used any more.
    fn close(&mut self) {
        if let Some(line) = self.line.take() {
            // Whoever reads has a copy of the socket.
            line.shut_down();
            self.slot.forget();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
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
            let (own, server) = UnixStream::pair().unwrap();
            own.set_nonblocking(true).unwrap();
            server.set_nonblocking(true).unwrap();
            let copy = own.try_clone().unwrap();
            let line = DirectLine::over(Transport::Plain(Socket::Unix(Arc::new(own))));
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

        /// Whether the task learns that somebody may wait.
        fn left_to_task(&mut self, text: &str) -> bool {
            match self.answered(text) {
                Some(LoneOutcome::Unusual(command)) => {
                    assert!(command.timeout <= SECOND);
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
}
