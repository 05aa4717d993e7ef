//! Many waiters of one process for a lock that several can hold.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, LockRequest};
use testbed::{PATIENCE, Server, eventually};
use tokio::task::JoinSet;

use super::{PLACE, ms};

/// More than twice as many as queue at the server.
pub(crate) const WAITING: usize = 80;

/// So many permits there are, and so many waiters are let in at once at most.
pub(crate) const LIMIT: u32 = 16;

/// How long each has its permit.
const HELD: Duration = ms(20);

/// So many waiters of a process for a lock that several can hold queue at the server.
pub(crate) const AT_SERVER: usize = 32;

/// Within this time each of them has looked. It is shorter than their places last.
const ALL_HAVE_LOOKED: Duration = ms(4_500);

const _: () = assert!(ALL_HAVE_LOOKED.as_millis() < PLACE.as_millis());

type Outcome = Result<Guard, LockError>;

/// An acquisition that has joined the waiters of its process.
pub(crate) type Asking = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Has a request ask now. Those that ask one after the other queue in this order.
pub(crate) async fn ask(request: LockRequest) -> Asking {
    let mut asking: Asking = Box::pin(request.acquire());
    poll_fn(|context| match asking.as_mut().poll(context) {
        Poll::Pending => Poll::Ready(()),
        Poll::Ready(outcome) => panic!("it need not wait: {outcome:?}"),
    })
    .await;
    asking
}

/// All permits of a key.
pub(crate) async fn take_all(request: LockRequest) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..LIMIT {
        guards.push(request.clone().acquire().await.unwrap());
    }
    guards
}

/// Frees permits one after the other.
pub(crate) async fn free(guards: Vec<Guard>) {
    for guard in guards {
        guard.release().await.unwrap();
        tokio::time::sleep(ms(5)).await;
    }
}

/// Waiters that go when they have been served.
#[derive(Default)]
pub(crate) struct Line {
    tasks: JoinSet<Result<(), LockError>>,
    served: Served,
}

impl Line {
    /// Lines up those who make these requests.
    pub(crate) async fn of(requests: impl IntoIterator<Item = LockRequest>) -> Self {
        let mut line = Self::default();
        for (number, request) in requests.into_iter().enumerate() {
            let (asking, served) = (ask(request).await, line.served.clone());
            line.tasks.spawn(async move {
                let guard = asking.await?;
                served.note(number);
                tokio::time::sleep(HELD).await;
                guard.release().await
            });
        }
        line
    }

    /// All are served in this time. Returns in which order.
    #[track_caller]
    pub(crate) fn all_served(self, within: Duration) -> impl Future<Output = Served> {
        let Self { mut tasks, served } = self;
        let start = Instant::now();
        async move {
            let all = async {
                while let Some(task) = tasks.join_next().await {
                    task.expect("it is served in its turn").expect("it is served");
                }
            };
            let in_time = tokio::time::timeout(within, all).await.is_ok();
            assert!(in_time, "after {within:?} only these were served: {:?}", served.order());
            eprintln!("{} were served in {:?}", served.order().len(), start.elapsed());
            served
        }
    }
}

/// The numbers of those who were served, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Arc<Mutex<Vec<usize>>>);

impl Served {
    pub(crate) fn note(&self, number: usize) {
        self.0.lock().unwrap().push(number);
    }

    pub(crate) fn order(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }

    /// Whether they were let in as they had come: when one of them was seen, those who came before it and
    /// were not seen yet had been let in with it.
    pub(crate) fn is_in_order(&self) -> bool {
        let order = self.order();
        order.iter().enumerate().all(|(place, number)| {
            let before = order[place..].iter().filter(|later| *later < number).count();
            before < LIMIT as usize
        })
    }
}

/// When the place of each waiter in a queue ends, by the clock of the server, whose present time is
/// returned as well.
fn places(server: &Server, waiters: &str) -> (Vec<u64>, u64) {
    let (seconds, micros): (u64, u64) = server.run("TIME");
    let entries: BTreeMap<String, String> = server.run(&format!("HGETALL {waiters}"));
    let end = |entry: &String| entry.split('/').next()?.parse().ok();
    (entries.values().filter_map(end).collect(), seconds * 1_000 + micros / 1_000)
}

/// Waits until each of those that queue at the server has made its place last longer, and sees to it that
/// none ends and no other comes.
#[track_caller]
pub(crate) fn until_all_have_looked(server: &Server, waiters: &str) {
    let count = AT_SERVER;
    eventually(PATIENCE, "they are in the queue", || places(server, waiters).0.len() == count);
    let looked_after = places(server, waiters).1 + millis(PLACE);
    eventually(ALL_HAVE_LOOKED, "each waiter looks and keeps its place", || {
        let (ends, now) = places(server, waiters);
        assert_eq!(ends.len(), count, "they stay in the queue");
        assert!(ends.iter().all(|end| *end > now), "none loses its place");
        ends.iter().all(|end| *end > looked_after)
    });
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
