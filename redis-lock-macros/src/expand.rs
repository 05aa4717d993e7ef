//! From options and function to the function that takes the lock.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Path, Type, parse_quote};

use crate::diagnostics::Mistakes;
use crate::function::{Argument, Binding, Function, Shape};
use crate::key::{self, Key};
use crate::options::{self, KeySource, Kind, Lease, OnLost, Options, Release, Waiting};
use crate::returns;

/// Expands the attribute. When anything is wrong, the errors come with the function as it was, so
/// that nothing else breaks for want of it.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let options = options::parse(arguments, &mut mistakes);
    options::check(&options, &mut mistakes);
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            mistakes.add(error);
            let errors = mistakes.into_tokens();
            return quote!(#item #errors);
        }
    };
    function.check(&mut mistakes);
    let (shape, returned) = function.shape(&mut mistakes);
    let krate: Path =
        options.krate.as_ref().map_or_else(|| parse_quote!(::redis_locks), |k| k.value.clone());
    let key = match &options.key {
        Some(key) => {
            let scope = key::Scope::of(&function, &krate);
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
            Expansion { options: &options, function: &function, key, krate, returned }
                .expand(&shape)
        }
        _ => {
            let function = unlocked(&function, &options, &krate);
            let errors = mistakes.into_tokens();
            quote!(#function #errors)
        }
    }
}

const MISSING_KEY: &str = "missing `key`: name what is locked, e.g. \
                           `#[redis_lock(key = \"order:{order_id}\")]`";

