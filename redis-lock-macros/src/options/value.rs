//! The values that options take.

use std::collections::HashSet;
use std::time::Duration;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::ParseStream;
use syn::{Error, Expr, ExprLit, ExprUnary, Lit, LitStr, Result, Token, UnOp};

use crate::template::{Step, Template, Value};
use crate::{duration, tokens};

/// Where the key comes from.
pub(crate) enum KeySource {
    /// `key = "order:{id}"` or `key("order:{id}", id = order.id)`: a template and its arguments.
    Template(LitStr, Vec<TemplateArgument>),
    /// `keys = ["a:{x}", "b:{y}"]`; an element is a template or any expression.
    List(Vec<Element>),
    /// `keys = expr`: an iterator of keys.
    Iterator(Expr),
}

impl KeySource {
    /// Whether a template calls a method, as `{user.name()}`.
    pub(crate) fn calls(&self) -> bool {
        let has_calls = |text: &LitStr| {
            let template = Template::parse(&text.value());
            template.is_ok_and(|template| {
                template.holes().any(|hole| match &hole.value {
                    Value::Path { steps, .. } => {
                        steps.iter().any(|step| matches!(step, Step::Call(_)))
                    }
                    Value::Name(_) | Value::Next | Value::Position(_) => false,
                })
            })
        };
        match self {
            Self::Template(text, _) => has_calls(text),
            Self::List(elements) => elements.iter().filter_map(Element::template).any(has_calls),
            Self::Iterator(_) => false,
        }
    }

    /// Whether one of the keys is given by an expression.
    pub(crate) fn has_plain_keys(&self) -> bool {
        match self {
            Self::Template(..) => false,
            Self::List(elements) => elements.iter().any(|it| it.expr().is_some()),
            Self::Iterator(_) => true,
        }
    }

    /// The user's expressions in it.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        match self {
            Self::Template(_, arguments) => {
                arguments.iter().map(|argument| &argument.value).collect()
            }
            Self::List(elements) => elements.iter().filter_map(Element::expr).collect(),
            Self::Iterator(expr) => vec![expr],
        }
    }

    /// What its locks are called in numbers: the templates as they were written, and expressions in
    /// braces.
    pub(crate) fn title(&self, prefix: &str) -> String {
        let template = |text: &LitStr| format!("{prefix}{}", text.value());
        let expression =
            |expr: &Expr| format!("{{{}}}", expr.to_token_stream().to_string().replace(' ', ""));
        match self {
            Self::Template(text, _) => template(text),
            Self::List(elements) => {
                let each = elements.iter().map(|element| match element {
                    Element::Template(text) => template(text),
                    Element::Expr(expr) => expression(expr),
                });
                each.collect::<Vec<_>>().join(", ")
            }
            Self::Iterator(expr) => expression(expr),
        }
    }

    /// Every variable that the key may mean, and other names.
    pub(crate) fn words(&self) -> HashSet<String> {
        let templates: Vec<&LitStr> = match self {
            Self::Template(template, _) => vec![template],
            Self::List(elements) => elements.iter().filter_map(Element::template).collect(),
            Self::Iterator(_) => Vec::new(),
        };
        let named = templates.into_iter().flat_map(|template| tokens::variables(&template.value()));
        let written = self.expressions().into_iter();
        let meant = written.flat_map(|expr| tokens::words(expr.to_token_stream()).into_keys());
        named.chain(meant).collect()
    }
}

/// `id = order.id` or `order.id`, behind a template.
pub(crate) struct TemplateArgument {
    pub(crate) name: Option<(syn::Ident, Token![=])>,
    pub(crate) value: Expr,
}

/// One of `keys = [..]`.
pub(crate) enum Element {
    Template(LitStr),
    Expr(Expr),
}

impl Element {
    pub(crate) fn template(&self) -> Option<&LitStr> {
        match self {
            Self::Template(template) => Some(template),
            Self::Expr(_) => None,
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Self::Template(_) => None,
            Self::Expr(expr) => Some(expr),
        }
    }
}

/// The sort of lock, if it is no mutex: the call on the plan, and its argument.
pub(crate) struct Kind {
    pub(crate) call: &'static str,
    pub(crate) argument: Option<Expr>,
}

/// `ttl`
pub(crate) enum Lease {
    Never(LitStr),
    For(Time),
}

/// `wait`
pub(crate) enum Waiting {
    Forever(LitStr),
    None,
    For(Time),
}

/// `on_lost`
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    Cancel,
    Finish,
}

/// `release`
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    Wait,
    Background,
}

/// A stretch of time: read at compile time, or computed at run time.
pub(crate) enum Time {
    Known(Duration, LitStr),
    Expr(Expr),
}

impl Time {
    pub(crate) fn known(&self) -> Option<Duration> {
        match self {
            Self::Known(duration, _) => Some(*duration),
            Self::Expr(_) => None,
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Self::Known(..) => None,
            Self::Expr(expr) => Some(expr),
        }
    }

    /// What the user wrote.
    pub(crate) fn written(&self) -> TokenStream {
        match self {
            Self::Known(_, text) => text.to_token_stream(),
            Self::Expr(expr) => expr.to_token_stream(),
        }
    }

    /// Reads `"30s"` or an expression. `zero` says why nothing is too little.
    pub(crate) fn parse(input: ParseStream<'_>, zero: &str) -> Result<Self> {
        Self::parse_beside(input, zero, &[(&NO_TIMES, "leave the option out for no limit")])
    }

