//! JSON Schemas of specs. A parser also describes what it accepts: for a description it is given fields without
//! values, and each method of [`Field`] and [`Fields`] records what it would have parsed. So a field of a spec
//! has one definition.
//!
//! A parser that describes gets `None` for each value, so it must take every field before it uses a value.
//! Texts come from the types that are parsed: the fields of a spec have the names and the documentation of the
//! fields of these types. [`Fields::document`] describes the others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{Field, Fields, Problems};

/// A schema that is being written.
pub(super) type Draft = Rc<RefCell<Map<String, Value>>>;

/// Calls a parser in order to describe what it parses. Returns the schema, usually a reference to a definition
/// of the generator.
pub(crate) fn describe<T>(
    take: impl FnOnce(Field<'_>) -> Option<T>,
    generator: &mut SchemaGenerator,
) -> Map<String, Value> {
    let problems =
        Problems { generator: Some(RefCell::new(std::mem::take(generator))), ..Problems::default() };
    let schema = part_schema(&problems, take);
    if let Some(used) = problems.generator {
        *generator = used.into_inner();
    }
    schema
}

/// Returns the schema of what a parser parses.
fn part_schema<'p, T>(
    problems: &'p Problems,
    take: impl FnOnce(Field<'p>) -> Option<T>,
) -> Map<String, Value> {
    let draft = Draft::default();
    take(Field { draft: Some(draft.clone()), ..Field::new(Value::Null, String::new(), problems) });
    draft.take()
}

/// Allows null, which counts as absent.
fn or_null(mut schema: Map<String, Value>) -> Map<String, Value> {
    let has_words = schema.contains_key("enum");
    if schema.is_empty() {
        return schema;
    }
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) => kinds.push("null".into()),
        Some(kind) if !has_words => *kind = json!([kind.take(), "null"]),
        Some(_) | None => return Map::from_iter([("anyOf".to_owned(), json!([schema, {"type": "null"}]))]),
    }
    schema
}

impl Problems {
    /// Runs a function on the generator of the definitions.
    fn generate<T>(&self, run: impl FnOnce(&mut SchemaGenerator) -> T) -> Option<T> {
        self.generator.as_ref().map(|generator| run(&mut generator.borrow_mut()))
    }

    fn define(&self, name: &'static str, text: &str, mut schema: Value) {
        schema["description"] = text.into();
        self.generate(|generator| generator.definitions_mut().insert(name.into(), schema));
    }
}

impl<'p> Field<'p> {
    /// Returns `true` for a description, after it recorded a keyword of the schema.
    pub(crate) fn records(&self, keyword: &str, value: impl Into<Value>) -> bool {
        let Some(draft) = &self.draft else { return false };
        draft.borrow_mut().insert(keyword.to_owned(), value.into());
        true
    }

    /// Returns `true` for a description, after it recorded the schema of a type.
    pub(crate) fn records_type<T: JsonSchema>(&self) -> bool {
        let Some(draft) = &self.draft else { return false };
        let schema = self.problems.generate(|generator| generator.subschema_for::<T>().to_value());
        *draft.borrow_mut() = schema.and_then(|schema| schema.as_object().cloned()).unwrap_or_default();
        true
    }

    /// Records an upper limit, unless it is the greatest number.
    pub(super) fn records_limit<T>(&self, keyword: &str, most: u64) -> Option<T> {
        if most != u64::MAX {
            self.records(keyword, most);
        }
        None
    }

    /// Returns `true` for a description, after it recorded a keyword whose schema is that of a part.
    pub(super) fn records_part<T>(&self, keyword: &str, take: impl FnOnce(Self) -> Option<T>) -> bool {
        self.draft.is_some() && self.records(keyword, part_schema(self.problems, take))
    }

    /// Parses a value that has one of two forms. `is_first` tells whether it has the first form.
    pub(crate) fn either<T>(
        self,
        is_first: impl FnOnce(&Value) -> bool,
        first: impl FnOnce(Self) -> Option<T>,
        second: impl FnOnce(Self) -> Option<T>,
    ) -> Option<T> {
        if self.draft.is_some() {
            self.records(
                "anyOf",
                json!([part_schema(self.problems, first), part_schema(self.problems, second)]),
            );
            return None;
        }
        if is_first(&self.value) { first(self) } else { second(self) }
    }

    /// Parses a value whose schema is a definition of its own.
    pub(crate) fn defined<T>(
        self,
        name: &'static str,
        text: &str,
        take: impl FnOnce(Self) -> Option<T>,
    ) -> Option<T> {
        if self.draft.is_none() {
            return take(self);
        }
        if self.refers_to(name) {
            let schema = part_schema(self.problems, take);
            self.problems.define(name, text, schema.into());
        }
        None
    }

