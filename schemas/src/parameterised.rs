//! The parameterised task: a template from which each dispatch makes one task (docs/model.md, "Parameterised
//! tasks").
//!
//! ```text
//! dispatch ──▶ dispatched ──▶ launched at once: the same entry desires its task
//!                  │
//!                  ▼          the concurrency limit is reached, or other dispatches wait
//!               waiting ────▶ launched in its turn, when an earlier task has ended
//!                  └────────▶ withdrawn by a client, or because the template was removed
//! ```
//! A dispatch is in the log, with everything that its task needs, before the client receives the answer. It
//! becomes exactly one task, or the log records why it did not.

use std::collections::VecDeque;
use std::sync::Arc;

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::action::{Secret, Variable, variable_faults};
use crate::cause::{Cause, Origin};
use crate::container::Epoch;
use crate::definition::{DesiredParameterised, DesiredTask, Overflow, PayloadRule, TaskDefinition};
use crate::entry::Stamp;
use crate::limits::{DISPATCH_KEYS, DISPATCHES_QUEUED};
use crate::names::{DispatchKey, Domain, ParameterisedGuid, TaskGuid};
use crate::rank::Priority;
use crate::refusal::{BadField, Code, Refusal};
use crate::request::Requests;
use crate::subject::Position;

/// Environment variable with the payload, set if the payload is text.
const PAYLOAD: &str = "MUSTER_PAYLOAD";
/// Environment variable with the payload in base64.
const PAYLOAD_BASE64: &str = "MUSTER_PAYLOAD_BASE64";
/// Prefix of the environment variables with the parameters.
const PARAMETER: &str = "MUSTER_PARAM_";
/// Environment variable with the guid of the template.
const TEMPLATE: &str = "MUSTER_PARAMETERISED_GUID";
/// Environment variable with the key of the dispatch.
const KEY: &str = "MUSTER_DISPATCH_KEY";

/// State of a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameterised {
    pub guid: ParameterisedGuid,
    pub domain: Domain,
    /// Current epoch of the guid, which is also the time of the desire.
    pub epoch: Epoch,
    /// Number of decisions over all epochs. A dispatch is numbered with the version of its decision, so
    /// numbers are unique across epochs.
    pub version: u64,
    /// Log position of the last decision; 0 before it is in the log.
    pub last_decision: Position,
    /// Time of the last desire, update or removal.
    pub since: Timestamp,
    /// Time since which a removed template has no task. It is remembered while a task exists, so that a new
    /// epoch never reuses the guid of a task.
    pub idle_since: Timestamp,
    /// Template and dispatch rules. `None` after removal, when only answers are remembered.
    pub desired: Option<Arc<DesiredParameterised>>,
    /// Waiting dispatches, the oldest first.
    pub queue: VecDeque<Arc<Waiting>>,
    /// Known dispatch keys, the oldest first.
    pub keys: VecDeque<KnownKey>,
    /// Most recent dispatch of this epoch.
    pub last: Option<Dispatched>,
    /// Number of dispatches in this epoch.
    pub dispatched: u64,
    /// Number of dispatches in this epoch that became a task.
    pub launched: u64,
    /// Number of dispatches in this epoch that were withdrawn before they became a task.
    pub withdrawn: u64,
    /// Most recent requests with their answers.
    pub requests: Requests,
    /// Decision that last desired or updated it.
    pub cause: Cause,
}

/// Content of a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch {
    /// Payload for the task, in base64.
    pub payload: Option<Secret>,
    /// Named values for the task, sorted by name.
    pub parameters: Vec<Variable>,
    /// Idempotency key. A dispatch with a known key refers to the earlier dispatch.
    pub key: Option<DispatchKey>,
    /// Priority of the task. If unset, the template decides.
    pub priority: Option<Priority>,
}

/// Dispatch that waits for its turn, with the definition of the template at the time of the dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub number: u64,
    /// Time of the dispatch.
    pub at: Timestamp,
    /// Decision that recorded the dispatch.
    pub cause: Cause,
    pub dispatch: Dispatch,
    /// Definition of the task, without the content of the dispatch.
    pub definition: Arc<TaskDefinition>,
}

