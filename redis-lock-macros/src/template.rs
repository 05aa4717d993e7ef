//! The text of a key template, read the way `format!` reads it.
//!
//! The macro only needs to know the content of the braces. The text itself is passed to
//! `format_args!` unchanged, so that rustc's errors point at the placeholder. What this parser does
//! not understand, rustc does not understand either, and explains better.

/// A template, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Literal text, with `{{` and `}}` resolved.
    Text(String),
    /// A placeholder.
    Hole(Hole),
}

/// The content between braces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    /// As written, without the braces.
    pub(crate) source: String,
    pub(crate) value: Value,
    pub(crate) spec: Spec,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `{}`
    Next,
    /// `{0}`
    Position(usize),
    /// `{name}`
    Name(String),
    /// `{name.field.0.method()}`, which `format!` does not know.
    Path { base: String, steps: Vec<Step> },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    Index(u32),
    Call(String),
}

/// The part after the colon.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// As written, with the colon; empty when there is none.
    pub(crate) source: String,
    pub(crate) fill: Option<char>,
    pub(crate) width: Option<Width>,
    pub(crate) has_precision: bool,
    /// `?`, `x`, `p` and the like; empty for plain text.
    pub(crate) style: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Number,
    Name(String),
    Position(usize),
}

/// Why a template was not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// `format!` refuses it too, at the very character.
    Malformed,
    /// An expression that the string cannot hold; the token form can.
    Expression(String),
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, Unread> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            if c != '{' && c != '}' {
                literal.push(c);
                rest = after;
            } else if after.starts_with(c) {
                literal.push(c);
                rest = &after[1..];
            } else if c == '}' {
                return Err(Unread::Malformed);
            } else {
                let (source, after) = split_at_end(after).ok_or(Unread::Malformed)?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Hole(Hole::parse(source)?));
                rest = after;
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self { pieces })
    }

    pub(crate) fn holes(&self) -> impl Iterator<Item = &Hole> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Hole(hole) => Some(hole),
            Piece::Text(_) => None,
        })
    }
}

/// A placeholder without its braces, and what follows. Its fill may be a brace: `{x:}>5}`.
fn split_at_end(text: &str) -> Option<(&str, &str)> {
    let end = text.find('}')?;
    let is_fill = text[..end].ends_with(':')
        && !text[..end - 1].contains(':')
        && text[end + 1..].starts_with(['<', '^', '>']);
    let end = if is_fill { end + 1 + text[end + 1..].find('}')? } else { end };
    Some((&text[..end], &text[end + 1..]))
}

impl Hole {
    fn parse(source: &str) -> Result<Self, Unread> {
        let parts = || {
            let (name, spec) = match source.split_once(':') {
                Some((name, spec)) => (name, Spec::parse(spec.trim_end())?),
                None => (source.trim_end(), Spec::default()),
            };
            Ok((Value::parse(name)?, spec))
        };
        match parts() {
            Ok((value, spec)) => Ok(Self { source: source.to_owned(), value, spec }),
            Err(Unread::Malformed) if is_expression(source) => {
                Err(Unread::Expression(source.to_owned()))
            }
            Err(unread) => Err(unread),
        }
    }
}

/// Whether this is an expression and not a name: of a name that it does not take, rustc says why.
fn is_expression(source: &str) -> bool {
    match syn::parse_str(source) {
        Ok(syn::Expr::Path(path)) => path.path.get_ident().is_none(),
        parsed => parsed.is_ok(),
    }
}

impl Value {
    fn parse(text: &str) -> Result<Self, Unread> {
        if text.is_empty() {
            return Ok(Self::Next);
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(Self::Position).map_err(|_| Unread::Malformed);
        }
        let (base, mut rest) = take_name(text).ok_or(Unread::Malformed)?;
        let mut steps = Vec::new();
        while let Some(after) = rest.strip_prefix('.') {
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits > 0 {
                let index = after[..digits].parse().map_err(|_| Unread::Malformed)?;
                steps.push(Step::Index(index));
                rest = &after[digits..];
            } else {
                let (name, after) = take_name(after).ok_or(Unread::Malformed)?;
                let called = after.strip_prefix("()");
                let step = if called.is_some() { Step::Call } else { Step::Field };
                steps.push(step(name.to_owned()));
                rest = called.unwrap_or(after);
            }
        }
        match rest.chars().next() {
            None if steps.is_empty() => Ok(Self::Name(base.to_owned())),
            None => Ok(Self::Path { base: base.to_owned(), steps }),
            Some('[' | '(') => Err(Unread::Expression(text.to_owned())),
            Some(_) => Err(Unread::Malformed),
        }
    }
}

