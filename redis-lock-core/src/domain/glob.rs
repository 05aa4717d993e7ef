//! Patterns as the server reads them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal.

/// `text` as a pattern that matches nothing but itself.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Whether `pattern` matches all of `text`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    // The last star is the only one that needs trying again: what an earlier one could take, the
    // last one can.
    let (mut pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            retry = Some((rest, text));
        } else if let Some((first, rest)) = text.split_first() {
            match one(pattern, *first) {
                Some(after) => (pattern, text) = (after, rest),
                None => match retry {
                    Some((after_star, [_, shorter @ ..])) => {
                        retry = Some((after_star, shorter));
                        (pattern, text) = (after_star, shorter);
                    }
                    _ => return false,
                },
            }
        } else {
            return pattern.is_empty();
        }
    }
}

/// What is left of the pattern after its first element, if that matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [b'[', rest @ ..] => {
            let (negated, mut set) = match rest {
                [b'^', rest @ ..] => (true, rest),
                _ => (false, rest),
            };
            let mut found = false;
            loop {
                match set {
                    [b']', rest @ ..] => return (found != negated).then_some(rest),
                    [b'\\', literal, rest @ ..] => {
                        found |= *literal == byte;
                        set = rest;
                    }
                    [from, b'-', to, rest @ ..] => {
                        found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                        set = rest;
                    }
                    [member, rest @ ..] => {
                        found |= *member == byte;
                        set = rest;
                    }
                    // A set that is never closed ends with the pattern.
                    [] => return (found != negated).then_some(set),
                }
            }
        }
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_servers_do() {
        for (pattern, text) in [
            ("*", ""),
            ("order:*", "order:42"),
            ("*:*:c", "a:b:c"),
            ("a*b*c", "a-b-b-c"),
            ("h?llo", "hello"),
            ("h[a-e]llo", "hello"),
            ("h[^a]llo", "hello"),
            ("h[e\\]]llo", "h]llo"),
            ("\\*", "*"),
            ("ü*", "über"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("order:*", "orders"),
            ("h[^e]llo", "hello"),
            ("\\*", "a"),
            ("a*b", "a-b-"),
            ("?", ""),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_escaped_matches_itself_and_nothing_else() {
        for text in ["a*b", "[x]", "^a", "a\\", "a?", "plain"] {
            assert!(matches(&escape(text), text), "{text}");
        }
        assert!(!matches(&escape("a*b"), "a-b") && !matches(&escape("[x]"), "x"));
    }
}
