//! What goes wrong, and how.

use std::sync::Arc;

use futures_util::FutureExt;

use super::{World, WorldEvent};
use crate::engine::places::FIRST;
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::executor::Home;
use crate::simulation::network::{LinkState, NetworkLink};
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::store::Event as Hint;

impl World {
    pub(super) fn trouble(&mut self, trouble: PlannedTrouble) {
        let now = clock::now();
        {
            let mut books = self.books.borrow_mut();
            books.history.step(50, now);
            books.history.line(|_| format!("-- {trouble:?}"));
        }
        if !trouble.is_harmless() {
            self.troubled_until = self.troubled_until.max(now + trouble.lasts() + 8 * SECOND);
        }
        self.begin_trouble(trouble, now);
    }

    pub(super) fn begin_trouble(&mut self, trouble: PlannedTrouble, now: u64) {
        match trouble {
            PlannedTrouble::Cut { process, late } => {
                if let Some(link) = self.link_of(process) {
                    let notice = self.chance(51, now, 0) % (40 * MILLI);
                    self.cut(link, late, notice);
                }
            }
            PlannedTrouble::HalfOpen { process, late } => self.half_open(process, late),
            PlannedTrouble::Stall { process, lasts } => self.stall(process, now + lasts),
            PlannedTrouble::Frozen { lasts } => {
                // One at a time, so that what waits for the end of one keeps its order.
                let thawed = (0..self.nodes.count()).all(|node| now >= self.frozen_until(node));
                if thawed {
                    self.server.frozen_until = now + lasts;
                }
            }
            PlannedTrouble::RefuseConnects { lasts } => {
                self.server.refuses_until = self.server.refuses_until.max(now + lasts);
            }
            PlannedTrouble::LoseConnects { lasts } => {
                self.server.loses_until = self.server.loses_until.max(now + lasts);
            }
            PlannedTrouble::Refuse { why, lasts } => self.server.refuse(why, now + lasts),
            PlannedTrouble::Restart { keeps_data, lasts } => self.restart(keeps_data, lasts),
            PlannedTrouble::Flush => self.flush(),
            PlannedTrouble::LoseSide { key, queue, waiters } => {
                self.lose_side(key, queue, waiters);
            }
            PlannedTrouble::ServerClock { forward, by } => {
                self.server.jump(forward, by, now);
                self.troubled_until += by;
            }
            PlannedTrouble::NodeClock { node, forward, by } => self.node_jumps(node, forward, by),
            PlannedTrouble::Pause { process, lasts } => {
                self.stand(process, lasts);
                let until = &mut self.processes[process].stands_until;
                *until = (*until).max(now + lasts);
            }
            PlannedTrouble::StandStill { process, lasts } => self.stand_still(process, lasts),
            PlannedTrouble::Block { process, lasts } => {
                self.stand(process, lasts);
                let until = &mut self.processes[process].blocks_until;
                *until = (*until).max(now + lasts);
            }
            PlannedTrouble::Kill { process } => self.kill(process),
            PlannedTrouble::Fork { process } => self.fork(process),
            PlannedTrouble::Shutdown { process } => self.shut_down(process),
            PlannedTrouble::LoseHints { lasts } => self.hints_lost_until = now + lasts,
            PlannedTrouble::Deafen { process, lasts } => self.deafen(process, lasts),
            PlannedTrouble::Forge { process } => self.forge(process),
            PlannedTrouble::MoveSlot { key, to, part, lasts } => {
                self.begin_move(key, to, part, lasts);
            }
            PlannedTrouble::DeafenAt { node, lasts } => self.deafen_at(node, lasts),
            PlannedTrouble::FrozenNode { node, lasts } => self.freeze(node, lasts),
            PlannedTrouble::FailOver { shard, after, lasts } => self.fail_over(shard, after, lasts),
            PlannedTrouble::ClusterDown { lasts } => self.be_down(now + lasts),
        }
    }

    fn half_open(&mut self, process: usize, late: Option<u64>) {
        if let Some(link) = self.link_of(process) {
            self.links[link].state = LinkState::HalfOpen;
            self.links[link].late_by = late;
        }
    }

    fn stall(&mut self, process: usize, until: u64) {
        if let Some(link) = self.link_of(process) {
            let link = &mut self.links[link];
            link.up = link.up.max(until);
            link.down = link.down.max(until);
            self.late_until = self.late_until.max(until);
        }
    }

