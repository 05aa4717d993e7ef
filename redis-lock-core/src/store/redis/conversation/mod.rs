//! Commands and replies of one connection, without I/O.
//!
//! A command may take several rounds: a script that the server has forgotten is sent in full, a
//! plain delete that finds a mark is followed by the script, keys of several slots are asked for in
//! parts. The rounds of one command follow each other; commands that were sent after its first
//! round are answered before the other rounds.
//!
//! A node of a cluster may answer that another node has the key. Then nothing was executed, in
//! whatever round this happens, and the whole command is handed back.

mod bundle;
#[cfg(test)]
mod bundle_tests;
mod step;

pub(super) use step::{Step, notice_repair, read};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::address;
use super::decode::{self, is_demoted};
use super::encode::Context;
use super::line::{Send, lost_place};
use super::listen::Channel;
use super::nodes::Member;
use super::probe::{AtomicBy, Found};
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::status::ServerInfo;
use crate::store::groups::{self, ClusterMode, NextPart, Part, Split};
use crate::store::{Answer, Command, Pulled};
use bundle::Bundle;

const NO_SCRIPTS: &str = "the server does not let this user run scripts any more";

/// A command that was sent and has no reply yet.
struct Asked {
    seq: u64,
    command: Command,
    /// Which part of the command this is, if the command is asked in parts.
    group: Option<usize>,
    step: Step,
    /// Whether each round needs an `ASKING` before it.
    asking: bool,
}

/// What the next reply belongs to.
#[expect(clippy::large_enum_variant, reason = "almost all are of the large one")]
enum Expected {
    /// The reply to `ASKING`. It means nothing; the command that follows has its reply.
    Asking,
    One(Asked),
    Bundle(Bundle),
}

/// All commands of one connection that have no outcome yet.
pub(super) struct Conversation {
    found: Arc<Found>,
    cluster: Arc<ClusterMode>,
    channel: Channel,
    /// The node that this connection leads to, if there are several.
    member: Option<Member>,
    /// What was sent, in the order of the replies.
    asked: VecDeque<Expected>,
    /// Renewals that are sent before the next other command, or with the next flush, by the time that they
    /// ask for.
    bundles: BTreeMap<Duration, Bundle>,
    /// Whether the server has refused to execute several at once.
    no_bundles: bool,
    splits: BTreeMap<u64, Split>,
    done: VecDeque<Pulled>,
    broken: Option<Fault>,
}

impl Conversation {
    pub(super) fn new(
        found: Found,
        cluster: Arc<ClusterMode>,
        channel: Channel,
        member: Option<Member>,
    ) -> Self {
        cluster.found(found.cluster);
        Self {
            found: Arc::new(found),
            cluster,
            channel,
            member,
            asked: VecDeque::new(),
            bundles: BTreeMap::new(),
            no_bundles: false,
            splits: BTreeMap::new(),
            done: VecDeque::new(),
            broken: None,
        }
    }

