//! Refuses templates with which different calls could get the same key, or equal calls different
//! keys.

use proc_macro2::TokenStream;
use syn::LitStr;

use super::Scope;
use crate::diagnostics::{self, Mistakes};
use crate::options::TemplateArgument;
use crate::suggest;
use crate::template::{Hole, Piece, Spec, Step, Template, Value, Width};
use crate::tokens::unraw;

/// What only the macro can know about a template.
pub(super) fn check(
    template: &Template,
    literal: &LitStr,
    arguments: &[TemplateArgument],
    scope: &Scope<'_>,
    mistakes: &mut Mistakes,
) {
    for hole in template.holes() {
        if arguments.is_empty() && matches!(hole.value, Value::Next | Value::Position(_)) {
            mistakes.at(literal, nameless(hole, scope));
            return;
        }
        check_spec(hole, literal, scope, mistakes);
        check_names(hole, literal, arguments, scope, mistakes);
    }
    let mut before: Option<&Hole> = None;
    let mut between = String::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => between.push_str(text),
            Piece::Hole(hole) => {
                if let Some(before) = before.filter(|_| !between.chars().any(separates)) {
                    mistakes.at(literal, touching(before, &between, hole));
                    return;
                }
                before = Some(hole);
                between.clear();
            }
        }
    }
}

/// Whether no value can contain this character unescaped.
fn separates(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || "-._~@+=%".contains(c))
}

fn touching(before: &Hole, between: &str, after: &Hole) -> String {
    let (a, b) = (&before.source, &after.source);
    let fix = format!("separate them with a character like `:` or `/`, e.g. `{{{a}}}:{{{b}}}`");
    if between.is_empty() {
        format!(
            "`{{{a}}}{{{b}}}`: two values with nothing between them can form the same key; {fix}"
        )
    } else {
        format!(
            "`{{{a}}}{between}{{{b}}}`: values may contain `{between}` themselves, so that two of them \
             can form the same key; {fix}"
        )
    }
}

fn check_spec(hole: &Hole, literal: &LitStr, scope: &Scope<'_>, mistakes: &mut Mistakes) {
    let Hole { source, spec, value } = hole;
    let Spec { fill, has_precision, style, width, .. } = spec;
    if *has_precision {
        let message = format!(
            "`{{{source}}}`: a precision cuts values short, and different values would form the same \
             key; leave it out"
        );
        mistakes.at(literal, message);
    }
    if let Some(fill) = fill.filter(|fill| !separates(*fill)) {
        let message = format!(
            "`{{{source}}}`: filled up with `{fill}`, different values can form the same key; for \
             numbers write `{{x:08}}`, otherwise leave the fill out"
        );
        mistakes.at(literal, message);
    }
    if let (Some(Width::Name(width)), Value::Name(name)) = (width, value)
        && width == name
        && scope.is_bound(name)
    {
        let message = format!(
            "`{{{source}}}`: `{name}` cannot be a value and a width in one key; use \
             `key(\"…{{x:{name}$}}…\", x = {name}, {name} = {name})`"
        );
        mistakes.at(literal, message);
    }
    // For a variable, the trait of the runtime reports that at the placeholder.
    if let Value::Name(name) = value
        && !style.is_empty()
        && !scope.is_bound(name)
        && name.chars().all(|c| !c.is_lowercase())
    {
        let message = format!(
            "`{{{source}}}`: such text may differ between two builds, and then they lock different \
             keys; write `{{{name}}}`"
        );
        mistakes.at(literal, message);
    }
}

/// A name in small letters is that of an argument. rustc would know less of what was meant: it finds
/// the variables of this expansion too, and offers to replace the whole literal.
fn check_names(
    hole: &Hole,
    literal: &LitStr,
    arguments: &[TemplateArgument],
    scope: &Scope<'_>,
    mistakes: &mut Mistakes,
) {
    let source = &hole.source;
    let value = match &hole.value {
        Value::Name(name) => Some((name, String::new())),
        Value::Path { base, .. } => Some((base, format!(" (in `{{{source}}}`)"))),
        Value::Next | Value::Position(_) => None,
    };
    let width = match &hole.spec.width {
        Some(Width::Name(name)) => Some((name, format!(" (in `{{{source}}}`)"))),
        _ => None,
    };
    let known = known(arguments, scope);
    for (name, place) in value.into_iter().chain(width) {
        if known.contains(name) {
            continue;
        }
        let near = suggest::closest(name, known.iter().map(String::as_str));
        if name.trim_start_matches('_').starts_with(char::is_uppercase) {
            let is_type = name.contains(char::is_lowercase);
            let message = match (&hole.value, near) {
                (Value::Path { steps, .. }, _)
                    if is_type && !matches!(steps.first(), Some(Step::Call(_))) =>
                {
                    format!(
                        "`{{{source}}}`: `{name}` is written as a type, which has no fields; write \
                         the name of an argument{}",
                        there_are(&known)
                    )
                }
                // rustc would offer to replace the whole literal.
                (Value::Name(_), Some(near)) if is_type => unknown(name, &place, near),
                _ => continue,
            };
            mistakes.at(literal, message);
            continue;
        }
        if name == "self" {
            if matches!(hole.value, Value::Path { .. }) {
                let message = format!("`{{{source}}}`: this function has no `self` parameter");
                mistakes.at(literal, message);
            }
            continue;
        }
        let message = match near {
            Some(near) => unknown(name, &place, near),
            None => {
                let (known, elsewhere) = (there_are(&known), elsewhere(name));
                format!("no argument named `{name}`{place}{known}{elsewhere}")
            }
        };
        mistakes.at(literal, message);
    }
}

