//! The signals that would end this process.

use std::future::poll_fn;
use std::task::Poll;
use std::{fs, io};

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Those that people send to a command. Each ends a process that does not expect it, and the
/// command would run on unprotected if that were this one.
const NUMBERS: [Number; 6] =
    [Number::INT, Number::TERM, Number::HUP, Number::QUIT, Number::USR1, Number::USR2];

pub(crate) struct Signals(Vec<(Number, Signal)>);

impl Signals {
    /// From now on they end this process no more. Those that were ignored before, as `nohup` has it, are
    /// ignored by the command as well.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let heard = NUMBERS.into_iter().filter(|number| ignored >> (number.as_raw() - 1) & 1 == 0);
        let listen = |number: Number| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?));
        heard.map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// The next one that arrives.
    pub(crate) async fn next(&mut self) -> Number {
        poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// A bit for each signal that this process ignores; none where the system does not tell.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
