//! Test fixture of a cell: a rep, the containers of its executor, and its BBS.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use schemas::cluster::Terms;
use schemas::container::{Container, ContainerState, RunResult};
use schemas::isolation::Isolation;
use schemas::message::{Heartbeat, Perform, PerformReply, RepOrder, Reports, Stop};
use schemas::names::{IdGenerator, InstanceGuid};
use schemas::resources::Resources;
use schemas::{Position, Refusal, Timestamp};

use rep::{Effect, Input, Level, Rep, Settings, Unprepared};

use crate::small_bbs::SmallBbs;
use crate::words;

pub(crate) struct Cell {
    pub(crate) now: Timestamp,
    pub(crate) rep: Rep,
    pub(crate) bbs: SmallBbs,
    pub(crate) containers: BTreeMap<InstanceGuid, Container>,
    /// Reason why no container can be prepared. `None` if every container can be prepared.
    pub(crate) unprepared: Option<Unprepared>,
    /// `true` if a preparation completes only at the test's request.
    pub(crate) slow_preparation: bool,
    pub(crate) preparing: Vec<InstanceGuid>,
    /// Containers that were discarded after their preparation was requested or completed.
    pub(crate) discarded: Vec<InstanceGuid>,
    /// Containers whose deletion is slow. They are listed until the test removes them.
    pub(crate) deleting: Vec<InstanceGuid>,
    pub(crate) slow_deletion: bool,
    /// Containers with a stop order. The test ends these containers.
    pub(crate) stopping: BTreeSet<InstanceGuid>,
    /// Number of messages to the BBS that are still to be lost. Later messages arrive.
    pub(crate) lose_messages: usize,
    /// Number of reports that are still to be lost. Other messages arrive.
    pub(crate) lose_reports: usize,
    pub(crate) lose_answers: usize,
    /// Number of messages that still time out at the sender and arrive late.
    pub(crate) late_messages: usize,
    pub(crate) delayed_messages: Vec<Reports>,
    /// Number of answers that are still to be delayed.
    pub(crate) slow_answers: usize,
    pub(crate) delayed_answers: Vec<Input>,
    /// Actions of the rep in order, as short texts.
    pub(crate) story: Vec<String>,
    pub(crate) performed: Vec<Result<PerformReply, Refusal>>,
    pub(crate) heartbeats: Vec<Heartbeat>,
    pub(crate) answers: Vec<Result<Heartbeat, Refusal>>,
    pub(crate) warnings: Vec<String>,
    /// Log messages of level `Info`.
    pub(crate) infos: Vec<String>,
    pub(crate) exited: bool,
}

impl Cell {
    /// Creates a cell that has not started.
    pub(crate) fn unstarted(
        settings: Settings,
        bbs: SmallBbs,
        containers: BTreeMap<InstanceGuid, Container>,
    ) -> Self {
        let terms = Terms { bbs: 1, auctioneer: 1 };
        let bbs = SmallBbs { terms, ..bbs };
        Self {
            now: words::at(0),
            rep: Rep::new(settings, Position(0), words::incarnation(), IdGenerator::new(3)),
            bbs,
            containers,
            unprepared: None,
            slow_preparation: false,
            preparing: vec![],
            discarded: vec![],
            deleting: vec![],
            slow_deletion: false,
            stopping: BTreeSet::new(),
            lose_messages: 0,
            lose_reports: 0,
            lose_answers: 0,
            late_messages: 0,
            delayed_messages: vec![],
            slow_answers: 0,
            delayed_answers: vec![],
            story: vec![],
            performed: vec![],
            heartbeats: vec![],
            answers: vec![],
            warnings: vec![],
            infos: vec![],
            exited: false,
        }
    }

    /// Creates an empty cell that accepts work.
    pub(crate) fn open() -> Self {
        let mut cell = Self::unstarted(words::settings(), SmallBbs::default(), BTreeMap::new());
        cell.input(Input::Tick);
        cell.input(Input::SelfTested(Ok(())));
        cell.story.clear();
        cell
    }

    /// Replaces the rep with a new one.
    pub(crate) fn restart(&mut self, seed: u64) {
        let attached = Position(self.bbs.position);
        self.rep = Rep::new(words::settings(), attached, words::incarnation(), IdGenerator::new(seed));
        self.delayed_answers.clear();
        self.input(Input::Tick);
    }

