//! What a misspelt name may have meant.

/// The candidate that `name` is most likely a slip of, if it is near enough for its length.
pub(crate) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A flat limit would propose `wait` for `fair`: half of a short name may not be wrong.
    let limit = match name.chars().count() {
        0..=1 => 0,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| (1..=limit).contains(distance))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut least = above[j] + usize::from(a[i] != b[j]);
            least = least.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["key", "ttl", "wait", "fair", "max_hold", "repair_orphan"];

    #[test]
    fn slips_are_recognised() {
        for (slip, meant) in [
            ("tll", "ttl"),
            ("kee", "key"),
            ("wiat", "wait"),
            ("maxhold", "max_hold"),
            ("repair_orfan", "repair_orphan"),
        ] {
            assert_eq!(closest(slip, NAMES), Some(meant), "{slip}");
        }
    }

    #[test]
    fn other_words_are_not() {
        for word in ["f", "fire", "bar", "lease", "it", "ttl"] {
            assert_eq!(closest(word, NAMES), None, "{word}");
        }
    }
}
