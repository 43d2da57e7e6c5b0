//! Tests that `docs/clients.md` covers every command, query, field, code and limit. Its tables, and the JSON
//! Schemas of commands and queries, are generated from the types.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p schemas documented` generates the tables and the schemas again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, SchemaGenerator};
use schemas::bus::{ClientVerb, OperatorVerb, QueryVerb};
use schemas::exec::{Talk, Talked};
use schemas::health::ContainerHealth;
use schemas::message::{Done, Envelope, Reshard, SetAside, SwitchPreemption};
use schemas::names::{DefinitionId, Domain, EvaluationId, ProcessGuid};
use schemas::process::{Purpose, Steer};
use schemas::published::{ListSchemas, SchemaRow, ShowSchema};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, DomainUseRow, EndedInstanceRow, EndedTaskRow, EvaluationRow, EventsPage,
    Files, Filter, InstanceRow, Logs, LrpRow, ParameterisedRow, PeriodicRow, ReadEvents, ReadFiles, ReadLogs,
    Show, StatusRow, TaskRow,
};
use schemas::quota::{self, LimitDomain, Quota};
use schemas::refusal::{Class, Code};
use schemas::spec::{self, ClientCommand, client_command};
use schemas::{Refusal, limits};
use serde_json::{Map, Value, json};

use crate::golden::{WRITE, dispatch, exec, folder, job, lrp, may_write, parameterised, periodic};
use crate::shapes::{
    CellEvacuate, DomainUpsert, Environment, InstanceExec, LrpActivate, LrpDesire, LrpRemove, LrpRestart,
    LrpRetire, LrpRetry, LrpSteer, LrpUpdate, ParameterisedDesire, ParameterisedDispatch,
    ParameterisedRemove, ParameterisedWithdraw, PeriodicAsk, PeriodicDesire, TaskCancel, TaskDesire,
    TaskResolve, TaskRetry,
};

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/clients.md")
}

/// A collection of schema definitions by type name.
struct Schemas {
    generator: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        Self { generator: SchemaGenerator::default() }
    }

    fn of<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().to_value()
    }

    fn definitions(mut self) -> Map<String, Value> {
        let environment = self.of::<Option<Environment>>();
        let mut definitions = self.generator.take_definitions(true);
        // The variables of a program are a list or an object, like in a spec.
        if let Some(env) = definitions.get_mut("Run").and_then(|run| run.pointer_mut("/properties/env")) {
            let meaning = env["description"].clone();
            *env = environment;
            env["description"] = meaning;
        }
        definitions
    }
}

/// Returns every command with the schema of its body.
fn bodies(schemas: &mut Schemas) -> Vec<(String, Value)> {
    let of_client = ClientVerb::ALL.map(|verb| {
        let body = match verb {
            ClientVerb::LrpDesire => schemas.of::<LrpDesire>(),
            ClientVerb::LrpUpdate => schemas.of::<LrpUpdate>(),
            ClientVerb::LrpActivate => schemas.of::<LrpActivate>(),
            ClientVerb::LrpRestart => schemas.of::<LrpRestart>(),
            ClientVerb::LrpPause | ClientVerb::LrpResume | ClientVerb::LrpRollback => {
                schemas.of::<LrpSteer>()
            }
            ClientVerb::LrpRemove => schemas.of::<LrpRemove>(),
            ClientVerb::LrpRetire => schemas.of::<LrpRetire>(),
            ClientVerb::InstanceExec => schemas.of::<InstanceExec>(),
            ClientVerb::LrpRetry => schemas.of::<LrpRetry>(),
            ClientVerb::TaskDesire => schemas.of::<TaskDesire>(),
            ClientVerb::TaskCancel => schemas.of::<TaskCancel>(),
            ClientVerb::TaskResolve => schemas.of::<TaskResolve>(),
            ClientVerb::TaskRetry => schemas.of::<TaskRetry>(),
            ClientVerb::PeriodicDesire | ClientVerb::PeriodicUpdate => schemas.of::<PeriodicDesire>(),
            ClientVerb::PeriodicPause
            | ClientVerb::PeriodicResume
            | ClientVerb::PeriodicLaunch
            | ClientVerb::PeriodicRemove => schemas.of::<PeriodicAsk>(),
            ClientVerb::ParameterisedDesire | ClientVerb::ParameterisedUpdate => {
                schemas.of::<ParameterisedDesire>()
            }
            ClientVerb::ParameterisedDispatch => schemas.of::<ParameterisedDispatch>(),
            ClientVerb::ParameterisedWithdraw => schemas.of::<ParameterisedWithdraw>(),
            ClientVerb::ParameterisedRemove => schemas.of::<ParameterisedRemove>(),
            ClientVerb::DomainUpsert => schemas.of::<DomainUpsert>(),
        };
        (name(verb.noun_and_verb()), body)
    });
    let of_operator = OperatorVerb::ALL.map(|verb| {
        let body = match verb {
            OperatorVerb::CellEvacuate
            | OperatorVerb::CellCordon
            | OperatorVerb::CellUncordon
            | OperatorVerb::CellForget
            | OperatorVerb::CellAcceptLog => schemas.of::<CellEvacuate>(),
            OperatorVerb::ClusterPreemption => schemas.of::<SwitchPreemption>(),
            OperatorVerb::ClusterShards => schemas.of::<Reshard>(),
            OperatorVerb::DomainLimit => schemas.of::<LimitDomain>(),
            OperatorVerb::JournalSetAside => schemas.of::<SetAside>(),
        };
        (name(verb.noun_and_verb()), body)
    });
    of_client.into_iter().chain(of_operator).collect()
}

