//! Specs: conversion between JSON and the crate's types. The JSON comes from clients, or from a file
//! converted to JSON. A refusal lists every bad field with its path.
//!
//! | function | input |
//! |---|---|
//! | [`lrp`], [`task`], [`periodic`](fn@periodic), [`parameterised`](fn@parameterised) | one DesiredLRP, task, periodic task, parameterised task |
//! | [`document`] | a file: one of them, or lists of them under `lrp`, `task`, `periodic`, `parameterised` and `domain` |
//! | [`client_command`] | a client's message: envelope and body |
//! | [`to_seal`] | a client's request to seal secrets |
//!
//! Field names are those of Diego's API. A field that Diego supports and Muster does not support is refused
//! by name, so that no client relies on it. Values without an effect are accepted.

mod actions;
mod commands;
mod exec;
mod object_name;
mod parameterised;
mod periodic;
mod policies;
mod rules;
mod sandbox;
mod sealing;
mod transfers;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::action::{Secret, Variable};
use crate::definition::{
    DEFAULT_GRACE_MS, Definition, DesiredLrp, DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic,
    DesiredTask, Mode, Placement, Routes, Sandbox, TaskDefinition,
};
use crate::fields::{Field, Fields, Problems, check_document, read_json_unbounded};
use crate::limits;
use crate::names::{DefinitionId, Domain, PlacementTag};
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::resources::Constraint;
use crate::rules::ONE_PER_CELL;
use crate::secret;

pub use commands::{ClientCommand, PeriodicAction, body_schema, client_command, envelope_schema};
pub use object_name::ObjectName;
pub use parameterised::payload;
pub use sealing::{item, item_spec, item_to_json, to_seal};

/// Fields of Diego's LRPs and tasks that Muster does not support, with the reason or the alternative.
const UNSUPPORTED_FIELDS: &[(&str, &str)] = &[
    ("certificate_properties", "containers get no certificates"),
    ("check_definition", "use monitor"),
    ("image_layers", "use cached_dependencies, or a download in setup"),
    ("image_password", "images come from folders of the cell, not from a registry"),
    ("image_username", "images come from folders of the cell, not from a registry"),
    ("log_rate_limit", "a log is limited by its size"),
    ("max_pids", "a cell limits the processes of each container"),
    ("metric_tags", ""),
    ("privileged", "containers have no rights on their host"),
    ("sidecars", "use codependent"),
    ("start_timeout_s", "use start_timeout_ms"),
    ("trusted_system_certificates_path", "a container uses those of its file system"),
    ("update_strategy", "use policies"),
    ("volume_mounted_files", "no files are mounted into a container"),
    ("volume_mounts", "containers have no volumes"),
];

/// An item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Lrp(Box<DesiredLrp>),
    Task(Box<DesiredTask>),
    Periodic(Box<DesiredPeriodic>),
    Parameterised(Box<DesiredParameterised>),
    /// A domain that the file marks as fresh.
    Domain {
        domain: Domain,
        /// Duration of the freshness in milliseconds. `None` if the domain stays fresh forever.
        ttl_ms: Option<u64>,
    },
}

impl Item {
    /// Returns the name of the list of such items in a file.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Lrp(_) => "lrp",
            Self::Task(_) => "task",
            Self::Periodic(_) => "periodic",
            Self::Parameterised(_) => "parameterised",
            Self::Domain { .. } => "domain",
        }
    }

    /// Returns the guid of the item, or the name of the domain.
    fn name(&self) -> &str {
        match self {
            Self::Lrp(lrp) => lrp.process_guid.as_str(),
            Self::Task(task) => task.task_guid.as_str(),
            Self::Periodic(periodic) => periodic.periodic_guid.as_str(),
            Self::Parameterised(one) => one.parameterised_guid.as_str(),
            Self::Domain { domain, .. } => domain.as_str(),
        }
    }
}

/// Parses a DesiredLRP.
///
/// # Errors
/// `InvalidRequest` with every bad field.
pub fn lrp(value: Value) -> Result<DesiredLrp, Refusal> {
    let problems = Problems::default();
    let lrp = open(value, &problems).and_then(|root| take_lrp(root, DefaultDomain::None));
    problems.into_result(lrp)
}

/// Parses a task.
///
/// # Errors
/// `InvalidRequest` with every bad field.
pub fn task(value: Value) -> Result<DesiredTask, Refusal> {
    let problems = Problems::default();
    let task = open(value, &problems).and_then(|root| take_task(root, DefaultDomain::None));
    problems.into_result(task)
}

