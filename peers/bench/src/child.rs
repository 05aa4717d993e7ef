//! This program, started once more to play a part.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use testbed::{Child, ChildIo};

/// Starts a child and tells it what to do.
pub(crate) fn start(role: &str, order: &impl Serialize) -> Result<Child> {
    let mut child = Child::spawn(role, &[]);
    child.tell(&serde_json::to_string(order)?);
    Ok(child)
}

/// The value that the child reports under `word`.
pub(crate) fn answer<T: DeserializeOwned>(child: &mut Child, word: &str) -> Result<T> {
    let text = child.expect(word);
    serde_json::from_str(&text).with_context(|| format!("a child said {text:?}"))
}

/// Plays a part in a child, by the order that the parent sends first.
pub(crate) fn play<T: DeserializeOwned>(
    io: &mut ChildIo,
    part: impl FnOnce(&mut ChildIo, T) -> Result<()>,
) {
    let line = io.hear();
    let played = serde_json::from_str(&line).context("an order").and_then(|order| part(io, order));
    if let Err(error) = played {
        eprintln!("a child failed: {error:#}");
        std::process::exit(1);
    }
}
