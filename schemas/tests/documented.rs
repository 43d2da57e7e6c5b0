//! Tests that `docs/reference` covers every command, query, field, code and limit. The tables of
//! `docs/reference` are generated from the types.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p schemas documented` generates the tables again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use schemars::{JsonSchema, SchemaGenerator};
use schemas::exec::{ExecIo, ExecIoReply};
use schemas::health::ContainerHealth;
use schemas::message::{Answer, QuarantineEntry, Reshard, SwitchPreemption};
use schemas::names::{CellId, DefinitionId, Domain, EvaluationId, ProcessGuid};
use schemas::process::{Purpose, RolloutControl};
use schemas::published::{ListSchemas, SchemaRow, ShowSchema};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, DomainUseRow, EndedInstanceRow, EndedTaskRow, EvaluationRow, EventsPage,
    Files, Filter, FilterField, InstanceRow, Logs, LrpRow, Page, ParameterisedRow, PeriodicRow, ReadEvents,
    ReadFiles, ReadLogs, Show, ShowAnswer, StatusRow, TaskRow,
};
use schemas::quota::{self, LimitDomain, Quota};
use schemas::refusal::{Class, Code};
use schemas::spec::{self, ClientCommand, client_command};
use schemas::verb::{ClientVerb, OperatorVerb, QueryVerb};
use schemas::{Refusal, limits};
use serde_json::{Map, Value, json};

use fixtures::pages::check_tables;

use crate::bundle::{bundle, replace_definitions, resolve};
use crate::golden::{dispatch, exec, job, lrp, parameterised, periodic};

/// Types of queries, described in `queries.md`.
const QUERY_TYPES: [&str; 6] = ["Filter", "Show", "ReadEvents", "ReadLogs", "ReadFiles", "ExecIo"];

/// Types of answers, described in `rows.md`. The types of their fields are described in `types.md`.
pub(crate) const ROW_TYPES: [&str; 18] = [
    "LrpRow",
    "InstanceRow",
    "EndedInstanceRow",
    "TaskRow",
    "EndedTaskRow",
    "PeriodicRow",
    "ParameterisedRow",
    "DomainRow",
    "DomainUseRow",
    "CellRow",
    "EvaluationRow",
    "ClusterRow",
    "StatusRow",
    "ContainerHealth",
    "Logs",
    "Files",
    "ExecIoReply",
    "EventsPage",
];

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// A collection of schema definitions by type name.
pub(crate) struct Schemas {
    generator: SchemaGenerator,
}

impl Schemas {
    pub(crate) fn new() -> Self {
        Self { generator: SchemaGenerator::default() }
    }

    pub(crate) fn schema_for<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().to_value()
    }

    fn answer_of<T: JsonSchema>(&mut self) -> Value {
        self.schema_for::<Answer<T>>()
    }

    fn page_of<T: JsonSchema>(&mut self) -> Value {
        self.answer_of::<Page<T>>()
    }

    fn one_of<T: JsonSchema>(&mut self) -> Value {
        self.answer_of::<ShowAnswer<T>>()
    }

    pub(crate) fn envelope(&mut self) -> Value {
        spec::envelope_schema(&mut self.generator)
    }

    /// Returns the filter of a list, without the fields that the list refuses.
    fn filter_of(&mut self, query: QueryVerb) -> Value {
        let honoured = FilterField::honoured_by(query);
        let refused = FilterField::ALL.into_iter().filter(|field| !honoured.contains(field));
        let refused: Map<String, Value> =
            refused.map(|field| (field.name().to_owned(), false.into())).collect();
        let mut schema = self.schema_for::<Filter>();
        schema["properties"] = refused.into();
        schema
    }

    pub(crate) fn definitions(mut self) -> Map<String, Value> {
        let mut definitions = self.generator.take_definitions(true);
        share_actions(&mut definitions);
        definitions
    }
}

/// Types of actions. Rows show actions in the form in which specs contain them.
const ACTIONS: [&str; 10] = [
    "Action",
    "Download",
    "EmitProgress",
    "Group",
    "ResourceLimits",
    "Run",
    "Timeout",
    "Try",
    "Upload",
    "Variable",
];

