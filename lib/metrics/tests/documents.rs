//! Checks that everything under `deploy/` uses only metrics of the catalogue, and that
//! docs/reference/metrics.md lists all of them.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use metrics::catalogue::CATALOGUE;
use metrics::family::{Family, Kind, Service};
use regex::Regex;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Query of a rule or the dashboard.
struct Query {
    place: String,
    expression: String,
    /// Labels that are shown with the result.
    legend: String,
}

/// Returns every expression of the alert rules.
fn rule_queries() -> Vec<Query> {
    let text = read("deploy/prometheus/alerts.yml");
    let (mut found, mut lines) = (vec![], text.lines().peekable());
    let labels = Regex::new(r"\$labels\.(\w+)").unwrap();
    let mut place = String::new();
    while let Some(line) = lines.next() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            name.clone_into(&mut place);
        }
        if let Some(rest) = line.trim().strip_prefix("expr: ") {
            let mut expression = rest.trim_matches('\'').to_owned();
            if rest == "|" {
                expression.clear();
                let indent = |line: &str| line.len() - line.trim_start().len();
                while let Some(more) = lines.next_if(|next| indent(next) > indent(line)) {
                    expression.push_str(more);
                    expression.push('\n');
                }
            }
            found.push(Query { place: place.clone(), expression, legend: String::new() });
        }
        let of_text = line.trim().starts_with("summary:") || line.trim().starts_with("description:");
        if let Some(query) = found.last_mut().filter(|_| of_text) {
            let named = labels.captures_iter(line).map(|label| format!("{{{{{}}}}}", &label[1]));
            query.legend.extend(named);
        }
    }
    assert_eq!(found.len(), text.matches("- alert:").count());
    found
}

/// Returns every expression of the dashboard.
fn dashboard_queries() -> Vec<Query> {
    let board: Value = serde_json::from_str(&read("deploy/grafana/muster.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| {
            let text = |key: &str| target[key].as_str().unwrap().to_owned();
            let place = panel["title"].as_str().unwrap().to_owned();
            Query { place, expression: text("expr"), legend: text("legendFormat") }
        })
    });
    queries.collect()
}

/// Returns the labels of every sample of a metric, including those that Prometheus adds.
fn labels(family: &Family) -> BTreeSet<&str> {
    let mut labels: BTreeSet<&str> = ["job", "instance", "service"].into();
    labels.extend(family.labels);
    labels.extend(family.exported_by.contains(&Service::Rep).then_some("cell"));
    labels.extend((family.kind == Kind::Histogram).then_some("le"));
    labels
}

/// Returns the problems of a query: metrics that are not exported, labels that they do not have, and values
/// that a label never has.
fn problems(query: &Query) -> Vec<String> {
    let Query { place, expression, legend } = query;
    let mut wrong = vec![];
    let mut known = BTreeSet::new();
    let metric = Regex::new(r"\b(muster_\w+)\s*(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)""#).unwrap();
    for found in metric.captures_iter(expression) {
        let name = &found[1];
        let Some(family) = CATALOGUE.iter().find(|family| family.samples().contains(&name.to_owned())) else {
            wrong.push(format!("{place}: no service exports {name}"));
            continue;
        };
        known.extend(labels(family));
        for label in matcher.captures_iter(found.get(2).map_or("", |matchers| matchers.as_str())) {
            let (label, values) = (&label[1], &label[3]);
            if !labels(family).contains(label) {
                wrong.push(format!("{place}: {name} has no label {label}"));
            }
            let said = |value: &str| match label {
                "service" => Service::ALL.iter().any(|service| service.as_str() == value),
                _ => family.help.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == value),
            };
            let strange = values.split('|').filter(|value| !said(value));
            wrong.extend(strange.map(|value| format!("{place}: {label} of {name} is never {value}")));
        }
    }
    let grouped = Regex::new(r"\b(?:by|on)\s*\(([^)]*)\)").unwrap();
    let shown = Regex::new(r"\{\{(\w+)\}\}").unwrap();
    let by: BTreeSet<&str> = grouped
        .captures_iter(expression)
        .flat_map(|found| found.get(1).unwrap().as_str().split(',').map(str::trim))
        .filter(|label| !label.is_empty())
        .collect();
    if expression.contains("up{") {
        known.extend(["job", "instance"]);
    }
    let shown = shown.captures_iter(legend).map(|found| found.get(1).unwrap().as_str());
    let strange = by.into_iter().chain(shown).filter(|label| !known.contains(label));
    wrong.extend(strange.map(|label| format!("{place}: no metric of the query has a label {label}")));
    wrong
}

#[test]
fn rules_and_dashboard_use_only_exported_metrics() {
    let queries: Vec<Query> = rule_queries().into_iter().chain(dashboard_queries()).collect();
    assert!(queries.len() > 90, "only {} expressions were found", queries.len());
    let wrong: Vec<String> = queries.iter().flat_map(problems).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn invalid_queries_are_reported() {
    let ask = |expression: &str, legend: &str| {
        problems(&Query { place: "x".into(), expression: expression.into(), legend: legend.into() })
    };
    assert_eq!(ask("muster_lrps", ""), ["x: no service exports muster_lrps"]);
    assert_eq!(
        ask("muster_appends", ""),
        ["x: no service exports muster_appends"],
        "the counter ends with _total"
    );
    assert_eq!(
        ask(r#"muster_leader{state="a"}"#, ""),
        ["x: muster_leader has no label state", "x: state of muster_leader is never a"]
    );
    assert_eq!(
        ask(r#"muster_tasks{state=~"running|asleep"}"#, ""),
        ["x: state of muster_tasks is never asleep"]
    );
    assert_eq!(
        ask("sum by (guid) (muster_tasks)", "{{verb}}"),
        ["x: no metric of the query has a label guid", "x: no metric of the query has a label verb"]
    );
    assert_eq!(
        ask(r#"sum by (le, cell) (muster_container_start_seconds_bucket)"#, "{{cell}}"),
        Vec::<String>::new()
    );
}

#[test]
fn dashboard_shows_every_metric() {
    let board = read("deploy/grafana/muster.json");
    // Metrics that related ones represent on the dashboard.
    let left_out = [
        "muster_build_info",
        "muster_connected",
        "muster_follower_lag_entries",
        "muster_log_entries",
        "muster_rep_memory_capacity",
        "muster_rep_disk_capacity",
        "muster_rep_disk_free",
        "muster_rep_containers_capacity",
        "muster_rep_containers_free",
        "muster_projection_position",
    ];
    let missing: Vec<&str> =
        CATALOGUE.iter().map(|family| family.name).filter(|name| !board.contains(name)).collect();
    assert_eq!(missing, left_out);
}

#[test]
fn documented_table_matches_catalogue() {
    let page = read("docs/reference/metrics.md");
    let told: Vec<&str> = page.lines().filter(|line| line.starts_with("| `muster_")).collect();
    let rows: Vec<String> = CATALOGUE.iter().map(|family| family.table_row()).collect();
    assert!(told == rows, "expected this table in docs/reference/metrics.md:\n{}", rows.join("\n"));
}
