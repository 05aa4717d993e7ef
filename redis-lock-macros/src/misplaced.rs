//! What the attribute reports on an item that it can't annotate.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Token};

/// Says where the attribute belongs instead.
pub(crate) fn not_a_function(input: ParseStream<'_>) -> Error {
    let ahead = input.fork();
    if ahead.call(Ident::parse_any).is_ok_and(|word| word == "gen" || word == "async")
        && (ahead.peek(Token![fn]) || ahead.call(Ident::parse_any).is_ok_and(|word| word == "gen"))
    {
        return input.error("`#[redis_lock]` does not support `gen fn`: a generator would be locked only while it is made");
    }
    let ahead = input.fork();
    let first = ahead.call(Ident::parse_any).map(|word| word.to_string()).unwrap_or_default();
    let is_closure = input.peek(Token![|])
        || ["move", "async"].contains(&&*first)
            && (ahead.peek(Token![|]) || ahead.peek(Token![move]));
    let advice = match &*first {
        "impl" | "trait" | "mod" => {
            "; put it on the functions inside, and what they have in common into \
             `#[redis_lock_defaults(..)]` here"
        }
        _ if is_closure => CODE,
        "let" | "if" | "match" | "loop" | "for" | "while" => CODE,
        "struct" | "enum" | "union" | "type" | "const" | "static" | "use" => {
            "; put it on the function that works with this"
        }
        _ => "",
    };
    input.error(format!("`#[redis_lock]` goes on a function{advice}"))
}

const CODE: &str = "; to lock a stretch of code, write `locks.mutex(\"…\").run(async |_| { … }).await`, or \
                    `blocking_run(|_| { … })`";
