//! What is not settled about a hold that is given away. Its token carries it to the adopter.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// What a server may still execute of the commands about a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unsettled {
    /// For how long an acquisition of unknown outcome may still be executed, so that one release is
    /// not enough.
    pub(crate) doubt: Duration,
    /// A cut to this lease may still be executed, so that no answer is trusted for longer.
    pub(crate) at_most: Option<Duration>,
}

impl Unsettled {
    /// Whether nothing is left to be executed.
    pub(crate) fn is_settled(self) -> bool {
        self == Self::default()
    }

    /// Reads what `Display` wrote.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        let (doubt, at_most) = match text.split_once('/') {
            Some((doubt, at_most)) => (doubt, Some(millis(at_most)?)),
            None => (text, None),
        };
        Some(Self { doubt: millis(doubt)?, at_most })
    }
}

/// Whole milliseconds: the doubt, rounded up, and after a slash the lease of the cut.
impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.doubt.as_nanos().div_ceil(1_000_000))?;
        match self.at_most {
            Some(at_most) => write!(f, "/{}", at_most.as_millis()),
            None => Ok(()),
        }
    }
}

/// The additional information in a token; mostly there is none. It is no part of the name: tokens
/// that differ in nothing else are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside(Option<Box<Unsettled>>);

impl From<Unsettled> for Aside {
    fn from(unsettled: Unsettled) -> Self {
        Self((!unsettled.is_settled()).then(|| Box::new(unsettled)))
    }
}

impl Aside {
    pub(crate) fn get(&self) -> Unsettled {
        self.0.as_deref().copied().unwrap_or_default()
    }
}

impl PartialEq for Aside {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Aside {}

impl Hash for Aside {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
