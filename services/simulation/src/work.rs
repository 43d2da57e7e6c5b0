//! Commands of clients, and the work that they desire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::action::{Action, Run, Secret, Variable};
use schemas::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic, DesiredTask, Mode,
    Overflow, Overlap, PayloadRule, Placement, Routes, TaskDefinition,
};
use schemas::exec::Exec;
use schemas::names::{
    DefinitionId, DispatchKey, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, Stack, TaskGuid,
};
use schemas::parameterised::Dispatch;
use schemas::policy::{FailureAction, Policies, RestartPolicy, UpdatePolicy};
use schemas::priority::Priority;
use schemas::process::{Purpose, RolloutControl};
use schemas::resources::Constraint;
use schemas::schedule::Schedule;
use schemas::spec::{self, ClientCommand, PeriodicAction};

use crate::rules::{IsolationRule, RackRule};
use crate::shape::tag;

/// Command of a client, as plans and stories contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Desires a process.
    Desire { process: ProcessGuid, instances: u32, work: Work },
    /// Desires a global process, with one instance on each cell that fits.
    DesireGlobal { process: ProcessGuid, work: Work },
    /// Changes the number of instances.
    Scale { process: ProcessGuid, instances: u32 },
    /// Changes the priority of a process.
    Rank { process: ProcessGuid, priority: Priority },
    /// Changes the routes and the annotation of a process.
    Describe {
        process: ProcessGuid,
        /// Text of both.
        text: String,
    },
    /// Changes the restart policy of a process, and resets its update policy to the default.
    Policy { process: ProcessGuid, restart: RestartPolicy },
    /// Deploys another definition.
    Deploy {
        process: ProcessGuid,
        definition: DefinitionId,
        work: Work,
        /// New policies. `None` keeps the current ones.
        rolls: Option<Box<Rolls>>,
    },
    /// Activates a known definition of a process.
    Activate(ProcessGuid, DefinitionId),
    /// Restarts every instance.
    Restart(ProcessGuid),
    /// Pauses, resumes or rolls back a rollout.
    Steer(ProcessGuid, RolloutControl),
    /// Removes a process.
    Remove(ProcessGuid),
    /// Replaces an instance.
    Retire(ProcessGuid, u32),
    /// Runs a program in the container of an instance.
    Enter(ProcessGuid, u32),
    /// Desires a task.
    Run {
        task: TaskGuid,
        work: Work,
        /// Owner that is called after the task has completed.
        owner: Owner,
        /// Maximum time in the queue. `None` fails the task if no cell has room.
        queue: Option<Duration>,
    },
    /// Cancels a task.
    Cancel(TaskGuid),
    /// Resolves a task.
    Resolve(TaskGuid),
    /// Desires or updates a periodic task.
    Periodic {
        periodic: PeriodicGuid,
        /// `true` for an update.
        update: bool,
        often: Often,
        overlap: Overlap,
        work: Work,
    },
    /// Pauses, resumes, launches or removes a periodic task.
    OfPeriodic(PeriodicGuid, PeriodicAction),
    /// Desires or updates a parameterised task.
    Parameterised {
        parameterised: ParameterisedGuid,
        /// `true` for an update.
        update: bool,
        /// Concurrency limit.
        limit: Option<u32>,
        overflow: Overflow,
        work: Work,
    },
    /// Dispatches a parameterised task.
    Dispatch {
        parameterised: ParameterisedGuid,
        key: Option<DispatchKey>,
        payload: Option<String>,
        /// Value of the parameter `colour`.
        colour: Option<String>,
        priority: Option<Priority>,
    },
    /// Withdraws a waiting dispatch.
    Withdraw(ParameterisedGuid, u64),
    /// Removes a parameterised task.
    RemoveParameterised(ParameterisedGuid),
    /// Refreshes the domain for a time, or without expiry.
    Fresh(Option<Duration>),
}

/// Schedule of a periodic task. The offset of its time zone is a whole number of half hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// Every minute, in Berlin.
    Minute,
    /// Every second minute, in Kolkata.
    TwoMinutes,
}

impl Often {
    fn schedule(self) -> Schedule {
        let (cron, zone) = match self {
            Self::Minute => ("* * * * *", "Europe/Berlin"),
            Self::TwoMinutes => ("*/2 * * * *", "Asia/Kolkata"),
        };
        Schedule::new(cron, zone).expect("both are valid")
    }
}

/// Owner of a task, with its answers to callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No owner.
    None,
    /// Answers 200.
    Well,
    /// Answers with success, failure or not at all.
    Moody,
    /// Answers 404.
    Absent,
    /// Answers 500.
    Broken,
}

