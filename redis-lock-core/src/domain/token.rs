//! Tokens: who holds a lock, and what may still be executed for it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::domain::env;
use crate::domain::label::{FINGERPRINT, QUEUE_FLAG, SHARE_FLAG, bare, harmless, shown};
use crate::{ConfigError, SecondCall};

/// The prefix of values that this library wrote.
const PREFIX: &str = "rl1.";

/// The prefix of values that have no ttl on purpose, so that `repair_orphan` leaves them alone.
const LASTING_PREFIX: &str = "rl1.n";

/// A leading zero before the time in a token says that its holder may be idle. It does not change
/// the number.
const IDLE_FLAG: &str = "0";

/// The most bytes of a token. A longer value was written by another program.
pub(crate) const MOST_TOKEN: usize = 400;

/// The most bytes of another program's value that are kept.
const MOST_FOREIGN: usize = 200;

/// The shortest lease: below it, renewals could not be answered in time on an ordinary network.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);

/// Twice the longest lease: no command about a token is under way for longer.
const MOST_UNSETTLED: Duration = Duration::from_secs(200 * 366 * 24 * 60 * 60);

/// The appended mark that tells a holder that a client waits (see `docs/PROTOCOL.md`).
pub(crate) const WAITERS_MARK: char = '+';

/// Names one acquisition: 128 random bits, when it was made, and the label of its holder.
///
/// Each acquisition gets a fresh token, which is never used again after its release. Its text is the value at the
/// lock's key. Guards that share a lease inside one process have the same text up to a `#`, and differ after it.
/// After a `?`, a token from [`detach`](crate::Guard::detach) also says which commands the server may still execute.
/// That part does not count when tokens are compared.
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// let locks = redis_locks::Locks::in_memory();
/// let first = locks.mutex("a").blocking_acquire()?;
/// let second = locks.mutex("b").blocking_acquire()?;
/// assert_ne!(first.token(), second.token());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Token {
    text: Arc<str>,
    turn: u32,
    /// Additional information; mostly there is none. It is no part of the name.
    unsettled: Option<Box<Unsettled>>,
}

impl Token {
    /// A token that was never used before.
    ///
    /// `manager` is where a message to the holder is published; `label` says who asks, for people
    /// who look at the server.
    pub(crate) fn fresh(manager: &str, label: &str) -> Self {
        Self::made(PREFIX, "", manager, label)
    }

    /// A fresh token whose value is meant to stand without a ttl.
    pub(crate) fn lasting(manager: &str, label: &str) -> Self {
        Self::made(LASTING_PREFIX, "", manager, label)
    }

    /// A fresh token whose holder may keep the lease while no body runs, so that a client that wants
    /// the lock has to ask for it.
    pub(crate) fn lingering(manager: &str, label: &str) -> Self {
        Self::made(PREFIX, IDLE_FLAG, manager, label)
    }

    /// A fresh token of a call that ends older ones. Its random digits are capitals, which are the same number.
    pub(crate) fn newest(manager: &str, label: &str) -> Self {
        let Self { text, turn, unsettled } = Self::fresh(manager, label);
        let id = text.get(PREFIX.len()..PREFIX.len() + 32).unwrap_or_default();
        let rest = text.get(PREFIX.len() + 32..).unwrap_or_default();
        // By chance there may be no letter.
        let id = match id.bytes().any(|digit| digit.is_ascii_alphabetic()) {
            true => id.to_ascii_uppercase(),
            false => ["A", id.get(1..).unwrap_or_default()].concat(),
        };
        Self { text: [PREFIX, &id, rest].concat().into(), turn, unsettled }
    }

    fn made(prefix: &str, flag: &str, manager: &str, label: &str) -> Self {
        let since = env::wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        // By hand, because with `write!` this was a twentieth of the work for a lock.
        let (mut id, mut digits) = (Uuid::encode_buffer(), [0; 16]);
        let id = env::unique().simple().encode_lower(&mut id);
        let since = hex(u64::try_from(since).unwrap_or(u64::MAX), &mut digits);
        let text = [prefix, id, ".", manager, ".", flag, since, ".", label].concat().into();
        Self { text, turn: 0, unsettled: None }
    }

