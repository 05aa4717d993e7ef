//! Replaces the metrics when the `metrics` feature is off: all functions do nothing.

pub(super) use Silence as Series;

use std::time::Duration;

use crate::domain::error::BackendErrorKind;
use crate::domain::kind::LockSort;
use crate::domain::status::{AskOutcome, IdleEnd};
use crate::{LockError, LossReason};

#[derive(Debug)]
pub(super) struct Silence;

impl Silence {
    pub(super) fn of(_: LockSort) -> &'static Self {
        &Self
    }
    pub(super) fn waiting(&self, _: f64) {}
    pub(super) fn held(&self, _: f64) {}
    pub(super) fn contended(&self) {}
    pub(super) fn acquired(&self, _: Duration) {}
    pub(super) fn failed(&self, _: &LockError, _: Duration) {}
    pub(super) fn cancelled(&self, _: Duration) {}
    pub(super) fn ended(&self, _: Duration, _: Option<&LossReason>) {}
    pub(super) fn lost(&self, _: &LossReason) {}
    pub(super) fn renewed(&self, _: bool) {}
    pub(super) fn fault(&self, _: BackendErrorKind) {}
    pub(super) fn not_completed(&self) {}
    pub(super) fn idle(&self, _: f64) {}
    pub(super) fn taken_again(&self) {}
    pub(super) fn idle_ended(&self, _: IdleEnd) {}
    pub(super) fn asked(&self, _: AskOutcome) {}
}

pub(crate) fn describe() {}
pub(super) fn forced() {}
