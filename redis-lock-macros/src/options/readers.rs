//! How the values of options are read.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{
    Error, Expr, ExprLit, ExprUnary, Lit, LitStr, Path, Result, Token, UnOp, parenthesized, token,
};

use super::value::{Element, KeySource, TemplateArgument, unwrapped};
use super::{Setting, literals};
use crate::suggest;

pub(super) fn set<T>(place: &mut Option<Setting<T>>, name: Ident, value: T) -> Result<()> {
    if place.is_some() {
        return Err(Error::new_spanned(&name, format!("`{name}` is set twice; keep one of them")));
    }
    *place = Some(Setting { name, value });
    Ok(())
}

pub(super) fn assign<T>(
    place: &mut Option<Setting<T>>,
    name: Ident,
    input: ParseStream<'_>,
    example: &str,
    read: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    let value = assigned(&name, input, example, read);
    // When an option is given twice and is also wrong, only the former is reported.
    if place.is_some() {
        return Err(Error::new_spanned(&name, format!("`{name}` is set twice; keep one of them")));
    }
    set(place, name, value?)
}

pub(super) fn assigned<T>(
    name: &Ident,
    input: ParseStream<'_>,
    example: &str,
    read: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<T> {
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new_spanned(
            name,
            format!("`{name}` needs a value; write e.g. `{example}`"),
        ));
    }
    if !input.peek(Token![=]) {
        return Err(input.error(format!("expected `=`; write e.g. `{example}`")));
    }
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new_spanned(
            equals,
            format!("a value is missing; write e.g. `{example}`"),
        ));
    }
    read(input)
}

pub(super) fn flag(name: &Ident, input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    Err(input.error(format!("`{name}` takes no value; write just `{name}`, or leave it out")))
}

pub(super) fn expression(input: ParseStream<'_>) -> Result<Expr> {
    input.parse()
}

/// A `Locks` that outlives the call. What plainly makes one anew locks nothing, or connects each time.
pub(super) fn manager(input: ParseStream<'_>) -> Result<Expr> {
    let value = unwrapped(input.parse()?);
    if matches!(value, Expr::Lit(_)) {
        let message = format!("`via` takes a `Locks`, and this is none; {MADE_ONCE}");
        return Err(Error::new_spanned(value, message));
    }
    if let Some(name) = made_by(&value) {
        let message = format!(
            "`Locks::{name}` makes a `Locks` for each call: those in memory exclude no other call, and the \
             others connect each time; {MADE_ONCE}"
        );
        return Err(Error::new_spanned(value, message));
    }
    Ok(value)
}

const MADE_ONCE: &str = "make one at start-up, with `Locks::connect(url).await?`, and keep it in a \
                         field, `via = self.locks`, or call `install()` on it and leave `via` out";

/// The function of `Locks` that the expression calls to make one.
fn made_by(value: &Expr) -> Option<String> {
    match value {
        Expr::Try(it) => made_by(&it.expr),
        Expr::Await(it) => made_by(&it.base),
        Expr::Paren(it) => made_by(&it.expr),
        Expr::Group(it) => made_by(&it.expr),
        Expr::Reference(it) => made_by(&it.expr),
        Expr::MethodCall(it) => made_by(&it.receiver),
        Expr::Call(call) => {
            let Expr::Path(path) = &*call.func else { return None };
            let mut names = path.path.segments.iter().rev().map(|it| it.ident.to_string());
            let (name, ty) = (names.next()?, names.next()?);
            let makes = ["in_memory", "open", "connect", "from_env", "builder"].contains(&&*name);
            (makes && ty == "Locks" || name == "new" && ty == "LocksBuilder").then_some(name)
        }
        _ => None,
    }
}

