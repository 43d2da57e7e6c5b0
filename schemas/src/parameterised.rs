//! The parameterised task: a template from which each dispatch makes a task of its own
//! (docs/model.md, "Parameterised tasks").
//!
//! ```text
//! dispatch ──▶ dispatched ──▶ launched: its task is desired in the same entry
//!                  │  ▲
//!                  ▼  └ at once, unless the limit is reached or others wait
//!                waits ──────▶ launched, in its turn, when a task of it has ended
//!                  └─────────▶ withdrawn: somebody asked, or what it waited in was removed
//! ```
//! What was dispatched is in the log before anybody is told so, with everything that its task needs: it becomes one task,
//! or the log says why none.

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

/// What a task finds its payload in, if that is text.
const PAYLOAD: &str = "MUSTER_PAYLOAD";
/// What a task finds its payload in, in base64.
const PAYLOAD_BASE64: &str = "MUSTER_PAYLOAD_BASE64";
/// What the names of parameters stand behind.
const PARAMETER: &str = "MUSTER_PARAM_";
/// What a task finds the guid of its template in.
const TEMPLATE: &str = "MUSTER_PARAMETERISED_GUID";
/// What a task finds the key of its dispatch in.
const KEY: &str = "MUSTER_DISPATCH_KEY";

/// What is true of a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameterised {
    /// Its name.
    pub guid: ParameterisedGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life of the guid this is; also when it was desired.
    pub epoch: Epoch,
    /// Decisions so far. A dispatch has the number of its decision, so no two of any life have the same.
    pub version: u64,
    /// Where the last decision stands in the log; 0: nowhere yet.
    pub last_decision: Position,
    /// When it was desired, updated or removed.
    pub since: Timestamp,
    /// Since when nothing needs it, once it was removed: it is remembered as long as a task of it is there, so that no
    /// other life gives a task the same name.
    pub idle_since: Timestamp,
    /// What it dispatches, and how. None: it was removed, and only its answers are remembered.
    pub desired: Option<Arc<DesiredParameterised>>,
    /// What was dispatched and waits, the oldest first.
    pub queue: VecDeque<Arc<Waiting>>,
    /// The keys that are known, the oldest first.
    pub keys: VecDeque<KnownKey>,
    /// The last dispatch.
    pub last: Option<Dispatched>,
    /// How many dispatches there were in this life.
    pub dispatched: u64,
    /// How many of them have a task, or had one.
    pub launched: u64,
    /// How many of them were withdrawn before they had one.
    pub withdrawn: u64,
    /// The newest requests and their answers.
    pub requests: Requests,
    /// The decision that last said what it dispatches.
    pub cause: Cause,
}

/// What a client dispatches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch {
    /// Bytes for the task, in base64.
    pub payload: Option<Secret>,
    /// Named values for the task, in order of their names.
    pub parameters: Vec<Variable>,
    /// The same key again is the same dispatch.
    pub key: Option<DispatchKey>,
    /// How urgent the task is; none: as the template says.
    pub priority: Option<Priority>,
}

/// A dispatch that waits for its turn, with the template that it was dispatched with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its number.
    pub number: u64,
    /// When it was dispatched.
    pub at: Timestamp,
    /// The decision that did.
    pub cause: Cause,
    /// What was dispatched.
    pub dispatch: Dispatch,
    /// What its task runs, without what was dispatched.
    pub definition: Arc<TaskDefinition>,
}

/// A key, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    /// The key.
    pub key: DispatchKey,
    /// What was dispatched with it, as [`Dispatch::digest`] puts it.
    pub digest: u64,
    /// The number of that dispatch.
    pub number: u64,
}

/// One dispatch, to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dispatched {
    /// Its number.
    pub number: u64,
    /// Its task, which is there when it was launched.
    pub task_guid: TaskGuid,
    /// Its key.
    pub key: Option<DispatchKey>,
    /// When it was dispatched.
    pub at: Timestamp,
}

/// Why a dispatch became no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawReason {
    /// Somebody withdrew it while it waited.
    Asked,
    /// The parameterised task was removed while it waited.
    Removed,
}

/// What can be asked of a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A client desires it.
    Desire(Box<DesiredParameterised>),
    /// A client wants it to be like this from the next dispatch on.
    Update(Box<DesiredParameterised>),
    /// A client wants a task made of it.
    Dispatch(Box<Dispatch>),
    /// The dispatch of this number shall become no task. It waits still.
    Withdraw(u64),
    /// It is no longer desired. What it launched runs on, what waits is withdrawn.
    Remove,
    /// The BBS looks whether what waits longest may be launched.
    Converge,
}

