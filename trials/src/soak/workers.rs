use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, thread};

use anyhow::{Context, Result, bail};
use redis_locks::Scripting;

use super::addresses::Addresses;
use super::event::Event;
use super::fault::Fault;
use super::history::History;
use super::scripting::Mix;

/// The worker processes. Their reports go into the history.
pub(crate) struct Workers {
    /// The processes, with the numbers that they were started with.
    running: Vec<(u64, Child)>,
    addresses: Vec<Addresses>,
    store: String,
    seed: u64,
    scripting: Mix,
    started: u64,
    history: Arc<Mutex<History>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    /// One for each of these addresses.
    pub(crate) fn start(
        addresses: Vec<Addresses>,
        store: &str,
        seed: u64,
        scripting: Mix,
        history: &Arc<Mutex<History>>,
    ) -> Result<Self> {
        let count = addresses.len();
        let mut workers = Self {
            running: Vec::new(),
            addresses,
            store: store.to_owned(),
            seed,
            scripting,
            started: 0,
            history: Arc::clone(history),
            readers: Vec::new(),
        };
        for index in 0..count {
            let worker = workers.spawn(index)?;
            workers.running.push(worker);
        }
        Ok(workers)
    }

    /// The numbers of the present workers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.running.iter().map(|(number, _)| *number)
    }

    /// The number that the worker at this index was started with.
    pub(crate) fn number(&self, index: usize) -> u64 {
        self.running[index].0
    }

    pub(crate) fn excuse(&self, fault: &Fault, from: u64, until: u64) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.excuses.add(fault.worker, fault.description.clone(), from..until);
    }

    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.running[index].1.id()
    }

    /// Kills a worker in the middle of what it is doing, and starts another in its place.
    pub(crate) fn replace(&mut self, index: usize) {
        let (_, old) = &mut self.running[index];
        let _ = old.kill();
        let _ = old.wait();
        match self.spawn(index) {
            Ok(worker) => self.running[index] = worker,
            Err(error) => panic!("a worker cannot be replaced: {error:#}"),
        }
    }

    /// Fails when a worker has ended by itself: it found an error that nothing explains.
    pub(crate) fn check(&mut self) -> Result<()> {
        for (number, worker) in &mut self.running {
            if let Some(status) = worker.try_wait()? {
                bail!("worker {number} ended by itself, with {status}");
            }
        }
        Ok(())
    }

    /// Kills all workers, and returns when all their reports are in the history.
    pub(crate) fn end(mut self) {
        for (_, worker) in &mut self.running {
            let _ = worker.kill();
            let _ = worker.wait();
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }

    fn spawn(&mut self, index: usize) -> Result<(u64, Child)> {
        let mut command = Command::new(env::current_exe().context("the path of this program")?);
        let Addresses { durable, volatile, direct, ports, replicas, rejoin } =
            &self.addresses[index];
        let without_scripts = self.scripting.of_worker(index) == Scripting::Never;
        command
            .arg("soak-worker")
            .args(["--durable", durable, "--volatile", volatile, "--direct", direct])
            .args(["--ports", ports, "--replicas", &replicas.to_string()])
            .args(["--rejoin", &rejoin.as_millis().to_string(), "--store", &self.store])
            .args(["--seed", &self.seed.to_string(), "--number", &self.started.to_string()])
            .args(without_scripts.then_some("--without-scripts"))
            .args((self.scripting != Mix::Auto).then_some("--mutexes-only"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let number = self.started;
        self.started += 1;
        let mut worker = command.spawn().context("a worker process")?;
        let stdout = worker.stdout.take().context("the worker's stdout")?;
        let history = Arc::clone(&self.history);
        self.readers.push(thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(event) = Event::parse(&line) {
                    history.lock().unwrap_or_else(PoisonError::into_inner).add(event);
                }
            }
        }));
        Ok((number, worker))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (_, worker) in &mut self.running {
            let _ = worker.kill();
        }
    }
}
