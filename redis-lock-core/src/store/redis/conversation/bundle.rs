//! Bundles: renewals of many locks, or looks of many waiters for one lock, in one script call.
//!
//! Most of what such a command costs the server is receiving it, so commands that are sent at the
//! same time are bundled. Each keeps its number and has an answer of its own. What the call could
//! not do in the simple way is sent again by itself, and so are all commands of a bundle that the
//! server refuses as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{ServerError, Value};

use super::{Conversation, Expected, Send, dropped};
use crate::domain::kind::Kind;
use crate::store::redis::decode;
use crate::store::redis::encode::Context;
use crate::store::redis::probe::AtomicBy;
use crate::store::redis::scripts::{Lua, RENEW_MANY, SHARED_STAY};
use crate::store::{Acquire, Answer, Blocker, Command, Verb};

/// The most bundles that are collected at once, because each command is compared with all of them.
const MOST_BUNDLES: usize = 16;

/// The most bytes of a bundle, for each of the commands that it may have.
const LONG: usize = 128;

/// Commands that are sent in one call.
#[derive(Debug)]
pub(super) struct Bundle {
    together: Together,
    length: usize,
    questions: Vec<(u64, Command)>,
}

impl Bundle {
    fn is_full(&self) -> bool {
        let most = self.together.most();
        self.questions.len() >= most || self.length >= most * LONG
    }

    fn concerns(&self, key: &str) -> bool {
        self.questions.iter().any(|(_, command)| command.names.main() == key)
    }
}

/// The bundles that are being collected.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    collected: Vec<Bundle>,
}

/// Which sorts of bundles this server refuses.
#[derive(Debug, Default)]
pub(super) struct Denied([bool; 2]);

impl Denied {
    fn has(&self, together: &Together) -> bool {
        self.0.get(together.sort()) == Some(&true)
    }

    fn add(&mut self, together: &Together) {
        if let Some(denied) = self.0.get_mut(together.sort()) {
            *denied = true;
        }
    }
}

impl Bundles {
    pub(super) fn is_empty(&self) -> bool {
        self.collected.is_empty()
    }

    /// Whether another bundle has to be sent before this command may be added to its own.
    fn has_before(&self, together: &Together, command: &Command) -> bool {
        let mut others = self.collected.iter().filter(|bundle| bundle.together != *together);
        others.any(|bundle| bundle.concerns(command.names.main()))
    }

    /// Adds a command. Returns a bundle that has to be sent before anything else is added.
    fn add(&mut self, together: Together, question: (u64, Command)) -> Option<Bundle> {
        let collected = &mut self.collected;
        let place = collected.iter().position(|it| it.together == together).unwrap_or_else(|| {
            collected.push(Bundle { together, length: 0, questions: Vec::new() });
            collected.len() - 1
        });
        let bundle = collected.get_mut(place)?;
        bundle.length += bundle.together.length_of(&question.1);
        bundle.questions.push(question);
        if !bundle.is_full() {
            return None;
        }
        Some(collected.swap_remove(place))
    }
}

impl Conversation {
    /// Collects a command that can be bundled, until [`send_bundles`](Self::send_bundles). Returns
    /// any other command.
    pub(super) fn bundle(&mut self, seq: u64, command: Command, send: Send<'_>) -> Option<Command> {
        let Some(together) = Together::of(&command) else { return Some(command) };
        if !self.can_bundle(&together) {
            return Some(command);
        }
        let is_full = self.bundles.collected.len() >= MOST_BUNDLES;
        if is_full || self.bundles.has_before(&together, &command) {
            self.send_bundles(send);
        }
        if let Some(full) = self.bundles.add(together, (seq, command)) {
            self.send_bundle(full, send);
        }
        None
    }

    /// In a cluster a script may not declare keys of several slots. Those of one lock are in one.
    fn can_bundle(&self, together: &Together) -> bool {
        let has_neighbours = || self.member.as_ref().is_some_and(|member| member.has_neighbours());
        let is_one_slot = matches!(together, Together::Looks { .. });
        !self.denied.has(together)
            && self.found.atomic_by == AtomicBy::Scripts
            && (is_one_slot || !has_neighbours() && !self.cluster.is_one())
    }

    /// Sends the collected bundles. To be called before anything else is sent, because that may be
    /// for one of their keys.
    pub(in crate::store::redis) fn send_bundles(&mut self, send: Send<'_>) {
        let mut collected = std::mem::take(&mut self.bundles.collected);
        for bundle in collected.drain(..) {
            self.send_bundle(bundle, send);
        }
        // The list is used again.
        self.bundles.collected = collected;
    }

