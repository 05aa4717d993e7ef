//! The return type, as the expansion has to repeat it.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{
    AngleBracketedGenericArguments, AssocType, GenericArgument, PathArguments, ReturnType, Type,
    TypeInfer, TypeParamBound, TypePath, TypeTuple, token,
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

fn erase(ty: &mut Type) {
    match ty {
        Type::ImplTrait(found) => {
            let underscore_token = token::Underscore(found.impl_token.span);
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token });
        }
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            erase(ty);
                        }
                    }
                }
            }
        }
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

/// What is known of a type that may be a future.
pub(crate) enum Future {
    /// Not one, as far as can be seen.
    No,
    /// One that yields this.
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
        if last.ident != "Future" {
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

/// Whether a value of this type is as small as a pointer or two, as far as can be seen.
pub(crate) fn is_small(ty: &Type) -> bool {
    match ty {
        Type::Reference(_) | Type::Ptr(_) | Type::FnPtr(_) | Type::Never(_) => true,
        Type::Paren(inner) => is_small(&inner.elem),
        Type::Group(inner) => is_small(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.len() <= 2 && tuple.elems.iter().all(is_small),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            const SMALL: [&str; 26] = [
                "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128",
                "isize", "bool", "char", "f32", "f64", "String", "Vec", "Box", "Arc", "Rc", "Uuid",
                "Duration", "Instant", "PathBuf", "Bytes",
            ];
            SMALL.iter().any(|small| last.ident == small)
        }),
        _ => false,
    }
}

/// A span that stands for the whole type, as far as stable Rust lets one be made.
pub(crate) fn span(ty: &Type) -> Span {
    crate::expand::first_span(ty.to_token_stream())
}
