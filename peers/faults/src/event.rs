use anyhow::{Context, Result, bail};

use crate::worker::Ended;

/// One line of a worker. The time is that of the clock that all of them share, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// It is connected.
    Ready,
    /// It asks for the lock.
    Call { at: u64 },
    /// It has the lock.
    Got { at: u64, fence: Option<u64> },
    /// It reads the counters.
    Read { fence: Option<u64> },
    /// It writes them.
    Write { fence: Option<u64>, plain: u64, fenced: Option<u64> },
    /// It does not write them, because the library says that the lock is lost.
    Skip,
    /// The body is over, and the lock is given back.
    End { at: u64 },
    /// The release has returned.
    Ended { at: u64, how: Ended },
    /// Another one has the lock.
    Busy { at: u64 },
    /// The server could not be asked.
    Failed { at: u64, why: String },
}

impl Event {
    pub(crate) fn read(line: &str) -> Result<Self> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split(' ');
        let mut word = || words.next().context("a word is missing");
        let number = |word: &str| word.parse::<u64>().context("a number");
        let perhaps = |word: &str| word.parse::<u64>().ok();
        Ok(match name {
            "ready" => Self::Ready,
            "call" => Self::Call { at: number(word()?)? },
            "got" => Self::Got { at: number(word()?)?, fence: perhaps(word()?) },
            "read" => Self::Read { fence: perhaps(word()?) },
            "write" => Self::Write {
                fence: perhaps(word()?),
                plain: number(word()?)?,
                fenced: perhaps(word()?),
            },
            "skip" => Self::Skip,
            "end" => Self::End { at: number(word()?)? },
            "ended" => {
                let at = number(word()?)?;
                let how = match word()? {
                    "ok" => Ended::Ok,
                    "lost" => Ended::Lost,
                    "unknown" => Ended::Unknown,
                    other => bail!("no end is called `{other}`"),
                };
                Self::Ended { at, how }
            }
            "busy" => Self::Busy { at: number(word()?)? },
            "failed" => {
                let (at, why) = rest.split_once(' ').unwrap_or((rest, ""));
                Self::Failed { at: number(at)?, why: why.to_owned() }
            }
            other => bail!("no event is called `{other}`"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let read = |line| Event::read(line).unwrap();
        assert_eq!(read("got 12 -"), Event::Got { at: 12, fence: None });
        assert_eq!(read("write 7 3 4"), Event::Write { fence: Some(7), plain: 3, fenced: Some(4) });
        assert_eq!(read("ended 9 unknown"), Event::Ended { at: 9, how: Ended::Unknown });
        let why = "no route to host".to_owned();
        assert_eq!(read("failed 5 no route to host"), Event::Failed { at: 5, why });
        assert!(Event::read("hello").is_err() && Event::read("got 1").is_err());
    }
}