/// Parses a periodic task.
///
/// # Errors
/// `InvalidRequest` with every bad field.
pub fn periodic(value: Value) -> Result<DesiredPeriodic, Refusal> {
    let problems = Problems::default();
    let periodic = open(value, &problems).and_then(|root| periodic::take(root, DefaultDomain::None));
    problems.into_result(periodic)
}

/// Parses a parameterised task.
///
/// # Errors
/// `InvalidRequest` with every bad field.
pub fn parameterised(value: Value) -> Result<DesiredParameterised, Refusal> {
    let problems = Problems::default();
    let read = open(value, &problems).and_then(|root| parameterised::take(root, DefaultDomain::None));
    problems.into_result(read)
}

/// Parses the JSON text of a file as strictly as a message: trailing text and duplicate keys are errors.
///
/// # Errors
/// `InvalidRequest` with every duplicate key, or with the syntax error.
pub fn json(text: &[u8]) -> Result<Value, Refusal> {
    let problems = Problems::default();
    let value = read_json_unbounded(text, &problems)?;
    problems.into_result(Some(value))
}

/// Parses a file. A file contains one of these:
///
/// - a DesiredLRP, recognised by its `process_guid`
/// - a task, recognised by its `task_guid`
/// - a periodic task, recognised by its `periodic_guid`
/// - a parameterised task, recognised by its `parameterised_guid`
/// - any number of items in the lists `lrp`, `task`, `periodic`, `parameterised` and `domain`
///
/// If `domain` is text, it is the default domain of the items in the file.
///
/// # Errors
/// `InvalidRequest` with every bad field.
pub fn document(value: Value) -> Result<Vec<Item>, Refusal> {
    let problems = Problems::default();
    let items = open(value, &problems).and_then(take_document);
    problems.into_result(items)
}