/// Gives the actions of rows the schemas of the actions of specs.
fn share_actions(definitions: &mut Map<String, Value>) {
    let in_specs = |name: &str| format!("{name}Spec");
    let shared: BTreeMap<String, String> =
        ACTIONS.iter().map(|name| (in_specs(name), (*name).to_owned())).collect();
    for name in ACTIONS {
        let schema = definitions[&in_specs(name)].take();
        definitions.insert(name.to_owned(), schema);
    }
    replace_definitions(definitions, &shared);
}

/// Body of a command that only names a cell.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct CellCommand {
    /// Id of the cell.
    cell_id: CellId,
}

/// Returns every command with the schema of its body.
pub(crate) fn bodies(schemas: &mut Schemas) -> Vec<(String, Value)> {
    let mut bodies = vec![];
    for verb in ClientVerb::ALL.iter().copied() {
        bodies.push((name(verb.noun_and_verb()), spec::body_schema(verb, &mut schemas.generator)));
    }
    for verb in OperatorVerb::ALL.iter().copied() {
        let body = match verb {
            OperatorVerb::CellEvacuate
            | OperatorVerb::CellCordon
            | OperatorVerb::CellUncordon
            | OperatorVerb::CellForget
            | OperatorVerb::CellAcceptLog => schemas.schema_for::<CellCommand>(),
            OperatorVerb::ClusterPreemption => schemas.schema_for::<SwitchPreemption>(),
            OperatorVerb::ClusterShards => schemas.schema_for::<Reshard>(),
            OperatorVerb::DomainLimit => schemas.schema_for::<LimitDomain>(),
            OperatorVerb::JournalQuarantine => schemas.schema_for::<QuarantineEntry>(),
        };
        bodies.push((name(verb.noun_and_verb()), body));
    }
    bodies
}

/// Returns every query for clients, with the schemas of its request and its answer.
pub(crate) fn query_schemas(schemas: &mut Schemas) -> Vec<(String, Value, Value)> {
    let mut all = vec![];
    for verb in QueryVerb::ALL.iter().copied() {
        let (asked, answered) = match verb {
            QueryVerb::LrpList => (schemas.filter_of(verb), schemas.page_of::<LrpRow>()),
            QueryVerb::LrpShow => (schemas.schema_for::<Show>(), schemas.one_of::<LrpRow>()),
            QueryVerb::InstanceList => (schemas.filter_of(verb), schemas.page_of::<InstanceRow>()),
            QueryVerb::InstanceShow => (schemas.schema_for::<Show>(), schemas.one_of::<Vec<InstanceRow>>()),
            QueryVerb::InstanceEnded => (schemas.filter_of(verb), schemas.page_of::<EndedInstanceRow>()),
            QueryVerb::TaskEnded => (schemas.filter_of(verb), schemas.page_of::<EndedTaskRow>()),
            QueryVerb::InstanceLogs | QueryVerb::TaskLogs => {
                (schemas.schema_for::<ReadLogs>(), schemas.answer_of::<Logs>())
            }
            QueryVerb::InstanceFiles => (schemas.schema_for::<ReadFiles>(), schemas.answer_of::<Files>()),
            QueryVerb::InstanceHealth => {
                (schemas.schema_for::<Show>(), schemas.answer_of::<Vec<ContainerHealth>>())
            }
            QueryVerb::TaskList => (schemas.filter_of(verb), schemas.page_of::<TaskRow>()),
            QueryVerb::TaskShow => (schemas.schema_for::<Show>(), schemas.one_of::<TaskRow>()),
            QueryVerb::PeriodicList => (schemas.filter_of(verb), schemas.page_of::<PeriodicRow>()),
            QueryVerb::PeriodicShow => (schemas.schema_for::<Show>(), schemas.one_of::<PeriodicRow>()),
            QueryVerb::ParameterisedList => (schemas.filter_of(verb), schemas.page_of::<ParameterisedRow>()),
            QueryVerb::ParameterisedShow => {
                (schemas.schema_for::<Show>(), schemas.one_of::<ParameterisedRow>())
            }
            QueryVerb::DomainList => (schemas.filter_of(verb), schemas.page_of::<DomainRow>()),
            QueryVerb::DomainShow => (schemas.schema_for::<Show>(), schemas.one_of::<DomainUseRow>()),
            QueryVerb::CellList => (schemas.filter_of(verb), schemas.page_of::<CellRow>()),
            QueryVerb::CellShow => (schemas.schema_for::<Show>(), schemas.one_of::<CellRow>()),
            QueryVerb::EvaluationList => (schemas.filter_of(verb), schemas.page_of::<EvaluationRow>()),
            QueryVerb::EvaluationShow => (schemas.schema_for::<Show>(), schemas.one_of::<EvaluationRow>()),
            QueryVerb::ClusterShow => (schemas.filter_of(verb), schemas.one_of::<ClusterRow>()),
            QueryVerb::ClusterStatus => (schemas.filter_of(verb), schemas.one_of::<StatusRow>()),
            QueryVerb::EventsRead => (schemas.schema_for::<ReadEvents>(), schemas.answer_of::<EventsPage>()),
            QueryVerb::SchemaList => {
                (schemas.schema_for::<ListSchemas>(), schemas.answer_of::<Vec<SchemaRow>>())
            }
            QueryVerb::SchemaShow => {
                (schemas.schema_for::<ShowSchema>(), schemas.answer_of::<Map<String, Value>>())
            }
            // Only reps and BBSs use this query.
            QueryVerb::CellRecords => continue,
        };
        all.push((name(verb.noun_and_verb()), asked, answered));
    }
    all
}