impl Owner {
    /// Owners with their names.
    pub const NAMES: [(Self, &str); 5] = [
        (Self::None, "none"),
        (Self::Well, "well"),
        (Self::Moody, "moody"),
        (Self::Absent, "absent"),
        (Self::Broken, "broken"),
    ];

    /// Returns the name in stories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Well => "well",
            Self::Moody => "moody",
            Self::Absent => "absent",
            Self::Broken => "broken",
        }
    }

    fn url(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Well | Self::Moody | Self::Absent | Self::Broken => {
                Some(format!("http://owner/{}", self.name()))
            }
        }
    }
}

/// Rollout policies of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rolls {
    /// Update policy. The rollback policy is equal, but pauses instead of rolling back.
    pub update: UpdatePolicy,
    /// Minimum number of running instances.
    pub min_running: Option<u32>,
    /// Number of ended containers that are kept for each index.
    pub history: Option<u32>,
}

impl Rolls {
    /// Returns the default policies.
    #[must_use]
    pub const fn basic() -> Self {
        Self { update: UpdatePolicy::default_update(), min_running: None, history: None }
    }

    fn policies(&self) -> Policies {
        let failure_action = match self.update.failure_action {
            FailureAction::Rollback => FailureAction::Pause,
            other @ (FailureAction::Hold | FailureAction::Pause | FailureAction::Continue) => other,
        };
        let rollback = UpdatePolicy { failure_action, ..self.update.clone() };
        Policies {
            rollback,
            update: self.update.clone(),
            min_running: self.min_running,
            history_limit: self.history,
            ..Policies::default()
        }
    }
}

/// Behaviour and demands of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Time until the container is created.
    pub create: Duration,
    /// Time from its creation until it is healthy.
    pub start: Duration,
    /// Time from then until it ends. `None`: a process runs forever, and a task ends at once.
    pub run: Option<Duration>,
    /// Exit status.
    pub exit: u8,
    /// Result of a task that succeeds.
    pub result: String,
    /// `true` if only KILL ends the container.
    pub ignores_term: bool,
    /// `true` if the container is never created, without an error.
    pub hangs: bool,
    /// `true` if the container cannot be created.
    pub fails: bool,
    /// `true` if the monitor never succeeds, until its start timeout.
    pub unhealthy: bool,
    pub memory_mb: u64,
    /// Required stack.
    pub stack: Option<Stack>,
    /// `true` if the work requires the tag `gpu`.
    pub tag: bool,
    /// Constraints and affinities for racks and sibling instances.
    pub racks: Option<RackRule>,
    /// Isolation requirements.
    pub isolation: Option<IsolationRule>,
    /// Priority. `None` for the default.
    pub priority: Option<Priority>,
}

impl Work {
    /// Returns small work that runs at once.
    #[must_use]
    pub const fn basic() -> Self {
        Self {
            create: Duration::from_millis(20),
            start: Duration::from_millis(50),
            run: None,
            exit: 0,
            result: String::new(),
            ignores_term: false,
            hangs: false,
            fails: false,
            unhealthy: false,
            memory_mb: 64,
            stack: None,
            tag: false,
            racks: None,
            isolation: None,
            priority: None,
        }
    }

    fn action(&self) -> Action {
        let mut args = vec![format!("create={}ms", self.create.as_millis())];
        args.push(format!("start={}ms", self.start.as_millis()));
        args.extend(self.run.map(|time| format!("run={}ms", time.as_millis())));
        args.extend((self.exit != 0).then(|| format!("exit={}", self.exit)));
        args.extend((!self.result.is_empty()).then(|| format!("result={}", self.result)));
        args.extend(self.ignores_term.then(|| "ignore-term".to_owned()));
        args.extend(self.hangs.then(|| "hang-create".to_owned()));
        args.extend(self.unhealthy.then(|| "never-healthy".to_owned()));
        args.extend(self.fails.then(|| "fail-create=out of luck".to_owned()));
        Action::Run(Run { path: "scripted".into(), args, ..Run::default() })
    }

    fn constraint(&self) -> Constraint {
        Constraint {
            stack: self.stack.clone(),
            placement_tags: self.tag.then(tag).into_iter().collect(),
            isolation: self.isolation.map(IsolationRule::wanted).unwrap_or_default(),
            rules: self.racks.map(|rule| Box::new(rule.rules())),
        }
    }
}

