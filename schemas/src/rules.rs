//! Placement rules of definitions about the attributes of cells: constraints, affinities and spread
//! (docs/internals/model/auction.md, "Constraints").

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::attributes::{AttributeName, Offer};
use crate::limits;
use crate::refusal::BadField;

mod version;

pub use version::{BadRange, Range, Version};

/// Explanation for users: rules about several instances have no effect on a global process.
pub const ONE_PER_CELL: &str = "a global process has one instance on each cell that fits";

/// Placement rules of a definition, apart from stack and tags. Most definitions have no such rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Rules {
    /// Rules that a cell has to meet.
    pub constraints: Vec<Rule>,
    /// Rules that a cell should meet, or should not meet.
    pub affinities: Vec<Affinity>,
    /// Attributes over whose values the instances are spread.
    pub spread: Vec<Spread>,
}

/// Rule about one attribute of cells, or about the number of instances per cell or attribute value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// Attribute that the rule is about. Absent with `distinct_cell`, which is about cells.
    pub attribute: Option<AttributeName>,
    /// Comparison that the rule makes, `=` by default.
    pub operator: Operator,
    /// Text that the attribute is compared with. Empty if the operator needs no text. With `distinct_cell` and
    /// `distinct_attribute`, the maximum number of instances, 1 by default.
    pub value: Operand,
}

/// Comparison of an attribute with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// The attribute is equal to the value. The operators `=`, `!=`, `<`, `<=`, `>` and `>=` compare two
    /// numbers as numbers, and everything else as text.
    #[serde(rename = "=")]
    Equal,
    /// The attribute is not equal to the value, or the cell does not have the attribute.
    #[serde(rename = "!=")]
    NotEqual,
    /// The attribute is less than the value.
    #[serde(rename = "<")]
    Less,
    /// The attribute is less than or equal to the value.
    #[serde(rename = "<=")]
    AtMost,
    /// The attribute is greater than the value.
    #[serde(rename = ">")]
    Greater,
    /// The attribute is greater than or equal to the value.
    #[serde(rename = ">=")]
    AtLeast,
    /// The attribute is a version within a range such as `>= 1.2, < 2`.
    #[serde(rename = "version")]
    Version,
    /// The regular expression matches a part of the attribute.
    #[serde(rename = "regexp")]
    Regexp,
    /// The attribute is a comma-separated list that contains every member of the given list.
    #[serde(rename = "set_contains")]
    SetContains,
    /// The cell has the attribute, with any value.
    #[serde(rename = "is_set")]
    IsSet,
    /// The cell does not have the attribute.
    #[serde(rename = "is_not_set")]
    IsNotSet,
    /// Each cell has at most this number of instances of the process.
    #[serde(rename = "distinct_cell")]
    DistinctCell,
    /// Each group of cells with the same value of the attribute has at most this number of instances of the
    /// process. Cells without the attribute have no instances.
    #[serde(rename = "distinct_attribute")]
    DistinctAttribute,
}

impl Operator {
    /// List of every operator, in the order in which users see it.
    pub const ALL: [Self; 13] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::AtMost,
        Self::Greater,
        Self::AtLeast,
        Self::Version,
        Self::Regexp,
        Self::SetContains,
        Self::IsSet,
        Self::IsNotSet,
        Self::DistinctCell,
        Self::DistinctAttribute,
    ];

    /// Returns the operator as users write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::Version => "version",
            Self::Regexp => "regexp",
            Self::SetContains => "set_contains",
            Self::IsSet => "is_set",
            Self::IsNotSet => "is_not_set",
            Self::DistinctCell => "distinct_cell",
            Self::DistinctAttribute => "distinct_attribute",
        }
    }

    /// Returns `true` if the operator limits the instances per cell or attribute value. The attributes of one
    /// cell are not sufficient to check such a rule.
    #[must_use]
    pub const fn is_distinct(self) -> bool {
        matches!(self, Self::DistinctCell | Self::DistinctAttribute)
    }
}

