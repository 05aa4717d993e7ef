//! A value that owns a lock, async or blocking, and can check whether it still holds it: `cargo run
//! --example owned_mutex`.

use redis_locks::{Guard, LockError, LockState, Locks};

/// Something that may exist only once in the whole cluster.
pub(crate) struct Leader {
    guard: Guard,
}

impl Leader {
    /// Waits until it is this process's turn.
    pub(crate) fn elect(locks: &Locks) -> Result<Self, LockError> {
        Ok(Self { guard: locks.mutex("example:leader").blocking_acquire()? })
    }

    /// `None` when there is a leader already.
    pub(crate) fn try_elect(locks: &Locks) -> Result<Option<Self>, LockError> {
        let guard = locks.mutex("example:leader").blocking_try_acquire()?;
        Ok(guard.map(|guard| Self { guard }))
    }

    /// What this process knows; sends no command.
    pub(crate) fn believes(&self) -> LockState {
        self.guard.state()
    }

    /// What the server says.
    pub(crate) fn is_leader(&self) -> Result<bool, LockError> {
        match self.guard.blocking_verify() {
            Ok(()) => Ok(true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("{}", demo(&locks)?.join("\n"));
    locks.blocking_shutdown();
    Ok(())
}

/// Says what happened.
pub(crate) fn demo(locks: &Locks) -> Result<Vec<String>, LockError> {
    let mut log = Vec::new();
    let leader = Leader::elect(locks)?;
    log.push(format!(
        "elected: {:?}, and the server agrees: {}",
        leader.believes(),
        leader.is_leader()?
    ));
    log.push(format!(
        "a second one: {}",
        if Leader::try_elect(locks)?.is_some() { "elected" } else { "no" }
    ));
    locks.blocking_force_release("example:leader", "it did not answer")?;
    log.push(format!("after a forced release the server says: {}", leader.is_leader()?));
    // A value that is dropped gives back what it still has.
    drop(Leader::elect(locks)?);
    let next = Leader::elect(locks)?;
    log.push(format!("the next: {:?}", next.believes()));
    Ok(log)
}
