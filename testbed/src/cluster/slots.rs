use std::ops::RangeInclusive;

use redis::{RedisResult, Value};

use super::{Cluster, READY, Topology};
use crate::node::{Node, until_well};
use crate::server::ADMIN;

/// A slot on its way from one primary to another, in the classic manner: key by key.
///
/// Dropped without [`finish`](Self::finish) or [`abandon`](Self::abandon) it stays half moved, as
/// after a crash of whoever moved it.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a Node,
    to: &'a Node,
}

impl Cluster {
    /// Begins to move a slot: the target imports it, its owner sends away those whose keys have gone.
    #[track_caller]
    pub fn begin_move<'a>(&'a self, slot: u16, to: &'a Node) -> SlotMove<'a> {
        let from = self.owner(slot);
        assert_ne!(from.id(), to.id(), "slot {slot} is there already");
        set_slot(to, slot, &format!("IMPORTING {}", from.id()));
        set_slot(from, slot, &format!("MIGRATING {}", to.id()));
        SlotMove { cluster: self, slot, from, to }
    }

    /// Moves slots with all their keys in the classic manner, one after the other.
    #[track_caller]
    pub fn move_slots(&self, slots: RangeInclusive<u16>, to: &Node) {
        for slot in slots {
            self.begin_move(slot, to).finish();
        }
    }

    /// Moves slots of one owner in one step, as Valkey 9 can; `false` where the server cannot.
    #[track_caller]
    pub fn move_slots_atomically(&self, slots: RangeInclusive<u16>, to: &Node) -> bool {
        let (first, last) = slots.into_inner();
        let from = self.owner(first);
        let mut command = redis::cmd("CLUSTER");
        command.arg("MIGRATESLOTS").arg("SLOTSRANGE").arg(first).arg(last);
        command.arg("NODE").arg(to.id());
        let begun: RedisResult<Value> = from.server().query(&command);
        match begun {
            Ok(_) => {}
            Err(error) if error.to_string().to_lowercase().contains("unknown subcommand") => {
                return false;
            }
            Err(error) => panic!("slots {first} to {last} cannot be moved: {error}"),
        }
        until_well(READY, || {
            let moved = self.owner(first).id() == to.id() && self.owner(last).id() == to.id();
            (!moved).then(|| format!("slots {first} to {last} are not at {}", to.id()))
        });
        self.until_ok();
        true
    }
}

impl SlotMove<'_> {
    /// The keys that have not been moved yet, at most 100.
    pub fn keys_left(&self) -> Vec<String> {
        self.from.server().run(&format!("CLUSTER GETKEYSINSLOT {} 100", self.slot))
    }

    /// Moves one key. A node that has lost its connection to the others refuses that for a while. One that
    /// has lost the slot to its replica has nothing to move.
    #[track_caller]
    pub fn move_key(&self, key: &str) {
        let port = self.to.inner_port();
        let mut migrate = redis::cmd("MIGRATE");
        // Replaces what a move before left there that was not confirmed to its source.
        migrate
            .arg(self.to.server().host().address().to_string())
            .arg(port)
            .arg("")
            .arg(0)
            .arg(5000)
            .arg("REPLACE");
        migrate.arg("AUTH2").arg(ADMIN).arg(ADMIN).arg("KEYS").arg(key);
        until_well(READY, || {
            let moved: RedisResult<Value> = self.from.server().query(&migrate);
            let failed = moved.err().filter(|error| error.code() != Some("MOVED"));
            failed.map(|error| format!("{key} cannot be moved: {error}"))
        });
    }

    /// Moves what is left, and has all nodes know the new owner.
    #[track_caller]
    pub fn finish(mut self) {
        let (cluster, slot) = (self.cluster, self.slot);
        let owner = format!("NODE {}", self.to.id());
        until_well(READY, || {
            self.follow();
            let keys = self.keys_left();
            keys.iter().for_each(|key| self.move_key(key));
            if !keys.is_empty() {
                return Some(format!("slot {slot} has keys yet: {keys:?}"));
            }
            // The target first: should the source forget the slot first, no node would have it. The
            // source refuses while it has keys, which may have come between.
            set_slot(self.to, slot, &owner);
            let set = self.from.accepts(&format!("CLUSTER SETSLOT {slot} {owner}"));
            (!set).then(|| format!("{} does not give slot {slot} away", self.from.id()))
        });
        for primary in cluster.primaries() {
            set_slot(primary, slot, &owner);
        }
        until_well(READY, || {
            let behind =
                cluster.live().find(|node| Topology::of(node).owner(slot) != Some(self.to.id()));
            behind.map(|node| format!("{} has not heard of slot {slot}", node.id()))
        });
        cluster.until_one_epoch();
    }

    /// A replica that has taken the place of the slot's owner does not know that it is being moved.
    fn follow(&mut self) {
        let topology = self.cluster.topology();
        let owner = topology.owner(self.slot).map(|id| self.cluster.node(id));
        let others = [self.from.id(), self.to.id()];
        if let Some(owner) = owner.filter(|owner| !others.contains(&owner.id())) {
            set_slot(self.to, self.slot, &format!("IMPORTING {}", owner.id()));
            set_slot(owner, self.slot, &format!("MIGRATING {}", self.to.id()));
            self.from = owner;
        }
    }

    /// Leaves the slot where it was, with all its keys.
    ///
    /// There and back, because each key must be found at every moment: its owner does not have it
    /// any more, and would say that it is absent, or create it anew.
    #[track_caller]
    pub fn abandon(self) {
        let (cluster, slot, from) = (self.cluster, self.slot, self.from);
        self.finish();
        cluster.begin_move(slot, from).finish();
    }
}

/// Asks until it is done: a node that has lost its connection to the others refuses it for a while.
#[track_caller]
fn set_slot(node: &Node, slot: u16, state: &str) {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SETSLOT").arg(slot);
    for word in state.split(' ') {
        command.arg(word);
    }
    until_well(READY, || {
        let set: RedisResult<Value> = node.server().query(&command);
        set.err().map(|error| format!("slot {slot} is not {state} at {}: {error}", node.id()))
    });
}