/// Text that an attribute is compared with. If the text is a regular expression, the first use compiles it.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Operand {
    text: Arc<str>,
    pattern: OnceLock<Option<Regex>>,
}

impl Operand {
    /// Returns the text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text as a regular expression. `None` if the text does not compile. A rule with such a text
    /// matches nothing.
    fn pattern(&self) -> Option<&Regex> {
        self.pattern.get_or_init(|| compile_pattern(&self.text).ok()).as_ref()
    }
}

/// Compiles a regular expression, within limits on its size.
///
/// # Errors
/// The error of the regular expression compiler.
pub fn compile_pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(limits::PATTERN_BYTES).dfa_size_limit(limits::PATTERN_BYTES).build()
}

impl From<String> for Operand {
    fn from(text: String) -> Self {
        Self { text: text.into(), pattern: OnceLock::new() }
    }
}

impl From<Operand> for String {
    fn from(value: Operand) -> Self {
        value.text.as_ref().to_owned()
    }
}

impl PartialEq for Operand {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Operand {}

impl PartialOrd for Operand {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Operand {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl fmt::Debug for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl JsonSchema for Operand {
    fn schema_name() -> Cow<'static, str> {
        "Operand".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Value that a rule compares with, as text.", "type": "string"})
    }
}

/// Rule that a cell should meet. If the weight is negative, the cell should not meet the rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Affinity {
    /// Rule that is checked.
    pub rule: Rule,
    /// Weight of the rule, from -100 to 100 and not 0.
    pub weight: i8,
}

/// Attribute over whose values instances are spread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Name of the attribute.
    pub attribute: AttributeName,
    /// Weight relative to other spreads, 1 to 100, 50 by default.
    pub weight: u8,
    /// Desired percentage of the instances for each value. Values without a percentage share the remaining
    /// instances evenly.
    pub targets: BTreeMap<String, u8>,
}

impl Rules {
    /// Returns `true` if there are no constraints, no affinities and no spreads.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.constraints.is_empty() && self.affinities.is_empty() && self.spread.is_empty()
    }

    /// Returns the first constraint that the cell does not meet, with its position in the list of
    /// constraints. Limits on instances are not checked, because they depend on other cells, too.
    #[must_use]
    pub fn first_unmet(&self, offer: &Offer<'_>) -> Option<(usize, &Rule)> {
        self.constraints.iter().enumerate().find(|(_, rule)| !rule.holds(offer))
    }

    /// Returns the sum of the weights of the affinities that a cell meets.
    #[must_use]
    pub fn affinity(&self, offer: &Offer<'_>) -> i32 {
        self.affinities.iter().filter(|one| one.rule.holds(offer)).map(|one| i32::from(one.weight)).sum()
    }

    /// Returns the limits on instances per cell or attribute value, each with the position of its constraint.
    pub fn distinct(&self) -> impl Iterator<Item = (usize, Distinct<'_>)> {
        self.constraints.iter().enumerate().filter_map(|(at, rule)| Some((at, rule.distinct()?)))
    }

    /// Returns the rules about several instances as invalid fields. A process with a single instance per cell
    /// must not have such rules.
    pub fn multi_instance_rules(&self) -> impl Iterator<Item = BadField> {
        let distinct = self.constraints.iter().enumerate().filter(|(_, rule)| rule.operator.is_distinct());
        let distinct = distinct.map(|(at, rule)| BadField {
            field: format!("constraints[{at}].operator"),
            problem: format!("{} has no effect", rule.operator.as_str()),
        });
        let spread = || BadField { field: "spread".to_owned(), problem: "has no effect".to_owned() };
        distinct.chain((!self.spread.is_empty()).then(spread))
    }

    /// Returns every attribute that the rules name.
    pub fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        let constraints = self.constraints.iter().filter_map(|rule| rule.attribute.as_ref());
        let affinities = self.affinities.iter().filter_map(|one| one.rule.attribute.as_ref());
        constraints.chain(affinities).chain(self.spread.iter().map(|spread| &spread.attribute))
    }
}