/// Returns every query for clients with the schemas of its request and its answer.
fn questions(schemas: &mut Schemas) -> Vec<(String, Value, Value)> {
    let mut all = vec![];
    for verb in QueryVerb::ALL {
        let (asked, answered) = match verb {
            QueryVerb::LrpList => (schemas.of::<Filter>(), page_of(schemas.of::<LrpRow>())),
            QueryVerb::LrpShow => (schemas.of::<Show>(), one_of(schemas.of::<LrpRow>())),
            QueryVerb::InstanceList => (schemas.of::<Filter>(), page_of(schemas.of::<InstanceRow>())),
            QueryVerb::InstanceShow => (schemas.of::<Show>(), one_of(list_of(&schemas.of::<InstanceRow>()))),
            QueryVerb::InstanceEnded => (schemas.of::<Filter>(), page_of(schemas.of::<EndedInstanceRow>())),
            QueryVerb::TaskEnded => (schemas.of::<Filter>(), page_of(schemas.of::<EndedTaskRow>())),
            QueryVerb::InstanceLogs | QueryVerb::TaskLogs => (schemas.of::<ReadLogs>(), schemas.of::<Logs>()),
            QueryVerb::InstanceFiles => (schemas.of::<ReadFiles>(), schemas.of::<Files>()),
            QueryVerb::InstanceHealth => (schemas.of::<Show>(), list_of(&schemas.of::<ContainerHealth>())),
            QueryVerb::TaskList => (schemas.of::<Filter>(), page_of(schemas.of::<TaskRow>())),
            QueryVerb::TaskShow => (schemas.of::<Show>(), one_of(schemas.of::<TaskRow>())),
            QueryVerb::PeriodicList => (schemas.of::<Filter>(), page_of(schemas.of::<PeriodicRow>())),
            QueryVerb::PeriodicShow => (schemas.of::<Show>(), one_of(schemas.of::<PeriodicRow>())),
            QueryVerb::ParameterisedList => {
                (schemas.of::<Filter>(), page_of(schemas.of::<ParameterisedRow>()))
            }
            QueryVerb::ParameterisedShow => (schemas.of::<Show>(), one_of(schemas.of::<ParameterisedRow>())),
            QueryVerb::DomainList => (schemas.of::<Filter>(), page_of(schemas.of::<DomainRow>())),
            QueryVerb::DomainShow => (schemas.of::<Show>(), one_of(schemas.of::<DomainUseRow>())),
            QueryVerb::CellList => (schemas.of::<Filter>(), page_of(schemas.of::<CellRow>())),
            QueryVerb::CellShow => (schemas.of::<Show>(), one_of(schemas.of::<CellRow>())),
            QueryVerb::EvaluationList => (schemas.of::<Filter>(), page_of(schemas.of::<EvaluationRow>())),
            QueryVerb::EvaluationShow => (schemas.of::<Show>(), one_of(schemas.of::<EvaluationRow>())),
            QueryVerb::ClusterShow => (schemas.of::<Filter>(), one_of(schemas.of::<ClusterRow>())),
            QueryVerb::ClusterStatus => (schemas.of::<Filter>(), one_of(schemas.of::<StatusRow>())),
            QueryVerb::EventsRead => (schemas.of::<ReadEvents>(), schemas.of::<EventsPage>()),
            QueryVerb::SchemaList => (schemas.of::<ListSchemas>(), list_of(&schemas.of::<SchemaRow>())),
            QueryVerb::SchemaShow => (schemas.of::<ShowSchema>(), json!({"type": "object"})),
            // Used between reps and BBSs only.
            QueryVerb::CellRecords => continue,
        };
        all.push((name(verb.noun_and_verb()), asked, answered));
    }
    all
}

