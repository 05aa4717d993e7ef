/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of its `fn`, counted from one.
    pub(super) at: usize,
    /// From there to the bracket that closes it.
    pub(super) lines: usize,
}

/// The functions of a file that rustfmt has formatted: one ends with the first line that is
/// indented like its beginning and closes a bracket.
pub(super) fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = lines.iter().enumerate().filter_map(|(at, line)| Some((at, name_of(line)?)));
    begins
        .filter_map(|(at, name)| {
            let lines = length(&lines[at..])?;
            Some(Function { name: name.to_owned(), at: at + 1, lines })
        })
        .collect()
}

/// How many lines the function has that begins with the first; `None` when it has no body.
fn length(lines: &[&str]) -> Option<usize> {
    let (first, rest) = lines.split_first()?;
    match first.chars().last()? {
        '}' => return Some(1),
        ';' => return None,
        _ => {}
    }
    let indent = &first[..first.len() - first.trim_start().len()];
    let unindented = |line: &str| line.strip_prefix(indent).map(ToOwned::to_owned);
    for (more, line) in rest.iter().enumerate() {
        let Some(line) = unindented(line) else { continue };
        if line.starts_with('}') {
            return Some(more + 2);
        }
        if line.starts_with(|c: char| !c.is_whitespace()) && line.ends_with(';') {
            return None;
        }
    }
    None
}

/// The name of the function that begins here.
fn name_of(line: &str) -> Option<&str> {
    const BEFORE: [&str; 5] = ["pub", "const", "async", "unsafe", "default"];
    let mut words = line.split_whitespace();
    loop {
        let word = words.next()?;
        if word == "fn" {
            return words.next()?.split(['(', '<']).next();
        }
        let allowed = BEFORE.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
        if !allowed {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn functions_are_found_and_measured() {
        let text = "\
fn one() {}
/// About fn nothing.
pub(in crate::a) const fn two<T>(
    x: T,
) -> T
where
    T: Sized,
{
    x
}
trait Three {
    fn declared(&self);
    fn declared_long(
        &self,
    ) -> u8;
    async fn three(&self) {
        if true {
        }
    }
}
let four = fn_like();
";
        let found: Vec<_> =
            functions(text).into_iter().map(|it| (it.name, it.at, it.lines)).collect();
        let expected = [("one", 1, 1), ("two", 3, 8), ("three", 16, 4)];
        assert_eq!(found, expected.map(|(name, at, lines)| (name.to_owned(), at, lines)));
    }
}
