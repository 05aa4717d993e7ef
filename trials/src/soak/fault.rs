/// A fault that was caused, and is over.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) description: String,
    pub(crate) effect: Effect,
    /// A process was killed.
    pub(crate) killed: bool,
    /// The only worker that it concerns, by the number that it was started with.
    pub(crate) worker: Option<u64>,
}

/// What a fault does to data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// They stay where they are.
    None,
    /// Another server has them, and nothing is lost.
    Moves,
    /// The last writes that a server answered may be unknown to the one that replaces it.
    Loses,
}

impl Fault {
    pub(crate) fn harmless(description: String) -> Self {
        Self { description, effect: Effect::None, killed: false, worker: None }
    }

    pub(crate) fn moving(description: String) -> Self {
        Self { description, effect: Effect::Moves, killed: false, worker: None }
    }

    pub(crate) fn losing(description: String) -> Self {
        Self { description, effect: Effect::Loses, killed: false, worker: None }
    }

    /// It concerns this worker alone.
    pub(crate) fn of(self, worker: u64) -> Self {
        Self { worker: Some(worker), ..self }
    }

    pub(crate) fn killing(self) -> Self {
        Self { killed: true, ..self }
    }
}
