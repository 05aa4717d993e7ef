//! The task that executes transactions, on the engine's runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::run::run;
use super::setting::Setting;
use crate::domain::error::Fault;
use crate::store::{Answer, Command, SharedNews};

pub(super) type Jobs = mpsc::UnboundedReceiver<(u64, Command)>;

/// Answers that the task has received.
#[derive(Default)]
pub(super) struct AnswerInbox {
    answers: Mutex<VecDeque<(u64, Result<Answer, Fault>)>>,
    pub(super) news: SharedNews,
}

impl AnswerInbox {
    pub(super) fn take(&self) -> VecDeque<(u64, Result<Answer, Fault>)> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, seq: u64, answer: Result<Answer, Fault>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push_back((seq, answer));
        self.news.wake();
    }
}

/// Executes commands until the sender is dropped. Its connections are closed when the task ends.
pub(super) async fn serve(setting: Arc<Setting>, mut jobs: Jobs, inbox: Arc<AnswerInbox>) {
    let setting = &*setting;
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            job = jobs.recv() => {
                let Some((seq, command)) = job else { return };
                under_way.push(async move { (seq, run(setting, &command).await) });
            }
            Some((seq, answer)) = under_way.next(), if !under_way.is_empty() => inbox.put(seq, answer),
        }
    }
}