fn unknown(name: &str, place: &str, near: &str) -> String {
    format!("no argument named `{name}`{place}; did you mean `{near}`?")
}

fn there_are(known: &[String]) -> String {
    match known {
        [] => "; the function has none".into(),
        names => format!(" (there are: {})", names.join(", ")),
    }
}

fn elsewhere(name: &str) -> String {
    format!(
        "; a constant needs a name in capital letters here, and anything else is passed by name: \
         `key(\"…{{x}}…\", x = {name})`"
    )
}

/// The names that a template may use.
fn known(arguments: &[TemplateArgument], scope: &Scope<'_>) -> Vec<String> {
    let given = arguments.iter().filter_map(|argument| argument.name.as_ref());
    let given = given.map(|(name, _)| unraw(name));
    let receiver = scope.has_receiver.then(|| "self".to_owned());
    let bound = scope.names.iter().map(|(name, _)| unraw(name));
    given.chain(bound).chain(scope.constants.iter().cloned()).chain(receiver).collect()
}

/// `{}` in a template without arguments.
fn nameless(hole: &Hole, scope: &Scope<'_>) -> String {
    let example =
        scope.names.first().map_or_else(|| "order_id".to_owned(), |(name, _)| unraw(name));
    format!(
        "`{{{}}}` names no argument; write the name, as in `{{{example}}}`, or the expression behind \
         the template: `key(\"…{{}}…\", {example})`",
        hole.source
    )
}

/// A warning where a template looks as if it meant an argument, without braces or in the way of another
/// library, so that every call locks the same key, or a key with a stray `$`.
pub(super) fn warning(
    template: &Template,
    literal: &LitStr,
    scope: &Scope<'_>,
) -> Option<TokenStream> {
    let mut texts = template.pieces.iter().enumerate().filter_map(|(at, piece)| match piece {
        Piece::Text(text) => Some((text, template.pieces.get(at + 1))),
        Piece::Hole(_) => None,
    });
    let note = if template.holes().next().is_some() {
        let hole = texts.find_map(|(text, next)| match next {
            Some(Piece::Hole(hole)) if text.ends_with('$') => Some(hole),
            _ => None,
        })?;
        let source = &hole.source;
        format!("the `$` of `${{{source}}}` is part of the key; write `{{{source}}}`")
    } else {
        let meant = texts.find_map(|(text, _)| meant(text, scope))?;
        format!(
            "{} has no placeholder, so every call locks the same key; for the argument write \
             `{{{meant}}}`",
            literal.token()
        )
    };
    Some(diagnostics::warning(literal.span(), &note))
}

/// The argument that a text without placeholders names as `{{id}}`, `#id`, `<id>`, `$id` and the like.
fn meant(text: &str, scope: &Scope<'_>) -> Option<String> {
    let names = || scope.names.iter().map(|(name, _)| unraw(name));
    // `order:id`, with the braces forgotten. What stands first says what is locked.
    let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let mut last = words.iter().skip(usize::from(words.len() > 1));
    if let Some(bare) = last.find(|word| names().any(|name| name == ***word)) {
        return Some((*bare).to_owned());
    }
    let mut rest = text;
    while let Some(at) = rest.find(['{', '#', '<', '$', '%']) {
        rest = &rest[at + 1..];
        let name = rest.trim_start_matches('{');
        let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
        let word = &name[..end];
        if word == "self" && scope.has_receiver {
            return Some("self.field".into());
        }
        // `id` for `order_id`, and the other way round.
        let ends = |long: &str, short: &str| {
            long.strip_suffix(short).is_some_and(|front| front.is_empty() || front.ends_with('_'))
        };
        let found = names().find(|name| ends(name, word) || ends(word, name));
        if let Some(found) = found.filter(|_| !word.is_empty()) {
            return Some(found);
        }
    }
    None
}