    fn shut_down(&mut self, process: usize) {
        if self.processes[process].is_alive {
            let caller = self.caller(process, &self.processes[process]);
            self.processes[process].is_closing = true;
            self.end_heritage(process);
            self.executor.spawn(process, Home::Thread, caller.shut_down());
        }
    }

    pub(super) fn link_of(&self, process: usize) -> Option<usize> {
        let open = |link: &NetworkLink| link.process == process && link.state == LinkState::Open;
        if self.plan.nodes.is_none() {
            return self.links.iter().rposition(open);
        }
        let all: Vec<_> = (0..self.links.len()).filter(|at| open(&self.links[*at])).collect();
        let chosen = self.chance(54, clock::now(), process as u64) as usize;
        all.get(chosen % all.len().max(1)).copied()
    }

    pub(super) fn stand(&mut self, index: usize, lasts: u64) {
        let now = clock::now();
        let before = self.processes[index].tasks_stand_until().max(now);
        let more = (now + lasts).saturating_sub(before);
        // The time that a call loses to this is counted by the clock of its process, which may run
        // faster.
        self.books.borrow_mut().stalled[index] += more + more / 50 + 20 * MILLI;
        self.at(now + lasts, WorldEvent::Resume(index));
    }

    pub(super) fn restart(&mut self, keeps_data: bool, lasts: u64) {
        for link in 0..self.links.len() {
            self.cut(link, None, MILLI);
        }
        self.server.refuses_until = self.server.refuses_until.max(clock::now() + lasts);
        self.server.subscribers.clear();
        for process in 0..self.processes.len() {
            if self.processes[process]
                .subscriptions
                .values()
                .any(|subscription| subscription.is_listening)
            {
                self.deafen(process, lasts);
            }
        }
        if !keeps_data {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        self.server.flush(clock::now());
        self.fences.iter_mut().for_each(|fence| *fence = 0);
    }

    pub(super) fn kill(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !process.is_alive {
            return;
        }
        process.is_alive = false;
        let manager = Arc::clone(&process.core.manager);
        for link in 0..self.links.len() {
            if self.links[link].process == index {
                self.cut(link, None, MILLI);
            }
        }
        self.server.forget(&manager);
        let mut books = self.books.borrow_mut();
        books.calls.retain(|call| call.process != index);
        books.holds.retain(|note| note.process != index);
        drop(books);
        let tasks = self.executor.remove(index);
        self.processes[index].corpses = tasks;
    }

    pub(super) fn fork(&mut self, index: usize) {
        let process = &self.processes[index];
        if !process.is_alive || process.is_over {
            return;
        }
        crate::domain::env::simulated::set_now(process.clock.at(clock::now()));
        crate::domain::env::simulated::set_process(process.clock.process + 1_000);
        let seen = crate::simulation::caller::look_from_child(&self.books.borrow(), index);
        let asked = process.locks.mutex("child").acquire().now_or_never();
        process.clock.enter();
        if let Err(what) = seen {
            self.violated(what);
        }
        if !matches!(asked, Some(Err(crate::LockError::Shutdown))) {
            self.violated("a child used the locks of its parent");
        }
    }

    pub(super) fn deafen(&mut self, index: usize, lasts: u64) {
        let manager = Arc::clone(&self.processes[index].core.manager);
        self.server.forget(&manager);
        let until = clock::now() + lasts;
        self.processes[index].deaf_until = until;
        for (place, subscription) in self.processes[index].subscriptions.clone() {
            if let Some(epoch) = subscription.epoch {
                self.at(until, WorldEvent::Subscribe(index, place, epoch));
            }
            if subscription.is_listening {
                self.stop_listening(index, place);
            }
        }
    }

    /// A forged message is published.
    pub(super) fn forge(&mut self, index: usize) {
        let now = clock::now();
        let present = self.server.present(now);
        let chosen = present.get(self.chance(52, now, 0) as usize % present.len().max(1));
        let Some((key, token)) = chosen else { return };
        let (key, token) = ((*key).to_owned(), token.to_string());
        let hint = match self.chance(53, now, 0) % 3 {
            0 => Hint::Granted { token, waited_for: true },
            1 => Hint::WaitedFor { key },
            _ => Hint::Forced { token },
        };
        let node = self.chance(55, now, 0) as usize % self.nodes.count();
        let place = self.processes[index].place_at(node).unwrap_or(FIRST);
        self.after(MILLI, WorldEvent::Hint(index, place, hint));
    }
}
