//! The annotated function: its parsed signature, and its body as tokens.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, FnArg, Pat, PatIdent, ReceiverKind, Result, Safety, Signature, Token, Type,
    Visibility,
};

use crate::diagnostics::Mistakes;
use crate::misplaced;
use crate::returns::{self, Future};
use crate::tokens::{local, unraw, words};

/// A function with a body. The body is never parsed, so that editors can complete half-typed code.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    default: Option<Ident>,
    pub(crate) signature: Signature,
    pub(crate) body: Group,
}

/// The form of the body, which decides where the lock is taken.
pub(crate) enum Shape {
    /// `async fn`
    Async,
    /// Ends in `async move { .. }`, bare or in `Box::pin(..)`, as hand-written futures and
    /// `#[async_trait]` do. The lock goes inside that block.
    Future(AsyncBlock),
    /// Runs on the calling thread.
    Sync,
}

/// The async block that a body ends in.
pub(crate) struct AsyncBlock {
    /// The position of `async`, for the code that replaces the block.
    keyword: Span,
    /// `Box::pin` with its path, and its parentheses, if the block is its argument.
    pin: Option<(TokenStream, Span)>,
    /// The content of the block, when the body is nothing but the block. Otherwise there are
    /// statements before it, which must not run without the lock, and one of them may return
    /// another future.
    pub(crate) only: Option<Group>,
}

const TWICE: &str = "a second `#[redis_lock]`: two locks taken one after the other can deadlock; \
                     list both keys in one attribute, `keys = [\"a\", \"b\"]`";

const UNSEEN: &str = "`#[redis_lock]` cannot see into this future, and locking its construction \
                      would release the lock before it runs; write `async fn`, or \
                      `-> impl Future<Output = …>` or `-> Pin<Box<dyn Future<Output = …>>>` and \
                      end with `async move { … }` or `Box::pin(async move { … })`";

const NOT_RUN: &str = "`#[redis_lock]` would release the lock before the future in this value runs; \
                       await it in the body of an `async fn` and return what it yields, or put the \
                       lock on the function that awaits it";

const LAZY: &str = "`#[redis_lock]` would release the lock before this stream runs, because a \
                    stream does nothing until it is read; collect it in the body and return the \
                    items, or put the \
                    lock on the function that reads it";

/// An argument, as the outer signature and the body see it.
pub(crate) struct Argument {
    /// `cfg` and lint levels, which hold for the rebinding too.
    pub(crate) attributes: Vec<Attribute>,
    /// The name in the outer signature: the user's, or made up for a pattern.
    pub(crate) name: Ident,
    /// What the body binds.
    pub(crate) binding: Binding,
    pub(crate) ty: Type,
}

pub(crate) enum Binding {
    /// `name` or `mut name`
    Name(Option<Token![mut]>),
    /// `_`
    Nothing,
    /// Anything else.
    Pattern(Box<Pat>),
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let is_default = input.fork().parse::<Ident>().is_ok_and(|word| word == "default");
        let default = if is_default { Some(input.parse()?) } else { None };
        if !starts_function(input) {
            return Err(misplaced::not_a_function(input));
        }
        let signature: Signature = input.parse()?;
        if input.peek(Token![;]) {
            let message = "`#[redis_lock]` wraps a body, and this function has none; put it on the \
                           implementation";
            return Err(Error::new(signature.ident.span(), message));
        }
        let body = body(input)?;
        Ok(Self { attributes, visibility, default, signature, body })
    }
}

fn starts_function(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    loop {
        if ahead.peek(Token![fn]) {
            return true;
        }
        let qualifier = ahead.call(Ident::parse_any).is_ok_and(|word| {
            ["const", "async", "unsafe", "safe", "extern"].iter().any(|known| word == known)
        });
        if !qualifier {
            return false;
        }
        let _ = ahead.parse::<Option<syn::LitStr>>();
    }
}

/// The braces, even from a `macro_rules!` fragment.
fn body(input: ParseStream<'_>) -> Result<Group> {
    let mut tree: TokenTree = input.parse()?;
    loop {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return Ok(group),
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                let mut inner = group.stream().into_iter();
                tree = match (inner.next(), inner.next()) {
                    (Some(only), None) => only,
                    _ => return Err(Error::new(group.span(), "expected the function's body")),
                };
            }
            other => {
                return Err(Error::new(other.span(), "expected the function's body in braces"));
            }
        }
    }
}

