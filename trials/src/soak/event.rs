use std::fmt;
use std::io::Write;
use std::time::Duration;

use redis_locks::Guard;

use super::kind::Kind;

/// What workers report of their holds, one line for each event.
///
/// Times are nanoseconds of the system's boot clock, which all processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A guard was returned. It was valid at `at`.
    Granted { hold: u64, kind: Kind, number: Number, at: u64, keys: Vec<u64> },
    /// It was still valid at `at`, and is not looked at any more.
    Ended { hold: u64, at: u64 },
    /// It was given away, and its next guard is valid at `at`.
    Adopted { hold: u64, at: u64 },
    /// A call had the same lease as the one before of its task, which had lingered.
    Again,
    /// A lease was made longer.
    Extended,
    /// A writer became a reader, which is another hold.
    Downgraded,
    /// A read-modify-write of the fenced store was accepted.
    Fenced { key: u64 },
    /// A read-modify-write of the plain store was made.
    Plain { key: u64 },
    /// The lock was busy for the whole wait.
    Busy,
    /// The server failed.
    Failed,
    /// A hold was found lost at `at`. With a `lease` it was renewed until then, so that something must
    /// have kept it from that.
    Lost { hold: u64, lease: Option<Duration>, at: u64 },
    /// A worker stood still by itself.
    Stood { worker: u64, from: u64, until: u64 },
    /// A call took longer than it may, in milliseconds.
    Late { took: u64 },
    /// A guard's remaining time was compared with the server's ttl, and was longer by this many
    /// microseconds. The answer was there at `at`.
    Compared { hold: u64, excess: u64, at: u64 },
    /// The holder of the key is to be made to lose it.
    Forcing { key: u64, from: u64 },
    /// That is known to have happened by now, or not to have happened.
    Forced { key: u64, from: u64, until: Option<u64> },
    /// The state of a lock was read, or that of many.
    Looked,
    /// A manager was shut down, and another took its place.
    ShutDown,
    /// A manager was drained before it was shut down.
    Drained,
    /// Too many waited already.
    Crowded,
    /// What is to be done once in a period was done: the call began at `from`, and had the lock at `at`.
    Done { slot: u64, from: u64, at: u64 },
    /// It was found done.
    FoundDone,
}

/// What a hold has a number for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    None,
    Fence(u64),
    Slot(u32),
}

impl Number {
    /// The number of a guard.
    pub(crate) fn of(guard: &Guard, is_fenced: bool) -> Self {
        let fence = guard.fence().filter(|_| is_fenced).map(Self::Fence);
        fence.or_else(|| guard.slot().map(Self::Slot)).unwrap_or(Self::None)
    }

    fn parse(word: &str) -> Option<Self> {
        Some(match word.split_at_checked(1)? {
            ("-", "") => Self::None,
            ("f", fence) => Self::Fence(fence.parse().ok()?),
            ("s", slot) => Self::Slot(slot.parse().ok()?),
            _ => return None,
        })
    }

    pub(crate) fn fence(self) -> Option<u64> {
        if let Self::Fence(fence) = self { Some(fence) } else { None }
    }

    pub(crate) fn slot(self) -> Option<u32> {
        if let Self::Slot(slot) = self { Some(slot) } else { None }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Fence(fence) => write!(f, "f{fence}"),
            Self::Slot(slot) => write!(f, "s{slot}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { hold, kind, number, at, keys } => {
                write!(f, "g {hold} {kind} {number} {at}")?;
                keys.iter().try_for_each(|key| write!(f, " {key}"))
            }
            Self::Ended { hold, at } => write!(f, "e {hold} {at}"),
            Self::Adopted { hold, at } => write!(f, "a {hold} {at}"),
            Self::Again => f.write_str("k"),
            Self::Extended => f.write_str("u"),
            Self::Downgraded => f.write_str("d"),
            Self::Fenced { key } => write!(f, "f {key}"),
            Self::Plain { key } => write!(f, "p {key}"),
            Self::Busy => f.write_str("b"),
            Self::Failed => f.write_str("x"),
            Self::Lost { hold, lease, at } => {
                write!(f, "l {hold} {} {at}", lease.map_or(0, |lease| lease.as_millis()))
            }
            Self::Stood { worker, from, until } => write!(f, "h {worker} {from} {until}"),
            Self::Late { took } => write!(f, "t {took}"),
            Self::Compared { hold, excess, at } => write!(f, "c {hold} {excess} {at}"),
            Self::Forcing { key, from } => write!(f, "q {key} {from}"),
            Self::Forced { key, from, until } => {
                write!(f, "o {key} {from} {}", until.unwrap_or(0))
            }
            Self::Looked => f.write_str("i"),
            Self::ShutDown => f.write_str("s"),
            Self::Drained => f.write_str("n"),
            Self::Crowded => f.write_str("r"),
            Self::Done { slot, from, at } => write!(f, "j {slot} {from} {at}"),
            Self::FoundDone => f.write_str("m"),
        }
    }
}

