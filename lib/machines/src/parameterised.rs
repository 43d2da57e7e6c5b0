//! The parameterised task: a template from which each dispatch makes one task
//! (docs/internals/model/parameterised-tasks.md, "Parameterised tasks").
//!
//! ```text
//! dispatch ──▶ dispatched ──▶ launched at once: the same entry desires its task
//!                  │
//!                  ▼          the concurrency limit is reached, or other dispatches wait
//!               waiting ────▶ launched in its turn, when an earlier task has ended
//!                  └────────▶ withdrawn by a client, or because the template was removed
//! ```
//!
//! A dispatch is in the log, with everything that its task needs, before the client receives the answer. Each
//! dispatch becomes exactly one task, or the log records the reason that it did not.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::request::Requests;
use schemas::Timestamp;
use schemas::action::{Variable, variable_faults};
use schemas::cause::{Cause, Origin};
use schemas::container::Epoch;
use schemas::definition::{DesiredParameterised, DesiredTask, Overflow, PayloadRule, TaskDefinition};
use schemas::limits::{DISPATCH_KEYS, DISPATCHES_QUEUED};
use schemas::names::{DispatchKey, Domain, ParameterisedGuid, TaskGuid};
use schemas::parameterised::{Command, Dispatch, DispatchSummary, Event, WithdrawReason};
use schemas::refusal::{BadField, Code, Refusal};
use schemas::stamp::Stamp;
use schemas::subject::Position;

/// State of a parameterised task, also called its template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameterised {
    pub guid: ParameterisedGuid,
    pub domain: Domain,
    /// Current epoch of the guid, which is also the creation time of the template.
    pub epoch: Epoch,
    /// Number of decisions over all epochs. The number of a dispatch is the version of its decision. Dispatch
    /// numbers are therefore unique across epochs.
    pub version: u64,
    /// Log position of the last decision; 0 before that decision is in the log.
    pub last_decision: Position,
    /// Time of the last creation, update or removal of the template.
    pub since: Timestamp,
    /// Time at which the last task of a removed template ended. The removed template is remembered while one
    /// of its tasks exists, so that a new epoch never reuses the guid of a task.
    pub idle_since: Timestamp,
    /// Template and dispatch rules. `None` after the removal of the template, when only the answers to
    /// requests are remembered.
    pub desired: Option<Arc<DesiredParameterised>>,
    /// Waiting dispatches, the oldest first.
    pub queue: VecDeque<Arc<QueuedDispatch>>,
    /// Known dispatch keys, the oldest first.
    pub keys: VecDeque<DispatchKeyRecord>,
    /// Most recent dispatch of this epoch.
    pub last: Option<DispatchSummary>,
    /// Number of dispatches in this epoch.
    pub dispatched: u64,
    /// Number of dispatches in this epoch that became a task.
    pub launched: u64,
    /// Number of dispatches in this epoch that were withdrawn before they became a task.
    pub withdrawn: u64,
    /// Most recent requests with their answers.
    pub requests: Requests,
    /// Decision that last created or updated the template.
    pub cause: Cause,
}

/// Waiting dispatch, with the definition of the template at the time of the dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedDispatch {
    pub number: u64,
    /// Time of the dispatch.
    pub at: Timestamp,
    /// Decision that recorded the dispatch in the log.
    pub cause: Cause,
    pub dispatch: Dispatch,
    /// Definition of the task, without the content of the dispatch.
    pub definition: Arc<TaskDefinition>,
}

/// Dispatch key in use, with the dispatch that it identifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchKeyRecord {
    pub key: DispatchKey,
    /// Digest of the content of the dispatch that the key identifies, see [`Dispatch::digest`].
    pub digest: u64,
    /// Number of the dispatch that the key identifies.
    pub number: u64,
}

/// State outside the parameterised task that a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Returns `true` if the parameterised task has fewer PENDING and RUNNING tasks than this number.
    pub has_fewer_live_tasks: &'a dyn Fn(&ParameterisedGuid, u32) -> bool,
    /// Returns `true` if a task with this guid exists.
    pub task_exists: &'a dyn Fn(&TaskGuid) -> bool,
}

