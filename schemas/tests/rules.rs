//! Tests of placement rules on cell attributes: evaluation, parsing, formatting, and refusals.

use schemas::attributes::AttributeName;
use schemas::resources::{CellClass, Constraint, Mismatch};
use schemas::rules::{Distinct, Operator, Range, Rule, Rules, Version};
use schemas::spec;
use serde_json::{Value, json};

fn rule(attribute: &str, operator: Operator, value: &str) -> Rule {
    Rule { attribute: AttributeName::new(attribute).ok(), operator, value: value.to_owned().into() }
}

#[test]
fn rule_evaluation_matches_table() {
    use Operator::{
        AtLeast, AtMost, Equal, Greater, IsNotSet, IsSet, Less, NotEqual, Regexp, SetContains, Version,
    };
    let attributes = [
        ("rack", "r1"),
        ("count", "16"),
        ("part", "2.50"),
        ("kernel", "5.15.0-91-generic"),
        ("classes", "a, b,c"),
    ];
    let mut presence = fixtures::presence(1);
    presence.attributes = fixtures::attributes(&attributes);
    let id = fixtures::cell_id("c1");
    let offer = presence.offer(&id);
    let table = [
        ("rack", Equal, "r1", true),
        ("rack", Equal, "r2", false),
        ("none", Equal, "r1", false),
        ("rack", NotEqual, "r2", true),
        ("rack", NotEqual, "r1", false),
        ("none", NotEqual, "r1", true),
        // Two numbers are compared as numbers. As text, 16 is less than 9.
        ("count", Greater, "9", true),
        ("count", Less, "9", false),
        ("count", Equal, "16.0", true),
        ("part", AtMost, "2.5", true),
        ("part", AtLeast, "2.5", true),
        ("part", Less, "-1", false),
        // Other values are compared as text.
        ("count", Less, "9x", true),
        ("rack", Less, "r10", true),
        ("rack", Greater, "nan", true),
        ("none", Less, "9", false),
        ("kernel", Version, ">= 5.15, < 6", true),
        ("kernel", Version, "~> 5.15.0", true),
        ("kernel", Version, "> 5.15", false),
        ("kernel", Version, "5.4", false),
        ("rack", Version, ">= 0", false),
        ("rack", Regexp, "^r[0-9]$", true),
        ("rack", Regexp, "[2-9]", false),
        ("rack", Regexp, "(", false),
        ("classes", SetContains, "c,a", true),
        ("classes", SetContains, "a,d", false),
        ("none", SetContains, "a", false),
        ("rack", IsSet, "", true),
        ("none", IsSet, "", false),
        ("none", IsNotSet, "", true),
        ("rack", IsNotSet, "", false),
        ("zone", Equal, "z1", true),
        ("stack", Equal, "linux", true),
        ("unique.cell_id", Equal, "c2", false),
        ("", Operator::DistinctCell, "", true),
        ("rack", Operator::DistinctAttribute, "", true),
        ("none", Operator::DistinctAttribute, "", false),
    ];
    for (attribute, operator, value, holds) in table {
        let rule = rule(attribute, operator, value);
        assert_eq!(rule.holds(&offer), holds, "{rule}");
        let constraint = constrained(vec![rule.clone()]);
        assert_eq!(constraint.mismatch(&offer), (!holds).then_some(Mismatch::Rule(0, &rule)), "{rule}");
    }
}

fn constrained(constraints: Vec<Rule>) -> Constraint {
    let rules = Some(Box::new(Rules { constraints, ..Rules::default() }));
    Constraint { rules, ..Constraint::default() }
}