    /// Processes an input and all resulting inputs, in order. Processes the end of a turn when the queue is
    /// empty.
    pub(crate) fn input(&mut self, input: Input) {
        let mut waiting = VecDeque::from([input]);
        let mut turned = false;
        while !turned || !waiting.is_empty() {
            turned = waiting.is_empty();
            let input = waiting.pop_front().unwrap_or(Input::Turn);
            for effect in self.rep.step(self.now, input) {
                waiting.extend(self.perform_effect(effect));
            }
        }
    }

    fn perform_effect(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::AnswerPerform { answer, .. } => self.performed.push(answer),
            Effect::AnswerState { answer, .. } => self.answers.push(answer),
            Effect::Report { id, reports } => {
                let steps = reports.reports.iter().map(report_text);
                self.story.extend(steps);
                if take_one(&mut self.late_messages) {
                    self.delayed_messages.push(reports);
                    return Some(Input::Reported { id, answer: None });
                }
                let lost = take_one(&mut self.lose_reports) || take_one(&mut self.lose_messages);
                let answer = (!lost).then(|| Ok(self.bbs.report(&reports, self.now)));
                let answer = answer.filter(|_| !take_one(&mut self.lose_answers));
                return self.delay_answer(Input::Reported { id, answer });
            }
            Effect::AskRecords { id, records } => {
                self.story.push("read".into());
                let answer = (!take_one(&mut self.lose_messages)).then(|| Ok(self.bbs.records(&records)));
                let answer = answer.filter(|_| !take_one(&mut self.lose_answers));
                return self.delay_answer(Input::Records { id, answer });
            }
            Effect::Prepare(recipes) => {
                self.preparing.extend(recipes.iter().map(|recipe| recipe.instance_guid));
                return (!self.slow_preparation).then(|| self.preparations());
            }
            Effect::Discard(guid) => self.discarded.push(guid),
            Effect::Run(recipe) => {
                self.story.push("run".into());
                let container = Container {
                    instance_guid: recipe.instance_guid,
                    work: recipe.work,
                    domain: recipe.domain,
                    resources: recipe.resources,
                    admitted_at: recipe.admitted_at,
                    isolation: Isolation::NONE,
                    state: ContainerState::Initializing,
                };
                self.containers.insert(recipe.instance_guid, container);
            }
            Effect::Stop(guid) => {
                self.story.push("stop".into());
                self.stopping.insert(guid);
            }
            Effect::Delete(guid) => {
                self.story.push("delete".into());
                let live = self.containers.get(&guid).is_some_and(|one| !is_completed(&one.state));
                if live && self.slow_deletion {
                    self.deleting.push(guid);
                } else {
                    self.containers.remove(&guid);
                }
            }
            Effect::ListContainers => {
                return Some(Input::Containers(self.containers.values().cloned().collect()));
            }
            Effect::SelfTest => self.story.push("self-test".into()),
            Effect::Heartbeat(heartbeat) => self.heartbeats.push(heartbeat),
            Effect::Exit => {
                self.story.push("exit".into());
                self.exited = true;
            }
            Effect::Log { level, text } => {
                assert!(words::is_readable(&text), "not readable for operators: {text}");
                match level {
                    Level::Info => self.infos.push(text),
                    Level::Warn => self.warnings.push(text),
                }
            }
        }
        None
    }

    /// Returns the result of every preparation so far.
    pub(crate) fn preparations(&mut self) -> Input {
        let outcome = |guid| (guid, self.unprepared.clone().map_or(Ok(()), Err));
        Input::Prepared(std::mem::take(&mut self.preparing).into_iter().map(outcome).collect())
    }

    fn delay_answer(&mut self, answer: Input) -> Option<Input> {
        if !take_one(&mut self.slow_answers) {
            return Some(answer);
        }
        self.delayed_answers.push(answer);
        None
    }

    /// Delivers all delayed messages, and then all delayed answers in reverse order.
    pub(crate) fn deliver_delayed(&mut self) {
        for reports in std::mem::take(&mut self.delayed_messages) {
            self.bbs.report(&reports, self.now);
        }
        while let Some(answer) = self.delayed_answers.pop() {
            self.input(answer);
        }
    }

    /// Advances the time from alarm to alarm.
    pub(crate) fn advance(&mut self, length: Duration) {
        let end = self.now + length;
        let mut alarms = 0;
        while let Some(alarm) = self.rep.alarm().filter(|alarm| *alarm <= end) {
            alarms += 1;
            assert!(alarms < 10_000, "the rep sets alarms without end");
            self.now = self.now.max(alarm);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    /// Takes the recorded actions.
    pub(crate) fn take_story(&mut self) -> String {
        std::mem::take(&mut self.story).join(", ")
    }

    /// Sends all waiting work to the rep.
    pub(crate) fn auction(&mut self, number: u64) {
        let perform = words::perform(number, self.bbs.work());
        self.perform(perform);
    }

    pub(crate) fn perform(&mut self, perform: Perform) {
        self.input(Input::Perform { requester: perform.id.number, perform });
    }

    /// Reports a new state of a container from the executor.
    pub(crate) fn set_container_state(&mut self, guid: InstanceGuid, state: ContainerState) {
        let container = self.containers.get_mut(&guid).unwrap();
        container.state = state;
        let container = container.clone();
        self.input(Input::Container(container));
    }

    /// Returns the only container.
    pub(crate) fn only(&self) -> InstanceGuid {
        assert_eq!(self.containers.len(), 1, "{:?}", self.containers);
        *self.containers.keys().next().unwrap()
    }

    /// Returns an order with this term from a BBS that has read the full log.
    pub(crate) fn order(&self, term: u64) -> RepOrder {
        RepOrder { term, position: Position(self.bbs.position) }
    }

    pub(crate) fn evacuate(&mut self) {
        let order = self.order(1);
        self.input(Input::Evacuate { requester: 1, order });
    }

    pub(crate) fn stop(&mut self, guid: InstanceGuid) {
        let work = self.containers[&guid].work.clone();
        self.input(Input::Stop(Stop { term: 1, containers: vec![(work, guid)] }));
    }

    pub(crate) fn state_of_task(&self, name: &str) -> &'static str {
        self.bbs.tasks.get(name).map_or("-", |task| task.state_name())
    }

    /// Returns the resources of the executor's containers. Does not count containers that have ended and are
    /// being deleted.
    pub(crate) fn used_resources(&self) -> Resources {
        let dead = |one: &Container| is_completed(&one.state) && self.deleting.contains(&one.instance_guid);
        self.containers
            .values()
            .filter(|one| !dead(one))
            .fold(Resources::default(), |sum, one| sum.plus(one.resources))
    }

    /// Starts an instance of a process and returns its running container.
    pub(crate) fn running(&mut self, name: &str) -> InstanceGuid {
        self.bbs.desire(name, 1, self.now);
        self.auction(1);
        let guid = self.bbs.holder(name, 0).unwrap().instance_guid;
        self.set_container_state(guid, ContainerState::Created);
        self.set_container_state(guid, ContainerState::Running(words::net_info(1)));
        assert_eq!(self.bbs.state(name, 0), "RUNNING");
        self.story.clear();
        guid
    }

    /// Starts a task and returns its running container.
    pub(crate) fn running_task(&mut self, name: &str) -> InstanceGuid {
        self.bbs.desire_task(name, self.now);
        self.auction(1);
        let guid = self.bbs.tasks[name].holder().unwrap().instance_guid;
        self.set_container_state(guid, ContainerState::Running(words::net_info(2)));
        self.story.clear();
        guid
    }
}

