//! JSON Schemas for external programs: one bundle of all schemas, and a self-contained schema for each name. The
//! bundle is a file of the repository. Tests compare this file with the Rust types.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fields::nearest;
use crate::refusal::{Code, Refusal};

/// Bundle of all schemas. `events` and `rows` refer to a schema for each name. `commands` and `queries` have a
/// description, and refer to the schemas of the request and the answer.
const BUNDLE: &str = include_str!("../golden/bundle.json");
/// JSON Schema dialect of every schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Prefix of a reference to a definition.
const DEFS: &str = "#/$defs/";

/// Kind of message that a schema describes.
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaKind {
    /// Entry of the journal, with all its possible content.
    Entry,
    /// Content of an event: the `data` of its `CloudEvent`.
    Event,
    /// Command in the form that is sent, with envelope and body.
    Command,
    /// Request of a query.
    Query,
    /// Row of an answer, or the answer to a query that has no rows.
    Row,
}

impl SchemaKind {
    /// Returns the kind as clients write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Summary of a published schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchemaRow {
    /// Name of the schema: `entry`, the type of an event such as `actual.claimed.v1`, or a command such as
    /// `lrp.desire`.
    pub name: String,
    /// Kind of message that the schema describes.
    pub kind: SchemaKind,
    /// Description of the message.
    pub description: String,
}

/// Query for the list of schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSchemas {}

/// Query for one schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowSchema {
    /// Name of the schema.
    pub name: String,
}

/// Published schemas by name.
#[derive(Clone, Debug)]
pub struct PublishedSchemas {
    bundle: Value,
    parts: BTreeMap<String, SchemaPart>,
}

/// Part of the bundle that is published under a name.
#[derive(Clone, Debug)]
struct SchemaPart {
    kind: SchemaKind,
    description: String,
    /// JSON Pointer of the schema in the bundle.
    path: String,
}

impl PublishedSchemas {
    /// Parses the built-in bundle.
    ///
    /// # Panics
    /// Never: a test parses the same bundle.
    #[must_use]
    pub fn new() -> Self {
        let bundle: Value = serde_json::from_str(BUNDLE).expect("the included bundle is JSON");
        let mut parts = BTreeMap::new();
        let mut add = |kind, name: &str, of: &Value, schema: &Value| {
            parts.extend(SchemaPart::new(&bundle, kind, of, schema).map(|part| (name.to_owned(), part)));
        };
        add(SchemaKind::Entry, "entry", &bundle["entry"], &bundle["entry"]);
        for (kind, index) in [(SchemaKind::Event, "events"), (SchemaKind::Row, "rows")] {
            members(&bundle[index]).for_each(|(name, schema)| add(kind, name, schema, schema));
        }
        for (kind, index) in [(SchemaKind::Command, "commands"), (SchemaKind::Query, "queries")] {
            members(&bundle[index]).for_each(|(name, of)| add(kind, name, of, &of["request"]));
        }
        Self { bundle, parts }
    }

    /// Returns a summary of every schema, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<SchemaRow> {
        let row = |(name, part): (&String, &SchemaPart)| SchemaRow {
            name: name.clone(),
            kind: part.kind,
            description: part.description.clone(),
        };
        self.parts.iter().map(row).collect()
    }

    /// Returns the self-contained schema with this name. It contains only the definitions that it needs.
    ///
    /// # Errors
    /// `ResourceNotFound` if no schema has this name. The message suggests a similar name.
    pub fn show(&self, name: &str) -> Result<Value, Refusal> {
        self.parts.get(name).map(|part| self.standalone(name, part)).ok_or_else(|| {
            let names: Vec<&str> = self.parts.keys().map(String::as_str).collect();
            let near = nearest(name, &names).map_or_else(
                || "schema.list returns all names".to_owned(),
                |near| format!("did you mean {near}?"),
            );
            let name = crate::limits::truncate(name, 100);
            Refusal::new(Code::ResourceNotFound, format!("schema {name} does not exist: {near}"))
        })
    }

    fn standalone(&self, name: &str, part: &SchemaPart) -> Value {
        let (schema, defs) = (self.bundle.pointer(&part.path).unwrap_or(&Value::Null), &self.bundle["$defs"]);
        let mut needed = BTreeSet::new();
        collect_definitions(schema, defs, &mut needed);
        let needed = needed.into_iter().map(|name| (name.to_owned(), defs[name].clone()));
        let mut whole: Map<String, Value> =
            members(schema).map(|(key, value)| (key.clone(), value.clone())).collect();
        whole.insert("$schema".into(), DIALECT.into());
        whole.insert("title".into(), name.into());
        whole.insert("description".into(), part.description.as_str().into());
        whole.insert("$defs".into(), needed.collect());
        Value::Object(whole)
    }
}

