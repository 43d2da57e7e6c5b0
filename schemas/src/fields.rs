//! Field-by-field parsing of JSON. Collects every problem, so that a refusal names all bad fields instead of
//! only the first.

mod description;

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::action::depth_of_json;
use crate::codec::MAX_JSON_DEPTH;
use crate::limits;
use crate::names::BadName;
use crate::refusal::{BadField, Refusal};

use description::{Description, Draft};

pub(crate) use description::describe;

/// Maximum number of bad fields in a refusal. If there are more, a single field "and more" stands for the
/// rest.
const MAX_PROBLEMS: usize = 100;
/// Maximum length of the path and of the problem of a bad field, in bytes. Both may quote text of the client.
const MAX_QUOTED_BYTES: usize = 300;

/// Problems found so far.
#[derive(Default)]
pub(crate) struct Problems {
    found: RefCell<Vec<BadField>>,
    /// Definitions of a description. `None` unless a parser describes what it parses.
    generator: Option<RefCell<SchemaGenerator>>,
}

impl Problems {
    /// Adds a problem of a field, unless it is already listed.
    pub(crate) fn add(&self, field: impl fmt::Display, problem: impl Into<String>) {
        let mut found = self.found.borrow_mut();
        if found.len() > MAX_PROBLEMS {
            return;
        }
        let field = limits::truncate(&field.to_string(), MAX_QUOTED_BYTES);
        let bad = BadField { field, problem: limits::truncate(&problem.into(), MAX_QUOTED_BYTES) };
        if !found.contains(&bad) {
            found.push(bad);
        }
    }

    /// Returns the value if no problem was recorded, and otherwise the refusal.
    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, Refusal> {
        let mut found = self.found.into_inner();
        match value {
            Some(value) if found.is_empty() => Ok(value),
            Some(_) | None => {
                if found.len() > MAX_PROBLEMS {
                    found.truncate(MAX_PROBLEMS);
                    found.push(BadField { field: "...".into(), problem: "and more".into() });
                }
                Err(Refusal::invalid(found))
            }
        }
    }
}

/// Path of a value in a document, such as `lrp[0].action.run.path`.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root(&'a str),
    Key(&'a Self, &'a str),
    At(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Key(Path::Root(""), name) => f.write_str(name),
            Self::Key(above, name) => write!(f, "{above}.{name}"),
            Self::At(above, at) => write!(f, "{above}[{at}]"),
        }
    }
}

/// Parses JSON text strictly.
///
/// The text must be one value, with nothing after it, and nested no deeper than [`MAX_JSON_DEPTH`]. If an
/// object has the same key twice, the key is ambiguous and is added to the problems. All other violations are
/// refused immediately.
pub(crate) fn read_json(text: &[u8], problems: &Problems) -> Result<Value, Refusal> {
    let refuse = |problem: String| Refusal::invalid(vec![BadField { field: "message".into(), problem }]);
    if text.len() > limits::MESSAGE_BYTES {
        return Err(refuse(format!("has {} bytes, more than {}", text.len(), limits::MESSAGE_BYTES)));
    }
    read_json_unbounded(text, problems)
}

/// Parses JSON like [`read_json`], without its size limit. The caller must check the size.
pub(crate) fn read_json_unbounded(text: &[u8], problems: &Problems) -> Result<Value, Refusal> {
    let refuse = |problem: String| Refusal::invalid(vec![BadField { field: "message".into(), problem }]);
    if depth_of_json(text) > MAX_JSON_DEPTH {
        return Err(refuse(format!("is nested deeper than {MAX_JSON_DEPTH}")));
    }
    let mut from = serde_json::Deserializer::from_slice(text);
    let root = Strict { path: Path::Root(""), problems };
    let value = root.deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    value.map_err(|error| refuse(format!("is not JSON: {error}")))
}

/// Builds a value and records every key that an object has twice.
struct Strict<'a> {
    path: Path<'a>,
    problems: &'a Problems,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = vec![];
        let at = |at| Strict { path: Path::At(&self.path, at), problems: self.problems };
        while let Some(value) = from.next_element_seed(at(list.len()))? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            let path = Path::Key(&self.path, &name);
            if object.contains_key(&name) {
                self.problems.add(path, "is given twice");
            }
            let value = from.next_value_seed(Strict { path, problems: self.problems })?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Checks a whole value before its fields are parsed. Records a problem for text with NUL, because neither a
/// process nor a database accepts NUL. Returns `false` if the value is nested too deeply for recursion.
pub(crate) fn check_document(value: &Value, path: &str, problems: &Problems) -> bool {
    if is_deeper(value, MAX_JSON_DEPTH) {
        problems.add(path_or_message(path), format!("is nested deeper than {MAX_JSON_DEPTH}"));
        return false;
    }
    check_nul(value, Path::Root(path), problems);
    true
}

