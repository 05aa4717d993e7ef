//! The task that executes transactions, on the engine's runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::batch::{self, Answers, BatchKind, WaitingBatch};
use super::run::run;
use super::setting::Setting;
use crate::domain::error::Fault;
use crate::store::{Answer, BoxFuture, Command, SharedNews};

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

    fn put(&self, answers: Answers) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
        self.news.wake();
    }
}

/// The result of one future of the task.
struct Served {
    answers: Answers,
    /// The commands of a batch that have to be executed by themselves.
    rest: Vec<(u64, Command)>,
    batch: Option<BatchKind>,
}

async fn by_itself(setting: &Setting, seq: u64, command: Command) -> Served {
    let answers = vec![(seq, run(setting, &command).await)];
    Served { answers, rest: Vec::new(), batch: None }
}

async fn together(setting: &Setting, kind: BatchKind, batch: Vec<(u64, Command)>) -> Served {
    let (answers, rest) = batch::carry_out(setting, batch).await;
    Served { answers, rest, batch: Some(kind) }
}

/// Executes commands until the sender is dropped. Its connections are closed when the task ends.
pub(super) async fn serve(setting: Arc<Setting>, mut jobs: Jobs, inbox: Arc<AnswerInbox>) {
    let setting = &*setting;
    let mut under_way = FuturesUnordered::<BoxFuture<'_, Served>>::new();
    let mut lines = [WaitingBatch::default(), WaitingBatch::default()];
    loop {
        tokio::select! {
            biased;
            job = jobs.recv() => {
                let Some((seq, command)) = job else { return };
                // In a cluster the keys of a batch may have different slots.
                match BatchKind::of(&command).filter(|_| !setting.is_cluster) {
                    Some(kind) => lines[kind as usize].add(seq, command),
                    None => under_way.push(Box::pin(by_itself(setting, seq, command))),
                }
            }
            Some(brought) = under_way.next(), if !under_way.is_empty() => {
                if !brought.answers.is_empty() {
                    inbox.put(brought.answers);
                }
                // They may take longer, and must not delay the answers.
                for (seq, command) in brought.rest {
                    under_way.push(Box::pin(by_itself(setting, seq, command)));
                }
                if let Some(kind) = brought.batch {
                    lines[kind as usize].end();
                }
            }
        }
        if !jobs.is_empty() {
            continue;
        }
        for kind in BatchKind::EACH {
            while let Some(mut batch) = lines[kind as usize].next() {
                match (batch.pop(), batch.is_empty()) {
                    (Some((seq, command)), true) => {
                        lines[kind as usize].end();
                        under_way.push(Box::pin(by_itself(setting, seq, command)));
                        // Commands that arrive meanwhile are not delayed by it.
                        break;
                    }
                    (last, _) => {
                        batch.extend(last);
                        under_way.push(Box::pin(together(setting, kind, batch)));
                    }
                }
            }
        }
    }
}
