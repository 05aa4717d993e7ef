//! The dashboard and the alert rules name metrics, labels and values that the code has, and manifests
//! have the fields that their page relies on.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The string literals of the code that names metrics, labels and their values.
fn literals() -> BTreeSet<String> {
    let numbers = read("redis-lock-core/src/observe/numbers.rs");
    let status = read("redis-lock-core/src/domain/status.rs");
    let (_, reasons) = status.split_once("impl LossReason").unwrap();
    let code = numbers.lines().chain(reasons.lines());
    // Examples in comments have literals of their own.
    let code: String = code.filter(|line| !line.trim_start().starts_with("//")).collect();
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

#[test]
fn the_runbook_has_a_section_for_each_alert() {
    let (rules, runbook, page) =
        (read("dashboards/alerts.yml"), read("docs/RUNBOOK.md"), read("docs/OBSERVABILITY.md"));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 6, "{alerts:?}");
    for alert in alerts {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "{alert} has no section");
        assert!(page.contains(&format!("| `{alert}` |")), "{alert} is not in OBSERVABILITY");
        let anchor = format!("docs/RUNBOOK.md#{}.", alert.to_lowercase());
        assert!(rules.contains(&anchor), "{alert} does not lead to its section");
    }
}

/// The manifests of the page, in their order.
fn manifests() -> Vec<Yaml> {
    let page = read("docs/KUBERNETES.md");
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let documents = blocks.map(|block| YamlLoader::load_from_str(block).unwrap());
    documents.flatten().collect()
}

fn seconds(text: &str, option: &str) -> i64 {
    let value = text.split(option).nth(1).unwrap().split_whitespace().next().unwrap();
    let (number, unit) = value.split_at(value.len() - 1);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => panic!("{value}"),
    };
    number.parse::<i64>().unwrap() * factor
}

#[test]
fn manifests_have_the_fields_that_the_page_relies_on() {
    let manifests = manifests();
    let kinds: Vec<&str> = manifests.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Secret", "CronJob", "Deployment"]);
    let versions: Vec<&str> =
        manifests.iter().map(|it| it["apiVersion"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v1", "batch/v1", "apps/v1"]);
    let [secret, job, deployment] = &manifests[..] else { unreachable!() };
    let secret_name = secret["metadata"]["name"].as_str().unwrap();
    assert!(secret["stringData"]["REDIS_URL"].as_str().unwrap().starts_with("rediss://"));

    assert_eq!(job["spec"]["concurrencyPolicy"].as_str(), Some("Forbid"));
    let job = &job["spec"]["jobTemplate"]["spec"];
    let pod = &job["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["restartPolicy"].as_str(), Some("Never"), "podFailurePolicy needs it");
    let on_exit = &job["podFailurePolicy"]["rules"][0]["onExitCodes"];
    assert_eq!(on_exit["containerName"], container["name"]);
    let codes: Vec<i64> =
        on_exit["values"].as_vec().unwrap().iter().flat_map(Yaml::as_i64).collect();
    assert!(
        [69, 75, 76].iter().all(|code| !codes.contains(code)),
        "a retry mends these: {codes:?}"
    );
    let command = container["args"][0].as_str().unwrap();
    assert!(command.starts_with("exec redis-lock run ") && command.contains(" -E 0 "), "{command}");
    assert!(seconds(command, "--grace ") < pod["terminationGracePeriodSeconds"].as_i64().unwrap());
    assert!(seconds(command, "--max-hold ") < job["activeDeadlineSeconds"].as_i64().unwrap());
    assert!(job["backoffLimit"].as_i64().is_some());

    let labels = &deployment["spec"]["selector"]["matchLabels"];
    assert_eq!(labels, &deployment["spec"]["template"]["metadata"]["labels"]);
    let pod = &deployment["spec"]["template"]["spec"];
    let service = &pod["containers"][0];
    let pause = service["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64().unwrap();
    let drained = pause + 20 + 3; // `drain` of the example, and its wait for the server
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > drained);
    assert_eq!(service["readinessProbe"]["httpGet"]["path"].as_str(), Some("/readyz"));
    assert!(service["readinessProbe"]["timeoutSeconds"].as_i64().unwrap() > 2, "a command timeout");
    assert!(service["livenessProbe"]["httpGet"].is_badvalue(), "liveness asks no lock server");

    for container in [container, service] {
        assert!(container["image"].as_str().is_some_and(|image| !image.ends_with(":latest")));
        let from = container["envFrom"][0]["secretRef"]["name"].as_str();
        assert_eq!(from, Some(secret_name));
    }
}

/// The rights that a page has in its first block below this heading, and the rest of the page.
fn rights<'a>(page: &'a str, heading: &str) -> (String, &'a str) {
    let (_, page) = page.split_once(heading).unwrap();
    let (_, block) = page.split_once("```text").unwrap();
    let (block, rest) = block.split_once("```").unwrap();
    (block.split_whitespace().collect::<Vec<_>>().join(" "), rest)
}

#[test]
fn the_acl_of_the_server_page_is_that_of_the_protocol() {
    let (server, protocol) = (read("docs/SERVER.md"), read("docs/PROTOCOL.md"));
    let (mutexes, more) = rights(&server, "## Rights");
    let (documented, rest) = rights(&protocol, "## Rights");
    assert_eq!(mutexes, documented);
    let (others, rest) = rights(rest, "For readers");
    let (_without_scripts, rest) = rights(rest, "Without scripts");
    let (cluster, _) = rights(rest, "In a cluster");
    for words in [others, cluster] {
        assert!(more.replace("\\|", "|").contains(&format!("| `{words}` |")), "{words}");
    }
}