/// What happens to parameterised tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was desired: a new epoch begins.
    Desired {
        /// As what.
        desired: Box<DesiredParameterised>,
    },
    /// It is another one from the next dispatch on.
    Updated {
        /// As what.
        desired: Box<DesiredParameterised>,
    },
    /// Somebody dispatched it: a task follows at once, or when it is its turn.
    Dispatched {
        /// Its number: the version that this decision makes.
        number: u64,
        /// What was dispatched.
        dispatch: Box<Dispatch>,
        /// The key that is forgotten for its key.
        forgets: Option<DispatchKey>,
    },
    /// Somebody dispatched again, by its key, what has this number: nothing is made, and the answer is remembered.
    Repeated {
        /// The number of the first dispatch.
        number: u64,
    },
    /// A dispatch became a task. The same entry desires that.
    Launched {
        /// Its number.
        number: u64,
        /// The task.
        task_guid: TaskGuid,
    },
    /// Dispatches that waited become no tasks.
    Withdrawn {
        /// Their numbers.
        numbers: Vec<u64>,
        /// Why.
        reason: WithdrawReason,
    },
    /// It is no longer desired.
    Removed {},
}

/// What else a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Whether fewer than so many tasks that a parameterised task launched are PENDING or RUNNING.
    pub fewer: &'a dyn Fn(&ParameterisedGuid, u32) -> bool,
    /// Whether a task of this guid is there.
    pub exists: &'a dyn Fn(&TaskGuid) -> bool,
}

impl Dispatch {
    /// What was dispatched, told from everything else that may come with the same key.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let Self { payload, parameters, key: _, priority } = self;
        let text = serde_json::to_string(&(payload, parameters, priority)).unwrap_or_default();
        crate::subject::fnv_1a(&text)
    }

    /// The bytes of its payload.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.payload.as_ref()?.plain()?.as_bytes()).ok()
    }

    /// What a task finds of it in its environment: the payload in base64 and, if it is text without NUL, as it is; each
    /// parameter behind `MUSTER_PARAM_`.
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

    /// The environment of its task: what the template says stands where the dispatch says nothing.
    fn over(&self, of: &ParameterisedGuid, template: &TaskDefinition) -> Vec<Variable> {
        let own = self.environment(of);
        let said = |one: &&Variable| own.iter().all(|other| other.name != one.name);
        let mut all: Vec<Variable> = template.environment_variables.iter().filter(said).cloned().collect();
        all.extend(own);
        all
    }
}

impl Parameterised {
    /// Whether it was removed, and is only remembered.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.desired.is_none()
    }

    /// The tasks that events launch: what the template said when each was dispatched, with what was dispatched.
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

/// The number of the dispatch that a command asks for again, by its key.
///
/// # Errors
/// `RequestIdReused` if the key came with something else.
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

/// Judges a command against what is true. No events: it is so already.
///
/// # Errors
/// `ResourceExists`, `ResourceNotFound`, `Forbidden` if an update names another domain, `InvalidRequest` for a dispatch
/// that the template doesn't take, `RequestIdReused`, `InvalidStateTransition` if as many run as may and none shall wait,
/// `Overloaded` if as many wait, or have keys, as may.
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

/// Where a decision comes from, told from what was true before it: a launch from the dispatch that waited.
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

/// What waits was dispatched with the template as it was then: an update changes nothing of it.
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
    // Whoever waits goes first, even where there is room again.
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

/// Everything for which the template doesn't take a dispatch.
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

/// Whether one more of its tasks may be PENDING or RUNNING.
fn is_free(known: &Parameterised, desired: &DesiredParameterised, context: Context<'_>) -> bool {
    desired.concurrency.is_none_or(|most| (context.fewer)(&known.guid, most))
}

/// Whether a dispatch may wait.
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
        // Whoever wants to be refused doesn't want to try again and again.
        Overflow::Refused => {
            let why = format!(
                "{most} of the tasks of {guid} may be PENDING or RUNNING, and as many are or wait: try again when one has ended"
            );
            Err(Refusal::new(Code::InvalidStateTransition, why))
        }
    }
}

/// The key that is forgotten for that of a dispatch: the oldest whose dispatch is over.
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

/// Folds one decision's events. Total: the log is never argued with.
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