/// Converts a DesiredLRP to JSON that [`lrp`] can parse. Default policies are omitted.
#[must_use]
pub fn to_json(lrp: &DesiredLrp) -> Value {
    let of_lrp = compact(json!({
        "process_guid": lrp.process_guid,
        "domain": lrp.domain,
        "mode": (lrp.mode == Mode::Global).then_some(lrp.mode),
        "instances": (lrp.mode == Mode::Replicated).then_some(lrp.instances),
        "priority": lrp.priority,
        "routes": routes_to_json(&lrp.routes),
        "annotation": lrp.annotation,
        "definition_id": lrp.definition_id,
    }));
    let mut all = policies::to_json(&lrp.policies);
    for part in [of_lrp, definition_to_json(&lrp.definition)] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// Converts a DesiredLRP to JSON, including policies that have their default values.
#[must_use]
pub fn to_full_json(lrp: &DesiredLrp) -> Value {
    let mut value = to_json(lrp);
    if let Value::Object(object) = &mut value {
        object.extend(policies::all_to_json(&lrp.policies));
    }
    value
}

/// Converts a definition to the JSON form of an update.
fn definition_to_json(definition: &Definition) -> Value {
    let (dependencies, download_user) = dependencies_of(definition.sandbox.as_deref());
    compact(json!({
        "stack": definition.constraint.stack,
        "placement_tags": definition.constraint.placement_tags,
        "isolation": sandbox::isolation_to_json(&definition.constraint.isolation),
        "root_fs": sandbox::root_fs_of(definition.sandbox.as_deref()),
        "network": sandbox::network_of(definition.sandbox.as_deref()),
        "cached_dependencies": dependencies,
        "legacy_download_user": download_user,
        "log_guid": definition.sandbox.as_deref().map(|sandbox| &sandbox.log_guid),
        "log_source": definition.sandbox.as_deref().map(|sandbox| &sandbox.log_source),
        "metrics_guid": definition.sandbox.as_deref().map(|sandbox| &sandbox.metrics_guid),
        "constraints": rules::constraints_to_json(&definition.constraint),
        "affinities": rules::affinities_to_json(&definition.constraint),
        "spread": rules::spread_to_json(&definition.constraint),
        "environment_variables": definition.environment_variables,
        "setup": definition.setup.as_deref().map(actions::to_json),
        "action": actions::to_json(&definition.action),
        "monitor": definition.monitor.as_deref().map(actions::to_json),
        "start_timeout_ms": definition.start_timeout_ms,
        "memory_mb": definition.memory_mb,
        "disk_mb": definition.disk_mb,
        "cpu_weight": definition.cpu_weight,
        "ports": definition.ports,
        "grace_period_ms": definition.grace_period_ms,
    }))
}

/// Converts a task to JSON that [`task`] can parse.
#[must_use]
pub fn task_to_json(task: &DesiredTask) -> Value {
    let mut value = compact(json!({"task_guid": task.task_guid, "domain": task.domain}));
    if let (Value::Object(all), Value::Object(definition)) =
        (&mut value, compact(task_definition_to_json(&task.definition)))
    {
        all.extend(definition);
    }
    value
}

/// Converts a periodic task to JSON that [`periodic`](fn@periodic) can parse.
#[must_use]
pub fn periodic_to_json(periodic: &DesiredPeriodic) -> Value {
    periodic::to_json(periodic)
}

/// Converts a parameterised task to JSON that [`parameterised`](fn@parameterised) can parse.
#[must_use]
pub fn parameterised_to_json(parameterised: &DesiredParameterised) -> Value {
    parameterised::to_json(parameterised)
}

/// Converts a task definition to the JSON fields that tasks, periodic and parameterised tasks share.
fn task_definition_to_json(definition: &TaskDefinition) -> Value {
    let (dependencies, download_user) = dependencies_of(definition.sandbox.as_deref());
    json!({
        "stack": definition.constraint.stack,
        "placement_tags": definition.constraint.placement_tags,
        "isolation": sandbox::isolation_to_json(&definition.constraint.isolation),
        "root_fs": sandbox::root_fs_of(definition.sandbox.as_deref()),
        "network": sandbox::network_of(definition.sandbox.as_deref()),
        "cached_dependencies": dependencies,
        "legacy_download_user": download_user,
        "log_guid": definition.sandbox.as_deref().map(|sandbox| &sandbox.log_guid),
        "log_source": definition.sandbox.as_deref().map(|sandbox| &sandbox.log_source),
        "metrics_guid": definition.sandbox.as_deref().map(|sandbox| &sandbox.metrics_guid),
        "constraints": rules::constraints_to_json(&definition.constraint),
        "affinities": rules::affinities_to_json(&definition.constraint),
        "environment_variables": definition.environment_variables,
        "action": actions::to_json(&definition.action),
        "memory_mb": definition.memory_mb,
        "disk_mb": definition.disk_mb,
        "cpu_weight": definition.cpu_weight,
        "result_file": definition.result_file,
        "completion_callback_url": definition.completion_callback_url,
        "annotation": definition.annotation,
        "priority": definition.priority,
        "placement": definition.placement,
        "grace_period_ms": definition.grace_period_ms,
    })
}

/// Returns the cached dependencies as JSON, and their owner.
fn dependencies_of(sandbox: Option<&Sandbox>) -> (Value, Option<&str>) {
    transfers::dependencies_to_json(sandbox.map_or(&[][..], |sandbox| &sandbox.cached_dependencies))
}

/// Converts routing data to the form that clients use: JSON per router.
#[must_use]
pub fn routes_to_json(routes: &Routes) -> Value {
    let entry = |(router, text): (&String, &String)| {
        let data = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
        (router.clone(), data)
    };
    Value::Object(routes.iter().map(entry).collect())
}

/// Removes empty fields. A parser restores them as empty.
fn compact(mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.retain(|_, part| match part {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(object) => !object.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        });
    }
    value
}

/// Returns the root of a document, if its structure can be parsed.
fn open(value: Value, problems: &Problems) -> Option<Field<'_>> {
    check_document(&value, "", problems).then(|| Field::new(value, String::new(), problems))
}

