//! Generates the body that acquires the lock, runs the user's body, and releases the lock.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, Path, ReceiverKind, Type};

use crate::function::{Argument, Function, Shape};
use crate::key::Key;
use crate::options::{OnLost, Options, Release, Setting};
use crate::rebind::{self, Kept};
use crate::tokens::{block, local, located, unraw, words};
use crate::{companion, diagnostics, request, returns};

/// The checked options and function.
pub(crate) struct Expansion<'a> {
    options: &'a Options,
    function: &'a Function,
    key: Key,
    krate: Path,
    /// The crate at the position of the return type: rustc reports an unsuitable return type at the
    /// position of the call.
    krate_at_return: TokenStream,
    /// What the function, or its future, yields.
    returned: Type,
    /// Where that type stands.
    span: Span,
}

impl<'a> Expansion<'a> {
    pub(crate) fn new(
        options: &'a Options,
        function: &'a Function,
        key: Key,
        krate: Path,
        returned: Type,
    ) -> Self {
        let span = returns::span(&returned);
        let krate_at_return = located(krate.to_token_stream(), span);
        Self { options, function, key, krate, krate_at_return, returned, span }
    }

    pub(crate) fn expand(&self, shape: &Shape) -> TokenStream {
        match shape {
            Shape::Async => {
                let arguments = self.function.arguments();
                let content = self.asynchronous(&self.function.body, Some(&arguments));
                let copies = rebind::copies(&arguments, &self.kept(), &self.krate);
                self.function.with_body(quote!(#copies #content))
            }
            Shape::Future(future) => {
                let content = future.only.clone().unwrap_or_else(|| self.whole_body());
                let span = content.span();
                // Variables that the block captures have to be moved into the body.
                let content = self.asynchronous(&content, None);
                self.function.with_body_only(future.replaced(content, span))
            }
            Shape::Sync => {
                let arguments = self.function.arguments();
                let content = self.blocking(&arguments);
                let copies = rebind::copies(&arguments, &self.kept(), &self.krate);
                self.function.with_body(quote!(#copies #content))
            }
        }
    }

    /// The body of a function that makes its future in more than one statement. All of it runs
    /// under the lock, and the future that it returns, by whatever path, is awaited there.
    fn whole_body(&self) -> Group {
        let krate = &self.krate;
        let signature = &self.function.signature;
        let made = returns::returned(&signature.output, &signature.ident);
        let made = returns::without_impl(made);
        let body = block(&self.function.body);
        let content = quote!(#krate::__private_0_1::call::<#made, _>(move || #body).await);
        let mut group = Group::new(Delimiter::Brace, content);
        group.set_span(self.function.body.span());
        group
    }

    /// Input: `{ body }` of `async fn charge(order_id: u64) -> Result<u64, E>`
    ///
    /// Output:
    /// ```text
    /// match &{ let scope = Scope::asking(LABEL, "order:{order_id}", &[Fixed::ttl(..)], None, render(format_args!(..))); scope } {
    ///     scope => {
    ///         let body = pin!(async move {
    ///             if false { return never::<Result<u64, E>>(); } // what it yields
    ///             let order_id = order_id; // dropped before the release
    ///             { body }
    ///         });
    ///         return __private::run(scope, ending::<Result<u64, E>>(), body).await;
    ///     }
    /// }
    /// ```
    /// If only the body can compute the key, the body requests the lock.
    fn asynchronous(&self, body: &Group, arguments: Option<&[Argument]>) -> TokenStream {
        let asks_before = arguments.is_some() && request::is_plain(self.options, self.function);
        let named = if asks_before { request::named(self.options) } else { HashSet::new() };
        let rebinding = arguments.map(|it| rebind::inside(self.function, it, &self.kept(), &named));
        let asked = if asks_before {
            request::used(&named, self.function)
        } else {
            let (scope, request, made) = (local("scope"), local("request"), self.request(true));
            quote!(#made #scope.ask(#request);)
        };
        let (edge, acquired) = (self.edge(), self.acquired(body, !asks_before));
        let keywords = if self.lends() { quote!(async) } else { quote!(async move) };
        let content = quote!(#keywords { #edge #rebinding #asked #acquired });
        let run = self.run(&self.placed(content, arguments.unwrap_or_default()));
        if !asks_before {
            return self.within_scope(run);
        }
        let asking = request::asking(self.options, &self.key, &self.fixed(), &self.krate);
        self.within(&asking, run)
    }

    /// Tells rustc the type of the body's value before it reads the body.
    fn edge(&self) -> TokenStream {
        let krate = &self.krate_at_return;
        let output = self.output();
        let span = self.span;
        quote_spanned!(span=> if false { return #krate::__private_0_1::never::<#output>(); })
    }

    /// What polls the body, and what is returned when the lock failed.
    fn run(&self, content: &TokenStream) -> TokenStream {
        let krate = &self.krate;
        let (scope, body, ended) = (local("scope"), local("body"), local("ended"));
        let pinned = quote!(let #body = ::core::pin::pin!(#content););
        if !self.has_handler() {
            let ending = self.ending();
            return quote!(#pinned return #krate::__private_0_1::run(#scope, #ending, #body).await;);
        }
        let call = self.run_or("run_or", &body.to_token_stream());
        // The body and its borrows end here, so that `on_error` may use what it borrowed.
        let ended = quote!({ #pinned let #ended = #call.await; #ended });
        // `on_error` does not run under the lock either.
        let ended = quote!(#krate::__private_0_1::left(#scope, #ended));
        self.handled(&ended, false)
    }

    /// As [`asynchronous`](Self::asynchronous), with a closure for the block: inference and
    /// coercions come from the closure's expected type.
    fn blocking(&self, arguments: &[Argument]) -> TokenStream {
        let krate = &self.krate_at_return;
        let scope = local("scope");
        let output = self.output();
        let keyword = (!self.lends()).then(|| quote!(move));
        let request = self.request(false);
        let run = if !self.has_handler() {
            let rebinding = rebind::inside(self.function, arguments, &self.kept(), &HashSet::new());
            let acquired = self.blocking_acquired(&block(&self.function.body).into_token_stream());
            let ending = local("ending");
            let (of_type, krate) = (self.ending(), &self.krate);
            quote! {
                match &#of_type {
                    #ending => {
                        return #krate::__private_0_1::blocking_run(
                            #scope, #ending, #keyword || { #rebinding #request #acquired },
                        );
                    }
                }
            }
        } else {
            let outer = rebind::patterns(arguments);
            let taken = request::taken(self.options, &self.krate);
            let inner = rebind::names(self.function, arguments, &self.kept(), &taken);
            let used = self.used_around_the_body(&taken);
            let body = block(&self.function.body);
            let body = quote! {
                ::core::result::Result::Ok(
                    #krate::__private_0_1::call::<#output, _>(#keyword || { #inner #used #body })
                )
            };
            let acquired = self.blocking_acquired(&body);
            let run = quote!(#keyword || { #outer #request #acquired });
            let ended = self.run_or("blocking_run_or", &run);
            self.handled(&ended, true)
        };
        let checks = self.checks();
        self.within_scope(quote!(#checks #run))
    }

    /// Has rustc refuse what holds a future behind a name, which would run without the lock.
    fn checks(&self) -> TokenStream {
        let check = |ty: &Type, method| {
            let span = returns::span(ty);
            let krate = located(self.krate.to_token_stream(), span);
            let method = Ident::new(method, span);
            quote_spanned!(span=> #krate::__private_0_1::Output::<#ty>::new().#method();)
        };
        // With a handler the type itself is asked what its own errors are.
        let is_unasked = self.options.on_error.is_none() && !returns::has_impl(&self.returned);
        let whole = is_unasked.then(|| check(&self.returned, "result_holds_no_future"));
        let parts = returns::elements(&self.returned).into_iter();
        whole.into_iter().chain(parts.map(|ty| check(ty, "holds_no_future"))).collect()
    }

    /// `match ended { Ok(value) => return value, Err(error) => return on_error(error) }`
    fn handled(&self, ended: &TokenStream, is_blocking: bool) -> TokenStream {
        let krate = &self.krate_at_return;
        let (value, error) = (local("value"), local("error"));
        let output = self.output();
        let handler = self.handler();
        // An inferred type is only known from the value.
        let seen = (is_blocking && returns::has_impl(&self.returned)).then(|| {
            let span = self.span;
            quote_spanned!(span=> let _ = #krate::__private_0_1::output_of(&#value).own_error();)
        });
        quote! {
            match #ended {
                ::core::result::Result::Ok(#value) => { #seen return #value; }
                ::core::result::Result::Err(#error) => {
                    return #krate::__private_0_1::handled::<#output, _>(#error, #handler);
                }
            }
        }
    }

    /// Marks arguments as used that only the request, `on_busy` and `on_done` use, except those that are `taken`.
    fn used_around_the_body(&self, taken: &HashSet<String>) -> TokenStream {
        let mut named = request::named(self.options);
        named.extend(self.options.answers().flat_map(|it| words(it.to_token_stream()).into_keys()));
        named.retain(|name| !taken.contains(name));
        request::used(&named, self.function)
    }

    /// The function that tells the body's own errors from its other values.
    fn own_error(&self) -> TokenStream {
        let krate = &self.krate_at_return;
        let span = self.span;
        match self.output() {
            // A type that is inferred cannot be asked whether it is a `Result`.
            Type::Infer(_) => quote_spanned!(span=> #krate::__private_0_1::never_own_error),
            // The inferred parts could be futures, and rustc would take them to be futures.
            output
                if self.function.signature.asyncness.is_none()
                    && !returns::has_impl(&self.returned) =>
            {
                quote_spanned!(span=> #krate::__private_0_1::Output::<#output>::new().own_error())
            }
            // The output of an `async fn` is a value, even if it is a future.
            output => {
                quote_spanned!(span=> #krate::__private_0_1::Output::<#output>::new().own_error_of_value())
            }
        }
    }

    /// In a scope that has not requested a lock yet.
    fn within_scope(&self, run: TokenStream) -> TokenStream {
        let krate = &self.krate;
        let fixed = self.fixed();
        self.within(&quote!(#krate::__private_0_1::Scope::new(#fixed)), run)
    }

    /// A `match`, so that a `let` of the function can't see our variables.
    fn within(&self, made: &TokenStream, run: TokenStream) -> TokenStream {
        let (scope, shadowed) = (local("scope"), self.shadowed());
        quote!(#shadowed match &#made { #scope => { #run } })
    }

    /// Warns of a guard or a number that takes the name of an argument.
    fn shadowed(&self) -> TokenStream {
        let names = self.function.names();
        let bound = self.options.bindings();
        let shadows = bound.filter(|it| names.iter().any(|(name, _)| *name == it.value));
        let warnings = shadows.map(|Setting { name, value }| {
            let note = format!(
                "`{name} = {value}` hides the argument `{value}` from the body; choose another name"
            );
            diagnostics::warning(value.span(), &note)
        });
        warnings.map(|warning| quote!({ #warning })).collect()
    }

    /// The function that makes the same request, if the options ask for it.
    pub(crate) fn companion(&self) -> Option<TokenStream> {
        let content = companion::content(self.options, &self.key, &self.krate, &self.fixed());
        companion::companion(self.options, self.function, &self.krate, &content)
    }

    /// What is known at compile time: the function's path, the template of the key, and a list of
    /// options.
    fn fixed(&self) -> TokenStream {
        let krate = &self.krate;
        let owner = self.options.owner.as_ref().map(|owner| format!("::{owner}"));
        let name = unraw(&self.function.signature.ident);
        let name = format!("{}::{name}", owner.unwrap_or_default());
        let prefix = self.options.prefix.as_ref().map(|it| it.value.value()).unwrap_or_default();
        let lock = self.options.key.as_ref().map(|key| key.value.title(&prefix));
        let known = request::known(self.options, krate);
        let options = self.options;
        let own = [
            ("finish", options.on_lost.as_ref().is_some_and(|it| it.value == OnLost::Finish)),
            (
                "background",
                options.release.as_ref().is_some_and(|it| it.value == Release::Background),
            ),
            ("answer_busy", options.on_busy.is_some()),
            ("answer_done", options.on_done.is_some()),
        ];
        let own = own.into_iter().filter(|(_, is_set)| *is_set);
        let own = own.map(|(name, _)| Ident::new(name, Span::call_site()));
        quote! {
            ::core::concat!(::core::module_path!(), #name),
            #lock,
            &[#known #(#krate::__private_0_1::Fixed::#own,)*]
        }
    }

    fn request(&self, is_async: bool) -> TokenStream {
        request::made(self.options, &self.key, &self.krate, is_async)
    }

    /// The content in a box, because the future contains the arguments more than once, unless the syntax
    /// says that all of them are small.
    fn placed(&self, content: TokenStream, arguments: &[Argument]) -> TokenStream {
        let krate = &self.krate;
        match arguments.iter().all(|argument| returns::is_small(&argument.ty)) {
            true => content,
            false => quote!(#krate::__private_0_1::Box::pin(#content)),
        }
    }

    /// Waits for the lock and runs the body, or leaves with the value for a lock that is busy or done. When the lock
    /// fails otherwise, the body is dropped while it waits here.
    ///
    /// The body is an arm and not what follows, because a `let` of the guard is what
    /// `clippy::significant_drop_tightening` would speak about.
    ///
    /// A body that doesn't use the lock begins when the lock is held.
    fn acquired(&self, body: &Group, asks: bool) -> TokenStream {
        let scope = local("scope");
        let guard = self.guard();
        let needs_guard = self.options.bindings().next().is_some();
        let body = self.with_numbers(&block(body).into_token_stream(), &guard);
        let Options { on_busy, on_done, .. } = self.options;
        let refused = match (on_busy, on_done) {
            (None, None) if !asks && !needs_guard => return body,
            (None, None) => return quote!(match #scope.acquired().await { #guard => { #body } }),
            (Some(Setting { value, .. }), None) | (None, Some(Setting { value, .. })) => {
                quote!(return #value)
            }
            (Some(Setting { value: busy, .. }), Some(Setting { value: done, .. })) => {
                quote!({ if #scope.is_done() { return #done; } return #busy })
            }
        };
        quote! {
            match #scope.acquired_unless_refused().await {
                ::core::option::Option::None => #refused,
                ::core::option::Option::Some(#guard) => { #body }
            }
        }
    }

    fn blocking_acquired(&self, body: &TokenStream) -> TokenStream {
        let krate = &self.krate;
        let (scope, request, error) = (local("scope"), local("request"), local("error"));
        let guard = self.guard();
        let body = self.with_numbers(body, &guard);
        let has_handler = self.has_handler();
        let output = self.output();
        let answer = |answer: &Setting<Expr>| match &answer.value {
            value if has_handler => quote! {
                ::core::result::Result::Ok(#krate::__private_0_1::call::<#output, _>(|| #value))
            },
            value => value.to_token_stream(),
        };
        let busy = self.options.on_busy.as_ref().map(answer).map(|value| {
            quote! {
                ::core::result::Result::Err(#error) if #krate::LockError::is_busy(&#error) => return #value,
            }
        });
        let done = self.options.on_done.as_ref().map(answer).map(|value| {
            quote!(::core::result::Result::Err(#krate::LockError::Done { .. }) => return #value,)
        });
        let failed = if has_handler {
            quote!(::core::result::Result::Err(#error))
        } else {
            let ending = local("ending");
            match self.options.passes_value_on() {
                Some(_) => quote!(#ending.refused(#scope, #error)),
                None => quote!(#ending.failed(#error)),
            }
        };
        quote! {
            match #scope.blocking_acquire(#request) {
                #busy
                #done
                ::core::result::Result::Err(#error) => return #failed,
                ::core::result::Result::Ok(#guard) => { #body }
            }
        }
    }

    /// The variable that the guard is bound to.
    fn guard(&self) -> Ident {
        match &self.options.guard {
            Some(guard) => guard.value.clone(),
            None if self.options.bindings().next().is_some() => local("guard"),
            None => Ident::new("_", Span::call_site()),
        }
    }

    /// The body with its fencing number and its slot.
    fn with_numbers(&self, body: &TokenStream, guard: &Ident) -> TokenStream {
        let krate = &self.krate;
        let numbers = [("fence", &self.options.fence), ("slot", &self.options.slot)];
        let numbers =
            numbers.into_iter().filter_map(|(call, it)| Some((call, &it.as_ref()?.value)));
        numbers.fold(body.clone(), |body, (call, name)| {
            let call = Ident::new(call, Span::call_site());
            quote!(match #krate::__private_0_1::#call(#guard) { #name => { #body } })
        })
    }

    fn output(&self) -> Type {
        returns::without_impl(self.returned.clone())
    }

    /// The names that `on_error` and `on_superseded` use.
    fn kept(&self) -> Kept {
        self.options.handlers().flat_map(|it| words(it.to_token_stream())).collect()
    }

    fn has_handler(&self) -> bool {
        self.options.handlers().next().is_some()
    }

    /// What makes the function's value of the lock's failure.
    fn handler(&self) -> TokenStream {
        let on_error = self.options.on_error.as_ref().map(|it| it.value.to_token_stream());
        let Some(Setting { value, .. }) = &self.options.on_superseded else {
            return on_error.unwrap_or_default();
        };
        let (krate, at_return, error) = (&self.krate, &self.krate_at_return, local("error"));
        let (output, span) = (self.output(), self.span);
        let failed = on_error.map_or_else(
            || quote_spanned!(span=> #at_return::__private_0_1::ending::<#output>().failed(#error)),
            |on_error| quote!(#krate::__private_0_1::handled::<#output, _>(#error, #on_error)),
        );
        quote! {
            |#error| match #error {
                #krate::LockError::Superseded { .. } => #value,
                #error => #failed,
            }
        }
    }

    /// How the function's value is passed on to other calls, if it is.
    fn codec(&self) -> Option<TokenStream> {
        let option = self.options.passes_value_on()?;
        let output = self.output();
        // A missing feature is reported there.
        let span = option.span();
        let krate = located(self.krate.to_token_stream(), span);
        Some(quote_spanned!(span=> #krate::__private_0_1::Output::<#output>::new().codec()))
    }

    /// The `ending` of a function without a handler.
    fn ending(&self) -> TokenStream {
        let (krate, output, span) = (&self.krate_at_return, self.output(), self.span);
        let ending = quote_spanned!(span=> #krate::__private_0_1::ending::<#output>());
        match self.codec() {
            Some(codec) => quote!(#ending.with(#codec)),
            None => ending,
        }
    }

    /// `run_or(scope, own, run)` or `run_or_with(scope, own, codec, run)`, or those for a body that blocks.
    fn run_or(&self, name: &str, run: &TokenStream) -> TokenStream {
        let (krate, output, scope) = (&self.krate_at_return, self.output(), local("scope"));
        let (own, codec) = (self.own_error(), self.codec());
        let with = if codec.is_some() { "_with" } else { "" };
        let name = Ident::new(&format!("{name}{with}"), self.span);
        let codec = codec.map(|codec| quote!(#codec,));
        let span = self.span;
        let call = quote_spanned!(span=> #krate::__private_0_1::#name::<#output, _>);
        quote!(#call(#scope, #own, #codec #run))
    }

    /// Whether the body only borrows what `on_error` uses afterwards: something behind a `&mut`.
    /// Everything else is moved into it, see `rebind`.
    fn lends(&self) -> bool {
        let kept = self.kept();
        if kept.is_empty() || self.function.owns_receiver() {
            return false;
        }
        let receiver = self.function.signature.receiver();
        let is_mutable = receiver.is_some_and(|receiver| match &receiver.kind {
            ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
            _ => false,
        });
        is_mutable && kept.contains_key("self")
            || self.function.arguments().iter().any(|argument| rebind::is_lent(argument, &kept))
    }
}
