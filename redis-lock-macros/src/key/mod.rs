//! The key: from a template to the tokens that render it.

mod check;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Attribute, Expr, Index, LitStr, Path};

use crate::diagnostics::Mistakes;
use crate::function::Function;
use crate::options::{Element, KeySource, TemplateArgument};
use crate::template::{Hole, Piece, Step, Template, Unread, Value, Width};
use crate::tokens::{first_span, local, located, unraw, variables};

/// The longest key that the runtime takes.
const MAX_BYTES: usize = 4096;

/// The tokens of a key.
pub(crate) enum Key {
    /// A `LockKey`.
    Constant(TokenStream),
    /// A `Result<LockKey, LockError>`.
    Rendered(TokenStream),
    /// A `Result<Vec<LockKey>, LockError>`.
    Several(TokenStream),
    /// An iterator of keys.
    Iterator(TokenStream),
}

/// What a template may refer to, and how the runtime is called.
pub(crate) struct Scope<'a> {
    krate: &'a Path,
    names: Vec<(Ident, Vec<Attribute>)>,
    /// Const generics of the function.
    constants: Vec<String>,
    has_receiver: bool,
    /// What stands before each template.
    prefix: Option<&'a LitStr>,
    /// Whether the names are those around a `key!`, which are not known.
    is_inline: bool,
}

impl<'a> Scope<'a> {
    pub(crate) fn of(function: &Function, prefix: Option<&'a LitStr>, krate: &'a Path) -> Self {
        let generics = &function.signature.generics;
        Self {
            krate,
            names: function.names(),
            constants: generics.const_params().map(|param| unraw(&param.ident)).collect(),
            has_receiver: function.has_receiver(),
            prefix,
            is_inline: false,
        }
    }

    /// That of `key!`: a name in small letters is a variable.
    pub(crate) fn inline(source: &KeySource, krate: &'a Path) -> Self {
        let mut names = Vec::new();
        if let KeySource::Template(literal, _) = source {
            for name in variables(&literal.value()) {
                let is_constant = name.trim_start_matches('_').starts_with(char::is_uppercase);
                let is_known = names.iter().any(|(known, _)| unraw(known) == name);
                if name != "self" && !is_constant && !is_known {
                    let ident = syn::parse_str(&name).map_or_else(
                        |_| Ident::new_raw(&name, literal.span()),
                        |it: Ident| Ident::new(&unraw(&it), literal.span()),
                    );
                    names.push((ident, Vec::new()));
                }
            }
        }
        let (constants, prefix) = (Vec::new(), None);
        Self { krate, names, constants, has_receiver: true, prefix, is_inline: true }
    }

    /// Where names out of the literal stand. For an attribute they mean what they mean at the function,
    /// for `key!` what they mean where the literal was written.
    fn span(&self, literal: &LitStr) -> Span {
        if self.is_inline { literal.span() } else { Span::call_site().located_at(literal.span()) }
    }

    fn is_bound(&self, name: &str) -> bool {
        self.names.iter().any(|(bound, _)| unraw(bound) == name)
    }
}

