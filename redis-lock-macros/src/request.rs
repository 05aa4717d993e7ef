//! Generates the request for the lock: the part that is known at compile time, and the part that
//! each call computes.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprLit, Lit, Path, UnOp};

use crate::diagnostics::Mistakes;
use crate::function::{Binding, Function};
use crate::key::Key;
use crate::leaving::{self, Way};
use crate::options::{Lease, Options, Setting, Time, Waiting};
use crate::tokens::{first_span, local, located, unraw, words};

/// `Fixed::ttl(..), Fixed::wait(..),` under the names that the user wrote.
pub(crate) fn known(options: &Options, krate: &Path) -> TokenStream {
    let kind = options.kind.as_ref().and_then(|Setting { name, value }| match &value.argument {
        Some(argument) if !is_literal(argument) => None,
        argument => Some(Call::of(value.call, name, argument.as_ref().map(|it| quote!(#it)))),
    });
    let known = kind.into_iter().chain(calls(options)).filter_map(|call| call.known(krate));
    quote!(#(#known,)*)
}

/// `let request = ..;`
///
/// As a separate statement, so that the borrows of `via` and the key end before the wait begins. No
/// expression of it may return a value from the function:
///
/// - A `?` stays in place if the function, or its closure around the request, returns a `Result`:
///   then it passes on an error and nothing else.
/// - Expressions with a `return` or a macro, which may do anything, go into a closure, or into an
///   async block if they await. Only an error of that is passed on.
pub(crate) fn made(options: &Options, key: &Key, krate: &Path, is_async: bool) -> TokenStream {
    let (request, scope, error) = (local("request"), local("scope"), local("error"));
    let methods = [quote!(#scope.request), quote!(#scope.request_all)];
    let made = from_key(options, key, krate, methods, None);
    let computed = computed(options, krate);
    let made = quote!(let #request = #made; #computed);
    let ways = leaving::ways(expressions(options));
    let has = |way| ways.contains(&way);
    let has_handler = options.handlers().next().is_some();
    if !has(Way::Return) && !has(Way::Macro) {
        // Without a handler the function returns a `Result` in any case, and the closure of a
        // blocking function does with one.
        let edge = (has(Way::Try) && has_handler && is_async).then(|| {
            let never = quote!(#krate::__private_0_1::never());
            quote!(if false { return #krate::__private_0_1::own_failure(#never); })
        });
        return quote!(#edge #made);
    }
    let awaits = is_async && has(Way::Await);
    let (ok, err) = (quote!(::core::result::Result::Ok), quote!(::core::result::Result::Err));
    let plain = quote!(::core::result::Result<#krate::LockRequest, #krate::LockError>);
    let passes_on = has(Way::Try) || has(Way::Return) && !has_handler;
    if !passes_on {
        let apart = apart(&quote!(#made #request), &plain, awaits, krate);
        return quote!(let #request = #apart;);
    }
    // The type of the error is that of the function.
    let ty = quote!(::core::result::Result<#plain, _>);
    let apart = apart(&quote!(#made #ok(#request)), &ty, awaits, krate);
    quote! {
        let #request = match #apart {
            #ok(#request) => #request,
            #err(#error) => return #krate::__private_0_1::own_failure(#error),
        };
    }
}

/// The value of these statements, which yield this type and cannot leave the function.
fn apart(statements: &TokenStream, ty: &TokenStream, awaits: bool, krate: &Path) -> TokenStream {
    if awaits {
        let edge = quote!(if false { return #krate::__private_0_1::never::<#ty>(); });
        return quote!(async { #edge #statements }.await);
    }
    quote!(#krate::__private_0_1::call::<#ty, _>(|| { #statements }))
}

/// A scope that asks for the lock, as an expression whose temporaries end with it.
pub(crate) fn asking(
    options: &Options,
    key: &Key,
    fixed: &TokenStream,
    krate: &Path,
) -> TokenStream {
    let scope = local("scope");
    let methods = ["asking", "asking_all"].map(|name| {
        let name = Ident::new(name, Span::mixed_site());
        quote!(#krate::__private_0_1::Scope::#name)
    });
    let asking = from_key(options, key, krate, methods, Some(quote!(#fixed,)));
    quote!({ let #scope = #asking; #scope })
}

/// Calls one of two functions, for one key or for several, with the manager and the key.
fn from_key(
    options: &Options,
    key: &Key,
    krate: &Path,
    [one, all]: [TokenStream; 2],
    first: Option<TokenStream>,
) -> TokenStream {
    let locks = local("locks");
    let ok = quote!(::core::result::Result::Ok);
    let given = match &options.via {
        None => quote!(::core::option::Option::None),
        Some(_) => quote!(::core::option::Option::Some(#locks)),
    };
    let tokens = match key {
        Key::Constant(key) => quote!(#one(#first #given, #ok(#key))),
        Key::Rendered(key) => quote!(#one(#first #given, #key)),
        Key::Several(keys) => quote!(#all(#first #given, #keys)),
        Key::Iterator(keys) => {
            quote!(#all(#first #given, #ok(#krate::__private_0_1::collected(#keys))))
        }
    };
    let Some(via) = &options.via else { return tokens };
    let via = via.value.to_token_stream();
    let span = first_span(via.clone());
    let borrowed = quote_spanned!(span=> &(#via));
    let there = Ident::new(&locks.to_string(), Span::mixed_site().located_at(span));
    let ty = located(quote!(#krate::Locks), span);
    let coerced = quote_spanned!(span=> let #there: &#ty = #there;);
    quote!(match #borrowed { #locks => { #coerced #tokens } })
}

/// Whether the request can be made outside of the body: no expression of it may leave the function
/// or await, and no part of a pattern is used, which only the body takes apart.
pub(crate) fn is_plain(options: &Options, function: &Function) -> bool {
    let has_patterns =
        || function.arguments().iter().any(|it| matches!(it.binding, Binding::Pattern(_)));
    let is_computed = || {
        let limit = options.kind.as_ref().and_then(|kind| kind.value.argument.as_ref());
        calls(options).iter().any(|call| call.constant.is_none())
            || limit.is_some_and(|limit| !is_literal(limit))
    };
    let Some(Setting { value: key, .. }) = &options.key else { return false };
    // An expression is moved into the key, so the body could not use it any more.
    !key.has_plain_keys()
        && places(options).into_iter().all(is_place)
        && !key.calls()
        && !has_patterns()
        && !is_computed()
}

/// The expressions of the key, and `via`.
fn places(options: &Options) -> Vec<&Expr> {
    let key = options.key.iter().flat_map(|key| key.value.expressions());
    key.chain(options.via.iter().map(|via| &via.value)).collect()
}

/// Reports a `return` of a value in an option: the body has not run yet.
pub(crate) fn check(options: &Options, mistakes: &mut Mistakes) {
    for found in leaving::values(expressions(options)) {
        let message = "an option may return an error from the function but no value, because the body has not run; write `return Err(…)`, or return the value from the body";
        mistakes.at(found, message);
    }
}

/// Every expression that the request is made of.
pub(crate) fn expressions(options: &Options) -> Vec<&Expr> {
    let ttl = options.ttl.iter().filter_map(|ttl| match &ttl.value {
        Lease::For(time) => time.expr(),
        Lease::Never(_) => None,
    });
    let wait = options.wait.iter().filter_map(|wait| match &wait.value {
        Waiting::For(time) => time.expr(),
        Waiting::Forever(_) | Waiting::None => None,
    });
    let times = options.times().into_iter().filter_map(|(_, time)| time.as_ref()?.value.expr());
    let plain = options.plain().into_iter().map(|(_, it)| it).chain([&options.same]);
    let plain = plain.filter_map(|it| Some(&it.as_ref()?.value));
    let limit = options.kind.iter().filter_map(|kind| kind.value.argument.as_ref());
    places(options)
        .into_iter()
        .chain(ttl)
        .chain(wait)
        .chain(times)
        .chain(plain)
        .chain(limit)
        .collect()
}

/// The names that the request is made of.
pub(crate) fn named(options: &Options) -> HashSet<String> {
    let via = options.via.iter().flat_map(|via| words(via.value.to_token_stream()).into_keys());
    let key = options.key.iter().flat_map(|key| key.value.words());
    via.chain(key).collect()
}

/// The names in expressions that may move what they name into the request.
pub(crate) fn taken(options: &Options, krate: &Path) -> HashSet<String> {
    let key = options.key.iter().flat_map(|key| key.value.expressions());
    let computed = computed(options, krate);
    words(quote!(#(#key)* #computed)).into_keys().collect()
}

/// Uses the arguments that only the request needs: it is made before they are moved into the body.
pub(crate) fn used(named: &HashSet<String>, function: &Function) -> TokenStream {
    let used = function.names().into_iter().filter(|(name, _)| named.contains(&unraw(name)));
    used.map(|(name, cfg)| quote!(#(#cfg)* let _ = &#name;)).collect()
}

/// Whether the expression is a variable, a field, or a reference: it neither leaves the function nor
/// awaits, and moves nothing that the body is to have. A call may do all of that.
fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(field) => is_place(&field.base),
        Expr::Reference(reference) => is_place(&reference.expr),
        Expr::Paren(inner) => is_place(&inner.expr),
        Expr::Group(inner) => is_place(&inner.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)) && is_place(&unary.expr),
        _ => false,
    }
}

/// The options that are expressions, on the request if there is one.
fn computed(options: &Options, krate: &Path) -> Option<TokenStream> {
    let (request, error) = (local("request"), local("error"));
    let calls: Vec<TokenStream> = calls(options).iter().filter_map(Call::computed).collect();
    let argument = options.kind.as_ref().and_then(|kind| kind.value.argument.as_ref());
    let limit = argument.filter(|limit| !is_literal(limit));
    if calls.is_empty() && limit.is_none() {
        return None;
    }
    let start = match limit {
        Some(limit) => quote!(#krate::__private_0_1::with_permits(#request, #limit)),
        None => quote!(#request),
    };
    let (ok, err) = (quote!(::core::result::Result::Ok), quote!(::core::result::Result::Err));
    Some(quote! {
        let #request = match #request {
            #ok(#request) => #ok(#start #(#calls)*),
            #err(#error) => #err(#error),
        };
    })
}

/// An option as a method call, or as the constant of the same name.
struct Call {
    /// Where the user wrote the option.
    name: Ident,
    /// As written in a method call.
    argument: Option<TokenStream>,
    /// As written in a constant, if it is one.
    constant: Option<TokenStream>,
}

impl Call {
    /// With an argument that is a literal, or with none.
    fn of(name: &str, written: &Ident, argument: Option<TokenStream>) -> Self {
        let constant =
            Some(argument.as_ref().map(|argument| quote!((#argument))).unwrap_or_default());
        Self { name: Ident::new(name, written.span()), argument, constant }
    }

    /// With an expression.
    fn of_plain(name: &str, Setting { name: written, value }: &Setting<Expr>) -> Self {
        let call = Self::of(name, written, Some(quote!(#value)));
        if is_literal(value) { call } else { Self { constant: None, ..call } }
    }

    fn of_time(name: &str, written: &Ident, time: &Time) -> Self {
        let name = Ident::new(name, written.span());
        match time {
            Time::Known(known, _) => {
                let (seconds, nanoseconds) = (known.as_secs(), known.subsec_nanos());
                let constant = Some(quote!((#seconds, #nanoseconds)));
                Self { name, argument: None, constant }
            }
            Time::Expr(value) => Self { name, argument: Some(quote!(#value)), constant: None },
        }
    }

    fn known(&self, krate: &Path) -> Option<TokenStream> {
        let (name, constant) = (&self.name, self.constant.as_ref()?);
        Some(quote!(#krate::__private_0_1::Fixed::#name #constant))
    }

    /// `.ttl(value)`, if only the call knows the value.
    fn computed(&self) -> Option<TokenStream> {
        let (name, argument) = (&self.name, &self.argument);
        self.constant.is_none().then(|| quote!(.#name(#argument)))
    }
}

fn calls(options: &Options) -> Vec<Call> {
    let ttl = options.ttl.as_ref().map(|ttl| match &ttl.value {
        Lease::Never(_) => Call::of("never_expires", &ttl.name, None),
        Lease::For(time) => Call::of_time("ttl", &ttl.name, time),
    });
    let wait = options.wait.as_ref().map(|wait| match &wait.value {
        Waiting::Forever(_) => Call::of("wait_forever", &wait.name, None),
        Waiting::None => Call::of("no_wait", &wait.name, None),
        Waiting::For(time) => Call::of_time("wait", &wait.name, time),
    });
    let plain = options.plain().into_iter();
    let plain = plain.filter_map(|(name, setting)| Some(Call::of_plain(name, setting.as_ref()?)));
    let times = options.times().into_iter().filter_map(|(name, setting)| {
        let setting = setting.as_ref()?;
        Some(Call::of_time(name, &setting.name, &setting.value))
    });
    let flags = options.flags().into_iter();
    let flags = flags.filter_map(|(name, written)| Some(Call::of(name, written?, None)));
    // By reference: the body may need what is compared.
    let same = options.same.as_ref().map(|Setting { name, value }| Call {
        name: Ident::new("same", name.span()),
        argument: Some(quote!(&(#value))),
        constant: None,
    });
    ttl.into_iter().chain(wait).chain(plain).chain(times).chain(flags).chain(same).collect()
}

fn is_literal(value: &Expr) -> bool {
    matches!(value, Expr::Lit(ExprLit { lit: Lit::Bool(_) | Lit::Int(_) | Lit::Str(_), .. }))
}
