//! `#[redis_lock_defaults(..)]` on an `impl`, a trait or an inline module: options for all annotated
//! functions inside that do not set them.
//!
//! The block is not parsed. Its tokens are passed on as they are, except for the arguments of
//! `#[redis_lock]`, to which the defaults are appended as a group: `__defaults(ttl = "10s")`. The
//! defaults of an inner block are expanded later, and come first.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::{Error, Item, ItemImpl, Type};

use crate::diagnostics::Mistakes;
use crate::options::{self, DEFAULTS};

/// Expands the attribute. When anything is wrong, the block is emitted unchanged beside the errors.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let names = options::check_defaults(arguments.clone(), &mut mistakes);
    if !is_block(&item) {
        let message = "`#[redis_lock_defaults]` goes on an `impl`, a trait, or a module with its content \
                       in braces; on a function write the options in `#[redis_lock]`";
        mistakes.add(Error::new(Span::call_site(), message));
    }
    let mut filler = Filler { arguments, unused: names, finds_functions: false };
    let filled = filler.filled(item.clone(), &HashSet::new(), None);
    let item = if mistakes.is_empty() { filled } else { item };
    if mistakes.is_empty() {
        for name in &filler.unused {
            let message = if filler.finds_functions {
                format!("every function in this block sets its own `{name}`, so leave this one out")
            } else {
                format!(
                    "no function in this block has `#[redis_lock]`, so nothing uses this `{name}`"
                )
            };
            mistakes.at(name, message);
        }
    }
    let errors = mistakes.into_tokens();
    quote!(#item #errors)
}

/// Whether the item ends in braces and is no function.
fn is_block(item: &TokenStream) -> bool {
    let mut keyword = None;
    let mut last = None;
    for tree in item.clone() {
        if let TokenTree::Ident(word) = &tree {
            let is_keyword =
                ["impl", "trait", "mod", "fn", "struct", "enum", "union", "const", "static"]
                    .iter()
                    .any(|it| word == it);
            if keyword.is_none() && is_keyword {
                keyword = Some(word.to_string());
            }
        }
        last = Some(tree);
    }
    let is_known = keyword.is_some_and(|word| ["impl", "trait", "mod"].contains(&&*word));
    is_known
        && matches!(last, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}

struct Filler {
    arguments: TokenStream,
    /// The defaults that no function has used so far.
    unused: Vec<Ident>,
    finds_functions: bool,
}

impl Filler {
    /// The tokens with the defaults in their attributes, except for those that a block inside sets.
    /// `owner` is the type or the trait whose block it is.
    fn filled(
        &mut self,
        tokens: TokenStream,
        overridden: &HashSet<String>,
        owner: Option<&Ident>,
    ) -> TokenStream {
        let mut of_block = HashSet::new();
        let mut item = TokenStream::new();
        let mut is_attribute = false;
        let mut filled = TokenStream::new();
        for tree in tokens {
            let after_hash = std::mem::replace(
                &mut is_attribute,
                matches!(&tree, TokenTree::Punct(sign) if sign.as_char() == '#'),
            );
            let ends_item = match &tree {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(sign) => sign.as_char() == ';',
                _ => false,
            };
            let before = if ends_item { std::mem::take(&mut item) } else { TokenStream::new() };
            let TokenTree::Group(group) = &tree else {
                item.extend((!ends_item).then(|| tree.clone()));
                filled.extend([tree]);
                continue;
            };
            let content = if after_hash && group.delimiter() == Delimiter::Bracket {
                self.attribute(group.stream(), (overridden, owner), &mut of_block)
            } else if ends_item {
                let inside = overridden.union(&std::mem::take(&mut of_block)).cloned().collect();
                self.filled(group.stream(), &inside, owner_of(&before).as_ref())
            } else {
                self.filled(group.stream(), overridden, owner)
            };
            filled.extend([regrouped(group, content)]);
            item.extend((!ends_item).then_some(tree));
        }
        filled
    }

    fn attribute(
        &mut self,
        tokens: TokenStream,
        around: (&HashSet<String>, Option<&Ident>),
        of_block: &mut HashSet<String>,
    ) -> TokenStream {
        let mut word = String::new();
        let mut trees: Vec<TokenTree> = Vec::new();
        // What a macro has passed on as a whole stands in a group without a sign.
        let tokens = tokens.into_iter().flat_map(|tree| match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => group.stream(),
            tree => tree.into(),
        });
        for tree in tokens {
            let before = std::mem::take(&mut word);
            match &tree {
                TokenTree::Ident(ident) => word = ident.to_string(),
                TokenTree::Group(group) if before == "redis_lock" => {
                    let content = self.function(group.stream(), around);
                    trees.push(regrouped(group, content));
                    continue;
                }
                TokenTree::Group(group) if before == "redis_lock_defaults" => {
                    of_block.extend(set_in(group.stream()));
                }
                TokenTree::Group(group) if before == "cfg_attr" => {
                    let content = self.attribute(group.stream(), around, of_block);
                    trees.push(regrouped(group, content));
                    continue;
                }
                _ => {}
            }
            trees.push(tree);
        }
        trees.into_iter().collect()
    }

    /// The arguments of a function's attribute, with the defaults before those of blocks around this one.
    fn function(
        &mut self,
        own: TokenStream,
        (overridden, owner): (&HashSet<String>, Option<&Ident>),
    ) -> TokenStream {
        self.finds_functions = true;
        let set = set_in(own.clone());
        self.unused.retain(|name| {
            let name = sort_of(name);
            set.contains(&name) || overridden.contains(&name)
        });
        let is_outer =
            |tree: &TokenTree| matches!(tree, TokenTree::Ident(word) if word == DEFAULTS);
        let mut before: Vec<TokenTree> = own.into_iter().collect();
        let at = before.iter().position(is_outer).unwrap_or(before.len());
        let outer = before.split_off(at);
        let is_ended =
            before.last().is_none_or(|it| matches!(it, TokenTree::Punct(p) if p.as_char() == ','));
        let comma = (!is_ended).then(|| quote!(,));
        let (name, arguments) = (Ident::new(DEFAULTS, Span::call_site()), &self.arguments);
        let owner = owner.map(|owner| quote!(#owner;));
        quote!(#(#before)* #comma #name(#owner #arguments), #(#outer)*)
    }
}

/// The type of an `impl` or the trait whose block comes behind these tokens.
fn owner_of(item: &TokenStream) -> Option<Ident> {
    match syn::parse2(quote!(#item {})).ok()? {
        Item::Impl(ItemImpl { self_ty, .. }) => match *self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.clone()),
            _ => None,
        },
        Item::Trait(item) => Some(item.ident),
        _ => None,
    }
}

/// The names of the options that are set, each sort of lock under one name.
fn set_in(arguments: TokenStream) -> HashSet<String> {
    let mut starts = true;
    let names = arguments.into_iter().filter_map(|tree| match &tree {
        TokenTree::Ident(name) if std::mem::take(&mut starts) => Some(sort_of(name)),
        TokenTree::Punct(sign) if sign.as_char() == ',' => {
            starts = true;
            None
        }
        _ => None,
    });
    names.collect()
}

fn sort_of(name: &Ident) -> String {
    let name = name.to_string();
    if ["read", "write", "permits"].contains(&&*name) { "write".into() } else { name }
}

fn regrouped(group: &Group, content: TokenStream) -> TokenTree {
    let mut regrouped = Group::new(group.delimiter(), content);
    regrouped.set_span(group.span());
    regrouped.into()
}