impl Function {
    /// Reports functions that can't be locked, whatever the options say.
    pub(crate) fn check(&mut self, mistakes: &mut Mistakes) {
        let signature = &self.signature;
        if let Some(constness) = &signature.constness {
            mistakes.at(constness, "a `const fn` cannot take a lock; remove `const`");
        }
        if let Some(variadic) = &signature.variadic {
            mistakes.at(
                variadic,
                "`#[redis_lock]` does not support variadic functions: their arguments cannot be passed on",
            );
        }
        if let Safety::Safe(safe) = &signature.safety {
            mistakes.at(safe, "`#[redis_lock]` does not support `safe fn`, which has no body");
        }
        if let syn::ReturnType::Type(_, ty) = &signature.output
            && let Type::Never(never) = &**ty
        {
            mistakes.at(
                never,
                "a `#[redis_lock]` function must be able to return: taking the lock can fail; return \
                 `Result<Infallible, LockError>`",
            );
        }
        // A second attribute under another name is found by the variable that the outer one has put
        // into the body.
        if words(self.body.stream()).contains_key(&local("scope").to_string()) {
            mistakes.at(&signature.ident, TWICE);
        }
        let mut again = Vec::new();
        self.attributes.retain(|attribute| {
            let ours =
                attribute.path().segments.last().is_some_and(|last| last.ident == "redis_lock");
            if ours {
                again.push(attribute.clone());
            }
            !ours
        });
        for attribute in again {
            mistakes.at(attribute, TWICE);
        }
    }

    /// Finds out how the body runs. An opaque future is a mistake: the lock would be released
    /// before the future runs.
    pub(crate) fn shape(&self, has_handler: bool, mistakes: &mut Mistakes) -> (Shape, Type) {
        let ty = returns::returned(&self.signature.output, &self.signature.ident);
        if returns::holds_stream(&ty) {
            mistakes.at(&ty, LAZY);
            return (Shape::Async, ty);
        }
        if self.signature.asyncness.is_some() {
            return (Shape::Async, ty);
        }
        let yielded = returns::future(&ty);
        match (AsyncBlock::at_end_of(&self.body), yielded) {
            (_, Future::No) => {
                if returns::holds_future(&ty) {
                    mistakes.at(&ty, NOT_RUN);
                }
                // With a handler, rustc decides by the type. Without one, the function is refused
                // in any case, and this message says why.
                if !has_handler && returns::is_called_future(&ty) {
                    mistakes.at(&ty, UNSEEN);
                }
                (Shape::Sync, ty)
            }
            (Some(block), Future::Yields(output)) => {
                if block.only.is_none() {
                    self.check_can_be_moved(&ty, mistakes);
                }
                (Shape::Future(block), *output)
            }
            (Some(_), Future::Unseen) => {
                mistakes.at(
                    &ty,
                    "`#[redis_lock]` cannot see what this future yields; write `async fn`, or \
                     `-> impl Future<Output = Result<T, LockError>>`",
                );
                (Shape::Sync, ty)
            }
            (None, _) => {
                mistakes.at(&ty, UNSEEN);
                (Shape::Sync, ty)
            }
        }
    }

    /// Statements before the block run under the lock, and so inside the future. Where that may not
    /// borrow what they use, rustc's error would be about lifetimes that the user did not write.
    fn check_can_be_moved(&self, ty: &Type, mistakes: &mut Mistakes) {
        if !returns::is_static(ty) {
            return;
        }
        let used = words(self.body.stream());
        let borrowed = self.signature.inputs.iter().find_map(|input| match input {
            FnArg::Receiver(receiver) => (matches!(receiver.kind, ReceiverKind::Reference(..))
                && used.contains_key("self"))
            .then(|| "self".to_owned()),
            FnArg::Typed(typed) => match (&*typed.pat, &*typed.ty) {
                (Pat::Ident(name), Type::Reference(it))
                    if it.lifetime.as_ref().is_none_or(|it| it.ident != "static") =>
                {
                    Some(unraw(&name.ident)).filter(|name| used.contains_key(name))
                }
                _ => None,
            },
        });
        if let Some(name) = borrowed {
            let message = format!(
                "the statements before the `async` block would run without the lock, and they \
                 cannot be moved under it: this future may not borrow `{name}`; write `async fn`, \
                 give the future a lifetime, or put the lock on a function that is called in the \
                 block"
            );
            mistakes.at(ty, message);
        }
    }