    /// A fresh token with the same label, for a receiver that must not have this one.
    pub(crate) fn as_new(&self) -> Self {
        Self::fresh(self.manager().unwrap_or_default(), self.fields().map_or("", |it| bare(it.3)))
    }

    /// The token of a value read from the server, which another program may have written.
    pub(crate) fn from_wire(value: &str) -> Self {
        let ours = value.starts_with(PREFIX) && value.len() <= MOST_TOKEN;
        let text = if ours {
            value.strip_suffix(WAITERS_MARK).unwrap_or(value).into()
        } else if value.starts_with(PREFIX) {
            // It must not become one of ours by being cut.
            format!("…{}", cut(value, MOST_FOREIGN)).into()
        } else {
            cut(value, MOST_FOREIGN).into()
        };
        Self { text, turn: 0, unsettled: None }
    }

    /// The token of the next guard that is handed the same lease in this process.
    pub(crate) fn next_turn(&self) -> Self {
        Self { turn: self.turn.wrapping_add(1), ..self.whole() }
    }

    /// The token of the lease, whichever guard of the process held it.
    pub(crate) fn whole(&self) -> Self {
        Self { turn: 0, ..self.clone() }
    }

    /// The token for the adopter of the hold.
    pub(crate) fn given_away(&self, unsettled: Unsettled) -> Self {
        let unsettled = (!unsettled.is_settled()).then(|| Box::new(unsettled));
        Self { unsettled, ..self.whole() }
    }

    /// The same, to be adopted before this time.
    pub(crate) fn ending(mut self, end: Option<SystemTime>) -> Self {
        let unsettled = Unsettled { end, ..self.unsettled() };
        self.unsettled = (!unsettled.is_settled()).then(|| Box::new(unsettled));
        self
    }

    /// Whether it is too late to adopt it.
    pub(crate) fn is_over(&self) -> bool {
        self.unsettled().end.is_some_and(|end| end <= env::wall())
    }

    /// The commands about it that a server may still execute, as far as the process that gave it
    /// away knew.
    pub(crate) fn unsettled(&self) -> Unsettled {
        self.unsettled.as_deref().copied().unwrap_or_default()
    }

    /// The text at the lock's key.
    pub(crate) fn wire(&self) -> &Arc<str> {
        &self.text
    }

    /// The label of its holder, if this library made it.
    pub(crate) fn label(&self) -> Option<String> {
        let label = self.fields()?.3;
        (!bare(label).is_empty()).then(|| harmless(shown(label), MOST_TOKEN))
    }

    /// The fingerprint of what its call was given.
    pub(crate) fn same(&self) -> Option<u128> {
        let (_, digits) = self.fields()?.3.split_once(FINGERPRINT)?;
        u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32)
    }

    /// Whether its holder shares its value with calls that wait.
    pub(crate) fn shares(&self) -> bool {
        self.fields().is_some_and(|fields| fields.3.contains(SHARE_FLAG))
    }

    /// What its call asked for, as far as tokens tell.
    pub(crate) fn second_call(&self) -> SecondCall {
        let most = || {
            let (_, rest) = self.fields()?.3.split_once(QUEUE_FLAG)?;
            rest.split('%').next()?.parse().ok()
        };
        SecondCall::of(most(), self.is_newest(), self.shares())
    }

    /// When it was made, by the clock of the machine that made it.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        let millis = u64::from_str_radix(self.fields()?.2, 16).ok()?;
        UNIX_EPOCH.checked_add(Duration::from_millis(millis))
    }

    /// Whether this library made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.text.starts_with(PREFIX)
    }

    /// Whether its value is meant to stand without a ttl.
    pub(crate) fn is_lasting(&self) -> bool {
        self.text.starts_with(LASTING_PREFIX)
    }

    /// Whether its holder may keep the lease while no body runs.
    pub(crate) fn may_be_idle(&self) -> bool {
        !self.is_lasting() && self.fields().is_some_and(|fields| fields.2.starts_with(IDLE_FLAG))
    }

    /// Whether its call ends older ones, and is ended by newer ones.
    pub(crate) fn is_newest(&self) -> bool {
        let is_flagged = |id: &str| id.bytes().any(|digit| digit.is_ascii_uppercase());
        self.fields().is_some_and(|fields| is_flagged(fields.0))
    }

    /// The manager that made it.
    pub(crate) fn manager(&self) -> Option<&str> {
        Some(self.fields()?.1)
    }

    /// Whether its manager has a name as managers have, so that a message may be sent there.
    pub(crate) fn has_channel(&self) -> bool {
        let is_name =
            |name: &str| name.len() == 12 && name.bytes().all(|it| it.is_ascii_hexdigit());
        self.manager().is_some_and(is_name)
    }

    fn fields(&self) -> Option<(&str, &str, &str, &str)> {
        let mut parts = self.text.strip_prefix(PREFIX)?.splitn(4, '.');
        Some((parts.next()?, parts.next()?, parts.next()?, parts.next()?))
    }
}

