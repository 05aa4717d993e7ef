//! The `#[redis_lock]` attribute. Use it through the `redis-locks` crate, whose documentation
//! describes it.
//!
//! The stages are files: `options` reads and checks the arguments, `function` the item, `key` (on
//! top of `template`) the key, and `expand` puts them together. `diagnostics` collects what is wrong
//! on the way; the function is emitted in any case.

mod body;
mod diagnostics;
mod duration;
mod expand;
mod function;
mod key;
mod leaving;
mod manifest;
mod options;
mod rebind;
mod request;
mod returns;
mod segment;
mod suggest;
mod template;
mod tokens;

/// Serialises a function across a cluster. See `redis_locks::redis_lock`.
#[proc_macro_attribute]
pub fn redis_lock(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::expand(arguments.into(), item.into()).into()
}

/// Lets values of a type stand in keys. See `redis_locks::KeySegment`.
#[proc_macro_derive(KeySegment, attributes(key_segment))]
pub fn key_segment(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    segment::expand(item.into()).into()
}