impl Spec {
    /// `[[fill]align][sign]['#']['0'][width]['.' precision][type]`
    fn parse(text: &str) -> Result<Self, Unread> {
        let mut spec = Self { source: format!(":{text}"), ..Self::default() };
        let mut rest = text;
        let mut chars = rest.chars();
        let (first, second) = (chars.next(), chars.next());
        let is_align = |c: Option<char>| matches!(c, Some('<' | '^' | '>'));
        if let Some(fill) = first.filter(|_| is_align(second)) {
            spec.fill = Some(fill);
            rest = &rest[fill.len_utf8() + 1..];
        } else if is_align(first) {
            rest = &rest[1..];
        }
        rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        rest = rest.strip_prefix('#').unwrap_or(rest);
        if !rest.starts_with("0$") {
            rest = rest.strip_prefix('0').unwrap_or(rest);
        }
        if let Some((width, after)) = Width::take(rest)? {
            spec.width = Some(width);
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('.') {
            spec.has_precision = true;
            rest = match after.strip_prefix('*') {
                Some(after) => after,
                None => Width::take(after)?.ok_or(Unread::Malformed)?.1,
            };
        }
        if !["", "?", "x?", "X?", "x", "X", "o", "b", "e", "E", "p"].contains(&rest) {
            return Err(Unread::Malformed);
        }
        spec.style = rest.to_owned();
        Ok(spec)
    }
}

impl Width {
    fn take(text: &str) -> Result<Option<(Self, &str)>, Unread> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            let number = text[..digits].parse().map_err(|_| Unread::Malformed)?;
            let rest = &text[digits..];
            return Ok(Some(match rest.strip_prefix('$') {
                Some(rest) => (Self::Position(number), rest),
                None => (Self::Number, rest),
            }));
        }
        // A name only counts when `$` follows: `x` alone is a style.
        Ok(take_name(text)
            .and_then(|(name, rest)| Some((Self::Name(name.to_owned()), rest.strip_prefix('$')?))))
    }
}

/// An identifier at the start of `text`, and what follows it.
fn take_name(text: &str) -> Option<(&str, &str)> {
    let first = text.chars().next()?;
    if !(first.is_alphabetic() || first == '_') {
        return None;
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (name != "_" && !rest.starts_with('#')).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(text: &str) -> Hole {
        let template = Template::parse(&format!("{{{text}}}")).expect(text);
        match template.pieces.into_iter().next() {
            Some(Piece::Hole(hole)) => hole,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn text_and_placeholders_are_distinguished() {
        let template = Template::parse("a{{b}}:{id}:{}/{0}").unwrap();
        assert_eq!(template.pieces.len(), 6);
        assert_eq!(template.pieces[0], Piece::Text("a{b}:".into()));
        let values: Vec<&Value> = template.holes().map(|hole| &hole.value).collect();
        assert_eq!(values, [&Value::Name("id".into()), &Value::Next, &Value::Position(0)]);
    }

    #[test]
    fn paths_are_read() {
        assert_eq!(
            hole("self.user.0.region():>5").value,
            Value::Path {
                base: "self".into(),
                steps: vec![
                    Step::Field("user".into()),
                    Step::Index(0),
                    Step::Call("region".into())
                ],
            }
        );
        assert_eq!(hole("größe").value, Value::Name("größe".into()));
        assert_eq!(hole("id ").value, Value::Name("id".into()));
    }

    #[test]
    fn specs_are_read() {
        let spec = |text: &str| hole(&format!("x:{text}")).spec;
        assert_eq!(spec(">08").width, Some(Width::Number));
        assert_eq!(spec("0").width, None);
        assert_eq!(spec("}>5").fill, Some('}'));
        assert_eq!(spec("*^5").fill, Some('*'));
        assert_eq!(spec("width$").width, Some(Width::Name("width".into())));
        assert_eq!(spec("0$").width, Some(Width::Position(0)));
        assert_eq!(spec("01$").width, Some(Width::Position(1)));
        assert!(spec(".3").has_precision && spec(".*").has_precision && spec(".n$").has_precision);
        assert_eq!(spec("?").style, "?");
        assert_eq!(spec("#x?").style, "x?");
        assert_eq!(spec("x").style, "x");
    }

    #[test]
    fn what_rustc_refuses_is_left_to_it() {
        for text in ["{", "}", "a}b", "{id", "{r#type}", "{a b}", "{a:!}", "{ a}"] {
            assert_eq!(Template::parse(text), Err(Unread::Malformed), "{text}");
        }
    }

    #[test]
    fn expressions_are_named() {
        for expression in ["v[0]", "f(1)", "a.b(c)", "id + 1", "a..b", "c::X", "&id", "id?", "_"] {
            let read = Template::parse(&format!("{{{expression}}}"));
            assert_eq!(read, Err(Unread::Expression(expression.into())), "{expression}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[{}:.a0$*?<>#+ é\\[\\]()]{0,24}|\\PC{0,40}") {
            if let Ok(template) = Template::parse(&text) {
                // The parsed parts must make up the whole text.
                let held: usize = template.pieces.iter().map(|piece| match piece {
                    Piece::Text(text) => text.len(),
                    Piece::Hole(hole) => hole.source.len() + 2,
                }).sum();
                proptest::prop_assert!(held <= text.len());
            }
        }
    }
}