/// At most this many bytes of a text, in whole characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// The hexadecimal digits of a number.
fn hex(mut number: u64, digits: &mut [u8; 16]) -> &str {
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number % 16) as usize];
        (number, start) = (number / 16, start - 1);
        if number == 0 {
            break;
        }
    }
    digits.get(start..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default()
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless(&self.text, MOST_TOKEN))?;
        let unsettled = self.unsettled();
        match (self.turn, unsettled.is_settled()) {
            (0, true) => Ok(()),
            (turn, true) => write!(f, "#{turn}"),
            (turn, false) => write!(f, "#{turn}?{unsettled}"),
        }
    }
}

impl FromStr for Token {
    type Err = ConfigError;

    /// Reads what `Display` wrote.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::read(text)
            .ok_or_else(|| ConfigError::BadToken { text: text.chars().take(80).collect() })
    }
}

impl Token {
    fn read(text: &str) -> Option<Self> {
        let (wire, rest) = text.rsplit_once('#').unwrap_or((text, "0"));
        let (turn, unsettled) = match rest.split_once('?') {
            Some((turn, unsettled)) => (turn, Unsettled::read(unsettled)?),
            None => (rest, Unsettled::default()),
        };
        let token =
            Self { turn: turn.parse().ok()?, ..Self::from_wire(wire).given_away(unsettled) };
        // None of ours has a mark within, or a character that is not shown as it is.
        let is_ours = token.fields().is_some()
            && !token.text.contains([WAITERS_MARK, '#'])
            && harmless(&token.text, MOST_TOKEN) == *token.text;
        is_ours.then_some(token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.turn) == (&other.text, other.turn)
    }
}

impl Eq for Token {}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.text, self.turn).hash(state);
    }
}

impl PartialEq<&Self> for Token {
    fn eq(&self, other: &&Self) -> bool {
        self == *other
    }
}

/// What a server may still execute of the commands about a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unsettled {
    /// For how long an acquisition of unknown outcome may still be executed. Until then one release
    /// is not enough.
    pub(crate) doubt: Duration,
    /// A cut to this lease may still be executed, so that no answer is trusted for longer.
    pub(crate) at_most: Option<Duration>,
    /// On a quorum, when the lease of the hold ends, by the clock of the machine that gave it away. What is
    /// on a majority of nodes after that may have come there late, when others had the lock in between.
    pub(crate) end: Option<SystemTime>,
}

impl Unsettled {
    /// Whether nothing is left to be executed.
    pub(crate) fn is_settled(self) -> bool {
        self == Self::default()
    }

    /// Reads what `Display` wrote.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        let bounded = |text: &str| millis(text).filter(|time| *time <= MOST_UNSETTLED);
        let (text, end) = match text.split_once('@') {
            Some((text, end)) => (text, Some(UNIX_EPOCH.checked_add(millis(end)?)?)),
            None => (text, None),
        };
        let (doubt, at_most) = match text.split_once('/') {
            Some((doubt, at_most)) => {
                (doubt, Some(bounded(at_most).filter(|lease| *lease >= MIN_TTL)?))
            }
            None => (text, None),
        };
        Some(Self { doubt: bounded(doubt)?, at_most, end })
    }
}

