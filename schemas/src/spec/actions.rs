//! Parses action trees and environments of specs. Depth and size are checked during parsing, so even a very
//! deep tree cannot cause unbounded recursion.

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::transfers;
use crate::action::{
    Action, Download, EmitProgress, Group, ResourceLimits, Run, Sealed, Secret, Timeout, Try, Upload,
    Variable, variable_faults,
};
use crate::fields::{Field, Fields, nearest};
use crate::limits::{self, ACTION_DEPTH, ACTION_NODES};
use crate::sight::HIDDEN_KEY;

/// Names of the actions.
const KINDS: [&str; 9] =
    ["run", "timeout", "try", "parallel", "serial", "codependent", "emit_progress", "download", "upload"];

/// Fields of Diego's actions that Muster does not support.
const UNSUPPORTED_FIELDS: &[(&str, &str)] =
    &[("volume_mounted_files", "no files are mounted into a container")];

/// Parses an action tree.
pub(super) fn take(root: Field<'_>) -> Option<Action> {
    let (path, problems) = (root.path.clone(), root.problems);
    let mut nodes = 0;
    let action = take_node(root, NodeContext { depth: ACTION_DEPTH, source: "" }, &mut nodes);
    if nodes > ACTION_NODES {
        problems.add(path, format!("has more than {ACTION_NODES} actions"));
        return None;
    }
    action
}

/// Converts an action tree to JSON that [`take`] can parse. Default values are omitted.
pub(super) fn to_json(action: &Action) -> Value {
    without_defaults(json!(action))
}

/// Removes the empty fields of objects, except for values of variables, which may be empty.
fn without_defaults(value: Value) -> Value {
    let is_default = |name: &str, value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty() && name != "value",
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    };
    match value {
        Value::Object(object) => {
            let fields = object.into_iter().map(|(name, part)| (name, without_defaults(part)));
            Value::Object(fields.filter(|(name, part)| !is_default(name, part)).collect())
        }
        Value::Array(list) => list.into_iter().map(without_defaults).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Position of an action in a tree.
#[derive(Clone, Copy)]
struct NodeContext<'a> {
    /// Number of remaining levels, including this level.
    depth: usize,
    /// Log source for actions that set none, inherited from an enclosing action.
    source: &'a str,
}

/// Parses an action and its children. As in Diego, a `log_source` applies to all actions below it that set no
/// `log_source`. The actions that write log lines store it.
fn take_node(field: Field<'_>, within: NodeContext<'_>, nodes: &mut usize) -> Option<Action> {
    *nodes += 1;
    if *nodes > ACTION_NODES {
        return None;
    }
    if within.depth == 0 {
        return field.bad(format!("is nested deeper than {ACTION_DEPTH} actions"));
    }
    let mut take = |kind, body| take_body(kind, body, within, nodes);
    if field.records_variants::<Action, _>("ActionSpec", &KINDS, &mut take) {
        return None;
    }
    let (kind, body) = take_kind(field)?;
    take(kind, body)
}

fn take_body(kind: &str, body: Field<'_>, within: NodeContext<'_>, nodes: &mut usize) -> Option<Action> {
    match kind {
        "run" => take_fields::<Run, _>(body, "RunSpec", within, |fields, below| {
            take_run(fields, below.source).map(Action::Run)
        }),
        "download" => take_fields::<Download, _>(body, "DownloadSpec", within, |fields, below| {
            transfers::take_download(fields, below.source).map(Action::Download)
        }),
        "upload" => take_fields::<Upload, _>(body, "UploadSpec", within, |fields, below| {
            transfers::take_upload(fields, below.source).map(Action::Upload)
        }),
        "timeout" => take_fields::<Timeout, _>(body, "TimeoutSpec", within, |fields, below| {
            let timeout_ms = fields.required("timeout_ms", |field| field.number(1..=limits::DURATION_MS));
            let action = take_child(fields, below, nodes);
            Some(Action::Timeout(Timeout { action: action?, timeout_ms: timeout_ms? }))
        }),
        "try" => take_fields::<Try, _>(body, "TrySpec", within, |fields, below| {
            take_child(fields, below, nodes).map(|action| Action::Try(Try { action }))
        }),
        "parallel" => take_group_action(body, within, nodes, Action::Parallel),
        "serial" => take_group_action(body, within, nodes, Action::Serial),
        "codependent" => take_group_action(body, within, nodes, Action::Codependent),
        "emit_progress" => {
            take_fields::<EmitProgress, _>(body, "EmitProgressSpec", within, |fields, below| {
                take_progress(fields, below, nodes).map(Action::EmitProgress)
            })
        }
        other => unreachable!("take_kind returned {other}, which has no arm"),
    }
}