/// Returns `true` if arrays and objects are nested deeper than `depth`. Works without recursion.
fn is_deeper(value: &Value, depth: usize) -> bool {
    let mut left = vec![(value, 0)];
    while let Some((value, above)) = left.pop() {
        match value {
            Value::Array(_) | Value::Object(_) if above >= depth => return true,
            Value::Array(list) => left.extend(list.iter().map(|value| (value, above + 1))),
            Value::Object(object) => left.extend(object.values().map(|value| (value, above + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

fn check_nul(value: &Value, path: Path<'_>, problems: &Problems) {
    const PROBLEM: &str = "must not contain NUL";
    match value {
        Value::String(text) if text.contains('\0') => problems.add(path, PROBLEM),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                check_nul(value, Path::At(&path, at), problems);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                let path = Path::Key(&path, name);
                if name.contains('\0') {
                    problems.add(path, PROBLEM);
                }
                check_nul(value, path, problems);
            }
        }
    }
}

/// Returns the path, or `message` for the root of a document, which has no path.
fn path_or_message(path: &str) -> &str {
    if path.is_empty() { "message" } else { path }
}

/// A field that was taken out of an object, with its path.
pub(crate) struct Field<'p> {
    pub(crate) value: Value,
    pub(crate) path: String,
    pub(crate) problems: &'p Problems,
    /// Schema to write, if a parser describes what it parses.
    draft: Option<Draft>,
}

impl<'p> Field<'p> {
    pub(crate) const fn new(value: Value, path: String, problems: &'p Problems) -> Self {
        Self { value, path, problems, draft: None }
    }

    /// Records a problem of this field and returns `None`.
    pub(crate) fn bad<T>(&self, problem: impl Into<String>) -> Option<T> {
        self.problems.add(path_or_message(&self.path), problem);
        None
    }

    fn wrong_type<T>(&self, what: &str) -> Option<T> {
        let is = match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.bad(format!("must be {what}, not {is}"))
    }

    /// Returns text of at most `bytes` bytes.
    pub(crate) fn text(mut self, bytes: usize) -> Option<String> {
        if self.records("type", "string") {
            return self.records_limit("maxLength", bytes as u64);
        }
        let Value::String(text) = &mut self.value else { return self.wrong_type("text") };
        let text = std::mem::take(text);
        if text.len() > bytes {
            return self.bad(format!("has {} bytes, more than {bytes}", text.len()));
        }
        Some(text)
    }

    /// Returns a validated name, such as a guid.
    pub(crate) fn name<T: TryFrom<String, Error = BadName> + JsonSchema>(self) -> Option<T> {
        if self.records_type::<T>() {
            return None;
        }
        let (path, problems) = (self.path.clone(), self.problems);
        let text = self.text(usize::MAX)?;
        T::try_from(text).map_err(|bad| problems.add(path, bad.to_string())).ok()
    }

    /// Returns an integer within a range. An integer may have a fraction of 0, such as `5.0`.
    pub(crate) fn number(self, range: RangeInclusive<u64>) -> Option<u64> {
        if self.records("type", "integer") {
            self.records("minimum", *range.start());
            return self.records_limit("maximum", *range.end());
        }
        let Value::Number(number) = &self.value else { return self.wrong_type("a number") };
        let whole = number.as_u64().or_else(|| number.as_f64().and_then(integral)?.try_into().ok());
        match (whole, number.as_f64()) {
            (Some(whole), _) if range.contains(&whole) => Some(whole),
            (Some(_), _) => self.bad(format!("must be from {} to {}", range.start(), range.end())),
            (None, Some(other)) if other < 0.0 => self.bad("must not be negative"),
            (None, _) => self.bad("must be a whole number"),
        }
    }

    /// Returns a 32-bit integer within a range.
    pub(crate) fn number_32(self, range: RangeInclusive<u32>) -> Option<u32> {
        let number = self.number(u64::from(*range.start())..=u64::from(*range.end()))?;
        u32::try_from(number).ok()
    }

    /// Returns a boolean.
    pub(crate) fn boolean(self) -> Option<bool> {
        if self.records("type", "boolean") {
            return None;
        }
        match &self.value {
            Value::Bool(flag) => Some(*flag),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong_type("true or false")
            }
        }
    }

    /// Returns the members of a list with at most `most` members.
    pub(crate) fn list(mut self, most: usize) -> Option<Vec<Self>> {
        let Value::Array(list) = &mut self.value else { return self.wrong_type("a list") };
        let list = std::mem::take(list);
        if list.len() > most {
            return self.bad(format!("has {} members, more than {most}", list.len()));
        }
        let member = |(at, value)| Self::new(value, format!("{}[{at}]", self.path), self.problems);
        Some(list.into_iter().enumerate().map(member).collect())
    }

    /// Returns the members of a list, each converted by `take`. `None` if any of them is bad.
    pub(crate) fn list_of<T>(self, most: usize, take: impl FnMut(Self) -> Option<T>) -> Option<Vec<T>> {
        if self.records("type", "array") {
            self.records_part("items", take);
            return self.records_limit("maxItems", most as u64);
        }
        let members = self.list(most)?;
        let taken: Vec<Option<T>> = members.into_iter().map(take).collect();
        taken.into_iter().collect()
    }

    /// Returns the values of an object with at most `most` keys, which the client chooses, each converted by
    /// `take`. `None` if any of them is bad.
    pub(crate) fn map_of<T>(self, most: usize, take: impl Fn(String, Self) -> Option<T>) -> Option<Vec<T>> {
        if self.records("type", "object") {
            self.records_part("additionalProperties", |part| take(String::new(), part));
            return self.records_limit("maxProperties", most as u64);
        }
        let (path, problems) = (self.path.clone(), self.problems);
        let entries = self.entries()?;
        if entries.len() > most {
            problems.add(path, format!("has {} members, more than {most}", entries.len()));
            return None;
        }
        let taken: Vec<Option<T>> = entries.into_iter().map(|(name, field)| take(name, field)).collect();
        taken.into_iter().collect()
    }

    /// Returns the fields of an object.
    pub(crate) fn object(mut self) -> Option<Fields<'p>> {
        let description = self.draft.take().map(Description::new);
        if description.is_some() {
            let (path, left) = (self.path, Map::new());
            return Some(Fields { path, left, known: vec![], problems: self.problems, description });
        }
        let Value::Object(object) = &mut self.value else { return self.wrong_type("an object") };
        let left = std::mem::take(object);
        Some(Fields { path: self.path, left, known: vec![], problems: self.problems, description })
    }

    /// Returns the values of an object with keys that the client chooses.
    pub(crate) fn entries(self) -> Option<Vec<(String, Self)>> {
        let fields = self.object()?;
        let entries = fields.left.into_iter().map(|(name, value)| {
            let path = join(&fields.path, &name);
            (name, Field::new(value, path, fields.problems))
        });
        Some(entries.collect())
    }
}

/// The fields of an object, taken out one by one. Fields that are left at the end are unknown.
pub(crate) struct Fields<'p> {
    path: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    problems: &'p Problems,
    description: Option<Box<Description>>,
}

