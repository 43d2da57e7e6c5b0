//! How long containers ran, and how they ended, as the log tells.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use schemas::container::WorkKey;
use schemas::entry::{Aggregate, Event};
use schemas::names::{DefinitionId, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::{ActualLrpKey, Decision, Place, Timestamp, actual, task};
use scripted::{Behaviour, Create};

use super::super::times::Times;

/// The life of a container of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    guid: InstanceGuid,
    claimed: Option<Timestamp>,
    started: Option<Timestamp>,
    /// When it crashed, and the status that it exited with.
    crashed: Option<(Timestamp, Option<i32>)>,
}

/// The run of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    guid: InstanceGuid,
    started: Timestamp,
    /// When and how it ended by itself; none: it was stopped, or runs on.
    ended: Option<(Timestamp, task::Outcome)>,
}

/// The lives of a part of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives {
    /// By place, in the order in which they began.
    lives: BTreeMap<ActualLrpKey, VecDeque<Life>>,
    /// Those that began before the part of the log.
    before: BTreeMap<InstanceGuid, Life>,
    runs: BTreeMap<TaskGuid, VecDeque<Run>>,
    /// Those that began before the part of the log.
    runs_before: BTreeMap<InstanceGuid, Run>,
    /// What the owners of tasks answered when they were called.
    called: BTreeMap<TaskGuid, VecDeque<(Timestamp, task::CallbackResult)>>,
    /// The last life that crashed of each place: what starts more often than it did goes on like that.
    last: BTreeMap<ActualLrpKey, Life>,
    /// What definitions are called in the record that are called otherwise in the run.
    recorded: BTreeMap<(ProcessGuid, DefinitionId), DefinitionId>,
}

impl Lives {
    /// Takes note of a decision, in the order of the log.
    pub(crate) fn note(&mut self, decision: &Decision) {
        for event in &decision.events {
            if let (Aggregate::Process { guid, .. }, Event::Actual(event)) = (&decision.aggregate, event) {
                self.of_actual(guid, event, decision.at);
            }
            if let (Aggregate::Task { guid, .. }, Event::Task(event)) = (&decision.aggregate, event) {
                self.of_task(guid, event, decision.at);
            }
        }
    }