    fn context(&self) -> Context<'_> {
        Context { delete: self.found.delete, channel: &self.channel }
    }

    /// Sends a command.
    pub(super) fn ask(&mut self, seq: u64, command: Command, send: Send<'_>) {
        let Some(command) = self.bundle(seq, command, send) else { return };
        self.send_bundles(send);
        if self.cluster.is_one() && groups::is_split(command.kind, &command.names) {
            self.split(seq, &command, send);
        } else {
            self.ask_part(seq, command, None, false, send);
        }
    }

    /// Sends a command whose slot is being moved to this node.
    pub(super) fn ask_asking(&mut self, seq: u64, command: Command, send: Send<'_>) {
        self.send_bundles(send);
        self.ask_part(seq, command, None, true, send);
    }

    /// Whether collected bundles have to be sent.
    pub(super) fn keeps_back(&self) -> bool {
        !self.bundles.is_empty()
    }

    fn ask_part(
        &mut self,
        seq: u64,
        command: Command,
        group: Option<usize>,
        asking: bool,
        send: Send<'_>,
    ) {
        let context = self.context();
        let Some((step, cmd)) = Step::first(&command, &context) else {
            let fault = Fault::new(FaultClass::Permanent, "the command has no form here");
            return self.answered(seq, group, Err(fault), true, send);
        };
        self.announce(asking, send);
        send.send(cmd);
        self.asked.push_back(Expected::One(Asked { seq, command, group, step, asking }));
    }

    /// Sends an `ASKING` if needed.
    fn announce(&mut self, asking: bool, send: Send<'_>) {
        if asking {
            send.send(redis::cmd("ASKING"));
            self.asked.push_back(Expected::Asking);
        }
    }

    fn split(&mut self, seq: u64, command: &Command, send: Send<'_>) {
        let (split, next) = Split::start(command, &self.cluster);
        self.splits.insert(seq, split);
        self.follow(seq, next, send);
    }

    fn follow(&mut self, seq: u64, next: NextPart, send: Send<'_>) {
        match next {
            NextPart::Ask(parts) => {
                for Part { group, command } in parts {
                    self.ask_part(seq, command, Some(group), false, send);
                }
            }
            NextPart::Done(answer) => self.finish(seq, answer),
        }
    }

    fn finish(&mut self, seq: u64, answer: Result<Answer, Fault>) {
        self.splits.remove(&seq);
        self.done.push_back(Pulled::Done(seq, answer));
    }

    /// Takes the next reply. `wants` says whether further rounds of a command are wanted.
    pub(super) fn take_reply(
        &mut self,
        value: Value,
        wants: &mut dyn FnMut(u64) -> bool,
        send: Send<'_>,
    ) {
        let Asked { seq, command, group, step, asking } = match self.asked.pop_front() {
            Some(Expected::One(asked)) => asked,
            Some(Expected::Asking) => return,
            Some(Expected::Bundle(bundle)) => {
                return self.take_bundle_reply(bundle, &value, wants, send);
            }
            None => return self.lose_place("the server answered more commands than were sent"),
        };
        if let (Some(member), None) = (&self.member, group)
            && member.has_neighbours()
            && let Some(redirect) = address::redirect(&value, &member.name)
        {
            let command = step.asked_elsewhere(command);
            return self.done.push_back(Pulled::Redirected(seq, command, redirect));
        }
        self.note_trouble(&value);
        if decode::denies_scripts(&value) {
            let fault = Fault::new(FaultClass::Refused, NO_SCRIPTS);
            return self.answered(seq, group, Err(fault), true, send);
        }
        if group.is_none()
            && decode::crosses_slots(&value)
            && groups::is_split(command.kind, &command.names)
        {
            // This shows that the server is in cluster mode, even if the user may not ask for that.
            self.cluster.found(true);
            return self.split(seq, &command, send);
        }
        let alone = group.is_none().then(|| Step::alone(&value, &command, asking)).flatten();
        match alone.map_or_else(|| read(&command, step, value, &self.context()), Err) {
            Ok(answer) => {
                if let Err(fault) = &answer
                    && fault.class.is_unknown()
                {
                    self.lose_place(&fault.what);
                }
                let wanted = wants(seq);
                self.answered(seq, group, answer, wanted, send);
            }
            // Without scripts, `transaction::wire` finds out the rest.
            Err(_) if self.found.atomic_by != AtomicBy::Scripts => {
                self.finish(seq, Ok(Answer::Gone { by: None, because: None }));
            }
            Err(step) if wants(seq) => {
                self.announce(asking, send);
                if let Some(cmd) = step.cmd(&command, &self.context()) {
                    send.send(cmd);
                }
                self.asked.push_back(Expected::One(Asked { seq, command, group, step, asking }));
            }
            // Its token is being released; another round would overtake the release.
            Err(_) => self.finish(seq, Err(Fault::unwanted())),
        }
    }

    /// Ends the connection when an answer says that it is useless: the server is a replica now, or
    /// denies scripts. Connecting again finds out what to do.
    fn note_trouble(&mut self, value: &Value) {
        let what = if is_demoted(value) {
            "the server has become a replica; name the primary"
        } else if decode::denies_scripts(value) {
            NO_SCRIPTS
        } else {
            return;
        };
        self.broken.get_or_insert_with(|| Fault::new(FaultClass::Unknown, what));
    }

    fn answered(
        &mut self,
        seq: u64,
        group: Option<usize>,
        answer: Result<Answer, Fault>,
        is_wanted: bool,
        send: Send<'_>,
    ) {
        let Some(group) = group else {
            let answer = answer.map(|answer| answer.with_server(|| self.info()));
            return self.finish(seq, answer);
        };
        let Some(split) = self.splits.get_mut(&seq) else { return };
        split.answered(group, answer);
        if let Some(next) = split.next() {
            match next {
                NextPart::Ask(_) if !is_wanted => self.finish(seq, Err(Fault::unwanted())),
                next => self.follow(seq, next, send),
            }
        }
    }

    /// The server and the nodes beside it, for users.
    fn info(&self) -> ServerInfo {
        let mut info = self.found.info();
        if let Some(member) = &self.member {
            member.describe(&mut info);
        }
        info
    }

    /// The next outcome that was found before.
    pub(super) fn next_answer(&mut self) -> Option<Pulled> {
        self.done.pop_front()
    }

    /// The next outcome. That the connection can't be used is reported last.
    pub(super) fn next_done(&mut self) -> Option<Pulled> {
        self.next_answer().or_else(|| self.broken.take().map(Pulled::Broken))
    }

    /// A reply can't belong to the command that was sent.
    fn lose_place(&mut self, what: &str) {
        self.end(lost_place(what));
    }

    /// The connection ended.
    pub(super) fn end(&mut self, fault: Fault) {
        self.broken.get_or_insert(fault);
    }
}

impl Drop for Conversation {
    /// The outcome of commands in several parts is unknown.
    fn drop(&mut self) {
        let fault = Fault::new(FaultClass::Unknown, "the connection ended");
        for (_, split) in std::mem::take(&mut self.splits) {
            let _ = split.broken(fault.clone());
        }
    }
}
