use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, Field, ImplItem, Item, Macro, Path, Stmt, Variant};

use super::tree::{is_for_tests, uses_of};

/// Every path in these items, but for those in tests and in modules that are declared here.
pub(super) fn paths(items: &[Item]) -> Vec<Vec<String>> {
    let mut paths = Paths(Vec::new());
    for item in items {
        paths.visit_item(item);
    }
    paths.0.sort_unstable();
    paths.0.dedup();
    paths.0
}

struct Paths(Vec<Vec<String>>);

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a Item) {
        if matches!(item, Item::Mod(_)) || is_for_tests(attributes(item)) {
            return;
        }
        if let Item::Use(item) = item {
            self.0.extend(uses_of(&item.tree).into_iter().map(|(path, _)| path));
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let for_tests = match item {
            ImplItem::Fn(item) => is_for_tests(&item.attrs),
            ImplItem::Const(item) => is_for_tests(&item.attrs),
            _ => false,
        };
        if !for_tests {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a Field) {
        if !is_for_tests(&field.attrs) {
            syn::visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'a Variant) {
        if !is_for_tests(&variant.attrs) {
            syn::visit::visit_variant(self, variant);
        }
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let for_tests = match statement {
            Stmt::Local(local) => is_for_tests(&local.attrs),
            Stmt::Macro(statement) => is_for_tests(&statement.attrs),
            _ => false,
        };
        if !for_tests {
            syn::visit::visit_stmt(self, statement);
        }
    }

    fn visit_path(&mut self, path: &'a Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, _: &'a Attribute) {}

    /// The input of a macro is no syntax yet, so its tokens are searched.
    fn visit_macro(&mut self, called: &'a Macro) {
        self.visit_path(&called.path);
        in_tokens(called.tokens.clone(), &mut self.0);
    }
}

/// Every `crate::a::b` and `super::a::b` among tokens.
fn in_tokens(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                if colons == 2 && !path.is_empty() {
                    path.push(name);
                } else {
                    found.push(std::mem::take(&mut path));
                    if name == "crate" || name == "super" {
                        path.push(name);
                    }
                }
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            other => {
                found.push(std::mem::take(&mut path));
                colons = 0;
                if let TokenTree::Group(group) = other {
                    in_tokens(group.stream(), found);
                }
            }
        }
    }
    found.push(path);
    found.retain(|path| !path.is_empty());
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