impl Parameterised {
    /// Returns `true` if the template was removed and is only remembered.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.desired.is_none()
    }

    /// Returns the tasks that these events launch. Each task combines the content of its dispatch with the
    /// template at the time of the dispatch.
    #[must_use]
    pub fn tasks(&self, events: &[Event]) -> Vec<DesiredTask> {
        let launched = |event: &Event| {
            let Event::Launched { number, .. } = event else { return None };
            self.task(*number, events)
        };
        events.iter().filter_map(launched).collect()
    }

    fn task(&self, number: u64, events: &[Event]) -> Option<DesiredTask> {
        let just_now = events.iter().find_map(|event| {
            let Event::Dispatched { number: of, dispatch, .. } = event else { return None };
            (*of == number).then_some(&**dispatch)
        });
        let (dispatch, definition) = match just_now {
            Some(dispatch) => (dispatch, &self.desired.as_ref()?.definition),
            None => self.queued(number).map(|waiting| (&waiting.dispatch, &waiting.definition))?,
        };
        let definition = TaskDefinition {
            environment_variables: dispatch.merged_environment(&self.guid, definition),
            priority: dispatch.priority.unwrap_or(definition.priority),
            ..(**definition).clone()
        };
        let task_guid = self.guid.dispatched_task_guid(number).ok()?;
        Some(DesiredTask { task_guid, domain: self.domain.clone(), definition: Arc::new(definition) })
    }

    fn queued(&self, number: u64) -> Option<&Arc<QueuedDispatch>> {
        self.queue.iter().find(|waiting| waiting.number == number)
    }
}

/// Returns the number of the earlier dispatch with the same key as the dispatch in a command. `None` if the
/// command repeats no dispatch.
///
/// # Errors
/// `RequestIdReused` if the key was used with different content.
pub fn repeated_dispatch(known: Option<&Parameterised>, command: &Command) -> Result<Option<u64>, Refusal> {
    let Command::Dispatch(dispatch) = command else { return Ok(None) };
    let living = known.filter(|known| !known.is_removed());
    let Some((known, key)) = living.zip(dispatch.key.as_ref()) else { return Ok(None) };
    let Some(first) = known.keys.iter().find(|first| first.key == *key) else { return Ok(None) };
    if first.digest == dispatch.digest() {
        return Ok(Some(first.number));
    }
    let why = format!(
        "key {key} belongs to dispatch {} of {} with another payload, parameters or priority: use a new key \
         for each dispatch",
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
            let why = format!("parameterised task {} already exists", known.guid);
            Err(Refusal::new(Code::ResourceExists, why))
        }
        (Command::Converge, None) => Ok(vec![]),
        (Command::Update(_) | Command::Dispatch(_) | Command::Withdraw(_) | Command::Remove, None) => {
            Err(Refusal::not_found("the parameterised task"))
        }
        (Command::Update(desired), Some((known, before))) => update(known, before, desired),
        (Command::Dispatch(dispatch), Some((known, desired))) => {
            match repeated_dispatch(Some(known), command)? {
                Some(number) => Ok(vec![Event::Repeated { number }]),
                None => decide_dispatch(known, desired, dispatch, context),
            }
        }
        (Command::Withdraw(number), Some((known, _))) => withdraw(known, *number),
        (Command::Remove, Some((known, _))) => {
            let numbers: Vec<u64> = known.queue.iter().map(|waiting| waiting.number).collect();
            let given_up = (!numbers.is_empty())
                .then_some(Event::Withdrawn { numbers, reason: WithdrawReason::Removed });
            Ok(given_up.into_iter().chain([Event::Removed {}]).collect())
        }
        (Command::Converge, Some((known, desired))) => {
            let first = known.queue.front().filter(|_| has_capacity(known, desired, context));
            Ok(first.and_then(|first| launch(known, first.number)).into_iter().collect())
        }
    }
}

/// Returns the origin of a decision. `known` is the state before the decision. The origin of a launch is the
/// decision that recorded the waiting dispatch.
#[must_use]
pub fn origin(known: Option<&Parameterised>, command: &Command) -> Origin {
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Dispatch(_)
        | Command::Withdraw(_)
        | Command::Remove => Origin::Root,
        Command::Converge => {
            known.map(|known| known.queue.front().map_or(known.cause, |first| first.cause)).into()
        }
    }
}

/// Decides an update. Waiting dispatches keep the definition from the time of the dispatch.
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

fn decide_dispatch(
    known: &Parameterised,
    desired: &DesiredParameterised,
    dispatch: &Dispatch,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let bad = faults(known, desired, dispatch);
    if !bad.is_empty() {
        return Err(Refusal::invalid(bad));
    }
    // Waiting dispatches go first, even if the concurrency limit allows another task again.
    let at_once = known.queue.is_empty() && has_capacity(known, desired, context);
    if !at_once {
        check_may_queue(known, desired)?;
    }
    let number = known.version + 1;
    let evicted_key = key_to_evict(known, dispatch, context)?;
    let event = Event::Dispatched { number, dispatch: Box::new(dispatch.clone()), evicted_key };
    let launched = at_once.then(|| launch(known, number)).flatten();
    Ok([event].into_iter().chain(launched).collect())
}