    /// As [`parse`](Self::parse); `words` are those that say something else than a time, and what to
    /// write instead.
    fn parse_beside(input: ParseStream<'_>, zero: &str, words: &[(&[&str], &str)]) -> Result<Self> {
        let value = unwrapped(input.parse()?);
        let word = match &value {
            // Other names may be those of variables.
            Expr::Path(path) => {
                path.path.segments.last().map(|it| it.ident.to_string()).filter(|name| {
                    let is_bare = path.path.get_ident().is_some();
                    is_bare && ["none", "never", "forever"].contains(&&**name)
                        || name == "None"
                            && path
                                .path
                                .segments
                                .iter()
                                .all(|it| ENUM.contains(&&*it.ident.to_string()))
                })
            }
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            Expr::Lit(ExprLit { lit: Lit::Bool(switch), .. }) => Some(switch.value.to_string()),
            Expr::Call(call) if call.func.to_token_stream().to_string() == "Some" => {
                let message =
                    format!("`Some` is not needed; write `{}`", call.args.to_token_stream());
                return Err(Error::new_spanned(&value, message));
            }
            _ => None,
        };
        let advice = word.and_then(|word| {
            words.iter().find(|(words, _)| words.contains(&&*word)).map(|(_, advice)| *advice)
        });
        match advice {
            Some(advice) => {
                let is_bare = matches!(value, Expr::Path(_)) && advice.ends_with('`');
                let quotes = if is_bare { ", in quotes" } else { "" };
                Err(Error::new_spanned(&value, format!("{advice}{quotes}")))
            }
            None => Self::of(value, zero),
        }
    }

    fn of(value: Expr, zero: &str) -> Result<Self> {
        match &value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                let known = duration::parse(&text.value())
                    .and_then(
                        |known| {
                            if known.is_zero() { Err(zero.to_owned()) } else { Ok(known) }
                        },
                    )
                    .map_err(|message| Error::new_spanned(text, message))?;
                Ok(Self::Known(known, text.clone()))
            }
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
                let digits = number.base10_digits();
                if digits == "0" {
                    return Err(Error::new_spanned(number, zero));
                }
                let message = if number.suffix().is_empty() {
                    format!("`{digits}` has no unit; write `\"{digits}s\"` for seconds")
                } else {
                    format!("a duration is a string; write `\"{number}\"` in quotes")
                };
                Err(Error::new_spanned(number, message))
            }
            Expr::Lit(other) => {
                let message = format!("this is not a duration; {}", duration::FORMS);
                Err(Error::new_spanned(other, message))
            }
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. })
                if matches!(**expr, Expr::Lit(_)) =>
            {
                let message = format!(
                    "a duration cannot be negative, time only goes forward; {}",
                    duration::FORMS
                );
                Err(Error::new_spanned(&value, message))
            }
            _ => Ok(Self::Expr(value)),
        }
    }
}

/// `Option::None`, as it can be written.
const ENUM: [&str; 5] = ["std", "core", "option", "Option", "None"];

/// Words for a time without an end, or for none at all.
const NO_TIMES: [&str; 9] =
    ["None", "none", "never", "forever", "infinite", "infinity", "unlimited", "false", "true"];

impl Lease {
    pub(crate) fn parse(input: ParseStream<'_>) -> Result<Self> {
        match word(input, &["never", "none"]) {
            Some(text) => Ok(Self::Never(text)),
            None => {
                let zero = "a ttl of zero would never hold a lock; \"30s\" is usual, \
                            \"never\" never expires";
                let never = "for a lock that never expires, write `\"never\"`";
                Ok(Self::For(Time::parse_beside(input, zero, &[(&NO_TIMES, never)])?))
            }
        }
    }
}

impl Waiting {
    pub(crate) fn parse(input: ParseStream<'_>) -> Result<Self> {
        if let Some(text) = word(input, &["forever"]) {
            return Ok(Self::Forever(text));
        }
        if word(input, &["none"]).is_some() {
            return Ok(Self::None);
        }
        let zero = "to make one attempt and not wait, write `wait = \"none\"`";
        let words: [(&[&str], &str); 3] = [
            (
                &["None"],
                "`None` could mean either: to make one attempt and not wait, write `\"none\"`; to \
                 wait without a limit, write `\"forever\"`",
            ),
            (
                &["none", "false", "never", "no"],
                "to make one attempt and not wait, write `\"none\"`",
            ),
            (
                &["forever", "true", "always", "yes", "infinite", "infinity", "unlimited", "max"],
                "to wait without a limit, write `\"forever\"`",
            ),
        ];
        Ok(Self::For(Time::parse_beside(input, zero, &words)?))
    }
}

/// The expression without the parentheses, also the invisible ones of a `macro_rules!` fragment.
pub(crate) fn unwrapped(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) if group.attrs.is_empty() => unwrapped(*group.expr),
        Expr::Paren(inner) if inner.attrs.is_empty() && matches!(*inner.expr, Expr::Lit(_)) => {
            *inner.expr
        }
        other => other,
    }
}

/// The string literal, consumed, if one of those comes next.
fn word(input: ParseStream<'_>, expected: &[&str]) -> Option<LitStr> {
    let text: LitStr = input.fork().parse().ok()?;
    if !expected.contains(&&*text.value()) {
        return None;
    }
    input.parse().ok()
}