/// Limit on the instances of a process per cell or attribute value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinct<'a> {
    /// Limit per cell.
    Cell { max: u32 },
    /// Limit per value of an attribute. Cells without the attribute must have no instance.
    Attribute { attribute: &'a AttributeName, max: u32 },
}

impl Rule {
    /// Returns `true` if the cell meets the rule. Limits on instances depend on other cells, too, so this
    /// function does not check them: every cell meets such a rule.
    #[must_use]
    pub fn holds(&self, offer: &Offer<'_>) -> bool {
        let is = self.attribute.as_ref().and_then(|name| offer.attribute(name.as_str()));
        let compared =
            |right: fn(Ordering) -> bool| is.is_some_and(|is| right(compare(is, &self.value.text)));
        match self.operator {
            Operator::Equal => compared(Ordering::is_eq),
            Operator::NotEqual => !compared(Ordering::is_eq),
            Operator::Less => compared(Ordering::is_lt),
            Operator::AtMost => compared(Ordering::is_le),
            Operator::Greater => compared(Ordering::is_gt),
            Operator::AtLeast => compared(Ordering::is_ge),
            Operator::Version => is.is_some_and(|is| is_in_range(is, &self.value.text)),
            Operator::Regexp => {
                is.is_some_and(|is| self.value.pattern().is_some_and(|regex| regex.is_match(is)))
            }
            Operator::SetContains => is.is_some_and(|is| contains(is, &self.value.text)),
            Operator::IsSet | Operator::DistinctAttribute => is.is_some(),
            Operator::IsNotSet => is.is_none(),
            Operator::DistinctCell => true,
        }
    }

    /// Returns the limit on instances that the rule sets. `None` if the rule sets no limit.
    #[must_use]
    pub fn distinct(&self) -> Option<Distinct<'_>> {
        let most = || self.value.text.parse().unwrap_or(1).max(1);
        if self.operator == Operator::DistinctCell {
            return Some(Distinct::Cell { max: most() });
        }
        let attribute = self.attribute.as_ref().filter(|_| self.operator == Operator::DistinctAttribute)?;
        Some(Distinct::Attribute { attribute, max: most() })
    }

    /// Returns `true` if, of two cells of the same class, one may meet the rule while the other does not.
    #[must_use]
    pub fn escapes(&self) -> bool {
        self.operator.is_distinct() || self.attribute.as_ref().is_some_and(AttributeName::is_unique)
    }
}

/// Formats the rule as users write it: `os.name = linux`, `rack is_set`, `distinct_attribute rack`,
/// `distinct_cell 2`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.operator.as_str();
        let name = self.attribute.as_ref().map_or("", AttributeName::as_str);
        let words = match self.distinct() {
            None => [name, word, self.value.as_str()],
            Some(Distinct::Cell { max: 1 } | Distinct::Attribute { max: 1, .. }) => [word, name, ""],
            Some(Distinct::Cell { .. } | Distinct::Attribute { .. }) => [word, name, self.value.as_str()],
        };
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        f.write_str(&words.join(" "))
    }
}

/// Compares two numbers as numbers, and everything else as text.
fn compare(a: &str, b: &str) -> Ordering {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Some(_), None) | (None, _) => a.cmp(b),
    }
}

/// Parses a number that consists of digits, signs and a point. Other numbers that Rust can parse, such as
/// `inf` and `1e3`, do not count as numbers.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    text.parse().ok().filter(|_| plain)
}

fn is_in_range(version: &str, range: &str) -> bool {
    match (Version::parse(version), Range::parse(range)) {
        (Some(version), Ok(range)) => range.contains(&version),
        (None, _) | (_, Err(_)) => false,
    }
}

fn contains(list: &str, wanted: &str) -> bool {
    wanted.split(',').map(str::trim).all(|one| list.split(',').any(|member| member.trim() == one))
}