fn name((noun, verb): (&str, &str)) -> String {
    format!("{noun}.{verb}")
}

fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    json!({"type": "object", "properties": properties, "required": required})
}

#[expect(clippy::needless_pass_by_value, reason = "it becomes a part of another")]
fn page_of(row: Value) -> Value {
    let next = json!({"type": ["string", "null"]});
    object(&json!({"position": {"type": "integer"}, "rows": list_of(&row), "next": next}))
}

#[expect(clippy::needless_pass_by_value, reason = "it becomes a part of another")]
fn one_of(row: Value) -> Value {
    object(&json!({"position": {"type": "integer"}, "row": row}))
}

fn list_of(row: &Value) -> Value {
    json!({"type": "array", "items": row})
}

fn answer(schemas: &mut Schemas, ok: &Value) -> Value {
    let refusal = schemas.of::<Refusal>();
    json!({"oneOf": [object(&json!({"ok": ok})), object(&json!({"refused": refusal}))]})
}

fn commands_schema() -> Value {
    let mut schemas = Schemas::new();
    let (envelope, done) = (schemas.of::<Envelope>(), schemas.of::<Done>());
    let mut commands = Map::new();
    for (name, body) in bodies(&mut schemas) {
        let properties = json!({"envelope": {"anyOf": [envelope, {"type": "null"}]}, "body": body});
        let request = json!({"type": "object", "properties": properties, "required": ["body"],
            "additionalProperties": false});
        commands.insert(name, json!({"request": request, "answer": answer(&mut schemas, &done)}));
    }
    schema_of("Commands", "commands", commands, schemas)
}

fn queries_schema() -> Value {
    let mut schemas = Schemas::new();
    let mut queries = Map::new();
    for (name, asked, answered) in questions(&mut schemas) {
        queries.insert(name, json!({"request": asked, "answer": answer(&mut schemas, &answered)}));
    }
    schema_of("Queries", "queries", queries, schemas)
}

fn schema_of(title: &str, list: &str, by_name: Map<String, Value>, schemas: Schemas) -> Value {
    json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, list: by_name,
        "$defs": schemas.definitions()})
}

#[test]
fn schemas_of_commands_and_queries_match_golden_files() {
    for (file, schema) in [("commands.json", commands_schema()), ("queries.json", queries_schema())] {
        let path = folder().join(file);
        if may_write() {
            fs::write(&path, format!("{schema:#}\n")).unwrap();
        }
        let known = fs::read_to_string(&path).unwrap_or_default();
        let known: Value = serde_json::from_str(&known).unwrap_or_default();
        assert!(
            known == schema,
            "golden/{file} is not what the types say: {WRITE}=1 cargo test -p schemas documented"
        );
    }
}

/// Returns a validator for the messages of one command.
fn validator(command: &str) -> jsonschema::Validator {
    let mut schema = commands_schema();
    let request = schema["commands"][command]["request"].take();
    jsonschema::validator_for(&json!({"allOf": [request], "$defs": schema["$defs"]})).unwrap()
}

fn exec_command(process_guid: ProcessGuid, definition_id: DefinitionId) -> ClientCommand {
    ClientCommand::InstanceExec { process_guid, index: 1, definition_id: Some(definition_id), exec: exec() }
}

