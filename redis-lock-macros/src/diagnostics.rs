//! All mistakes of one attribute, reported together.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::Error;

/// The mistakes found so far. One error each, in the order they were found.
#[derive(Default)]
pub(crate) struct Mistakes(Vec<Error>);

impl Mistakes {
    /// Reports `message` at `place`.
    pub(crate) fn at(&mut self, place: impl ToTokens, message: impl std::fmt::Display) {
        self.add(Error::new_spanned(place, message));
    }

    pub(crate) fn add(&mut self, error: Error) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The compile errors, as tokens.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.iter().map(Error::to_compile_error).collect()
    }
}

/// Statements that have rustc warn with this text. Stable Rust has no other warning for a macro to
/// give than the use of something deprecated, and of all items only a macro is shown without its path.
pub(crate) fn warning(place: Span, note: &str) -> TokenStream {
    let name = Ident::new("redis_lock_warning", Span::call_site().located_at(place));
    quote! {
        #[deprecated(note = #note)]
        macro_rules! #name { () => {} }
        #name!();
    }
}