impl Ask {
    /// Returns the command for a domain.
    #[must_use]
    pub fn command(&self, domain: &Domain) -> ClientCommand {
        match self {
            Self::Desire { process, instances, work } => {
                ClientCommand::LrpDesire(Box::new(desired(process, domain, *instances, work)))
            }
            Self::DesireGlobal { process, work } => {
                let lrp = desired(process, domain, 0, work);
                ClientCommand::LrpDesire(Box::new(DesiredLrp { mode: Mode::Global, ..lrp }))
            }
            Self::Scale { process, instances } => changed(
                process,
                DesiredLrpUpdate { instances: Some(*instances), ..DesiredLrpUpdate::default() },
            ),
            Self::Rank { process, priority } => {
                let update = DesiredLrpUpdate { priority: Some(*priority), ..DesiredLrpUpdate::default() };
                changed(process, update)
            }
            Self::Describe { process, text } => changed(process, described(text)),
            Self::Policy { process, restart } => changed(process, restarting(restart)),
            Self::Deploy { process, definition, work, rolls } => {
                deployed(process, definition, work, rolls.as_deref())
            }
            Self::Activate(process, definition) => {
                let (process_guid, definition_id) = (process.clone(), definition.clone());
                ClientCommand::LrpActivate { process_guid, definition_id }
            }
            Self::Restart(process) => {
                ClientCommand::LrpRestart { process_guid: process.clone(), purpose: Purpose::Restart }
            }
            Self::Steer(process, steer) => {
                ClientCommand::LrpSteer { process_guid: process.clone(), steer: *steer }
            }
            Self::Remove(process) => ClientCommand::LrpRemove { process_guid: process.clone() },
            Self::Retire(process, index) => {
                let (process_guid, index) = (process.clone(), *index);
                ClientCommand::LrpRetire { process_guid, index, definition_id: None }
            }
            Self::Enter(process, index) => entered(process.clone(), *index),
            Self::Run { task, work, owner, queue } => {
                ClientCommand::TaskDesire(Box::new(desired_task(task, domain, work, *owner, *queue)))
            }
            Self::Cancel(task) => ClientCommand::TaskCancel { task_guid: task.clone() },
            Self::Resolve(task) => ClientCommand::TaskResolve { task_guid: task.clone() },
            Self::Periodic { periodic, update, often, overlap, work } => {
                let desired = desired_periodic(periodic, domain, *often, *overlap, work);
                desire_periodic(desired, *update)
            }
            Self::OfPeriodic(periodic, ask) => {
                ClientCommand::PeriodicAction { periodic_guid: periodic.clone(), ask: *ask }
            }
            Self::Parameterised { parameterised, update, limit, overflow, work } => {
                desire_parameterised(parameterised, domain, *update, (*limit, *overflow), work)
            }
            Self::Dispatch { parameterised, key, payload, colour, priority } => {
                let parameterised_guid = parameterised.clone();
                let dispatch = dispatch(key.as_ref(), payload.as_deref(), colour.as_deref(), *priority);
                ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch: Box::new(dispatch) }
            }
            Self::Withdraw(of, number) => {
                ClientCommand::ParameterisedWithdraw { parameterised_guid: of.clone(), number: *number }
            }
            Self::RemoveParameterised(of) => {
                ClientCommand::ParameterisedRemove { parameterised_guid: of.clone() }
            }
            Self::Fresh(time) => {
                let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms: time.map(millis) }
            }
        }
    }
}

/// Returns an update that keeps the definition.
fn changed(process: &ProcessGuid, update: DesiredLrpUpdate) -> ClientCommand {
    ClientCommand::LrpUpdate { process_guid: process.clone(), update, definition: None }
}

/// Returns an update of routes and annotation.
fn described(text: &str) -> DesiredLrpUpdate {
    let (routes, annotation) = (Some(routes(text)), Some(text.to_owned()));
    DesiredLrpUpdate { routes, annotation, ..DesiredLrpUpdate::default() }
}

/// Returns an update of the restart policy.
fn restarting(restart: &RestartPolicy) -> DesiredLrpUpdate {
    let policies = Some(Policies { restart: restart.clone(), ..Policies::default() });
    DesiredLrpUpdate { policies, ..DesiredLrpUpdate::default() }
}

/// Returns an update to another definition.
fn deployed(
    process: &ProcessGuid,
    definition: &DefinitionId,
    work: &Work,
    rolls: Option<&Rolls>,
) -> ClientCommand {
    let update = DesiredLrpUpdate { policies: rolls.map(Rolls::policies), ..DesiredLrpUpdate::default() };
    // Definitions with different ids have different contents.
    let name = Variable { name: "DEFINITION".into(), value: Secret::Plain(definition.as_str().into()) };
    let content = Definition { environment_variables: vec![name], ..self::definition(work) };
    let definition = Some((definition.clone(), content.into()));
    ClientCommand::LrpUpdate { process_guid: process.clone(), update, definition }
}

/// Start timeout of a monitor.
const START_TIMEOUT_MS: u64 = 3_000;

/// Returns routes with this text.
fn routes(text: &str) -> Routes {
    let host = format!("{{\"host\":\"{text}\"}}");
    BTreeMap::from([("http".to_owned(), host)])
}