    /// The arguments but `self`.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        let typed = self.signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        typed
            .enumerate()
            .map(|(index, typed)| {
                let (name, binding) = match &*typed.pat {
                    Pat::Ident(PatIdent {
                        by_ref: None, subpat: None, mutability, ident, ..
                    }) => (ident.clone(), Binding::Name(*mutability)),
                    Pat::Wild(_) => (made_up(index), Binding::Nothing),
                    pattern => (made_up(index), Binding::Pattern(Box::new(pattern.clone()))),
                };
                let attributes = typed.attrs.iter().filter(|a| holds_for_bindings(a)).cloned();
                let attributes = attributes.collect();
                Argument { attributes, name, binding, ty: (*typed.ty).clone() }
            })
            .collect()
    }

    /// The names that a key may use: arguments and what their patterns bind.
    pub(crate) fn names(&self) -> Vec<(Ident, Vec<Attribute>)> {
        let mut names = Vec::new();
        for input in &self.signature.inputs {
            if let FnArg::Typed(typed) = input {
                let attributes: Vec<_> =
                    typed.attrs.iter().filter(|a| a.path().is_ident("cfg")).cloned().collect();
                collect_names(&typed.pat, &mut |name| {
                    names.push((name.clone(), attributes.clone()))
                });
            }
        }
        names
    }

    pub(crate) fn has_receiver(&self) -> bool {
        self.signature.receiver().is_some()
    }

    /// Whether `self` is owned. Then it must be dropped before the release, like any argument.
    pub(crate) fn owns_receiver(&self) -> bool {
        self.signature
            .receiver()
            .is_some_and(|receiver| !matches!(receiver.kind, ReceiverKind::Reference(..)))
    }

    /// The function with another body and, in the signature, names for its patterns.
    pub(crate) fn with_body(&self, content: TokenStream) -> TokenStream {
        let mut signature = self.signature.clone();
        let arguments = self.arguments();
        let typed = signature.inputs.iter_mut().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        for (typed, argument) in typed.zip(arguments) {
            *typed.pat = Pat::Ident(PatIdent {
                attrs: Vec::new(),
                by_ref: None,
                mutability: None,
                ident: argument.name,
                subpat: None,
            });
        }
        self.assemble(&signature, content)
    }

    /// The function with another body and nothing else changed.
    pub(crate) fn with_body_only(&self, content: TokenStream) -> TokenStream {
        self.assemble(&self.signature, content)
    }

    fn assemble(&self, signature: &Signature, content: TokenStream) -> TokenStream {
        let Self { attributes, visibility, default, .. } = self;
        let mut body = Group::new(Delimiter::Brace, content);
        body.set_span(self.body.span());
        quote!(#(#attributes)* #visibility #default #signature #body)
    }
}

/// A name that no user can have written.
fn made_up(index: usize) -> Ident {
    local(&format!("arg{index}"))
}

fn holds_for_bindings(attribute: &Attribute) -> bool {
    ["cfg", "cfg_attr", "allow", "expect", "warn", "deny", "forbid"]
        .iter()
        .any(|known| attribute.path().is_ident(known))
}

fn collect_names(pattern: &Pat, found: &mut impl FnMut(&Ident)) {
    match pattern {
        Pat::Ident(name) => {
            found(&name.ident);
            if let Some((_, inner)) = &name.subpat {
                collect_names(inner, found);
            }
        }
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(|p| collect_names(p, found)),
        Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(|p| collect_names(p, found)),
        Pat::Struct(fields) => fields.fields.iter().for_each(|f| collect_names(&f.pat, found)),
        Pat::Slice(slice) => slice.elems.iter().for_each(|p| collect_names(p, found)),
        Pat::Reference(reference) => collect_names(&reference.pat, found),
        Pat::Paren(inner) => collect_names(&inner.pat, found),
        Pat::Type(typed) => collect_names(&typed.pat, found),
        // Alternatives bind the same names.
        Pat::Or(cases) => {
            if let Some(first) = cases.cases.first() {
                collect_names(first, found);
            }
        }
        _ => {}
    }
}

