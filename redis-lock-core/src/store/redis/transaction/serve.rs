//! The task that carries transactions out, on the engine's runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::renewals::{self, Answers, MOST};
use super::run::{Setting, run};
use crate::domain::error::Fault;
use crate::store::{Answer, BoxFuture, Command, TaskBell};

pub(super) type Jobs = mpsc::UnboundedReceiver<(u64, Command)>;

/// Answers that the task has brought.
#[derive(Default)]
pub(super) struct AnswerInbox {
    answers: Mutex<VecDeque<(u64, Result<Answer, Fault>)>>,
    pub(super) news: TaskBell,
}

impl AnswerInbox {
    pub(super) fn take(&self) -> VecDeque<(u64, Result<Answer, Fault>)> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, answers: Answers) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
        self.news.ring();
    }
}

/// What a future under way brings: its answers, and whether it was a batch of renewals.
type Brought = (Answers, bool);

/// Carries out what is asked, until nobody asks any more. With the task go its connections.
pub(super) async fn serve(setting: Arc<Setting>, mut jobs: Jobs, inbox: Arc<AnswerInbox>) {
    let mut under_way = FuturesUnordered::<BoxFuture<'_, Brought>>::new();
    let mut renewals = Vec::new();
    // While one batch is under way, the next is collected.
    let mut is_renewing = false;
    loop {
        tokio::select! {
            biased;
            job = jobs.recv() => {
                let Some((seq, command)) = job else { return };
                if renewals::is_one(&command) {
                    renewals.push((seq, command));
                } else {
                    let setting = &*setting;
                    under_way.push(Box::pin(async move {
                        (vec![(seq, run(setting, &command).await)], false)
                    }));
                }
            }
            Some((answers, was_batch)) = under_way.next(), if !under_way.is_empty() => {
                inbox.put(answers);
                is_renewing &= !was_batch;
            }
        }
        if !is_renewing && !renewals.is_empty() && jobs.is_empty() {
            let most = if setting.is_cluster { 1 } else { MOST };
            let batch = renewals.drain(..most.min(renewals.len())).collect();
            let setting = &*setting;
            under_way.push(Box::pin(async move { (renewals::renew(setting, batch).await, true) }));
            is_renewing = true;
        }
    }
}
