use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::{ClockShim, Proxy, Server, eventually};

use crate::board::Board;
use crate::contender::Contender;
use crate::fault::Fault;

/// How long the scenery waits for a holder before it causes the next fault anyway.
const PATIENCE: Duration = Duration::from_millis(800);

/// The servers of one cell, each behind a proxy. Faults that concern one server concern the first.
pub(crate) struct Scene {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    /// What takes the first server's place, and the way by which it is kept up to date.
    standby: Option<(Server, Proxy)>,
    clock: Option<ClockShim>,
}

impl Scene {
    pub(crate) fn start(contender: Contender, fault: Fault) -> Result<Self> {
        let clock = match fault {
            Fault::ClockJump => Some(ClockShim::new().context("no C compiler for the clock")?),
            _ => None,
        };
        let mut servers = Vec::new();
        for number in 0..contender.servers() {
            let builder = Server::builder();
            servers.push(match &clock {
                Some(clock) if number == 0 => builder.clock(clock).start(),
                _ => builder.start(),
            });
        }
        let proxies = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let mut scene = Self { servers, proxies, standby: None, clock };
        if fault == Fault::FailOver {
            let standby = Server::start();
            let link = scene.follow(&standby);
            scene.standby = Some((standby, link));
        }
        Ok(scene)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// Causes the faults of a round, and returns when the last one is over.
    pub(crate) fn cause(&mut self, fault: Fault, board: &Board, pids: &[u32]) {
        let pause = |millis| sleep(Duration::from_millis(millis));
        match fault {
            Fault::Contention | Fault::LongBody => {}
            Fault::Pause => (0..2).for_each(|_| {
                pause(500);
                self.pause_holder(board, pids);
            }),
            Fault::LateReply => (0..2).for_each(|_| {
                pause(900);
                board.note_fault();
                self.proxies.iter().for_each(|it| it.delay_down(Duration::from_millis(900)));
                pause(1_200);
                self.proxies.iter().for_each(Proxy::pass);
            }),
            Fault::CutAfterWrite => (0..30).for_each(|_| {
                pause(150);
                board.note_fault();
                self.proxies.iter().for_each(Proxy::cut_reply_once);
            }),
            Fault::FailOver => (0..2).for_each(|_| {
                pause(500);
                self.fail_over(board);
            }),
            Fault::Restart => (0..2).for_each(|_| {
                pause(1_600);
                board.holder(PATIENCE);
                board.note_fault();
                self.servers[0].restart();
            }),
            Fault::ClockJump => [5.0, 10.0, 0.0].into_iter().for_each(|offset| {
                pause(1_200);
                board.holder(PATIENCE);
                board.note_fault();
                if let Some(clock) = &self.clock {
                    clock.set(offset);
                }
            }),
        }
        self.proxies.iter().for_each(Proxy::pass);
    }

    /// Pauses a holder beyond its lease, anywhere in its body, so also between its last check and its
    /// write.
    fn pause_holder(&self, board: &Board, pids: &[u32]) {
        for attempt in 0..20 {
            let Some(holder) = board.holder(PATIENCE) else { return };
            let pid = pids[holder];
            sleep(Duration::from_millis((u64::from(pid) + attempt) * 7 % 50));
            board.note_fault();
            testbed::stop_process(pid);
            // What it said before it stood still has arrived by then.
            sleep(Duration::from_millis(5));
            let was_in_body = board.is_holding(holder);
            if was_in_body {
                sleep(Duration::from_millis(1_600));
            } else {
                board.forget_fault();
            }
            testbed::continue_process(pid);
            if was_in_body {
                return;
            }
        }
    }

    /// The replica, which lags behind, takes the place of the server, which becomes its replica.
    fn fail_over(&mut self, board: &Board) {
        let Some((standby, link)) = self.standby.take() else { return };
        link.hole();
        // Longer than the ttl, so that it does not still have the lock of an earlier holder.
        sleep(Duration::from_millis(1_200));
        board.holder(PATIENCE);
        board.note_fault();
        self.servers[0].kill9();
        standby.run::<()>("REPLICAOF NO ONE");
        self.proxies[0].redirect(standby.port());
        self.proxies[0].kill_all();
        let old = std::mem::replace(&mut self.servers[0], standby);
        old.restart();
        let link = self.follow(&old);
        self.standby = Some((old, link));
    }

    /// Makes a server the replica of the first one.
    fn follow(&self, replica: &Server) -> Proxy {
        let link = Proxy::to(self.servers[0].port());
        replica.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", link.port()));
        eventually(Duration::from_secs(10), "the replica is up to date", || {
            replica.info("replication", "master_link_status").as_deref() == Some("up")
        });
        link
    }

    /// The keys on all servers, and for how many milliseconds they stay.
    pub(crate) fn keys(&self) -> Vec<(String, i64)> {
        let keys = |server: &Server| {
            let left = |key: String| server.pttl(&key).map(|left| (key, left));
            server.keys().into_iter().filter_map(left).collect::<Vec<_>>()
        };
        self.servers.iter().flat_map(keys).collect()
    }
}