    /// Returns `true` for a description, after it recorded an object with exactly one of several fields. The
    /// schema is a definition of its own. The texts of the definition and its fields are those of an enum.
    pub(crate) fn records_variants<D: JsonSchema, T>(
        &self,
        name: &'static str,
        kinds: &[&'static str],
        mut take: impl FnMut(&'static str, Self) -> Option<T>,
    ) -> bool {
        if self.draft.is_none() {
            return false;
        }
        if self.refers_to(name) {
            let schema = schema_of::<D>();
            let texts = texts_of(&schema);
            let mut variant = |kind: &&'static str| {
                let mut of_kind = part_schema(self.problems, |body| take(kind, body));
                of_kind.insert("description".into(), texts[*kind].as_str().into());
                let properties = Map::from_iter([((*kind).to_owned(), of_kind.into())]);
                json!({
                    "type": "object", "properties": properties, "required": [kind], "additionalProperties": false,
                })
            };
            let variants: Vec<Value> = kinds.iter().map(&mut variant).collect();
            self.problems.define(name, &text_of(&schema), json!({"oneOf": variants}));
        }
        true
    }

    /// Refers to a definition. Returns `true` if it is not described yet.
    fn refers_to(&self, name: &'static str) -> bool {
        self.records("$ref", format!("#/$defs/{name}"));
        let add = |generator: &mut SchemaGenerator| {
            let definitions = generator.definitions_mut();
            let is_new = !definitions.contains_key(name);
            if is_new {
                definitions.insert(name.into(), json!({}));
            }
            is_new
        };
        self.problems.generate(add) == Some(true)
    }

    /// Returns the fields of an object whose schema is a definition of its own. The texts of the definition
    /// and its fields are those of a type.
    pub(crate) fn object_of<D: JsonSchema>(self, name: &'static str) -> Option<Fields<'p>> {
        let text = if self.draft.is_some() { text_of(&schema_of::<D>()) } else { String::new() };
        let mut fields = self.object_named(name, &text)?;
        fields.document_by::<D>();
        Some(fields)
    }

    /// Returns the fields of an object whose schema is a definition of its own, with a text.
    pub(crate) fn object_named(self, name: &'static str, text: &str) -> Option<Fields<'p>> {
        if self.draft.is_none() {
            return self.object();
        }
        if !self.refers_to(name) {
            return None;
        }
        let part =
            Self { draft: Some(Draft::default()), ..Field::new(Value::Null, String::new(), self.problems) };
        let mut fields = part.object()?;
        if let Some(description) = &mut fields.description {
            description.definition = Some((name, text.to_owned()));
        }
        Some(fields)
    }
}

/// The description of the fields of an object.
#[derive(Default)]
pub(super) struct Description {
    /// Schema of the object.
    draft: Draft,
    /// Name and text of the definition, for an object with a definition of its own.
    definition: Option<(&'static str, String)>,
    /// Texts by the name of the field.
    texts: BTreeMap<String, String>,
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl Description {
    pub(super) fn new(draft: Draft) -> Box<Self> {
        Box::new(Self { draft, ..Self::default() })
    }
}

impl<'p> Fields<'p> {
    /// Gives the fields the texts of the equally named fields or variants of a type.
    pub(crate) fn document_by<D: JsonSchema>(&mut self) {
        let Some(description) = &mut self.description else { return };
        for (name, text) in texts_of(&schema_of::<D>()) {
            description.texts.entry(name).or_insert(text);
        }
    }

    /// Gives a field a text. The first text of a field applies.
    pub(crate) fn document(&mut self, name: &str, text: &str) {
        if let Some(description) = &mut self.description {
            description.texts.entry(name.to_owned()).or_insert_with(|| text.to_owned());
        }
    }

    /// Leaves a field out of the description, because it is always refused.
    pub(crate) fn leave_out(&mut self, name: &str) {
        if let Some(description) = &mut self.description {
            description.properties.remove(name);
        }
    }

    /// Describes a field by its parser.
    pub(super) fn describe<T>(
        &mut self,
        name: &'static str,
        is_required: bool,
        take: impl FnOnce(Field<'p>) -> Option<T>,
    ) -> Option<T> {
        let mut schema = part_schema(self.problems, take);
        let description = self.description.as_mut()?;
        if is_required {
            description.required.push(name);
        } else {
            schema = or_null(schema);
        }
        let text = description.texts.get(name).cloned().unwrap_or_default();
        schema.insert("description".into(), text.into());
        description.properties.insert(name.to_owned(), schema.into());
        None
    }

    /// Records the schema of the object.
    pub(super) fn describe_object(&mut self) {
        let Some(description) = self.description.take() else { return };
        let Description { draft, definition, properties, required, .. } = *description;
        let mut schema = draft.borrow_mut();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        schema.insert("additionalProperties".into(), false.into());
        if let Some((name, text)) = definition {
            self.problems.define(name, &text, schema.clone().into());
        }
    }
}

/// Returns the schema of a type, with its definitions.
fn schema_of<D: JsonSchema>() -> Value {
    SchemaGenerator::default().into_root_schema_for::<D>().to_value()
}

/// Returns the texts of the fields of a struct, or of the variants of an enum.
fn texts_of(schema: &Value) -> BTreeMap<String, String> {
    let properties = |schema: &Value| schema["properties"].as_object().cloned().unwrap_or_default();
    let fields = properties(schema).into_iter().map(|(name, schema)| (name, text_of(&schema)));
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let variants = variants
        .flat_map(|variant| properties(variant).into_iter().map(|(name, _)| (name, text_of(variant))));
    fields.chain(variants).collect()
}

fn text_of(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}
