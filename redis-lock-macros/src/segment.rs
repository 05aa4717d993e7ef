//! `#[derive(KeySegment)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Index, Path, Result, parse_quote};

/// Input: `struct Place { region: Region, shelf: u32 }`
///
/// Output: an implementation that writes `out.write_parts(&[&self.region, &self.shelf])`.
pub(crate) fn expand(item: TokenStream) -> TokenStream {
    let derived = syn::parse2(item).and_then(implementation);
    derived.unwrap_or_else(|error| error.to_compile_error())
}

fn implementation(input: DeriveInput) -> Result<TokenStream> {
    let krate = krate(&input)?;
    let (written, is_numeric) = match &input.data {
        Data::Struct(data) if data.fields.is_empty() => {
            let message =
                "nothing tells the values of this type apart, so it cannot be part of a key";
            return Err(Error::new_spanned(&input.ident, message));
        }
        Data::Struct(data) => parts(&data.fields, &krate),
        Data::Enum(data) => (variants(data)?, None),
        Data::Union(data) => {
            let message = "a union does not know which of its fields is meant; implement \
                           `KeySegment` by hand";
            return Err(Error::new_spanned(data.union_token, message));
        }
    };
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#krate::KeySegment));
    }
    let (of, arguments, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #of #krate::KeySegment for #name #arguments #bounds {
            #is_numeric

            fn write_segment(
                &self,
                out: &mut #krate::SegmentWriter<'_>,
            ) -> ::core::fmt::Result {
                #written
            }
        }
    })
}

/// `::redis_locks`, or what `#[key_segment(crate = path)]` says.
fn krate(input: &DeriveInput) -> Result<Path> {
    let mut krate: Path = parse_quote!(::redis_locks);
    for attribute in input.attrs.iter().filter(|it| it.path().is_ident("key_segment")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("the only option is `crate = path`"));
            }
            krate = meta.value()?.call(Path::parse_mod_style)?;
            Ok(())
        })?;
    }
    Ok(krate)
}

/// A newtype is what it wraps, also for widths; of several fields, each is a part.
fn parts(fields: &Fields, krate: &Path) -> (TokenStream, Option<TokenStream>) {
    let parts: Vec<TokenStream> = fields
        .iter()
        .enumerate()
        .map(|(index, field)| {
            // A type that may not be in a key is reported where it is written.
            let span = field.ty.span();
            match &field.ident {
                Some(name) => quote_spanned!(span=> &self.#name),
                None => {
                    let index = Index { index: index as u32, span };
                    quote_spanned!(span=> &self.#index)
                }
            }
        })
        .collect();
    if let [only] = parts.as_slice() {
        let is_numeric = quote! {
            fn is_numeric(&self) -> bool {
                #krate::KeySegment::is_numeric(#only)
            }
        };
        return (quote!(#krate::KeySegment::write_segment(#only, out)), Some(is_numeric));
    }
    (quote!(out.write_parts(&[#(#parts),*])), None)
}

/// A variant is its name.
fn variants(data: &DataEnum) -> Result<TokenStream> {
    let mut arms = Vec::new();
    for variant in &data.variants {
        if !variant.fields.is_empty() {
            let message = "variants with fields could form the key of another one; keep to variants \
                           without, or implement `KeySegment` by hand";
            return Err(Error::new_spanned(&variant.fields, message));
        }
        let name = &variant.ident;
        let text = crate::tokens::unraw(name);
        arms.push(quote!(Self::#name { .. } => #text,));
    }
    if arms.is_empty() {
        return Ok(quote!(match *self {}));
    }
    let arms = arms.into_iter().map(ToTokens::into_token_stream);
    Ok(quote! {
        ::core::fmt::Write::write_str(out, match self { #(#arms)* })
    })
}
