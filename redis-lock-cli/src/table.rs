//! Locks as people want to see them.

use std::env;
use std::io::{IsTerminal, stdout};
use std::time::SystemTime;

use redis_lock_core::{Holder, Idle, LockKind, LockStatus, SecondCall};

use crate::duration;
use crate::timestamp::age;

/// Whether colours help: on a terminal whose owner does not mind.
pub(crate) fn is_coloured() -> bool {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !unwanted && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `text` in a colour of the terminal, if it has any.
pub(crate) fn paint(text: &str, code: &str, coloured: bool) -> String {
    if coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

const BOLD: &str = "1";
const YELLOW: &str = "33";
const FAINT: &str = "2";

/// The widths suit most locks; longer texts push the rest of their line to the right.
pub(crate) fn header(coloured: bool) -> String {
    let line = row(["KEY", "KIND", "HELD FOR", "TTL", "WAIT", "HOLDER"].map(Into::into));
    paint(&line, BOLD, coloured)
}

fn row([key, kind, held, ttl, waiters, holder]: [String; 6]) -> String {
    format!("{key:<32} {kind:<12} {held:>8} {ttl:>8} {waiters:>5}  {holder}")
}

/// One line for each holder; the first one names the key.
pub(crate) fn lines(status: &LockStatus, coloured: bool) -> Vec<String> {
    let waiters = match status.waiters.len() {
        0 => String::new(),
        count => count.to_string(),
    };
    let first = [plain(&status.key), status.kind.to_string()];
    if status.holders.is_empty() {
        let [key, kind] = first;
        let (ttl, holder) = match &status.done {
            Some(done) => (left(done.until), format!("done by {}", label(done.by.as_deref()))),
            None if status.kind == LockKind::Foreign => (String::new(), "not a lock".into()),
            None => (String::new(), String::new()),
        };
        return vec![row([key, kind, String::new(), ttl, waiters, holder])];
    }
    let mut lines = Vec::new();
    for (index, holder) in status.holders.iter().enumerate() {
        let [key, kind] = if index == 0 { first.clone() } else { [String::new(), String::new()] };
        let waiters = if index == 0 { waiters.clone() } else { String::new() };
        let state = match holder.idle {
            _ if holder.kept_until.is_some() => " (kept by min_hold)",
            Idle::Since(_) => " (idle)",
            _ => "",
        };
        let slot = holder.slot.map(|slot| format!(" (slot {slot})")).unwrap_or_default();
        let who = name(holder) + &slot + state + &option(holder.second_call);
        let line = row([key, kind, held_for(holder), ttl(holder), waiters, who]);
        let contended = index == 0 && !status.waiters.is_empty();
        lines.push(if contended { paint(&line, YELLOW, coloured) } else { line });
    }
    lines
}

/// All that is known, one thing a line.
pub(crate) fn details(status: &LockStatus, coloured: bool) -> Vec<String> {
    let mut lines =
        vec![format!("{}  {}", paint(&plain(&status.key), BOLD, coloured), status.kind)];
    if let Some(done) = &status.done {
        lines.push(format!("  done by  {}", label(done.by.as_deref())));
        lines.push(format!("    ago    {}", age(done.at)));
        lines.push(format!("    for    another {}", left(done.until)));
        if let Some(value) = &done.value {
            lines.push(format!("    value  {} bytes, see --value", value.bytes()));
        }
    }
    for holder in &status.holders {
        lines.push(format!("  held by  {}{}", name(holder), option(holder.second_call)));
        if let Some(until) = holder.kept_until {
            lines.push(format!("    kept   for another {} by min_hold", left(until)));
        }
        lines.push(format!("    for    {}", held_for(holder)));
        lines.push(format!("    ttl    {}", ttl(holder)));
        match holder.idle {
            Idle::Since(since) => lines.push(format!("    idle   for {}", age(since))),
            Idle::Maybe => lines.push("    idle   maybe: it keeps the lock between calls".into()),
            _ => {}
        }
        if let Some(fence) = holder.fence {
            lines.push(format!("    fence  {fence}"));
        }
        if let Some(slot) = holder.slot {
            lines.push(format!("    slot   {slot}"));
        }
        lines.push(paint(
            &format!("    token  {}", plain(&holder.token.to_string())),
            FAINT,
            coloured,
        ));
    }
    for waiter in &status.waiters {
        let label = label(waiter.label.as_deref()) + &option(waiter.second_call);
        let since = waiter.since.map(age).unwrap_or_default();
        lines.push(format!("  waits    {label}, for {since}"));
    }
    let server = format!(
        "  server   {}, release by {}",
        plain(&status.server.version),
        status.server.release
    );
    lines.push(paint(&server, FAINT, coloured));
    for node in &status.server.nodes {
        let version = node.version.as_deref().map_or_else(|| "not connected".into(), plain);
        let trouble = node.trouble.as_deref().map(|what| format!(": {}", plain(what)));
        let trouble = trouble.unwrap_or_default();
        let line = format!("  {}  {}, {version}{trouble}", node.role, plain(&node.address));
        lines.push(paint(&line, FAINT, coloured));
    }
    lines
}

/// The time until then, by the clock of this machine.
fn left(until: SystemTime) -> String {
    duration::show(until.duration_since(SystemTime::now()).unwrap_or_default())
}

fn label(label: Option<&str>) -> String {
    label.map_or_else(|| "no label".into(), plain)
}

/// What a call asked for besides its turn.
fn option(option: SecondCall) -> String {
    let shown = format!(" ({option})");
    if option == SecondCall::Waits { String::new() } else { shown }
}

/// Who it is.
pub(crate) fn name(holder: &Holder) -> String {
    plain(holder.label.as_deref().unwrap_or(&holder.token.to_string()))
}

pub(crate) fn held_for(holder: &Holder) -> String {
    holder.since.map_or_else(|| "?".into(), age)
}

fn ttl(holder: &Holder) -> String {
    holder.ttl.map_or_else(|| "never".into(), duration::show)
}

/// Text of other programs must not contain commands for the terminal, nor change the order of what
/// is shown.
pub(crate) fn plain(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if is_odd(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_does_not_reach_the_terminal_raw() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(plain("a\u{202e}b\u{9b}ü"), "a\u{fffd}b\u{fffd}ü");
    }
}