pub(crate) fn name((noun, verb): (&str, &str)) -> String {
    format!("{noun}.{verb}")
}

/// Returns a validator for the messages of one command.
pub(crate) fn validator(command: &str) -> jsonschema::Validator {
    let mut schema = bundle()["commands"][command]["request"].clone();
    schema["$defs"] = bundle()["$defs"].clone();
    jsonschema::validator_for(&schema).unwrap()
}

fn exec_command(process_guid: ProcessGuid, definition_id: DefinitionId) -> ClientCommand {
    ClientCommand::InstanceExec { process_guid, index: 1, definition_id: Some(definition_id), exec: exec() }
}

/// Returns one command of each kind, with every field set.
pub(crate) fn every_command() -> Vec<ClientCommand> {
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
        .iter()
        .copied()
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
            ClientVerb::LrpPause => steer(RolloutControl::Pause),
            ClientVerb::LrpResume => steer(RolloutControl::Resume),
            ClientVerb::LrpRollback => steer(RolloutControl::RollBack),
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
            ClientVerb::PeriodicPause => periodic_command(spec::PeriodicAction::Pause),
            ClientVerb::PeriodicResume => periodic_command(spec::PeriodicAction::Resume),
            ClientVerb::PeriodicLaunch => periodic_command(spec::PeriodicAction::Launch),
            ClientVerb::PeriodicRemove => periodic_command(spec::PeriodicAction::Remove),
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
        .collect()
}

fn periodic_command(ask: spec::PeriodicAction) -> ClientCommand {
    ClientCommand::PeriodicAction { periodic_guid: periodic().periodic_guid, ask }
}

fn evaluation() -> EvaluationId {
    "0190f2a1-7c3e-7bbb-8001-0a2b3c4d5e6f".parse().unwrap()
}

#[test]
fn command_body_has_exactly_the_fields_of_its_schema() {
    for command in every_command() {
        let called = name(command.noun_and_verb());
        let body = command.body();
        let message = json!({"envelope": {"request_id": "r-1"}, "body": body});
        let validator = validator(&called);
        let faults: Vec<String> = validator.iter_errors(&message).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{called}: {faults:?}");
        assert!(
            !validator.is_valid(&json!({"body": body, "more": 1})),
            "{called}: an unknown field \
            is valid"
        );

        let message_schema = resolve(&bundle()["commands"][&called]["request"]);
        let properties = resolve(&message_schema["properties"]["body"])["properties"].as_object();
        let told: BTreeSet<&str> = properties
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|name| !["env", "rootfs", "egress_rules", "mode"].contains(name))
            .collect();
        // A task cannot have a rule for several instances, which the sample of a definition has.
        let mut body = body;
        if let Some(Value::Array(rules)) = body.get_mut("constraints") {
            rules.retain(|rule| rule["operator"] != "distinct_cell");
        }
        // Fields that the sample lacks are set to a value that their schema allows.
        for field in &told {
            if body.get(field).is_none() {
                body[field] = sample(&properties.unwrap()[*field]);
            }
        }
        let domain = Domain::new("apps").unwrap();
        let message = json!({"body": body}).to_string();
        let (noun, verb) = command.noun_and_verb();
        let read = client_command(noun, verb, &domain, message.as_bytes()).map(|(_, command)| command.body());
        assert_eq!(read, Ok(body), "{called}: what is written differs from what is parsed");
        assert_fields_are_known(&command, properties.unwrap().keys().map(String::as_str));
    }
}