fn take_document(root: Field<'_>) -> Option<Vec<Item>> {
    let mut fields = match &root.value {
        Value::Object(object) if object.contains_key("process_guid") => {
            return Some(vec![Item::Lrp(Box::new(take_lrp(root, DefaultDomain::None)?))]);
        }
        Value::Object(object) if object.contains_key("task_guid") => {
            return Some(vec![Item::Task(Box::new(take_task(root, DefaultDomain::None)?))]);
        }
        Value::Object(object) if object.contains_key("periodic_guid") => {
            return Some(vec![Item::Periodic(Box::new(periodic::take(root, DefaultDomain::None)?))]);
        }
        Value::Object(object) if object.contains_key("parameterised_guid") => {
            return Some(vec![Item::Parameterised(Box::new(parameterised::take(
                root,
                DefaultDomain::None,
            )?))]);
        }
        Value::Object(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_) => root.object()?,
    };
    let problems = fields.problems();
    let named: Option<Domain>;
    let (default_value, domains) = match fields.take("domain") {
        None => (DefaultDomain::None, Some(vec![])),
        Some(field) if field.value.is_string() => {
            named = field.name();
            (named.as_ref().map_or(DefaultDomain::Bad, DefaultDomain::Domain), Some(vec![]))
        }
        Some(field) => (DefaultDomain::None, one_or_more(field)),
    };
    let lrps = fields.take("lrp").map_or(Some(vec![]), one_or_more);
    let tasks = fields.take("task").map_or(Some(vec![]), one_or_more);
    let periodics = fields.take("periodic").map_or(Some(vec![]), one_or_more);
    let parameterised = fields.take("parameterised").map_or(Some(vec![]), one_or_more);
    fields.finish(&[]);
    let mut items = vec![];
    items.extend(domains?.into_iter().map(take_domain));
    let lrp = |field| take_lrp(field, default_value).map(|lrp| Item::Lrp(Box::new(lrp)));
    items.extend(lrps?.into_iter().map(lrp));
    let task = |field| take_task(field, default_value).map(|task| Item::Task(Box::new(task)));
    items.extend(tasks?.into_iter().map(task));
    let periodic =
        |field| periodic::take(field, default_value).map(|periodic| Item::Periodic(Box::new(periodic)));
    items.extend(periodics?.into_iter().map(periodic));
    let template =
        |field| parameterised::take(field, default_value).map(|one| Item::Parameterised(Box::new(one)));
    items.extend(parameterised?.into_iter().map(template));
    if items.is_empty() {
        let names = "process_guid, task_guid, periodic_guid or parameterised_guid, or a list lrp, task, \
                     periodic, parameterised or domain";
        problems.add("message", format!("defines nothing: expected {names}"));
    }
    let items = items.into_iter().collect::<Option<Vec<Item>>>()?;
    report_duplicates(&items, problems);
    Some(items)
}