/// Returns one command of each kind, with every field set.
fn every_command() -> Vec<ClientCommand> {
    let (lrp, job) = (lrp(), job());
    let (process_guid, task_guid) = (lrp.process_guid.clone(), job.task_guid.clone());
    let update = schemas::definition::DesiredLrpUpdate {
        instances: Some(2),
        priority: Some(lrp.priority),
        routes: Some(lrp.routes.clone()),
        annotation: Some("mine".into()),
        policies: Some(lrp.policies.clone()),
    };
    let steer = |steer| ClientCommand::LrpSteer { process_guid: process_guid.clone(), steer };
    ClientVerb::ALL
        .map(|verb| match verb {
            ClientVerb::LrpDesire => ClientCommand::LrpDesire(Box::new(lrp.clone())),
            ClientVerb::LrpUpdate => {
                let definition = Some((lrp.definition_id.clone(), lrp.definition.clone()));
                let update = update.clone();
                ClientCommand::LrpUpdate { process_guid: process_guid.clone(), update, definition }
            }
            ClientVerb::LrpActivate => {
                let definition_id = lrp.definition_id.clone();
                ClientCommand::LrpActivate { process_guid: process_guid.clone(), definition_id }
            }
            ClientVerb::LrpRestart => {
                let purpose = Purpose::Rebalance;
                ClientCommand::LrpRestart { process_guid: process_guid.clone(), purpose }
            }
            ClientVerb::LrpPause => steer(Steer::Pause),
            ClientVerb::LrpResume => steer(Steer::Resume),
            ClientVerb::LrpRollback => steer(Steer::RollBack),
            ClientVerb::LrpRemove => ClientCommand::LrpRemove { process_guid: process_guid.clone() },
            ClientVerb::LrpRetire => {
                let definition_id = Some(lrp.definition_id.clone());
                ClientCommand::LrpRetire { process_guid: process_guid.clone(), index: 1, definition_id }
            }
            ClientVerb::InstanceExec => exec_command(process_guid.clone(), lrp.definition_id.clone()),
            ClientVerb::LrpRetry => {
                ClientCommand::LrpRetry { process_guid: process_guid.clone(), evaluation: evaluation() }
            }
            ClientVerb::TaskRetry => {
                ClientCommand::TaskRetry { task_guid: task_guid.clone(), evaluation: evaluation() }
            }
            ClientVerb::TaskDesire => ClientCommand::TaskDesire(Box::new(job.clone())),
            ClientVerb::TaskCancel => ClientCommand::TaskCancel { task_guid: task_guid.clone() },
            ClientVerb::TaskResolve => ClientCommand::TaskResolve { task_guid: task_guid.clone() },
            ClientVerb::PeriodicDesire => ClientCommand::PeriodicDesire(Box::new(periodic())),
            ClientVerb::PeriodicUpdate => ClientCommand::PeriodicUpdate(Box::new(periodic())),
            ClientVerb::PeriodicPause => of_periodic(spec::PeriodicAsk::Pause),
            ClientVerb::PeriodicResume => of_periodic(spec::PeriodicAsk::Resume),
            ClientVerb::PeriodicLaunch => of_periodic(spec::PeriodicAsk::Launch),
            ClientVerb::PeriodicRemove => of_periodic(spec::PeriodicAsk::Remove),
            ClientVerb::ParameterisedDesire => ClientCommand::ParameterisedDesire(Box::new(parameterised())),
            ClientVerb::ParameterisedUpdate => ClientCommand::ParameterisedUpdate(Box::new(parameterised())),
            ClientVerb::ParameterisedDispatch => ClientCommand::ParameterisedDispatch {
                parameterised_guid: parameterised().parameterised_guid,
                dispatch: Box::new(dispatch()),
            },
            ClientVerb::ParameterisedWithdraw => {
                let parameterised_guid = parameterised().parameterised_guid;
                ClientCommand::ParameterisedWithdraw { parameterised_guid, number: 17 }
            }
            ClientVerb::ParameterisedRemove => {
                let parameterised_guid = parameterised().parameterised_guid;
                ClientCommand::ParameterisedRemove { parameterised_guid }
            }
            ClientVerb::DomainUpsert => {
                ClientCommand::DomainUpsert { domain: lrp.domain.clone(), ttl_ms: Some(1) }
            }
        })
        .to_vec()
}

fn of_periodic(ask: spec::PeriodicAsk) -> ClientCommand {
    ClientCommand::PeriodicAsk { periodic_guid: periodic().periodic_guid, ask }
}

fn evaluation() -> EvaluationId {
    "0190f2a1-7c3e-7bbb-8001-0a2b3c4d5e6f".parse().unwrap()
}

#[test]
fn command_body_has_exactly_the_fields_of_its_schema() {
    let schema = commands_schema();
    for command in every_command() {
        let called = name(command.noun_and_verb());
        let body = command.body();
        let message = json!({"envelope": {"request_id": "r-1"}, "body": body});
        let validator = validator(&called);
        let faults: Vec<String> = validator.iter_errors(&message).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{called}: {faults:?}");
        assert!(!validator.is_valid(&json!({"body": body, "more": 1})), "{called}: a foreign field is valid");

        let target = schema["commands"][&called]["request"]["properties"]["body"]["$ref"].as_str().unwrap();
        let properties = schema.pointer(target.trim_start_matches('#')).unwrap()["properties"].as_object();
        let told: BTreeSet<&str> = properties
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|name| !["env", "rootfs", "egress_rules"].contains(name))
            .collect();
        let sent: BTreeSet<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(told, sent, "{called}: tests/shapes.rs is not what is read and written");
        no_field_is_unknown(&command, properties.unwrap().keys().map(String::as_str));
    }
}

