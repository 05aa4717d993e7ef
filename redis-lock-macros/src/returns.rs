//! The return type, as the expansion has to repeat it.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{
    AngleBracketedGenericArguments, AssocType, GenericArgument, Path, PathArguments, ReturnType,
    Type, TypeInfer, TypeParamBound, TypePath, TypeTuple, token,
};

/// The type a function returns; `()` at its name when it says nothing.
pub(crate) fn returned(output: &ReturnType, name: &Ident) -> Type {
    match output {
        ReturnType::Type(_, ty) => (**ty).clone(),
        ReturnType::Default => Type::Tuple(TypeTuple {
            attrs: Vec::new(),
            paren_token: token::Paren(name.span()),
            elems: Punctuated::new(),
        }),
    }
}

/// The type with every `impl Trait` in it left to inference: it may only be named once.
pub(crate) fn without_impl(mut ty: Type) -> Type {
    erase(&mut ty);
    ty
}

/// Whether there is an `impl Trait` in the type.
pub(crate) fn has_impl(ty: &Type) -> bool {
    let written = |ty: &Type| ty.to_token_stream().to_string();
    written(&without_impl(ty.clone())) != written(ty)
}

fn erase(ty: &mut Type) {
    match ty {
        Type::ImplTrait(found) => {
            let underscore_token = token::Underscore(found.impl_token.span);
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token });
        }
        Type::Path(path) => erase_in_path(&mut path.path),
        Type::TraitObject(object) => object.bounds.iter_mut().for_each(erase_in_bound),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase),
        Type::Array(array) => erase(&mut array.elem),
        Type::Slice(slice) => erase(&mut slice.elem),
        Type::Reference(reference) => erase(&mut reference.elem),
        Type::Ptr(pointer) => erase(&mut pointer.elem),
        Type::Paren(inner) => erase(&mut inner.elem),
        Type::Group(inner) => erase(&mut inner.elem),
        _ => {}
    }
}

fn erase_in_bound(bound: &mut TypeParamBound) {
    if let TypeParamBound::Trait(bound) = bound {
        erase_in_path(&mut bound.path);
    }
}

fn erase_in_path(path: &mut Path) {
    for segment in &mut path.segments {
        let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else { continue };
        for argument in &mut arguments.args {
            match argument {
                GenericArgument::Type(ty) => erase(ty),
                GenericArgument::AssocType(assoc) => erase(&mut assoc.ty),
                _ => {}
            }
        }
    }
}

/// What is known of a type that may be a future.
pub(crate) enum Future {
    /// Not one, as far as can be seen.
    No,
    /// An expression that yields this.
    Yields(Box<Type>),
    /// One whose output cannot be seen.
    Unseen,
}

/// `impl Future<Output = T>`, `Pin<Box<dyn Future<Output = T>>>`, `BoxFuture<'_, T>`.
pub(crate) fn future(ty: &Type) -> Future {
    match ty {
        Type::ImplTrait(ty) => in_bounds(&ty.bounds),
        Type::TraitObject(ty) => in_bounds(&ty.bounds),
        Type::Paren(inner) => future(&inner.elem),
        Type::Group(inner) => future(&inner.elem),
        Type::Path(path) => in_path(path),
        _ => Future::No,
    }
}

fn in_bounds<P>(bounds: &Punctuated<TypeParamBound, P>) -> Future {
    for bound in bounds {
        let TypeParamBound::Trait(bound) = bound else { continue };
        let Some(last) = bound.path.segments.last() else { continue };
        if last.ident != "Future" && last.ident != "IntoFuture" {
            continue;
        }
        if let PathArguments::AngleBracketed(arguments) = &last.arguments {
            for argument in &arguments.args {
                if let GenericArgument::AssocType(AssocType { ident, ty, .. }) = argument
                    && ident == "Output"
                {
                    return Future::Yields(Box::new(ty.clone()));
                }
            }
        }
        return Future::Unseen;
    }
    Future::No
}

fn in_path(path: &TypePath) -> Future {
    let Some(last) = path.path.segments.last() else { return Future::No };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return if is_future_name(&last.ident) { Future::Unseen } else { Future::No };
    };
    if last.ident == "Pin" || last.ident == "Box" {
        return first_type(arguments).map_or(Future::No, future);
    }
    if is_future_name(&last.ident) {
        let last = arguments.args.iter().rev().find_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty.clone()),
            _ => None,
        });
        return last.map_or(Future::Unseen, |ty| Future::Yields(Box::new(ty)));
    }
    Future::No
}

fn is_future_name(name: &Ident) -> bool {
    name == "BoxFuture" || name == "LocalBoxFuture"
}

fn first_type(arguments: &AngleBracketedGenericArguments) -> Option<&Type> {
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Whether dropping a value of this type does nothing. A user's type that is called `u64` is dropped a
/// little later among the arguments, and nothing else.
pub(crate) fn is_never_dropped(ty: &Type) -> bool {
    const PRIMITIVES: [&str; 16] = [
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16",
        "u32", "u64", "u128", "usize",
    ];
    match ty {
        Type::Reference(reference) => reference.mutability.is_none(),
        Type::Path(path) => {
            path.path.get_ident().is_some_and(|name| PRIMITIVES.iter().any(|it| name == it))
        }
        _ => false,
    }
}

/// Whether every value of this type is known to be small by its mere syntax. A name says nothing: any
/// type can be called `u64`.
pub(crate) fn is_small(ty: &Type) -> bool {
    match ty {
        Type::Reference(_) | Type::Ptr(_) | Type::FnPtr(_) => true,
        Type::Paren(inner) => is_small(&inner.elem),
        Type::Group(inner) => is_small(&inner.elem),
        _ => false,
    }
}

/// Whether the type says by its name that it is a future, where it does not say of what.
pub(crate) fn is_called_future(ty: &Type) -> bool {
    match ty {
        Type::Paren(inner) => is_called_future(&inner.elem),
        Type::Group(inner) => is_called_future(&inner.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            name.ends_with("Future") || name == "JoinHandle"
        }),
        _ => false,
    }
}

