//! `key!("user:{name}")`: a key by the rules of the attribute's templates, as an expression.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;
use syn::parse::{ParseStream, Parser};

use crate::diagnostics::Mistakes;
use crate::key::{self, Key, Scope};
use crate::options;

/// Input: `$crate "user:{name}", more = arguments`
///
/// Output: an expression of the type `Result<LockKey, LockError>`.
pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let read = |input: ParseStream<'_>| {
        let krate = input.call(Path::parse_mod_style)?;
        let source = options::token_form(input).map_err(|error| mistakes.add(error)).ok();
        // What could not be read has been reported.
        let _: TokenStream = input.parse()?;
        Ok((krate, source))
    };
    let (krate, source) = match read.parse2(input) {
        Ok(read) => read,
        Err(error) => return error.to_compile_error(),
    };
    let key =
        source.map(|source| key::expand(&source, &Scope::inline(&source, &krate), &mut mistakes));
    match key {
        Some(Key::Constant(key)) if mistakes.is_empty() => {
            quote!(::core::result::Result::<#krate::LockKey, #krate::LockError>::Ok(#key))
        }
        Some(Key::Rendered(key)) if mistakes.is_empty() => key,
        _ => {
            let errors = mistakes.into_tokens();
            let ty = quote!(::core::result::Result<#krate::LockKey, #krate::LockError>);
            quote!({ #errors #krate::__private_0_1::never::<#ty>() })
        }
    }
}
