//! The signals that would end or stop this process.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::{fs, io};

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that are sent to a command. Each ends a process without a handler, and the command would run
/// on without the lock.
const ENDS: [Number; 6] =
    [Number::INT, Number::TERM, Number::HUP, Number::QUIT, Number::USR1, Number::USR2];

/// Signals by which a terminal stops a process. The command would run on if only this process stopped.
const STOPS: [Number; 3] = [Number::TSTP, Number::TTIN, Number::TTOU];

pub(crate) struct Signals {
    ignored: u64,
    signals: Vec<(Number, Signal)>,
}

impl Signals {
    /// From now on `next` returns them, and they no longer end this process. A signal that was ignored
    /// when this process started, as `nohup` ignores HUP, stays ignored, here and in the command.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self { ignored: ignored(), signals: Vec::new() };
        signals.add(&ENDS)?;
        Ok(signals)
    }

    /// From now on `next` also returns the signals of job control, and SIGCHLD. Without a handler the
    /// system drops the status of a child if the parent of this process ignored SIGCHLD.
    pub(crate) fn listen_to_jobs(&mut self) -> io::Result<()> {
        self.ignored &= !bit(Number::CHILD);
        self.add(&[Number::CHILD, Number::CONT])?;
        self.add(&STOPS)
    }

    fn add(&mut self, numbers: &[Number]) -> io::Result<()> {
        for &number in numbers.iter().filter(|number| self.ignored & bit(**number) == 0) {
            self.signals.push((number, signal(SignalKind::from_raw(number.as_raw()))?));
        }
        Ok(())
    }

    /// The next signal that arrives.
    pub(crate) async fn next(&mut self) -> Number {
        poll_fn(|context| {
            let signals = self.signals.iter_mut();
            let mut arrived = signals.filter_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(*number)
            });
            match arrived.next() {
                Some(Number::CONT) => {
                    self.forget_stops(context);
                    Poll::Ready(Number::CONT)
                }
                Some(number) => Poll::Ready(number),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// The system does the same: a process that is continued does not stop for an earlier signal.
    fn forget_stops(&mut self, context: &mut Context<'_>) {
        for (_, signal) in self.signals.iter_mut().filter(|(number, _)| STOPS.contains(number)) {
            let _ = signal.poll_recv(context);
        }
    }
}

fn bit(number: Number) -> u64 {
    1 << (number.as_raw() - 1)
}

/// A bit for each signal that this process ignores; none where the system does not tell.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{getpid, kill_process};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_continue_makes_up_for_a_stop_before_it() {
        let mut signals = Signals { ignored: 0, signals: Vec::new() };
        signals.listen_to_jobs().unwrap();
        // They say when a handler has run, which another thread may do late.
        let listen = |number: Number| signal(SignalKind::from_raw(number.as_raw())).unwrap();
        let (mut stops, mut continues) = (listen(Number::TSTP), listen(Number::CONT));
        kill_process(getpid(), Number::TSTP).unwrap();
        assert_eq!(signals.next().await, Number::TSTP);
        stops.recv().await;
        kill_process(getpid(), Number::TSTP).unwrap();
        stops.recv().await;
        kill_process(getpid(), Number::CONT).unwrap();
        continues.recv().await;
        assert_eq!(signals.next().await, Number::CONT);
        let stop = tokio::time::timeout(Duration::from_millis(200), signals.next()).await;
        assert!(stop.is_err(), "{stop:?}");
    }
}