/// Returns the items of a list. A single item outside a list is returned as a list of one.
fn one_or_more(field: Field<'_>) -> Option<Vec<Field<'_>>> {
    if field.value.is_object() { Some(vec![field]) } else { field.list(limits::INSTANCES as usize) }
}

/// Reports items that a file names twice, because only one of the two definitions could apply.
fn report_duplicates(items: &[Item], problems: &Problems) {
    let mut seen = BTreeSet::new();
    for item in items {
        let (kind, name) = (item.kind(), item.name());
        if !seen.insert((kind, name)) {
            problems.add(kind, format!("{name} is given twice"));
        }
    }
}

fn take_domain(field: Field<'_>) -> Option<Item> {
    let (domain, ttl_ms) = take_freshness(field)?;
    Some(Item::Domain { domain, ttl_ms })
}

/// Parses a domain and the duration of its freshness in milliseconds.
fn take_freshness(field: Field<'_>) -> Option<(Domain, Option<u64>)> {
    let mut fields = field.object_named("DomainUpsert", "A request to mark a domain as fresh.")?;
    fields.document("domain", "Name of the domain. Must be the domain of the subject.");
    fields.document("ttl_ms", "Duration in milliseconds. By default the domain stays fresh forever.");
    let domain = fields.required("domain", Field::name);
    let ttl_ms = fields.optional("ttl_ms", |field| field.number(0..=limits::DURATION_MS));
    fields.finish(&[]);
    Some((domain?, ttl_ms?))
}

/// Default domain of the items in a file.
#[derive(Clone, Copy)]
enum DefaultDomain<'a> {
    /// The file names no default domain.
    None,
    /// The file names an invalid domain, which has already been reported.
    Bad,
    Domain(&'a Domain),
}

fn must_domain(fields: &mut Fields<'_>, default_domain: DefaultDomain<'_>) -> Option<Domain> {
    match default_domain {
        DefaultDomain::None => fields.required("domain", Field::name),
        DefaultDomain::Bad => fields.optional("domain", Field::name).flatten(),
        DefaultDomain::Domain(domain) => fields.with_default("domain", domain.clone(), Field::name),
    }
}

fn take_lrp(root: Field<'_>, default_domain: DefaultDomain<'_>) -> Option<DesiredLrp> {
    check_size(&root);
    let (path, problems) = (root.path.clone(), root.problems);
    let mut fields = root.object_of::<DesiredLrp>("LrpDesire")?;
    let process_guid = fields.required("process_guid", Field::name);
    let domain = must_domain(&mut fields, default_domain);
    let mode = fields.with_default("mode", Mode::Replicated, |field| policies::take_word(field, &MODES));
    let instances = take_instances_of(mode, &mut fields);
    let priority = fields.with_default("priority", Priority::default(), take_priority);
    let routes = fields.with_default("routes", Routes::new(), take_routes);
    let annotation =
        fields.with_default("annotation", String::new(), |field| field.text(limits::ANNOTATION_BYTES));
    let policies = policies::take(&mut fields);
    let definition_id = fields.optional("definition_id", Field::name::<DefinitionId>);
    let definition = take_definition(&mut fields);
    let rules = definition.as_ref().and_then(|definition| definition.constraint.rules.as_deref());
    if let (Some(Mode::Global), Some(rules)) = (mode, rules) {
        rules::check_single_instance(rules, ONE_PER_CELL, &fields);
    }
    if let (Some(policies), Some(instances)) = (&policies, instances) {
        policies::check(policies, instances, &fields);
    }
    fields.finish(UNSUPPORTED_FIELDS);
    let process_guid: crate::names::ProcessGuid = process_guid?;
    let lrp = DesiredLrp {
        domain: domain?,
        mode: mode?,
        instances: instances?,
        priority: priority?,
        routes: routes?,
        annotation: annotation?,
        policies: policies?,
        // Process guids and definition ids have the same alphabet and maximum length.
        definition_id: definition_id?.or_else(|| DefinitionId::new(process_guid.as_str()).ok())?,
        definition: Arc::new(definition?),
        process_guid,
    };
    check_event(&lrp, &path, problems);
    Some(lrp)
}

fn take_definition(fields: &mut Fields<'_>) -> Option<Definition> {
    fields.document_by::<Definition>();
    let constraint = take_constraint(fields);
    let environment_variables = take_environment(fields);
    let setup = fields.optional("setup", actions::take);
    let action = fields.required("action", actions::take);
    let monitor = fields.optional("monitor", actions::take);
    let start_timeout_ms =
        fields.with_default("start_timeout_ms", 0, |field| field.number(0..=limits::DURATION_MS));
    let memory_mb = fields.with_default("memory_mb", 0, |field| field.number(0..=limits::RESOURCE_MB));
    let disk_mb = fields.with_default("disk_mb", 0, |field| field.number(0..=limits::RESOURCE_MB));
    let cpu_weight = fields.with_default("cpu_weight", 0, |field| field.number_32(0..=limits::CPU_WEIGHT));
    let ports = fields.with_default("ports", vec![], take_ports);
    let grace_period_ms = take_grace(fields);
    let (sandbox, setup, action, monitor) = (sandbox::take(fields), setup?, action?, monitor?);
    let actions = setup.iter().chain([&action]).chain(&monitor);
    Some(Definition {
        constraint: Arc::new(sandbox::with_derived_constraints(
            constraint?,
            sandbox.as_ref()?.as_ref(),
            actions,
            false,
        )),
        environment_variables: environment_variables?,
        setup: setup.map(Arc::new),
        action: Arc::new(action),
        monitor: monitor.map(Arc::new),
        start_timeout_ms: start_timeout_ms?,
        memory_mb: memory_mb?,
        disk_mb: disk_mb?,
        cpu_weight: cpu_weight?,
        ports: ports?.into(),
        grace_period_ms: grace_period_ms?,
        sandbox: sandbox?.map(Arc::new),
    })
}

fn take_task(root: Field<'_>, default_domain: DefaultDomain<'_>) -> Option<DesiredTask> {
    check_size(&root);
    let (path, problems) = (root.path.clone(), root.problems);
    let mut fields = root.object_of::<DesiredTask>("TaskDesire")?;
    let task_guid = fields.required("task_guid", periodic::take_task_guid);
    let domain = must_domain(&mut fields, default_domain);
    let definition = take_task_definition(&mut fields);
    fields.finish(UNSUPPORTED_FIELDS);
    let task = DesiredTask { task_guid: task_guid?, domain: domain?, definition: Arc::new(definition?) };
    check_event(&task, &path, problems);
    Some(task)
}

fn take_task_definition(fields: &mut Fields<'_>) -> Option<TaskDefinition> {
    fields.document_by::<TaskDefinition>();
    let constraint = take_constraint(fields);
    if let Some(rules) = constraint.as_ref().and_then(|constraint| constraint.rules.as_deref()) {
        rules::check_single_instance(rules, "a task has one instance", fields);
    }
    fields.leave_out("spread");
    let environment_variables = take_environment(fields);
    let action = fields.required("action", actions::take);
    let memory_mb = fields.with_default("memory_mb", 0, |field| field.number(0..=limits::RESOURCE_MB));
    let disk_mb = fields.with_default("disk_mb", 0, |field| field.number(0..=limits::RESOURCE_MB));
    let cpu_weight = fields.with_default("cpu_weight", 0, |field| field.number_32(0..=limits::CPU_WEIGHT));
    let result_file = fields.with_default("result_file", String::new(), take_result_file);
    let completion_callback_url = fields.optional("completion_callback_url", take_url);
    let annotation =
        fields.with_default("annotation", String::new(), |field| field.text(limits::ANNOTATION_BYTES));
    let priority = fields.with_default("priority", Priority::default(), take_priority);
    let placement = fields.with_default("placement", Placement::Fail, take_placement);
    let grace_period_ms = take_grace(fields);
    let (sandbox, action) = (sandbox::take(fields), action?);
    Some(TaskDefinition {
        constraint: sandbox::with_derived_constraints(
            constraint?,
            sandbox.as_ref()?.as_ref(),
            [&action],
            result_file.as_ref()?.starts_with('/'),
        ),
        environment_variables: environment_variables?,
        action,
        memory_mb: memory_mb?,
        disk_mb: disk_mb?,
        cpu_weight: cpu_weight?,
        result_file: result_file?,
        completion_callback_url: completion_callback_url?,
        annotation: annotation?,
        priority: priority?,
        placement: placement?,
        grace_period_ms: grace_period_ms?,
        sandbox: sandbox?.map(Arc::new),
    })
}

fn take_constraint(fields: &mut Fields<'_>) -> Option<Constraint> {
    fields.document_by::<Constraint>();
    let stack = fields.optional("stack", Field::name);
    let placement_tags = fields.with_default("placement_tags", BTreeSet::new(), take_tags);
    let walls = fields.with_default("isolation", BTreeSet::new(), sandbox::take_isolation);
    let rules = rules::take(fields);
    Some(Constraint { stack: stack?, placement_tags: placement_tags?, isolation: walls?, rules: rules? })
}

fn take_tags(field: Field<'_>) -> Option<BTreeSet<PlacementTag>> {
    let mut set = BTreeSet::new();
    field.records("uniqueItems", true);
    field.list_of(limits::PLACEMENT_TAGS, |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        if !set.insert(field.name::<PlacementTag>()?) {
            problems.add(path, "is given twice");
        }
        Some(())
    })?;
    Some(set)
}

