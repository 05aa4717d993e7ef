//! The server's scripts for a mutex, as plain code.

use std::collections::HashMap;
use std::time::Duration;

use super::Planted;
use crate::clock::Moment;
use crate::store::{Answer, Command, Rival, Verb};

const CLAIM: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Server {
    planted: Planted,
    lock: Option<(String, Moment)>,
    queue: Vec<String>,
    places: HashMap<String, Place>,
    tombs: HashMap<String, Moment>,
    fence: u64,
    fenced: Option<String>,
    /// Whom a grant was published to in the last command, and the token.
    pub(super) published: Option<(usize, String)>,
}

#[derive(Debug)]
struct Place {
    end: Moment,
    /// The client that listens; none looks by itself.
    listener: Option<usize>,
}

impl Server {
    pub(super) fn new(planted: Planted) -> Self {
        Self {
            planted,
            lock: None,
            queue: Vec::new(),
            places: HashMap::new(),
            tombs: HashMap::new(),
            fence: 0,
            fenced: None,
            published: None,
        }
    }

    pub(super) fn holder(&self, now: Moment) -> Option<&str> {
        self.lock.as_ref().filter(|(_, end)| *end > now).map(|(token, _)| token.as_str())
    }

    /// What is left at `now` that somebody would have to wait for.
    pub(super) fn leftover(&self, now: Moment) -> Option<String> {
        self.holder(now).map(|token| format!("{token} until {:?}", self.lock))
    }

    /// Executes a command that came from `listener`, if it listens; `heard` says which clients do.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        listener: Option<usize>,
        heard: &dyn Fn(usize) -> bool,
        now: Moment,
    ) -> Answer {
        self.published = None;
        self.lock.take_if(|(_, end)| *end <= now);
        self.tombs.retain(|_, end| *end > now);
        match &command.verb {
            Verb::Take { token, ttl } => match &self.lock {
                Some(_) => Answer::Busy(rival(None, None, false)),
                None => {
                    self.lock = Some((token.to_string(), end(now, *ttl)));
                    Answer::Held { fence: None }
                }
            },
            Verb::Acquire { token, ttl, queue, fair, fences, .. } => {
                if self.tombs.contains_key(&**token) {
                    return Answer::Buried;
                }
                if self.holder(now) != Some(token) {
                    if self.lock.is_none() && *fair {
                        self.grant(Some(token), heard, now);
                    }
                    if let Some((holder, until)) = self.lock.clone() {
                        if let Some(place) = queue {
                            self.enqueue(token, *place, listener, now);
                        }
                        let left = (until != Moment::NEVER).then(|| until.since(now));
                        return Answer::Busy(rival(Some(holder), left, queue.is_some()));
                    }
                }
                self.leave(token);
                let end = end(now, *ttl);
                let standing = self.lock.take().map_or(end, |(_, standing)| standing);
                self.lock = Some((token.to_string(), end.max(standing)));
                Answer::Held { fence: self.number(token, *fences, false, now) }
            }
            Verb::Renew { token, ttl } => self.if_ours(token, |server| {
                let end = end(now, *ttl);
                let end = server.lock.as_ref().map_or(end, |(_, standing)| end.max(*standing));
                server.lock = Some((token.to_string(), end));
                Answer::Renewed { longer: None, waited_for: false }
            }),
            Verb::Keep { token, time } => self.if_ours(token, |server| {
                server.lock = Some((token.to_string(), now.after(*time)));
                Answer::Done
            }),
            Verb::Check { token } | Verb::Downgrade { token } => {
                self.if_ours(token, |_| Answer::Done)
            }
            Verb::Yield { token, next, ttl, fences, queue } => self.if_ours(token, |server| {
                if !server.queue.is_empty() {
                    server.enqueue(next, *queue, listener, now);
                    if server.grant(Some(next), heard, now) {
                        return Answer::HandedOver;
                    }
                    server.leave(next);
                }
                server.lock = Some((token.to_string(), end(now, *ttl)));
                Answer::Held { fence: server.number(token, *fences, true, now) }
            }),
            // Nobody looks on in a simulation.
            Verb::Look
            | Verb::Force { .. }
            | Verb::Scan { .. }
            | Verb::Raise { .. }
            | Verb::Why { .. } => Answer::Done,
            Verb::Release { token, keep, bury, .. } => {
                if let Some(bury) = bury {
                    self.tombs.insert(token.to_string(), now.after(*bury));
                }
                let anybodys = self.planted == Planted::ReleasesAnybodys && self.lock.is_some();
                if !anybodys && self.holder(now) != Some(token) {
                    self.leave(token);
                }
                let release = |server: &mut Self| {
                    if let Some(keep) = keep {
                        server.lock = Some((token.to_string(), now.after(*keep)));
                    } else if !server.grant(None, heard, now) {
                        server.lock = None;
                    }
                    Answer::Done
                };
                if anybodys { release(self) } else { self.if_ours(token, release) }
            }
        }
    }

    fn if_ours(&mut self, token: &str, then: impl FnOnce(&mut Self) -> Answer) -> Answer {
        match &self.lock {
            Some((holder, _)) if holder == token => then(self),
            Some((holder, _)) => Answer::Gone { by: Some(holder.clone()), because: None },
            None => Answer::Gone { by: None, because: None },
        }
    }

    fn enqueue(&mut self, token: &str, place: Duration, listener: Option<usize>, now: Moment) {
        if self.planted == Planted::QueuesTwice || !self.queue.iter().any(|other| other == token) {
            self.queue.push(token.to_owned());
        }
        self.places.insert(token.to_owned(), Place { end: now.after(place), listener });
    }

    fn leave(&mut self, token: &str) {
        if let Some(index) = self.queue.iter().position(|other| other == token) {
            self.queue.remove(index);
        }
        if !self.queue.iter().any(|other| other == token) {
            self.places.remove(token);
        }
    }

    /// Gives the lock to the first who lives, unless `me` comes first. Returns whether it did.
    fn grant(&mut self, me: Option<&str>, heard: &dyn Fn(usize) -> bool, now: Moment) -> bool {
        while let Some(head) = self.queue.first().cloned() {
            if Some(head.as_str()) == me {
                break;
            }
            self.queue.remove(0);
            let place = if self.queue.contains(&head) { self.places.get(&head) } else { None };
            let (end, listener) = match place {
                Some(place) => (place.end, place.listener),
                None => match self.places.remove(&head) {
                    Some(place) => (place.end, place.listener),
                    None => continue,
                },
            };
            if end <= now {
                continue;
            }
            let claim =
                if self.planted == Planted::NoClaimTtl { Moment::NEVER } else { now.after(CLAIM) };
            match listener {
                Some(listener) if !heard(listener) => {}
                listener => {
                    self.lock = Some((head.clone(), claim));
                    self.published = listener.map(|listener| (listener, head));
                    return true;
                }
            }
        }
        false
    }

    fn number(&mut self, token: &str, count: u32, anew: bool, now: Moment) -> Option<u64> {
        if count == 0 {
            return None;
        }
        if anew || self.fenced.as_deref() != Some(token) {
            let clock = u64::try_from(now.since(Moment::START).as_micros()).unwrap_or(0);
            self.fence = clock.max(self.fence + 1) + u64::from(count - 1);
            self.fenced = Some(token.to_owned());
        }
        Some(self.fence)
    }
}

fn end(now: Moment, ttl: Option<Duration>) -> Moment {
    ttl.map_or(Moment::NEVER, |ttl| now.after(ttl))
}

fn rival(value: Option<String>, ttl: Option<Duration>, queued: bool) -> Rival {
    Rival { value, ttl, queued, repaired: false }
}
