//! Generates the function that `request = name` asks for: the lock of the annotated function, from
//! outside.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{FnArg, GenericParam, Pat, Path, Safety, Signature, parse_quote};

use crate::diagnostics::Mistakes;
use crate::function::Function;
use crate::key::Key;
use crate::leaving::{self, Way};
use crate::options::Options;
use crate::request;
use crate::tokens::{local, words};

/// Reports options that the companion can't have, as it is not async.
pub(crate) fn check(options: &Options, mistakes: &mut Mistakes) {
    if let Some(name) = &options.request
        && leaving::ways(request::expressions(options)).contains(&Way::Await)
    {
        let message = format!(
            "`{}` would not be async, and an option awaits; await before the call, and pass the value \
             as an argument",
            name.value
        );
        mistakes.at(&name.value, message);
    }
}

/// Input: `request = charge_lock` on `async fn charge(order_id: u64, amount: u32) -> ..`
///
/// Output:
/// ```text
/// fn charge_lock(order_id: u64) -> Result<LockRequest, LockError> {
///     match &Scope::new(LABEL, "order:{order_id}", &[Fixed::ttl(..)]) {
///         scope => { let request = scope.request(None, render(..)); request }
///     }
/// }
/// ```
pub(crate) fn companion(
    options: &Options,
    function: &Function,
    krate: &Path,
    content: &TokenStream,
) -> Option<TokenStream> {
    let name = &options.request.as_ref()?.value;
    let mut named = request::named(options);
    named.extend(request::taken(options, krate));
    let mut signature = function.signature.clone();
    signature.ident = name.clone();
    (signature.asyncness, signature.abi, signature.safety) = (None, None, Safety::Default);
    signature.output =
        parse_quote!(-> ::core::result::Result<#krate::LockRequest, #krate::LockError>);
    signature.inputs = signature.inputs.into_iter().filter_map(|it| kept(it, &named)).collect();
    drop_unused_generics(&mut signature, &named);
    if function.has_receiver() && signature.receiver().is_none() {
        // A trait with a function that has no receiver could be no trait object otherwise.
        signature.generics.make_where_clause().predicates.push(parse_quote!(Self: Sized));
    }

    let docs = format!("The request for the lock that `{}` takes.", function.signature.ident);
    let visibility = &function.visibility;
    let cfg = function.attributes.iter().filter(|it| it.path().is_ident("cfg"));
    Some(quote! {
        #(#cfg)*
        #[doc = #docs]
        #[allow(unused, clippy::pedantic, clippy::nursery)]
        #visibility #signature { #content }
    })
}

/// What the companion does.
pub(crate) fn content(
    options: &Options,
    key: &Key,
    krate: &Path,
    fixed: &TokenStream,
) -> TokenStream {
    let made = request::made(options, key, krate, false);
    let (scope, request) = (local("scope"), local("request"));
    quote!(match &#krate::__private_0_1::Scope::new(#fixed) { #scope => { #made #request } })
}

/// The argument, if the request uses it.
fn kept(input: FnArg, named: &HashSet<String>) -> Option<FnArg> {
    match input {
        FnArg::Receiver(_) => named.contains("self").then_some(input),
        FnArg::Typed(mut typed) => {
            typed.attrs.retain(|attribute| attribute.path().is_ident("cfg"));
            let bound = words(typed.pat.to_token_stream());
            let is_used = bound.keys().any(|name| named.contains(name));
            if let Pat::Ident(name) = &mut *typed.pat {
                name.mutability = None;
            }
            is_used.then_some(FnArg::Typed(typed))
        }
    }
}

/// Removes the type parameters that are not named: no call could determine them.
fn drop_unused_generics(signature: &mut Signature, named: &HashSet<String>) {
    let mut used = named.clone();
    used.extend(words(signature.inputs.to_token_stream()).into_keys());
    let mut params: Vec<GenericParam> = signature.generics.params.iter().cloned().collect();
    let name_of = |param: &GenericParam| match param {
        GenericParam::Type(it) => Some(it.ident.to_string()),
        GenericParam::Const(it) => Some(it.ident.to_string()),
        GenericParam::Lifetime(_) => None,
    };
    // A parameter that is used may name another one in its bounds.
    loop {
        let is_used = |it: &&GenericParam| name_of(it).is_none_or(|name| used.contains(&name));
        let bounds: Vec<String> = params
            .iter()
            .filter(is_used)
            .flat_map(|param| words(param.to_token_stream()).into_keys())
            .filter(|name| !used.contains(name))
            .collect();
        if bounds.is_empty() {
            break;
        }
        used.extend(bounds);
    }
    let is_dropped = |it: &GenericParam| name_of(it).is_some_and(|name| !used.contains(&name));
    let dropped: Vec<String> =
        params.iter().filter(|it| is_dropped(it)).filter_map(name_of).collect();
    params.retain(|it| !is_dropped(it));
    signature.generics.params = params.into_iter().collect();
    if let Some(clause) = &mut signature.generics.where_clause {
        let predicates = std::mem::take(&mut clause.predicates).into_iter();
        clause.predicates = predicates
            .filter(|it| {
                let named = words(it.to_token_stream());
                !dropped.iter().any(|name| named.contains_key(name))
            })
            .collect();
    }
}