/// Whole milliseconds: the doubt, rounded up, after a slash the lease of the cut, and after an `@` when the
/// lease ends.
impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.doubt.as_nanos().div_ceil(1_000_000))?;
        if let Some(at_most) = self.at_most {
            write!(f, "/{}", at_most.as_millis())?;
        }
        let end = self.end.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        end.map_or(Ok(()), |end| write!(f, "@{}", end.as_millis()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_token_carries_label_and_time_through_the_wire() {
        let token = Token::fresh("m1", "host/17 job.v2");
        let read = Token::from_wire(&format!("{}{WAITERS_MARK}", token.wire()));
        assert_eq!(read, token);
        assert_eq!(read.label().as_deref(), Some("host/17 job.v2"));
        assert_eq!(read.manager(), Some("m1"));
        assert!(!read.is_lasting() && Token::lasting("m1", "x").is_lasting());
        let age = SystemTime::now().duration_since(read.since().unwrap()).unwrap();
        assert!(age.as_secs() < 5);
    }

    #[test]
    fn a_token_says_whether_its_holder_may_be_idle() {
        let token = Token::lingering("m1", "host");
        assert!(token.may_be_idle() && !Token::fresh("m1", "host").may_be_idle());
        assert!(!Token::lasting("m1", "host").may_be_idle());
        assert!(token.since().unwrap().elapsed().unwrap().as_secs() < 5, "the number is the same");
        assert_eq!((token.manager(), token.label()), (Some("m1"), Some("host".into())));
    }

    #[test]
    fn a_token_is_read_from_its_text() {
        for token in [Token::fresh("m1", "host/17 job"), Token::lasting("m1", "").next_turn()] {
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for text in [
            "",
            "abc",
            "rl1.a.b",
            "rl1.a.b.c.d#x",
            "rl1.a.b.c.d\n",
            "rl1.a.b.c.\u{202e}",
            "rl1.a.b.c.d++",
            "rl1.a.b.c.d#1#0",
            "rl1.a.b.c.d#0?",
            "rl1.a.b.c.d#0?1/",
            "rl1.a.b.c.d#0?1@",
            "rl1.a.b.c.d#0?1@99999999999999999999",
            "rl1.a.b.c.d#0?18446744073709551615",
            "rl1.a.b.c.d#0?7000000000000",
            "rl1.a.b.c.d#0?0/0",
            "rl1.a.b.c.d#0?0/99",
            "rl1.a.b.c.d#0?0/7000000000000",
        ] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_that_is_given_away_tells_what_is_not_settled() {
        let token = Token::fresh("m1", "host/17 what? job/3").next_turn();
        for (doubt, at_most) in [(35, None), (0, Some(30)), (35, Some(30)), (0, None)] {
            let seconds = Duration::from_secs;
            let end = (doubt > 0).then(|| UNIX_EPOCH + seconds(1_800_000_000));
            let unsettled = Unsettled { doubt: seconds(doubt), at_most: at_most.map(seconds), end };
            let given = token.given_away(unsettled);
            let read: Token = given.to_string().parse().unwrap();
            assert_eq!((read.unsettled(), read.label()), (unsettled, token.label()));
            assert_eq!(
                (&read, read.wire()),
                (&token.whole(), token.wire()),
                "it is the same token"
            );
            assert_eq!(
                read.unsettled().is_settled(),
                read.to_string() == *token.wire().to_string()
            );
        }
    }

    #[test]
    fn what_others_wrote_is_cut_and_escaped_where_it_is_shown() {
        let forged = Token::from_wire("rl1.a.m.0.x\x1b[2J\nlock `k` is free\u{202e}");
        for shown in [forged.to_string(), format!("{forged:?}"), forged.label().unwrap()] {
            assert!(
                shown.contains("\\u{1b}[2J\\u{a}lock") && shown.contains("\\u{202e}"),
                "{shown}"
            );
        }
        let long = Token::from_wire(&format!("rl1.a.m.0.{}", "ü".repeat(100_000)));
        assert!(!long.is_ours() && long.wire().len() <= MOST_FOREIGN + 3);
    }

    #[test]
    fn a_foreign_value_is_kept_as_it_is() {
        let token = Token::from_wire("abc+");
        assert_eq!(token.to_string(), "abc+");
        assert_eq!((token.label(), token.since()), (None, None));
    }

    #[test]
    fn turns_differ_and_share_the_wire_text() {
        let first = Token::fresh("m1", "");
        let second = first.next_turn();
        assert_ne!(first, second);
        assert_eq!(first.wire(), second.wire());
        assert_eq!(second.to_string(), format!("{first}#1"));
        assert_eq!(first.label(), None);
    }
}
