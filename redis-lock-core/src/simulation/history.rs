//! What happened, for people to read, and as a number by which two runs are compared.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{clock, random};

/// All that happened.
pub(super) struct History {
    hash: u64,
    pub(super) steps: u64,
    pub(super) by_sort: [u64; 64],
    lines: Option<Vec<String>>,
    names: HashMap<Arc<str>, usize>,
}

impl History {
    pub(super) fn new(keeps_lines: bool) -> Self {
        let lines = keeps_lines.then(Vec::new);
        Self { hash: 0, steps: 0, by_sort: [0; 64], lines, names: HashMap::new() }
    }

    /// Something happened; the number tells it from what else could have.
    pub(super) fn step(&mut self, what: u64, detail: u64) {
        self.steps += 1;
        self.by_sort[what as usize] += 1;
        self.hash = random::hash([self.hash, clock::now(), what, detail]);
    }

    /// A line for people, formatted only if it is read.
    pub(super) fn line(&mut self, line: impl FnOnce(&mut Self) -> String) {
        if self.lines.is_none() {
            return;
        }
        let text = line(self);
        let at = clock::now() as f64 / 1e9;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{at:>9.4} s  {text}"));
        }
    }

    /// A short name for a token.
    pub(super) fn name(&mut self, token: &Arc<str>) -> String {
        let next = self.names.len() + 1;
        format!("T{}", self.names.entry(Arc::clone(token)).or_insert(next))
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new(false)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().flatten().try_for_each(|line| writeln!(f, "{line}"))
    }
}
