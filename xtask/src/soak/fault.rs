/// A fault that was caused, and is over.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) description: String,
    pub(crate) effect: Effect,
    /// A process was killed.
    pub(crate) killed: bool,
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
        Self { description, effect: Effect::None, killed: false }
    }

    pub(crate) fn moving(description: String) -> Self {
        Self { description, effect: Effect::Moves, killed: false }
    }

    pub(crate) fn losing(description: String) -> Self {
        Self { description, effect: Effect::Loses, killed: false }
    }

    pub(crate) fn killing(self) -> Self {
        Self { killed: true, ..self }
    }
}
