//! Parses constraints, affinities and spreads of specs, and converts them to JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::attributes::{AttributeName, check_value};
use crate::fields::{Field, Fields};
use crate::limits;
use crate::refusal::BadField;
use crate::resources::Constraint;
use crate::rules::{Affinity, Operand, Operator, Range, Rule, Rules, Spread, pattern};

/// The context in which a rule is parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// A constraint: every operator is allowed.
    Constraint,
    /// An affinity: only operators that compare attributes of a single cell are allowed.
    Affinity,
}

/// Parses the placement rules of a definition. `Some(None)` if it has no rules.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<Option<Box<Rules>>> {
    let constraints = fields.or("constraints", vec![], |field| {
        field.each(limits::RULES, |field| take_alone(field, About::Constraint, |rule, _| Some(rule)))
    });
    let affinities = fields.or("affinities", vec![], |field| field.each(limits::RULES, take_affinity));
    let spread = fields.or("spread", vec![], take_spreads);
    let rules = Rules { constraints: constraints?, affinities: affinities?, spread: spread? };
    Some((!rules.is_empty()).then(|| Box::new(rules)))
}

/// Reports rules that concern several instances, for work that has only one instance.
pub(super) fn check_alone(rules: &Rules, why: &str, fields: &Fields<'_>) {
    for BadField { field, problem } in rules.about_several() {
        fields.bad(&field, format!("{problem}: {why}"));
    }
}

fn take_affinity(field: Field<'_>) -> Option<Affinity> {
    take_alone(field, About::Affinity, |rule, fields| {
        let weight = fields.must("weight", |field| {
            let most = i64::from(limits::WEIGHT);
            let weight = field.value.as_i64().filter(|weight| *weight != 0 && weight.abs() <= most);
            weight
                .and_then(|weight| i8::try_from(weight).ok())
                .or_else(|| field.bad(format!("must be a whole number from -{most} to {most}, and not 0")))
        });
        Some(Affinity { rule, weight: weight? })
    })
}

/// Parses a rule. `more` parses further fields of the same object.
fn take_alone<T>(
    field: Field<'_>,
    about: About,
    more: impl FnOnce(Rule, &mut Fields<'_>) -> Option<T>,
) -> Option<T> {
    let mut fields = field.object()?;
    let operator = fields.or("operator", Operator::Equal, take_operator);
    let attribute = fields.may("attribute", take_name);
    let value = fields.may("value", take_operand);
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
    about: About,
    fields: &Fields<'_>,
) -> Option<Rule> {
    let word = operator.word();
    let bad = |name: &str, problem: String| {
        fields.bad(name, problem);
        None
    };
    if about == About::Affinity && operator.is_distinct() {
        return bad("operator", format!("{word} is for constraints: an affinity is about one cell"));
    }
    match (operator, &attribute) {
        (Operator::DistinctCell, Some(_)) => {
            return bad("attribute", "can't be given with distinct_cell: it is about cells".into());
        }
        (Operator::DistinctCell, None) => {}
        (_, None) => return bad("attribute", "is missing".into()),
        (_, Some(_)) => {}
    }
    let problem = match (operator, value.as_deref()) {
        (Operator::IsSet | Operator::IsNotSet, Some(_)) => {
            Some(format!("can't be given with {word}: there is nothing to compare with"))
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
                .then(|| format!("must be from 1 to {}: how many instances may be there", limits::INSTANCES))
        }
        (Operator::Version, Some(value)) => Range::read(value).err().map(|bad| bad.to_string()),
        (Operator::Regexp, Some(value)) => {
            pattern(value).err().map(|bad| format!("is not a regular expression: {bad}"))
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
            // 1 is the default of these operators, and is stored as empty.
            let value = value.filter(|value| !(operator.is_distinct() && value == "1")).unwrap_or_default();
            Some(Rule { attribute, operator, value: value.into() })
        }
    }
}

fn take_operator(field: Field<'_>) -> Option<Operator> {
    let words = || Operator::ALL.map(Operator::word).join(", ");
    let known = |word: &str| Operator::ALL.into_iter().find(|operator| operator.word() == word);
    match field.value.as_str().map(known) {
        Some(Some(operator)) => Some(operator),
        Some(None) => field.bad(format!("{} is unknown: must be one of {}", field.value, words())),
        None => field.bad(format!("must be text, one of {}", words())),
    }
}

fn take_name(field: Field<'_>) -> Option<AttributeName> {
    let (path, problems) = (field.path.clone(), field.problems);
    let text = field.text(usize::MAX)?;
    AttributeName::new(&text).map_err(|bad| problems.note(path, bad.to_string())).ok()
}

/// Parses an operand. A number is converted to text.
fn take_operand(field: Field<'_>) -> Option<String> {
    match &field.value {
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            field.text(limits::ATTRIBUTE_VALUE_BYTES)
        }
    }
}

fn take_spreads(field: Field<'_>) -> Option<Vec<Spread>> {
    let mut seen = BTreeSet::new();
    field.each(limits::SPREADS, |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let spread = take_spread(field)?;
        if !seen.insert(spread.attribute.clone()) {
            problems.note(format!("{path}.attribute"), format!("{} is given twice", spread.attribute));
        }
        Some(spread)
    })
}

fn take_spread(field: Field<'_>) -> Option<Spread> {
    let mut fields = field.object()?;
    let attribute = fields.must("attribute", take_name);
    let weight = fields.or("weight", 50, |field| percent(field, 1));
    let targets = fields.or("targets", BTreeMap::new(), take_targets);
    fields.finish(&[]);
    Some(Spread { attribute: attribute?, weight: weight?, targets: targets? })
}

fn percent(field: Field<'_>, least: u64) -> Option<u8> {
    field.number(least..=u64::from(limits::WEIGHT)).and_then(|number| u8::try_from(number).ok())
}

fn take_targets(field: Field<'_>) -> Option<BTreeMap<String, u8>> {
    let (path, problems) = (field.path.clone(), field.problems);
    let entries = field.object()?.into_entries();
    if entries.len() > limits::SPREAD_TARGETS {
        problems.note(path, format!("has {} members, more than {}", entries.len(), limits::SPREAD_TARGETS));
        return None;
    }
    let mut targets = BTreeMap::new();
    for (value, field) in entries {
        if let Err(bad) = check_value(&value) {
            problems.note(&path, bad.to_string());
        }
        targets.extend(percent(field, 0).map(|percent| (value, percent)));
    }
    let sum: u32 = targets.values().map(|percent| u32::from(*percent)).sum();
    if sum > 100 {
        problems.note(path, format!("has {sum} percent in all, more than 100"));
        return None;
    }
    Some(targets)
}

pub(super) fn constraints_to_json(constraint: &Constraint) -> Value {
    let rules = constraint.rules.as_deref();
    rules.map_or(Value::Null, |rules| rules.constraints.iter().map(rule_to_json).collect())
}

pub(super) fn affinities_to_json(constraint: &Constraint) -> Value {
    let one =
        |affinity: &Affinity| super::with(rule_to_json(&affinity.rule), "weight", affinity.weight.into());
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
