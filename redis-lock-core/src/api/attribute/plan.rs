//! What is fixed about an annotated function: a constant of the program, which costs no code.

use std::time::Duration;

use crate::domain::kind::Kind;
use crate::{Request, Wait};

/// The options of an annotated function that are known when it is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) label: &'static str,
    pub(super) kind: Kind,
    /// Whether the body runs to its end although the lock is lost.
    pub(super) finishes: bool,
    /// Whether the release is not waited for.
    pub(super) in_background: bool,
    /// Whether the body has a value of its own for a busy lock.
    pub(super) answers_busy: bool,
    ttl: Option<PlannedTtl>,
    wait: Option<Wait>,
    renew: Option<bool>,
    fair: Option<bool>,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    repair_orphan: Option<Duration>,
    linger: Option<Duration>,
    fenced: bool,
    reentrant: bool,
}

#[derive(Clone, Copy, Debug)]
enum PlannedTtl {
    Never,
    For(Duration),
}

impl Plan {
    /// An exclusive lock with the manager's defaults. Its holders are called `label`.
    #[must_use]
    pub const fn new(label: &'static str) -> Self {
        Self {
            label,
            kind: Kind::Mutex,
            finishes: false,
            in_background: false,
            answers_busy: false,
            ttl: None,
            wait: None,
            renew: None,
            fair: None,
            max_hold: None,
            min_hold: None,
            repair_orphan: None,
            linger: None,
            fenced: false,
            reentrant: false,
        }
    }

    pub(super) fn apply(&self, mut request: Request) -> Request {
        match self.ttl {
            Some(PlannedTtl::Never) => request = request.never_expires(),
            Some(PlannedTtl::For(ttl)) => request = request.ttl(ttl),
            None => {}
        }
        if let Some(wait) = self.wait {
            request = request.wait(wait);
        }
        if let Some(renew) = self.renew {
            request = request.renew(renew);
        }
        if let Some(fair) = self.fair {
            request = request.fair(fair);
        }
        if let Some(limit) = self.max_hold {
            request = request.max_hold(limit);
        }
        if let Some(least) = self.min_hold {
            request = request.min_hold(least);
        }
        if let Some(grace) = self.repair_orphan {
            request = request.repair_orphan(grace);
        }
        if let Some(idle) = self.linger {
            request = request.linger(idle);
        }
        if self.fenced {
            request = request.fenced();
        }
        if self.reentrant {
            request = request.reentrant();
        }
        request.options.label = Some(self.label.into());
        request
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $ty:ty)?) $field:ident = $value:expr;)+) => {
        impl Plan {$(
            $(#[$doc])*
            #[must_use]
            pub const fn $name(mut self $(, $argument: $ty)?) -> Self {
                self.$field = $value;
                self
            }
        )+}
    };
}

setters! {
    /// See `Locks::read`.
    read() kind = Kind::Read;
    /// See `Locks::write`.
    write() kind = Kind::Write;
    /// See `Locks::permit`.
    permits(limit: u32) kind = Kind::Permit { limit };
    /// See `Request::ttl`.
    ttl(ttl: Duration) ttl = Some(PlannedTtl::For(ttl));
    /// See `Request::never_expires`.
    never_expires() ttl = Some(PlannedTtl::Never);
    /// See `Request::wait`.
    wait(limit: Duration) wait = Some(Wait::For(limit));
    /// See `Request::wait_forever`.
    wait_forever() wait = Some(Wait::Forever);
    /// See `Request::no_wait`.
    no_wait() wait = Some(Wait::None);
    /// See `Request::renew`.
    renew(renew: bool) renew = Some(renew);
    /// See `Request::fair`.
    fair(fair: bool) fair = Some(fair);
    /// See `Request::max_hold`.
    max_hold(limit: Duration) max_hold = Some(limit);
    /// See `Request::min_hold`.
    min_hold(least: Duration) min_hold = Some(least);
    /// See `Request::repair_orphan`.
    repair_orphan(grace: Duration) repair_orphan = Some(grace);
    /// See `Request::linger`.
    linger(idle: Duration) linger = Some(idle);
    /// See `Request::fenced`.
    fenced() fenced = true;
    /// See `Request::reentrant`.
    reentrant() reentrant = true;
    /// Lets the body run to its end when the lock is lost, and keeps its value.
    finish() finishes = true;
    /// Does not wait until the server confirms the release.
    background() in_background = true;
    /// Leaves it to the body what to return when the lock is busy.
    answer_busy() answers_busy = true;
}