fn take_one(counter: &mut usize) -> bool {
    let some = *counter > 0;
    *counter = counter.saturating_sub(1);
    some
}

fn is_completed(state: &ContainerState) -> bool {
    matches!(
        state,
        ContainerState::Completed(
            RunResult::Succeeded { .. } | RunResult::Failed { .. } | RunResult::Stopped
        )
    )
}

/// Returns a short description of a report.
fn report_text(report: &schemas::message::Report) -> String {
    use schemas::message::Report;
    use schemas::process::ReportStep::{Actual, Evacuating};
    use schemas::{actual, evacuating, task};
    match report {
        Report::Lrp { report, .. } => {
            let steps = report.steps.iter().map(|step| match step {
                Actual(actual::Command::Claim { .. }) => "claim".to_owned(),
                Actual(actual::Command::Start { .. }) => "start".to_owned(),
                Actual(actual::Command::Crash { reason, .. }) => format!("crash({reason})"),
                Actual(actual::Command::Remove) => "remove".to_owned(),
                Actual(actual::Command::Unclaim) => "unclaim".to_owned(),
                Evacuating(evacuating::Command::Set { .. }) => "set /e".to_owned(),
                Evacuating(evacuating::Command::Remove) => "remove /e".to_owned(),
            });
            steps.collect::<Vec<_>>().join("+")
        }
        Report::Task { report, .. } => match &report.step {
            task::ReportStep::Start { .. } => "start task".to_owned(),
            task::ReportStep::Complete { outcome: task::Outcome::Succeeded { result } } => {
                format!("succeeded({result})")
            }
            task::ReportStep::Complete { outcome: task::Outcome::Failed { reason } } => {
                format!("failed({reason})")
            }
        },
    }
}
