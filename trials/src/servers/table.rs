//! The table of servers in a document, between two marks.

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- servers: written by `cargo xtask servers --write` -->\n";
const END: &str = "<!-- end of servers -->\n";

/// The rows of a document's table, and what stands before and after it.
pub(super) struct Table<'a> {
    before: &'a str,
    pub(super) rows: Vec<&'a str>,
    after: &'a str,
}

impl<'a> Table<'a> {
    pub(super) fn of(document: &'a str) -> Result<Self> {
        let missing = || format!("the document lacks one of the marks {BEGIN:?} and {END:?}");
        let (before, rest) = document.split_once(BEGIN).with_context(missing)?;
        let (table, after) = rest.split_once(END).with_context(missing)?;
        Ok(Self { before, rows: table.lines().skip(2).collect(), after })
    }

    /// The document with other rows below this heading.
    pub(super) fn with(&self, heading: &str, rows: &[String]) -> String {
        let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
        format!("{}{BEGIN}{heading}{rows}{END}{}", self.before, self.after)
    }

    /// The row of a server, if there is one.
    pub(super) fn row(&self, server: &str) -> Option<&'a str> {
        let begin = format!("| {server} |");
        self.rows.iter().copied().find(|row| row.starts_with(&begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_written_between_the_marks() {
        let document = format!("before\n{BEGIN}| a |\n|---|\n| Redis 5 | x |\n{END}after\n");
        let table = Table::of(&document).unwrap();
        assert_eq!(table.row("Redis 5"), Some("| Redis 5 | x |"));
        assert_eq!(table.row("Redis 6"), None);
        assert_eq!(table.with("| a |\n|---|\n", &["| Redis 5 | x |".to_owned()]), document);
        assert!(Table::of("nothing").is_err());
    }
}
