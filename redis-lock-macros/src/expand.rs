//! Expands options and function to the function that takes the lock.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Expr, Item, Path, Type, parse_quote};

use crate::body::Expansion;
use crate::diagnostics::Mistakes;
use crate::function::{Function, Shape};
use crate::options::{self, Options};
use crate::tokens::block;
use crate::{companion, key, manifest, request};

/// Expands the attribute. When anything is wrong, the function is emitted unchanged beside the
/// errors, so that its callers cause no more errors.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let options = options::parse(arguments, &mut mistakes);
    options::check(&options, &mut mistakes);
    request::check(&options, &mut mistakes);
    companion::check(&options, &mut mistakes);
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            mistakes.add(error);
            let errors = mistakes.into_tokens();
            // In the place of a closure or a block there is room for one expression.
            let is_item = syn::parse2::<Item>(item.clone()).is_ok();
            let is_expression = !is_item && syn::parse2::<Expr>(item.clone()).is_ok();
            return if is_expression { errors } else { quote!(#item #errors) };
        }
    };
    function.check(&mut mistakes);
    options::check_within(&options, &function, &mut mistakes);
    let (shape, returned) = function.shape(options.on_error.is_some(), &mut mistakes);
    if let (Shape::Sync, Some(newest), None) = (&shape, &options.newest, &options.guard) {
        mistakes.at(&newest.name, BLOCKING_NEWEST);
    }
    let krate: Path =
        options.krate.as_ref().map_or_else(|| parse_quote!(::redis_locks), |k| k.value.clone());
    if options.krate.is_none()
        && let Some(name) = manifest::other_name()
    {
        mistakes.add(syn::Error::new(Span::call_site(), manifest::advice(name)));
    }
    let key = match &options.key {
        Some(key) => {
            let prefix = options.prefix.as_ref().map(|prefix| &prefix.value);
            let scope = key::Scope::of(&function, prefix, &krate);
            Some(key::expand(&key.value, &scope, &mut mistakes))
        }
        None => {
            if !options.tries_a_key() {
                mistakes.add(syn::Error::new(Span::call_site(), MISSING_KEY));
            }
            None
        }
    };
    match key {
        Some(key) if mistakes.is_empty() => {
            let expansion = Expansion::new(&options, &function, key, krate, returned);
            let (function, companion) = (expansion.expand(&shape), expansion.companion());
            quote!(#function #companion)
        }
        _ => {
            let never = quote!(#krate::__private_0_1::never());
            let companion = companion::companion(&options, &function, &krate, &never);
            let function = unlocked(&function, &options, &krate);
            let errors = mistakes.into_tokens();
            quote!(#function #companion #errors)
        }
    }
}

const BLOCKING_NEWEST: &str = "a blocking body can't be stopped, so it has to look whether a newer call has \
                               come: add `guard = lock` and end the body when `lock.is_superseded()`";

const MISSING_KEY: &str = "missing `key`: name what is locked, e.g. \
                           `#[redis_lock(key = \"order:{order_id}\")]`";

/// The unchanged function, with the names that the attribute would have bound.
fn unlocked(function: &Function, options: &Options, krate: &Path) -> TokenStream {
    let fence = options.fence.iter().map(|fence| (&fence.value, parse_quote!(u64)));
    let guard = options.guard.iter().map(|guard| (&guard.value, parse_quote!(&#krate::Guard)));
    let slot = options.slot.iter().map(|slot| (&slot.value, parse_quote!(u32)));
    let bound: Vec<(&Ident, Type)> = fence.chain(guard).chain(slot).collect();
    // What the attribute meant to use can't be known, and rustc would report it as unused.
    let used = function.names().into_iter();
    let used: Vec<TokenStream> = used.map(|(name, cfg)| quote!(#(#cfg)* let _ = &#name;)).collect();
    let content = if bound.is_empty() && used.is_empty() {
        function.body.stream()
    } else {
        let (names, types): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
        let body = block(&function.body);
        quote! {
            #(#used)*
            #(
                let #names = match ::core::option::Option::None::<#types> {
                    ::core::option::Option::Some(value) => value,
                    ::core::option::Option::None => ::core::unimplemented!(),
                };
                let _ = &#names;
            )*
            #body
        }
    };
    function.with_body_only(content)
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenTree;

    use super::*;

    fn expanded(arguments: TokenStream, item: TokenStream) -> String {
        expand(arguments, item).to_string()
    }

    #[test]
    fn the_body_appears_once() {
        for item in [
            quote!(
                async fn f(n: u32) -> R<u32> {
                    the_body(n)
                }
            ),
            quote!(
                fn f(n: u32) -> R<u32> {
                    the_body(n)
                }
            ),
            quote!(
                fn f(n: u32) -> BoxFuture<R<u32>> {
                    Box::pin(async move { the_body(n) })
                }
            ),
        ] {
            let tokens = expanded(quote!(key = "k:{n}", on_busy = Ok(0)), item);
            assert_eq!(tokens.matches("the_body").count(), 1, "{tokens}");
            assert!(!tokens.contains("compile_error"), "{tokens}");
        }
    }

    #[test]
    fn the_literal_is_passed_on_untouched() {
        let tokens = expanded(
            quote!(key = r#"{{a}}:{n:>08}"#),
            quote!(
                fn f(n: u32) -> R<u32> {
                    n
                }
            ),
        );
        assert!(tokens.contains(r##"r#"{{a}}:{n:>08}"#"##), "{tokens}");
    }

    #[test]
    fn errors_keep_the_function() {
        let item = quote!(
            const fn f(n: u32) -> R<u32> {
                the_body(n)
            }
        );
        let tokens = expanded(quote!(kee = "k", ttl = "1s", ttl = "2s", fair = maybe), item);
        assert!(tokens.starts_with("const fn f (n : u32) -> R < u32 > {"), "{tokens}");
        assert!(tokens.contains("{ the_body (n) }"), "{tokens}");
        assert_eq!(tokens.matches("compile_error").count(), 3, "{tokens}");
        let tokens = expanded(
            quote!(key = "k"),
            quote!(
                struct S;
            ),
        );
        assert!(tokens.starts_with("struct S ;"), "{tokens}");
    }

    /// Counts tokens, groups by their content.
    fn count(tokens: TokenStream) -> usize {
        let count_one = |tree| match tree {
            TokenTree::Group(group) => 2 + count(group.stream()),
            _ => 1,
        };
        tokens.into_iter().map(count_one).sum()
    }

    #[test]
    fn the_generated_code_stays_small() {
        let plain = quote!(
            async fn charge(order_id: u64) -> Result<u64, E> {
                Ok(order_id)
            }
        );
        let blocking = quote!(
            fn charge(order_id: u64) -> Result<u64, E> {
                Ok(order_id)
            }
        );
        for (name, item, most) in [("async", plain, 480), ("blocking", blocking, 400)] {
            let before = count(item.clone());
            let after = count(expand(quote!(key = "order:{order_id}", ttl = "30s"), item));
            println!("{name}: {before} tokens plain, {after} annotated");
            assert!(after - before <= most, "{name}: {after} tokens");
        }
    }

    #[test]
    fn half_a_body_is_kept_as_tokens() {
        let tokens = expanded(quote!(key = "k"), quote!(async fn f(v: V) -> R<()> { v. }));
        assert!(tokens.contains("{ v . }") && !tokens.contains("compile_error"), "{tokens}");
    }
}
