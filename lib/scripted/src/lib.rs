//! Simulated in-memory containers that follow a script in their recipe, for simulation and benchmarks. The
//! crate uses no clock and no threads, and never waits. Steps are scheduled with their time, and
//! [`Scripted::advance`] executes them.
//!
//! The arguments of a recipe whose first program is `scripted` define its behaviour:
//!
//! | argument | meaning |
//! |---|---|
//! | `create=5ms` | time from INITIALIZING to CREATED |
//! | `start=10ms` | time from CREATED to RUNNING |
//! | `run=2s` | time from RUNNING to exit; default: endless for an LRP, zero for a task |
//! | `exit=1` | exit status; default: 0 |
//! | `result=TEXT` | result of a successful task |
//! | `ignore-term` | exits only on KILL, after its grace period |
//! | `never-healthy` | never RUNNING; fails after its start timeout |
//! | `hang-create` | stays INITIALIZING until stopped |
//! | `fail-create=TEXT` | creation fails for this reason |
//!
//! Times are in `ms` or `s`. Downloads and uploads take no time and succeed. A recipe with another first
//! program behaves like `scripted` without arguments: its container is RUNNING at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::{Container, ContainerState, NetInfo, PortMapping, Recipe, RunResult, WorkKey};
use schemas::isolation::Isolation;
use schemas::limits::{REASON_BYTES, truncate};
use schemas::names::InstanceGuid;

/// First host port that is assigned. After the last port, the assignment continues with the first port again.
const FIRST_PORT: u16 = 20_000;

/// Scripted behaviour of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    pub create: Create,
    /// Time from CREATED to RUNNING, or `None` if the container never becomes healthy.
    pub start: Option<Duration>,
    /// Time from RUNNING to exit, or `None` if the container runs forever.
    pub run: Option<Duration>,
    pub exit: u8,
    /// Result of the container if it is a task that succeeds.
    pub result: String,
    /// The container exits only on KILL.
    pub ignore_term: bool,
}

/// Outcome of the creation of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Create {
    /// Creation succeeds after this time.
    After(Duration),
    /// Creation fails at once, for this reason.
    Fails(String),
    /// Creation fails after this time, for this reason.
    FailsAfter(Duration, String),
    Hangs,
}

impl Default for Create {
    fn default() -> Self {
        Self::After(Duration::ZERO)
    }
}

/// Start or end of a container's action. The event is recorded even if no client learns of the start or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionEvent {
    pub instance_guid: InstanceGuid,
    pub work: WorkKey,
    pub at: Timestamp,
    pub what: ActionEventKind,
}

/// Kind of an [`ActionEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionEventKind {
    Started,
    /// The action had started and ended with this result.
    Ended(RunResult),
}

/// Scripted containers of one cell.
#[derive(Clone, Debug)]
pub struct Scripted {
    address: String,
    isolation: Isolation,
    script: fn(&Recipe) -> Behaviour,
    containers: BTreeMap<InstanceGuid, ScriptedContainer>,
    /// Scheduled steps, in the order of their execution.
    due: BTreeMap<(Timestamp, u64), (InstanceGuid, Step)>,
    /// Sequence number of the next scheduled step. Steps of the same time are executed in the order of their
    /// numbers.
    next_number: u64,
    next_port: u16,
    happened: Vec<ActionEvent>,
}

/// State of one container.
#[derive(Clone, Debug)]
struct ScriptedContainer {
    container: Container,
    behaviour: Behaviour,
    grace: Duration,
    start_timeout: Duration,
    container_ports: Vec<u16>,
    /// The action is running: from CREATED to COMPLETED.
    acting: bool,
    stopping: bool,
    deleting: bool,
    /// Keys of the container's steps in `Scripted::due`.
    due: BTreeSet<(Timestamp, u64)>,
}

/// Scheduled step of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Run,
    End(RunResult),
}