/// Dispatch key that is in use, and the dispatch that it identifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    pub key: DispatchKey,
    /// Digest of the content of that dispatch, see [`Dispatch::digest`].
    pub digest: u64,
    /// Number of that dispatch.
    pub number: u64,
}

/// Summary of a dispatch, as shown to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dispatched {
    /// Dispatch number.
    pub number: u64,
    /// Guid of the task, which exists only once the dispatch was launched.
    pub task_guid: TaskGuid,
    /// Idempotency key that the client chose.
    pub key: Option<DispatchKey>,
    /// Time of the dispatch.
    pub at: Timestamp,
}

/// Reason that a dispatch did not become a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawReason {
    /// A client withdrew the dispatch while it waited.
    Asked,
    /// The parameterised task was removed while the dispatch waited.
    Removed,
}

/// Command for a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Desire(Box<DesiredParameterised>),
    /// Replaces the template from the next dispatch on.
    Update(Box<DesiredParameterised>),
    /// Makes one task from the template.
    Dispatch(Box<Dispatch>),
    /// Withdraws the waiting dispatch with this number.
    Withdraw(u64),
    /// Removes the template and withdraws the waiting dispatches. Launched tasks keep running.
    Remove,
    /// Launches the oldest waiting dispatch if another task may run.
    Converge,
}

/// Event of a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Starts a new epoch.
    Desired {
        desired: Box<DesiredParameterised>,
    },
    /// Replaces the template from the next dispatch on.
    Updated {
        desired: Box<DesiredParameterised>,
    },
    /// A client dispatched it. The task follows at once, or when it is the dispatch's turn.
    Dispatched {
        /// Dispatch number: the version that this decision makes.
        number: u64,
        dispatch: Box<Dispatch>,
        /// Known key that is forgotten to make room for the key of this dispatch.
        forgets: Option<DispatchKey>,
    },
    /// A client repeated a dispatch with a known key. No task is made, and the answer is remembered.
    Repeated {
        /// Number of the first dispatch.
        number: u64,
    },
    /// A dispatch became a task, which the same entry desires.
    Launched {
        number: u64,
        task_guid: TaskGuid,
    },
    /// Waiting dispatches will not become tasks.
    Withdrawn {
        /// Numbers of the dispatches.
        numbers: Vec<u64>,
        reason: WithdrawReason,
    },
    Removed {},
}

/// Other state that a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Returns `true` if fewer than this number of tasks of the parameterised task are PENDING or RUNNING.
    pub fewer: &'a dyn Fn(&ParameterisedGuid, u32) -> bool,
    /// Returns `true` if a task with this guid exists.
    pub exists: &'a dyn Fn(&TaskGuid) -> bool,
}

impl Dispatch {
    /// Returns a digest of the content without the key. It reveals a key that is reused with different
    /// content.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let Self { payload, parameters, key: _, priority } = self;
        let text = serde_json::to_string(&(payload, parameters, priority)).unwrap_or_default();
        crate::subject::fnv_1a(&text)
    }

    /// Returns the payload as bytes, or `None` if there is none that can be decoded.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.payload.as_ref()?.plain()?.as_bytes()).ok()
    }

    /// Returns the environment variables that the dispatch adds to its task: the guid of the template, the
    /// key, the payload in base64 and, if it is UTF-8 without NUL, as text, and each parameter with the
    /// prefix `MUSTER_PARAM_`.
    #[must_use]
    pub fn environment(&self, of: &ParameterisedGuid) -> Vec<Variable> {
        let variable = |name: &str, value| Variable { name: name.into(), value };
        let plain = |text: &str| Secret::Plain(text.into());
        let mut all = vec![variable(TEMPLATE, plain(of.as_str()))];
        all.extend(self.key.as_ref().map(|key| variable(KEY, plain(key.as_str()))));
        all.extend(self.payload.clone().map(|payload| variable(PAYLOAD_BASE64, payload)));
        let text = self.payload_bytes().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.filter(|text| !text.contains('\0'));
        all.extend(text.map(|text| variable(PAYLOAD, Secret::Plain(text.into()))));
        let parameter = |one: &Variable| variable(&format!("{PARAMETER}{}", one.name), one.value.clone());
        all.extend(self.parameters.iter().map(parameter));
        all
    }

    /// Returns the environment of the task. Variables of the dispatch override variables of the template.
    fn over(&self, of: &ParameterisedGuid, template: &TaskDefinition) -> Vec<Variable> {
        let own = self.environment(of);
        let said = |one: &&Variable| own.iter().all(|other| other.name != one.name);
        let mut all: Vec<Variable> = template.environment_variables.iter().filter(said).cloned().collect();
        all.extend(own);
        all
    }
}