/// An expression that turns an error into a value: a closure or a path. Users often write a value
/// or a future instead.
pub(super) fn handler(input: ParseStream<'_>) -> Result<Expr> {
    let value = unwrapped(input.parse()?);
    let is_value = match &value {
        Expr::Closure(closure) => {
            if let Some(asyncness) = &closure.asyncness {
                let message = "`on_error` cannot wait: it returns what the function returns, and \
                               an async closure returns a future; leave `async` out";
                return Err(Error::new_spanned(asyncness, message));
            }
            if closure.inputs.len() != 1 {
                let message = "`on_error` is given the error and nothing else; write `|err| …`";
                return Err(Error::new_spanned(closure, message));
            }
            if let Expr::Async(block) = &*closure.body {
                let message = "`on_error` cannot wait: it returns what the function returns, and \
                               this is a future; write the value";
                return Err(Error::new_spanned(block.async_token, message));
            }
            false
        }
        Expr::Async(block) => {
            let message = "`on_error` cannot wait, and it is given the error; write `|err| value`";
            return Err(Error::new_spanned(block.async_token, message));
        }
        Expr::Path(path) => path.path.is_ident("None"),
        Expr::Call(call) => {
            let is_named = |name| matches!(&*call.func, Expr::Path(it) if it.path.is_ident(name));
            ["Ok", "Err", "Some"].into_iter().any(is_named)
        }
        Expr::Lit(_) | Expr::Tuple(_) | Expr::Array(_) => true,
        _ => false,
    };
    if is_value {
        let written = value.to_token_stream();
        let message = format!(
            "`on_error` is given the error and returns the value; write `on_error = |_| {written}`"
        );
        return Err(Error::new_spanned(value, message));
    }
    Ok(value)
}

/// `renew = false`. Without a value it would repeat the default.
pub(super) fn switch(
    place: &mut Option<Setting<Expr>>,
    name: Ident,
    input: ParseStream<'_>,
    example: &str,
) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        let message =
            format!("`{name}` is on by default: leave it out, or switch it off with `{example}`");
        return Err(Error::new_spanned(name, message));
    }
    assign(place, name, input, example, |input| {
        let value = unwrapped(input.parse()?);
        match &value {
            Expr::Lit(ExprLit { lit, .. }) if !matches!(lit, Lit::Bool(_)) => {
                Err(Error::new_spanned(lit, "expected `true` or `false`, without quotes"))
            }
            _ => Ok(value),
        }
    })
}

pub(super) fn permits(input: ParseStream<'_>) -> Result<Expr> {
    let negative = "fewer than one permit could never be acquired; write e.g. `permits = 4`";
    let zero = "zero permits could never be acquired; allow at least 1";
    count(input, [negative, zero, "expected how many may hold it at once, e.g. `permits = 4`"])
}

pub(super) fn waiters(input: ParseStream<'_>) -> Result<Expr> {
    let few =
        "max_waiters below 1 would refuse every call that waits; use `wait = \"none\"` for that";
    count(input, [few, few, "expected how many calls may wait, e.g. `max_waiters = 100`"])
}

pub(super) fn places(input: ParseStream<'_>) -> Result<Expr> {
    let few = "no call would ever wait with `queue = 0`; write `wait = \"none\"` for that";
    count(input, [few, few, "expected how many calls may wait, e.g. `queue = 1`"])
}

/// A number above zero, or an expression. The messages are for a negative number, zero, and other
/// literals.
fn count(input: ParseStream<'_>, [negative, zero, other]: [&str; 3]) -> Result<Expr> {
    let value = unwrapped(input.parse()?);
    let message = match &value {
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => negative,
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_digits() == "0" => zero,
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. })
            if number.base10_parse::<u32>().is_ok() =>
        {
            return Ok(value);
        }
        Expr::Lit(_) => other,
        _ => return Ok(value),
    };
    Err(Error::new_spanned(value, message))
}

pub(super) fn choice<T: Copy>(input: ParseStream<'_>, choices: &[(&str, T)]) -> Result<T> {
    let expected = || {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("`{name}`")).collect();
        format!("expected {}", names.join(" or "))
    };
    if let Ok(text) = input.parse::<LitStr>() {
        let is_choice = choices.iter().any(|(name, _)| *name == text.value());
        let message = match is_choice {
            true => format!("write `{}`, without quotes", text.value()),
            false => format!("{}, without quotes", expected()),
        };
        return Err(Error::new_spanned(text, message));
    }
    let word: Ident =
        input.call(Ident::parse_any).map_err(|error| Error::new(error.span(), expected()))?;
    match choices.iter().find(|(name, _)| word == name) {
        Some((_, value)) => Ok(*value),
        None => {
            let near = suggest::closest(&word.to_string(), choices.iter().map(|(name, _)| *name));
            let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Err(Error::new_spanned(word, format!("{}{hint}", expected())))
        }
    }
}

