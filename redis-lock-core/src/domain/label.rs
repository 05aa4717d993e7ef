//! The label by which people recognise a holder.

use std::ops::Deref;
use std::sync::Arc;

use crate::domain::harmless::is_odd;

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
            Some(own) => Self::Own([manager, "%20", own].concat()),
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

/// The label as it stands in a token: without characters that would confuse the format of the value, or
/// a terminal, and without spaces, at which a shell would split the token.
pub(crate) fn printable(label: &str) -> String {
    let is_odd = |c: char| matches!(c, '+' | '#') || is_odd(c);
    let mut plain = String::with_capacity(label.len());
    for c in label.chars() {
        match c {
            ' ' => plain.push_str("%20"),
            '%' => plain.push_str("%25"),
            c if is_odd(c) => plain.push('_'),
            c => plain.push(c),
        }
    }
    // No escape is cut in two.
    while plain.len() > MAX_LABEL || plain.ends_with('%') || plain.ends_with("%2") {
        plain.pop();
    }
    plain
}

/// The label that [`printable`] was given, as people see it.
pub(crate) fn shown(label: &str) -> String {
    label.replace("%20", " ").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_made_harmless() {
        assert_eq!(printable("a+b\nc#1"), "a_b_c_1");
        assert!(printable(&"ü".repeat(100)).len() <= MAX_LABEL);
        for label in ["a b", "100 %", "%20", "%2520 ", "%"] {
            assert!(!printable(label).contains(' '));
            assert_eq!(shown(&printable(label)), label);
        }
        let cut = printable(&" ".repeat(100));
        assert!(cut.len() <= MAX_LABEL && shown(&cut).trim().is_empty(), "{cut}");
    }

    #[test]
    fn the_label_of_a_request_follows_the_managers() {
        let [none, host] = ["", "host/17"].map(Arc::from);
        assert_eq!(&*Label::of(&host, None), "host/17");
        assert_eq!(&*Label::of(&host, Some("nightly")), "host/17%20nightly");
        assert_eq!(&*Label::of(&none, Some("nightly")), "nightly");
    }
}
