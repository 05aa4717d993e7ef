//! In which order a process asks for a lock and gives it back.

use super::World;
use super::nodes::Verdict;
use crate::domain::kind::Kind;
use crate::simulation::clock;
use crate::simulation::network::NetworkLink;
use crate::simulation::server::TokenNote;
use crate::store::{Command, Verb};

impl World {
    /// What is asked for a mutex is sent in the order in which it was asked: a client that asks
    /// anew has sent the release of what it had.
    pub(super) fn check_order(
        &mut self,
        (index, seq): (usize, u64),
        command: &Command,
        acquires: bool,
    ) {
        let NetworkLink { process, node, place, .. } = self.links[index];
        if let Verb::Release { token, .. } = &command.verb {
            self.server.note(token).leaving = Some(node);
        }
        // A further round was sent in its turn. Where the slot has come back since its release was
        // redirected, the release comes later: what is on its way can't be called back.
        let is_further_round = self.links[index].rounds.contains(&seq);
        if !acquires || command.kind != Kind::Mutex || is_further_round {
            return;
        }
        // A node that does not have the slot, or not the key any more, executes nothing.
        let asking = self.links[index].asking.contains(&seq);
        if self.plan.nodes.is_some()
            && !matches!(self.verdict(node, asking, command), Verdict::Executes)
        {
            return;
        }
        // Perhaps it was given up in this very step.
        self.check_given_up();
        let manager = &self.processes[process].core.manager;
        let asked = self.processes[process].core.asked_as(place, seq);
        let key = command.names.main();
        let now = clock::now();
        for stay in self.server.stays_since(key, now) {
            let token = crate::Token::from_wire(&stay.token);
            let is_own = token.manager() == Some(&**manager);
            let is_given = self.books.borrow().heritage.is_given(&stay.token);
            let core = &self.processes[process].core;
            let has_lapsed = core.table.tokens().contains(&stay.token)
                || self.may_leave_behind(&stay.token, asked)
                    && core.tokens().1.contains(&stay.token);
            let is_tried_again = core.has_failed_release(&stay.token);
            let is_same = command.verb.token() == Some(&stay.token) || is_given || has_lapsed;
            let lasts = self.server.lease_end(key, &stay.token).is_some_and(|end| end > now);
            // A release that is on its way to another node may come later.
            let is_leaving = |note: &TokenNote| note.is_released || note.leaving == Some(node);
            let is_mutex = self
                .server
                .tokens
                .get(&stay.token)
                .filter(|note| !is_leaving(note) && !note.stays_at(now))
                .is_some_and(|note| !note.is_excused && note.is_of_mutex);
            if is_own && !is_same && lasts && is_mutex && !is_tried_again {
                let what = format!("p{process} asked for {key} before it released what it had");
                return self.violated(what);
            }
        }
        if let Some(token) = command.verb.token() {
            self.server.note(token).is_of_mutex = true;
        }
    }

    /// Whether the release of a token may come behind the question of this number. A hold that has lapsed stays
    /// on the server for its margin, and its process asks as others do. When its guard is given up, its
    /// release comes behind what was asked before. Where there are several nodes, the tries to release a
    /// token have no order with what is asked meanwhile.
    fn may_leave_behind(&self, token: &str, asked: Option<u64>) -> bool {
        let note = self.server.tokens.get(token).filter(|note| note.given_up.is_some());
        let was_before = |asked| note.is_none_or(|note| asked < note.given_up_by);
        self.plan.nodes.is_some() || asked.is_some_and(was_before)
    }
}