/// Returns a value that a simple schema allows.
fn sample(schema: &Value) -> Value {
    let kind = schema["type"].as_array().map_or(&schema["type"], |kinds| &kinds[0]);
    match kind.as_str() {
        Some("string") => "x".into(),
        Some("integer") => schema["maximum"].clone(),
        Some("boolean") => true.into(),
        Some(_) | None => panic!("set this field in tests/golden.rs: {schema}"),
    }
}

/// Checks that the fields are known, even if their values are invalid.
fn assert_fields_are_known<'a>(command: &ClientCommand, fields: impl Iterator<Item = &'a str>) {
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
    assert_eq!(
        read(&Value::Object(body)),
        ["body.zzzzzz"],
        "{noun}.{verb}: the check does not detect an \
        unknown field"
    );
}

/// Returns the generated tables of the page, by the name of their marker.
fn tables() -> BTreeMap<&'static str, String> {
    let mut schemas = Schemas::new();
    let bodies = bodies(&mut schemas);
    let (envelope, refusal) = (schemas.envelope(), schemas.schema_for::<Refusal>());
    let asked = [
        schemas.schema_for::<Filter>(),
        schemas.schema_for::<Show>(),
        schemas.schema_for::<ReadEvents>(),
        schemas.schema_for::<ReadLogs>(),
        schemas.schema_for::<ReadFiles>(),
        schemas.schema_for::<ExecIo>(),
    ];
    let answered = [
        schemas.schema_for::<LrpRow>(),
        schemas.schema_for::<InstanceRow>(),
        schemas.schema_for::<EndedInstanceRow>(),
        schemas.schema_for::<TaskRow>(),
        schemas.schema_for::<EndedTaskRow>(),
        schemas.schema_for::<PeriodicRow>(),
        schemas.schema_for::<ParameterisedRow>(),
        schemas.schema_for::<DomainRow>(),
        schemas.schema_for::<DomainUseRow>(),
        schemas.schema_for::<CellRow>(),
        schemas.schema_for::<EvaluationRow>(),
        schemas.schema_for::<ClusterRow>(),
        schemas.schema_for::<StatusRow>(),
        schemas.schema_for::<ContainerHealth>(),
        schemas.schema_for::<Logs>(),
        schemas.schema_for::<Files>(),
        schemas.schema_for::<ExecIoReply>(),
        schemas.schema_for::<EventsPage>(),
    ];
    let codes = schemas.schema_for::<Code>();
    let defs = schemas.definitions();
    let titled = |types: &[Value]| -> String {
        types
            .iter()
            .map(|of| format!("#### {}\n\n{}", definition_name(of), fields(&defs, definition_name(of))))
            .collect()
    };
    let of_body = |(command, of): &(String, Value)| {
        format!("#### Body of `{command}`\n\n{}", fields(&defs, definition_name(of)))
    };
    let shown: BTreeSet<&str> = answered.iter().chain([&refusal]).map(definition_name).collect();
    let asked_types = asked.iter().map(|of| (String::new(), of.clone()));
    let described: Vec<(String, Value)> = bodies.iter().cloned().chain(asked_types).collect();
    let parts: String = parts(&defs, &shown, &described)
        .into_iter()
        .map(|part| format!("#### {part}\n\n{}", fields(&defs, part)))
        .collect();
    BTreeMap::from([
        ("Envelope", fields(&defs, definition_name(&envelope))),
        ("bodies", bodies.iter().map(of_body).collect()),
        ("asked", titled(&asked)),
        // Fields of an answer are always present.
        ("answered", titled(&answered).replace(", may be left out", "")),
        ("parts", parts),
        ("Refusal", fields(&defs, definition_name(&refusal))),
        ("codes", code_table(&defs[definition_name(&codes)])),
        ("limits", limit_table()),
    ])
}

