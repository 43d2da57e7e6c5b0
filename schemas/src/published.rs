//! JSON Schemas for external programs: a self-contained schema for each event and each command. The schemas
//! come from the schema files in the repository. Tests compare these files with the Rust types.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fields::nearest;
use crate::refusal::{Code, Refusal};

/// Schemas of journal entries, `golden/schema.json`.
const ENTRIES: &str = include_str!("../golden/schema.json");
/// Schemas of commands, `golden/commands.json`.
const COMMANDS: &str = include_str!("../golden/commands.json");
/// JSON Schema dialect of every schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Prefix of a reference to a definition.
const DEFS: &str = "#/$defs/";

/// Kind of message that a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaKind {
    /// Entry of the journal, with all its possible content.
    Entry,
    /// Content of an event: the `data` of its `CloudEvent`.
    Event,
    /// Command in the form that is sent, with envelope and body.
    Command,
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
pub struct PublishedSchemas(BTreeMap<String, (SchemaKind, Value)>);

impl PublishedSchemas {
    /// Parses the built-in schemas.
    ///
    /// # Panics
    /// Never: a test parses the same schemas.
    #[must_use]
    pub fn new() -> Self {
        let read = |text| serde_json::from_str::<Value>(text).expect("the included schema is JSON");
        let (entries, asked) = (read(ENTRIES), read(COMMANDS));
        let mut all = BTreeMap::new();
        let defs = &entries["$defs"];
        all.extend(
            events(&entries).map(|cut| (cut.name.clone(), (SchemaKind::Event, standalone(&cut, defs)))),
        );
        let defs = &asked["$defs"];
        all.extend(
            commands(&asked).map(|cut| (cut.name.clone(), (SchemaKind::Command, standalone(&cut, defs)))),
        );
        all.insert("entry".to_owned(), (SchemaKind::Entry, entries));
        Self(all)
    }

    /// Returns a summary of every schema, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<SchemaRow> {
        let row = |(name, (kind, schema)): (&String, &(SchemaKind, Value))| SchemaRow {
            name: name.clone(),
            kind: *kind,
            description: schema["description"].as_str().unwrap_or_default().to_owned(),
        };
        self.0.iter().map(row).collect()
    }

    /// Returns the schema with this name.
    ///
    /// # Errors
    /// `ResourceNotFound` if no schema has this name. The message suggests a similar name.
    pub fn show(&self, name: &str) -> Result<&Value, Refusal> {
        self.0.get(name).map(|(_, schema)| schema).ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let near = nearest(name, &names).map_or_else(
                || {
                    "schema.list returns \
                                 all names"
                        .to_owned()
                },
                |near| format!("did you mean {near}?"),
            );
            let name = crate::limits::truncate(name, 100);
            Refusal::new(Code::ResourceNotFound, format!("schema {name} does not exist: {near}"))
        })
    }
}

impl Default for PublishedSchemas {
    fn default() -> Self {
        Self::new()
    }
}

/// Part of a schema that is published as a separate schema.
struct SchemaPart<'a> {
    name: String,
    meaning: &'a Value,
    schema: &'a Value,
}

/// Returns the schema of every event, named by the event's type.
fn events(entries: &Value) -> impl Iterator<Item = SchemaPart<'_>> {
    let defs = &entries["$defs"];
    variants(&defs["Event"]).flat_map(move |(machine, _, events)| {
        let cut = move |(event, meaning, schema)| SchemaPart {
            name: format!("{machine}.{event}"),
            meaning,
            schema,
        };
        variants(definition(events).map_or(&Value::Null, |name| &defs[name])).map(cut)
    })
}

/// Returns the schema of every command, named by noun and verb.
fn commands(all: &Value) -> impl Iterator<Item = SchemaPart<'_>> {
    let (defs, commands) = (&all["$defs"], all["commands"].as_object());
    commands.into_iter().flatten().map(move |(name, command)| {
        let schema = &command["request"];
        let body = definition(&schema["properties"]["body"]);
        let meaning = body.map_or(&Value::Null, |body| &defs[body]["description"]);
        SchemaPart { name: name.clone(), meaning, schema }
    })
}

/// Returns the variants of an enum, each with its name, its description and its content.
fn variants(of: &Value) -> impl Iterator<Item = (&String, &Value, &Value)> {
    of["oneOf"].as_array().into_iter().flatten().filter_map(|one| {
        let (name, holds) = one["properties"].as_object()?.iter().next()?;
        Some((name, &one["description"], holds))
    })
}

/// Returns the name of the definition that a schema refers to.
fn definition(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(DEFS)
}

/// Returns a self-contained schema, which includes every definition that the schema needs.
fn standalone(cut: &SchemaPart<'_>, defs: &Value) -> Value {
    let mut needed = BTreeSet::new();
    collect_definitions(cut.schema, defs, &mut needed);
    let needed = needed.into_iter().map(|name| (name.to_owned(), defs[name].clone()));
    let mut whole = Map::new();
    whole.insert("$schema".into(), DIALECT.into());
    whole.insert("title".into(), cut.name.as_str().into());
    whole.insert("description".into(), cut.meaning.clone());
    whole.extend(
        cut.schema.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())),
    );
    whole.insert("$defs".into(), needed.collect());
    Value::Object(whole)
}

/// Adds the definitions that a schema refers to, directly or indirectly.
fn collect_definitions<'a>(schema: &'a Value, defs: &'a Value, needed: &mut BTreeSet<&'a str>) {
    if let Some(name) = definition(schema)
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
    use crate::verb::{ClientVerb, OperatorVerb};

    #[test]
    fn every_event_and_every_command_has_a_schema() {
        let list = PublishedSchemas::new().list();
        let named = |kind| list.iter().filter(move |row| row.kind == kind).map(|row| &row.name);
        let events: BTreeSet<String> = stored::Event::TYPES.iter().map(ToString::to_string).collect();
        assert_eq!(named(SchemaKind::Event).cloned().collect::<BTreeSet<_>>(), events);
        let of_clients = ClientVerb::ALL.map(ClientVerb::noun_and_verb).into_iter();
        let verbs = of_clients.chain(OperatorVerb::ALL.map(OperatorVerb::noun_and_verb));
        let commands: BTreeSet<String> = verbs.map(|(noun, verb)| format!("{noun}.{verb}")).collect();
        assert_eq!(named(SchemaKind::Command).cloned().collect::<BTreeSet<_>>(), commands);
        assert_eq!(named(SchemaKind::Entry).collect::<Vec<_>>(), ["entry"]);
        assert!(list.iter().all(|row| row.description.ends_with('.')), "{list:#?}");
    }

    #[test]
    fn unknown_schema_error_suggests_a_similar_name() {
        let refusal = PublishedSchemas::new().show("actual.claimed").unwrap_err();
        assert_eq!(refusal.code, Code::ResourceNotFound);
        assert!(refusal.message.contains("did you mean actual.claimed.v1?"), "{refusal}");
    }
}