impl Parameterised {
    /// Returns `true` if it was removed and is only remembered.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.desired.is_none()
    }

    /// Returns the tasks that these events launch. Each combines the template at the time of its dispatch
    /// with the content of the dispatch.
    #[must_use]
    pub fn tasks(&self, events: &[Event]) -> Vec<DesiredTask> {
        let launched = |event: &Event| match event {
            Event::Launched { number, .. } => self.task(*number, events),
            Event::Desired { .. }
            | Event::Updated { .. }
            | Event::Dispatched { .. }
            | Event::Repeated { .. }
            | Event::Withdrawn { .. }
            | Event::Removed {} => None,
        };
        events.iter().filter_map(launched).collect()
    }

    fn task(&self, number: u64, events: &[Event]) -> Option<DesiredTask> {
        let just_now = events.iter().find_map(|event| match event {
            Event::Dispatched { number: of, dispatch, .. } if *of == number => Some(&**dispatch),
            Event::Dispatched { .. }
            | Event::Desired { .. }
            | Event::Updated { .. }
            | Event::Repeated { .. }
            | Event::Launched { .. }
            | Event::Withdrawn { .. }
            | Event::Removed {} => None,
        });
        let (dispatch, definition) = match just_now {
            Some(dispatch) => (dispatch, &self.desired.as_ref()?.definition),
            None => self.waiting(number).map(|waiting| (&waiting.dispatch, &waiting.definition))?,
        };
        let definition = TaskDefinition {
            environment_variables: dispatch.over(&self.guid, definition),
            priority: dispatch.priority.unwrap_or(definition.priority),
            ..(**definition).clone()
        };
        let task_guid = self.guid.dispatch(number).ok()?;
        Some(DesiredTask { task_guid, domain: self.domain.clone(), definition: Arc::new(definition) })
    }

    fn waiting(&self, number: u64) -> Option<&Arc<Waiting>> {
        self.queue.iter().find(|waiting| waiting.number == number)
    }
}

/// Returns the number of the earlier dispatch that a command repeats by its key, or `None` if it repeats
/// none.
///
/// # Errors
/// `RequestIdReused` if the key was used with different content.
pub fn answered(known: Option<&Parameterised>, command: &Command) -> Result<Option<u64>, Refusal> {
    let Command::Dispatch(dispatch) = command else { return Ok(None) };
    let living = known.filter(|known| !known.is_gone());
    let Some((known, key)) = living.zip(dispatch.key.as_ref()) else { return Ok(None) };
    let Some(first) = known.keys.iter().find(|first| first.key == *key) else { return Ok(None) };
    if first.digest == dispatch.digest() {
        return Ok(Some(first.number));
    }
    let why = format!(
        "key {key} was given to dispatch {} of {} with another payload, parameters or priority: give each dispatch a key of its own",
        first.number, known.guid
    );
    Err(Refusal::new(Code::RequestIdReused, why))
}

