//! The `#[redis_lock]` attribute. Use it through the `redis-locks` crate, whose documentation
//! describes it.
//!
//! The stages are files: `options` reads and checks the arguments, `function` the item, `key` (on top of `template`)
//! the key, and `expand` puts them together. `companion` makes the function of `request = name`, `defaults` passes on
//! the options of a block, and `inline` is `key!`. `diagnostics` collects mistakes. The function is emitted even if
//! there are mistakes.

mod body;
mod companion;
mod defaults;
mod diagnostics;
mod duration;
mod expand;
mod function;
mod inline;
mod key;
mod leaving;
mod manifest;
mod misplaced;
mod options;
mod rebind;
mod request;
mod returns;
mod segment;
mod suggest;
mod template;
mod tokens;

/// Runs a function one call at a time across all machines. See `redis_locks::redis_lock`.
#[proc_macro_attribute]
pub fn redis_lock(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::expand(arguments.into(), item.into()).into()
}

/// Options for all annotated functions of a block. See `redis_locks::redis_lock_defaults`.
#[proc_macro_attribute]
pub fn redis_lock_defaults(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    defaults::expand(arguments.into(), item.into()).into()
}

/// Makes a key by the rules of the attribute. See `redis_locks::key!`.
#[proc_macro]
pub fn key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    inline::expand(input.into()).into()
}

/// Lets values of a type be part of keys. See `redis_locks::KeySegment`.
#[proc_macro_derive(KeySegment, attributes(key_segment))]
pub fn key_segment(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    segment::expand(item.into()).into()
}