/// Types whose values hold what their arguments name.
const CONTAINERS: [&str; 13] = [
    "Result", "Option", "Box", "Pin", "Arc", "Rc", "Vec", "VecDeque", "HashMap", "BTreeMap",
    "Poll", "Mutex", "RefCell",
];

/// Whether a value of this type, which is no future itself, holds one as far as the type says. Types
/// that only mention a future, such as a channel of futures, hold none.
pub(crate) fn holds_future(ty: &Type) -> bool {
    let holds = |ty: &Type| !matches!(future(ty), Future::No) || holds_future(ty);
    match ty {
        Type::Paren(inner) => holds(&inner.elem),
        Type::Group(inner) => holds(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.iter().any(holds),
        Type::Array(array) => holds(&array.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
            CONTAINERS.iter().any(|it| last.ident == it)
                && arguments
                    .args
                    .iter()
                    .any(|argument| matches!(argument, GenericArgument::Type(ty) if holds(ty)))
        }),
        _ => false,
    }
}

/// Whether a value of this type holds a stream, as far as the type spells it: `impl Stream` anywhere, and a
/// boxed one in what holds its arguments, so not in a channel.
pub(crate) fn holds_stream(ty: &Type) -> bool {
    match ty {
        Type::ImplTrait(it) => are_of_stream(&it.bounds),
        Type::TraitObject(it) => are_of_stream(&it.bounds),
        Type::Paren(inner) => holds_stream(&inner.elem),
        Type::Group(inner) => holds_stream(&inner.elem),
        Type::Array(array) => holds_stream(&array.elem),
        Type::Tuple(tuple) => tuple.elems.iter().any(holds_stream),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            ["BoxStream", "LocalBoxStream"].iter().any(|it| last.ident == it)
                || types_in(&last.arguments).any(|ty| {
                    (CONTAINERS.iter().any(|it| last.ident == it) || has_impl(ty))
                        && holds_stream(ty)
                })
        }),
        _ => false,
    }
}

fn are_of_stream<P>(bounds: &Punctuated<TypeParamBound, P>) -> bool {
    bounds.iter().any(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return false };
        bound.path.segments.last().is_some_and(|last| {
            ["Stream", "TryStream", "FusedStream", "AsyncIterator"]
                .iter()
                .any(|it| last.ident == it)
                || types_in(&last.arguments).any(holds_stream)
        })
    })
}

/// The types in `<A, Item = B>`.
fn types_in(arguments: &PathArguments) -> impl Iterator<Item = &Type> {
    let arguments = match arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments.args.iter()),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        GenericArgument::AssocType(assoc) => Some(&assoc.ty),
        _ => None,
    })
}

/// The elements of the tuples in a value of this type, as far as the type spells them: rustc can ask
/// whether a type holds a future, but not whether one of several does. Not those with an `impl`, which
/// cannot be named.
pub(crate) fn elements(ty: &Type) -> Vec<&Type> {
    match ty {
        Type::Paren(inner) => elements(&inner.elem),
        Type::Group(inner) => elements(&inner.elem),
        Type::Array(array) => elements(&array.elem),
        Type::Tuple(tuple) => {
            let named = tuple.elems.iter().filter(|ty| !is_never_dropped(ty) && !has_impl(ty));
            named.chain(tuple.elems.iter().flat_map(elements)).collect()
        }
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return Vec::new();
            };
            if !CONTAINERS.iter().any(|it| last.ident == it) {
                return Vec::new();
            }
            let types = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            });
            types.flat_map(elements).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a boxed future may borrow nothing: `BoxFuture<'static, T>`, `Pin<Box<dyn Future>>`.
pub(crate) fn is_static(ty: &Type) -> bool {
    match ty {
        Type::Paren(inner) => is_static(&inner.elem),
        Type::Group(inner) => is_static(&inner.elem),
        Type::TraitObject(object) => !object
            .bounds
            .iter()
            .any(|bound| matches!(bound, TypeParamBound::Lifetime(it) if it.ident != "static")),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
            if last.ident == "Pin" || last.ident == "Box" {
                return first_type(arguments).is_some_and(is_static);
            }
            let is_static = |argument: &GenericArgument| {
                matches!(argument, GenericArgument::Lifetime(it) if it.ident == "static")
            };
            is_future_name(&last.ident) && arguments.args.iter().any(is_static)
        }),
        _ => false,
    }
}

/// A span that covers the whole type, as far as stable Rust can make one.
pub(crate) fn span(ty: &Type) -> Span {
    match ty {
        // The usual type, without taking it to pieces.
        Type::Path(TypePath { qself: None, path, .. }) if path.leading_colon.is_none() => {
            let first = path.segments.first().map(|segment| segment.ident.span());
            first.map_or_else(Span::call_site, |first| Span::call_site().located_at(first))
        }
        _ => crate::tokens::first_span(ty.to_token_stream()),
    }
}
