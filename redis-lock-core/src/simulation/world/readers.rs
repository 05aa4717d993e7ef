//! Tasks that read: what happens to them, and how soon answers are read whatever happens.

use super::{World, WorldEvent};
use crate::domain::env::simulated;
use crate::engine::reader::LATE;
use crate::simulation::clock::{self, MILLI};
use crate::simulation::executor::{Home, Task};
use crate::simulation::pipe::{Delay, lock};
use crate::simulation::readers::ReadersPlan;

/// How much longer it takes where sockets can't be watched: they are read every 5 ms.
const BLIND: u64 = 6 * MILLI;

/// How many runtimes a process begins at most.
const RUNTIMES: u32 = 1_000;

impl World {
    /// Polls a task that was woken, on its runtime.
    pub(super) fn poll_at_home(&mut self, task: usize) {
        let (home, polls) = self.executor.home_of(task);
        match home {
            Home::Thread => self.executor.poll(task, None),
            Home::Caller => {
                let runtime = self.runtime_of(task, polls);
                self.executor.count_poll(task);
                self.executor.poll(task, runtime);
            }
            Home::Reader(runtime) => {
                if self.lets_read(task, polls, runtime) {
                    self.executor.poll(task, Some(runtime));
                }
            }
        }
    }

    /// The runtime on which a caller is polled; `None` for a plain thread.
    fn runtime_of(&self, task: usize, polls: u64) -> Option<u32> {
        let readers = self.plan.readers.as_ref()?;
        let moved = self.chance(118, task as u64, polls + 1);
        let is_moved = moved % 100 < readers.moves;
        let chance = if is_moved { moved >> 32 } else { self.chance(118, task as u64, 0) };
        let runtimes = &self.processes[self.executor.process_of(task)].runtimes;
        let number = chance as usize % (2 * runtimes.len() + 1);
        (number > 0).then(|| runtimes[(number - 1) % runtimes.len()])
    }

    /// Whether a task that reads is polled now. Otherwise it is dropped, or polled later.
    fn lets_read(&mut self, task: usize, polls: u64, runtime: u32) -> bool {
        if self.executor.was_held(task) {
            return true;
        }
        let Some(ReadersPlan { blocks, drops, .. }) = self.plan.readers else { return true };
        self.executor.count_poll(task);
        let chance = self.chance(119, task as u64, polls);
        let is_calm = clock::now() >= self.plan.calm_at;
        if chance % 1_000 < drops && !is_calm {
            self.note_reader(task, "is dropped");
            let dropped = self.executor.take(|_, _, number| number == task);
            drop_on(runtime, dropped);
            return false;
        }
        let lasts = if (chance >> 10) % 1_000 < blocks && !is_calm {
            self.note_reader(task, "is blocked");
            ReadersPlan::BLOCKS[(chance >> 20) as usize % ReadersPlan::BLOCKS.len()] * MILLI
        } else if chance >> 30 & 1 == 1 {
            (chance >> 32) % self.plan.path.sluggish
        } else {
            return true;
        };
        let until = clock::now() + lasts;
        self.executor.hold(task, until);
        if lasts >= MILLI {
            let process = &mut self.processes[self.executor.process_of(task)];
            process.readers_held_until = process.readers_held_until.max(until);
        }
        self.at(until, WorldEvent::LetPoll(task));
        false
    }

    fn note_reader(&self, task: usize, what: &str) {
        let process = self.executor.process_of(task);
        let mut books = self.books.borrow_mut();
        books.history.step(46, task as u64);
        books.history.line(|_| format!("-- task {task} of p{process}, which is to read, {what}"));
    }

    /// Takes in the tasks that were spawned.
    pub(super) fn take_spawned(&mut self) {
        for (runtime, task) in simulated::spawned() {
            let process = (runtime / RUNTIMES) as usize;
            self.processes[process].clock.enter();
            if self.processes[process].runtimes.contains(&runtime) {
                self.executor.spawn(process, Home::Reader(runtime), task);
            } else {
                drop_on(runtime, vec![task]);
            }
        }
    }

    /// Begins the runtimes of a process.
    pub(super) fn begin_runtimes(&mut self, process: usize) {
        let count = self.plan.readers.as_ref().map_or(0, |readers| readers.runtimes);
        for _ in 0..count {
            let runtime = self.next_runtime(process);
            self.processes[process].runtimes.push(runtime);
        }
    }

    fn next_runtime(&mut self, process: usize) -> u32 {
        let begun = &mut self.processes[process].runtimes_begun;
        *begun += 1;
        process as u32 * RUNTIMES + *begun
    }

    /// A runtime ends, with all its tasks. Another one begins in its place.
    pub(super) fn end_runtime(&mut self, process: usize) {
        let count = self.processes[process].runtimes.len();
        if !self.processes[process].is_alive || count == 0 {
            return;
        }
        let number = self.chance(122, clock::now(), process as u64) as usize % count;
        let next = self.next_runtime(process);
        let ended = self.processes[process].runtimes[number];
        {
            let mut books = self.books.borrow_mut();
            books.history.step(47, process as u64);
            books.history.line(|_| format!("-- runtime {number} of p{process} ends"));
        }
        let callers: Vec<_> =
            self.executor.callers_of(process).filter(|task| self.lives_on(*task, ended)).collect();
        self.processes[process].runtimes[number] = next;
        self.processes[process].clock.enter();
        let lives_there =
            |_, home, task: usize| home == Home::Reader(ended) || callers.contains(&task);
        drop_on(ended, self.executor.take(lives_there));
    }

    /// Whether a caller lives on this runtime, but when it is moved.
    fn lives_on(&self, task: usize, runtime: u32) -> bool {
        let runtimes = &self.processes[self.executor.process_of(task)].runtimes;
        let number = self.chance(118, task as u64, 0) as usize % (2 * runtimes.len() + 1);
        number > 0 && runtimes[(number - 1) % runtimes.len()] == runtime
    }

    /// What has arrived was read in time, and what was asked was sent in time.
    pub(super) fn check_delay(&self, link: usize, delay: Delay) {
        let process = &self.processes[self.links[link].process];
        if !process.is_alive || process.is_over || self.is_violated() {
            return;
        }
        let Delay { what, since, until } = delay;
        let since = since.max(process.stands_until);
        let slack = MILLI + 4 * self.plan.path.sluggish;
        // The engine goes by the clock of the process.
        let engine = LATE.as_nanos() as u64 * 102 / 100;
        if until > since + engine + slack {
            let took = (until - since) / MILLI;
            return self.violated(format!("p{} has not {what} for {took} ms", process.index));
        }
        let held = process.readers_held_until.max(process.blocks_until);
        let is_blind = self.plan.readers.as_ref().is_some_and(|readers| readers.unwatchable > 0);
        let slack = slack + if is_blind { BLIND } else { 0 };
        if until > since.max(held) + slack {
            let took = (until - since) / 1_000;
            let who = process.index;
            self.violated(format!(
                "p{who} has not {what} for {took} us, although nothing stood still"
            ));
        }
    }

    pub(super) fn check_delays(&self) {
        for (link, of) in self.links.iter().enumerate() {
            let waits: Vec<_> = {
                let pipe = lock(&of.pipe);
                if pipe.is_dropped {
                    continue;
                }
                pipe.waits().collect()
            };
            waits.into_iter().for_each(|delay| self.check_delay(link, delay));
        }
    }
}

/// Drops tasks, as a runtime does that ends.
fn drop_on(runtime: u32, tasks: Vec<Task>) {
    simulated::set_runtime(Some(runtime));
    drop(tasks);
    simulated::set_runtime(None);
}
