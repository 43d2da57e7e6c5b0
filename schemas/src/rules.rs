//! What definitions ask of the attributes of cells: constraints, affinities, spread (docs/model.md, "Constraints").

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::attributes::{AttributeName, Offer};
use crate::limits;
use crate::refusal::BadField;

mod version;

pub use version::{BadRange, Range, Version};

/// Why what is about several instances has no effect on a global process.
pub const ONE_ON_EACH_CELL: &str = "a global process has one instance on each cell that fits";

/// What a definition asks for beside stack and tags. Most ask for nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Rules {
    /// What must be so.
    pub constraints: Vec<Rule>,
    /// What had better be so, or had better not.
    pub affinities: Vec<Affinity>,
    /// Attributes over whose values the instances are spread.
    pub spread: Vec<Spread>,
}

/// What is asked of one attribute, or of how many instances are where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// The attribute. None: it is about cells.
    pub attribute: Option<AttributeName>,
    /// How it is compared.
    pub operator: Operator,
    /// With what; empty where nothing is to be compared with.
    pub value: Operand,
}

/// How an attribute is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// It is equal. Two numbers are compared as numbers, here and in the next five, and else as text.
    #[serde(rename = "=")]
    Equal,
    /// It is not equal, or the cell doesn't have it.
    #[serde(rename = "!=")]
    NotEqual,
    /// It is less.
    #[serde(rename = "<")]
    Less,
    /// It is less or equal.
    #[serde(rename = "<=")]
    AtMost,
    /// It is greater.
    #[serde(rename = ">")]
    Greater,
    /// It is greater or equal.
    #[serde(rename = ">=")]
    AtLeast,
    /// It is a version in a range, as `>= 1.2, < 2`.
    #[serde(rename = "version")]
    Version,
    /// A regular expression matches somewhere in it.
    #[serde(rename = "regexp")]
    Regexp,
    /// It is a list, with commas, that has every member of this one.
    #[serde(rename = "set_contains")]
    SetContains,
    /// The cell has it, with whatever value.
    #[serde(rename = "is_set")]
    IsSet,
    /// The cell doesn't have it.
    #[serde(rename = "is_not_set")]
    IsNotSet,
    /// At most so many instances of the process are on one cell.
    #[serde(rename = "distinct_cell")]
    DistinctCell,
    /// At most so many instances of the process are on cells with the same value of the attribute; on cells without it, none.
    #[serde(rename = "distinct_attribute")]
    DistinctAttribute,
}

impl Operator {
    /// All of them, in the order in which they are listed to users.
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

    /// As users write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
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

    /// Whether it is about how many instances are where, which no cell can tell of itself.
    #[must_use]
    pub const fn is_distinct(self) -> bool {
        matches!(self, Self::DistinctCell | Self::DistinctAttribute)
    }
}

/// What an attribute is compared with: text. A regular expression is compiled when it is first needed.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Operand {
    text: Arc<str>,
    pattern: OnceLock<Option<Regex>>,
}

impl Operand {
    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text as a regular expression; one that can't be compiled matches nothing.
    fn pattern(&self) -> Option<&Regex> {
        self.pattern.get_or_init(|| pattern(&self.text).ok()).as_ref()
    }
}

/// Compiles a regular expression, within the limits of its size.
///
/// # Errors
/// Why it is none.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
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

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// A rule that had better hold, or had better not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Affinity {
    /// Which.
    pub rule: Rule,
    /// How much that matters: from -100 to 100, and not 0.
    pub weight: i8,
}

/// An attribute over whose values instances are spread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Which.
    pub attribute: AttributeName,
    /// How much it matters beside other spreads: 1 to 100.
    pub weight: u8,
    /// For values how many of a hundred instances are wanted there. The other values share the rest evenly.
    pub targets: BTreeMap<String, u8>,
}