/// Parses `environment_variables`, or its short form `env`.
fn take_environment(fields: &mut Fields<'_>) -> Option<Vec<Variable>> {
    fields.document("env", "Short name of `environment_variables`.");
    // Both fields are taken before either field is checked. Otherwise an error in one field would report the
    // other field as unknown.
    let long = fields.optional("environment_variables", actions::take_variables);
    let short = fields.optional("env", actions::take_variables);
    let (long, short) = (long?, short?);
    if long.is_some() && short.is_some() {
        fields.bad("env", "is the short name of environment_variables: set only one of them");
    }
    Some(long.or(short).unwrap_or_default())
}

fn take_grace(fields: &mut Fields<'_>) -> Option<u64> {
    fields.with_default("grace_period_ms", DEFAULT_GRACE_MS, |field| field.number(0..=limits::GRACE_MS))
}

const MODES: [(&str, Mode); 2] = [("replicated", Mode::Replicated), ("global", Mode::Global)];

/// Parses the number of desired instances. The number is 0 for a global process, which runs one instance on
/// each cell.
fn take_instances_of(mode: Option<Mode>, fields: &mut Fields<'_>) -> Option<u32> {
    let given = fields.optional("instances", take_instances)?;
    match (mode, given) {
        (Some(Mode::Global), Some(_)) => {
            fields
                .bad("instances", "cannot be set with mode global: one instance runs on each cell that fits");
            None
        }
        (Some(Mode::Global), None) => Some(0),
        (Some(Mode::Replicated) | None, given) => Some(given.unwrap_or(1)),
    }
}

fn take_instances(field: Field<'_>) -> Option<u32> {
    field.number_32(0..=limits::INSTANCES)
}

