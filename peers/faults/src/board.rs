use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::clock::now;
use crate::event::Event;
use crate::store::Store;

/// How long a worker may take to start.
const START: Duration = Duration::from_secs(30);

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Starting,
    /// Between calls.
    Nothing,
    /// It has called, and waits for what that returns.
    Calling,
    Holding,
    Gone,
}

/// The history of a cell while it is made: all workers' lines in the order of their arrival, also in a
/// file, and the store that they ask.
pub(crate) struct Board {
    state: Mutex<State>,
    /// Notified when all workers are ready.
    begun: Condvar,
}

struct State {
    events: Vec<(usize, Event)>,
    /// When each fault was caused.
    faults: Vec<u64>,
    doing: Vec<Doing>,
    /// Until when new calls may begin; known when all workers are ready.
    until: Option<u64>,
    /// Workers that ended before their time.
    crashed: u64,
    store: Store,
    file: BufWriter<File>,
}

/// What is left when all workers have ended.
pub(crate) struct History {
    pub(crate) events: Vec<(usize, Event)>,
    pub(crate) faults: Vec<u64>,
    pub(crate) store: Store,
    /// Workers that were still inside a call when their time was over.
    pub(crate) hung: u64,
    /// Workers that ended before their time.
    pub(crate) crashed: u64,
}

impl Board {
    pub(crate) fn new(workers: usize, file: &Path) -> Result<Self> {
        let state = State {
            events: Vec::new(),
            faults: Vec::new(),
            doing: vec![Doing::Starting; workers],
            until: None,
            crashed: 0,
            store: Store::default(),
            file: BufWriter::new(File::create(file)?),
        };
        Ok(Self { state: Mutex::new(state), begun: Condvar::new() })
    }

    /// Takes a worker's line, and returns what it is answered.
    pub(crate) fn take(&self, worker: usize, line: &str) -> Result<Option<String>> {
        let event = Event::read(line)?;
        let mut state = self.lock();
        writeln!(state.file, "{worker} {line}")?;
        state.doing[worker] = match &event {
            Event::Call { .. } | Event::End { .. } => Doing::Calling,
            Event::Got { .. } | Event::Read { .. } | Event::Write { .. } | Event::Skip => {
                Doing::Holding
            }
            _ => Doing::Nothing,
        };
        if event == Event::Ready {
            let wait = self.begun.wait_while(state, |state| state.until.is_none());
            let state = wait.unwrap_or_else(PoisonError::into_inner);
            return Ok(state.until.map(|until| until.to_string()));
        }
        let answer = state.store.answer(&event);
        state.events.push((worker, event));
        Ok(answer)
    }

    /// The worker has ended.
    pub(crate) fn is_gone(&self, worker: usize) {
        let mut state = self.lock();
        state.doing[worker] = Doing::Gone;
        // What never began is no fault of a library.
        state.crashed += u64::from(state.until.is_some_and(|until| now() < until));
    }

    /// Notes that a fault begins now.
    pub(crate) fn note_fault(&self) {
        let mut state = self.lock();
        let at = now();
        let _ = writeln!(state.file, "- fault {at}");
        state.faults.push(at);
    }

    /// The fault that was noted last did not hit what it was meant for.
    pub(crate) fn forget_fault(&self) {
        let mut state = self.lock();
        let _ = writeln!(state.file, "- no fault");
        state.faults.pop();
    }

    /// Waits until a worker holds the lock, and returns it; `None` if none does in this time.
    pub(crate) fn holder(&self, patience: Duration) -> Option<usize> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let holder = self.lock().doing.iter().position(|doing| *doing == Doing::Holding);
            if holder.is_some() {
                return holder;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        None
    }

    pub(crate) fn is_holding(&self, worker: usize) -> bool {
        self.lock().doing[worker] == Doing::Holding
    }

    /// Waits for the workers, and lets them begin. Returns until when they do; `None` where one of them
    /// has not started.
    pub(crate) fn begin(&self, round: Duration) -> Option<u64> {
        let started = Instant::now();
        while started.elapsed() < START && self.lock().doing.contains(&Doing::Starting) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut state = self.lock();
        let is_whole = state.doing.iter().all(|doing| *doing == Doing::Nothing);
        let until = now() + u64::try_from(round.as_nanos()).unwrap_or(u64::MAX);
        // Those that wait for the others must not wait for ever.
        state.until = Some(if is_whole { until } else { 0 });
        drop(state);
        self.begun.notify_all();
        is_whole.then_some(until)
    }

    pub(crate) fn all_are_gone(&self) -> bool {
        self.lock().doing.iter().all(|doing| *doing == Doing::Gone)
    }

    /// What happened so far.
    pub(crate) fn history(&self) -> History {
        let mut state = self.lock();
        let _ = state.file.flush();
        let hung = state.doing.iter().filter(|doing| **doing == Doing::Calling).count() as u64;
        let events = std::mem::take(&mut state.events);
        let (faults, store) = (state.faults.clone(), std::mem::take(&mut state.store));
        History { events, faults, store, hung, crashed: state.crashed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
