//! Parses tokens to [`Options`], and collects all mistakes.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Lit, Result, Token, parenthesized, parse_quote};

use super::Options;
use super::readers::{assign, prefix, set};
use super::table::{self, OPTIONS};
use super::value::{KeySource, Kind, TemplateArgument};
use crate::diagnostics::Mistakes;
use crate::suggest;
use crate::template::{Template, Value};

/// The group in which `#[redis_lock_defaults]` gives its options to a function.
pub(crate) const DEFAULTS: &str = "__defaults";

/// Reads the attribute's arguments.
pub(crate) fn parse(tokens: TokenStream, mistakes: &mut Mistakes) -> Options {
    let mut options = Options::default();
    options.read_all(tokens, mistakes);
    options
}

/// Reports what is wrong with the arguments of `#[redis_lock_defaults]`, and returns their names.
pub(crate) fn check_defaults(tokens: TokenStream, mistakes: &mut Mistakes) -> Vec<Ident> {
    let mut options = Options { are_defaults: true, ..Options::default() };
    options.read_all(tokens, mistakes);
    super::check(&options, mistakes);
    options.given
}

fn skip_to_comma(input: ParseStream<'_>) -> Result<()> {
    while !(input.is_empty() || input.peek(Token![,])) {
        let _: TokenTree = input.parse()?;
    }
    Ok(())
}

impl Options {
    /// What cannot be read is reported and skipped, so that the rest is checked in the same go.
    fn read_all(&mut self, tokens: TokenStream, mistakes: &mut Mistakes) {
        let read = |input: ParseStream<'_>| -> Result<()> {
            while !input.is_empty() {
                if let Err(error) = self.read_one(input) {
                    mistakes.add(error);
                } else if !(input.is_empty() || input.peek(Token![,])) {
                    mistakes.add(input.error("expected `,` between two options"));
                }
                skip_to_comma(input)?;
                let _ = input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            mistakes.add(error);
        }
    }

    /// Reads the options of a block around the function, except those that the function sets.
    fn read_defaults(&mut self, input: ParseStream<'_>) -> Result<()> {
        let content;
        parenthesized!(content in input);
        if content.peek2(Token![;]) {
            let owner = content.parse()?;
            let _: Token![;] = content.parse()?;
            self.owner.get_or_insert(owner);
        }
        while !content.is_empty() {
            let name = content.fork().call(Ident::parse_any)?;
            let kinds = ["read", "write", "permits"].map(str::to_owned);
            let is_set = self.given.iter().any(|given| {
                *given == name
                    || kinds.contains(&given.to_string()) && kinds.contains(&name.to_string())
            });
            if !is_set {
                self.read_default(&content)?;
            }
            skip_to_comma(&content)?;
            let _ = content.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    }

    fn read_default(&mut self, input: ParseStream<'_>) -> Result<()> {
        let name = input.fork().call(Ident::parse_any)?;
        if ["key", "keys", "fence", "guard", "slot", "request"].iter().any(|own| name == own) {
            let message = format!("`{name}` is for one function; write it in its `#[redis_lock]`");
            return Err(Error::new_spanned(name, message));
        }
        if name != "prefix" {
            return self.read_option(input);
        }
        let name = input.call(Ident::parse_any)?;
        self.given.push(name.clone());
        assign(&mut self.prefix, name, input, "prefix = \"orders:\"", prefix)
    }

    fn read_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        let starts_with = |name| input.fork().call(Ident::parse_any).is_ok_and(|it| it == name);
        if starts_with(DEFAULTS) {
            let _ = input.call(Ident::parse_any)?;
            return self.read_defaults(input);
        }
        if self.are_defaults && !input.peek(Lit) {
            return self.read_default(input);
        }
        self.read_option(input)
    }

    fn read_option(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(Lit) {
            self.given.push(Ident::new("key", input.span()));
            let message =
                format!("expected an option; a key template is written `{}`", OPTIONS[0].example);
            return Err(input.error(message));
        }
        let name = input.call(Ident::parse_any).map_err(|error| {
            Error::new(error.span(), format!("expected an option, e.g. `{}`", OPTIONS[0].example))
        })?;
        self.given.push(name.clone());
        match table::find(&name) {
            Some(entry) => (entry.read)(self, name, entry, input),
            None => Err(self.misplaced(name.clone()).unwrap_or_else(|| unknown(&name))),
        }
    }

    /// `key = "k:{}", id` and `key = "k:{x}", x = order.id`: arguments of the template, outside of
    /// the parentheses that they belong in.
    fn misplaced(&mut self, name: Ident) -> Option<Error> {
        let KeySource::Template(literal, arguments) = &mut self.key.as_mut()?.value else {
            return None;
        };
        let template = Template::parse(&literal.value()).ok()?;
        let is_meant = template.holes().any(|hole| match &hole.value {
            Value::Next | Value::Position(_) => true,
            Value::Name(wanted) => name == wanted,
            Value::Path { .. } => false,
        });
        if !is_meant {
            return None;
        }
        let text = literal.to_token_stream();
        let message = format!(
            "arguments of the template stand in parentheses with it; write `key({text}, {name} …)`"
        );
        let error = Error::new_spanned(&name, message);
        // So that nothing else is said of the placeholder.
        let value = parse_quote!(#name);
        arguments.push(TemplateArgument { name: Some((name, Token![=](error.span()))), value });
        Some(error)
    }

    pub(super) fn set_key(&mut self, name: Ident, value: KeySource) -> Result<()> {
        match &self.key {
            Some(earlier) if earlier.name != name => Err(Error::new_spanned(
                &name,
                "`key` and `keys` both say what is locked; list all of them in `keys = [..]`",
            )),
            _ => set(&mut self.key, name, value),
        }
    }

    pub(super) fn set_kind(&mut self, name: Ident, value: Kind) -> Result<()> {
        match &self.kind {
            Some(earlier) if earlier.name != name => {
                let message = format!(
                    "`{}` and `{name}` are different sorts of lock; keep one of them",
                    earlier.name
                );
                Err(Error::new_spanned(&name, message))
            }
            _ => set(&mut self.kind, name, value),
        }
    }
}

fn unknown(name: &Ident) -> Error {
    let word = name.to_string();
    let meant = OPTIONS.iter().find_map(|entry| entry.advice(&word));
    let near = suggest::closest(&word, OPTIONS.iter().map(|entry| entry.name));
    let hint = match (meant, near) {
        (Some(advice), _) => format!("; {advice}"),
        (None, Some(near)) => format!("; did you mean `{near}`?"),
        (None, None) => {
            let groups =
                table::GROUPS.map(|(what, names)| format!("{what} `{}`", names.join("`, `")));
            format!("; there are: {}", groups.join("; "))
        }
    };
    Error::new_spanned(name, format!("unknown option `{word}`{hint}"))
}