impl Event {
    /// Reads a line; `None` for one that was cut when its writer was killed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let event = words.next()?;
        if event == "g" {
            return Self::granted(words);
        }
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(match event {
            "e" => Self::Ended { hold: number()?, at: number()? },
            "a" => Self::Adopted { hold: number()?, at: number()? },
            "k" => Self::Again,
            "u" => Self::Extended,
            "d" => Self::Downgraded,
            "f" => Self::Fenced { key: number()? },
            "p" => Self::Plain { key: number()? },
            "b" => Self::Busy,
            "x" => Self::Failed,
            "l" => Self::Lost {
                hold: number()?,
                lease: Some(number()?).filter(|it| *it > 0).map(Duration::from_millis),
                at: number()?,
            },
            "h" => Self::Stood { worker: number()?, from: number()?, until: number()? },
            "t" => Self::Late { took: number()? },
            "c" => Self::Compared { hold: number()?, excess: number()?, at: number()? },
            "q" => Self::Forcing { key: number()?, from: number()? },
            "o" => Self::Forced {
                key: number()?,
                from: number()?,
                until: Some(number()?).filter(|until| *until > 0),
            },
            "i" => Self::Looked,
            "s" => Self::ShutDown,
            "n" => Self::Drained,
            "r" => Self::Crowded,
            "j" => Self::Done { slot: number()?, from: number()?, at: number()? },
            "m" => Self::FoundDone,
            _ => return None,
        })
    }

    fn granted<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let hold = words.next()?.parse().ok()?;
        let kind = Kind::parse(words.next()?)?;
        let number = Number::parse(words.next()?)?;
        let at = words.next()?.parse().ok()?;
        let keys: Vec<u64> = words.map(|key| key.parse().ok()).collect::<Option<_>>()?;
        (!keys.is_empty()).then_some(Self::Granted { hold, kind, number, at, keys })
    }
}

/// Notes it, for the process that started this one.
pub(crate) fn tell(event: Event) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{event}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_pipe() {
        let granted = [
            (u64::MAX, Kind::Mutex, Number::Fence(3), vec![1]),
            (1, Kind::Read, Number::None, vec![7]),
            (1, Kind::Write, Number::Fence(2), vec![7]),
            (1, Kind::Permit(12), Number::Slot(0), vec![9]),
            (1, Kind::All, Number::Fence(2), vec![5, 1]),
        ];
        let granted = granted.map(|(hold, kind, number, keys)| Event::Granted {
            hold,
            kind,
            number,
            at: 4,
            keys,
        });
        let others = [
            Event::Ended { hold: 5, at: 6 },
            Event::Adopted { hold: 5, at: 6 },
            Event::Again,
            Event::Extended,
            Event::Downgraded,
            Event::Fenced { key: 7 },
            Event::Plain { key: 8 },
            Event::Busy,
            Event::Failed,
            Event::Lost { hold: 1, lease: None, at: 2 },
            Event::Lost { hold: 1, lease: Some(Duration::from_millis(800)), at: 2 },
            Event::Stood { worker: 1, from: 2, until: 3 },
            Event::Late { took: 9 },
            Event::Compared { hold: 7, excess: 0, at: 8 },
            Event::Forcing { key: 16, from: 7 },
            Event::Forced { key: 16, from: 7, until: Some(8) },
            Event::Forced { key: 16, from: 7, until: None },
            Event::Looked,
            Event::ShutDown,
            Event::Drained,
            Event::Crowded,
            Event::Done { slot: 1, from: 2, at: 3 },
            Event::FoundDone,
        ];
        for event in granted.into_iter().chain(others) {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        assert_eq!(Event::parse("g 1 m 2"), None);
        assert_eq!(Event::parse("g 1 m 2 3"), None);
    }
}
