//! Specs of parameterised tasks and of their dispatches. The spec of a parameterised task contains a task
//! definition, the rules for payloads and parameters, and the concurrency limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::actions::take_variables;
use super::periodic::take_launcher_guid;
use super::policies::take_word;
use super::{
    DefaultDomain, UNSUPPORTED_FIELDS, check_size, compact, must_domain, take_priority, take_task_definition,
    task_definition_to_json, with_field,
};
use crate::action::{Secret, Variable};
use crate::definition::{DesiredParameterised, Overflow, PayloadRule};
use crate::fields::{Field, Fields};
use crate::limits;
use crate::names::ParameterisedGuid;
use crate::parameterised::Dispatch;

const PAYLOAD_RULES: [(&str, PayloadRule); 3] = [
    ("required", PayloadRule::Required),
    ("optional", PayloadRule::Optional),
    ("forbidden", PayloadRule::Forbidden),
];

const OVERFLOWS: [(&str, Overflow); 2] = [("queued", Overflow::Queued), ("refused", Overflow::Refused)];

/// Converts a parameterised task to JSON that [`take`] can parse.
pub(super) fn to_json(desired: &DesiredParameterised) -> Value {
    let mut value = compact(json!({
        "parameterised_guid": desired.parameterised_guid,
        "domain": desired.domain,
        "payload": desired.payload,
        "required_parameters": desired.required_parameters,
        "optional_parameters": desired.optional_parameters,
        "concurrency": desired.concurrency,
        "overflow": desired.concurrency.map(|_| desired.overflow),
    }));
    if let (Value::Object(all), Value::Object(definition)) =
        (&mut value, compact(task_definition_to_json(&desired.definition)))
    {
        all.extend(definition);
    }
    value
}

pub(super) fn take(root: Field<'_>, default_domain: DefaultDomain<'_>) -> Option<DesiredParameterised> {
    check_size(&root);
    let (path, problems) = (root.path.clone(), root.problems);
    let mut fields = root.object_of::<DesiredParameterised>("ParameterisedDesire")?;
    let parameterised_guid = fields.required("parameterised_guid", |field| {
        let most = limits::PARAMETERISED_GUID_BYTES;
        take_launcher_guid(field, most, "dispatch-NUMBER", ParameterisedGuid::as_str)
    });
    let domain = must_domain(&mut fields, default_domain);
    let payload =
        fields.with_default("payload", PayloadRule::default(), |field| take_word(field, &PAYLOAD_RULES));
    let required_parameters = fields.with_default("required_parameters", BTreeSet::new(), take_names);
    let optional_parameters = fields.with_default("optional_parameters", BTreeSet::new(), take_names);
    let both = required_parameters
        .iter()
        .flatten()
        .find(|name| optional_parameters.as_ref().is_some_and(|optional| optional.contains(*name)));
    if let Some(name) = both {
        fields.bad("optional_parameters", format!("{name} is also in required_parameters"));
    }
    let concurrency = fields.optional("concurrency", |field| field.number_32(1..=limits::CONCURRENCY));
    let overflow = fields.optional("overflow", |field| take_word(field, &OVERFLOWS));
    if let (Some(None), Some(Some(_))) = (concurrency, overflow) {
        fields.bad("overflow", "has no effect without concurrency");
    }
    let definition = take_task_definition(&mut fields);
    fields.finish(UNSUPPORTED_FIELDS);
    let desired = DesiredParameterised {
        parameterised_guid: parameterised_guid?,
        domain: domain?,
        payload: payload?,
        required_parameters: required_parameters?,
        optional_parameters: optional_parameters?,
        concurrency: concurrency?,
        overflow: overflow?.unwrap_or_default(),
        definition: Arc::new(definition?),
    };
    let bytes = serde_json::to_vec(&desired).map_or(usize::MAX, |text| text.len());
    if bytes > limits::PARAMETERISED_BYTES {
        let name = if path.is_empty() { "message" } else { &path };
        let most = limits::PARAMETERISED_BYTES;
        problems.add(name, format!("takes {bytes} bytes of the log, more than {most}"));
    }
    Some(desired)
}

