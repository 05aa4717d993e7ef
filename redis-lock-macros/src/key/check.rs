//! Refuses templates with which different calls could get the same key, or equal calls different
//! keys.

use syn::LitStr;

use super::Scope;
use crate::diagnostics::Mistakes;
use crate::suggest;
use crate::template::{Hole, Piece, Spec, Template, Value, Width};
use crate::tokens::unraw;

/// What only the macro can know about a template.
pub(super) fn check(
    template: &Template,
    literal: &LitStr,
    scope: &Scope<'_>,
    mistakes: &mut Mistakes,
) {
    for hole in template.holes() {
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
    if c.is_ascii() {
        !(c.is_ascii_alphanumeric() || "-._~@+=%".contains(c))
    } else {
        !c.is_alphabetic()
    }
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
    let names: Vec<String> = scope.names.iter().map(|(name, _)| unraw(name)).collect();
    let hint = match suggest::closest(base, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if names.is_empty() => "; the function has none".into(),
        None => format!(" (there are: {})", names.join(", ")),
    };
    mistakes.at(literal, format!("no argument named `{base}` (in `{{{source}}}`){hint}"));
}