#[test]
fn versions_compare_by_numbers_and_match_ranges() {
    let read = |text: &str| Version::parse(text).unwrap();
    assert_eq!(read("v1.2"), read("1.2.0+build"));
    assert!(read("1.10") > read("1.9"));
    assert!(read("5.15.0-91-generic") >= read("5.15"));
    for bad in ["", "x", "1..2", "-1", "99999999999999999999"] {
        assert_eq!(Version::parse(bad), None, "{bad}");
    }
    let table = [
        ("1.2", "1.2.0", true),
        ("= 1.2", "1.2.1", false),
        ("!= 1.2", "1.3", true),
        (">1.2,<=1.4", "1.4", true),
        ("~> 1.2", "1.9", true),
        ("~> 1.2", "2.0", false),
        ("~> 1.2.3", "1.2.9", true),
        ("~> 1.2.3", "1.3.0", false),
        ("~> 1.2.3", "1.2.2", false),
    ];
    for (range, version, has) in table {
        assert_eq!(Range::parse(range).unwrap().contains(&read(version)), has, "{range} {version}");
    }
    for bad in ["", ">=", "1.2-rc1", ">= 1,", "=> 1", "^1.2"] {
        assert!(Range::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn rule_formats_as_in_spec() {
    let said = |attribute, operator, value| rule(attribute, operator, value).to_string();
    assert_eq!(said("os.name", Operator::Equal, "windows"), "os.name = windows");
    assert_eq!(said("rack", Operator::IsSet, ""), "rack is_set");
    assert_eq!(said("", Operator::DistinctCell, ""), "distinct_cell");
    assert_eq!(said("rack", Operator::DistinctAttribute, "2"), "distinct_attribute rack 2");
    let class = rule("rack", Operator::DistinctAttribute, "2");
    let attribute = class.attribute.as_ref().unwrap();
    assert_eq!(class.distinct(), Some(Distinct::Attribute { attribute, max: 2 }));
}

#[test]
fn cells_differing_only_in_unique_attributes_share_class() {
    let class = |attributes: &[(&str, &str)]| {
        let presence =
            schemas::cell::Presence { attributes: fixtures::attributes(attributes), ..fixtures::presence(1) };
        CellClass::from_offer(&presence.offer(&fixtures::cell_id("c1")))
    };
    assert_eq!(class(&[("rack", "r1")]), class(&[("rack", "r1"), ("unique.hostname", "h")]));
    assert_ne!(class(&[("rack", "r1")]), class(&[("rack", "r2")]));
    assert_ne!(class(&[("a", "bc")]), class(&[("ab", "c")]));
    // The class is stored with evaluations, so it must never change.
    assert_eq!(class(&[("rack", "r1")]), CellClass(CLASS));
    let escapes = |attribute, operator| constrained(vec![rule(attribute, operator, "")]).escapes();
    assert!(escapes("unique.hostname", Operator::IsSet));
    assert!(escapes("rack", Operator::DistinctAttribute));
    assert!(escapes("", Operator::DistinctCell));
    assert!(!escapes("rack", Operator::IsSet));
}

const CLASS: u64 = 9_747_677_283_449_336_576;

fn web(more: Value) -> Value {
    let mut web = json!({
        "process_guid": "web", "domain": "shop", "action": {"run": {"path": "server"}},
    });
    web.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    web
}

#[test]
fn placement_rules_round_trip_through_json() {
    let asked = json!({
        "constraints": [
            {"attribute": "os.name", "operator": "=", "value": "linux"},
            {"attribute": "cpu.count", "operator": ">=", "value": "4"},
            {"operator": "distinct_cell"},
            {"attribute": "rack", "operator": "distinct_attribute", "value": "2"},
        ],
        "affinities": [{"attribute": "rack", "operator": "!=", "value": "r1", "weight": -50}],
        "spread": [{"attribute": "rack", "weight": 50, "targets": {"r1": 60}}],
    });
    let lrp = spec::lrp(web(asked.clone())).unwrap();
    let written = spec::to_json(&lrp);
    for field in ["constraints", "affinities", "spread"] {
        assert_eq!(written[field], asked[field], "{field}");
    }
    assert_eq!(spec::lrp(written).unwrap(), lrp);
    // Defaults may be left out, and numbers are accepted in place of text.
    let short = json!({
        "constraints": [
            {"attribute": "os.name", "value": "linux"},
            {"attribute": "cpu.count", "operator": ">=", "value": 4},
            {"operator": "distinct_cell", "value": 1},
            {"attribute": "rack", "operator": "distinct_attribute", "value": 2},
        ],
        "affinities": asked["affinities"],
        "spread": [{"attribute": "rack", "targets": {"r1": 60}}],
    });
    assert_eq!(spec::lrp(web(short)).unwrap(), lrp);
    assert_eq!(
        spec::lrp(web(json!({"constraints": [], "spread": []}))).unwrap().definition.constraint.rules,
        None
    );
}

#[test]
fn invalid_placement_rule_is_refused_by_field() {
    let constraint = |rule: Value| json!({"constraints": [rule]});
    let bad = |more: Value| -> Vec<String> {
        let refusal = spec::lrp(web(more)).unwrap_err();
        refusal.fields.into_iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect()
    };
    let operators = "=, !=, <, <=, >, >=, version, regexp, set_contains, is_set, is_not_set, distinct_cell, distinct_attribute";
    let table = [
        (
            constraint(json!({"attribute": "a", "operator": "like", "value": "x"})),
            format!("constraints[0].operator: \"like\" is unknown: must be one of {operators}"),
        ),
        (constraint(json!({"value": "x"})), "constraints[0].attribute: is missing".into()),
        (constraint(json!({"attribute": "a"})), "constraints[0].value: is missing".into()),
        (
            constraint(json!({"attribute": "", "value": "x"})),
            "constraints[0].attribute: \"\" is not a valid attribute name: use 1 to 64 of A-Z a-z 0-9 _ - . and no . at either end".into(),
        ),
        (
            constraint(json!({"attribute": "a", "operator": "version", "value": ">= x"})),
            "constraints[0].value: \">= x\" is not a range of versions: write one like >= 1.2, < 2 with = != < <= > >= ~>".into(),
        ),
        (
            constraint(json!({"attribute": "a", "operator": "is_set", "value": "x"})),
            "constraints[0].value: cannot be set with is_set, which takes no value".into(),
        ),
        (
            constraint(json!({"attribute": "a", "operator": "distinct_cell"})),
            "constraints[0].attribute: cannot be set with distinct_cell, which concerns cells".into(),
        ),
        (
            constraint(json!({"operator": "distinct_cell", "value": 0})),
            "constraints[0].value: must be from 1 to 10000, the maximum number of instances".into(),
        ),
        (
            json!({"affinities": [{"attribute": "a", "value": "x", "weight": 0}]}),
            "affinities[0].weight: must be a whole number from -100 to 100, and not 0".into(),
        ),
        (
            json!({"affinities": [{"operator": "distinct_cell", "weight": 1}]}),
            "affinities[0].operator: distinct_cell is only valid in constraints: an affinity concerns \
             one cell".into(),
        ),
        (
            json!({"spread": [{"attribute": "a", "targets": {"x": 60, "y": 41}}]}),
            "spread[0].targets: has 101 percent in all, more than 100".into(),
        ),
        (
            json!({"spread": [{"attribute": "a"}, {"attribute": "a"}]}),
            "spread[1].attribute: a is given twice".into(),
        ),
        (
            json!({"mode": "global", "spread": [{"attribute": "a"}]}),
            "spread: has no effect: a global process has one instance on each cell that fits".into(),
        ),
    ];
    for (more, problem) in table {
        assert_eq!(bad(more.clone()), [problem], "{more}");
    }
    let pattern = bad(constraint(json!({"attribute": "a", "operator": "regexp", "value": "("})));
    assert!(pattern[0].starts_with("constraints[0].value: is not a regular expression: "), "{pattern:?}");
    let large = bad(constraint(json!({"attribute": "a", "operator": "regexp", "value": "(a{1000}){1000}"})));
    assert!(large[0].contains("size limit"), "{large:?}");
    let many = json!({"constraints": vec![json!({"attribute": "a", "operator": "is_set"}); 17]});
    assert_eq!(bad(many), ["constraints: has 17 members, more than 16"]);
    let task = json!({
        "task_guid": "t", "domain": "shop", "action": {"run": {"path": "job"}},
        "constraints": [{"operator": "distinct_cell"}],
    });
    let refusal = spec::task(task).unwrap_err();
    assert_eq!(refusal.fields[0].field, "constraints[0].operator");
    assert_eq!(refusal.fields[0].problem, "distinct_cell has no effect: a task has one instance");
}