/// Returns the name of the definition that a schema refers to.
pub(crate) fn definition_name(schema: &Value) -> &str {
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
    let named: BTreeSet<&str> = bodies.iter().map(|(_, of)| definition_name(of)).collect();
    let in_bodies = defs.keys().map(String::as_str).filter(|name| named.contains(name));
    let mut found: BTreeSet<&str> = shown.iter().copied().chain(in_bodies).collect();
    let mut open: Vec<&str> = found.iter().copied().collect();
    while let Some(next) = open.pop() {
        let mut inside = vec![];
        references(&defs[next], &mut inside);
        // Entries have a separate page.
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
                found.push(definition_name(schema));
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
            let (kind, meaning) = (kind(defs, schema).replace(" or null", ""), meaning(schema));
            writeln!(text, "| `{field}` | {kind}{must} | {meaning} |").unwrap();
        }
    } else {
        text.push_str("One of these:\n\n| form | meaning |\n|---|---|\n");
        let forms = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        for form in forms.unwrap_or_else(|| panic!("{of} has neither fields nor forms: {schema}")) {
            writeln!(text, "| {} | {} |", kind(defs, form), meaning_of_form(form)).unwrap();
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

/// Returns the meaning of a form, or of its only property.
fn meaning_of_form(form: &Value) -> String {
    let property = form["properties"].as_object().and_then(|all| all.values().next());
    property.filter(|_| form.get("description").is_none()).map_or_else(|| meaning(form), meaning)
}

/// Returns the page that describes a type.
fn type_page(name: &str) -> &'static str {
    if QUERY_TYPES.contains(&name) {
        "queries.md"
    } else if ROW_TYPES.contains(&name) {
        "rows.md"
    } else {
        "types.md"
    }
}

/// Returns a short description of a type.
fn kind(defs: &Map<String, Value>, schema: &Value) -> String {
    if schema.get("$ref").is_some() {
        let name = definition_name(schema);
        return match defs.get(name) {
            Some(of) if words(of).is_some() => kind(defs, of),
            Some(of) if is_value(of) => format!("{} ({name})", kind(defs, of)),
            Some(_) | None if name == "Entry" => "an [entry](events.md)".into(),
            Some(_) | None => format!("[{name}]({}#{})", type_page(name), name.to_lowercase()),
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
        Some("integer" | "number") => match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
            (Some(least), Some(most)) => format!("number from {least} to {most}"),
            (_, _) => "number".into(),
        },
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
            Class::Retryable => "Retryable",
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
        ("nesting levels of an action", limits::ACTION_DEPTH),
        ("actions in an action", limits::ACTION_NODES),
        ("environment variables of a list", limits::ENVIRONMENT_VALUES),
        ("bytes of an environment", limits::ENVIRONMENT_BYTES),
        ("ports", limits::PORTS),
        ("placement tags", limits::PLACEMENT_TAGS),
        ("MiB of memory, and of disk", usize::try_from(limits::RESOURCE_MB).unwrap()),
        ("CPU weight", limits::CPU_WEIGHT as usize),
        ("priority", limits::MAX_PRIORITY.into()),
        ("milliseconds of a grace period", usize::try_from(limits::GRACE_MS).unwrap()),
        ("milliseconds of any other duration", usize::try_from(limits::DURATION_MS).unwrap()),
        ("bytes of the name of a periodic task", limits::PERIODIC_GUID_BYTES),
        ("bytes of a periodic task in the log", limits::PERIODIC_BYTES),
        ("bytes of a cron expression, and of the name of a time zone", limits::CRON_BYTES),
        ("bytes of the name of a parameterised task", limits::PARAMETERISED_GUID_BYTES),
        ("bytes of a parameterised task in the log", limits::PARAMETERISED_BYTES),
        ("bytes of a dispatch's payload", limits::PAYLOAD_BYTES),
        ("parameters of a dispatch", limits::PARAMETERS),
        ("bytes of the name of a parameter", limits::PARAMETER_NAME_BYTES),
        ("bytes of a dispatch's parameters", limits::PARAMETERS_BYTES),
        ("`concurrency` of a parameterised task", limits::CONCURRENCY as usize),
        ("waiting dispatches of a parameterised task", limits::DISPATCHES_QUEUED),
        ("dispatch keys that a parameterised task remembers", limits::DISPATCH_KEYS),
        ("bytes of a file path", limits::PATH_BYTES),
        ("nesting levels of arrays and objects in a message", schemas::codec::MAX_JSON_DEPTH),
        ("bytes of a URL", limits::URL_BYTES),
        ("bytes of a label, and of the name of an artifact", limits::LABEL_BYTES),
        ("bytes of a `cache_key`", limits::CACHE_KEY_BYTES),
        ("cached dependencies", limits::CACHED_DEPENDENCIES),
        ("open files of a program", usize::try_from(limits::NOFILE).unwrap()),
        ("entries of a folder in an answer", limits::FILE_ENTRIES),
        ("bytes of a file in an answer", limits::FILE_BYTES),
        ("bytes of the path and the arguments of an `instance exec` program", limits::EXEC_BYTES),
        ("bytes of a terminal type", limits::TERMINAL_KIND_BYTES),
        ("bytes of input or output in one message of an `instance exec` session", limits::EXEC_IO_BYTES),
        (
            "milliseconds that a request of such a session waits for output",
            usize::try_from(limits::EXEC_IO_WAIT_MS).unwrap(),
        ),
        ("bytes of a reason", limits::REASON_BYTES),
        ("bytes of a `traceparent`", limits::TRACE_BYTES),
        (
            "bytes that a container may log per minute",
            usize::try_from(limits::OUTPUT_BYTES_PER_MINUTE).unwrap(),
        ),
        ("bytes of a task's result", limits::TASK_RESULT_BYTES),
        ("requests that a process, task or domain remembers", limits::REMEMBERED_REQUESTS),
        ("evaluations that a process or task keeps", limits::KEPT_EVALUATIONS),
        ("rows of a page", limits::PAGE_ROWS),
        ("bytes of a page", limits::PAGE_BYTES),
        (
            "milliseconds that a cursor's position is held",
            usize::try_from(limits::WORLD_SNAPSHOT_HELD_MS).unwrap(),
        ),
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
    let pages = [
        ("nats-api.md", &["Envelope", "Refusal"][..]),
        ("bodies.md", &["bodies"]),
        ("queries.md", &["asked"]),
        ("rows.md", &["answered"]),
        ("types.md", &["parts"]),
        ("codes.md", &["codes"]),
        ("limits.md", &["limits"]),
    ];
    let mut tables = tables();
    for (name, places) in pages {
        let of_page = places.iter().map(|place| (*place, tables.remove(place).expect("a generated table")));
        check_tables(&page("reference").join(name), &of_page.collect());
    }
    assert!(tables.is_empty(), "tables without a page: {:?}", tables.keys());
}

#[test]
fn generated_quota_table_of_model_page_matches_defaults() {
    check_tables(
        &page("internals/model/domains-and-quotas.md"),
        &BTreeMap::from([("quotas", quota_table())]),
    );
}

#[test]
fn spec_pages_have_every_field_of_specs() {
    let text =
        ["spec.md", "actions.md"].map(|name| fs::read_to_string(page("reference").join(name)).unwrap());
    let (text, bundle) = (text.concat(), bundle());
    let mut schemas = vec!["LrpDesire", "TaskDesire", "PeriodicDesire", "ParameterisedDesire"];
    schemas.extend(ACTIONS.into_iter().filter(|name| bundle["$defs"][name]["properties"].is_object()));
    let fields =
        schemas.into_iter().flat_map(|name| bundle["$defs"][name]["properties"].as_object().unwrap());
    let missing: BTreeSet<&str> =
        fields.map(|(field, _)| field.as_str()).filter(|field| !text.contains(field)).collect();
    assert!(missing.is_empty(), "reference/spec.md and actions.md lack {missing:?}");
}

#[test]
fn reference_pages_list_every_command_query_and_code() {
    let text = |name: &str| fs::read_to_string(page("reference").join(name)).unwrap();
    let has_row =
        |name: &str, of: &str| text(name).lines().any(|line| line.starts_with(&format!("| `{of}` |")));
    for command in ClientVerb::ALL.iter().copied().map(ClientVerb::noun_and_verb).map(name) {
        assert!(has_row("bodies.md", &command), "bodies.md has no row for {command}");
    }
    for query in QueryVerb::ALL.iter().copied().map(QueryVerb::noun_and_verb).map(name) {
        assert!(has_row("queries.md", &query), "queries.md has no row for {query}");
    }
    for command in OperatorVerb::ALL.iter().copied().map(OperatorVerb::noun_and_verb).map(name) {
        let subject = format!("muster.operator.<operator>.{command}");
        assert!(text("bodies.md").contains(&subject), "bodies.md lacks {subject}");
    }
    for code in schemars::schema_for!(Code).to_value()["oneOf"].as_array().unwrap() {
        let code = code["const"].as_str().unwrap();
        assert!(has_row("codes.md", code), "codes.md has no row for {code}");
    }
}