/// Decides which events a command causes. The list is empty if the state is already as requested.
///
/// # Errors
/// - `ResourceExists` if the command desires a parameterised task that exists.
/// - `ResourceNotFound` if the parameterised task or the waiting dispatch does not exist.
/// - `Forbidden` if an update names another domain.
/// - `InvalidRequest` if the template does not accept the dispatch.
/// - `RequestIdReused` if the key of a dispatch was used with different content.
/// - `InvalidStateTransition` if the dispatch would have to wait and the template does not allow it.
/// - `Overloaded` if the queue is full, or if every remembered key is still in use.
pub fn decide(
    known: Option<&Parameterised>,
    command: &Command,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let living = known.and_then(|known| known.desired.as_ref().map(|desired| (known, desired)));
    match (command, living) {
        (Command::Desire(desired), None) => Ok(vec![Event::Desired { desired: desired.clone() }]),
        (Command::Desire(_), Some((known, _))) => {
            let why = format!("parameterised task {} exists already", known.guid);
            Err(Refusal::new(Code::ResourceExists, why))
        }
        (Command::Converge, None) => Ok(vec![]),
        (Command::Update(_) | Command::Dispatch(_) | Command::Withdraw(_) | Command::Remove, None) => {
            Err(Refusal::not_found("the parameterised task"))
        }
        (Command::Update(desired), Some((known, before))) => update(known, before, desired),
        (Command::Dispatch(dispatch), Some((known, desired))) => match answered(Some(known), command)? {
            Some(number) => Ok(vec![Event::Repeated { number }]),
            None => dispatched(known, desired, dispatch, context),
        },
        (Command::Withdraw(number), Some((known, _))) => withdraw(known, *number),
        (Command::Remove, Some((known, _))) => {
            let numbers: Vec<u64> = known.queue.iter().map(|waiting| waiting.number).collect();
            let given_up = (!numbers.is_empty())
                .then_some(Event::Withdrawn { numbers, reason: WithdrawReason::Removed });
            Ok(given_up.into_iter().chain([Event::Removed {}]).collect())
        }
        (Command::Converge, Some((known, desired))) => {
            let first = known.queue.front().filter(|_| is_free(known, desired, context));
            Ok(first.and_then(|first| launch(known, first.number)).into_iter().collect())
        }
    }
}

/// Returns the origin of a decision, given the state before it. A launch originates from the dispatch that
/// waited.
#[must_use]
pub fn origin(known: Option<&Parameterised>, command: &Command) -> Origin {
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Dispatch(_)
        | Command::Withdraw(_)
        | Command::Remove => Origin::Beginning,
        Command::Converge => {
            known.map(|known| known.queue.front().map_or(known.cause, |first| first.cause)).into()
        }
    }
}

/// Decides an update. Waiting dispatches keep the definition that they were dispatched with.
fn update(
    known: &Parameterised,
    before: &DesiredParameterised,
    desired: &DesiredParameterised,
) -> Result<Vec<Event>, Refusal> {
    if known.domain != desired.domain {
        let why = format!("parameterised task {} is in domain {}", known.guid, known.domain);
        return Err(Refusal::new(Code::Forbidden, why));
    }
    if before == desired {
        return Ok(vec![]);
    }
    Ok(vec![Event::Updated { desired: Box::new(desired.clone()) }])
}

fn dispatched(
    known: &Parameterised,
    desired: &DesiredParameterised,
    dispatch: &Dispatch,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let bad = faults(known, desired, dispatch);
    if !bad.is_empty() {
        return Err(Refusal::invalid(bad));
    }
    // Waiting dispatches go first, even if another task may run again.
    let at_once = known.queue.is_empty() && is_free(known, desired, context);
    if !at_once {
        check_queue(known, desired)?;
    }
    let number = known.version + 1;
    let forgets = forgotten(known, dispatch, context)?;
    let event = Event::Dispatched { number, dispatch: Box::new(dispatch.clone()), forgets };
    let launched = at_once.then(|| launch(known, number)).flatten();
    Ok([event].into_iter().chain(launched).collect())
}

