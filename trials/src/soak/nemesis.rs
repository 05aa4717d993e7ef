use std::thread;
use std::time::Instant;

use super::clock::now;
use super::fault::Effect;
use super::losses::Losses;
use super::place::Place;
use super::random::Random;
use super::workers::Workers;

/// Causes random faults of servers, network and workers.
pub(crate) struct Nemesis<'a> {
    place: &'a dyn Place,
    random: Random,
    /// How many faults it has caused.
    pub(crate) faults: u64,
    /// How many servers and workers it has killed.
    pub(crate) killed: u64,
    /// How often servers were replaced that it had not meant to be.
    pub(crate) unasked: u64,
    pub(crate) losses: Losses,
    /// Who had the data at the last look, and when that was.
    owners: Vec<String>,
    looked: u64,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(place: &'a dyn Place, seed: u64) -> Self {
        let losses = Losses::new(place.loses_always());
        let (owners, random) = (place.owners(), Random::new(seed));
        Self { place, random, faults: 0, killed: 0, unasked: 0, losses, owners, looked: now() }
    }

    /// Causes one fault, and returns its description. The fault is over when this returns.
    fn strike(&mut self, workers: &mut Workers) -> String {
        let begun = now();
        let fault = self.place.strike(&mut self.random, workers);
        workers.excuse(&fault, begun, now());
        self.faults += 1;
        self.killed += u64::from(fault.killed);
        match fault.effect {
            Effect::Loses => self.losses.add(begun, now()),
            Effect::Moves => self.owners = self.place.owners(),
            Effect::None => {}
        }
        self.look(fault.effect);
        fault.description
    }

    /// Looks once more when all is over: a server may have been replaced after the last fault.
    pub(crate) fn settle(&mut self) {
        self.look(Effect::None);
    }

    /// On a slow machine servers replace each other by themselves.
    fn look(&mut self, effect: Effect) {
        let owners = self.place.owners();
        let is_unasked = owners != self.owners && effect != Effect::Loses;
        if is_unasked {
            self.unasked += 1;
            self.losses.add(self.looked, now());
        }
        (self.owners, self.looked) = (owners, now());
    }

    /// Causes faults until the time is over, with short pauses in between. Returns the last of them.
    pub(crate) fn rage(&mut self, until: Instant, workers: &mut Workers) -> String {
        let mut last = String::new();
        while Instant::now() < until {
            last = self.strike(workers);
            thread::sleep(self.random.millis(50..700));
        }
        last
    }
}