/// Parses names of parameters.
fn take_names(field: Field<'_>) -> Option<BTreeSet<String>> {
    let mut set = BTreeSet::new();
    field.list_of(limits::PARAMETERS, |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        field.records("pattern", "^[A-Za-z_][A-Za-z0-9_]{0,63}$");
        let name = field.text(usize::MAX)?;
        if let Some(problem) = name_fault(&name) {
            problems.add(path, problem);
        } else if !set.insert(name) {
            problems.add(path, "is given twice");
        }
        Some(())
    })?;
    Some(set)
}

/// Returns the problem with a parameter name, or `None` if the name is valid. The name becomes part of the
/// name of a variable, which every shell must be able to read.
fn name_fault(name: &str) -> Option<String> {
    let legal =
        |at: usize, byte: u8| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit());
    let right = (1..=limits::PARAMETER_NAME_BYTES).contains(&name.len())
        && name.bytes().enumerate().all(|(at, byte)| legal(at, byte));
    let shown = limits::truncate(name, 80);
    let most = limits::PARAMETER_NAME_BYTES;
    (!right).then(|| {
        format!(
            "{shown:?} is not a valid parameter name: use 1 to {most} of A-Z a-z 0-9 _, without a \
             leading digit"
        )
    })
}

/// Parses a dispatch. The guid of the parameterised task is parsed separately.
pub(super) fn take_dispatch(fields: &mut Fields<'_>) -> Option<Dispatch> {
    fields.document_by::<Dispatch>();
    let payload = fields.optional("payload", take_payload);
    let parameters = fields.with_default("parameters", vec![], take_parameters);
    let key = fields.optional("key", Field::name);
    let priority = fields.optional("priority", take_priority);
    Some(Dispatch { payload: payload?, parameters: parameters?, key: key?, priority: priority? })
}

/// Problem text for a secret in a dispatch. Dispatched values are never sealed.
const NO_SECRETS: &str = "cannot be a secret: put secrets into the environment of the parameterised task";

/// Parses a payload in base64. The base64 text is stored unchanged. It must be canonical, so that equal bytes
/// result in an equal payload.
fn take_payload(field: Field<'_>) -> Option<Secret> {
    let (path, problems) = (field.path.clone(), field.problems);
    if field.value.is_object() {
        return field.bad(NO_SECRETS);
    }
    field.records("contentEncoding", "base64");
    let text = field.text(usize::MAX)?;
    let bytes = match BASE64.decode(text.as_bytes()) {
        Ok(bytes) => bytes,
        Err(error) => {
            problems.add(path, format!("must be base64 (RFC 4648, with padding): {error}"));
            return None;
        }
    };
    if bytes.len() > limits::PAYLOAD_BYTES {
        problems.add(path, format!("has {} bytes, more than {}", bytes.len(), limits::PAYLOAD_BYTES));
        return None;
    }
    Some(Secret::Plain(text.into()))
}

fn take_parameters(field: Field<'_>) -> Option<Vec<Variable>> {
    let (path, problems) = (field.path.clone(), field.problems);
    let mut parameters = take_variables(field)?;
    for Variable { name, value } in &parameters {
        if let Some(problem) = name_fault(name) {
            problems.add(&path, problem);
        }
        if value.plain().is_none() {
            problems.add(format!("{path}.{name}"), NO_SECRETS);
        }
    }
    if parameters.len() > limits::PARAMETERS {
        let most = limits::PARAMETERS;
        problems.add(&path, format!("has {} parameters, more than {most}", parameters.len()));
    }
    let size = |one: &Variable| one.name.len() + one.value.plain().map_or(0, str::len);
    let bytes: usize = parameters.iter().map(size).sum();
    if bytes > limits::PARAMETERS_BYTES {
        problems.add(&path, format!("has {bytes} bytes, more than {}", limits::PARAMETERS_BYTES));
    }
    parameters.sort_by(|one, other| one.name.cmp(&other.name));
    Some(parameters)
}

/// Converts a dispatch to JSON that [`take_dispatch`] can parse.
pub(super) fn dispatch_to_json(dispatch: &Dispatch) -> Value {
    let value = compact(json!({
        "parameters": dispatch.parameters,
        "key": dispatch.key,
        "priority": dispatch.priority,
    }));
    // The payload is added after the removal of empty fields, because an empty payload differs from an absent
    // payload.
    dispatch.payload.as_ref().map_or(value.clone(), |payload| with_field(value, "payload", json!(payload)))
}

/// Encodes a payload for a dispatch.
#[must_use]
pub fn payload(bytes: &[u8]) -> Secret {
    Secret::Plain(BASE64.encode(bytes).into())
}
