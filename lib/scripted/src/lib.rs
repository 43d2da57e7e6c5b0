//! Containers in memory that behave as their recipe says: for simulation and benchmarks. No clock, no thread, no
//! waiting: what happens is put down with its time, and [`Scripted::advance`] makes it happen.
//!
//! A recipe whose first program is `scripted` says in its arguments how it behaves:
//!
//! | argument | meaning |
//! |---|---|
//! | `create=5ms` | time from INITIALIZING to CREATED |
//! | `start=10ms` | time from CREATED to RUNNING |
//! | `run=2s` | time from RUNNING to its end; else an LRP runs for ever and a task ends at once |
//! | `exit=1` | ends with this status, 0 unless given |
//! | `result=TEXT` | what a task that ends well has to say |
//! | `ignore-term` | ends only by KILL, when its grace period is over |
//! | `never-healthy` | is never RUNNING; fails when its start timeout is over |
//! | `hang-create` | stays INITIALIZING until it is stopped |
//! | `fail-create=TEXT` | can't be created |
//!
//! Times are in `ms` or `s`. What is fetched and sent takes no time and succeeds. Any other recipe behaves as one without arguments: RUNNING at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::{Container, ContainerState, NetInfo, PortMapping, Recipe, RunResult, WorkKey};
use schemas::isolation::Isolation;
use schemas::limits::{REASON_BYTES, cut};
use schemas::names::InstanceGuid;

/// The first port of the host that is given out, and the first again after the last.
const FIRST_PORT: u16 = 20_000;

/// How a container behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// What becomes of its creation.
    pub create: Create,
    /// Time from CREATED to RUNNING; none: it is never healthy.
    pub start: Option<Duration>,
    /// Time from RUNNING to its end; none: for ever.
    pub run: Option<Duration>,
    /// The status that it exits with.
    pub exit: u8,
    /// What it has to say if it is a task that ends well.
    pub result: String,
    /// Whether it ends only by KILL.
    pub ignore_term: bool,
}

/// What becomes of the creation of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Create {
    /// It is created after this time.
    After(Duration),
    /// It fails, for this reason.
    Fails(String),
    /// It fails after this time, for this reason.
    FailsAfter(Duration, String),
    /// It takes for ever.
    Hangs,
}

impl Default for Create {
    fn default() -> Self {
        Self::After(Duration::ZERO)
    }
}

/// Something that really happened, whatever anybody heard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The container.
    pub instance_guid: InstanceGuid,
    /// What it is for.
    pub work: WorkKey,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// What can happen to an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It began to run.
    Started,
    /// It ran and runs no more.
    Ended(RunResult),
}

/// The containers of one cell.
#[derive(Clone, Debug)]
pub struct Scripted {
    address: String,
    isolation: Isolation,
    script: fn(&Recipe) -> Behaviour,
    containers: BTreeMap<InstanceGuid, Scene>,
    /// What will happen, in the order in which it will.
    due: BTreeMap<(Timestamp, u64), (InstanceGuid, Step)>,
    /// Numbers what is put down, so that of two things at one moment the first comes first.
    next_number: u64,
    next_port: u16,
    happened: Vec<Happened>,
}

/// One container.
#[derive(Clone, Debug)]
struct Scene {
    container: Container,
    behaviour: Behaviour,
    grace: Duration,
    start_timeout: Duration,
    container_ports: Vec<u16>,
    /// Whether its action runs: from CREATED to COMPLETED.
    acting: bool,
    stopping: bool,
    deleting: bool,
    /// Its keys in `due`.
    due: BTreeSet<(Timestamp, u64)>,
}

/// What happens next to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Run,
    End(RunResult),
}

