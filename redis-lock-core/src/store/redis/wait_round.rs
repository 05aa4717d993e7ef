//! One round of waiting for replicas: what is sent, and what the replies say. No I/O happens here.
//!
//! `WAIT` returns how many replicas have what its connection wrote. So the round first writes
//! something, after all commands that need confirmation. Commands that were answered before the
//! round began come before that write. A command that was only sent before the round may be
//! executed after it. It counts if its key has its token, which the round reads first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::decode;
use super::dialect::words;
use crate::BackendErrorKind;
use crate::NotReplicated;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::Names;

/// The longest time to wait for replicas: with several nodes, an older answer starts no lease,
/// because another node may have become the primary.
pub(super) const LONGEST: Duration = Duration::from_millis(400);

const SHORTEST: Duration = Duration::from_millis(20);

/// How many commands follow the reads.
const WRITES: usize = 3;

/// How long the written key is kept: longer than the time between two renewals.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A command that has no answer yet. It sets its key to its token, which nothing else does.
#[derive(Debug)]
pub(super) struct Rider {
    pub(super) seq: u64,
    pub(super) names: Names,
    pub(super) token: Arc<str>,
}

/// Whether enough replicas have something.
pub(super) type WaitVerdict = Result<(), Fault>;

#[derive(Debug)]
pub(super) struct WaitRound {
    /// Commands that are answered.
    answered: Vec<u64>,
    riders: Vec<Rider>,
    wanted: u32,
    time: Duration,
    /// The keys that can be written. A slot may be being moved to another node; another one may not.
    keys: VecDeque<String>,
    replies: Vec<Value>,
    due: Moment,
}

/// What follows from a reply.
#[derive(Debug)]
pub(super) enum NextRound {
    /// More replies are to come.
    Wait,
    /// The key could not be written. The round sends [`WaitRound::commands`] for another key.
    Again,
    /// The verdict, and for which commands it was given.
    Over(WaitVerdict, Vec<u64>),
}

impl WaitRound {
    /// A round for commands of which the shortest time limit is `limit`.
    pub(super) fn new(
        answered: Vec<u64>,
        riders: Vec<Rider>,
        wanted: u32,
        limit: Duration,
        keys: VecDeque<String>,
    ) -> Self {
        let time = (limit / 2).clamp(SHORTEST, LONGEST);
        Self { answered, riders, wanted, time, keys, replies: Vec::new(), due: Moment::NEVER }
    }

    /// Whether it is for commands that were answered.
    pub(super) fn confirms_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The commands to send now; none if there is no other key to write.
    pub(super) fn commands(&mut self, now: Moment) -> Option<Vec<Cmd>> {
        let key = self.keys.pop_front()?;
        self.replies.clear();
        self.due = now.after(self.time * 2);
        let mut cmds = Vec::with_capacity(self.riders.len() + WRITES);
        cmds.extend(self.riders.iter().map(|rider| words(["GET", rider.names.main()])));
        // No script writes, since there may be none. A full server refuses the first command, also
        // where the key exists, and executes the second one.
        let kept = KEPT.as_millis().to_string();
        let mut create = words(["SET", &key]);
        create.arg(1).arg("PX").arg(&kept).arg("NX");
        let mut write = words(["PEXPIRE", &key]);
        write.arg(&kept);
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.wanted).arg(self.time.as_millis().to_string());
        cmds.extend([create, write, wait]);
        Some(cmds)
    }

    /// When the replies must be there.
    pub(super) fn due(&self) -> Moment {
        self.due
    }

    pub(super) fn take(&mut self, reply: Value) -> NextRound {
        self.replies.push(reply);
        if self.replies.len() < self.riders.len() + WRITES {
            return NextRound::Wait;
        }
        let verdict = match self.refusal() {
            Some(_) if !self.keys.is_empty() => return NextRound::Again,
            Some(fault) => Err(fault),
            None => enough(self.got(), self.wanted),
        };
        NextRound::Over(verdict, self.covered())
    }

    /// The verdict when replies are missing, and for which commands it was given.
    pub(super) fn fail(&self, fault: Fault) -> (WaitVerdict, Vec<u64>) {
        (Err(fault), self.covered())
    }

    /// The same when they did not come in time.
    pub(super) fn late(&self) -> Fault {
        not_replicated(0, self.wanted)
    }

    /// Whether the user may not read keys.
    pub(super) fn may_not_read(&self) -> bool {
        let reads = self.replies.iter().take(self.riders.len());
        reads
            .into_iter()
            .any(|reply| matches!(reply, Value::ServerError(error) if is_no_right(error)))
    }

    /// Why nothing could be written, or nothing could be waited for.
    fn refusal(&self) -> Option<Fault> {
        let [create, write, wait] = self.replies.get(self.riders.len()..)? else { return None };
        match (create, write, wait) {
            (Value::ServerError(error), ..) if planted!(MarkerRefused) => Some(refused(error)),
            (_, Value::Int(1), Value::ServerError(error)) if is_no_right(error) => {
                Some(refused(error))
            }
            (_, Value::Int(1), _) => None,
            (Value::ServerError(error), _, _) | (_, Value::ServerError(error), _) => {
                Some(refused(error))
            }
            _ => Some(unknown("the key that is written for it has gone")),
        }
    }

    /// How many replicas have it; `None` if the server is a replica now.
    fn got(&self) -> u32 {
        match self.replies.last() {
            Some(Value::Int(got)) => u32::try_from(*got).unwrap_or(0),
            _ => 0,
        }
    }

    /// The commands that were certainly executed before the write.
    fn covered(&self) -> Vec<u64> {
        let proven = self.riders.iter().zip(&self.replies).filter(|(rider, reply)| {
            matches!(reply, Value::BulkString(value) if **value == *rider.token.as_bytes())
        });
        let proven = proven.map(|(rider, _)| rider.seq);
        self.answered.iter().copied().chain(proven).collect()
    }
}