/// Returns every reason for which the template rejects a dispatch.
fn faults(known: &Parameterised, desired: &DesiredParameterised, dispatch: &Dispatch) -> Vec<BadField> {
    let bad = |field: &str, problem: String| BadField { field: field.to_owned(), problem };
    let mut all = vec![];
    match (desired.payload, &dispatch.payload) {
        (PayloadRule::Required, None) => {
            all.push(bad("payload", format!("is missing: {} requires one", known.guid)));
        }
        (PayloadRule::Forbidden, Some(_)) => {
            all.push(bad("payload", format!("is given, and {} takes none", known.guid)));
        }
        (PayloadRule::Required | PayloadRule::Optional, Some(_))
        | (PayloadRule::Optional | PayloadRule::Forbidden, None) => {}
    }
    let given = |name: &String| dispatch.parameters.iter().any(|one| one.name == *name);
    for name in desired.required_parameters.iter().filter(|name| !given(name)) {
        all.push(bad("parameters", format!("{name} is missing: {} requires it", known.guid)));
    }
    let takes =
        |name: &str| desired.required_parameters.contains(name) || desired.optional_parameters.contains(name);
    for Variable { name, .. } in dispatch.parameters.iter().filter(|one| !takes(&one.name)) {
        let named: Vec<&str> = desired
            .required_parameters
            .iter()
            .chain(&desired.optional_parameters)
            .map(String::as_str)
            .collect();
        let takes = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
        all.push(bad("parameters", format!("{name} is none of {}: it takes {takes}", known.guid)));
    }
    let environment = dispatch.over(&known.guid, &desired.definition);
    let too_much = variable_faults(&environment, "environment").into_iter();
    all.extend(too_much.map(|(field, problem)| {
        let problem =
            format!("{problem}: with the payload (text counts twice, for its base64) and the parameters");
        BadField { field, problem }
    }));
    all
}

/// Returns `true` if one more of its tasks may be PENDING or RUNNING.
fn is_free(known: &Parameterised, desired: &DesiredParameterised, context: Context<'_>) -> bool {
    desired.concurrency.is_none_or(|most| (context.fewer)(&known.guid, most))
}

/// Returns an error if a dispatch may not wait.
fn check_queue(known: &Parameterised, desired: &DesiredParameterised) -> Result<(), Refusal> {
    let (guid, waits) = (&known.guid, known.queue.len());
    let most = desired.concurrency.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    match desired.overflow {
        Overflow::Queued if waits < DISPATCHES_QUEUED => Ok(()),
        Overflow::Queued => {
            let why = format!(
                "{waits} dispatches of {guid} wait already, and at most {DISPATCHES_QUEUED} may: try again when a task of it has ended"
            );
            Err(Refusal::new(Code::Overloaded, why))
        }
        // Not `Overloaded`, which invites a retry: this template is configured to refuse.
        Overflow::Refused => {
            let why = format!(
                "{most} of the tasks of {guid} may be PENDING or RUNNING, and as many are or wait: try again when one has ended"
            );
            Err(Refusal::new(Code::InvalidStateTransition, why))
        }
    }
}

/// Returns the key to forget to make room for the key of a dispatch: the oldest key whose dispatch is over.
///
/// # Errors
/// `Overloaded` if every remembered key is still in use.
fn forgotten(
    known: &Parameterised,
    dispatch: &Dispatch,
    context: Context<'_>,
) -> Result<Option<DispatchKey>, Refusal> {
    if dispatch.key.is_none() || known.keys.len() < DISPATCH_KEYS {
        return Ok(None);
    }
    let is_over = |one: &&KnownKey| {
        let there = known.guid.dispatch(one.number).is_ok_and(|task| (context.exists)(&task));
        !there && known.waiting(one.number).is_none()
    };
    match known.keys.iter().find(is_over) {
        Some(oldest) => Ok(Some(oldest.key.clone())),
        None => {
            let why = format!(
                "{DISPATCH_KEYS} dispatches of {} have a key and wait or have a task still: try again when one of them is gone, or without a key",
                known.guid
            );
            Err(Refusal::new(Code::Overloaded, why))
        }
    }
}

