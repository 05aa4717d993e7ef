//! The engines of processes: when they take their turns, and what they hear.

use std::sync::Arc;

use super::nodes::node_of;
use super::{World, WorldEvent};
use crate::engine::places::{FIRST, PlaceId, UNROUTED};
use crate::simulation::clock::{self, MILLI};
use crate::simulation::process::SimulatedSubscription;
use crate::store::Event as Hint;

impl World {
    /// Has the engine of a process take a turn in a moment.
    pub(super) fn drive_soon(&mut self, process: usize) {
        let sluggish = self.plan.path.sluggish;
        let delay = 5_000 + self.chance(70, clock::now(), process as u64) % sluggish;
        self.drive_at(process, clock::now() + delay);
    }

    pub(super) fn drive_at(&mut self, index: usize, at: u64) {
        let process = &mut self.processes[index];
        if process.is_over || !process.is_alive || process.drive_at.is_some_and(|it| it <= at) {
            return;
        }
        process.drive_at = Some(at);
        process.drives += 1;
        let number = process.drives;
        self.at(at, WorldEvent::Drive(index, number));
    }

    pub(super) fn drive(&mut self, index: usize, number: u64) {
        let process = &mut self.processes[index];
        if process.drives != number || process.is_over || !process.is_alive {
            return;
        }
        process.drive_at = None;
        if process.stands_until > clock::now() {
            return;
        }
        process.clock.enter();
        self.books.borrow_mut().history.step(44, index as u64);
        let process = &mut self.processes[index];
        let driven = process.turn();
        let (due, connects) = (process.clock.when(driven.due), driven.connects);
        let since = clock::now() - std::mem::replace(&mut process.driven_at, clock::now());
        process.spins = if since < MILLI { process.spins + 1 } else { process.spins / 2 };
        if process.spins > 500 {
            let now = crate::domain::clock::Moment::now();
            let timers = process.core.timers(now);
            let soon = now.after(std::time::Duration::from_micros(10));
            let by: Vec<_> = timers.iter().filter(|(_, at)| *at <= soon).map(|it| it.0).collect();
            return self.violated(format!("the engine turns without an end, because of {by:?}"));
        }
        for (place, number) in connects {
            let chance = self.chance(60, number + (place.max(FIRST) - FIRST) * 999, index as u64);
            // A connection takes some round trips: it is made, introduces itself and looks around.
            let delay = self.plan.path.latency * 6 + chance % MILLI;
            match place {
                UNROUTED => self.after(delay, WorldEvent::ReadMap(index, number)),
                _ => self.after(delay, WorldEvent::Connect(index, place, number)),
            }
        }
        if driven.is_done {
            return self.finish(index);
        }
        self.follow_epochs(index);
        // A thread never wakes exactly when it is due.
        self.drive_at(index, due.saturating_add(1_000));
    }

    /// The engine of a process has nothing left to do.
    pub(super) fn finish(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.clock.enter();
        process.core.stop();
        process.is_over = true;
        let manager = Arc::clone(&process.core.manager);
        self.server.forget(&manager);
        self.books.borrow_mut().history.line(|_| format!("p{index} has ended"));
        self.check_after_shutdown(index);
    }

    /// Listens beside the connections that stand now.
    fn follow_epochs(&mut self, index: usize) {
        let core = Arc::clone(&self.processes[index].core);
        let places = core.places.all();
        let is_there = |place: &PlaceId| places.iter().any(|it| it.id == *place);
        for (place, subscription) in self.processes[index].subscriptions.clone() {
            if !is_there(&place) {
                self.server.subscribers.remove(&(subscription.node, Arc::clone(&core.manager)));
                self.processes[index].subscriptions.remove(&place);
            }
        }
        for place in places.iter().filter(|place| !place.is_unrouted()) {
            let epoch = place.path.traffic().epoch();
            let node = place.name.as_ref().map_or(0, node_of);
            let subscription = SimulatedSubscription { node, ..SimulatedSubscription::default() };
            self.processes[index].subscriptions.entry(place.id).or_insert(subscription);
            self.follow_epoch(index, place.id, epoch);
        }
    }