    fn send_bundle(&mut self, mut bundle: Bundle, send: Send<'_>) {
        if bundle.questions.len() > 1 {
            return self.send_call(bundle, InFull(false), send);
        }
        if let Some((seq, command)) = bundle.questions.pop() {
            self.ask_part(seq, command, None, false, send);
        }
    }

    fn send_call(&mut self, bundle: Bundle, in_full: InFull, send: Send<'_>) {
        let Bundle { together, questions, .. } = &bundle;
        let script = together.script();
        let call = match in_full {
            InFull(false) => ("EVALSHA", &*script.hash),
            InFull(true) => ("EVAL", &*script.code),
        };
        together.send(call, questions, &self.context(), send);
        self.asked.push_back(Expected::Bundle(bundle, in_full));
    }

    /// The reply to a bundle.
    pub(super) fn take_bundle_reply(
        &mut self,
        bundle: Bundle,
        InFull(in_full): InFull,
        value: Value,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        self.note_trouble(&value);
        if decode::is_forgotten(&value) && !in_full {
            let bundle = self.still_wanted(bundle, wants);
            if !bundle.questions.is_empty() {
                self.send_call(bundle, InFull(true), send);
            }
            return;
        }
        let answers = match value {
            Value::ServerError(error) => return self.refused(bundle, &error, wants, send),
            value => bundle.together.read(&value, bundle.questions.len()),
        };
        let Some(answers) = answers else {
            return self.lose_place("the answer to many commands is none that a lock server gives");
        };
        for (place, (seq, command)) in bundle.questions.into_iter().enumerate() {
            match answers.of(place) {
                BundledAnswer::Answer(answer) => self.finish(seq, Ok(answer)),
                BundledAnswer::AskAlone => self.ask_alone(seq, command, wants, send),
            }
        }
    }

    /// The server has refused the bundle as a whole, which says nothing about the single commands.
    fn refused(
        &mut self,
        bundle: Bundle,
        error: &ServerError,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        match decode::code_of(error) {
            // The user or the server may lack a command that only the bundle needs.
            "NOPERM" | "ERR" => self.denied.add(&bundle.together),
            "CROSSSLOT" => self.cluster.found(true),
            _ => {}
        }
        let fault = decode::refusal(error);
        for (seq, command) in bundle.questions {
            if self.broken.is_some() {
                self.finish(seq, Err(fault.clone()));
            } else {
                self.ask_alone(seq, command, wants, send);
            }
        }
    }

    fn ask_alone(
        &mut self,
        seq: u64,
        command: Command,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        if wants(seq) {
            self.ask_part(seq, command, None, false, send);
        } else {
            self.finish(seq, Err(dropped()));
        }
    }

    /// Removes commands whose tokens are being released: another round would overtake the release.
    fn still_wanted(&mut self, mut bundle: Bundle, wants: &mut dyn FnMut(u64) -> bool) -> Bundle {
        let questions = std::mem::take(&mut bundle.questions);
        let (wanted, rest): (Vec<_>, Vec<_>) =
            questions.into_iter().partition(|(seq, _)| wants(*seq));
        for (seq, _) in rest {
            self.finish(seq, Err(dropped()));
        }
        Bundle { questions: wanted, ..bundle }
    }
}

/// Whether a bundle was sent with the full text of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFull(bool);

/// Commands with equal values can be bundled.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Together {
    /// Renewals of mutexes, whose leases are of the same length.
    Renewals(Duration),
    /// Looks of waiters for one lock that several can hold, whose places last equally long.
    Looks { main: Arc<str>, kind: Kind, place: Duration },
}

/// What the reply says of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BundledAnswer {
    Answer(Answer),
    AskAlone,
}

impl From<Answer> for BundledAnswer {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

type Questions = [(u64, Command)];

impl Together {
    /// `None` for a command that is sent by itself.
    pub(super) fn of(command: &Command) -> Option<Self> {
        match &command.verb {
            Verb::Renew { ttl: Some(ttl), .. } if command.kind == Kind::Mutex => {
                Some(Self::Renewals(*ttl))
            }
            Verb::Acquire(Acquire { stays: true, queue: Some(place), .. }) => {
                command.kind.traits().mode?;
                let (main, kind) = (command.names.shared_main(), command.kind);
                Some(Self::Looks { main, kind, place: *place })
            }
            _ => None,
        }
    }

    /// Its place among the sorts of bundles.
    pub(super) fn sort(&self) -> usize {
        match self {
            Self::Renewals(_) => 0,
            Self::Looks { .. } => 1,
        }
    }

