//! The label by which people recognise a holder, what it tells of second calls, and text that others wrote, as it
//! may be shown.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
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

/// The option of a call that says what becomes of a second call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SecondCall {
    /// None: a second call waits its turn.
    Waits,
    /// [`queue`](crate::LockRequest::queue) with this number.
    Queue(usize),
    /// [`newest`](crate::LockRequest::newest).
    Newest,
    /// [`share`](crate::LockRequest::share).
    Share,
}

impl SecondCall {
    /// A call has one of them at most.
    pub(crate) fn of(queue: Option<usize>, newest: bool, share: bool) -> Self {
        match queue {
            Some(most) => Self::Queue(most),
            None if newest => Self::Newest,
            None if share => Self::Share,
            None => Self::Waits,
        }
    }
}

impl Display for SecondCall {
    /// As the attribute says it; nothing for [`Waits`](Self::Waits).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waits => Ok(()),
            Self::Queue(most) => write!(f, "queue = {most}"),
            Self::Newest => f.write_str("newest"),
            Self::Share => f.write_str("share"),
        }
    }
}

/// Follows the label in a token whose holder shares its value. No escape of a label looks like that.
pub(crate) const SHARE_FLAG: &str = "%s";

/// Stands before the number of calls that may wait, behind the label in a token.
pub(crate) const QUEUE_FLAG: &str = "%q";

/// Stands before the fingerprint behind the label in a token.
pub(crate) const FINGERPRINT: &str = "%=";

/// A label without the flags that follow it in a token.
pub(crate) fn bare(label: &str) -> &str {
    let end =
        [QUEUE_FLAG, SHARE_FLAG, FINGERPRINT].iter().filter_map(|flag| label.find(flag)).min();
    label.get(..end.unwrap_or(label.len())).unwrap_or_default()
}

/// The label of a demand: the manager's, which is shared, or the request's.
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

    /// The same, followed by what tokens tell other calls.
    pub(crate) fn telling(self, second_call: SecondCall, same: Option<u128>) -> Self {
        let option = match second_call {
            SecondCall::Queue(most) => format!("{QUEUE_FLAG}{most}"),
            SecondCall::Share => SHARE_FLAG.to_owned(),
            // It is told by the digits, or not at all.
            SecondCall::Newest | SecondCall::Waits if same.is_none() => return self,
            SecondCall::Newest | SecondCall::Waits => String::new(),
        };
        let same = same.map(|same| format!("{FINGERPRINT}{same:032x}")).unwrap_or_default();
        Self::Own([&self, &*option, &same].concat())
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

/// Bytes that another program wrote: as text if they are text, else as hex digits, the first 32 of them.
pub(crate) fn text_or_hex(bytes: &[u8]) -> String {
    // A text may have been cut within a character. A token stays a token, whatever its label has.
    let is_text = || std::str::from_utf8(bytes).err().is_none_or(|it| it.error_len().is_none());
    if bytes.starts_with(b"rl1") || is_text() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut hex: String = bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    hex.insert_str(0, "0x");
    hex.push_str(if bytes.len() > 32 { "…" } else { "" });
    hex
}

/// The label as a token contains it: without characters that would confuse the format of the value or a
/// terminal, and without spaces, at which a shell would split the token.
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

/// The path of a function as a token contains it, cut to its end if it is too long. This runs for each call,
/// and most paths need no change.
pub(crate) fn of_path(path: &'static str) -> Cow<'static, str> {
    if path.len() <= MAX_LABEL && !path.contains('#') {
        return path.into();
    }
    let start = path.len().saturating_sub(MAX_LABEL);
    let start = (start..path.len()).find(|at| path.is_char_boundary(*at)).unwrap_or_default();
    printable(path.get(start..).unwrap_or_default()).into()
}

/// The label that [`printable`] was given, as people see it.
pub(crate) fn shown(label: &str) -> String {
    bare(label).replace("%20", " ").replace("%25", "%")
}

/// The text, with control characters and what turns or hides other characters escaped, and cut after
/// `most` characters. It can't end a line, colour a terminal, or seem to be something else.
pub(crate) fn harmless(text: impl Display, most: usize) -> String {
    let mut out = HarmlessWriter { text: String::new(), left: most };
    // It fails when it is full; the rest is not even formatted.
    if write!(out, "{text}").is_err() {
        out.text.push('…');
    }
    out.text
}

/// Whether a character changes how others are shown, or is not shown at all.
pub(crate) fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

struct HarmlessWriter {
    text: String,
    left: usize,
}

impl Write for HarmlessWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            if is_odd(c) {
                self.text.extend(c.escape_unicode());
            } else {
                self.text.push(c);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

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
    fn what_follows_a_label_in_a_token_is_not_shown_with_it() {
        for second_call in [SecondCall::Waits, SecondCall::Queue(12), SecondCall::Share] {
            for same in [None, Some(7)] {
                let label = Label::of(&printable("100 %q3").into(), None);
                let token = Token::fresh("m", &label.telling(second_call, same));
                assert_eq!(token.label().as_deref(), Some("100 %q3"));
                assert_eq!((token.second_call(), token.same()), (second_call, same), "{token}");
            }
        }
        assert_eq!(Token::newest("m", "a").second_call(), SecondCall::Newest);
    }

    #[test]
    fn the_label_of_a_request_follows_the_managers() {
        let [none, host] = ["", "host/17"].map(Arc::from);
        assert_eq!(&*Label::of(&host, None), "host/17");
        assert_eq!(&*Label::of(&host, Some("nightly")), "host/17%20nightly");
        assert_eq!(&*Label::of(&none, Some("nightly")), "nightly");
    }
}

#[cfg(test)]
mod harmless_tests {
    use super::*;

    #[test]
    fn nothing_can_be_forged_and_nothing_is_long() {
        assert_eq!(harmless("host/1 ü 漢 `a`", 80), "host/1 ü 漢 `a`");
        assert_eq!(harmless("a\x1b[31m\nb", 80), "a\\u{1b}[31m\\u{a}b");
        assert_eq!(harmless("x\u{202e}y\u{2066}\u{9b}", 80), "x\\u{202e}y\\u{2066}\\u{9b}");
        assert_eq!(harmless("four", 4), "four");
        assert_eq!(harmless("fives", 4), "five…");
    }
}
