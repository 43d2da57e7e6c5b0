//! Parses constraints, affinities and spreads of specs, and converts them to JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::attributes::{AttributeName, check_value};
use crate::fields::{Field, Fields, integral};
use crate::limits;
use crate::refusal::BadField;
use crate::resources::Constraint;
use crate::rules::{Affinity, Operand, Operator, Range, Rule, Rules, Spread, compile_pattern};

/// The context in which a rule is parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleKind {
    /// A constraint: every operator is allowed.
    Constraint,
    /// An affinity: only operators that compare attributes of a single cell are allowed.
    Affinity,
}

/// Parses the placement rules of a definition. `Some(None)` if the definition has no rules.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<Option<Box<Rules>>> {
    fields.document_by::<Rules>();
    let constraints = fields.with_default("constraints", vec![], |field| {
        field
            .list_of(limits::RULES, |field| take_rule_with(field, RuleKind::Constraint, |rule, _| Some(rule)))
    });
    let affinities =
        fields.with_default("affinities", vec![], |field| field.list_of(limits::RULES, take_affinity));
    let spread = fields.with_default("spread", vec![], take_spreads);
    let rules = Rules { constraints: constraints?, affinities: affinities?, spread: spread? };
    Some((!rules.is_empty()).then(|| Box::new(rules)))
}

/// Reports rules that concern several instances, for work that has only one instance.
pub(super) fn check_single_instance(rules: &Rules, why: &str, fields: &Fields<'_>) {
    for BadField { field, problem } in rules.multi_instance_rules() {
        fields.bad(&field, format!("{problem}: {why}"));
    }
}

fn take_affinity(field: Field<'_>) -> Option<Affinity> {
    take_rule_with(field, RuleKind::Affinity, |rule, fields| {
        let weight = fields.required("weight", |field| {
            let most = i64::from(limits::WEIGHT);
            if field.records("type", "integer") {
                field.records("minimum", -most);
                field.records("maximum", most);
                return field.records("not", json!({"const": 0})).then_some(0);
            }
            let weight = field.value.as_i64().or_else(|| integral(field.value.as_f64()?));
            let weight = weight.filter(|weight| *weight != 0 && weight.abs() <= most);
            weight
                .and_then(|weight| i8::try_from(weight).ok())
                .or_else(|| field.bad(format!("must be a whole number from -{most} to {most}, and not 0")))
        });
        Some(Affinity { rule, weight: weight? })
    })
}

/// Parses a rule. `more` parses further fields of the same object.
fn take_rule_with<T>(
    field: Field<'_>,
    about: RuleKind,
    more: impl FnOnce(Rule, &mut Fields<'_>) -> Option<T>,
) -> Option<T> {
    let mut fields = match about {
        RuleKind::Constraint => field.object_of::<Rule>("RuleSpec")?,
        RuleKind::Affinity => field.object_of::<Affinity>("AffinitySpec")?,
    };
    fields.document_by::<Rule>();
    let operator = fields.with_default("operator", Operator::Equal, take_operator);
    let attribute = fields.optional("attribute", take_name);
    let value = fields.optional("value", take_operand);
    let rule = match (operator, attribute, value) {
        (Some(operator), Some(attribute), Some(value)) => {
            take_rule(operator, attribute, value, about, &fields)
        }
        (_, _, _) => None,
    };
    // Further fields are parsed even if the rule is bad, so that every bad field is reported at once.
    let stand_in = Rule { attribute: None, operator: Operator::IsSet, value: Operand::default() };
    let whole = more(rule.clone().unwrap_or(stand_in), &mut fields);
    fields.finish(&[]);
    rule.and(whole)
}

fn take_rule(
    operator: Operator,
    attribute: Option<AttributeName>,
    value: Option<String>,
    about: RuleKind,
    fields: &Fields<'_>,
) -> Option<Rule> {
    let word = operator.as_str();
    let bad = |name: &str, problem: String| {
        fields.bad(name, problem);
        None
    };
    if about == RuleKind::Affinity && operator.is_distinct() {
        return bad(
            "operator",
            format!("{word} is only valid in constraints: an affinity concerns one cell"),
        );
    }
    match (operator, &attribute) {
        (Operator::DistinctCell, Some(_)) => {
            return bad("attribute", "cannot be set with distinct_cell, which concerns cells".into());
        }
        (Operator::DistinctCell, None) => {}
        (_, None) => return bad("attribute", "is missing".into()),
        (_, Some(_)) => {}
    }
    let problem = match (operator, value.as_deref()) {
        (Operator::IsSet | Operator::IsNotSet, Some(_)) => {
            Some(format!("cannot be set with {word}, which takes no value"))
        }
        (
            Operator::IsSet | Operator::IsNotSet | Operator::DistinctCell | Operator::DistinctAttribute,
            None,
        ) => None,
        (_, None) => Some("is missing".into()),
        (Operator::DistinctCell | Operator::DistinctAttribute, Some(value)) => {
            let most: Option<u32> = value.parse().ok();
            let valid = most.is_some_and(|most| (1..=limits::INSTANCES).contains(&most));
            (!valid)
                .then(|| format!("must be from 1 to {}, the maximum number of instances", limits::INSTANCES))
        }
        (Operator::Version, Some(value)) => Range::parse(value).err().map(|bad| bad.to_string()),
        (Operator::Regexp, Some(value)) => {
            compile_pattern(value).err().map(|bad| format!("is not a regular expression: {bad}"))
        }
        (
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::AtMost
            | Operator::Greater
            | Operator::AtLeast
            | Operator::SetContains,
            Some(value),
        ) => check_value(value).err().map(|bad| bad.to_string()),
    };
    match problem {
        Some(problem) => bad("value", problem),
        None => {
            // These operators have the default 1. This default is stored as empty.
            let value = value.filter(|value| !(operator.is_distinct() && value == "1")).unwrap_or_default();
            Some(Rule { attribute, operator, value: value.into() })
        }
    }
}

fn take_operator(field: Field<'_>) -> Option<Operator> {
    if field.records_type::<Operator>() {
        return None;
    }
    let words = || Operator::ALL.map(Operator::as_str).join(", ");
    let known = |word: &str| Operator::ALL.into_iter().find(|operator| operator.as_str() == word);
    match field.value.as_str().map(known) {
        Some(Some(operator)) => Some(operator),
        Some(None) => field.bad(format!("{} is unknown: must be one of {}", field.value, words())),
        None => field.bad(format!("must be text, one of {}", words())),
    }
}

fn take_name(field: Field<'_>) -> Option<AttributeName> {
    if field.records_type::<AttributeName>() {
        return None;
    }
    let (path, problems) = (field.path.clone(), field.problems);
    let text = field.text(usize::MAX)?;
    AttributeName::new(&text).map_err(|bad| problems.add(path, bad.to_string())).ok()
}

/// Parses an operand. A number is converted to text.
fn take_operand(field: Field<'_>) -> Option<String> {
    if field.records("type", json!(["string", "number"])) {
        return None;
    }
    match &field.value {
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            field.text(limits::ATTRIBUTE_VALUE_BYTES)
        }
    }
}

