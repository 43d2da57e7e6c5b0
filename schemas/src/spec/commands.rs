//! Commands of clients, as sent on `muster.client.<domain>.<client>.<noun>.<verb>`.

use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use super::policies::take_word;
use super::{
    DefaultDomain, definition_to_json, exec, parameterised, periodic, take_freshness, take_lrp,
    take_new_definition, take_task, take_update, task_to_json, to_json, update_to_json, with_field,
};
use crate::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic, DesiredTask,
};
use crate::exec::Exec;
use crate::fields::{Field, Fields, Problems, check_document, describe, nearest, read_json};
use crate::limits;
use crate::message::Envelope;
use crate::names::{
    BadName, DefinitionId, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use crate::parameterised::Dispatch;
use crate::process::{Purpose, RolloutControl};
use crate::refusal::{BadField, Code, Refusal};
use crate::subject::Position;
use crate::verb::ClientVerb;

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCommand {
    /// `lrp.desire`: desires a process.
    LrpDesire(Box<DesiredLrp>),
    /// `lrp.update`: changes the scale, priority, routes, annotation, policies or definition of a process.
    LrpUpdate {
        process_guid: ProcessGuid,
        /// Changes that do not restart instances.
        update: DesiredLrpUpdate,
        /// New active definition and its id.
        definition: Option<(DefinitionId, Arc<Definition>)>,
    },
    /// `lrp.activate`: moves every instance to a definition that the process already has.
    LrpActivate { process_guid: ProcessGuid, definition_id: DefinitionId },
    /// `lrp.restart`: replaces every instance by a new instance with the same definition content.
    LrpRestart { process_guid: ProcessGuid, purpose: Purpose },
    /// `lrp.pause`, `lrp.resume`, `lrp.rollback`: control the rollout of a process.
    LrpSteer { process_guid: ProcessGuid, steer: RolloutControl },
    /// `lrp.remove`: removes a desired process.
    LrpRemove { process_guid: ProcessGuid },
    /// `lrp.retire`: stops one instance. If the index is still desired, a new instance starts.
    LrpRetire {
        process_guid: ProcessGuid,
        index: u32,
        /// Definition of the instance. `None` selects the active definition if the index has instances of
        /// several definitions.
        definition_id: Option<DefinitionId>,
    },
    /// `lrp.retry`: retries an evaluation of a process immediately.
    LrpRetry { process_guid: ProcessGuid, evaluation: EvaluationId },
    /// `instance.exec`: runs a program in the container of an instance.
    InstanceExec {
        process_guid: ProcessGuid,
        index: u32,
        /// Definition of the instance. `None` selects the active definition if the index has instances of
        /// several definitions.
        definition_id: Option<DefinitionId>,
        exec: Exec,
    },
    /// `task.desire`: creates a task, which runs once.
    TaskDesire(Box<DesiredTask>),
    /// `task.cancel`: cancels a task.
    TaskCancel { task_guid: TaskGuid },
    /// `task.resolve`: acknowledges the outcome of a task. The task can then be deleted.
    TaskResolve { task_guid: TaskGuid },
    /// `task.retry`: retries an evaluation of a task immediately.
    TaskRetry { task_guid: TaskGuid, evaluation: EvaluationId },
    /// `periodic.desire`: creates a periodic task.
    PeriodicDesire(Box<DesiredPeriodic>),
    /// `periodic.update`: replaces the spec of a periodic task.
    PeriodicUpdate(Box<DesiredPeriodic>),
    /// `periodic.pause`, `.resume`, `.launch`, `.remove`: acts on a periodic task.
    PeriodicAction { periodic_guid: PeriodicGuid, ask: PeriodicAction },
    /// `parameterised.desire`: creates a parameterised task.
    ParameterisedDesire(Box<DesiredParameterised>),
    /// `parameterised.update`: replaces the spec of a parameterised task. The new spec applies from the next
    /// dispatch.
    ParameterisedUpdate(Box<DesiredParameterised>),
    /// `parameterised.dispatch`: launches one task of a parameterised task.
    ParameterisedDispatch { parameterised_guid: ParameterisedGuid, dispatch: Box<Dispatch> },
    /// `parameterised.withdraw`: withdraws a waiting dispatch. The dispatch never becomes a task.
    ParameterisedWithdraw {
        parameterised_guid: ParameterisedGuid,
        /// Number of the dispatch.
        number: u64,
    },
    /// `parameterised.remove`: removes a parameterised task. Launched tasks continue, and waiting dispatches
    /// are withdrawn.
    ParameterisedRemove { parameterised_guid: ParameterisedGuid },
    /// `domain.upsert`: marks a domain as fresh.
    DomainUpsert {
        domain: Domain,
        /// Duration of the freshness in milliseconds. `None` if the domain stays fresh forever.
        ttl_ms: Option<u64>,
    },
}

/// An action on a periodic task that does not change its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeriodicAction {
    /// Pauses launches until the task is resumed.
    Pause,
    /// Resumes launches, starting with the next due time.
    Resume,
    /// Launches a task now, regardless of the schedule.
    Launch,
    /// Removes the periodic task. Launched tasks continue.
    Remove,
}