/// The function as it was, with the names that the attribute would have bound.
fn unlocked(function: &Function, options: &Options, krate: &Path) -> TokenStream {
    let fence = options.fence.iter().map(|fence| (&fence.value, parse_quote!(u64)));
    let guard = options.guard.iter().map(|guard| (&guard.value, parse_quote!(&#krate::Guard)));
    let bound: Vec<(&Ident, Type)> = fence.chain(guard).collect();
    let content = if bound.is_empty() {
        function.body.stream()
    } else {
        let (names, types): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
        let body = &function.body;
        quote!(#(let #names: #types = ::core::unimplemented!();)* #body)
    };
    let function = function.with_body_only(content);
    // What only the key uses would be reported as unused.
    quote!(#[allow(unused, clippy::all)] #function)
}

/// Everything that is known, with nothing wrong in it.
struct Expansion<'a> {
    options: &'a Options,
    function: &'a Function,
    key: Key,
    krate: Path,
    /// What the function, or its future, yields.
    returned: Type,
}

impl Expansion<'_> {
    fn expand(&self, shape: &Shape) -> TokenStream {
        match shape {
            Shape::Async => {
                let arguments = self.function.arguments();
                let inside = self.rebind(&arguments);
                let boxed = arguments.iter().any(|argument| !returns::is_small(&argument.ty));
                let content =
                    self.asynchronous(&quote!(async move), inside, &self.function.body, boxed);
                self.function.with_body(content)
            }
            Shape::Future(block) => {
                let content =
                    self.asynchronous(&block.keywords, TokenStream::new(), &block.content, false);
                self.function.with_body_only(block.replaced(content))
            }
            Shape::Sync => {
                let arguments = self.function.arguments();
                let content = self.blocking(self.rebind(&arguments));
                self.function.with_body(content)
            }
        }
    }

    /// Input: `{ body }` of `async fn charge(order_id: u64) -> Result<u64, E>`
    ///
    /// Output:
    /// ```text
    /// match &__private::scope::<Result<u64, E>>(concat!(module_path!(), "::charge")) {
    ///     __scope => {
    ///         let __body = pin!(Some(async move {
    ///             if let Some(__value) = None::<Result<u64, E>> { return __value; } // what it yields
    ///             let order_id = order_id; // dropped before the release
    ///             let __request = …;
    ///             match __scope.acquire(__request).await {
    ///                 Err(__error) => return __scope.failed(__error),
    ///                 Ok(_) => { body }
    ///             }
    ///         }));
    ///         return __private::run(__scope, __body).await;
    ///     }
    /// }
    /// ```
    fn asynchronous(
        &self,
        keywords: &TokenStream,
        inside: TokenStream,
        body: &Group,
        boxed: bool,
    ) -> TokenStream {
        let krate = &self.krate;
        let scope_name = local("__scope");
        let body_name = local("__body");
        let value = local("__value");
        let scope = self.scope();
        let output = self.output();
        let span = returns::span(&self.returned);
        let edge = quote_spanned! {span=>
            if let ::core::option::Option::Some(#value) = ::core::option::Option::None::<#output> {
                #[allow(unreachable_code)]
                return #value;
            }
        };
        let locked = self.locked(&quote!(acquire), &quote!(.await), body);
        let block = quote!(#keywords { #edge #inside #locked });
        let block = if boxed { quote!(#krate::__private::Box::pin(#block)) } else { block };
        quote! {
            // A `match`, so that nothing of ours is bound by a `let` of the function: see `locked`.
            match &#scope {
                #scope_name => {
                    let #body_name = ::core::pin::pin!(::core::option::Option::Some(#block));

                    return #krate::__private::run(#scope_name, #body_name).await;
                }
            }
        }
    }

    /// As [`asynchronous`](Self::asynchronous), with a closure for the block: inference and
    /// coercions come from the closure's expected type.
    fn blocking(&self, inside: TokenStream) -> TokenStream {
        let krate = &self.krate;
        let scope_name = local("__scope");
        let scope = self.scope();
        let locked =
            self.locked(&quote!(blocking_acquire), &TokenStream::new(), &self.function.body);
        quote! {
            match &#scope {
                #scope_name => {

                    return #krate::__private::blocking_run(#scope_name, move || { #inside #locked });
                }
            }
        }
    }

    /// The scope that holds the guard while the body runs, and knows how to report a failure.
    fn scope(&self) -> TokenStream {
        let output = self.output();
        // rustc reports an unfit return type where this call stands, so it stands there.
        let span = returns::span(&self.returned);
        let krate = located(self.krate.to_token_stream(), span);
        let name = self.function.signature.ident.to_string();
        let name = format!("::{}", name.strip_prefix("r#").unwrap_or(&name));
        let label = quote_spanned!(span=> ::core::concat!(::core::module_path!(), #name));
        let mut scope = match &self.options.on_error {
            None => quote_spanned!(span=> #krate::__private::scope::<#output>(#label)),
            Some(on_error) => {
                let on_error = &on_error.value;
                // A type that is inferred cannot be asked whether it is a `Result`.
                let own = match &output {
                    Type::Infer(_) => quote_spanned!(span=> #krate::__private::never_own_error),
                    output => quote_spanned!(span=> {
                        #[allow(unused_imports)]
                        use #krate::__private::AnyOutput as _;
                        #krate::__private::Output::<#output>::is_own_error
                    }),
                };
                quote_spanned!(span=> #krate::__private::scope_or::<#output, _>(#label, #own, #on_error))
            }
        };
        if self.options.on_lost.as_ref().is_some_and(|it| it.value == OnLost::Finish) {
            scope.extend(quote!(.finish()));
        }
        if self.options.release.as_ref().is_some_and(|it| it.value == Release::Background) {
            scope.extend(quote!(.background()));
        }
        scope
    }

    fn output(&self) -> Type {
        returns::without_impl(self.returned.clone())
    }

    /// Builds the request, takes the lock, and runs the body or leaves.
    ///
    /// The body is an arm and not what follows, because a `let` of the guard is what
    /// `clippy::significant_drop_tightening` would speak about.
    fn locked(&self, method: &TokenStream, wait: &TokenStream, body: &Group) -> TokenStream {
        let krate = &self.krate;
        let (scope, request, error) = (local("__scope"), local("__request"), local("__error"));
        let made = self.request();
        let busy = self.options.on_busy.as_ref().map(|busy| {
            let value = &busy.value;
            quote! {
                ::core::result::Result::Err(#error) if #krate::LockError::is_busy(&#error) => return #value,
            }
        });
        let body = block(body);
        let guard = match (&self.options.guard, &self.options.fence) {
            (Some(guard), _) => guard.value.clone(),
            (None, Some(_)) => local("__guard"),
            (None, None) => Ident::new("_", Span::call_site()),
        };
        let body = match &self.options.fence {
            Some(fence) => {
                let number = &fence.value;
                quote!(match #krate::__private::fence(#guard) { #number => { #body } })
            }
            None => body.to_token_stream(),
        };
        quote! {
            let #request = #made;
            match #scope.#method(#request)#wait {
                #busy
                ::core::result::Result::Err(#error) => return #scope.failed(#error),
                ::core::result::Result::Ok(#guard) => { #body }
            }
        }
    }

    /// `Result<Request, LockError>`
    fn request(&self) -> TokenStream {
        let krate = &self.krate;
        let (locks, key, error) = (local("__locks"), local("__key"), local("__error"));
        let ok = quote!(::core::result::Result::Ok);
        let err = quote!(::core::result::Result::Err);
        let built = |key: TokenStream| {
            let built = self.built(&quote!(#locks), key);
            quote!(#ok(#built))
        };
        let with_key = match &self.key {
            Key::Constant(tokens) | Key::Iterator(tokens) => built(tokens.clone()),
            Key::Rendered(tokens) | Key::Several(tokens) => {
                let built = built(quote!(#key));
                quote!(match #tokens { #ok(#key) => #built, #err(#error) => #err(#error) })
            }
        };
        match &self.options.via {
            Some(via) => {
                let via = &via.value;
                let span = first_span(via.to_token_stream());
                let borrowed = quote_spanned!(span=> &(#via));
                quote!({ let #locks: &#krate::Locks = #borrowed; #with_key })
            }
            None => quote! {
                match #krate::Locks::global() {
                    #ok(ref #locks) => #with_key,
                    #err(#error) => #err(#error),
                }
            },
        }
    }

    /// `locks.mutex(key).ttl(..).wait(..)`, under the names the user wrote.
    fn built(&self, locks: &TokenStream, key: TokenStream) -> TokenStream {
        let options = self.options;
        let mut call = match &options.kind {
            Some(kind) => {
                let method = Ident::new(kind.value.method(), kind.name.span());
                match &kind.value {
                    Kind::Read | Kind::Write => quote!(#locks.#method(#key)),
                    Kind::Permits(limit) => quote!(#locks.#method(#key, #limit)),
                }
            }
            None => match &options.key {
                Some(key_setting) if !matches!(key_setting.value, KeySource::Template(..)) => {
                    quote!(#locks.all(#key))
                }
                _ => quote!(#locks.mutex(#key)),
            },
        };
        if let Some(ttl) = &options.ttl {
            call.extend(match &ttl.value {
                Lease::Never(_) => option("never_expires", &ttl.name, TokenStream::new()),
                Lease::For(time) => option("ttl", &ttl.name, quote!(#time)),
            });
        }
        if let Some(wait) = &options.wait {
            call.extend(match &wait.value {
                Waiting::Forever(_) => option("wait_forever", &wait.name, TokenStream::new()),
                Waiting::None => option("no_wait", &wait.name, TokenStream::new()),
                Waiting::For(time) => option("wait", &wait.name, quote!(#time)),
            });
        }
        for (method, setting) in [("renew", &options.renew), ("fair", &options.fair)] {
            if let Some(setting) = setting {
                let value = &setting.value;
                call.extend(option(method, &setting.name, quote!(#value)));
            }
        }
        for (method, setting) in [
            ("max_hold", &options.max_hold),
            ("min_hold", &options.min_hold),
            ("repair_orphan", &options.repair_orphan),
        ] {
            if let Some(setting) = setting {
                let value = &setting.value;
                call.extend(option(method, &setting.name, quote!(#value)));
            }
        }
        if let Some(fence) = &options.fence {
            call.extend(option("fenced", &fence.name, TokenStream::new()));
        }
        if let Some(reentrant) = &options.reentrant {
            call.extend(option("reentrant", &reentrant.name, TokenStream::new()));
        }
        call
    }

    /// Moves every argument into the body, where it is dropped before the lock is released, in the
    /// order of the plain function.
    fn rebind(&self, arguments: &[Argument]) -> TokenStream {
        let receiver = self.function.owns_receiver().then(|| {
            let this = Ident::new("self", self_span(self.function));
            quote!(let _ = &#this;)
        });
        // What only `on_error` uses is used, although that happens outside of the body.
        let used = self.options.on_error.as_ref().map(|it| words(it.value.to_token_stream()));
        let used = used.unwrap_or_default();
        let arguments = arguments.iter().map(|argument| {
            let Argument { attributes, name, binding, .. } = argument;
            let quiet = quote! {
                #[allow(clippy::shadow_same, clippy::used_underscore_binding, clippy::no_effect_underscore_binding)]
            };
            match binding {
                Binding::Name(mutability) => {
                    let used = used.contains(name).then(|| quote!(#(#attributes)* let _ = &#name;));
                    quote!(#(#attributes)* #quiet let #mutability #name = #name; #used)
                }
                Binding::Nothing => quote!(#(#attributes)* #quiet let #name = #name;),
                Binding::Pattern(pattern) => {
                    let whole = quote!(#(#attributes)* #quiet let #name = #name;);
                    quote!(#whole #(#attributes)* #quiet let #pattern = #name;)
                }
            }
        });
        quote!(#receiver #(#arguments)*)
    }
}

/// `.ttl(value)`, with the method named where the user wrote the option.
fn option(method: &str, written: &Ident, value: TokenStream) -> TokenStream {
    let method = Ident::new(method, written.span());
    quote!(.#method(#value))
}

/// A name that the user's code cannot see.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// The tokens, all of them standing at `span`.
pub(crate) fn located(tokens: TokenStream, span: Span) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut tree| {
            if let TokenTree::Group(group) = &tree {
                let stream = located(group.stream(), span);
                tree = Group::new(group.delimiter(), stream).into();
            }
            tree.set_span(span);
            tree
        })
        .collect()
}

/// Where the tokens begin, for tokens of ours that stand for them.
pub(crate) fn first_span(tokens: TokenStream) -> Span {
    let first = tokens.into_iter().next();
    first.map_or_else(Span::call_site, |first| Span::call_site().located_at(first.span()))
}

/// Every identifier in the tokens.
fn words(tokens: TokenStream) -> HashSet<Ident> {
    let words = tokens.into_iter().flat_map(|tree| match tree {
        TokenTree::Ident(word) => HashSet::from([word]),
        TokenTree::Group(group) => words(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => HashSet::new(),
    });
    words.collect()
}

fn self_span(function: &Function) -> Span {
    function.signature.receiver().map_or_else(Span::call_site, |receiver| receiver.self_token.span)
}

/// The user's braces, as a block of its own. Under their own span rustc would call them
/// unnecessary; under the attribute's, it would point there for a missing value.
fn block(body: &Group) -> Group {
    let mut block = Group::new(Delimiter::Brace, body.stream());
    block.set_span(Span::mixed_site().located_at(body.span()));
    block
}

#[cfg(test)]
mod tests {
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
        assert!(tokens.contains("const fn f (n : u32) -> R < u32 > { the_body (n) }"), "{tokens}");
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
