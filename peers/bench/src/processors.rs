//! Which processors the client and the servers use.
//!
//! A round trip takes 40 to 50 us when both sides share a processor and 105 to 125 us when they have
//! one each, whichever library is measured, and the scheduler chooses anew in each run. In production
//! they are on different machines. So a work that measures single round trips gives the servers the
//! last processor, and the clients all others.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// While this lives, the servers and this thread, with all threads that it starts, have processors of
/// their own.
pub(crate) struct Apart {
    servers: Vec<Pid>,
    before: CpuSet,
}

impl Apart {
    /// `None` where there is only one processor.
    pub(crate) fn begin(servers: impl Iterator<Item = u32>) -> Result<Option<Self>> {
        let before = sched_getaffinity(None)?;
        let usable: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).collect();
        let Some((last, others)) = usable.split_last().filter(|(_, others)| !others.is_empty())
        else {
            return Ok(None);
        };
        let pid = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process");
        let servers = servers.map(pid).collect::<Result<Vec<_>>>()?;
        let apart = Self { servers, before };
        for server in &apart.servers {
            sched_setaffinity(Some(*server), &set_of(&[*last]))?;
        }
        sched_setaffinity(None, &set_of(others))?;
        Ok(Some(apart))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // A server may have ended meanwhile.
        for server in self.servers.iter().map(|server| Some(*server)).chain([None]) {
            let _ = sched_setaffinity(server, &self.before);
        }
    }
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}