    fn follow_epoch(&mut self, index: usize, place: PlaceId, epoch: Option<u64>) {
        let process = &mut self.processes[index];
        let Some(subscription) = process.subscriptions.get_mut(&place) else { return };
        if std::mem::replace(&mut subscription.epoch, epoch) == epoch {
            return;
        }
        let (node, is_listening) = (subscription.node, subscription.is_listening);
        let manager = Arc::clone(&process.core.manager);
        if self.server.subscribers.remove(&(node, manager)).is_some() || is_listening {
            self.stop_listening(index, place);
        }
        if let Some(epoch) = epoch {
            let delay = self.plan.path.latency * 4;
            self.after(delay, WorldEvent::Subscribe(index, place, epoch));
        }
    }

    pub(super) fn stop_listening(&mut self, index: usize, place: PlaceId) {
        let process = &mut self.processes[index];
        if let Some(subscription) = process.subscriptions.get_mut(&place) {
            (subscription.is_listening, subscription.deaf_since) = (false, clock::now());
        }
        process.hints.push((place, Hint::Listening { hints_enabled: false }));
        self.drive_soon(index);
    }

    pub(super) fn subscribe(&mut self, index: usize, place: PlaceId, epoch: u64) {
        let now = clock::now();
        let process = &self.processes[index];
        let Some(subscription) = process
            .subscriptions
            .get(&place)
            .filter(|subscription| subscription.epoch == Some(epoch))
        else {
            return;
        };
        if process.is_over || !process.is_alive {
            return;
        }
        // A node that does not serve has no channel.
        let away = if self.nodes.serves(subscription.node) { 0 } else { now + 1 };
        let frozen = self.frozen_until(subscription.node).max(away);
        let busy = [frozen, self.server.refuses_until, self.server.loses_until];
        let until = busy.into_iter().max().unwrap_or(0).max(process.deaf_until);
        if now < until {
            return self.at(until + 50 * MILLI, WorldEvent::Subscribe(index, place, epoch));
        }
        let (node, manager) = (subscription.node, Arc::clone(&process.core.manager));
        self.server.subscribers.insert((node, manager), index);
        if let Some(subscription) = self.processes[index].subscriptions.get_mut(&place) {
            subscription.is_listening = true;
        }
        let latency = self.plan.path.latency;
        self.after(
            latency,
            WorldEvent::Hint(index, place, Hint::Listening { hints_enabled: true }),
        );
    }

    pub(super) fn hint(&mut self, index: usize, place: PlaceId, hint: Hint) {
        let process = &mut self.processes[index];
        let is_listening =
            process.subscriptions.get(&place).is_some_and(|subscription| subscription.is_listening);
        if process.is_over || !process.is_alive || !is_listening {
            return;
        }
        if let Hint::Granted { token, .. } = &hint {
            self.promptness.hint(token);
        }
        process.hints.push((place, hint));
        self.books.borrow_mut().history.step(45, index as u64);
        self.drive_soon(index);
    }

    /// Looks whether the engine of a process wants a turn, or has something to tell.
    pub(super) fn check_engine(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !process.is_alive {
            return;
        }
        if process.core.waker.take() | process.socket_news.take() {
            self.drive_soon(index);
        }
        let process = &mut self.processes[index];
        if !process.tells_soon && process.core.has_notices() {
            process.tells_soon = true;
            let delay = self.chance(71, clock::now(), index as u64) % self.plan.path.sluggish;
            self.after(1_000 + delay, WorldEvent::Notices(index));
        }
    }

    pub(super) fn carry_out(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !process.is_alive {
            return;
        }
        if process.tasks_stand_until() > clock::now() {
            let until = process.tasks_stand_until();
            return self.at(until, WorldEvent::Notices(index));
        }
        process.tells_soon = false;
        process.clock.enter();
        process.core.carry_out_all();
    }

    pub(super) fn resume(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if process.tasks_stand_until() <= clock::now() {
            for task in std::mem::take(&mut process.stood) {
                self.executor.put_back(task);
            }
        }
        if process.stands_until <= clock::now() {
            process.drive_at = None;
            self.drive_soon(index);
        }
    }
}
