//! Commands that belong to no machine, such as looks and scans.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::path::Results;
use super::places::Place;
use super::{Link, stopped};
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names::Names;
use crate::store::{Answer, Command, Verb};

/// The highest bits of a cursor contain the node that it belongs to. The other bits are enough for
/// any node's cursor.
const CURSOR_BITS: u32 = 48;

impl Link {
    /// Sends a command that belongs to no machine.
    pub(crate) async fn query(&self, command: Command) -> Result<Answer, Fault> {
        if let (Verb::Scan { cursor }, None) = (&command.verb, self.core.places.only()) {
            let cursor = *cursor;
            return self.scan(cursor, command).await;
        }
        let answer = self.core.query(command);
        self.start();
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// The same after the map has been read again, where there is one: keys that were on their way
    /// between two nodes may have arrived by then.
    pub(crate) async fn query_again(&self, command: Command) -> Result<Answer, Fault> {
        let Some(unrouted) = self.core.places.unrouted() else { return self.query(command).await };
        let answer = self.core.query_at(unrouted, command);
        self.core.waker.wake();
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Lists the keys of one node after the other, in the order in which this process first saw them. One
    /// that replaces another comes last, and is listed from its beginning: cursors are good at their
    /// own node only. So nothing is left out, and some keys may come twice.
    async fn scan(&self, cursor: u64, command: Command) -> Result<Answer, Fault> {
        if cursor == 0 {
            self.mapped().await?;
        }
        let (first, cursor) = (cursor >> CURSOR_BITS, cursor & ((1 << CURSOR_BITS) - 1));
        let primaries = self.core.places.primaries();
        let after =
            |id| primaries.iter().filter(move |place| place.id >= id).min_by_key(|it| it.id);
        let Some(place) = after(first) else {
            return Ok(Answer::Keys { keys: Vec::new(), next: None });
        };
        if place.id >> (u64::BITS - CURSOR_BITS) > 0 {
            let what = "so many nodes have come and gone that there are no cursors for this one";
            return Err(Fault::new(FaultClass::Unsupported, what));
        }
        let cursor = if place.id == first { cursor } else { 0 };
        let answer = self.core.query_at(place, Command { verb: Verb::Scan { cursor }, ..command });
        match answer.await.unwrap_or_else(|_| Err(stopped()))? {
            Answer::Keys { keys, next } => {
                let next = next.map(|next| (place.id, next));
                let next = next.or_else(|| Some((after(place.id + 1)?.id, 0)));
                Ok(Answer::Keys { keys, next: next.map(|(id, next)| next | id << CURSOR_BITS) })
            }
            answer => Ok(answer),
        }
    }

    /// Connects now, and waits until that succeeds or fails.
    pub(crate) async fn connect(&self) -> Result<(), Fault> {
        self.mapped().await?;
        let primaries = self.core.places.primaries();
        let asked: Vec<_> = primaries.iter().map(|place| self.when_ready(place)).collect();
        let mut first = Ok(());
        for answer in asked {
            first = first.and(answer.await.unwrap_or_else(|_| Err(stopped())));
        }
        first
    }

    /// Has each primary do the command, all at once. `names` gives the names of any number of locks, of
    /// which one belongs to each primary.
    pub(crate) async fn query_each(
        &self,
        names: impl Fn(u32) -> Names,
        command: impl Fn(Names) -> Command,
    ) -> Result<(), Fault> {
        /// More than enough for a key of each node, if there are some hundred.
        const MOST_NAMES: u32 = 16_384;
        if self.core.places.unrouted().is_some() && self.core.places.version() == 0 {
            self.query(command(names(0))).await?;
        }
        let primaries = self.core.places.primaries();
        let of = |place: &Arc<Place>| {
            let is_there = |names: &Names| self.core.places.of(names.main()).id == place.id;
            let names = (0..MOST_NAMES).map(&names).find(is_there)?;
            Some(self.core.query_at(place, command(names)))
        };
        let asked: Vec<_> = primaries.iter().filter_map(of).collect();
        self.start();
        for answer in asked {
            answer.await.unwrap_or_else(|_| Err(stopped()))?;
        }
        Ok(())
    }

    /// Waits until there is a map.
    async fn mapped(&self) -> Result<(), Fault> {
        let Some(unrouted) = self.core.places.unrouted() else { return Ok(()) };
        if self.core.places.version() > 0 {
            return Ok(());
        }
        self.when_ready(unrouted).await.unwrap_or_else(|_| Err(stopped()))
    }

    fn when_ready(&self, place: &Arc<Place>) -> oneshot::Receiver<Result<(), Fault>> {
        let (reply, answer) = oneshot::channel();
        let mut results = Results::default();
        place.path.traffic().when_ready(reply, &mut results);
        self.core.act(|work| self.core.take_in(&mut results, work));
        self.core.waker.wake();
        self.start();
        answer
    }
}