fn is_no_right(error: &redis::ServerError) -> bool {
    decode::code_of(error) == "NOPERM"
}

fn enough(got: u32, wanted: u32) -> WaitVerdict {
    if got >= wanted { Ok(()) } else { Err(not_replicated(got, wanted)) }
}

/// Unknown, because the commands whose answers are held back were executed.
fn refused(error: &redis::ServerError) -> Fault {
    Fault { class: FaultClass::Unknown, ..decode::refusal(error) }
}

fn not_replicated(got: u32, wanted: u32) -> Fault {
    let shortfall = NotReplicated { got, wanted };
    let what = shortfall.to_string();
    Fault::new(FaultClass::Unknown, what).of(BackendErrorKind::NotReplicated).because(shortfall)
}

pub(super) fn unknown(why: &str) -> Fault {
    let what = format!("it is unknown whether the replicas have it: {why}");
    Fault::new(FaultClass::Unknown, what)
}

/// The verdict about an answer for which one replica is wanted, from the replies to each command of a round.
#[cfg(test)]
pub(crate) fn verdict_by(mut reply: impl FnMut(&Cmd) -> Value) -> Result<(), Fault> {
    let keys = ["marker".to_owned()].into();
    let mut round = WaitRound::new(vec![0], Vec::new(), 1, LONGEST, keys);
    let cmds = round.commands(Moment::START).unwrap_or_default();
    match cmds.iter().map(|cmd| round.take(reply(cmd))).last() {
        Some(NextRound::Over(verdict, _)) => verdict,
        _ => Err(unknown("the round has no end")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rider(seq: u64) -> Rider {
        let names = Names::new("lock", format!("lock:{seq}"));
        Rider { seq, names, token: format!("token-{seq}").into() }
    }

    fn round(answered: Vec<u64>, riders: Vec<Rider>) -> WaitRound {
        let keys = ["one".to_owned(), "two".to_owned()].into();
        WaitRound::new(answered, riders, 1, SECOND, keys)
    }

    fn sent(round: &mut WaitRound) -> Option<Vec<String>> {
        let text = |cmd: &Cmd| String::from_utf8_lossy(&cmd.get_packed_command()).into_owned();
        let words = |cmd: &Cmd| text(cmd).lines().skip(2).step_by(2).collect::<Vec<_>>().join(" ");
        Some(round.commands(Moment::START)?.iter().map(words).collect())
    }

    /// The verdict that follows from these replies, and for whom.
    fn over(round: &mut WaitRound, replies: Vec<Value>) -> (WaitVerdict, Vec<u64>) {
        let next = replies.into_iter().map(|reply| round.take(reply)).last();
        match next {
            Some(NextRound::Over(verdict, covered)) => (verdict, covered),
            other => panic!("{other:?}"),
        }
    }

    fn written(got: i64) -> [Value; WRITES] {
        [Value::Okay, Value::Int(1), Value::Int(got)]
    }

    fn error(text: &str) -> Value {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn what_has_no_answer_counts_when_it_was_certainly_executed_before_the_write() {
        let mut round = round(vec![7], vec![rider(1), rider(2), rider(3)]);
        let expected = [
            "GET lock:1",
            "GET lock:2",
            "GET lock:3",
            "SET one 1 PX 86400000 NX",
            "PEXPIRE one 86400000",
        ];
        let sent = sent(&mut round).unwrap();
        assert_eq!(sent[..5], expected);
        assert_eq!(sent[5], "WAIT 1 400");
        let reads = vec![text("token-1"), Value::Nil, text("token-1")];
        let (verdict, covered) = over(&mut round, [reads, written(1).into()].concat());
        assert!(verdict.is_ok());
        assert_eq!(covered, [7, 1]);
        assert!(!round.may_not_read());
    }

    #[test]
    fn too_few_replicas_are_a_shortfall_and_so_is_a_server_that_is_no_primary_any_more() {
        for (last, got) in [(Value::Int(0), 0), (error("UNBLOCKED force unblock"), 0)] {
            let mut round = round(vec![7], Vec::new());
            sent(&mut round);
            let (verdict, covered) = over(&mut round, vec![Value::Okay, Value::Int(1), last]);
            let source = verdict.unwrap_err().source.unwrap();
            assert_eq!(source.downcast_ref(), Some(&NotReplicated { got, wanted: 1 }));
            assert_eq!(covered, [7]);
        }
    }

    #[test]
    fn another_key_is_written_where_one_is_on_its_way_to_another_node() {
        let mut round = round(vec![7], Vec::new());
        let moved = || vec![error("MOVED 1 b:1"), error("MOVED 1 b:1"), Value::Int(1)];
        sent(&mut round);
        let next = moved().into_iter().map(|reply| round.take(reply)).last();
        assert!(matches!(next, Some(NextRound::Again)), "{next:?}");
        assert_eq!(sent(&mut round).unwrap()[1], "PEXPIRE two 86400000");
        let (verdict, _) = over(&mut round, moved());
        assert!(verdict.unwrap_err().class.is_unknown());
        assert_eq!(sent(&mut round), None);
    }

    #[test]
    fn a_full_server_confirms_by_a_key_that_exists_and_creates_none() {
        let full = || error("OOM command not allowed when used memory > 'maxmemory'.");
        let mut kept = round(vec![7], Vec::new());
        sent(&mut kept);
        let (verdict, _) = over(&mut kept, vec![full(), Value::Int(1), Value::Int(1)]);
        assert!(verdict.is_ok(), "{verdict:?}");
        let keys = ["one".to_owned()].into();
        let mut none = WaitRound::new(vec![7], Vec::new(), 1, SECOND, keys);
        sent(&mut none);
        let (verdict, _) = over(&mut none, vec![full(), Value::Int(0), Value::Int(1)]);
        let fault = verdict.unwrap_err();
        assert!(fault.class.is_unknown() && fault.what.contains("maxmemory"), "{}", fault.what);
    }

    #[test]
    fn a_user_who_may_not_read_is_noticed_and_waits_for_the_answer() {
        let mut round = round(Vec::new(), vec![rider(1)]);
        sent(&mut round);
        let refused = error("NOPERM this user has no permissions to run the 'get' command");
        let (verdict, covered) = over(&mut round, [vec![refused], written(1).into()].concat());
        assert!(verdict.is_ok() && covered.is_empty() && round.may_not_read());
    }

    #[test]
    fn when_replies_are_missing_only_what_was_read_counts_as_failed() {
        let mut round = round(vec![7], vec![rider(1), rider(2)]);
        sent(&mut round);
        assert_eq!(round.due(), Moment::START.after(2 * LONGEST));
        assert!(matches!(round.take(text("token-1")), NextRound::Wait));
        let late = round.late();
        assert_eq!(round.fail(late).1, [7, 1]);
    }
}