fn launch(known: &Parameterised, number: u64) -> Option<Event> {
    known.guid.dispatch(number).ok().map(|task_guid| Event::Launched { number, task_guid })
}

fn withdraw(known: &Parameterised, number: u64) -> Result<Vec<Event>, Refusal> {
    if known.waiting(number).is_some() {
        return Ok(vec![Event::Withdrawn { numbers: vec![number], reason: WithdrawReason::Asked }]);
    }
    let why =
        format!("no dispatch {number} of {} waits: what was launched is cancelled as a task", known.guid);
    Err(Refusal::new(Code::ResourceNotFound, why))
}

/// Applies the events of one decision to the state. Never fails, because events in the log are facts.
#[must_use]
pub fn evolve<'a>(
    known: Option<Parameterised>,
    events: impl IntoIterator<Item = &'a Event>,
    stamp: &Stamp,
) -> Option<Parameterised> {
    let (mut known, mut answer) = (known, None);
    for event in events {
        if let Event::Repeated { number } = event {
            answer = Some(*number);
        }
        known = evolve_one(known, event, stamp);
    }
    if let Some(known) = &mut known {
        known.version += 1;
        if let Some(request) = &stamp.request {
            known.requests.remember(request.clone(), answer.unwrap_or(known.version));
        }
    }
    known
}

fn evolve_one(known: Option<Parameterised>, event: &Event, stamp: &Stamp) -> Option<Parameterised> {
    if let Event::Desired { desired } = event {
        let (version, requests) = known.map(|old| (old.version, old.requests)).unwrap_or_default();
        return Some(Parameterised {
            guid: desired.parameterised_guid.clone(),
            domain: desired.domain.clone(),
            epoch: Epoch(stamp.at),
            version,
            last_decision: Position(0),
            since: stamp.at,
            idle_since: stamp.at,
            desired: Some(Arc::new((**desired).clone())),
            queue: VecDeque::new(),
            keys: VecDeque::new(),
            last: None,
            dispatched: 0,
            launched: 0,
            withdrawn: 0,
            requests,
            cause: stamp.cause(),
        });
    }
    let mut known = known?;
    match event {
        Event::Desired { .. } | Event::Repeated { .. } => {}
        Event::Updated { desired } => {
            known.desired = Some(Arc::new((**desired).clone()));
            (known.since, known.cause) = (stamp.at, stamp.cause());
        }
        Event::Dispatched { number, dispatch, forgets } => {
            known.dispatched(*number, dispatch, forgets.as_ref(), stamp);
        }
        Event::Launched { number, .. } => {
            known.queue.retain(|waiting| waiting.number != *number);
            known.launched += 1;
        }
        Event::Withdrawn { numbers, .. } => {
            known.queue.retain(|waiting| !numbers.contains(&waiting.number));
            known.withdrawn += numbers.len() as u64;
        }
        Event::Removed {} => {
            (known.desired, known.since, known.idle_since) = (None, stamp.at, stamp.at);
            (known.queue, known.keys) = (VecDeque::new(), VecDeque::new());
        }
    }
    Some(known)
}

impl Parameterised {
    fn dispatched(&mut self, number: u64, dispatch: &Dispatch, forgets: Option<&DispatchKey>, stamp: &Stamp) {
        self.dispatched += 1;
        self.keys.retain(|known| Some(&known.key) != forgets);
        if let Some(key) = dispatch.key.clone() {
            self.keys.push_back(KnownKey { key, digest: dispatch.digest(), number });
        }
        let task_guid = self.guid.dispatch(number).ok();
        let last = |task_guid| Dispatched { number, task_guid, key: dispatch.key.clone(), at: stamp.at };
        self.last = task_guid.map(last);
        if let Some(desired) = &self.desired {
            let definition = Arc::clone(&desired.definition);
            let (at, cause, dispatch) = (stamp.at, stamp.cause(), dispatch.clone());
            self.queue.push_back(Arc::new(Waiting { number, at, cause, dispatch, definition }));
        }
    }
}