    /// The most commands in a bundle. More renewals would save nothing, and delay other
    /// commands; a call for looks costs the server as much as a hundred of them, however many there are.
    pub(super) fn most(&self) -> usize {
        match self {
            Self::Renewals(_) => 64,
            Self::Looks { .. } => 256,
        }
    }

    /// The bytes that a command adds to its bundle.
    pub(super) fn length_of(&self, command: &Command) -> usize {
        let key = match self {
            Self::Renewals(_) => command.names.main().len(),
            Self::Looks { .. } => 0,
        };
        key + token(command).len()
    }

    pub(super) fn script(&self) -> &'static Lua {
        match self {
            Self::Renewals(_) => &RENEW_MANY,
            Self::Looks { .. } => &SHARED_STAY,
        }
    }

    /// Sends `name script` for these commands.
    pub(super) fn send(
        &self,
        (name, script): (&str, &str),
        questions: &Questions,
        context: &Context<'_>,
        out: Send<'_>,
    ) {
        let mut cmd = redis::cmd(name);
        cmd.arg(script);
        match self {
            Self::Renewals(ttl) => {
                cmd.arg(questions.len());
                for (_, command) in questions {
                    cmd.arg(command.names.main());
                }
                cmd.arg(millis(*ttl));
            }
            Self::Looks { kind, place, .. } => {
                cmd.arg(4);
                if let Some((_, Command { names, .. })) = questions.first() {
                    cmd.arg(names.main())
                        .arg(names.queue())
                        .arg(names.waiters())
                        .arg(names.limit());
                }
                cmd.arg(kind.traits().mode).arg(kind.limit().unwrap_or(0));
                cmd.arg(millis(*place)).arg(&*context.channel.name());
            }
        }
        for (_, command) in questions {
            cmd.arg(token(command));
        }
        out.send(cmd);
    }

    /// What the reply says of each of `count` commands; `None` when it is malformed.
    pub(super) fn read(&self, value: &Value, count: usize) -> Option<BundledAnswers> {
        use BundledAnswer::AskAlone;
        let Value::Array(items) = value else { return None };
        match self {
            Self::Renewals(_) => {
                let renewed = |waited_for| Answer::Renewed { longer: None, waited_for }.into();
                numbered(items, count, renewed(false), (AskAlone, renewed(true)))
            }
            Self::Looks { .. } if items.is_empty() => {
                Some(BundledAnswers { plain: AskAlone, odd: BTreeMap::new() })
            }
            Self::Looks { .. } => {
                let [Value::Int(left), holder, Value::Int(_), Value::Array(odd)] = items.as_slice()
                else {
                    return None;
                };
                let Value::BulkString(holder) = holder else { return None };
                let near = Blocker {
                    value: Some(String::from_utf8_lossy(holder).into_owned()),
                    ttl: Some(Duration::from_millis(u64::try_from(*left).ok()?)),
                    queued: true,
                    ..Blocker::unknown()
                };
                let far = Blocker { is_far: true, ..near.clone() };
                let (far, near) = (Answer::Busy(far).into(), Answer::Busy(near).into());
                numbered(odd, count, far, (AskAlone, near))
            }
        }
    }
}

/// What the reply says of each command of a bundle.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct BundledAnswers {
    plain: BundledAnswer,
    /// Of these commands it says something else.
    odd: BTreeMap<usize, BundledAnswer>,
}

impl BundledAnswers {
    /// What it says of the command at this place of the bundle.
    pub(super) fn of(&self, place: usize) -> BundledAnswer {
        self.odd.get(&place).unwrap_or(&self.plain).clone()
    }
}

/// The reply lists the commands that differ from `plain`: the number of one of which `odd.0` is true, or
/// its negative for `odd.1`.
fn numbered(
    items: &[Value],
    count: usize,
    plain: BundledAnswer,
    (positive, negative): (BundledAnswer, BundledAnswer),
) -> Option<BundledAnswers> {
    let mut odd = BTreeMap::new();
    for number in items {
        let Value::Int(number) = number else { return None };
        let place = usize::try_from(number.unsigned_abs()).ok()?.checked_sub(1)?;
        let answer = if *number > 0 { &positive } else { &negative };
        odd.insert(place, answer.clone());
    }
    let is_within = odd.last_key_value().is_none_or(|(last, _)| *last < count);
    is_within.then_some(BundledAnswers { plain, odd })
}

fn token(command: &Command) -> &str {
    command.verb.token().map_or("", |token| token)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
