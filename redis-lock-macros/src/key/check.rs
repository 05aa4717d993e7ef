//! Refuses templates with which different calls could get the same key, or equal calls different
//! keys.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::LitStr;

use super::Scope;
use crate::diagnostics::Mistakes;
use crate::options::TemplateArgument;
use crate::suggest;
use crate::template::{Hole, Piece, Spec, Template, Value, Width};
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
        check_base(hole, literal, scope, mistakes);
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

/// A dotted name starts at an argument, `self`, or a constant. rustc would say so too, but offer a
/// wrong fix.
fn check_base(hole: &Hole, literal: &LitStr, scope: &Scope<'_>, mistakes: &mut Mistakes) {
    let Value::Path { base, .. } = &hole.value else { return };
    let source = &hole.source;
    if base == "self" {
        if !scope.has_receiver {
            mistakes.at(literal, format!("`{{{source}}}`: this function has no `self` parameter"));
        }
        return;
    }
    let is_constant = base.chars().next().is_some_and(char::is_uppercase);
    if scope.is_bound(base) || is_constant {
        return;
    }
    let hint = match near(base, scope) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => there_are(scope),
    };
    mistakes.at(literal, format!("no argument named `{base}` (in `{{{source}}}`){hint}"));
}

/// `{}` in a template without arguments of its own.
fn nameless(hole: &Hole, scope: &Scope<'_>) -> String {
    let example =
        scope.names.first().map_or_else(|| "order_id".to_owned(), |(name, _)| unraw(name));
    format!(
        "`{{{}}}` names no argument; write the name, as in `{{{example}}}`, or the expression behind \
         the template: `key(\"…{{}}…\", {example})`",
        hole.source
    )
}

/// What is wrong with a name in small letters that is no argument, unless an argument is called nearly
/// the same: rustc shows that one at the placeholder.
pub(super) fn unknown(name: &str, scope: &Scope<'_>) -> Option<String> {
    if name == "self" || near(name, scope).is_some() {
        return None;
    }
    Some(format!(
        "no argument named `{name}`{}; a constant needs a name in capital letters here, and anything \
         else is passed by name: `key(\"…{{x}}…\", x = {name})`",
        there_are(scope)
    ))
}

fn near(name: &str, scope: &Scope<'_>) -> Option<String> {
    let names: Vec<String> = scope.names.iter().map(|(name, _)| unraw(name)).collect();
    suggest::closest(name, names.iter().map(String::as_str)).map(str::to_owned)
}

fn there_are(scope: &Scope<'_>) -> String {
    let names: Vec<String> = scope.names.iter().map(|(name, _)| unraw(name)).collect();
    if names.is_empty() {
        return "; the function has none".into();
    }
    format!(" (there are: {})", names.join(", "))
}

/// A warning where a template looks as if it meant an argument in the way of another library, so that
/// every call locks the same key, or a key with a stray `$`.
pub(super) fn warning(
    template: &Template,
    literal: &LitStr,
    scope: &Scope<'_>,
) -> Option<TokenStream> {
    let mut texts = template.pieces.iter().enumerate().filter_map(|(at, piece)| match piece {
        Piece::Text(text) => Some((text, template.pieces.get(at + 1))),
        Piece::Hole(_) => None,
    });
    let (name, note) = if template.holes().next().is_some() {
        let hole = texts.find_map(|(text, next)| match next {
            Some(Piece::Hole(hole)) if text.ends_with('$') => Some(hole),
            _ => None,
        })?;
        let source = &hole.source;
        let note = format!("the `$` of `${{{source}}}` is part of the key; write `{{{source}}}`");
        ("THE_DOLLAR_SIGN_STAYS_IN_THE_KEY", note)
    } else {
        let meant = texts.find_map(|(text, _)| meant(text, scope))?;
        let note = format!(
            "nothing in {} is interpolated, so every call locks that very text; for the argument \
             write `{{{meant}}}`",
            literal.token()
        );
        ("EVERY_CALL_LOCKS_THE_SAME_KEY", note)
    };
    // Stable Rust has no other warning for a macro to give.
    let name = Ident::new(name, Span::call_site().located_at(literal.span()));
    Some(quote! {
        #[deprecated(note = #note)]
        const #name: () = ();
        let _ = #name;
    })
}

/// The argument that a text without placeholders names as `{{id}}`, `#id`, `<id>`, `$id` and the like.
fn meant(text: &str, scope: &Scope<'_>) -> Option<String> {
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
        let mut names = scope.names.iter().map(|(name, _)| unraw(name));
        let found = names.find(|name| ends(name, word) || ends(word, name));
        if let Some(found) = found.filter(|_| !word.is_empty()) {
            return Some(found);
        }
    }
    None
}