    fn of_actual(&mut self, process: &ProcessGuid, event: &actual::Event, at: Timestamp) {
        match event {
            actual::Event::Claimed { place, by, .. } => {
                self.life(process, place, by.instance_guid).claimed = Some(at);
            }
            actual::Event::Started { place, by, .. } => {
                self.life(process, place, by.instance_guid).started.get_or_insert(at);
            }
            actual::Event::Crashed { place, by, exit_status, .. } => {
                let life = self.life(process, place, by.instance_guid);
                life.crashed = Some((at, *exit_status));
                let life = life.clone();
                self.last.insert(ActualLrpKey::new(process.clone(), place.clone()), life);
            }
            actual::Event::Created { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => {}
        }
    }

    /// The life of a container, which begins now unless it is known.
    fn life(&mut self, process: &ProcessGuid, place: &Place, guid: InstanceGuid) -> &mut Life {
        let all = self.lives.entry(ActualLrpKey::new(process.clone(), place.clone())).or_default();
        let known = all.iter().position(|life| life.guid == guid).unwrap_or(all.len());
        if known == all.len() {
            all.push_back(Life { guid, claimed: None, started: None, crashed: None });
        }
        &mut all[known]
    }

    /// What began until then is not begun again; how it goes on is known.
    pub(crate) fn forget_before(&mut self, now: Timestamp) {
        for all in self.lives.values_mut() {
            let began = |life: &Life| life.claimed.or(life.started).is_some_and(|began| began > now);
            let (later, before): (VecDeque<Life>, VecDeque<Life>) =
                std::mem::take(all).into_iter().partition(began);
            *all = later;
            self.before.extend(before.into_iter().map(|life| (life.guid, life)));
        }
        for all in self.runs.values_mut() {
            let (later, before): (VecDeque<Run>, VecDeque<Run>) =
                std::mem::take(all).into_iter().partition(|run| run.started > now);
            *all = later;
            self.runs_before.extend(before.into_iter().map(|run| (run.guid, run)));
        }
        for all in self.called.values_mut() {
            all.retain(|(at, _)| *at > now);
        }
    }

    fn of_task(&mut self, guid: &TaskGuid, event: &task::Event, at: Timestamp) {
        match event {
            task::Event::Started { by, .. } => {
                let run = Run { guid: by.instance_guid, started: at, ended: None };
                self.runs.entry(guid.clone()).or_default().push_back(run);
            }
            task::Event::Completed { by: Some(by), outcome, .. } => {
                // What was stopped, or was on a cell that is lost, did not end by itself.
                let by_itself = match outcome {
                    task::Outcome::Succeeded { .. } => true,
                    task::Outcome::Failed { reason } => {
                        !task::was_stopped(reason)
                            && ![task::CELL_DISAPPEARED, task::EVACUATION_TIMED_OUT, task::NO_CONTAINER]
                                .contains(&reason.as_str())
                    }
                };
                let all = self.runs.entry(guid.clone()).or_default();
                let run = all.iter_mut().find(|run| run.guid == by.instance_guid);
                if let Some(run) = run.filter(|_| by_itself) {
                    run.ended = Some((at, outcome.clone()));
                }
            }
            task::Event::CallbackTried { outcome: called, .. } => {
                self.called.entry(guid.clone()).or_default().push_back((at, called.clone()));
            }
            task::Event::Completed { by: None, .. }
            | task::Event::Desired(_)
            | task::Event::PlacementFailed { .. }
            | task::Event::Resolving {}
            | task::Event::Demoted {}
            | task::Event::Deleted {} => {}
        }
    }

    /// A definition of a process is called so in the run, and so in the record.
    pub(crate) fn know(&mut self, process: ProcessGuid, here: DefinitionId, recorded: DefinitionId) {
        self.recorded.insert((process, here), recorded);
    }

    /// Whether it is known what a definition is called in the record that is called so in the run.
    pub(crate) fn is_known(&self, process: &ProcessGuid, here: &DefinitionId) -> bool {
        self.recorded.contains_key(&(process.clone(), here.clone()))
    }

    /// What a definition is called in the run that is called so in the record; none: the same, as far as is known.
    pub(crate) fn here(&self, process: &ProcessGuid, recorded: &DefinitionId) -> Option<DefinitionId> {
        let mut all = self.recorded.iter();
        all.find(|((of, _), there)| of == process && *there == recorded).map(|((_, here), _)| here.clone())
    }

    /// A place of the run, as it is called in the record.
    fn as_recorded(&self, key: &ActualLrpKey) -> ActualLrpKey {
        let mut key = key.clone();
        let here = (key.process_guid.clone(), key.place.definition_id.clone());
        if let Some(recorded) = self.recorded.get(&here) {
            key.place.definition_id = recorded.clone();
        }
        key
    }

    /// What the owner of a task answers when it is called: as it did, in its order.
    pub(crate) fn answer(&mut self, task: &TaskGuid) -> task::CallbackResult {
        self.next_answer(task).map_or_else(
            || task::CallbackResult::Failed("no answer is recorded".into()),
            |(_, called)| called,
        )
    }

    /// The next answer of the owner of a task, and when it came.
    pub(crate) fn next_answer(&mut self, task: &TaskGuid) -> Option<(Timestamp, task::CallbackResult)> {
        self.called.get_mut(task).and_then(VecDeque::pop_front)
    }

    /// How a container behaves that is there when the log is left, at `now`.
    pub(crate) fn of_running(
        &mut self,
        work: &WorkKey,
        guid: InstanceGuid,
        now: Timestamp,
        usual: Behaviour,
    ) -> Behaviour {
        match work {
            WorkKey::Lrp { .. } => {
                let Some(life) = self.before.remove(&guid) else { return usual };
                let start = life.started.map(|started| started.since(now)).or(usual.start);
                let began = life.started.unwrap_or(now).max(now);
                ending(&life, start, began, &usual)
            }
            WorkKey::Task { .. } => of_run(self.runs_before.remove(&guid).as_ref(), now, usual),
        }
    }

    /// How a container behaves that is started now: as the next one did that started there. Where none is left, one of a
    /// process does as the last that crashed there, or starts and runs on.
    pub(crate) fn of_new(&mut self, work: &WorkKey, times: &Times) -> Behaviour {
        let usual = times.behaviour_of(work, Duration::ZERO);
        match work {
            WorkKey::Lrp { key, .. } => {
                let key = self.as_recorded(key);
                let next = self.lives.get_mut(&key).and_then(VecDeque::pop_front);
                let Some(life) = next.or_else(|| self.last.get(&key).cloned()) else { return usual };
                let start = life.started.zip(life.claimed).map(|(started, claimed)| started.since(claimed));
                let began = life.started.or(life.claimed).unwrap_or_default();
                ending(&life, start.or(usual.start), began, &usual)
            }
            WorkKey::Task { task_guid, .. } => {
                let next = self.runs.get_mut(task_guid).and_then(VecDeque::pop_front);
                of_run(next.as_ref(), next.as_ref().map_or(Timestamp(0), |run| run.started), usual)
            }
        }
    }
}

/// How a container behaves with this life, which began at a time and was RUNNING after `start`.
fn ending(life: &Life, start: Option<Duration>, began: Timestamp, usual: &Behaviour) -> Behaviour {
    let Some((at, status)) = life.crashed else { return Behaviour { start, ..usual.clone() } };
    if life.started.is_none() {
        let reason = "it never ran in the record, either".to_owned();
        return Behaviour { create: Create::FailsAfter(at.since(began), reason), ..usual.clone() };
    }
    let exit = status.and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX);
    Behaviour { start, run: Some(at.since(began)), exit, ..usual.clone() }
}

/// How a task behaves with this run, of which is left what came after a time.
fn of_run(run: Option<&Run>, from: Timestamp, usual: Behaviour) -> Behaviour {
    let Some((ended, outcome)) = run.and_then(|run| run.ended.as_ref()) else {
        return Behaviour { run: None, ..usual };
    };
    let (exit, result) = match outcome {
        task::Outcome::Succeeded { result } => (0, result.clone()),
        task::Outcome::Failed { .. } => (1, String::new()),
    };
    Behaviour { run: Some(ended.since(from)), exit, result, ..usual }
}