fn definition(work: &Work) -> Definition {
    Definition {
        constraint: work.constraint().into(),
        monitor: work.unhealthy.then(|| work.action().into()),
        start_timeout_ms: if work.unhealthy { START_TIMEOUT_MS } else { 0 },
        memory_mb: work.memory_mb,
        disk_mb: 64,
        ports: vec![8080].into(),
        grace_period_ms: 2_000,
        ..Definition::new(work.action())
    }
}

fn desired(process: &ProcessGuid, domain: &Domain, instances: u32, work: &Work) -> DesiredLrp {
    DesiredLrp {
        process_guid: process.clone(),
        domain: domain.clone(),
        mode: Mode::Replicated,
        instances,
        priority: work.priority.unwrap_or_default(),
        routes: routes("first"),
        annotation: format!("made of {process}"),
        policies: Policies::default(),
        definition_id: definition_id(process, work),
        definition: definition(work).into(),
    }
}

/// Returns a definition id that differs for different work.
fn definition_id(process: &ProcessGuid, work: &Work) -> DefinitionId {
    DefinitionId::new(&format!("{process}-{}", work.memory_mb)).expect("a name")
}

fn desired_task(
    task: &TaskGuid,
    domain: &Domain,
    work: &Work,
    owner: Owner,
    queue: Option<Duration>,
) -> DesiredTask {
    let deadline = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let definition = TaskDefinition {
        constraint: work.constraint(),
        environment_variables: vec![],
        action: work.action(),
        memory_mb: work.memory_mb,
        disk_mb: 64,
        cpu_weight: 0,
        result_file: "result".into(),
        completion_callback_url: owner.url().map(|url| Secret::Plain(url.into())),
        annotation: format!("made of {task}"),
        priority: work.priority.unwrap_or_default(),
        placement: queue.map_or(Placement::Fail, |time| Placement::Queue { deadline_ms: deadline(time) }),
        grace_period_ms: 1_000,
        sandbox: None,
    };
    DesiredTask { task_guid: task.clone(), domain: domain.clone(), definition: definition.into() }
}

fn desire_periodic(desired: DesiredPeriodic, update: bool) -> ClientCommand {
    let verb = if update { ClientCommand::PeriodicUpdate } else { ClientCommand::PeriodicDesire };
    verb(Box::new(desired))
}

fn desired_periodic(
    periodic: &PeriodicGuid,
    domain: &Domain,
    often: Often,
    overlap: Overlap,
    work: &Work,
) -> DesiredPeriodic {
    let name = TaskGuid::new(periodic.as_str()).expect("it is shorter");
    DesiredPeriodic {
        periodic_guid: periodic.clone(),
        domain: domain.clone(),
        schedule: often.schedule(),
        overlap,
        definition: desired_task(&name, domain, work, Owner::None, None).definition,
    }
}

fn desire_parameterised(
    parameterised: &ParameterisedGuid,
    domain: &Domain,
    update: bool,
    (concurrency, overflow): (Option<u32>, Overflow),
    work: &Work,
) -> ClientCommand {
    let name = TaskGuid::new(parameterised.as_str()).expect("it is shorter");
    let desired = Box::new(DesiredParameterised {
        parameterised_guid: parameterised.clone(),
        domain: domain.clone(),
        payload: PayloadRule::Optional,
        required_parameters: BTreeSet::new(),
        optional_parameters: ["colour".to_owned()].into(),
        concurrency,
        // A template without a limit has no overflow.
        overflow: concurrency.map(|_| overflow).unwrap_or_default(),
        definition: desired_task(&name, domain, work, Owner::None, None).definition,
    });
    if update {
        ClientCommand::ParameterisedUpdate(desired)
    } else {
        ClientCommand::ParameterisedDesire(desired)
    }
}

fn dispatch(
    key: Option<&DispatchKey>,
    payload: Option<&str>,
    colour: Option<&str>,
    priority: Option<Priority>,
) -> Dispatch {
    let value = |text: &str| Secret::Plain(text.into());
    let colour = colour.map(|colour| Variable { name: "colour".into(), value: value(colour) });
    Dispatch {
        payload: payload.map(|text| spec::payload(text.as_bytes())),
        parameters: colour.into_iter().collect(),
        key: key.cloned(),
        priority,
    }
}

/// Returns the domain of most processes and tasks.
#[must_use]
pub fn domain() -> Domain {
    Domain::new("apps").expect("a name")
}

fn entered(process_guid: ProcessGuid, index: u32) -> ClientCommand {
    let exec = Exec { path: "scripted".into(), ..Exec::default() };
    ClientCommand::InstanceExec { process_guid, index, definition_id: None, exec }
}

/// Returns another domain, whose clients use the same names.
#[must_use]
pub fn other_domain() -> Domain {
    Domain::new("strangers").expect("a name")
}