impl Create {
    /// Returns the first step and the delay before it, or `None` if creation hangs.
    fn first_step(&self) -> Option<(Duration, Step)> {
        let failed = |reason: &str| {
            let reason = truncate(&format!("failed to create container: {reason}"), REASON_BYTES);
            Step::End(RunResult::Failed { reason, exit_status: None })
        };
        match self {
            Self::After(time) => Some((*time, Step::Create)),
            Self::Fails(reason) => Some((Duration::ZERO, failed(reason))),
            Self::FailsAfter(time, reason) => Some((*time, failed(reason))),
            Self::Hangs => None,
        }
    }
}

impl Behaviour {
    /// Reads the behaviour from a recipe's first program.
    #[must_use]
    pub fn from_recipe(recipe: &Recipe) -> Self {
        let task = match recipe.work {
            WorkKey::Lrp { .. } => false,
            WorkKey::Task { .. } => true,
        };
        let default_value =
            Self { start: Some(Duration::ZERO), run: task.then_some(Duration::ZERO), ..Self::default() };
        // Recipes that only download or upload take no time and succeed.
        let Some(run) = recipe.action.first_run().filter(|run| run.path == "scripted") else {
            return default_value;
        };
        let read = run.args.iter().try_fold(default_value, |so_far, argument| {
            so_far.with_argument(argument).ok_or_else(|| format!("scripted: invalid argument {argument:?}"))
        });
        read.unwrap_or_else(|reason| Self { create: Create::Fails(reason), ..Self::default() })
    }

    /// Applies one more argument. Returns `None` if the argument is invalid.
    fn with_argument(mut self, argument: &str) -> Option<Self> {
        match argument.split_once('=').unwrap_or((argument, "")) {
            ("create", time) => self.create = Create::After(duration(time)?),
            ("start", time) => self.start = Some(duration(time)?),
            ("run", time) => self.run = Some(duration(time)?),
            ("exit", status) => self.exit = status.parse().ok()?,
            ("result", text) => text.clone_into(&mut self.result),
            ("ignore-term", "") => self.ignore_term = true,
            ("never-healthy", "") => self.start = None,
            ("hang-create", "") => self.create = Create::Hangs,
            ("fail-create", reason) => self.create = Create::Fails(reason.to_owned()),
            _ => return None,
        }
        Some(self)
    }
}

fn duration(text: &str) -> Option<Duration> {
    if let Some(millis) = text.strip_suffix("ms") {
        return millis.parse().ok().map(Duration::from_millis);
    }
    text.strip_suffix('s').and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
}

impl Scripted {
    /// Creates a cell without containers, reachable at `address`. `script` maps a recipe to its behaviour and
    /// is normally [`Behaviour::from_recipe`].
    #[must_use]
    pub fn new(address: &str, script: fn(&Recipe) -> Behaviour) -> Self {
        Self {
            address: address.to_owned(),
            isolation: Isolation::NONE,
            script,
            containers: BTreeMap::new(),
            due: BTreeMap::new(),
            next_number: 0,
            next_port: FIRST_PORT,
            happened: vec![],
        }
    }