/// Parses the fields of an action of the type `D`, and the `log_source` that every action may have.
fn take_fields<D: JsonSchema, T>(
    body: Field<'_>,
    name: &'static str,
    within: NodeContext<'_>,
    take: impl FnOnce(&mut Fields<'_>, NodeContext<'_>) -> Option<T>,
) -> Option<T> {
    let mut fields = body.object_of::<D>(name)?;
    fields.document(
        "log_source",
        "Source label of the log lines of the actions below, unless they set their own.",
    );
    let own = fields.with_default("log_source", String::new(), take_label);
    let source = own.as_deref().filter(|own| !own.is_empty()).unwrap_or(within.source);
    let action = take(&mut fields, NodeContext { depth: within.depth - 1, source });
    fields.finish(UNSUPPORTED_FIELDS);
    own.and(action)
}

/// Parses a label of log lines or metrics.
pub(super) fn take_label(field: Field<'_>) -> Option<String> {
    let (path, problems) = (field.path.clone(), field.problems);
    let label = field.text(limits::LABEL_BYTES)?;
    if label.contains(char::is_control) {
        problems.add(path, "must not contain control characters");
    }
    Some(label)
}

/// Splits an action into its kind and its body.
fn take_kind(field: Field<'_>) -> Option<(&'static str, Field<'_>)> {
    let (path, problems) = (field.path.clone(), field.problems);
    let mut entries = field.entries()?;
    let (Some((word, body)), true) = (entries.pop(), entries.is_empty()) else {
        problems.add(path, format!("must be exactly one of {}", KINDS.join(", ")));
        return None;
    };
    let known = KINDS.into_iter().find(|kind| *kind == word);
    if known.is_none() {
        let problem = match nearest(&word, &KINDS) {
            Some(near) => format!("is not an action: did you mean {near}?"),
            None => format!("is not an action: use one of {}", KINDS.join(", ")),
        };
        return body.bad(problem);
    }
    known.map(|kind| (kind, body))
}

fn take_child(fields: &mut Fields<'_>, within: NodeContext<'_>, nodes: &mut usize) -> Option<Box<Action>> {
    fields.required("action", |field| take_node(field, within, nodes)).map(Box::new)
}

fn take_group_action(
    body: Field<'_>,
    within: NodeContext<'_>,
    nodes: &mut usize,
    action: fn(Group) -> Action,
) -> Option<Action> {
    take_fields::<Group, _>(body, "GroupSpec", within, |fields, below| {
        take_group(fields, below, nodes).map(action)
    })
}

fn take_group(fields: &mut Fields<'_>, within: NodeContext<'_>, nodes: &mut usize) -> Option<Group> {
    let actions = fields.required("actions", |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        field.records("minItems", 1);
        let actions = field.list_of(ACTION_NODES, |member| take_node(member, within, nodes))?;
        if actions.is_empty() {
            problems.add(path, "must contain at least one action");
        }
        Some(actions)
    });
    Some(Group { actions: actions? })
}

fn take_progress(
    fields: &mut Fields<'_>,
    within: NodeContext<'_>,
    nodes: &mut usize,
) -> Option<EmitProgress> {
    let action = take_child(fields, within, nodes);
    let mut message = |name| fields.with_default(name, String::new(), |field| field.text(limits::SPEC_BYTES));
    let start_message = message("start_message");
    let success_message = message("success_message");
    let failure_message_prefix = message("failure_message_prefix");
    Some(EmitProgress {
        action: action?,
        start_message: start_message?,
        success_message: success_message?,
        failure_message_prefix: failure_message_prefix?,
        log_source: within.source.to_owned(),
    })
}

fn take_limits(field: Field<'_>) -> Option<ResourceLimits> {
    let mut fields = field.object_of::<ResourceLimits>("ResourceLimitsSpec")?;
    // In Diego's messages, 0 means no limit.
    let nofile = fields.with_default("nofile", 0, |field| field.number(0..=limits::NOFILE));
    fields.finish(&[("nproc", "a cell limits the processes of each container")]);
    Some(ResourceLimits { nofile: nofile.filter(|most| *most > 0) })
}

fn take_run(fields: &mut Fields<'_>, source: &str) -> Option<Run> {
    let text = |field: Field<'_>| field.text(limits::SPEC_BYTES);
    let path = fields.required("path", take_program);
    let args = fields.with_default("args", vec![], |field| field.list_of(usize::MAX, text));
    let dir = fields.with_default("dir", String::new(), |field| field.text(limits::PATH_BYTES));
    let env = fields.with_default("env", vec![], take_variables);
    let suppress_log_output = fields.with_default("suppress_log_output", false, Field::boolean);
    let user = fields.with_default("user", String::new(), |field| field.text(limits::USER_BYTES));
    let resource_limits = fields.with_default("resource_limits", ResourceLimits::default(), take_limits);
    Some(Run {
        path: path?,
        args: args?,
        dir: dir?,
        env: env?,
        suppress_log_output: suppress_log_output?,
        user: user?,
        log_source: source.to_owned(),
        resource_limits: resource_limits?,
    })
}