fn take_spreads(field: Field<'_>) -> Option<Vec<Spread>> {
    let mut seen = BTreeSet::new();
    field.list_of(limits::SPREADS, |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let spread = take_spread(field)?;
        if !seen.insert(spread.attribute.clone()) {
            problems.add(format!("{path}.attribute"), format!("{} is given twice", spread.attribute));
        }
        Some(spread)
    })
}

fn take_spread(field: Field<'_>) -> Option<Spread> {
    let mut fields = field.object_of::<Spread>("SpreadSpec")?;
    let attribute = fields.required("attribute", take_name);
    let weight = fields.with_default("weight", 50, |field| percent(field, 1));
    let targets = fields.with_default("targets", BTreeMap::new(), take_targets);
    fields.finish(&[]);
    Some(Spread { attribute: attribute?, weight: weight?, targets: targets? })
}

fn percent(field: Field<'_>, least: u64) -> Option<u8> {
    field.number(least..=u64::from(limits::WEIGHT)).and_then(|number| u8::try_from(number).ok())
}

fn take_targets(field: Field<'_>) -> Option<BTreeMap<String, u8>> {
    let (path, problems) = (field.path.clone(), field.problems);
    let targets = field.map_of(limits::SPREAD_TARGETS, |value, field| {
        if let Err(bad) = check_value(&value) {
            problems.add(&path, bad.to_string());
        }
        Some((value, percent(field, 0)?))
    })?;
    let targets: BTreeMap<String, u8> = targets.into_iter().collect();
    let sum: u32 = targets.values().map(|percent| u32::from(*percent)).sum();
    if sum > 100 {
        problems.add(path, format!("has {sum} percent in all, more than 100"));
        return None;
    }
    Some(targets)
}

pub(super) fn constraints_to_json(constraint: &Constraint) -> Value {
    let rules = constraint.rules.as_deref();
    rules.map_or(Value::Null, |rules| rules.constraints.iter().map(rule_to_json).collect())
}

pub(super) fn affinities_to_json(constraint: &Constraint) -> Value {
    let one = |affinity: &Affinity| {
        super::with_field(rule_to_json(&affinity.rule), "weight", affinity.weight.into())
    };
    constraint.rules.as_deref().map_or(Value::Null, |rules| rules.affinities.iter().map(one).collect())
}

pub(super) fn spread_to_json(constraint: &Constraint) -> Value {
    let one = |Spread { attribute, weight, targets }: &Spread| {
        super::compact(json!({ "attribute": attribute, "weight": weight, "targets": targets }))
    };
    constraint.rules.as_deref().map_or(Value::Null, |rules| rules.spread.iter().map(one).collect())
}

fn rule_to_json(rule: &Rule) -> Value {
    let Rule { attribute, operator, value } = rule;
    super::compact(json!({ "attribute": attribute, "operator": operator, "value": value }))
}