    /// Sets the isolation that the containers report.
    #[must_use]
    pub fn with_isolation(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }
    }

    /// Returns every container, from INITIALIZING until it is deleted.
    #[must_use]
    pub fn list(&self) -> Vec<Container> {
        self.containers.values().map(|scene| scene.container.clone()).collect()
    }

    /// Returns the events since the last [`Scripted::take_events`], in order.
    #[must_use]
    pub fn events(&self) -> &[ActionEvent] {
        &self.happened
    }

    /// Takes the recorded events, so that they do not accumulate.
    pub fn take_events(&mut self) -> Vec<ActionEvent> {
        std::mem::take(&mut self.happened)
    }

    /// Creates a container. The container is INITIALIZING at once; [`Scripted::advance`] executes the later
    /// steps. An existing container with the same guid is left unchanged.
    pub fn run(&mut self, now: Timestamp, recipe: &Recipe) {
        self.run_with(now, recipe, (self.script)(recipe));
    }

    /// Creates a container like [`Scripted::run`], but uses the given behaviour instead of the script.
    pub fn run_with(&mut self, now: Timestamp, recipe: &Recipe, behaviour: Behaviour) {
        let guid = recipe.instance_guid;
        if self.containers.contains_key(&guid) {
            return;
        }
        let first = behaviour.create.first_step();
        let scene = ScriptedContainer {
            container: Container {
                instance_guid: guid,
                work: recipe.work.clone(),
                domain: recipe.domain.clone(),
                resources: recipe.resources,
                admitted_at: recipe.admitted_at,
                isolation: self.isolation,
                state: ContainerState::Initializing,
            },
            behaviour,
            grace: Duration::from_millis(recipe.grace_period_ms),
            start_timeout: Duration::from_millis(recipe.start_timeout_ms),
            container_ports: recipe.ports.clone(),
            acting: false,
            stopping: false,
            deleting: false,
            due: BTreeSet::new(),
        };
        self.containers.insert(guid, scene);
        if let Some((wait, step)) = first {
            self.schedule(guid, now + wait, step);
        }
    }

    /// Adopts an existing container. The container keeps its state and follows `behaviour` from this state
    /// on, with times counted from `now`. `ports` are the container ports on which a container that is not
    /// RUNNING yet will listen. An existing container with the same guid is left unchanged.
    pub fn adopt(&mut self, now: Timestamp, container: Container, behaviour: Behaviour, ports: Vec<u16>) {
        let guid = container.instance_guid;
        if self.containers.contains_key(&guid) {
            return;
        }
        let state = container.state.clone();
        let scene = ScriptedContainer {
            container,
            behaviour,
            grace: Duration::ZERO,
            start_timeout: Duration::ZERO,
            container_ports: ports,
            acting: matches!(state, ContainerState::Created | ContainerState::Running(_)),
            stopping: false,
            deleting: false,
            due: BTreeSet::new(),
        };
        let next = scene.next_step(&state);
        self.containers.insert(guid, scene);
        if let Some((wait, step)) = next {
            self.schedule(guid, now + wait, step);
        }
    }

    /// Stops a container, at once or after its grace period.
    pub fn stop(&mut self, now: Timestamp, guid: InstanceGuid) {
        let Some(scene) = self.containers.get_mut(&guid) else { return };
        if scene.stopping || scene.is_completed() {
            return;
        }
        scene.stopping = true;
        let wait = if scene.acting && scene.behaviour.ignore_term { scene.grace } else { Duration::ZERO };
        self.schedule_end(guid, now + wait, RunResult::Stopped);
    }

    /// Deletes a container, stopping it first if necessary.
    pub fn delete(&mut self, now: Timestamp, guid: InstanceGuid) {
        self.stop(now, guid);
        let Some(scene) = self.containers.get_mut(&guid) else { return };
        scene.deleting = true;
        if scene.is_completed() {
            self.containers.remove(&guid);
        }
    }

    /// Fails a container for the given reason, regardless of its script.
    pub fn crash(&mut self, now: Timestamp, guid: InstanceGuid, reason: &str) {
        let Some(scene) = self.containers.get(&guid) else { return };
        if !scene.is_completed() {
            self.schedule_end(
                guid,
                now,
                RunResult::Failed { reason: truncate(reason, REASON_BYTES), exit_status: None },
            );
        }
    }

    /// Returns the time of the next scheduled step, or `None` if no step is scheduled.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Executes every step that is due, and returns each state that a container entered. A container that is
    /// being deleted is returned as COMPLETED and removed.
    pub fn advance(&mut self, now: Timestamp) -> Vec<Container> {
        let mut changes = vec![];
        while let Some(((at, number), _)) = self.due.first_key_value()
            && *at <= now
        {
            let key = (*at, *number);
            let (guid, step) = self.due.remove(&key).expect("the first key exists");
            self.scene(guid).due.remove(&key);
            changes.push(self.take_step(key.0, guid, step));
        }
        changes
    }

    /// Executes one step of one container.
    fn take_step(&mut self, at: Timestamp, guid: InstanceGuid, step: Step) -> Container {
        match step {
            Step::Create => self.create(at, guid),
            Step::Run => self.enter_running(at, guid),
            Step::End(result) => {
                let scene = self.scene(guid);
                scene.container.state = ContainerState::Completed(result.clone());
                let acted = std::mem::take(&mut scene.acting);
                if acted {
                    self.record_event(guid, at, ActionEventKind::Ended(result));
                }
            }
        }
        let scene = self.scene(guid);
        let container = scene.container.clone();
        if scene.deleting && scene.is_completed() {
            self.containers.remove(&guid);
        }
        container
    }

    fn create(&mut self, at: Timestamp, guid: InstanceGuid) {
        let scene = self.scene(guid);
        scene.container.state = ContainerState::Created;
        scene.acting = true;
        let (start, timeout) = (scene.behaviour.start, scene.start_timeout);
        self.record_event(guid, at, ActionEventKind::Started);
        match start {
            Some(time) => self.schedule(guid, at + time, Step::Run),
            None if timeout.is_zero() => {}
            None => {
                let reason = format!("Instance never healthy after {timeout:?}: Exited with status 1");
                self.schedule(guid, at + timeout, Step::End(RunResult::Failed { reason, exit_status: None }));
            }
        }
    }

    fn enter_running(&mut self, at: Timestamp, guid: InstanceGuid) {
        let container_ports = std::mem::take(&mut self.scene(guid).container_ports);
        let ports = container_ports.into_iter().map(|container_port| {
            let host_port = self.next_port;
            self.next_port = host_port.checked_add(1).unwrap_or(FIRST_PORT);
            PortMapping { container_port, host_port }
        });
        let net = NetInfo { ports: ports.collect(), address: self.address.as_str().into() };
        let scene = self.scene(guid);
        scene.container.state = ContainerState::Running(net);
        let end = scene.exit_result();
        if let Some(time) = scene.behaviour.run {
            self.schedule(guid, at + time, Step::End(end));
        }
    }

    fn schedule(&mut self, guid: InstanceGuid, at: Timestamp, step: Step) {
        let key = (at, self.next_number);
        self.next_number += 1;
        self.due.insert(key, (guid, step));
        self.scene(guid).due.insert(key);
    }

    /// Replaces all scheduled steps of a container by its end. If an earlier end is scheduled, keeps the
    /// earlier end.
    fn schedule_end(&mut self, guid: InstanceGuid, at: Timestamp, result: RunResult) {
        let planned = std::mem::take(&mut self.scene(guid).due);
        for key in planned {
            let (_, step) = self.due.remove(&key).expect("every step of a container is scheduled");
            match step {
                Step::End(sooner) if key.0 <= at => return self.schedule(guid, key.0, Step::End(sooner)),
                Step::Create | Step::Run | Step::End(_) => {}
            }
        }
        self.schedule(guid, at, Step::End(result));
    }

    fn record_event(&mut self, guid: InstanceGuid, at: Timestamp, what: ActionEventKind) {
        let work = self.scene(guid).container.work.clone();
        self.happened.push(ActionEvent { instance_guid: guid, work, at, what });
    }

    fn scene(&mut self, guid: InstanceGuid) -> &mut ScriptedContainer {
        self.containers.get_mut(&guid).expect("only an existing container has scheduled steps")
    }
}