/// Returns every reason that the template rejects a dispatch.
fn faults(known: &Parameterised, desired: &DesiredParameterised, dispatch: &Dispatch) -> Vec<BadField> {
    let bad = |field: &str, problem: String| BadField { field: field.to_owned(), problem };
    let mut all = vec![];
    match (desired.payload, &dispatch.payload) {
        (PayloadRule::Required, None) => {
            all.push(bad("payload", format!("is missing: {} requires one", known.guid)));
        }
        (PayloadRule::Forbidden, Some(_)) => {
            all.push(bad("payload", format!("is not allowed: {} takes none", known.guid)));
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
        all.push(bad("parameters", format!("{name} is not a parameter of {}: it takes {takes}", known.guid)));
    }
    let environment = dispatch.merged_environment(&known.guid, &desired.definition);
    let too_much = variable_faults(&environment, "environment").into_iter();
    all.extend(too_much.map(|(field, problem)| {
        let problem = format!(
            "{problem}, including the payload (text counts twice, because of its base64 form) and \
                     the parameters"
        );
        BadField { field, problem }
    }));
    all
}

/// Returns `true` if the concurrency limit allows one more PENDING or RUNNING task of this template.
fn has_capacity(known: &Parameterised, desired: &DesiredParameterised, context: Context<'_>) -> bool {
    desired.concurrency.is_none_or(|most| (context.has_fewer_live_tasks)(&known.guid, most))
}

/// Returns an error if the dispatch must not wait in the queue.
fn check_may_queue(known: &Parameterised, desired: &DesiredParameterised) -> Result<(), Refusal> {
    let (guid, waits) = (&known.guid, known.queue.len());
    let most = desired.concurrency.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    match desired.overflow {
        Overflow::Queued if waits < DISPATCHES_QUEUED => Ok(()),
        Overflow::Queued => {
            let why = format!(
                "{waits} dispatches of {guid} are waiting, at most {DISPATCHES_QUEUED} are allowed: try \
                 again when one of its tasks has ended"
            );
            Err(Refusal::new(Code::Overloaded, why))
        }
        // The code is not `Overloaded`, because `Overloaded` invites a retry, and this template is configured
        // to refuse.
        Overflow::Refused => {
            let why = format!(
                "{guid} has reached its limit of PENDING and RUNNING tasks ({most}): try again when one \
                 has ended"
            );
            Err(Refusal::new(Code::InvalidStateTransition, why))
        }
    }
}

/// Returns the key that is forgotten in favour of a dispatch's key: the oldest key that is no longer in use.
///
/// # Errors
/// `Overloaded` if every remembered key is still in use.
fn key_to_evict(
    known: &Parameterised,
    dispatch: &Dispatch,
    context: Context<'_>,
) -> Result<Option<DispatchKey>, Refusal> {
    if dispatch.key.is_none() || known.keys.len() < DISPATCH_KEYS {
        return Ok(None);
    }
    let is_over = |one: &&DispatchKeyRecord| {
        let there =
            known.guid.dispatched_task_guid(one.number).is_ok_and(|task| (context.task_exists)(&task));
        !there && known.queued(one.number).is_none()
    };
    match known.keys.iter().find(is_over) {
        Some(oldest) => Ok(Some(oldest.key.clone())),
        None => {
            let why = format!(
                "all {DISPATCH_KEYS} dispatch keys of {} are in use: try again when one of these dispatches \
                 has ended, or omit the key",
                known.guid
            );
            Err(Refusal::new(Code::Overloaded, why))
        }
    }
}

fn launch(known: &Parameterised, number: u64) -> Option<Event> {
    known.guid.dispatched_task_guid(number).ok().map(|task_guid| Event::Launched { number, task_guid })
}

fn withdraw(known: &Parameterised, number: u64) -> Result<Vec<Event>, Refusal> {
    if known.queued(number).is_some() {
        return Ok(vec![Event::Withdrawn { numbers: vec![number], reason: WithdrawReason::Requested }]);
    }
    let why =
        format!("dispatch {number} of {} is not waiting: if it was launched, cancel its task", known.guid);
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
        Event::Dispatched { number, dispatch, evicted_key } => {
            known.record_dispatch(*number, dispatch, evicted_key.as_ref(), stamp);
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
    fn record_dispatch(
        &mut self,
        number: u64,
        dispatch: &Dispatch,
        forgets: Option<&DispatchKey>,
        stamp: &Stamp,
    ) {
        self.dispatched += 1;
        self.keys.retain(|known| Some(&known.key) != forgets);
        if let Some(key) = dispatch.key.clone() {
            self.keys.push_back(DispatchKeyRecord { key, digest: dispatch.digest(), number });
        }
        let task_guid = self.guid.dispatched_task_guid(number).ok();
        let last = |task_guid| DispatchSummary { number, task_guid, key: dispatch.key.clone(), at: stamp.at };
        self.last = task_guid.map(last);
        if let Some(desired) = &self.desired {
            let definition = Arc::clone(&desired.definition);
            let (at, cause, dispatch) = (stamp.at, stamp.cause(), dispatch.clone());
            self.queue.push_back(Arc::new(QueuedDispatch { number, at, cause, dispatch, definition }));
        }
    }
}
