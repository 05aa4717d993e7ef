use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::history::History;
use super::kind::Kind;
use super::nemesis::Nemesis;
use super::scripting::Mix;
use super::store::Store;

/// What happened, and which of it is a failure.
pub(crate) struct Verdict<'a> {
    pub(crate) history: &'a History,
    pub(crate) nemesis: &'a Nemesis<'a>,
    pub(crate) scripting: Mix,
    /// There are no permits there, and no server that alone knows who holds.
    pub(crate) on_quorum: bool,
    /// What was found before.
    pub(crate) found: Vec<String>,
}

impl Verdict<'_> {
    /// Prints it; an error when something must not have happened.
    pub(crate) fn tell(mut self, store: &mut Store) -> Result<()> {
        self.tell_faults();
        self.tell_holds();
        self.tell_updates(store)?;
        if self.found.is_empty() {
            println!(
                "no two valid guards that exclude each other, every fence in order, nothing left \
                 behind"
            );
            return Ok(());
        }
        for violation in self.found.iter().take(20) {
            println!("VIOLATION {violation}");
        }
        bail!("{} violations", self.found.len())
    }

    fn tell_faults(&mut self) {
        let Nemesis { faults, killed, unasked, losses, .. } = self.nemesis;
        println!("\n{faults} faults, {killed} of them the killing of a server or a worker");
        if !losses.always {
            println!("{unasked} times servers replaced each other by themselves");
        }
        let findings = self.history.findings(losses);
        println!(
            "{} overlaps, and {} more after {}",
            findings.violations.len(),
            findings.explained,
            match losses.always {
                true => "losses of data".to_owned(),
                false => format!("{} possible losses of data", losses.count()),
            }
        );
        self.found.extend(findings.violations);
        self.found.extend(self.history.excesses(losses));
    }

    fn tell_holds(&mut self) {
        let history = self.history;
        println!("{} holds, {} found lost", history.total(), history.lost);
        let (by_fault, without) = history.excuses.explain();
        for (fault, count) in by_fault {
            println!("  {count:>6} leases lost: {fault}");
        }
        self.found.extend(without);
        for kind in Kind::NAMES {
            let holds = history.granted.get(kind).copied().unwrap_or_default();
            println!("  {kind:<7}{holds:>8}");
            let is_offered = self.scripting.has(kind) && !(self.on_quorum && kind == "permit");
            if holds == 0 && is_offered {
                self.found.push(format!("there was no {kind} hold at all"));
            }
        }
        println!("{} permits had a slot", history.slotted);
        for (sort, volatile) in [("durable", false), ("volatile", true)] {
            if let Some((gap, key)) = history.longest_gap(volatile) {
                println!("longest time without a grant: {gap:.1?}, of the {sort} key {key}");
            }
        }
        println!(
            "{} calls found the lock busy, {} the server broken",
            history.busy, history.failed
        );
        println!("{} looks at what a guard believes and the server says", history.compared);
        println!("{} managers were shut down under load", history.shut_down);
        self.found.extend(history.jobs.done_again());
        let seldom = [
            ("calls had the lease of the one before, which had lingered", history.again, true),
            ("holds were adopted", history.adopted, true),
            ("leases were extended", history.extended, true),
            ("times holds were ended by force, perhaps", history.forces.count() as u64, true),
            ("looks at the state of locks", history.looked, true),
            ("managers were drained", history.drained, true),
            ("calls were one too many for their queue", history.crowded, true),
            ("jobs were done once in their period", history.jobs.count(), !self.on_quorum),
            ("calls found their job done", history.jobs.found, !self.on_quorum),
            ("writers became readers", history.downgraded, self.scripting == Mix::Auto),
        ];
        for (what, count, is_expected) in seldom {
            println!("{count} {what}");
            if count == 0 && is_expected {
                self.found.push(format!("no {what}"));
            }
        }
        self.found.extend(history.late.iter().map(|took| format!("a call took {took} ms")));
        if history.compared == 0 && !self.on_quorum {
            self.found.push("no guard was ever compared with the server".into());
        }
    }

    fn tell_updates(&mut self, store: &mut Store) -> Result<()> {
        let History { fenced, plain, .. } = self.history;
        let count = |map: &BTreeMap<u64, u64>| map.values().sum::<u64>();
        let lost = store.lost_fenced(fenced)?;
        println!("fenced updates: {}, lost: {lost}", count(fenced));
        println!(
            "plain updates: {}, lost: {} (by paused workers and lost data, as is to be expected)",
            count(plain),
            store.lost_plain(plain)?
        );
        if lost > 0 {
            self.found.push(format!("{lost} fenced updates were lost"));
        }
        Ok(())
    }
}
