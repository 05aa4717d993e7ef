//! Finds string literals in expressions that look like templates but are not interpolated.

use proc_macro2::{Literal, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Lit, Result};

/// Refuses a literal with a `{`, because every call would lock that very text. Literals in other
/// macros, such as `format!("item:{id}")`, are left to these.
pub(super) fn check(value: impl ToTokens) -> Result<()> {
    let Some(literal) = plain(value.to_token_stream()) else { return Ok(()) };
    let message = format!(
        "nothing interpolates this literal, so that every call would lock the text {literal}; write \
         `format!({literal})`, or `keys = [{literal}]` for a template"
    );
    Err(Error::new(literal.span(), message))
}

fn plain(tokens: TokenStream) -> Option<Literal> {
    let (mut word, mut is_called) = (String::new(), false);
    for tree in tokens {
        match tree {
            TokenTree::Literal(literal) if holds_brace(&literal) => return Some(literal),
            TokenTree::Group(group) => {
                // These macros don't interpolate their literals.
                let passes_on = ["vec", "concat", "matches", "dbg"].contains(&word.as_str());
                if (!is_called || passes_on)
                    && let Some(found) = plain(group.stream())
                {
                    return Some(found);
                }
                is_called = false;
            }
            TokenTree::Ident(ident) => {
                word = ident.to_string();
                is_called = false;
            }
            TokenTree::Punct(punct) => is_called = punct.as_char() == '!' && !word.is_empty(),
            TokenTree::Literal(_) => is_called = false,
        }
    }
    None
}

fn holds_brace(literal: &Literal) -> bool {
    matches!(Lit::new(literal.clone()), Lit::Str(text) if text.value().contains('{'))
}