/// Returns the path of a field of an object.
fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<'p> Fields<'p> {
    /// Returns the path of a field.
    fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Returns the list that problems are added to.
    pub(crate) const fn problems(&self) -> &'p Problems {
        self.problems
    }

    /// Records a problem of a field.
    pub(crate) fn bad(&self, name: &str, problem: impl Into<String>) {
        self.problems.add(self.path_of(name), problem);
    }

    /// Takes a field out, if it is present. Null counts as absent.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Field<'p>> {
        self.known.push(name);
        let value = self.left.remove(name).filter(|value| !value.is_null())?;
        Some(Field::new(value, self.path_of(name), self.problems))
    }

    /// Takes a required field and converts it by `take`.
    pub(crate) fn required<T>(
        &mut self,
        name: &'static str,
        take: impl FnOnce(Field<'p>) -> Option<T>,
    ) -> Option<T> {
        if self.description.is_some() {
            return self.describe(name, true, take);
        }
        let field = self.take(name);
        if field.is_none() {
            self.bad(name, "is missing");
        }
        take(field?)
    }

    /// Takes an optional field with the default `otherwise`. Returns `None` if the field is present and bad.
    pub(crate) fn with_default<T>(
        &mut self,
        name: &'static str,
        otherwise: T,
        take: impl FnOnce(Field<'p>) -> Option<T>,
    ) -> Option<T> {
        if self.description.is_some() {
            return self.describe(name, false, take);
        }
        self.take(name).map_or(Some(otherwise), take)
    }

    /// Takes an optional field. Returns `None` if the field is present and bad.
    pub(crate) fn optional<T>(
        &mut self,
        name: &'static str,
        take: impl FnOnce(Field<'p>) -> Option<T>,
    ) -> Option<Option<T>> {
        self.with_default(name, None, |field| take(field).map(Some))
    }

    /// Records a problem for each field that is left.
    ///
    /// A field in `not_honoured` is known, but Muster does not support it. The problem of such a field
    /// contains the advice from that list. If the value of the field has no effect, there is no problem. The
    /// problem of an unknown field suggests the nearest known name.
    pub(crate) fn finish(mut self, not_honoured: &[(&str, &str)]) {
        self.describe_object();
        for (name, value) in &self.left {
            let refused = not_honoured.iter().find(|(known, _)| known == name);
            let problem = match (refused, nearest(name, &self.known)) {
                (Some(_), _) if has_no_effect(value) => continue,
                (Some((_, "")), _) => "is not supported yet".to_owned(),
                (Some((_, advice)), _) => format!("is not supported: {advice}"),
                (None, Some(near)) => format!("is unknown: did you mean {near}?"),
                (None, None) => "is unknown".to_owned(),
            };
            self.bad(name, problem);
        }
    }
}

/// Returns a number without a fraction as an integer, if a floating-point number can represent each integer up
/// to this size.
pub(crate) fn integral(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT;
    is_whole.then(|| format!("{:.0}", number + 0.0).parse().ok()).flatten()
}

/// Replaces each number without a fraction by an integer.
pub(crate) fn use_integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            *value = number.as_f64().and_then(integral).map_or_else(|| value.clone(), Value::from);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(list) => list.iter_mut().for_each(use_integers),
        Value::Object(object) => object.values_mut().for_each(use_integers),
    }
}