fn take_priority(field: Field<'_>) -> Option<Priority> {
    if field.records_type::<Priority>() {
        return None;
    }
    let number = field.number(limits::MIN_PRIORITY.into()..=limits::MAX_PRIORITY.into())?;
    u8::try_from(number).ok().and_then(Priority::new)
}

fn take_ports(field: Field<'_>) -> Option<Vec<u16>> {
    let mut seen = BTreeSet::new();
    field.records("uniqueItems", true);
    field.list_of(limits::PORTS, |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let port = u16::try_from(field.number(1..=65_535)?).ok()?;
        if !seen.insert(port) {
            problems.add(path, format!("{port} is given twice"));
        }
        Some(port)
    })
}

fn take_routes(field: Field<'_>) -> Option<Routes> {
    if field.records("type", "object") {
        return None;
    }
    let (path, problems) = (field.path.clone(), field.problems);
    let entries = field.entries()?;
    let routes: Routes = entries.into_iter().map(|(name, data)| (name, data.value.to_string())).collect();
    let bytes: usize = routes.iter().map(|(name, text)| name.len() + text.len()).sum();
    if bytes > limits::ROUTES_BYTES {
        problems.add(path, format!("has {bytes} bytes, more than {}", limits::ROUTES_BYTES));
        return None;
    }
    Some(routes)
}

/// Folders in which a result file may have an absolute path. Absolute paths require a container with its own
/// file system.
const RESULT_FOLDERS: [&str; 3] = ["/tmp/", "/var/tmp/", "/home/vcap/"];

/// Parses the path of a result file. The container must be able to write the file, so that no other file of
/// the cell can be read as a result.
fn take_result_file(field: Field<'_>) -> Option<String> {
    let (path, problems) = (field.path.clone(), field.problems);
    let file = field.text(limits::PATH_BYTES)?;
    let is_elsewhere = file.starts_with('/') && !RESULT_FOLDERS.iter().any(|folder| file.starts_with(folder));
    if is_elsewhere || file.split('/').any(|part| part == "..") {
        problems.add(
            path,
            "must be relative to the work directory, or in /tmp or /home/vcap, and not lead out of it",
        );
        return None;
    }
    Some(file)
}

/// Parses a URL. A URL that contains a password or a token is treated as a secret, even without the client's
/// secret marker.
fn take_url(field: Field<'_>) -> Option<Secret> {
    actions::take_value(field, take_url_text).map(|url| match url {
        Secret::Plain(url) if secret::contains_secret(&url) => Secret::Open(url),
        Secret::Plain(_) | Secret::Open(_) | Secret::Sealed(_) => url,
    })
}

fn take_url_text(field: Field<'_>) -> Option<String> {
    let (path, problems) = (field.path.clone(), field.problems);
    let url = field.text(limits::URL_BYTES)?;
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        problems.add(path, "must be a URL that starts with http:// or https://");
        return None;
    }
    Some(url)
}

fn take_placement(field: Field<'_>) -> Option<Placement> {
    let text = "Behaviour of a task that cannot be placed: `fail`, or to wait for room until a deadline.";
    field.defined("PlacementSpec", text, |field| field.either(Value::is_string, take_fail, take_queue))
}