/// Checks that the fields are known, even if their values are invalid.
fn no_field_is_unknown<'a>(command: &ClientCommand, fields: impl Iterator<Item = &'a str>) {
    let ((noun, verb), domain) = (command.noun_and_verb(), Domain::new("apps").unwrap());
    let read = |body: &Value| {
        let message = json!({"body": body}).to_string();
        let refusal = client_command(noun, verb, &domain, message.as_bytes()).unwrap_err();
        let unknown = refusal.fields.into_iter().filter(|bad| bad.problem.starts_with("is unknown"));
        unknown.map(|bad| bad.field).collect::<Vec<String>>()
    };
    let mut body: Map<String, Value> = fields.map(|name| (name.to_owned(), json!([[[]]]))).collect();
    assert_eq!(read(&Value::Object(body.clone())), [""; 0], "{noun}.{verb}: a documented field is unknown");
    body.insert("zzzzzz".into(), json!(1));
    assert_eq!(read(&Value::Object(body)), ["body.zzzzzz"], "{noun}.{verb}: the check sees nothing");
}

/// Returns the generated tables of the page, by the name of their marker.
fn tables() -> BTreeMap<&'static str, String> {
    let mut schemas = Schemas::new();
    let bodies = bodies(&mut schemas);
    let (envelope, refusal) = (schemas.of::<Envelope>(), schemas.of::<Refusal>());
    let asked = [
        schemas.of::<Filter>(),
        schemas.of::<Show>(),
        schemas.of::<ReadEvents>(),
        schemas.of::<ReadLogs>(),
        schemas.of::<ReadFiles>(),
        schemas.of::<Talk>(),
    ];
    let answered = [
        schemas.of::<LrpRow>(),
        schemas.of::<InstanceRow>(),
        schemas.of::<EndedInstanceRow>(),
        schemas.of::<TaskRow>(),
        schemas.of::<EndedTaskRow>(),
        schemas.of::<PeriodicRow>(),
        schemas.of::<ParameterisedRow>(),
        schemas.of::<DomainRow>(),
        schemas.of::<DomainUseRow>(),
        schemas.of::<CellRow>(),
        schemas.of::<EvaluationRow>(),
        schemas.of::<ClusterRow>(),
        schemas.of::<StatusRow>(),
        schemas.of::<ContainerHealth>(),
        schemas.of::<Logs>(),
        schemas.of::<Files>(),
        schemas.of::<Talked>(),
        schemas.of::<EventsPage>(),
    ];
    let codes = schemas.of::<Code>();
    let defs = schemas.definitions();
    let titled = |types: &[Value]| -> String {
        types.iter().map(|of| format!("#### {}\n\n{}", target(of), fields(&defs, target(of)))).collect()
    };
    let of_body = |(command, of): &(String, Value)| {
        format!("#### Body of `{command}`\n\n{}", fields(&defs, target(of)))
    };
    let shown: BTreeSet<&str> = answered.iter().chain([&refusal]).map(target).collect();
    let parts: String = parts(&defs, &shown, &bodies)
        .into_iter()
        .map(|part| format!("#### {part}\n\n{}", fields(&defs, part)))
        .collect();
    BTreeMap::from([
        ("Envelope", fields(&defs, target(&envelope))),
        ("bodies", bodies.iter().map(of_body).collect()),
        ("asked", titled(&asked)),
        // Fields of an answer are always present.
        ("answered", titled(&answered).replace(", may be left out", "")),
        ("parts", parts),
        ("Refusal", fields(&defs, target(&refusal))),
        ("codes", code_table(&defs[target(&codes)])),
        ("limits", limit_table()),
    ])
}

/// Returns the name of the definition that a schema refers to.
fn target(schema: &Value) -> &str {
    schema["$ref"]
        .as_str()
        .unwrap_or_else(|| panic!("{schema} is not a reference"))
        .rsplit('/')
        .next()
        .unwrap()
}

