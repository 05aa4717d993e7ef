//! Commands that one thread sends without the lock of the queue.

use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;

use super::*;
use crate::engine::path::After;
use crate::engine::path::send::MOST_ROUNDS;
use crate::engine::sender::Sender;

/// A socket that takes nothing before the test says how many bytes to take.
struct Gate {
    reached: Mutex<mpsc::Sender<usize>>,
    takes: Mutex<mpsc::Receiver<usize>>,
}

impl Sink for Gate {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.reached.lock().unwrap().send(bytes.len()).unwrap();
        match self.takes.lock().unwrap().recv() {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count.min(bytes.len())),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

struct Scene {
    bench: Bench,
    by: Sender,
    reached: mpsc::Receiver<usize>,
    take: mpsc::Sender<usize>,
    _runtime: runtime::Runtime,
}

impl Scene {
    /// A task reads, and one command is under way.
    fn new() -> Self {
        let (tell_reached, reached) = mpsc::channel();
        let (take, takes) = mpsc::channel();
        let gate = Gate { reached: Mutex::new(tell_reached), takes: Mutex::new(takes) };
        let bench = Bench::up_with(Some(Arc::new(gate)));
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let here = runtime.handle().id();
        bench.path.traffic().set_reader(Reader::Task(here));
        let mut scene = Self { bench, by: Sender::Task(here), reached, take, _runtime: runtime };
        assert_eq!(scene.put(), After::Nothing);
        assert!(scene.bench.path.traffic().is_flushed(), "a command alone is sent at once");
        scene
    }

    fn put(&mut self) -> After {
        self.bench.put_question();
        self.bench.path.after_put(self.by, &mut self.bench.results.settled).0
    }

    /// Another thread sends a batch that it has put. Before the socket takes anything, `meanwhile`
    /// happens.
    fn send_and(&mut self, meanwhile: impl FnOnce(&mut Self)) -> After {
        let by = self.by;
        self.send_by(move |path| path.after_put(by, &mut Vec::new()).0, meanwhile)
    }

    /// The reading task sends a batch.
    fn push_out_and(&mut self, meanwhile: impl FnOnce(&mut Self)) -> After {
        self.send_by(|path| path.push_out(path.traffic(), &mut Vec::new()), meanwhile)
    }

    fn send_by(
        &mut self,
        send: impl FnOnce(&Path) -> After + Send + 'static,
        meanwhile: impl FnOnce(&mut Self),
    ) -> After {
        for _ in 1..MIN_BATCH {
            self.put();
        }
        self.bench.put_question();
        let path = Arc::clone(&self.bench.path);
        let sending = thread::spawn(move || send(&path));
        assert_eq!(self.reached.recv().unwrap(), MIN_BATCH);
        meanwhile(self);
        sending.join().unwrap()
    }

