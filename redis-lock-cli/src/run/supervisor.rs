//! What happens while the command runs: signals, the terminal, the loss of the lock, the end.

use std::time::Duration;

use redis_lock_core::{Guard, LossReason};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use tokio::time::{Instant, sleep_until, timeout};

use super::child::Child;
use super::group::Group;
use super::terminal::Terminal;
use crate::exit::Code;
use crate::signals::Signals;

/// The pauses between two looks at what the command has left behind.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(200)];

/// How long the command's processes may run on before that is reported.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the lock is kept for processes that KILL does not end at once.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// How long the server may take to say whether a lock is still held.
const ANSWER: Duration = Duration::from_secs(1);

/// How it ended.
pub(crate) enum End {
    Command(Code),
    /// The command was told to end by INT or TERM, and has ended.
    Stopped(Code),
    Lost(LossReason),
    /// A newer call has come, and the command was stopped for it.
    Superseded,
}

pub(crate) struct Supervisor<'a> {
    child: Child,
    guard: &'a Guard,
    terminal: Option<Terminal>,
    /// Whether the command is to have the foreground: the last one of it and the processes beside this one
    /// (a pager, say) that asked for it.
    yields: bool,
    grace: Duration,
    /// When KILL is sent.
    deadline: Option<Instant>,
    lost: Option<LossReason>,
    /// Whether a newer call has come, and whether the command ran then.
    superseded: Option<bool>,
    pause: Duration,
    has_reported: bool,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        child: Child,
        guard: &'a Guard,
        terminal: Option<Terminal>,
        grace: Duration,
    ) -> Self {
        let yields = terminal.is_some();
        Self {
            child,
            guard,
            terminal,
            yields,
            grace,
            deadline: None,
            lost: None,
            superseded: None,
            pause: PAUSES[0],
            has_reported: false,
        }
    }

    /// Waits until no process of the command's group is left, or KILL was sent. `report` gets the
    /// processes that run although the command has ended.
    pub(crate) async fn supervise(mut self, signals: &mut Signals, report: impl Fn(&[u32])) -> End {
        let mut silence = None;
        loop {
            let now = Instant::now();
            let is_due = self.deadline.is_some_and(|deadline| deadline <= now);
            if is_due {
                self.group().send(Signal::KILL);
            }
            let has_ended = self.child.ended.is_some();
            let gives_up = self.deadline.is_some_and(|deadline| deadline + AFTER_KILL <= now);
            if gives_up || has_ended && self.group().is_empty() {
                break;
            }
            if has_ended && *silence.get_or_insert(now + SILENCE) <= now && !self.has_reported {
                self.has_reported = true;
                report(&self.group().living());
            }
            let look = (has_ended || is_due).then(|| now + self.next_pause());
            let deadline = self.deadline.filter(|_| !is_due);
            let next = look.into_iter().chain(deadline).min();
            let guard = self.guard;
            tokio::select! {
                signal = signals.next() => self.on_signal(signal).await,
                reason = guard.lost(), if self.lost.is_none() => self.on_loss(reason),
                () = guard.superseded(), if self.superseded.is_none() => self.on_superseded(),
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
        // This program may have been stopped, and the command have gone on without the lock.
        if self.lost.is_none() && !self.guard.is_held() {
            self.lost = Some(self.guard.lost().await);
        }
        match (self.lost, self.superseded, self.child.ended) {
            (Some(reason), ..) => End::Lost(reason),
            (None, Some(true), _) => End::Superseded,
            (None, _, Some(code)) if self.deadline.is_some() => End::Stopped(code),
            (None, _, Some(code)) => End::Command(code),
            (None, _, None) => End::Stopped(Code::of_signal(Signal::KILL.as_raw())),
        }
    }

    fn group(&self) -> Group {
        self.child.group()
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSES[1]);
        pause
    }

    fn on_loss(&mut self, reason: LossReason) {
        self.lost = Some(reason);
        self.group().send(Signal::TERM);
        self.begin_grace();
    }

    fn on_superseded(&mut self) {
        self.superseded = Some(self.child.ended.is_none());
        self.group().send(Signal::TERM);
        self.begin_grace();
    }

    fn begin_grace(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + self.grace);
    }

    async fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => self.on_child(),
            Signal::CONT => self.go_on().await,
            Signal::TSTP => self.stop(),
            Signal::TTIN | Signal::TTOU => self.on_wish_beside(),
            signal => {
                self.group().send(signal);
                if matches!(signal, Signal::INT | Signal::TERM) {
                    self.begin_grace();
                }
            }
        }
    }

    fn on_child(&mut self) {
        let had_ended = self.child.ended.is_some();
        match self.child.collect() {
            Some(Signal::TTIN | Signal::TTOU) if self.give() => {
                self.yields = true;
                self.group().send(Signal::CONT);
            }
            Some(Signal::TSTP) if Terminal::has_no_shell() => self.group().send(Signal::CONT),
            // The terminal has stopped the command, and would have stopped this process with it.
            Some(Signal::TSTP | Signal::TTIN | Signal::TTOU) if self.terminal.is_some() => {
                self.take();
                let _ = kill_current_process_group(Signal::TSTP);
            }
            _ => {}
        }
        if !had_ended && self.child.ended.is_some() && self.take() {
            let by = |signal: &Signal| self.child.ended == Some(Code::of_signal(signal.as_raw()));
            if let Some(signal) = [Signal::INT, Signal::QUIT].into_iter().find(by) {
                // From the terminal, a script around this process would have got it as well.
                let _ = kill_current_process_group(signal);
            }
        }
    }

    /// Stops the command, then this process.
    fn stop(&mut self) {
        if getpid().is_init() {
            // The first process of a container can't be stopped, so nothing would continue the command.
            self.group().send(Signal::CONT);
            return;
        }
        self.group().send(Signal::STOP);
        self.take();
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// Continues the command, unless the lock was lost while it stood still.
    async fn go_on(&mut self) {
        // An error that is no loss leaves the lock as it is.
        let _ = timeout(ANSWER, self.guard.verify()).await;
        if self.guard.is_held() {
            if self.yields {
                self.give();
            }
            self.group().send(Signal::CONT);
            return;
        }
        self.group().send(Signal::KILL);
        self.deadline = Some(Instant::now());
        self.lost = Some(self.guard.lost().await);
    }

    /// A process beside this one wants the foreground.
    fn on_wish_beside(&mut self) {
        if self.take() || self.terminal.as_ref().is_some_and(Terminal::is_ours) {
            self.yields = false;
            let _ = kill_current_process_group(Signal::CONT);
        } else {
            self.stop();
        }
    }

    fn give(&self) -> bool {
        self.terminal.as_ref().is_some_and(|it| it.give(self.group().0))
    }

    fn take(&self) -> bool {
        self.terminal.as_ref().is_some_and(|it| it.take(self.group().0))
    }
}
