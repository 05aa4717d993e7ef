//! Generates the request for the lock: the part that is known at compile time, and the part that
//! each call computes.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprLit, Lit, Path, UnOp};

use crate::function::{Binding, Function};
use crate::key::Key;
use crate::options::{KeySource, Lease, Options, Setting, Time, Waiting};
use crate::tokens::{first_span, local, located, unraw, words};

/// `.ttl(..).wait(..)`, on the plan of the function, under the names that the user wrote.
pub(crate) fn known(options: &Options) -> TokenStream {
    let kind = options.kind.as_ref().and_then(|Setting { name, value }| match &value.argument {
        Some(argument) if !is_literal(argument) => None,
        argument => Some(option(value.call, name, quote!(#argument))),
    });
    let calls = calls(options).into_iter().filter(|call| call.is_known).map(|call| call.tokens);
    quote!(#kind #(#calls)*)
}

/// `let request = ..;`
///
/// As a statement of its own, so that what `via` and the key borrow ends before the wait begins.
pub(crate) fn made(options: &Options, key: &Key, krate: &Path) -> TokenStream {
    let (request, scope) = (local("request"), local("scope"));
    let methods = [quote!(#scope.request), quote!(#scope.request_all)];
    let made = from_key(options, key, krate, methods, None);
    let computed = computed(options, krate);
    quote!(let #request = #made; #computed)
}

/// A scope that asks for the lock, as an expression whose temporaries end with it.
pub(crate) fn asking(
    options: &Options,
    key: &Key,
    plan: &TokenStream,
    krate: &Path,
) -> TokenStream {
    let scope = local("scope");
    let methods = ["asking", "asking_all"].map(|name| {
        let name = Ident::new(name, Span::mixed_site());
        quote!(#krate::__private_0_1::Scope::#name)
    });
    let plan = quote!(const { &#plan },);
    let asking = from_key(options, key, krate, methods, Some(plan));
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
        calls(options).iter().any(|call| !call.is_known)
            || limit.is_some_and(|limit| !is_literal(limit))
    };
    let Some(Setting { value: key, .. }) = &options.key else { return false };
    let keys: Vec<&Expr> = match key {
        KeySource::Template(_, arguments) => arguments.iter().map(|it| &it.value).collect(),
        // An expression is moved into the key, so the body could not use it any more.
        KeySource::List(elements) if elements.iter().all(|it| it.expr().is_none()) => Vec::new(),
        KeySource::List(_) | KeySource::Iterator(_) => return false,
    };
    let via = options.via.iter().map(|via| &via.value);
    via.chain(keys).all(is_place) && !key.calls() && !has_patterns() && !is_computed()
}

/// Uses the arguments that only the request needs: it is made before they are moved into the body.
pub(crate) fn used(options: &Options, function: &Function) -> TokenStream {
    let via = options.via.iter().flat_map(|via| words(via.value.to_token_stream()).into_keys());
    let key = options.key.iter().flat_map(|key| key.value.words());
    let named: HashSet<String> = via.chain(key).collect();
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
    let calls: Vec<TokenStream> =
        calls(options).into_iter().filter(|call| !call.is_known).map(|call| call.tokens).collect();
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

/// An option as a method call.
struct Call {
    is_known: bool,
    tokens: TokenStream,
}

fn calls(options: &Options) -> Vec<Call> {
    let ttl = options.ttl.as_ref().map(|ttl| match &ttl.value {
        Lease::Never(_) => flag("never_expires", &ttl.name),
        Lease::For(time) => timed("ttl", &ttl.name, time),
    });
    let wait = options.wait.as_ref().map(|wait| match &wait.value {
        Waiting::Forever(_) => flag("wait_forever", &wait.name),
        Waiting::None => flag("no_wait", &wait.name),
        Waiting::For(time) => timed("wait", &wait.name, time),
    });
    let switches = options.switches().into_iter().filter_map(|(method, setting)| {
        let Setting { name, value } = setting.as_ref()?;
        let tokens = option(method, name, quote!(#value));
        Some(Call { is_known: is_literal(value), tokens })
    });
    let times = options.times().into_iter().filter_map(|(method, setting)| {
        let Setting { name, value } = setting.as_ref()?;
        Some(timed(method, name, value))
    });
    let fenced = options.fence.as_ref().map(|fence| flag("fenced", &fence.name));
    let reentrant = options.reentrant.as_ref().map(|it| flag("reentrant", &it.name));
    ttl.into_iter()
        .chain(wait)
        .chain(switches)
        .chain(times)
        .chain(fenced)
        .chain(reentrant)
        .collect()
}

fn flag(method: &str, written: &Ident) -> Call {
    Call { is_known: true, tokens: option(method, written, TokenStream::new()) }
}

fn timed(method: &str, written: &Ident, time: &Time) -> Call {
    Call { is_known: time.known().is_some(), tokens: option(method, written, quote!(#time)) }
}

/// `.ttl(value)`, with the method named where the user wrote the option.
fn option(method: &str, written: &Ident, value: TokenStream) -> TokenStream {
    let method = Ident::new(method, written.span());
    quote!(.#method(#value))
}

fn is_literal(value: &Expr) -> bool {
    matches!(value, Expr::Lit(ExprLit { lit: Lit::Bool(_) | Lit::Int(_), .. }))
}