impl Create {
    /// What becomes of it, and after which time; none: nothing ever.
    fn first(&self) -> Option<(Duration, Step)> {
        let failed = |reason: &str| {
            let reason = cut(&format!("failed to create container: {reason}"), REASON_BYTES);
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
    pub fn of(recipe: &Recipe) -> Self {
        let task = match recipe.work {
            WorkKey::Lrp { .. } => false,
            WorkKey::Task { .. } => true,
        };
        let usual =
            Self { start: Some(Duration::ZERO), run: task.then_some(Duration::ZERO), ..Self::default() };
        // What is only fetched or sent takes no time, and goes well.
        let Some(run) = recipe.action.first_run().filter(|run| run.path == "scripted") else { return usual };
        let read = run.args.iter().try_fold(usual, |so_far, argument| {
            so_far.with(argument).ok_or_else(|| format!("scripted: cannot read {argument:?}"))
        });
        read.unwrap_or_else(|reason| Self { create: Create::Fails(reason), ..Self::default() })
    }

    /// The same with one argument more; none if that can't be read.
    fn with(mut self, argument: &str) -> Option<Self> {
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
    /// A cell without a container, reached at `address`. `script` says how a recipe behaves: [`Behaviour::of`] unless
    /// there is a reason.
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

    /// The same, with containers that are said to be kept apart so.
    #[must_use]
    pub fn kept_apart(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }
    }

    /// Every container, from INITIALIZING until it is deleted.
    #[must_use]
    pub fn list(&self) -> Vec<Container> {
        self.containers.values().map(|scene| scene.container.clone()).collect()
    }

    /// What really happened since [`Scripted::take_happened`], in its order.
    #[must_use]
    pub fn happened(&self) -> &[Happened] {
        &self.happened
    }

    /// Takes what really happened, so that it does not pile up.
    pub fn take_happened(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.happened)
    }

    /// Creates a container: INITIALIZING at once, all else by [`Scripted::advance`]. A guid that exists already is
    /// left as it is.
    pub fn run(&mut self, now: Timestamp, recipe: &Recipe) {
        self.run_so(now, recipe, (self.script)(recipe));
    }

    /// The same, with a container that behaves so, whatever the script says.
    pub fn run_so(&mut self, now: Timestamp, recipe: &Recipe, behaviour: Behaviour) {
        let guid = recipe.instance_guid;
        if self.containers.contains_key(&guid) {
            return;
        }
        let first = behaviour.create.first();
        let scene = Scene {
            container: Container {
                instance_guid: guid,
                work: recipe.work.clone(),
                domain: recipe.domain.clone(),
                resources: recipe.resources,
                let_in_at: recipe.let_in_at,
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
            self.plan(guid, now + wait, step);
        }
    }

    /// Takes up a container that was there before: it is in its state, and behaves from there on as it is said, with the
    /// times counted from now. `ports` are those that it will listen on, if it doesn't run yet. A guid that exists already
    /// is left as it is.
    pub fn adopt(&mut self, now: Timestamp, container: Container, behaviour: Behaviour, ports: Vec<u16>) {
        let guid = container.instance_guid;
        if self.containers.contains_key(&guid) {
            return;
        }
        let state = container.state.clone();
        let scene = Scene {
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
        let next = scene.next(&state);
        self.containers.insert(guid, scene);
        if let Some((wait, step)) = next {
            self.plan(guid, now + wait, step);
        }
    }

    /// Stops a container, at once or when its grace period is over.
    pub fn stop(&mut self, now: Timestamp, guid: InstanceGuid) {
        let Some(scene) = self.containers.get_mut(&guid) else { return };
        if scene.stopping || scene.completed() {
            return;
        }
        scene.stopping = true;
        let wait = if scene.acting && scene.behaviour.ignore_term { scene.grace } else { Duration::ZERO };
        self.replace_plan(guid, now + wait, RunResult::Stopped);
    }

    /// Deletes a container, stopping it first if need be.
    pub fn delete(&mut self, now: Timestamp, guid: InstanceGuid) {
        self.stop(now, guid);
        let Some(scene) = self.containers.get_mut(&guid) else { return };
        scene.deleting = true;
        if scene.completed() {
            self.containers.remove(&guid);
        }
    }

    /// Lets a container fail, whatever its script says.
    pub fn crash(&mut self, now: Timestamp, guid: InstanceGuid, reason: &str) {
        let Some(scene) = self.containers.get(&guid) else { return };
        if !scene.completed() {
            self.replace_plan(
                guid,
                now,
                RunResult::Failed { reason: cut(reason, REASON_BYTES), exit_status: None },
            );
        }
    }

    /// When the next thing happens; none: never, unless somebody does something.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets everything happen that is due, and announces each state that a container came to. One that is being deleted
    /// is announced as COMPLETED, and is gone.
    pub fn advance(&mut self, now: Timestamp) -> Vec<Container> {
        let mut changes = vec![];
        while let Some(((at, number), _)) = self.due.first_key_value()
            && *at <= now
        {
            let key = (*at, *number);
            let (guid, step) = self.due.remove(&key).expect("the first is there");
            self.scene(guid).due.remove(&key);
            changes.push(self.take_step(key.0, guid, step));
        }
        changes
    }

    /// One step of one container.
    fn take_step(&mut self, at: Timestamp, guid: InstanceGuid, step: Step) -> Container {
        match step {
            Step::Create => self.create(at, guid),
            Step::Run => self.begin_to_run(at, guid),
            Step::End(result) => {
                let scene = self.scene(guid);
                scene.container.state = ContainerState::Completed(result.clone());
                let acted = std::mem::take(&mut scene.acting);
                if acted {
                    self.note(guid, at, What::Ended(result));
                }
            }
        }
        let scene = self.scene(guid);
        let container = scene.container.clone();
        if scene.deleting && scene.completed() {
            self.containers.remove(&guid);
        }
        container
    }

    fn create(&mut self, at: Timestamp, guid: InstanceGuid) {
        let scene = self.scene(guid);
        scene.container.state = ContainerState::Created;
        scene.acting = true;
        let (start, timeout) = (scene.behaviour.start, scene.start_timeout);
        self.note(guid, at, What::Started);
        match start {
            Some(time) => self.plan(guid, at + time, Step::Run),
            None if timeout.is_zero() => {}
            None => {
                let reason = format!("Instance never healthy after {timeout:?}: Exited with status 1");
                self.plan(guid, at + timeout, Step::End(RunResult::Failed { reason, exit_status: None }));
            }
        }
    }

    fn begin_to_run(&mut self, at: Timestamp, guid: InstanceGuid) {
        let container_ports = std::mem::take(&mut self.scene(guid).container_ports);
        let ports = container_ports.into_iter().map(|container_port| {
            let host_port = self.next_port;
            self.next_port = host_port.checked_add(1).unwrap_or(FIRST_PORT);
            PortMapping { container_port, host_port }
        });
        let net = NetInfo { ports: ports.collect(), address: self.address.as_str().into() };
        let scene = self.scene(guid);
        scene.container.state = ContainerState::Running(net);
        let end = scene.end();
        if let Some(time) = scene.behaviour.run {
            self.plan(guid, at + time, Step::End(end));
        }
    }

    fn plan(&mut self, guid: InstanceGuid, at: Timestamp, step: Step) {
        let key = (at, self.next_number);
        self.next_number += 1;
        self.due.insert(key, (guid, step));
        self.scene(guid).due.insert(key);
    }

    /// Puts an end in the place of all that was planned; an end that comes sooner stays.
    fn replace_plan(&mut self, guid: InstanceGuid, at: Timestamp, result: RunResult) {
        let planned = std::mem::take(&mut self.scene(guid).due);
        for key in planned {
            let (_, step) = self.due.remove(&key).expect("what a container plans is due");
            match step {
                Step::End(sooner) if key.0 <= at => return self.plan(guid, key.0, Step::End(sooner)),
                Step::Create | Step::Run | Step::End(_) => {}
            }
        }
        self.plan(guid, at, Step::End(result));
    }

    fn note(&mut self, guid: InstanceGuid, at: Timestamp, what: What) {
        let work = self.scene(guid).container.work.clone();
        self.happened.push(Happened { instance_guid: guid, work, at, what });
    }

    fn scene(&mut self, guid: InstanceGuid) -> &mut Scene {
        self.containers.get_mut(&guid).expect("only a container that is there has something due")
    }
}

impl Scene {
    const fn completed(&self) -> bool {
        match self.container.state {
            ContainerState::Completed(_) => true,
            ContainerState::Reserved
            | ContainerState::Initializing
            | ContainerState::Created
            | ContainerState::Running(_) => false,
        }
    }

    /// What comes next in a state, and how long after it was entered.
    fn next(&self, state: &ContainerState) -> Option<(Duration, Step)> {
        match state {
            ContainerState::Reserved | ContainerState::Initializing => self.behaviour.create.first(),
            ContainerState::Created => Some((self.behaviour.start?, Step::Run)),
            ContainerState::Running(_) => Some((self.behaviour.run?, Step::End(self.end()))),
            ContainerState::Completed(_) => None,
        }
    }

    /// How it ends by itself.
    fn end(&self) -> RunResult {
        let exit = self.behaviour.exit;
        let reason = format!("Exited with status {exit}");
        let failed = RunResult::Failed { reason, exit_status: Some(exit.into()) };
        match (&self.container.work, exit) {
            (WorkKey::Task { .. }, 0) => RunResult::Succeeded { result: self.behaviour.result.clone() },
            (WorkKey::Task { .. } | WorkKey::Lrp { .. }, _) => failed,
        }
    }
}
