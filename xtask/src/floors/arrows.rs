use super::paths::paths;
use super::tree::Tree;

/// One module uses something of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// As it is written.
    name: String,
}

impl Arrow {
    pub(super) fn show(&self, tree: &Tree) -> String {
        let file = |module: usize| &tree.modules[module].file;
        format!("{} uses `{}` of {}", file(self.from), self.name, file(self.to))
    }
}

/// One arrow for each two modules, in the order of the modules.
pub(super) fn arrows(tree: &Tree) -> Vec<Arrow> {
    let mut arrows: Vec<Arrow> = Vec::new();
    for (from, module) in tree.modules.iter().enumerate() {
        // The crate's own list of modules and names is no user of them.
        if module.path.is_empty() {
            continue;
        }
        for path in paths(&module.items) {
            let Some(to) = tree.find(module, &path) else { continue };
            let known = |arrow: &Arrow| arrow.from == from && arrow.to == to;
            if to != from && !arrows.iter().any(known) {
                arrows.push(Arrow { from, to, name: path.join("::") });
            }
        }
    }
    arrows
}