/// Returns `true` if a value has no effect, like an absent field.
fn has_no_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.values().all(has_no_effect),
    }
}

/// Returns the known name that `name` is probably a misspelling of. Two names match if they are equal except
/// for case and underscores, if one is a prefix of the other, or if they are a few edits apart.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
    };
    if name.len() > 40 {
        return None;
    }
    let name = plain(name);
    let distance = |known: &&&str| {
        let known = plain(known);
        let begins = name.len() >= 3 && (known.starts_with(&name) || name.starts_with(&known));
        if begins { usize::from(known != name) } else { edit_distance(&name, &known) }
    };
    let close = 1 + name.len() / 5;
    known.iter().min_by_key(distance).filter(|best| distance(best) <= close).copied()
}

/// Returns the edit distance of two words: the number of letters to insert, delete, replace, or swap with the
/// next letter.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for at in 0..=from.len() {
        for to_at in 0..=to.len() {
            rows[at][to_at] = if at == 0 || to_at == 0 {
                at + to_at
            } else {
                let replaced = rows[at - 1][to_at - 1] + usize::from(from[at - 1] != to[to_at - 1]);
                let swaps = at > 1 && to_at > 1;
                let swaps = swaps && from[at - 1] == to[to_at - 2] && from[at - 2] == to[to_at - 1];
                let swapped = if swaps { rows[at - 2][to_at - 2] + 1 } else { usize::MAX };
                replaced.min(swapped).min(rows[at - 1][to_at] + 1).min(rows[at][to_at - 1] + 1)
            };
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_name_suggests_nearest_known_name() {
        let known = ["memory_mb", "disk_mb", "domain", "instances", "process_guid", "action"];
        for (slip, meant) in [
            ("memory", Some("memory_mb")),
            ("memoryMb", Some("memory_mb")),
            ("memroy_mb", Some("memory_mb")),
            ("instance", Some("instances")),
            ("processGuid", Some("process_guid")),
            ("actoin", Some("action")),
            ("domian", Some("domain")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(slip, &known), meant, "{slip}");
        }
    }

    #[test]
    fn refusal_with_many_bad_fields_is_bounded() {
        let problems = Problems::default();
        for at in 0..10_000 {
            problems.add(format!("{}{at}", "x".repeat(1000)), "is unknown");
            problems.add(format!("f{at}"), "is unknown");
        }
        let refusal = problems.into_result(Some(())).unwrap_err();
        assert_eq!(refusal.fields.len(), MAX_PROBLEMS + 1);
        assert!(refusal.fields.iter().all(|bad| bad.field.len() <= MAX_QUOTED_BYTES));
        let last = |bad: usize| {
            let problems = Problems::default();
            (0..bad).for_each(|at| problems.add(format!("f{at}"), "is unknown"));
            let fields = problems.into_result(Some(())).unwrap_err().fields;
            (fields.len(), fields.last().map(|last| last.problem.clone()))
        };
        assert_eq!(last(MAX_PROBLEMS), (MAX_PROBLEMS, Some("is unknown".to_owned())));
        assert_eq!(last(MAX_PROBLEMS + 1), (MAX_PROBLEMS + 1, Some("and more".to_owned())));
    }
}