    fn taken(&self) -> usize {
        self.bench.server().taken_aside
    }
}

#[test]
fn what_others_put_while_a_thread_sends_is_left_to_the_reading_task() {
    let mut scene = Scene::new();
    let after = scene.send_and(|scene| {
        assert_eq!(scene.put(), After::Nothing, "the thread that sends sees to it");
        scene.take.send(MIN_BATCH).unwrap();
    });
    assert_eq!(scene.taken(), MIN_BATCH);
    assert_eq!(after, After::WakeTask);
    assert!(!scene.bench.path.traffic().is_flushed());
}

#[test]
fn a_batch_that_others_put_while_a_thread_sends_is_sent_by_it() {
    let mut scene = Scene::new();
    let after = scene.send_and(|scene| {
        for _ in 0..MIN_BATCH {
            assert_eq!(scene.put(), After::Nothing);
        }
        scene.take.send(MIN_BATCH).unwrap();
        assert_eq!(scene.reached.recv().unwrap(), MIN_BATCH, "the second batch");
        scene.take.send(MIN_BATCH).unwrap();
    });
    assert_eq!(after, After::Nothing);
    assert_eq!(scene.taken(), 2 * MIN_BATCH);
    assert!(scene.bench.path.traffic().is_flushed());
}

#[test]
fn what_the_socket_does_not_take_is_sent_when_it_can_be() {
    let mut scene = Scene::new();
    let after = scene.send_and(|scene| {
        scene.take.send(1).unwrap();
        assert_eq!(scene.reached.recv().unwrap(), MIN_BATCH - 1);
        scene.take.send(0).unwrap();
    });
    assert_eq!((after, scene.taken()), (After::WakeTask, 1));
    assert!(!scene.bench.path.traffic().is_sent(), "the reading task waits until it can be sent");
}

#[test]
fn nothing_is_sent_any_more_when_the_connection_was_closed_meanwhile() {
    let mut scene = Scene::new();
    scene.send_and(|scene| {
        scene.bench.server().is_broken = true;
        scene.bench.turn(0);
        assert!(scene.bench.server().is_closed);
        let attempt = scene.bench.attempt();
        scene.bench.connected(attempt);
        scene.take.send(1).unwrap();
    });
    assert!(scene.reached.try_recv().is_err(), "the socket is gone");
    assert_eq!(scene.taken(), 0, "no other connection gets it back");
    scene.bench.settled();
}

#[test]
fn a_socket_that_fails_ends_the_connection() {
    let mut scene = Scene::new();
    scene.send_and(|scene| drop(std::mem::replace(&mut scene.take, mpsc::channel().0)));
    assert!(scene.bench.server().is_closed);
}

#[test]
fn a_reading_task_whose_socket_is_full_waits_for_the_socket_and_for_nobody_else() {
    let mut scene = Scene::new();
    let context = Context::from_waker(Waker::noop());
    let after = scene.push_out_and(|scene| {
        // The first command that was put woke it.
        assert!(scene.bench.path.task_news.poll_woken(&context).is_ready());
        scene.bench.server().is_full = true;
        scene.take.send(0).unwrap();
    });
    assert_eq!(after, After::WakeTask);
    assert!(scene.bench.path.task_news.poll_woken(&context).is_pending(), "it woke itself");
}

#[test]
fn what_is_left_is_the_engines_where_it_has_become_the_reader() {
    let mut scene = Scene::new();
    let after = scene.push_out_and(|scene| {
        scene.bench.path.traffic().set_reader(Reader::Engine);
        assert_eq!(scene.put(), After::Nothing, "the task that sends sees to it");
        scene.bench.server().is_full = true;
        scene.take.send(MIN_BATCH).unwrap();
        assert_eq!(scene.reached.recv().unwrap(), 1);
        scene.take.send(0).unwrap();
    });
    assert_eq!(after, After::WakeEngine);
}

#[test]
fn what_was_put_while_the_reading_task_sends_is_sent_by_it_while_others_put_more() {
    let mut scene = Scene::new();
    let after = scene.push_out_and(|scene| {
        for more in [2, 1] {
            (0..more).for_each(|_| assert_eq!(scene.put(), After::Nothing));
            scene.take.send(MIN_BATCH).unwrap();
            assert_eq!(scene.reached.recv().unwrap(), more, "without the lock");
        }
        scene.take.send(MIN_BATCH).unwrap();
    });
    assert_eq!(after, After::Nothing);
    assert_eq!(scene.taken(), MIN_BATCH + 3);
    assert!(scene.bench.path.traffic().is_flushed());
}

#[test]
fn a_thread_does_not_send_for_others_without_end() {
    let mut scene = Scene::new();
    let after = scene.send_and(|scene| {
        for round in 1..=MOST_ROUNDS {
            for _ in 0..MIN_BATCH {
                scene.put();
            }
            scene.take.send(MIN_BATCH).unwrap();
            if round < MOST_ROUNDS {
                assert_eq!(scene.reached.recv().unwrap(), MIN_BATCH);
            }
        }
        // One round more would meet a broken socket.
        scene.take = mpsc::channel().0;
    });
    assert_eq!(after, After::WakeTask);
    assert!(!scene.bench.server().is_closed);
}