/// Returns every type that rows and bodies contain, except plain values.
fn parts<'a>(
    defs: &'a Map<String, Value>,
    shown: &BTreeSet<&'a str>,
    bodies: &[(String, Value)],
) -> BTreeSet<&'a str> {
    let named: BTreeSet<&str> = bodies.iter().map(|(_, of)| target(of)).collect();
    let in_bodies = defs.keys().map(String::as_str).filter(|name| named.contains(name));
    let mut found: BTreeSet<&str> = shown.iter().copied().chain(in_bodies).collect();
    let mut open: Vec<&str> = found.iter().copied().collect();
    while let Some(next) = open.pop() {
        let mut inside = vec![];
        references(&defs[next], &mut inside);
        // Entries are documented on a page of their own.
        for name in inside.into_iter().filter(|name| *name != "Entry") {
            if found.insert(name) {
                open.push(name);
            }
        }
    }
    found.retain(|name| !shown.contains(name) && !named.contains(name) && !is_value(&defs[*name]));
    found
}

fn references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("$ref") {
                found.push(target(schema));
            }
            object.values().for_each(|part| references(part, found));
        }
        Value::Array(list) => list.iter().for_each(|part| references(part, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `true` if the schema is text, a number, or an enumeration of words.
fn is_value(schema: &Value) -> bool {
    let is_plain = schema["type"].is_string() || schema.get("$ref").is_some();
    words(schema).is_some() || (schema.get("properties").is_none() && is_plain)
}

/// Returns the words of an enumeration. `None` if the schema is not an enumeration of words.
fn words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(list) = schema["enum"].as_array() {
        return list.iter().map(Value::as_str).collect();
    }
    schema["oneOf"].as_array()?.iter().map(|word| word["const"].as_str()).collect()
}

/// Returns the description of a type, and a table of its fields or variants.
fn fields(defs: &Map<String, Value>, of: &str) -> String {
    let schema = &defs[of];
    let mut text = format!("{}\n\n", meaning(schema));
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    if let Some(properties) = schema["properties"].as_object() {
        text.push_str("| field | type | meaning |\n|---|---|---|\n");
        for (field, schema) in properties {
            let must = if required.contains(&json!(field)) { "" } else { ", may be left out" };
            let (kind, meaning) = (kind(defs, schema), meaning(schema));
            writeln!(text, "| `{field}` | {kind}{must} | {meaning} |").unwrap();
        }
    } else {
        text.push_str("One of these:\n\n| form | meaning |\n|---|---|\n");
        let forms = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        for form in forms.unwrap_or_else(|| panic!("{of} has neither fields nor forms: {schema}")) {
            writeln!(text, "| {} | {} |", kind(defs, form), meaning(form)).unwrap();
        }
    }
    text.push('\n');
    text
}

fn meaning(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let text = text.replace("[`", "`").replace("`]", "`").replace("\n\n", " ").replace('\n', " ");
    text.replace('|', "\\|").replace("crate::", "")
}

/// Returns a short description of a type.
fn kind(defs: &Map<String, Value>, schema: &Value) -> String {
    if schema.get("$ref").is_some() {
        let name = target(schema);
        return match defs.get(name) {
            Some(of) if words(of).is_some() => kind(defs, of),
            Some(of) if is_value(of) => format!("{} ({name})", kind(defs, of)),
            Some(_) | None if name == "Entry" => "an [entry](../schemas/README.md)".into(),
            Some(_) | None => format!("[{name}](#{})", name.to_lowercase()),
        };
    }
    if let Some(words) = words(schema) {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(word) = schema["const"].as_str() {
        return format!("`\"{word}\"`");
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().map(|option| kind(defs, option)).collect::<Vec<_>>().join(" or ");
    }
    if let Some(kinds) = schema["type"].as_array() {
        let one = |of: &Value| {
            let mut schema = schema.clone();
            schema["type"] = of.clone();
            kind(defs, &schema)
        };
        return kinds.iter().map(one).collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date-time" => "time".into(),
        Some("string") => "text".into(),
        Some("integer" | "number") => "number".into(),
        Some("boolean") => "true or false".into(),
        Some("null") => "null".into(),
        Some("array") => format!("list of {}", kind(defs, &schema["items"])),
        Some("object") => object_kind(defs, schema),
        Some(_) | None => "any JSON".into(),
    }
}

fn object_kind(defs: &Map<String, Value>, schema: &Value) -> String {
    match schema["properties"].as_object() {
        Some(properties) => {
            let field = |(name, of): (&String, &Value)| format!("`{name}`: {}", kind(defs, of));
            format!("{{{}}}", properties.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        None => format!("object of {}", kind(defs, &schema["additionalProperties"])),
    }
}

fn code_table(codes: &Value) -> String {
    let mut text = "| code | class | meaning |\n|---|---|---|\n".to_owned();
    for code in codes["oneOf"].as_array().unwrap() {
        let read: Code = serde_json::from_value(code["const"].clone()).unwrap();
        let class = match read.class() {
            Class::NotFound => "NotFound",
            Class::Conflict => "Conflict",
            Class::NotNow => "NotNow",
            Class::Invalid => "Invalid",
        };
        writeln!(text, "| `{read}` | {class} | {} |", meaning(code)).unwrap();
    }
    text
}

fn limit_table() -> String {
    let limits: [(&str, usize); 57] = [
        ("bytes of a name", limits::ID_BYTES),
        ("bytes of a message", limits::MESSAGE_BYTES),
        ("bytes of a spec without its routes", limits::SPEC_BYTES),
        ("bytes of the routes", limits::ROUTES_BYTES),
        ("bytes of an annotation", limits::ANNOTATION_BYTES),
        ("instances of a process", limits::INSTANCES as usize),
        ("levels of an action", limits::ACTION_DEPTH),
        ("actions in an action", limits::ACTION_NODES),
        ("environment variables of a list", limits::ENVIRONMENT_VALUES),
        ("bytes of an environment", limits::ENVIRONMENT_BYTES),
        ("ports", limits::PORTS),
        ("placement tags", limits::PLACEMENT_TAGS),
        ("MiB of memory, and of disk", usize::try_from(limits::RESOURCE_MB).unwrap()),
        ("CPU weight", limits::CPU_WEIGHT as usize),
        ("priority", limits::GREATEST_PRIORITY.into()),
        ("milliseconds of a grace period", usize::try_from(limits::GRACE_MS).unwrap()),
        ("milliseconds of any other time", usize::try_from(limits::DURATION_MS).unwrap()),
        ("bytes of the name of a periodic task", limits::PERIODIC_GUID_BYTES),
        ("bytes of a periodic task in the log", limits::PERIODIC_BYTES),
        ("bytes of a cron expression, and of the name of a time zone", limits::CRON_BYTES),
        ("bytes of the name of a parameterised task", limits::PARAMETERISED_GUID_BYTES),
        ("bytes of a parameterised task in the log", limits::PARAMETERISED_BYTES),
        ("bytes of a dispatch's payload", limits::PAYLOAD_BYTES),
        ("parameters of a dispatch", limits::PARAMETERS),
        ("bytes of the name of a parameter", limits::PARAMETER_NAME_BYTES),
        ("bytes of a dispatch's parameters", limits::PARAMETERS_BYTES),
        ("tasks that the limit of a parameterised task may allow", limits::CONCURRENCY as usize),
        ("dispatches of a parameterised task that wait", limits::DISPATCHES_QUEUED),
        ("keys of dispatches that a parameterised task remembers", limits::DISPATCH_KEYS),
        ("bytes of a path of a file", limits::PATH_BYTES),
        ("levels of arrays and objects in a message", schemas::codec::JSON_DEPTH),
        ("bytes of a URL", limits::URL_BYTES),
        ("bytes of a label, and of the name of an artifact", limits::LABEL_BYTES),
        ("bytes of a `cache_key`", limits::CACHE_KEY_BYTES),
        ("cached dependencies", limits::CACHED_DEPENDENCIES),
        ("files that a program may have open", usize::try_from(limits::NOFILE).unwrap()),
        ("entries of a folder in an answer", limits::FILE_ENTRIES),
        ("bytes of a file in an answer", limits::FILE_BYTES),
        ("bytes of the path and the arguments of a program that is run in a container", limits::EXEC_BYTES),
        ("bytes of the word for what a terminal is", limits::TERMINAL_KIND_BYTES),
        ("bytes that one message brings to a program in a container, or from it", limits::TALK_BYTES),
        (
            "milliseconds that an answer waits for what such a program says",
            usize::try_from(limits::TALK_WAIT_MS).unwrap(),
        ),
        ("bytes of a reason", limits::REASON_BYTES),
        ("bytes of a `traceparent`", limits::TRACE_BYTES),
        (
            "bytes that a container may log in a minute",
            usize::try_from(limits::OUTPUT_BYTES_PER_MINUTE).unwrap(),
        ),
        ("bytes of a task's result", limits::TASK_RESULT_BYTES),
        ("requests that a process, task or domain remembers", limits::REMEMBERED_REQUESTS),
        ("evaluations that a process or task keeps", limits::KEPT_EVALUATIONS),
        ("rows of a page", limits::PAGE_ROWS),
        ("bytes of a page", limits::PAGE_BYTES),
        ("milliseconds that a cursor's position is held", usize::try_from(limits::PICTURE_HELD_MS).unwrap()),
        ("commands of a client that wait for an answer", limits::COMMANDS_IN_FLIGHT),
        ("commands of all clients that wait at a BBS", limits::COMMANDS_WAITING),
        ("queries of a client that wait for an answer", limits::QUERIES_IN_FLIGHT),
        ("queries of all clients that wait at a BBS", limits::QUERIES_WAITING),
        ("reads of events and logs of a client that wait", limits::LONG_POLLS),
        ("reads of events and logs of all clients that wait at a BBS", limits::LONG_POLLS_WAITING),
    ];
    let mut text = "| at most | |\n|---|---|\n".to_owned();
    for (what, limit) in limits {
        writeln!(text, "| {what} | {limit} |").unwrap();
    }
    text
}

fn quota_table() -> String {
    let mut text = "| quota | default | limits |\n|---|---|---|\n".to_owned();
    for Quota { name, default, limits } in quota::ALL {
        writeln!(text, "| `{name}` | {default} | {limits} |").unwrap();
    }
    text
}

#[test]
fn generated_tables_of_clients_page_match_types() {
    check_tables(&page(), &tables());
}

#[test]
fn generated_quota_table_of_model_page_matches_defaults() {
    let model = page().with_file_name("model.md");
    check_tables(&model, &BTreeMap::from([("quotas", quota_table())]));
}

/// Checks the generated tables of a document. Writes them instead if `MUSTER_WRITE_GOLDEN` is set.
fn check_tables(document: &Path, tables: &BTreeMap<&'static str, String>) {
    let name = document.file_name().unwrap().display();
    let mut text = fs::read_to_string(document).unwrap();
    for (place, table) in tables {
        let begin = format!("<!-- made: {place} -->\n");
        let at = text.find(&begin).unwrap_or_else(|| panic!("docs/{name} has no place for {place}"));
        let from = at + begin.len();
        let to = from + text[from..].find("<!-- end -->").unwrap();
        let made = format!("{}\n", table.trim_end());
        if may_write() {
            text.replace_range(from..to, &made);
        }
        assert!(
            text[from..].starts_with(&made) && text[from + made.len()..].starts_with("<!-- end -->"),
            "docs/{name}: {place} is not what the types say: {WRITE}=1 cargo test -p schemas documented"
        );
    }
    if may_write() {
        fs::write(document, text).unwrap();
    }
}

#[test]
fn clients_page_lists_every_command_query_and_code() {
    let text = fs::read_to_string(page()).unwrap();
    let commands = ClientVerb::ALL.map(ClientVerb::noun_and_verb).into_iter();
    let queries = QueryVerb::ALL.map(QueryVerb::noun_and_verb);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    for one in commands.chain(queries).map(name) {
        let row = format!("| `{one}` |");
        assert!(rows.iter().any(|line| line.starts_with(&row)), "docs/clients.md has no row for {one}");
    }
    for one in OperatorVerb::ALL.map(OperatorVerb::noun_and_verb).map(name) {
        assert!(text.contains(&format!("muster.operator.<operator>.{one}")), "docs/clients.md: no {one}");
    }
    for code in schemars::schema_for!(Code).to_value()["oneOf"].as_array().unwrap() {
        let row = format!("| `{}` |", code["const"].as_str().unwrap());
        assert!(rows.iter().any(|line| line.starts_with(&row)), "docs/clients.md has no row for {row}");
    }
}

#[test]
fn documentation_links_resolve() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|file| file.unwrap().path());
    let adrs = fs::read_dir(root.join("docs/adr")).unwrap().map(|file| file.unwrap().path());
    let more =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "schemas/README.md"].map(|file| root.join(file));
    for path in docs.chain(adrs).chain(more).filter(|path| path.extension().is_some_and(|ext| ext == "md")) {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {link} leads nowhere", path.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&to).unwrap();
                let known =
                    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor_of(line) == anchor);
                assert!(known, "{}: {link} names no heading", path.display());
            }
        }
    }
}

/// Returns the anchor of a heading, as GitHub and similar sites derive it.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