fn take_fail(field: Field<'_>) -> Option<Placement> {
    if field.records("const", "fail") {
        return None;
    }
    match field.value.as_str() {
        Some("fail") => Some(Placement::Fail),
        Some(_) | None => field.bad(r#"must be "fail" or {"queue": {"deadline_ms": ..}}"#),
    }
}

fn take_queue(field: Field<'_>) -> Option<Placement> {
    let mut fields = field.object()?;
    fields.document("queue", "Wait for free resources, and fail at the deadline.");
    let placement = fields.required("queue", |field| {
        let mut queue = field.object()?;
        queue.document("deadline_ms", "Time from the creation of the task to the deadline, in milliseconds.");
        let deadline_ms = queue.required("deadline_ms", |field| field.number(1..=limits::DURATION_MS));
        queue.finish(&[]);
        Some(Placement::Queue { deadline_ms: deadline_ms? })
    });
    fields.finish(&[]);
    placement
}

/// Parses changes to a process. The process guid is parsed separately.
fn take_update(fields: &mut Fields<'_>) -> Option<DesiredLrpUpdate> {
    fields.document_by::<DesiredLrpUpdate>();
    let instances = fields.optional("instances", take_instances);
    let priority = fields.optional("priority", take_priority);
    let routes = fields.optional("routes", take_routes);
    let annotation = fields.optional("annotation", |field| field.text(limits::ANNOTATION_BYTES));
    let policies = fields.optional("policies", policies::take_object);
    Some(DesiredLrpUpdate {
        instances: instances?,
        priority: priority?,
        routes: routes?,
        annotation: annotation?,
        policies: policies?,
    })
}

/// Parses the definition of an update and its id. The default id is derived from the content.
fn take_new_definition(fields: &mut Fields<'_>) -> Option<Option<(DefinitionId, Arc<Definition>)>> {
    fields.document("definition_id", "Id of the definition. The default is derived from its content.");
    fields.document("definition", "New definition. Starts a rollout, unless every instance already runs it.");
    let definition_id = fields.optional("definition_id", Field::name::<DefinitionId>);
    let definition = fields.optional("definition", |field| {
        check_size(&field);
        let (path, problems) = (field.path.clone(), field.problems);
        let mut fields = field.object_of::<Definition>("DefinitionSpec")?;
        let definition = take_definition(&mut fields);
        fields.finish(UNSUPPORTED_FIELDS);
        let definition = definition?;
        check_event(&definition, &path, problems);
        Some(Arc::new(definition))
    });
    match (definition_id?, definition?) {
        (None, None) => Some(None),
        (Some(id), Some(definition)) => Some(Some((id, definition))),
        (None, Some(definition)) => Some(Some((content_id(&definition)?, definition))),
        (Some(_), None) => {
            fields.bad("definition_id", "requires a definition: set it too, or activate an existing one");
            None
        }
    }
}

/// Derives a definition id from the content. Equal definitions have equal ids. `None` if the definition
/// cannot be encoded.
#[must_use]
pub fn content_id(definition: &Definition) -> Option<DefinitionId> {
    let text = serde_json::to_vec(definition).ok()?;
    DefinitionId::new(&format!("{:016x}", crate::checksum::crc64(&[&text]))).ok()
}

/// Returns the definition id for a process whose definition replaces an earlier one. A definition that is
/// named after its process counts as unnamed, and gets an id derived from its content. Any other definition
/// keeps the id that the client set.
#[must_use]
pub fn own_definition_id(lrp: &DesiredLrp) -> DefinitionId {
    let unnamed = lrp.definition_id.as_str() == lrp.process_guid.as_str();
    let content = unnamed.then(|| content_id(&lrp.definition)).flatten();
    content.unwrap_or_else(|| lrp.definition_id.clone())
}

/// Checks the size of a spec without its routes, which have their own limit.
fn check_size(spec: &Field<'_>) {
    let bytes = match &spec.value {
        Value::Object(object) => object.iter().filter(|(name, _)| *name != "routes").map(field_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => 0,
    };
    if bytes > limits::SPEC_BYTES {
        let size = format!("has {bytes} bytes without its routes, more than {}", limits::SPEC_BYTES);
        spec.bad::<()>(size);
    }
}

fn field_bytes((name, value): (&String, &Value)) -> usize {
    name.len() + value.to_string().len()
}

/// Checks the size of the event that records the item. The event can be larger than the spec, because it
/// stores routes as text in which JSON escapes each quote.
fn check_event(desired: &impl Serialize, path: &str, problems: &Problems) {
    let bytes = serde_json::to_vec(desired).map_or(usize::MAX, |text| text.len());
    let most = limits::DECISION_BYTES - limits::DECISION_HEAD_BYTES;
    if bytes > most {
        let name = if path.is_empty() { "message" } else { path };
        problems.add(name, format!("takes {bytes} bytes of the log, more than {most}"));
    }
}

/// Returns an object with one field added.
fn with_field(mut value: Value, name: &str, more: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.insert(name.to_owned(), more);
    }
    value
}

/// Converts changes to a process to JSON, without the process guid. Unchanged fields are omitted.
fn update_to_json(update: &DesiredLrpUpdate) -> Value {
    let mut object = Map::new();
    if let Some(instances) = update.instances {
        object.insert("instances".into(), instances.into());
    }
    if let Some(priority) = update.priority {
        object.insert("priority".into(), u8::from(priority).into());
    }
    if let Some(routes) = &update.routes {
        object.insert("routes".into(), routes_to_json(routes));
    }
    if let Some(annotation) = &update.annotation {
        object.insert("annotation".into(), annotation.as_str().into());
    }
    if let Some(policies) = &update.policies {
        object.insert("policies".into(), Value::Object(policies::to_json(policies)));
    }
    Value::Object(object)
}