/// Parses the path of a program.
pub(super) fn take_program(field: Field<'_>) -> Option<String> {
    if field.value.as_str().is_some_and(str::is_empty) {
        return field.bad("must name a program");
    }
    field.records("minLength", 1);
    field.text(limits::PATH_BYTES)
}

/// Parses an environment: a list of `{name, value}`, or an object that maps names to values.
pub(super) fn take_variables(field: Field<'_>) -> Option<Vec<Variable>> {
    let text = "Environment variables: a list of names and values, or an object of them.";
    field.defined("Environment", text, |field| {
        field.either(Value::is_object, take_variable_object, take_variable_list)
    })
}

fn take_variable_object(field: Field<'_>) -> Option<Vec<Variable>> {
    let (path, problems) = (field.path.clone(), field.problems);
    let variable = |name: String, value| Some(Variable { name: name.into(), value: take_secret(value)? });
    let variables = field.map_of(usize::MAX, variable)?;
    // Members of an object have no index, so the problem is reported at the path of the object.
    for (_, problem) in variable_faults(&variables, &path) {
        problems.add(&path, problem);
    }
    Some(variables)
}

fn take_variable_list(field: Field<'_>) -> Option<Vec<Variable>> {
    let (path, problems) = (field.path.clone(), field.problems);
    let variables = field.list_of(limits::ENVIRONMENT_VALUES, take_variable)?;
    for (field, problem) in variable_faults(&variables, &path) {
        problems.add(field, problem);
    }
    for (at, Variable { name, .. }) in variables.iter().enumerate() {
        if variables[..at].iter().any(|other| other.name == *name) {
            problems.add(format!("{path}[{at}].name"), format!("{name} is given twice"));
        }
    }
    Some(variables)
}

fn take_variable(field: Field<'_>) -> Option<Variable> {
    let mut fields = field.object_of::<Variable>("VariableSpec")?;
    let name = fields.required("name", |field| field.text(limits::ENVIRONMENT_BYTES));
    let value = fields.required("value", take_secret);
    fields.finish(&[]);
    Some(Variable { name: name?.into(), value: value? })
}

fn take_secret(field: Field<'_>) -> Option<Secret> {
    take_value(field, |field| field.text(limits::ENVIRONMENT_BYTES))
}

/// Parses a value that may be secret. The value is text, `{"secret": ..}` with text, or `{"sealed": {"key":
/// .., "data": ..}}`.
pub(super) fn take_value(
    field: Field<'_>,
    take_text: impl FnOnce(Field<'_>) -> Option<String>,
) -> Option<Secret> {
    if field.records_type::<Secret>() {
        return None;
    }
    if !field.value.is_object() {
        return take_text(field).map(|text| Secret::Plain(text.into()));
    }
    let (path, problems) = (field.path.clone(), field.problems);
    let mut fields = field.object()?;
    let open = fields.optional("secret", take_text);
    let sealed = fields.optional("sealed", take_sealed);
    if let Some(file) = fields.take("secret_file") {
        return file.bad("is only supported by the command line: set secret to the content of the file");
    }
    fields.finish(&[]);
    match (open?, sealed?) {
        (Some(text), None) => Some(Secret::Open(text.into())),
        (None, Some(sealed)) => Some(Secret::Sealed(Box::new(sealed))),
        (Some(_), Some(_)) | (None, None) => {
            problems.add(path, "must be text, or exactly one of secret and sealed");
            None
        }
    }
}

fn take_sealed(field: Field<'_>) -> Option<Sealed> {
    let mut fields = field.object()?;
    let key = fields.required("key", |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let key = field.text(limits::KEY_ID_BYTES)?;
        if key == HIDDEN_KEY {
            problems.add(&path, "stands for a value that you may not read: write the value instead");
        }
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            problems.add(&path, "must be the id of a key: letters, digits, - and _");
        }
        Some(key)
    });
    let data = fields.required("data", |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let data = field.text(limits::SEALED_BYTES)?;
        if BASE64.decode(data.as_bytes()).is_err() {
            problems.add(path, "must be base64 (RFC 4648, with padding)");
        }
        Some(data)
    });
    fields.finish(&[]);
    Some(Sealed { key: key?, data: data? })
}