impl Default for PublishedSchemas {
    fn default() -> Self {
        Self::new()
    }
}

impl SchemaPart {
    /// Creates the part that `schema` refers to. The description is that of `of`, or else that of the part.
    fn new(bundle: &Value, kind: SchemaKind, of: &Value, schema: &Value) -> Option<Self> {
        let path = schema["$ref"].as_str()?.strip_prefix('#')?;
        let description =
            of["description"].as_str().or_else(|| bundle.pointer(path)?["description"].as_str())?;
        Some(Self { kind, description: description.to_owned(), path: path.to_owned() })
    }
}

/// Returns the members of an object.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Adds the definitions that a schema refers to, directly or indirectly.
fn collect_definitions<'a>(schema: &'a Value, defs: &'a Value, needed: &mut BTreeSet<&'a str>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|target| target.strip_prefix(DEFS))
        && needed.insert(name)
    {
        collect_definitions(&defs[name], defs, needed);
    }
    match schema {
        Value::Object(inner) => inner.values().for_each(|inner| collect_definitions(inner, defs, needed)),
        Value::Array(inner) => inner.iter().for_each(|inner| collect_definitions(inner, defs, needed)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored;
    use crate::verb::{ClientVerb, OperatorVerb, QueryVerb};

    #[test]
    fn every_event_command_and_query_has_a_schema() {
        let list = PublishedSchemas::new().list();
        let named = |kind| list.iter().filter(move |row| row.kind == kind).map(|row| &row.name);
        let events: BTreeSet<String> = stored::Event::types().map(ToString::to_string).collect();
        assert_eq!(named(SchemaKind::Event).cloned().collect::<BTreeSet<_>>(), events);
        let of_clients = ClientVerb::ALL.iter().map(|verb| verb.noun_and_verb());
        let verbs = of_clients.chain(OperatorVerb::ALL.iter().map(|verb| verb.noun_and_verb()));
        let commands: BTreeSet<String> = verbs.map(|(noun, verb)| format!("{noun}.{verb}")).collect();
        assert_eq!(named(SchemaKind::Command).cloned().collect::<BTreeSet<_>>(), commands);
        // Only reps and BBSs send `cell.records`.
        let verbs = QueryVerb::ALL.iter().filter(|verb| **verb != QueryVerb::CellRecords);
        let queries: BTreeSet<String> =
            verbs.map(|verb| verb.noun_and_verb()).map(|(noun, verb)| format!("{noun}.{verb}")).collect();
        assert_eq!(named(SchemaKind::Query).cloned().collect::<BTreeSet<_>>(), queries);
        assert_eq!(named(SchemaKind::Entry).collect::<Vec<_>>(), ["entry"]);
        assert!(named(SchemaKind::Row).any(|name| name == "LrpRow"));
        let kinds =
            [SchemaKind::Entry, SchemaKind::Event, SchemaKind::Command, SchemaKind::Query, SchemaKind::Row];
        assert_eq!(kinds.map(|kind| named(kind).count()).iter().sum::<usize>(), list.len());
        // Descriptions of rows end with subjects.
        assert!(list.iter().all(|row| row.description.ends_with(['.', '`'])), "{list:#?}");
    }

    #[test]
    fn unknown_schema_error_suggests_a_similar_name() {
        let refusal = PublishedSchemas::new().show("actual.claimed").unwrap_err();
        assert_eq!(refusal.code, Code::ResourceNotFound);
        assert!(refusal.message.contains("did you mean actual.claimed.v1?"), "{refusal}");
    }
}