/// A parser for the body of a command.
pub(super) type BodyParser = fn(Field<'_>) -> Option<ClientCommand>;

/// The parsers by noun and verb.
const COMMANDS: [(&str, BodyParser); 27] = [
    ("lrp.desire", take_lrp_desire),
    ("lrp.update", take_lrp_update),
    ("lrp.activate", take_lrp_activate),
    ("lrp.restart", take_lrp_restart),
    ("lrp.pause", |body| take_lrp_steer(body, RolloutControl::Pause)),
    ("lrp.resume", |body| take_lrp_steer(body, RolloutControl::Resume)),
    ("lrp.rollback", |body| take_lrp_steer(body, RolloutControl::RollBack)),
    ("lrp.remove", take_lrp_remove),
    ("lrp.retire", take_lrp_retire),
    ("lrp.retry", take_lrp_retry),
    ("instance.exec", exec::take),
    ("task.desire", take_task_desire),
    ("task.cancel", take_task_cancel),
    ("task.resolve", take_task_resolve),
    ("task.retry", take_task_retry),
    ("periodic.desire", |body| take_periodic(body).map(ClientCommand::PeriodicDesire)),
    ("periodic.update", |body| take_periodic(body).map(ClientCommand::PeriodicUpdate)),
    ("periodic.pause", |body| take_periodic_action(body, PeriodicAction::Pause)),
    ("periodic.resume", |body| take_periodic_action(body, PeriodicAction::Resume)),
    ("periodic.launch", |body| take_periodic_action(body, PeriodicAction::Launch)),
    ("periodic.remove", |body| take_periodic_action(body, PeriodicAction::Remove)),
    ("parameterised.desire", |body| take_parameterised(body).map(ClientCommand::ParameterisedDesire)),
    ("parameterised.update", |body| take_parameterised(body).map(ClientCommand::ParameterisedUpdate)),
    ("parameterised.dispatch", take_parameterised_dispatch),
    ("parameterised.withdraw", take_parameterised_withdraw),
    ("parameterised.remove", take_parameterised_remove),
    ("domain.upsert", take_domain_upsert),
];

/// Parses a client's message: `{"envelope": {..}, "body": {..}}`. The envelope is optional, and so is each
/// field of the envelope.
///
/// # Errors
/// `InvalidRequest` with every bad field. `Forbidden` if the domain in the body differs from the domain in
/// the subject.
pub fn client_command(
    noun: &str,
    verb: &str,
    subject_domain: &Domain,
    body: &[u8],
) -> Result<(Envelope, ClientCommand), Refusal> {
    let read_body = find_command(noun, verb)?;
    let problems = Problems::default();
    let root = read_json(body, &problems)?;
    check_document(&root, "", &problems);
    let read = take_request(read_body, Field::new(root, String::new(), &problems));
    let (envelope, command) = problems.into_result(read)?;
    match command.domain() {
        Some(domain) if domain != subject_domain => {
            let why = format!(
                "the body names domain {domain}, but the subject names domain \
                               {subject_domain}"
            );
            Err(Refusal::new(Code::Forbidden, why))
        }
        Some(_) | None => Ok((envelope, command)),
    }
}

pub(super) fn find_command(noun: &str, verb: &str) -> Result<BodyParser, Refusal> {
    let asked = format!("{noun}.{verb}");
    if let Some((_, read)) = COMMANDS.into_iter().find(|(name, _)| *name == asked) {
        return Ok(read);
    }
    let names = COMMANDS.map(|(name, _)| name);
    let problem = match nearest(&asked, &names) {
        Some(near) => format!("is not a command: did you mean {near}?"),
        None => format!("is not a command: use one of {}", names.join(", ")),
    };
    Err(Refusal::invalid(vec![BadField { field: limits::truncate(&asked, 100), problem }]))
}

pub(super) fn take_request<T>(
    read_body: fn(Field<'_>) -> Option<T>,
    root: Field<'_>,
) -> Option<(Envelope, T)> {
    let mut fields = root.object()?;
    let envelope = fields.with_default("envelope", Envelope::default(), take_envelope);
    let body = fields.required("body", read_body);
    fields.finish(&[]);
    Some((envelope?, body?))
}

fn take_envelope(field: Field<'_>) -> Option<Envelope> {
    let mut fields = field.object_of::<Envelope>("Envelope")?;
    let request_id = fields.optional("request_id", Field::name);
    let timeout_ms = fields.optional("timeout_ms", |field| field.number(0..=limits::DURATION_MS));
    let expect_version = fields.optional("expect_version", |field| field.number(0..=u64::MAX));
    let if_position = fields.optional("if_position", |field| field.number(0..=u64::MAX).map(Position));
    let reason = fields.optional("reason", |field| field.text(limits::REASON_BYTES));
    let traceparent = fields.optional("traceparent", take_traceparent);
    fields.finish(&[]);
    Some(Envelope {
        request_id: request_id?,
        timeout_ms: timeout_ms?,
        expect_version: expect_version?,
        if_position: if_position?,
        reason: reason?,
        traceparent: traceparent?,
    })
}

/// Parses a trace parent, `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`. Later versions of the format
/// may append further parts.
fn take_traceparent(field: Field<'_>) -> Option<String> {
    field.records("pattern", "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[0-9a-f]*)*$");
    let (path, problems) = (field.path.clone(), field.problems);
    let text = field.text(limits::TRACE_BYTES)?;
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    if !hex || !lengths.starts_with(&[2, 32, 16, 2]) {
        problems.add(path, "must be a W3C traceparent");
        return None;
    }
    Some(text)
}

fn take_lrp_desire(body: Field<'_>) -> Option<ClientCommand> {
    take_lrp(body, DefaultDomain::None).map(|lrp| ClientCommand::LrpDesire(Box::new(lrp)))
}

fn take_lrp_update(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields =
        command_fields(body, "LrpUpdate", "Changes to a process. Omitted fields do not change.")?;
    let process_guid = fields.required("process_guid", Field::name);
    let update = take_update(&mut fields);
    let definition = take_new_definition(&mut fields);
    fields.finish(&[]);
    Some(ClientCommand::LrpUpdate { process_guid: process_guid?, update: update?, definition: definition? })
}

fn take_lrp_activate(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields =
        command_fields(body, "LrpActivate", "A request to move every instance to an existing definition.")?;
    fields.document("definition_id", "Id of a definition that the process has.");
    let process_guid = fields.required("process_guid", Field::name);
    let definition_id = fields.required("definition_id", Field::name);
    fields.finish(&[]);
    Some(ClientCommand::LrpActivate { process_guid: process_guid?, definition_id: definition_id? })
}

fn take_lrp_restart(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields = command_fields(
        body,
        "LrpRestart",
        "A request to replace every instance of a process by a new one with the same definition content.",
    )?;
    fields.document("purpose", "Purpose that the rollout records: `restart` (default) or `rebalance`.");
    let process_guid = fields.required("process_guid", Field::name);
    let words = [Purpose::Restart, Purpose::Rebalance].map(|purpose| (purpose.as_str(), purpose));
    let purpose = fields.with_default("purpose", Purpose::default(), |field| take_word(field, &words));
    fields.finish(&[]);
    Some(ClientCommand::LrpRestart { process_guid: process_guid?, purpose: purpose? })
}

fn take_lrp_steer(body: Field<'_>, steer: RolloutControl) -> Option<ClientCommand> {
    take_guid_only(body, PROCESS).map(|process_guid| ClientCommand::LrpSteer { process_guid, steer })
}

fn take_lrp_remove(body: Field<'_>) -> Option<ClientCommand> {
    take_guid_only(body, PROCESS).map(|process_guid| ClientCommand::LrpRemove { process_guid })
}

fn take_lrp_retire(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields = command_fields(body, "LrpRetire", "A request to stop an instance.")?;
    let instance = take_instance(&mut fields);
    fields.finish(&[]);
    let (process_guid, index, definition_id) = instance?;
    Some(ClientCommand::LrpRetire { process_guid, index, definition_id })
}

/// Parses the reference to an instance: the process, the index and optionally the definition.
pub(super) fn take_instance(fields: &mut Fields<'_>) -> Option<(ProcessGuid, u32, Option<DefinitionId>)> {
    fields.document("index", "Index of the instance.");
    fields.document(
        "definition_id",
        "Definition of the instance. The default is the active one, if the index has several.",
    );
    let process_guid = fields.required("process_guid", Field::name);
    let index = fields.required("index", |field| field.number_32(0..=u32::MAX));
    let definition_id = fields.optional("definition_id", Field::name);
    Some((process_guid?, index?, definition_id?))
}

fn take_task_desire(body: Field<'_>) -> Option<ClientCommand> {
    take_task(body, DefaultDomain::None).map(|task| ClientCommand::TaskDesire(Box::new(task)))
}

fn take_task_cancel(body: Field<'_>) -> Option<ClientCommand> {
    take_guid_only(body, TASK).map(|task_guid| ClientCommand::TaskCancel { task_guid })
}

fn take_task_resolve(body: Field<'_>) -> Option<ClientCommand> {
    take_guid_only(body, TASK).map(|task_guid| ClientCommand::TaskResolve { task_guid })
}

fn take_lrp_retry(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields =
        command_fields(body, "LrpRetry", "A request to retry an evaluation of a process immediately.")?;
    let process_guid = fields.required("process_guid", Field::name);
    let evaluation = fields.required("evaluation", take_evaluation);
    fields.finish(&[]);
    Some(ClientCommand::LrpRetry { process_guid: process_guid?, evaluation: evaluation? })
}

fn take_task_retry(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields =
        command_fields(body, "TaskRetry", "A request to retry an evaluation of a task immediately.")?;
    let task_guid = fields.required("task_guid", Field::name);
    let evaluation = fields.required("evaluation", take_evaluation);
    fields.finish(&[]);
    Some(ClientCommand::TaskRetry { task_guid: task_guid?, evaluation: evaluation? })
}

fn take_periodic(body: Field<'_>) -> Option<Box<DesiredPeriodic>> {
    periodic::take(body, DefaultDomain::None).map(Box::new)
}

fn take_periodic_action(body: Field<'_>, ask: PeriodicAction) -> Option<ClientCommand> {
    take_guid_only(body, PERIODIC).map(|periodic_guid| ClientCommand::PeriodicAction { periodic_guid, ask })
}

fn take_parameterised(body: Field<'_>) -> Option<Box<DesiredParameterised>> {
    parameterised::take(body, DefaultDomain::None).map(Box::new)
}

fn take_parameterised_dispatch(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields = command_fields(body, "ParameterisedDispatch", "A dispatch of a parameterised task.")?;
    let parameterised_guid = fields.required("parameterised_guid", Field::name);
    let dispatch = parameterised::take_dispatch(&mut fields);
    fields.finish(&[]);
    let (parameterised_guid, dispatch) = (parameterised_guid?, Box::new(dispatch?));
    Some(ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch })
}

fn take_parameterised_withdraw(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields =
        command_fields(body, "ParameterisedWithdraw", "A request to withdraw a waiting dispatch.")?;
    fields.document("number", "Number of the waiting dispatch.");
    let parameterised_guid = fields.required("parameterised_guid", Field::name);
    let number = fields.required("number", |field| field.number(0..=u64::MAX));
    fields.finish(&[]);
    Some(ClientCommand::ParameterisedWithdraw { parameterised_guid: parameterised_guid?, number: number? })
}

fn take_parameterised_remove(body: Field<'_>) -> Option<ClientCommand> {
    take_guid_only(body, PARAMETERISED)
        .map(|parameterised_guid| ClientCommand::ParameterisedRemove { parameterised_guid })
}

fn take_evaluation(field: Field<'_>) -> Option<EvaluationId> {
    if field.records_type::<EvaluationId>() {
        return None;
    }
    let (path, problems) = (field.path.clone(), field.problems);
    let id = field.text(limits::ID_BYTES)?.parse().ok();
    if id.is_none() {
        problems.add(path, "must be the id of an evaluation such as 0190f2a1-7c3e-7bbb-8001-0a2b3c4d5e6f");
    }
    id
}

fn take_domain_upsert(body: Field<'_>) -> Option<ClientCommand> {
    let (domain, ttl_ms) = take_freshness(body)?;
    Some(ClientCommand::DomainUpsert { domain, ttl_ms })
}

const PROCESS: (&str, &str, &str) =
    ("process_guid", "ProcessCommand", "Body of a command that only names a process.");
const TASK: (&str, &str, &str) = ("task_guid", "TaskCommand", "Body of a command that only names a task.");
const PERIODIC: (&str, &str, &str) =
    ("periodic_guid", "PeriodicCommand", "Body of a command that only names a periodic task.");
const PARAMETERISED: (&str, &str, &str) =
    ("parameterised_guid", "ParameterisedCommand", "Body of a command that only names a parameterised task.");

/// Parses a body whose only field is a guid: its field, and the name and the text of its schema are given.
fn take_guid_only<T: TryFrom<String, Error = BadName> + JsonSchema>(
    body: Field<'_>,
    (field, name, text): (&'static str, &'static str, &str),
) -> Option<T> {
    let mut fields = command_fields(body, name, text)?;
    let name = fields.required(field, Field::name);
    fields.finish(&[]);
    name
}

/// Returns the fields of the body of a command, with the texts of the fields that several commands have.
pub(super) fn command_fields<'p>(body: Field<'p>, name: &'static str, text: &str) -> Option<Fields<'p>> {
    let mut fields = body.object_named(name, text)?;
    fields.document("process_guid", "GUID of the process.");
    fields.document("task_guid", "GUID of the task.");
    fields.document("periodic_guid", "GUID of the periodic task.");
    fields.document("parameterised_guid", "GUID of the parameterised task.");
    fields.document("evaluation", "Id of an evaluation that is delayed, blocked or failed.");
    Some(fields)
}

/// Returns the JSON Schema of the body of a command. Its definitions are added to those of the generator.
pub fn body_schema(verb: ClientVerb, generator: &mut SchemaGenerator) -> Value {
    let (noun, word) = verb.noun_and_verb();
    let parser = find_command(noun, word).expect("each command has a parser");
    describe(parser, generator).into()
}

/// Returns the JSON Schema of the envelope of commands.
pub fn envelope_schema(generator: &mut SchemaGenerator) -> Value {
    describe(take_envelope, generator).into()
}

impl ClientCommand {
    /// Returns the verb of the command.
    #[must_use]
    pub const fn verb(&self) -> ClientVerb {
        match self {
            Self::LrpDesire(_) => ClientVerb::LrpDesire,
            Self::LrpUpdate { .. } => ClientVerb::LrpUpdate,
            Self::LrpActivate { .. } => ClientVerb::LrpActivate,
            Self::LrpRestart { .. } => ClientVerb::LrpRestart,
            Self::LrpSteer { steer: RolloutControl::Pause, .. } => ClientVerb::LrpPause,
            Self::LrpSteer { steer: RolloutControl::Resume, .. } => ClientVerb::LrpResume,
            Self::LrpSteer { steer: RolloutControl::RollBack, .. } => ClientVerb::LrpRollback,
            Self::LrpRemove { .. } => ClientVerb::LrpRemove,
            Self::LrpRetire { .. } => ClientVerb::LrpRetire,
            Self::LrpRetry { .. } => ClientVerb::LrpRetry,
            Self::InstanceExec { .. } => ClientVerb::InstanceExec,
            Self::TaskDesire(_) => ClientVerb::TaskDesire,
            Self::TaskCancel { .. } => ClientVerb::TaskCancel,
            Self::TaskResolve { .. } => ClientVerb::TaskResolve,
            Self::TaskRetry { .. } => ClientVerb::TaskRetry,
            Self::PeriodicDesire(_) => ClientVerb::PeriodicDesire,
            Self::PeriodicUpdate(_) => ClientVerb::PeriodicUpdate,
            Self::PeriodicAction { ask: PeriodicAction::Pause, .. } => ClientVerb::PeriodicPause,
            Self::PeriodicAction { ask: PeriodicAction::Resume, .. } => ClientVerb::PeriodicResume,
            Self::PeriodicAction { ask: PeriodicAction::Launch, .. } => ClientVerb::PeriodicLaunch,
            Self::PeriodicAction { ask: PeriodicAction::Remove, .. } => ClientVerb::PeriodicRemove,
            Self::ParameterisedDesire(_) => ClientVerb::ParameterisedDesire,
            Self::ParameterisedUpdate(_) => ClientVerb::ParameterisedUpdate,
            Self::ParameterisedDispatch { .. } => ClientVerb::ParameterisedDispatch,
            Self::ParameterisedWithdraw { .. } => ClientVerb::ParameterisedWithdraw,
            Self::ParameterisedRemove { .. } => ClientVerb::ParameterisedRemove,
            Self::DomainUpsert { .. } => ClientVerb::DomainUpsert,
        }
    }

    /// Returns the noun and the verb, as in the subject.
    #[must_use]
    pub fn noun_and_verb(&self) -> (&'static str, &'static str) {
        self.verb().noun_and_verb()
    }

    /// Returns a digest of the command. The digest distinguishes two commands with the same request id.
    #[must_use]
    pub fn digest(&self) -> String {
        crate::request::digest(self.noun_and_verb(), &self.body())
    }

    /// Returns the domain in the body. `None` if the body contains no domain. The domain of the record then
    /// applies.
    #[must_use]
    pub const fn domain(&self) -> Option<&Domain> {
        match self {
            Self::LrpDesire(lrp) => Some(&lrp.domain),
            Self::TaskDesire(task) => Some(&task.domain),
            Self::PeriodicDesire(periodic) | Self::PeriodicUpdate(periodic) => Some(&periodic.domain),
            Self::ParameterisedDesire(desired) | Self::ParameterisedUpdate(desired) => Some(&desired.domain),
            Self::DomainUpsert { domain, .. } => Some(domain),
            Self::PeriodicAction { .. }
            | Self::ParameterisedDispatch { .. }
            | Self::ParameterisedWithdraw { .. }
            | Self::ParameterisedRemove { .. }
            | Self::LrpUpdate { .. }
            | Self::LrpActivate { .. }
            | Self::LrpRestart { .. }
            | Self::LrpSteer { .. }
            | Self::LrpRemove { .. }
            | Self::LrpRetire { .. }
            | Self::LrpRetry { .. }
            | Self::InstanceExec { .. }
            | Self::TaskRetry { .. }
            | Self::TaskCancel { .. }
            | Self::TaskResolve { .. } => None,
        }
    }

    /// Returns the body as JSON that [`client_command`] can parse.
    #[must_use]
    pub fn body(&self) -> Value {
        let named = |name: &str, text: &str| with_field(Value::Object(Map::new()), name, text.into());
        match self {
            Self::LrpDesire(lrp) => to_json(lrp),
            Self::LrpUpdate { process_guid, update, definition } => {
                let body = with_field(update_to_json(update), "process_guid", process_guid.as_str().into());
                match definition {
                    None => body,
                    Some((id, definition)) => {
                        let body = with_field(body, "definition_id", id.as_str().into());
                        with_field(body, "definition", definition_to_json(definition))
                    }
                }
            }
            Self::LrpActivate { process_guid, definition_id } => {
                let body = named("process_guid", process_guid.as_str());
                with_field(body, "definition_id", definition_id.as_str().into())
            }
            Self::LrpRestart { process_guid, purpose } => {
                let body = named("process_guid", process_guid.as_str());
                with_field(body, "purpose", purpose.as_str().into())
            }
            Self::LrpRemove { process_guid } | Self::LrpSteer { process_guid, .. } => {
                named("process_guid", process_guid.as_str())
            }
            Self::LrpRetire { process_guid, index, definition_id } => {
                instance_to_json(process_guid, *index, definition_id.as_ref())
            }
            Self::InstanceExec { process_guid, index, definition_id, exec } => {
                exec::with_exec(instance_to_json(process_guid, *index, definition_id.as_ref()), exec)
            }
            Self::LrpRetry { process_guid, evaluation } => {
                let body = named("process_guid", process_guid.as_str());
                with_field(body, "evaluation", evaluation.to_string().into())
            }
            Self::TaskRetry { task_guid, evaluation } => {
                let body = named("task_guid", task_guid.as_str());
                with_field(body, "evaluation", evaluation.to_string().into())
            }
            Self::TaskDesire(task) => task_to_json(task),
            Self::TaskCancel { task_guid } | Self::TaskResolve { task_guid } => {
                named("task_guid", task_guid.as_str())
            }
            Self::PeriodicDesire(periodic) | Self::PeriodicUpdate(periodic) => periodic::to_json(periodic),
            Self::PeriodicAction { periodic_guid, .. } => named("periodic_guid", periodic_guid.as_str()),
            Self::ParameterisedDesire(desired) | Self::ParameterisedUpdate(desired) => {
                parameterised::to_json(desired)
            }
            Self::ParameterisedDispatch { parameterised_guid, dispatch } => with_field(
                parameterised::dispatch_to_json(dispatch),
                "parameterised_guid",
                parameterised_guid.as_str().into(),
            ),
            Self::ParameterisedWithdraw { parameterised_guid, number } => with_field(
                named("parameterised_guid", parameterised_guid.as_str()),
                "number",
                (*number).into(),
            ),
            Self::ParameterisedRemove { parameterised_guid } => {
                named("parameterised_guid", parameterised_guid.as_str())
            }
            Self::DomainUpsert { domain, ttl_ms } => {
                let body = named("domain", domain.as_str());
                ttl_ms.map_or(body.clone(), |ttl_ms| with_field(body, "ttl_ms", ttl_ms.into()))
            }
        }
    }
}

/// Converts the reference to an instance to JSON that [`take_instance`] can parse.
fn instance_to_json(process_guid: &ProcessGuid, index: u32, definition_id: Option<&DefinitionId>) -> Value {
    let body = with_field(Value::Object(Map::new()), "process_guid", process_guid.as_str().into());
    let body = with_field(body, "index", index.into());
    let id = definition_id.map(|id| id.as_str().into());
    id.map_or(body.clone(), |id| with_field(body, "definition_id", id))
}