impl Rules {
    /// Whether nothing is asked for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.constraints.is_empty() && self.affinities.is_empty() && self.spread.is_empty()
    }

    /// The first constraint that a cell by itself doesn't meet.
    #[must_use]
    pub fn unmet(&self, offer: &Offer<'_>) -> Option<(usize, &Rule)> {
        self.constraints.iter().enumerate().find(|(_, rule)| !rule.holds(offer))
    }

    /// The weights of the affinities that hold on a cell, together.
    #[must_use]
    pub fn affinity(&self, offer: &Offer<'_>) -> i32 {
        self.affinities.iter().filter(|one| one.rule.holds(offer)).map(|one| i32::from(one.weight)).sum()
    }

    /// How many instances of the process may be where, with the place of each constraint.
    pub fn distinct(&self) -> impl Iterator<Item = (usize, Distinct<'_>)> {
        self.constraints.iter().enumerate().filter_map(|(at, rule)| Some((at, rule.distinct()?)))
    }

    /// What of it is about several instances, each as a field with what is wrong with it where there is only one.
    pub fn about_several(&self) -> impl Iterator<Item = BadField> {
        let distinct = self.constraints.iter().enumerate().filter(|(_, rule)| rule.operator.is_distinct());
        let distinct = distinct.map(|(at, rule)| BadField {
            field: format!("constraints[{at}].operator"),
            problem: format!("{} has no effect", rule.operator.word()),
        });
        let spread = || BadField { field: "spread".to_owned(), problem: "has no effect".to_owned() };
        distinct.chain((!self.spread.is_empty()).then(spread))
    }

    /// Every attribute that is named.
    pub fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        let constraints = self.constraints.iter().filter_map(|rule| rule.attribute.as_ref());
        let affinities = self.affinities.iter().filter_map(|one| one.rule.attribute.as_ref());
        constraints.chain(affinities).chain(self.spread.iter().map(|spread| &spread.attribute))
    }
}

/// How many instances of a process may be where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinct<'a> {
    /// On one cell.
    Cell {
        /// So many at most.
        most: u32,
    },
    /// On cells with the same value of an attribute; on a cell without it, none.
    Attribute {
        /// The attribute.
        attribute: &'a AttributeName,
        /// So many at most.
        most: u32,
    },
}

impl Rule {
    /// Whether a cell by itself meets it. How many instances are where it can't tell: there it holds wherever an instance
    /// may be at all.
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

    /// How many instances may be where, if it says that.
    #[must_use]
    pub fn distinct(&self) -> Option<Distinct<'_>> {
        let most = || self.value.text.parse().unwrap_or(1).max(1);
        match self.operator {
            Operator::DistinctCell => Some(Distinct::Cell { most: most() }),
            Operator::DistinctAttribute => {
                Some(Distinct::Attribute { attribute: self.attribute.as_ref()?, most: most() })
            }
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::AtMost
            | Operator::Greater
            | Operator::AtLeast
            | Operator::Version
            | Operator::Regexp
            | Operator::SetContains
            | Operator::IsSet
            | Operator::IsNotSet => None,
        }
    }

    /// Whether what it asks is nothing that cells of one class share.
    #[must_use]
    pub fn escapes(&self) -> bool {
        self.operator.is_distinct() || self.attribute.as_ref().is_some_and(AttributeName::is_unique)
    }
}

/// As users would write it: `os.name = linux`, `rack is_set`, `distinct_attribute rack`, `distinct_cell 2`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.operator.word();
        let name = self.attribute.as_ref().map_or("", AttributeName::as_str);
        let words = match self.distinct() {
            None => [name, word, self.value.as_str()],
            Some(Distinct::Cell { most: 1 } | Distinct::Attribute { most: 1, .. }) => [word, name, ""],
            Some(Distinct::Cell { .. } | Distinct::Attribute { .. }) => [word, name, self.value.as_str()],
        };
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        f.write_str(&words.join(" "))
    }
}

/// Two numbers as numbers, else both as text.
fn compare(a: &str, b: &str) -> Ordering {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Some(_), None) | (None, _) => a.cmp(b),
    }
}

/// Digits, perhaps a sign before them and a point in them: nothing else that reads like a number is meant as one.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    text.parse().ok().filter(|_| plain)
}

fn is_in_range(version: &str, range: &str) -> bool {
    match (Version::read(version), Range::read(range)) {
        (Some(version), Ok(range)) => range.has(&version),
        (None, _) | (_, Err(_)) => false,
    }
}

fn contains(list: &str, wanted: &str) -> bool {
    wanted.split(',').map(str::trim).all(|one| list.split(',').any(|member| member.trim() == one))
}
