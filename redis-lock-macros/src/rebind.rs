//! The function's arguments inside its body, which drops them before the lock is released.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::token::Underscore;
use syn::{Pat, PatIdent, PatWild, Path, Token, Type};

use crate::function::{Argument, Binding, Function};
use crate::returns;
use crate::tokens::unraw;

/// The names that `on_error` uses, and where.
pub(crate) type Kept = HashMap<String, Span>;

/// Moves every argument into the body, so that they are dropped there in the order of the plain
/// function. What is `used` there is in the body already, and stays as it is if no drop shows it.
pub(crate) fn inside(
    function: &Function,
    arguments: &[Argument],
    kept: &Kept,
    used: &HashSet<String>,
) -> TokenStream {
    let receiver = receiver(function);
    let stays = |argument: &&Argument| {
        matches!(argument.binding, Binding::Name(None))
            && kept.is_empty()
            && returns::is_never_dropped(&argument.ty)
            && used.contains(&unraw(&argument.name))
    };
    let arguments = arguments.iter().filter(|argument| !stays(argument)).map(|argument| {
        let whole = rebound(argument, kept);
        let Binding::Pattern(pattern) = &argument.binding else { return whole };
        let Argument { attributes, name, .. } = argument;
        let quiet = quiet(name);
        let used = bindings(pattern).into_iter().filter_map(|it| use_of(&it.ident, kept));
        quote!(#whole #(#attributes)* #quiet let #pattern = #name; #(#used)*)
    });
    quote!(#receiver #(#arguments)*)
}

/// Destructures the patterns into immutable names, for keys.
pub(crate) fn patterns(arguments: &[Argument]) -> TokenStream {
    let patterns = arguments.iter().filter_map(|argument| {
        let Binding::Pattern(pattern) = &argument.binding else { return None };
        let Argument { attributes, name, .. } = argument;
        let mut pattern = pattern.clone();
        each_binding(&mut pattern, &mut |binding| {
            if binding.by_ref.is_none() {
                binding.mutability = None;
            }
        });
        let (quiet, whole) = (quiet(name), whole(argument));
        Some(quote!(#whole #(#attributes)* #quiet let #pattern = #name;))
    });
    quote!(#(#patterns)*)
}

/// [`inside`], with [`patterns`] already taken apart around it. An argument that may be `taken` stays
/// in place, because it may be gone.
pub(crate) fn names(
    function: &Function,
    arguments: &[Argument],
    kept: &Kept,
    taken: &HashSet<String>,
) -> TokenStream {
    let receiver = receiver(function);
    let stays = |name: &Ident, mutability: Option<&Token![mut]>| {
        let name = unraw(name);
        mutability.is_none() && taken.contains(&name) && !kept.contains_key(&name)
    };
    let arguments = arguments.iter().map(|argument| {
        let pattern = match &argument.binding {
            Binding::Name(mutability) if stays(&argument.name, mutability.as_ref()) => {
                return TokenStream::new();
            }
            Binding::Name(_) | Binding::Nothing => return rebound(argument, kept),
            Binding::Pattern(pattern) => pattern,
        };
        let attributes = &argument.attributes;
        let bound =
            bindings(pattern).into_iter().map(|PatIdent { by_ref, mutability, ident, .. }| {
                (ident, mutability.filter(|_| by_ref.is_none()))
            });
        let moved = bound.filter(|(ident, mutability)| !stays(ident, mutability.as_ref()));
        let names = moved.map(|(ident, mutability)| {
            let (quiet, used) = (quiet(ident), use_of(ident, kept));
            quote!(#(#attributes)* #quiet let #mutability #ident = #ident; #used)
        });
        quote!(#(#names)*)
    });
    quote!(#receiver #(#arguments)*)
}

/// Copies of what `on_error` uses of destructured arguments, made before the body takes them. Names that
/// borrow in the body borrow from the copy here.
pub(crate) fn copies(arguments: &[Argument], kept: &Kept, krate: &Path) -> TokenStream {
    let copies = arguments.iter().filter_map(|argument| {
        let Binding::Pattern(pattern) = &argument.binding else { return None };
        let Argument { attributes, name, .. } = argument;
        let mut pattern = pattern.clone();
        // Nothing that is behind a `&mut` may be borrowed from it, because the body takes it.
        let is_mutable = matches!(&argument.ty, Type::Reference(it) if it.mutability.is_some());
        let (value, borrows) = match &*pattern {
            Pat::Reference(reference) if is_mutable => {
                pattern = reference.pat.clone();
                (quote!(*#name), false)
            }
            _ if is_mutable => (quote!(*#name), true),
            _ => (quote!(#name), false),
        };
        let mut found = Vec::new();
        by_value(&mut pattern, kept, &mut found);
        if found.is_empty() {
            return None;
        }
        let (names, values): (Vec<_>, Vec<_>) = found
            .into_iter()
            .map(|(ident, is_ref)| {
                let span = kept.get(&unraw(&ident)).copied().unwrap_or_else(|| ident.span());
                let span = Span::call_site().located_at(span);
                let krate = crate::tokens::located(quote!(#krate), span);
                let value = quote_spanned!(span=> #krate::__private_0_1::kept(&#ident));
                let by_ref = (is_ref || borrows).then(|| quote!(ref));
                (quote!(#by_ref #ident), value)
            })
            .unzip();
        Some(quote! {
            #(#attributes)*
            let (#(#names,)*) = match #value { #pattern => (#(#values,)*) };
        })
    });
    quote!(#(#copies)*)
}

/// Whether the body gives the argument back to `on_error`.
pub(crate) fn is_lent(argument: &Argument, kept: &Kept) -> bool {
    let is_mutable = matches!(&argument.ty, Type::Reference(it) if it.mutability.is_some());
    is_mutable
        && matches!(argument.binding, Binding::Name(_))
        && kept.contains_key(&unraw(&argument.name))
}

fn receiver(function: &Function) -> Option<TokenStream> {
    let receiver = function.signature.receiver().filter(|_| function.owns_receiver())?;
    let this = Ident::new("self", receiver.self_token.span);
    Some(quote!(let _ = &#this;))
}

fn rebound(argument: &Argument, kept: &Kept) -> TokenStream {
    let Argument { attributes, name, binding, .. } = argument;
    let quiet = quiet(name);
    match binding {
        Binding::Name(mutability) => {
            let used = use_of(name, kept).map(|used| quote!(#(#attributes)* #used));
            let value = if is_lent(argument, kept) { quote!(&mut *#name) } else { quote!(#name) };
            quote!(#(#attributes)* #quiet let #mutability #name = #value; #used)
        }
        Binding::Nothing | Binding::Pattern(_) => whole(argument),
    }
}

/// `let name = name;` of an argument without a name. A `ref mut` in its pattern borrows it.
fn whole(argument: &Argument) -> TokenStream {
    let Argument { attributes, name, binding, .. } = argument;
    let quiet = quiet(name);
    let is_borrowed = matches!(binding, Binding::Pattern(pattern) if borrows_mutably(pattern))
        && !matches!(argument.ty, Type::Reference(_));
    let mutability = is_borrowed.then(|| quote!(mut));
    quote!(#(#attributes)* #quiet let #mutability #name = #name;)
}

/// Whether there is a `ref mut` in the pattern that borrows from the value itself, and not from behind
/// a reference in it.
fn borrows_mutably(pattern: &Pat) -> bool {
    match pattern {
        Pat::Ident(name) => {
            name.by_ref.is_some() && name.mutability.is_some()
                || name.subpat.as_ref().is_some_and(|(_, inner)| borrows_mutably(inner))
        }
        Pat::Reference(_) => false,
        Pat::Or(cases) => cases.cases.iter().any(borrows_mutably),
        _ => inner(pattern).into_iter().any(borrows_mutably),
    }
}

/// Marks a name as used that only `on_error` uses, outside of the body.
fn use_of(name: &Ident, kept: &Kept) -> Option<TokenStream> {
    kept.contains_key(&unraw(name)).then(|| quote!(let _ = &#name;))
}

/// Allows lints for a name. None of them is on by default. Only those that the name can trigger are
/// listed, because each one takes build time.
fn quiet(name: &Ident) -> TokenStream {
    if !unraw(name).starts_with('_') {
        return quote!(#[allow(clippy::shadow_same)]);
    }
    quote! {
        #[allow(clippy::shadow_same, clippy::used_underscore_binding, clippy::no_effect_underscore_binding)]
    }
}

/// The names that a pattern binds.
fn bindings(pattern: &Pat) -> Vec<&PatIdent> {
    let mut found = Vec::new();
    collect(pattern, &mut found);
    found
}

fn collect<'a>(pattern: &'a Pat, found: &mut Vec<&'a PatIdent>) {
    match pattern {
        Pat::Ident(name) => {
            found.push(name);
            if let Some((_, inner)) = &name.subpat {
                collect(inner, found);
            }
        }
        // Alternatives bind the same names.
        Pat::Or(cases) => cases.cases.iter().take(1).for_each(|case| collect(case, found)),
        _ => inner(pattern).into_iter().for_each(|inner| collect(inner, found)),
    }
}

/// The patterns directly in a pattern, except names and alternatives.
fn inner(pattern: &Pat) -> Vec<&Pat> {
    match pattern {
        Pat::Tuple(tuple) => tuple.elems.iter().collect(),
        Pat::TupleStruct(tuple) => tuple.elems.iter().collect(),
        Pat::Struct(fields) => fields.fields.iter().map(|field| &*field.pat).collect(),
        Pat::Slice(slice) => slice.elems.iter().collect(),
        Pat::Reference(reference) => vec![&reference.pat],
        Pat::Paren(inner) => vec![&inner.pat],
        Pat::Type(typed) => vec![&typed.pat],
        _ => Vec::new(),
    }
}

fn inner_mut(pattern: &mut Pat) -> Vec<&mut Pat> {
    match pattern {
        Pat::Tuple(tuple) => tuple.elems.iter_mut().collect(),
        Pat::TupleStruct(tuple) => tuple.elems.iter_mut().collect(),
        Pat::Struct(fields) => fields.fields.iter_mut().map(|field| &mut *field.pat).collect(),
        Pat::Slice(slice) => slice.elems.iter_mut().collect(),
        Pat::Or(cases) => cases.cases.iter_mut().collect(),
        Pat::Reference(reference) => vec![&mut reference.pat],
        Pat::Paren(inner) => vec![&mut inner.pat],
        Pat::Type(typed) => vec![&mut typed.pat],
        _ => Vec::new(),
    }
}

fn each_binding(pattern: &mut Pat, change: &mut impl FnMut(&mut PatIdent)) {
    if let Pat::Ident(name) = pattern {
        change(name);
        if let Some((_, inner)) = &mut name.subpat {
            each_binding(inner, change);
        }
        return;
    }
    for inner in inner_mut(pattern) {
        each_binding(inner, change);
    }
}

/// The pattern without its `ref` and `mut`, so that its names bind what can be copied, and whether each had
/// a `ref`. Names that are not kept are left out, so that nothing is moved.
fn by_value(pattern: &mut Pat, kept: &Kept, found: &mut Vec<(Ident, bool)>) {
    if let Pat::Ident(name) = pattern {
        let is_kept = kept.contains_key(&unraw(&name.ident));
        let is_ref = name.by_ref.take().is_some();
        if is_kept && !found.iter().any(|(ident, _)| *ident == name.ident) {
            found.push((name.ident.clone(), is_ref));
        }
        name.mutability = None;
        if let Some((_, inner)) = &mut name.subpat {
            by_value(inner, kept, found);
        }
        if !is_kept {
            *pattern = match name.subpat.take() {
                Some((_, inner)) => *inner,
                None => Pat::Wild(PatWild {
                    attrs: Vec::new(),
                    underscore_token: Underscore(name.ident.span()),
                }),
            };
        }
        return;
    }
    for inner in inner_mut(pattern) {
        by_value(inner, kept, found);
    }
    if let Pat::Struct(fields) = pattern {
        for field in &mut fields.fields {
            // `Ctx { id }` has no place for another pattern: `Ctx { id: _ }` has.
            if field.colon_token.is_none() && !matches!(*field.pat, Pat::Ident(_)) {
                field.colon_token = Some(Token![:](Span::call_site()));
            }
        }
    }
}
