//! The request for the lock: what is known at compile time, and what is computed by the call.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprLit, Lit, Path};

use crate::key::Key;
use crate::options::{Lease, Options, Setting, Time, Waiting};
use crate::tokens::{first_span, local, located};

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
    let (request, locks, scope) = (local("request"), local("locks"), local("scope"));
    let ok = quote!(::core::result::Result::Ok);
    let given = match &options.via {
        None => quote!(::core::option::Option::None),
        Some(_) => quote!(::core::option::Option::Some(#locks)),
    };
    let mut tokens = match key {
        Key::Constant(key) => quote!(#scope.request(#given, #ok(#key))),
        Key::Rendered(key) => quote!(#scope.request(#given, #key)),
        Key::Several(keys) => quote!(#scope.request_all(#given, #keys)),
        Key::Iterator(keys) => {
            quote!(#scope.request_all(#given, #ok(#krate::__private_0_1::collected(#keys))))
        }
    };
    if let Some(via) = &options.via {
        let via = via.value.to_token_stream();
        let span = first_span(via.clone());
        let borrowed = quote_spanned!(span=> &(#via));
        let there = Ident::new(&locks.to_string(), Span::mixed_site().located_at(span));
        let ty = located(quote!(#krate::Locks), span);
        let coerced = quote_spanned!(span=> let #there: &#ty = #there;);
        tokens = quote!(match #borrowed { #locks => { #coerced #tokens } });
    }
    let made = quote!(let #request = #tokens;);
    let computed = computed(options, krate);
    quote!(#made #computed)
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