/// The text that stands before the templates of a block.
pub(super) fn prefix(input: ParseStream<'_>) -> Result<LitStr> {
    let example =
        "a prefix is a text that stands before every template, e.g. `prefix = \"orders:\"`";
    let text: LitStr = input.parse().map_err(|error| Error::new(error.span(), example))?;
    if text.value().is_empty() || text.value().contains(['{', '}']) {
        return Err(Error::new_spanned(text, format!("{example}; it holds no placeholders")));
    }
    Ok(text)
}

pub(super) fn binding(input: ParseStream<'_>) -> Result<Ident> {
    input.parse().map_err(|error: Error| {
        Error::new(error.span(), "expected a name for the variable that the body will see")
    })
}

pub(super) fn absolute_path(input: ParseStream<'_>) -> Result<Path> {
    let path = Path::parse_mod_style(input)?;
    let first = path.segments.first().map(|segment| segment.ident.to_string());
    let anchored =
        path.leading_colon.is_some() || matches!(first.as_deref(), Some("crate" | "$crate"));
    if anchored {
        return Ok(path);
    }
    let written = path.to_token_stream().to_string().replace(' ', "");
    let message = format!(
        "the path must be absolute, it is used from any module; write `crate = ::{written}` for a \
         dependency or `crate = crate::{written}` for a re-export"
    );
    Err(Error::new_spanned(path, message))
}

const NOT_A_TEMPLATE: &str =
    "a lock key template must be a string literal; for an expression use `key(\"{}\", expr)`";

pub(super) fn key(name: &Ident, example: &str, input: ParseStream<'_>) -> Result<KeySource> {
    if input.peek(token::Paren) {
        let content;
        parenthesized!(content in input);
        return token_form(&content);
    }
    assigned(name, input, example, |input| Ok(KeySource::Template(template(input)?, Vec::new())))
}

/// `"svc:{t}:{n}", t = self.tenant, …`
pub(crate) fn token_form(input: ParseStream<'_>) -> Result<KeySource> {
    if input.is_empty() {
        return Err(
            input.error("a template is missing; write e.g. `key(\"order:{id}\", id = order.id)`")
        );
    }
    let template = template(input)?;
    let mut arguments = Vec::new();
    while !input.is_empty() {
        let _: Token![,] = input.parse()?;
        if input.is_empty() {
            break;
        }
        let named =
            input.peek(Ident::peek_any) && input.peek2(Token![=]) && !input.peek2(Token![==]);
        let name = if named { Some((input.call(Ident::parse_any)?, input.parse()?)) } else { None };
        let value: Expr = input.parse()?;
        literals::check(&value)?;
        arguments.push(TemplateArgument { name, value });
    }
    Ok(KeySource::Template(template, arguments))
}

fn template(input: ParseStream<'_>) -> Result<LitStr> {
    // The whole expression is taken, so that `concat!(..)` is underlined as one.
    match unwrapped(input.parse()?) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), attrs }) if attrs.is_empty() => {
            known_template(text)
        }
        other => Err(Error::new_spanned(other, NOT_A_TEMPLATE)),
    }
}

fn known_template(text: LitStr) -> Result<LitStr> {
    if text.value().is_empty() {
        let message = "an empty key would lock everything against everything; name what is locked, \
                       e.g. \"order:{order_id}\"";
        return Err(Error::new_spanned(text, message));
    }
    Ok(text)
}

pub(super) fn keys(name: &Ident, example: &str, input: ParseStream<'_>) -> Result<KeySource> {
    let value = unwrapped(assigned(name, input, example, expression)?);
    let Expr::Array(array) = value else {
        if !matches!(value, Expr::Lit(_)) {
            literals::check(&value)?;
        }
        return match value {
            Expr::Lit(one) => Err(Error::new_spanned(
                one,
                "`keys` takes several: `keys = [\"a:{x}\", \"b:{y}\"]`; for a single one write `key = ..`",
            )),
            other => Ok(KeySource::Iterator(other)),
        };
    };
    if array.elems.is_empty() {
        return Err(Error::new_spanned(array, "no keys would lock nothing; name what is locked"));
    }
    let mut seen: Vec<String> = Vec::new();
    let mut elements = Vec::new();
    for element in array.elems {
        elements.push(match unwrapped(element) {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                let text = known_template(text)?;
                if seen.contains(&text.value()) {
                    return Err(Error::new_spanned(text, "this key is listed twice"));
                }
                seen.push(text.value());
                Element::Template(text)
            }
            other => {
                literals::check(&other)?;
                Element::Expr(other)
            }
        });
    }
    Ok(KeySource::List(elements))
}