impl AsyncBlock {
    fn at_end_of(body: &Group) -> Option<Self> {
        let mut trees: Vec<TokenTree> = body.stream().into_iter().collect();
        let TokenTree::Group(last) = trees.pop()? else { return None };
        match last.delimiter() {
            Delimiter::Brace => Self::bare(trees, last),
            Delimiter::Parenthesis => Self::pinned(trees, &last),
            _ => None,
        }
    }

    /// `async move { .. }`
    fn bare(mut before: Vec<TokenTree>, content: Group) -> Option<Self> {
        if content.delimiter() != Delimiter::Brace {
            return None;
        }
        if is_word(before.last(), "move") {
            before.pop();
        }
        if !is_word(before.last(), "async") {
            return None;
        }
        let keyword = before.pop().map_or_else(Span::call_site, |keyword| keyword.span());
        // `async {}` is the value only where an expression may start.
        let starts = match before.last() {
            None | Some(TokenTree::Group(_)) => true,
            Some(TokenTree::Punct(punct)) => punct.as_char() == ';',
            Some(TokenTree::Ident(word)) => word == "return",
            Some(TokenTree::Literal(_)) => false,
        };
        starts.then(|| Self { keyword, pin: None, only: before.is_empty().then_some(content) })
    }

    /// `Box::pin(async move { .. })`, however the path of `Box` is written.
    fn pinned(mut before: Vec<TokenTree>, parentheses: &Group) -> Option<Self> {
        let mut inner: Vec<TokenTree> = parentheses.stream().into_iter().collect();
        if matches!(inner.last(), Some(TokenTree::Punct(comma)) if comma.as_char() == ',') {
            inner.pop();
        }
        let Some(TokenTree::Group(content)) = inner.pop() else { return None };
        // Inside the parentheses there is nothing but the block.
        let Self { keyword, only, .. } = Self::bare(inner, content)?;
        let content = only?;
        let path = before.split_off(path_start(&before));
        ends_with_pin(&path).then(|| Self {
            keyword,
            pin: Some((path.into_iter().collect(), parentheses.span())),
            only: before.is_empty().then_some(content),
        })
    }

    /// The future that takes the place of the block.
    pub(crate) fn replaced(&self, content: TokenStream, span: Span) -> TokenStream {
        let mut block = Group::new(Delimiter::Brace, content);
        block.set_span(span);
        let future = quote_spanned!(self.keyword=> async move #block);
        match &self.pin {
            None if self.only.is_some() => future,
            // There were statements before it, for which clippy would propose an `async fn`.
            None => quote!(::core::convert::identity(#future)),
            Some((pin, span)) => {
                let mut pinned = Group::new(Delimiter::Parenthesis, future);
                pinned.set_span(*span);
                quote!(#pin #pinned)
            }
        }
    }
}

/// Where the path that the tokens end with begins: `a::b::c` or `::a::b::c`.
fn path_start(trees: &[TokenTree]) -> usize {
    let is_colon = |at: usize| matches!(&trees[at], TokenTree::Punct(p) if p.as_char() == ':');
    let mut start = trees.len();
    loop {
        if start == 0 || !matches!(trees[start - 1], TokenTree::Ident(_)) {
            return start;
        }
        start -= 1;
        if start < 2 || !is_colon(start - 1) || !is_colon(start - 2) {
            return start;
        }
        start -= 2;
    }
}

fn is_word(tree: Option<&TokenTree>, word: &str) -> bool {
    matches!(tree, Some(TokenTree::Ident(ident)) if ident == word)
}

/// `Box::pin`, however its path is written.
fn ends_with_pin(trees: &[TokenTree]) -> bool {
    let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ':');
    match trees {
        [.., ty, one, two, pin] => {
            is_word(Some(ty), "Box") && is_colon(one) && is_colon(two) && is_word(Some(pin), "pin")
        }
        _ => false,
    }
}
