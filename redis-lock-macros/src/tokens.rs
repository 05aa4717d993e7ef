//! Small functions on tokens.

use std::collections::HashMap;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::Lit;

use crate::template::{Template, Value, Width};

/// A name that is invisible to the user's code and unlikely to be the name of an item.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(&format!("__redis_locks_{name}"), Span::mixed_site())
}

/// The name without `r#`.
pub(crate) fn unraw(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

/// The tokens, all of them standing at `span`. `$crate` still means what it meant.
pub(crate) fn located(tokens: TokenStream, span: Span) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut tree| {
            if let TokenTree::Group(group) = &tree {
                let stream = located(group.stream(), span);
                tree = Group::new(group.delimiter(), stream).into();
            }
            let is_root = matches!(&tree, TokenTree::Ident(word) if word == "$crate");
            tree.set_span(if is_root { span.resolved_at(tree.span()) } else { span });
            tree
        })
        .collect()
}

/// The span of the first token, for generated tokens that replace these.
pub(crate) fn first_span(tokens: TokenStream) -> Span {
    let first = tokens.into_iter().next();
    first.map_or_else(Span::call_site, |first| Span::call_site().located_at(first.span()))
}

/// The braces' content, as a new block. Under their span rustc would call the braces
/// unnecessary; under the attribute's span, it would point there for a missing value.
pub(crate) fn block(body: &Group) -> Group {
    let mut block = Group::new(Delimiter::Brace, body.stream());
    block.set_span(Span::mixed_site().located_at(body.span()));
    block
}

/// Whether this word or sign is among the tokens, however deep.
pub(crate) fn contains(tokens: TokenStream, text: &str) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Group(group) => contains(group.stream(), text),
        TokenTree::Ident(word) => word == text,
        TokenTree::Punct(sign) => text.chars().eq([sign.as_char()]),
        TokenTree::Literal(_) => false,
    })
}

/// Every variable that the tokens may mean, and its place. These are names, including those
/// that string literals capture as `{name}`, without the fields and methods after a dot.
pub(crate) fn words(tokens: TokenStream) -> HashMap<String, Span> {
    let mut found = HashMap::new();
    collect(tokens, &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut HashMap<String, Span>) {
    let mut dots = 0;
    for tree in tokens {
        let behind_dot = dots == 1;
        dots = match &tree {
            TokenTree::Punct(punct) if punct.as_char() == '.' => dots + 1,
            _ => 0,
        };
        match tree {
            TokenTree::Ident(word) if !behind_dot => {
                found.entry(unraw(&word)).or_insert_with(|| word.span());
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Literal(literal) => {
                let span = literal.span();
                for name in captured(literal) {
                    found.entry(name).or_insert(span);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// The names in a literal's `{name}` and `{x:width$}`.
fn captured(literal: proc_macro2::Literal) -> Vec<String> {
    let Lit::Str(text) = Lit::new(literal) else { return Vec::new() };
    names_in(&text.value(), |_| None)
}

/// The variables in a key template: [`captured`] names, and what `{name.field}` begins with.
pub(crate) fn variables(template: &str) -> Vec<String> {
    names_in(template, |base| Some(base.clone()))
}

fn names_in(template: &str, of_path: impl Fn(&String) -> Option<String>) -> Vec<String> {
    let Ok(template) = Template::parse(template) else { return Vec::new() };
    let names = template.holes().flat_map(|hole| {
        let value = match &hole.value {
            Value::Name(name) => Some(name.clone()),
            Value::Path { base, .. } => of_path(base),
            Value::Next | Value::Position(_) => None,
        };
        let width = match &hole.spec.width {
            Some(Width::Name(name)) => Some(name.clone()),
            _ => None,
        };
        [value, width].into_iter().flatten()
    });
    names.collect()
}
