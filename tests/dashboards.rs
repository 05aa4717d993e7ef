//! The dashboard and the alert rules name metrics, labels and values that the code has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The string literals of the file that makes all metrics.
fn literals() -> BTreeSet<String> {
    let code = read("redis-lock-core/src/observe/numbers.rs");
    code.split('"').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// The name that stands at the beginning of a text.
fn name(text: &str) -> &str {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default()
}

/// Every query of the dashboard.
fn queries_of_the_dashboard() -> Vec<String> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("dashboards/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let definitions = variables.iter().filter_map(|it| it["definition"].as_str());
    let texts = targets.flat_map(|it| [&it["expr"], &it["legendFormat"]]);
    texts.map(|text| text.as_str().unwrap()).chain(definitions).map(ToOwned::to_owned).collect()
}

/// What a query names: its metrics, without the ends that histograms add; its labels; and pairs of a
/// label and a value.
#[derive(Default, Debug)]
struct Named {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
    values: BTreeSet<String>,
}

impl Named {
    fn add(&mut self, query: &str) {
        for (at, _) in query.match_indices("redis_locks_") {
            let metric = name(&query[at..]);
            let ends = ["_bucket", "_count", "_sum"];
            let plain = ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
            self.metrics.insert(plain.to_owned());
            if let Some(labels) = query[at + metric.len()..].strip_prefix('{') {
                self.matchers(labels);
            }
        }
        for list in ["by (", "{{", "$labels."] {
            for (at, _) in query.match_indices(list) {
                let listed = query[at + list.len()..].split([')', '}']).next().unwrap();
                let names = listed.split(',').map(|it| name(it.trim())).filter(|it| !it.is_empty());
                self.labels.extend(names.map(ToOwned::to_owned));
            }
        }
    }

    /// `lock=~"$lock",outcome="busy"} …`
    fn matchers(&mut self, labels: &str) {
        let (inside, _) = labels.split_once('}').unwrap();
        let parts: Vec<&str> = inside.split('"').collect();
        for pair in parts.chunks_exact(2) {
            self.labels.insert(name(pair[0].trim_start_matches(',').trim()).to_owned());
            let values = pair[1].split('|').filter(|value| !value.starts_with('$'));
            self.values.extend(values.map(ToOwned::to_owned));
        }
    }

    fn of(texts: &[String]) -> Self {
        let mut named = Self::default();
        texts.iter().for_each(|text| named.add(text));
        named
    }
}

#[test]
fn what_dashboard_and_alerts_name_exists() {
    let literals = literals();
    for texts in [queries_of_the_dashboard(), vec![read("dashboards/alerts.yml")]] {
        let Named { metrics, labels, values } = Named::of(&texts);
        assert!(
            metrics.len() > 5 && labels.len() > 3 && values.len() > 3,
            "{metrics:?} {labels:?}"
        );
        let of_prometheus = ["le", "instance"];
        let unknown =
            |name: &&String| !literals.contains(*name) && !of_prometheus.contains(&name.as_str());
        let found: Vec<_> = metrics.iter().chain(&labels).chain(&values).filter(unknown).collect();
        assert!(found.is_empty(), "the code has none of these: {found:?}");
    }
}

#[test]
fn the_page_lists_what_the_code_counts() {
    let page = read("docs/OBSERVABILITY.md");
    for literal in literals() {
        if literal.starts_with("redis_locks_") {
            assert!(page.contains(&format!("| `{literal}` |")), "{literal}");
        } else if !literal.is_empty() && literal.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            assert!(page.contains(&format!("`{literal}`")), "{literal}");
        }
    }
}

#[test]
fn names_are_found_in_a_query() {
    let named = Named::of(&[
        r#"sum by (le, lock) (rate(redis_locks_a_bucket{x="1",y=~"2|$z"}[5m])) {{reason}}"#.into(),
    ]);
    let sorted = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(sorted(named.metrics), "redis_locks_a");
    assert_eq!(sorted(named.labels), "le lock reason x y");
    assert_eq!(sorted(named.values), "1 2");
}
