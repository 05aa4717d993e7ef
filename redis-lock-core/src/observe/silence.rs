//! Replaces the metrics when the `metrics` feature is off: all functions do nothing.

use std::time::Duration;

use crate::domain::error::FaultClass;
use crate::domain::idle_event::{AskOutcome, IdleEnd};
use crate::domain::kind::Kind;
use crate::{LockError, LossReason};

pub(crate) fn describe() {}
pub(super) fn waiting(_: Kind, _: f64) {}
pub(super) fn held(_: Kind, _: f64) {}
pub(super) fn contended(_: Kind) {}
pub(super) fn acquired(_: Kind, _: Duration) {}
pub(super) fn failed(_: Kind, _: &LockError) {}
pub(super) fn abandoned(_: Kind) {}
pub(super) fn ended(_: Kind, _: Duration, _: Option<&LossReason>) {}
pub(super) fn renewed(_: bool) {}
pub(super) fn fault(_: FaultClass) {}
pub(super) fn forced() {}
pub(super) fn not_completed() {}
pub(super) fn idle(_: f64) {}
pub(super) fn taken_again() {}
pub(super) fn idle_ended(_: IdleEnd) {}
pub(super) fn asked(_: AskOutcome) {}