impl ScriptedContainer {
    const fn is_completed(&self) -> bool {
        match self.container.state {
            ContainerState::Completed(_) => true,
            ContainerState::Reserved
            | ContainerState::Initializing
            | ContainerState::Created
            | ContainerState::Running(_) => false,
        }
    }

    /// Returns the step after a state, and the delay before the step. `None` if no step follows.
    fn next_step(&self, state: &ContainerState) -> Option<(Duration, Step)> {
        match state {
            ContainerState::Reserved | ContainerState::Initializing => self.behaviour.create.first_step(),
            ContainerState::Created => Some((self.behaviour.start?, Step::Run)),
            ContainerState::Running(_) => Some((self.behaviour.run?, Step::End(self.exit_result()))),
            ContainerState::Completed(_) => None,
        }
    }

    /// Returns the result of a container that exits on its own.
    fn exit_result(&self) -> RunResult {
        let exit = self.behaviour.exit;
        let reason = format!("Exited with status {exit}");
        let failed = RunResult::Failed { reason, exit_status: Some(exit.into()) };
        match (&self.container.work, exit) {
            (WorkKey::Task { .. }, 0) => RunResult::Succeeded { result: self.behaviour.result.clone() },
            (WorkKey::Task { .. } | WorkKey::Lrp { .. }, _) => failed,
        }
    }
}
