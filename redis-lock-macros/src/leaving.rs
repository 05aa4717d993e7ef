//! Finds how the expressions of an attribute may leave the function, or pause it.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Expr, ExprAsync, ExprAwait, ExprClosure, ExprConst, ExprReturn, ExprTry, Item, Macro, Token,
};

use crate::tokens::contains;

/// A way out of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Return,
    /// `?`
    Try,
    Await,
    /// A macro may leave by any way.
    Macro,
}

/// The ways out that these expressions take themselves. A `return` in a closure, an async block or
/// an item within them leaves that, and not the function.
pub(crate) fn ways<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> HashSet<Way> {
    seen(exprs).found
}

/// The `return`s with what is plainly no error. They do not compile: the body has not run.
pub(crate) fn values<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Vec<ExprReturn> {
    seen(exprs).values
}

fn seen<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Ways {
    let mut ways = Ways::default();
    exprs.into_iter().for_each(|expr| ways.visit_expr(expr));
    ways
}

#[derive(Default)]
struct Ways {
    found: HashSet<Way>,
    values: Vec<ExprReturn>,
}

impl Ways {
    /// The same for tokens that are no expressions, as far as tokens show it.
    fn add_tokens(&mut self, tokens: &TokenStream) {
        for (text, way) in [("return", Way::Return), ("?", Way::Try), ("await", Way::Await)] {
            if contains(tokens.clone(), text) {
                self.found.insert(way);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Ways {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        if let Expr::Verbatim(tokens) = expr {
            self.found.insert(Way::Macro);
            self.add_tokens(tokens);
        }
        visit::visit_expr(self, expr);
    }

    fn visit_expr_return(&mut self, expr: &'ast ExprReturn) {
        self.found.insert(Way::Return);
        let is_value = match expr.expr.as_deref() {
            None | Some(Expr::Lit(_) | Expr::Tuple(_)) => true,
            Some(Expr::Path(path)) => path.path.is_ident("None"),
            Some(Expr::Call(call)) => {
                matches!(&*call.func, Expr::Path(it) if it.path.is_ident("Ok") || it.path.is_ident("Some"))
            }
            Some(_) => false,
        };
        if is_value {
            self.values.push(expr.clone());
        }
        visit::visit_expr_return(self, expr);
    }

    fn visit_expr_try(&mut self, expr: &'ast ExprTry) {
        self.found.insert(Way::Try);
        visit::visit_expr_try(self, expr);
    }

    fn visit_expr_await(&mut self, expr: &'ast ExprAwait) {
        self.found.insert(Way::Await);
        visit::visit_expr_await(self, expr);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.found.insert(Way::Macro);
        if !awaits_only_what_it_is_given(called) {
            self.found.insert(Way::Await);
        }
        let arguments = Punctuated::<Expr, Token![,]>::parse_terminated;
        match arguments.parse2(called.tokens.clone()) {
            // They live no longer than this function, so another visitor sees them.
            Ok(arguments) => {
                let Self { found, values } = seen(&arguments);
                self.found.extend(found);
                self.values.extend(values);
            }
            Err(_) => self.add_tokens(&called.tokens),
        }
    }

    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}

    fn visit_expr_async(&mut self, _: &'ast ExprAsync) {}

    fn visit_expr_const(&mut self, _: &'ast ExprConst) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Macro(_) | Item::Verbatim(_) = item {
            self.found.insert(Way::Macro);
            self.add_tokens(&item.to_token_stream());
        }
    }
}

/// Whether the macro is called like one of the standard library that has no `await`. If it is
/// another macro of that name, rustc says that it can't await there.
fn awaits_only_what_it_is_given(called: &Macro) -> bool {
    const NAMES: [&str; 15] = [
        "assert",
        "assert_eq",
        "assert_ne",
        "concat",
        "dbg",
        "env",
        "format",
        "format_args",
        "line",
        "matches",
        "panic",
        "stringify",
        "todo",
        "unreachable",
        "vec",
    ];
    called.path.segments.last().is_some_and(|last| NAMES.iter().any(|it| last.ident == it))
}
