//! The label by which people recognise a holder.

use std::ops::Deref;
use std::sync::Arc;

/// The longest label. It is short because it is sent with every acquisition.
const MAX_LABEL: usize = 128;

/// The default label.
pub(crate) fn host_and_process() -> String {
    format!("{}/{}", host(), super::env::process())
}

#[cfg(target_os = "linux")]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn host() -> String {
    std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or_default()
}

/// The label of a demand: either the manager's, which is shared, or one of its own.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Label {
    Shared(Arc<str>),
    Own(String),
}

impl Label {
    /// The manager's label, followed by the request's own if there is one.
    pub(crate) fn of(manager: &Arc<str>, own: Option<&str>) -> Self {
        match own {
            None => Self::Shared(Arc::clone(manager)),
            Some(own) if manager.is_empty() => Self::Own(own.into()),
            Some(own) => Self::Own([manager, " ", own].concat()),
        }
    }
}

impl Deref for Label {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Shared(text) => text,
            Self::Own(text) => text,
        }
    }
}

/// Replaces characters that would confuse the format of the value, or a terminal.
pub(crate) fn printable(label: &str) -> String {
    let is_odd = |c: char| matches!(c, '+' | '#') || c.is_control();
    let plain = label.chars().map(|c| if is_odd(c) { '_' } else { c });
    let mut plain: String = plain.collect();
    while plain.len() > MAX_LABEL {
        plain.pop();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_made_harmless() {
        assert_eq!(printable("a+b\nc#1"), "a_b_c_1");
        assert!(printable(&"ü".repeat(100)).len() <= MAX_LABEL);
    }

    #[test]
    fn the_label_of_a_request_follows_the_managers() {
        let [none, host] = ["", "host/17"].map(Arc::from);
        assert_eq!(&*Label::of(&host, None), "host/17");
        assert_eq!(&*Label::of(&host, Some("nightly")), "host/17 nightly");
        assert_eq!(&*Label::of(&none, Some("nightly")), "nightly");
    }
}