pub(crate) fn expand(source: &KeySource, scope: &Scope<'_>, mistakes: &mut Mistakes) -> Key {
    let krate = scope.krate;
    match source {
        KeySource::Template(template, arguments) => {
            match expand_template(template, arguments, scope, mistakes) {
                Rendering::Constant(text, warning) => {
                    let key = quote!(#krate::LockKey::from_static(#text));
                    Key::Constant(match warning {
                        Some(warning) => quote!({ #warning #key }),
                        None => key,
                    })
                }
                Rendering::Run(tokens) => Key::Rendered(tokens),
            }
        }
        KeySource::List(elements) => {
            let elements = elements.iter().map(|element| match element {
                Element::Template(template) => {
                    match expand_template(template, &[], scope, mistakes) {
                        Rendering::Constant(text, warning) => {
                            let key = quote!(#krate::LockKey::from_static(#text));
                            quote!({ #warning ::core::result::Result::Ok(#key) })
                        }
                        Rendering::Run(tokens) => tokens,
                    }
                }
                Element::Expr(expr) => {
                    quote!(::core::result::Result::Ok(#krate::__private_0_1::key(#expr)))
                }
            });
            Key::Several(quote!(#krate::__private_0_1::keys([#(#elements),*])))
        }
        KeySource::Iterator(expr) => Key::Iterator(expr.to_token_stream()),
    }
}

enum Rendering {
    /// The key's text, and a warning about it.
    Constant(LitStr, Option<TokenStream>),
    /// An expression that renders it.
    Run(TokenStream),
}

/// Input: `"order:{order_id}:{user.region}"`
///
/// Output:
/// ```text
/// {
///     let order_id = __private::segment(&order_id);
///     __private::render(format_args!("order:{order_id}:{__key0}", __key0 = __private_0_1::segment(&(user.region))))
/// }
/// ```
fn expand_template(
    literal: &LitStr,
    arguments: &[TemplateArgument],
    scope: &Scope<'_>,
    mistakes: &mut Mistakes,
) -> Rendering {
    let krate = scope.krate;
    let template = match Template::parse(&literal.value()) {
        Ok(template) => template,
        Err(Unread::Expression(expression)) => {
            let message = if expression == "_" {
                "`{_}` names no argument; give the argument a name, and write that".into()
            } else {
                format!(
                    "`{{{expression}}}`: a template holds names, fields and methods without \
                     arguments; pass other expressions by name: `key(\"…{{x}}…\", x = {expression})`"
                )
            };
            mistakes.at(literal, message);
            return Rendering::Run(TokenStream::new());
        }
        Err(Unread::Malformed) => {
            // rustc refuses it, at the very character. The names are wrapped all the same, so
            // that nothing gets past the escaping if it should not.
            let shadows = scope.names.iter().map(|(name, cfg)| shadow(name, cfg, krate));
            let plain = arguments.iter().map(|argument| {
                let name = argument.name.as_ref().map(|(name, equals)| quote!(#name #equals));
                let value = &argument.value;
                quote!(, #name #value)
            });
            return Rendering::Run(quote!({
                #(#shadows)*
                #krate::__private_0_1::render(::core::format_args!(#literal #(#plain)*))
            }));
        }
    };
    check::check(&template, literal, arguments, scope, mistakes);
    let warning = check::warning(&template, literal, scope);
    if arguments.is_empty()
        && let Some(constant) = constant(&template, literal, scope, mistakes)
    {
        return Rendering::Constant(constant, warning);
    }
    let (text, sugar) = desugar(&template, literal, scope);
    let values = forward(&template, arguments, krate).into_iter().chain(sugar).collect();
    let shadows = shadows(&template, arguments, scope);
    let unbound = unbound(&template, arguments, scope);
    let constants = constants(&unbound, literal, scope);
    let rendered = render(&text, values, shadows, constants, scope);
    Rendering::Run(match warning {
        Some(warning) => quote!({ #warning #rendered }),
        None => rendered,
    })
}

/// The names in the template that are neither variables nor arguments: constants, if anything.
fn unbound<'a>(
    template: &'a Template,
    arguments: &[TemplateArgument],
    scope: &Scope<'_>,
) -> Vec<&'a str> {
    let mut names = Vec::new();
    for hole in template.holes() {
        let Value::Name(name) = &hole.value else { continue };
        let is_argument = arguments
            .iter()
            .any(|a| a.name.as_ref().is_some_and(|(given, _)| unraw(given) == *name));
        if !(name == "self"
            || is_argument
            || scope.is_bound(name)
            || names.contains(&name.as_str()))
        {
            names.push(name);
        }
    }
    names
}

/// Constants in templates, wrapped like all values. They can't be shadowed by variables, but
/// `format_args!` prefers arguments of the same name.
fn constants(names: &[&str], literal: &LitStr, scope: &Scope<'_>) -> Vec<Forwarded> {
    let span = scope.span(literal);
    let wrapped = names.iter().map(|name| {
        let ident = syn::parse_str::<Ident>(name).unwrap_or_else(|_| Ident::new_raw(name, span));
        let ident = Ident::new(&ident.to_string().replace("r#", ""), span);
        let krate = located(scope.krate.to_token_stream(), span);
        let value = quote_spanned!(span=> #krate::__private_0_1::segment(&#ident));
        Forwarded { name: Some(quote!(#ident =)), value }
    });
    wrapped.collect()
}

/// An argument after the template: `name = value` or `value`.
struct Forwarded {
    name: Option<TokenStream>,
    value: TokenStream,
}

/// The user's own arguments, wrapped; a width is a number to `format!` and stays one.
fn forward(template: &Template, arguments: &[TemplateArgument], krate: &Path) -> Vec<Forwarded> {
    let mut position = 0_usize;
    let mut is_width = |argument: &TemplateArgument| {
        let at = position;
        position += usize::from(argument.name.is_none());
        widths(template).any(|width| match (width, &argument.name) {
            (Width::Name(used), Some((name, _))) => *used == unraw(name),
            (Width::Position(used), None) => used == &at,
            _ => false,
        })
    };
    let forwarded = arguments.iter().map(|argument| Forwarded {
        name: argument.name.as_ref().map(|(name, equals)| quote!(#name #equals)),
        value: if is_width(argument) {
            argument.value.to_token_stream()
        } else {
            segment(&argument.value, krate)
        },
    });
    forwarded.collect()
}

/// The variables of the function that the template names, wrapped under their own names.
fn shadows(
    template: &Template,
    arguments: &[TemplateArgument],
    scope: &Scope<'_>,
) -> Vec<TokenStream> {
    let is_argument = |name: &str| {
        arguments.iter().filter_map(|a| a.name.as_ref()).any(|(given, _)| unraw(given) == name)
    };
    let is_value = |name: &str| {
        template.holes().any(|hole| matches!(&hole.value, Value::Name(used) if used == name))
    };
    let is_width = |name: &str| {
        widths(template).any(|width| matches!(width, Width::Name(used) if used == name))
    };
    let named = scope.names.iter().filter(|(name, _)| {
        let name = unraw(name);
        is_value(&name) && !is_argument(&name) && !is_width(&name)
    });
    named.map(|(name, cfg)| shadow(name, cfg, scope.krate)).collect()
}

fn render(
    text: &LitStr,
    values: Vec<Forwarded>,
    shadows: Vec<TokenStream>,
    constants: Vec<Forwarded>,
    scope: &Scope<'_>,
) -> TokenStream {
    let krate = scope.krate;
    let split = |forwarded: Vec<Forwarded>| -> (Vec<_>, Vec<_>) {
        forwarded.into_iter().map(|forwarded| (forwarded.name, forwarded.value)).unzip()
    };
    let (names, mut values) = split(values);
    // The arguments' own expressions mean the function's variables, so they come first.
    let mut locals = Vec::new();
    let mut expressions = Vec::new();
    if !shadows.is_empty() {
        for value in &mut values {
            let local = local(&format!("value{}", locals.len()));
            expressions.push(std::mem::replace(value, local.to_token_stream()));
            locals.push(local);
        }
    }
    let (constant_names, constant_values) = split(constants);
    let mut rendered = quote! {
        ::core::format_args!(
            #text #(, #names #values)* #(, #constant_names #constant_values)*
        )
    };
    if let Some(prefix) = scope.prefix {
        let around = LitStr::new(&format!("{}{{}}", prefix.value()), prefix.span());
        rendered = quote!(::core::format_args!(#around, #rendered));
    }
    let rendered = quote!(#krate::__private_0_1::render(#rendered));
    if shadows.is_empty() {
        return rendered;
    }
    let rendered = quote!({ #(#shadows)* #rendered });
    if locals.is_empty() {
        return rendered;
    }
    quote!(match (#(#expressions,)*) { (#(#locals,)*) => #rendered })
}

/// The literal for `format_args!`, untouched unless it has dotted placeholders, which become
/// separate arguments.
fn desugar(template: &Template, literal: &LitStr, scope: &Scope<'_>) -> (LitStr, Vec<Forwarded>) {
    let is_sweet = |hole: &Hole| match &hole.value {
        Value::Path { .. } => true,
        // Without a `self` it is left to rustc, which says so at the placeholder.
        Value::Name(name) => name == "self" && scope.has_receiver,
        Value::Next | Value::Position(_) => false,
    };
    if !template.holes().any(is_sweet) {
        return (literal.clone(), Vec::new());
    }
    // With the literal's own span rustc would offer to replace the whole string by a field's name.
    let span = scope.span(literal);
    let krate = located(scope.krate.to_token_stream(), span);
    let mut text = String::new();
    let mut sugar = Vec::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(literal) => text.push_str(&literal.replace('{', "{{").replace('}', "}}")),
            Piece::Hole(hole) if is_sweet(hole) => {
                let name = local(&format!("key{}", sugar.len()));
                text.push_str(&format!("{{{name}{}}}", hole.spec.source));
                let path = hole.value.path(span);
                let value = quote_spanned!(span=> #krate::__private_0_1::segment(&(#path)));
                sugar.push(Forwarded { name: Some(quote!(#name =)), value });
            }
            Piece::Hole(hole) => text.push_str(&format!("{{{}}}", hole.source)),
        }
    }
    (LitStr::new(&text, span), sugar)
}

impl Value {
    /// The expression that a name or a dotted name means.
    fn path(&self, span: Span) -> TokenStream {
        let word = |name: &str| {
            if name == "self" {
                return Ident::new(name, span);
            }
            syn::parse_str::<Ident>(name).map_or_else(
                |_| Ident::new_raw(name, span),
                |mut ident| {
                    ident.set_span(span);
                    ident
                },
            )
        };
        match self {
            Self::Path { base, steps } => {
                let mut tokens = word(base).to_token_stream();
                for step in steps {
                    tokens.extend(match step {
                        Step::Field(name) => {
                            let name = word(name);
                            quote_spanned!(span=> .#name)
                        }
                        Step::Index(index) => {
                            let index = Index { index: *index, span };
                            quote_spanned!(span=> .#index)
                        }
                        Step::Call(name) => {
                            let name = word(name);
                            quote_spanned!(span=> .#name())
                        }
                    });
                }
                tokens
            }
            Self::Name(name) => word(name).to_token_stream(),
            Self::Next | Self::Position(_) => TokenStream::new(),
        }
    }
}

/// `let order_id = segment(&order_id);`, so that the untouched literal means the wrapped value.
fn shadow(name: &Ident, cfg: &[Attribute], krate: &Path) -> TokenStream {
    // Each lint that is named takes build time.
    let of_underscore =
        unraw(name).starts_with('_').then(|| quote!(, clippy::used_underscore_binding));
    quote! {
        #(#cfg)*
        #[allow(clippy::shadow_reuse #of_underscore)]
        let #name = #krate::__private_0_1::segment(&#name);
    }
}

fn segment(value: &Expr, krate: &Path) -> TokenStream {
    let span = first_span(value.to_token_stream());
    let krate = located(krate.to_token_stream(), span);
    quote_spanned!(span=> #krate::__private_0_1::segment(&(#value)))
}

fn widths(template: &Template) -> impl Iterator<Item = &Width> {
    template.holes().filter_map(|hole| hole.spec.width.as_ref())
}

fn constant(
    template: &Template,
    literal: &LitStr,
    scope: &Scope<'_>,
    mistakes: &mut Mistakes,
) -> Option<LitStr> {
    let mut text = scope.prefix.map(LitStr::value).unwrap_or_default();
    for piece in &template.pieces {
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Hole(_) => return None,
        }
    }
    if text.len() > MAX_BYTES {
        let message = format!(
            "{} bytes are more than the {MAX_BYTES} of a key; lock a shorter name",
            text.len()
        );
        mistakes.at(literal, message);
    }
    Some(if text == literal.value() { literal.clone() } else { LitStr::new(&text, literal.span()) })
}
