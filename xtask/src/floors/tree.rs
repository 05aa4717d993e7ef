use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, UseTree};

/// The modules of a crate, without those that only tests have, unless they are floors of their own.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    floors: BTreeSet<String>,
    by_path: BTreeMap<Vec<String>, usize>,
}

#[derive(Debug)]
pub(super) struct Module {
    /// Without the leading `crate`: the crate itself has none.
    pub(super) path: Vec<String>,
    /// As it is shown, below the crate's `src`.
    pub(super) file: String,
    pub(super) items: Vec<Item>,
    /// What is defined here.
    names: BTreeSet<String>,
    /// What `use` brings here, by the name that it has here, as it is written.
    uses: BTreeMap<String, Vec<String>>,
    /// The modules of which `use` brings everything.
    globs: Vec<Vec<String>>,
}

impl Tree {
    pub(super) fn read(folder: &Path, floors: &[&str]) -> Result<Self> {
        let floors = floors.iter().map(|floor| (*floor).to_owned()).collect();
        let mut tree = Self { floors, ..Self::default() };
        let roots = ["lib.rs", "main.rs"].map(|name| folder.join(name));
        let root = roots.iter().find(|root| root.exists()).unwrap_or(&roots[0]);
        let text = fs::read_to_string(root).with_context(|| root.display().to_string())?;
        let items = syn::parse_file(&text)?.items;
        tree.add(folder, root, Vec::new(), items, folder)?;
        Ok(tree)
    }

    /// Adds a module, and those that it declares, which lie in `below`.
    fn add(
        &mut self,
        folder: &Path,
        file: &Path,
        path: Vec<String>,
        items: Vec<Item>,
        below: &Path,
    ) -> Result<()> {
        let mut children = Vec::new();
        for item in &items {
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let is_floor = path.is_empty() && self.floors.contains(&name);
            if is_for_tests(&module.attrs) && !is_floor {
                continue;
            }
            let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
            if let Some((_, items)) = &module.content {
                children.push((file.to_owned(), path, items.clone(), below.join(&name)));
                continue;
            }
            let (file, below) = file_of(file, below, &name, &module.attrs);
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let items = syn::parse_file(&text).with_context(|| file.display().to_string())?.items;
            children.push((file, path, items, below));
        }
        let shown = file.strip_prefix(folder).unwrap_or(file).display().to_string();
        self.by_path.insert(path.clone(), self.modules.len());
        self.modules.push(Module::new(path, shown, items));
        for (file, path, items, below) in children {
            self.add(folder, &file, path, items, &below)?;
        }
        Ok(())
    }

    /// The module in which what `path` names is defined; `None` for other crates.
    pub(super) fn find(&self, from: &Module, path: &[String]) -> Option<usize> {
        self.follow(from, path, 0)
    }

    fn follow(&self, from: &Module, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(&[], rest, depth),
            "self" => self.descend(&from.path, rest, depth),
            "super" => {
                let (_, parent) = from.path.split_last()?;
                let parent = &self.modules[*self.by_path.get(parent)?];
                match rest.first().map(String::as_str) {
                    Some("super") => self.follow(parent, rest, depth),
                    _ => self.descend(&parent.path, rest, depth),
                }
            }
            name => {
                let child = from.path.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
                let here = self.by_path.contains_key(&child) || from.uses.contains_key(name);
                here.then(|| self.descend(&from.path, path, depth))?
            }
        }
    }

    /// Goes down from a module as far as modules are named, and then to where the name is defined.
    fn descend(&self, base: &[String], rest: &[String], depth: usize) -> Option<usize> {
        // `use` lines may lead in a circle.
        if depth > 20 {
            return None;
        }
        let at = *self.by_path.get(base)?;
        let module = &self.modules[at];
        let Some((name, after)) = rest.split_first() else { return Some(at) };
        let child: Vec<String> = base.iter().cloned().chain([name.clone()]).collect();
        if self.by_path.contains_key(&child) {
            return self.descend(&child, after, depth);
        }
        if module.names.contains(name) {
            return Some(at);
        }
        if let Some(used) = module.uses.get(name) {
            let used: Vec<String> = used.iter().chain(after).cloned().collect();
            // One that leads out of the crate is the user's own business.
            return self.follow(module, &used, depth + 1);
        }
        let through_globs = module.globs.iter().find_map(|glob| {
            let target = self.follow(module, glob, depth + 1)?;
            let target = &self.modules[target];
            let known = target.names.contains(name) || target.uses.contains_key(name);
            known.then(|| self.descend(&target.path, rest, depth + 1))?
        });
        through_globs.or(Some(at))
    }
}

impl Module {
    fn new(path: Vec<String>, file: String, items: Vec<Item>) -> Self {
        let mut module = Self {
            path,
            file,
            items: Vec::new(),
            names: BTreeSet::new(),
            uses: BTreeMap::new(),
            globs: Vec::new(),
        };
        for item in &items {
            if let Item::Use(item) = item {
                if !is_for_tests(&item.attrs) {
                    for (path, name) in uses_of(&item.tree) {
                        match name {
                            Some(name) => drop(module.uses.insert(name, path)),
                            None => module.globs.push(path),
                        }
                    }
                }
            } else if let Some(name) = name_of(item) {
                module.names.insert(name);
            }
        }
        module.items = items;
        module
    }
}

/// Each path that a `use` names, and the name it has here; none for `*`.
pub(super) fn uses_of(tree: &UseTree) -> Vec<(Vec<String>, Option<String>)> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(
    tree: &UseTree,
    before: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let with = |name: &syn::Ident, before: &[String]| {
        // `a::{self}` is `a`.
        let own = (name != "self").then(|| name.to_string());
        before.iter().cloned().chain(own).collect::<Vec<_>>()
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            collect(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => {
            let path = with(&name.ident, before);
            let last = path.last().cloned();
            found.push((path, last));
        }
        UseTree::Rename(rename) => {
            found.push((with(&rename.ident, before), Some(rename.rename.to_string())));
        }
        UseTree::Glob(_) => found.push((before.clone(), None)),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| collect(tree, before, found));
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Whether this is compiled for tests only: `test`, and not what is below a `not`.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|meta| wants_test(&meta))
    })
}

fn wants_test(meta: &Meta) -> bool {
    match meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated)
            .is_ok_and(|all| all.iter().any(wants_test)),
        _ => false,
    }
}

/// The file of a module, and the folder of the modules that it declares. `by` is the file in which it is
/// declared, and `below` the folder of what is declared there.
fn file_of(by: &Path, below: &Path, name: &str, attributes: &[Attribute]) -> (PathBuf, PathBuf) {
    let folder = |file: &Path| file.parent().map(Path::to_owned).unwrap_or_default();
    let named = attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }) = &pair.value else {
            return None;
        };
        pair.path.is_ident("path").then(|| folder(by).join(file.value()))
    });
    if let Some(file) = named {
        let below = folder(&file);
        return (file, below);
    }
    let below = below.join(name);
    let file = below.join("mod.rs");
    (if file.exists() { file } else { below.with_extension("rs") }, below)
}
