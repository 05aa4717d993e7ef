//! A batch on its way to the server and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

use crate::clock::Moment;
use crate::error::Fault;
use crate::slot::Confirm;
use crate::store::{Answer, Answers, Command};
use crate::table::SlotId;

/// Who sent a command.
#[derive(Debug)]
pub(super) enum Sender {
    Slot { id: SlotId, confirm: Option<Confirm> },
    Reaper(u64),
    Query(Option<oneshot::Sender<Result<Answer, Fault>>>),
}

/// A batch that was sent and not answered yet.
pub(super) struct Flight {
    pub(super) commands: Arc<[Command]>,
    pub(super) senders: Vec<Sender>,
    pub(super) sent: Moment,
    started: Instant,
    answers: Answers,
    timeout: Pin<Box<Sleep>>,
    /// Commands whose time is up, whose senders were told that the outcome is unknown.
    pub(super) overdue: Vec<bool>,
}

/// What became of a flight.
pub(super) enum Landing {
    /// All answers are there.
    Answered(Vec<Result<Answer, Fault>>),
    /// Some command's time is up; the flight goes on.
    Late,
}

impl Flight {
    pub(super) fn new(
        commands: Arc<[Command]>,
        senders: Vec<Sender>,
        sent: Moment,
        answers: Answers,
    ) -> Self {
        let shortest = commands.iter().map(|command| command.timeout).min().unwrap_or_default();
        let overdue = Vec::new();
        let timeout = Box::pin(sleep(shortest));
        Self { commands, senders, sent, started: Instant::now(), answers, timeout, overdue }
    }

    /// The commands whose time is up and who were not told before; sets the timer for the rest.
    pub(super) fn newly_overdue(&mut self) -> Vec<usize> {
        let elapsed = self.started.elapsed();
        self.overdue.resize(self.commands.len(), false);
        let mut news = Vec::new();
        let mut next = Duration::MAX;
        for (index, command) in self.commands.iter().enumerate() {
            match self.overdue.get_mut(index) {
                Some(told) if !*told && command.timeout <= elapsed => {
                    *told = true;
                    news.push(index);
                }
                Some(false) => next = next.min(command.timeout),
                _ => {}
            }
        }
        // A flight whose senders all know goes on for the answers that come late.
        let next = next.min(Duration::from_secs(24 * 60 * 60));
        self.timeout.as_mut().reset(self.started + next);
        news
    }

    pub(super) fn is_overdue(&self, index: usize) -> bool {
        self.overdue.get(index).copied().unwrap_or(false)
    }
}

/// A flight as a future that gives itself back.
pub(super) struct Flying(pub(super) Option<Box<Flight>>);

impl Future for Flying {
    type Output = Option<(Box<Flight>, Landing)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(flight) = &mut self.0 else { return Poll::Ready(None) };
        let landing = if let Poll::Ready(answers) = flight.answers.as_mut().poll(cx) {
            Landing::Answered(answers)
        } else if flight.timeout.as_mut().poll(cx).is_ready() {
            Landing::Late
        } else {
            return Poll::Pending;
        };
        Poll::Ready(self.0.take().map(|flight| (flight, landing)))
    }
}
