//! Parameterised tasks: what is dispatched becomes one task, in its turn, and nothing of it is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemas::action::{Secret, Variable};
use schemas::container::Epoch;
use schemas::definition::{DesiredParameterised, Overflow, TaskDefinition};
use schemas::entry::{Aggregate, Event};
use schemas::message::Ack;
use schemas::names::{DispatchKey, ParameterisedGuid, RequestId, TaskGuid};
use schemas::parameterised::{self, Dispatch, WithdrawReason};
use schemas::spec::{self, ClientCommand};
use schemas::stamp::Actor;
use schemas::{Code, Decision, Entry, task};

use super::due::Thing;
use super::{Checkers, Notes};
use crate::coverage::Situation;
use crate::promises::{Broken, Promise as P};

/// What is true of all of them, by the log.
#[derive(Default)]
pub(super) struct Dispatches {
    all: BTreeMap<ParameterisedGuid, Template>,
    /// What was launched and is PENDING or RUNNING.
    live: BTreeSet<TaskGuid>,
}

/// What is true of one.
#[derive(Debug, Default)]
struct Template {
    epoch: Epoch,
    version: u64,
    /// None: nobody desires it.
    desired: Option<DesiredParameterised>,
    /// Everything that was ever dispatched of it, in all its lives.
    made: BTreeMap<u64, Made>,
    queue: VecDeque<u64>,
    keys: BTreeMap<DispatchKey, u64>,
}

/// One dispatch.
#[derive(Debug)]
struct Made {
    dispatch: Dispatch,
    /// What its task runs, by the template as it was then.
    definition: TaskDefinition,
    /// Whether it became a task, or was withdrawn; none: it waits.
    launched: Option<bool>,
}

/// The part of a guid that names what it was dispatched of.
fn template_of(task: &TaskGuid) -> Option<ParameterisedGuid> {
    let (stem, number) = task.as_str().split_once("--dispatch-")?;
    number.parse::<u64>().ok()?;
    ParameterisedGuid::new(stem).ok()
}

/// What a task is given, by docs/internals/model/parameterised-tasks.md: it finds all of it in its environment.
fn given(guid: &ParameterisedGuid, dispatch: &Dispatch) -> BTreeMap<String, String> {
    let plain = |secret: &Secret| secret.plain().unwrap_or_default().to_owned();
    let mut all = BTreeMap::from([("MUSTER_PARAMETERISED_GUID".to_owned(), guid.to_string())]);
    all.extend(dispatch.key.iter().map(|key| ("MUSTER_DISPATCH_KEY".to_owned(), key.to_string())));
    all.extend(dispatch.payload.iter().map(|text| ("MUSTER_PAYLOAD_BASE64".to_owned(), plain(text))));
    let named = |one: &Variable| (format!("MUSTER_PARAM_{}", one.name), plain(&one.value));
    all.extend(dispatch.parameters.iter().map(named));
    all
}

/// Whether a task is what its template said, with what was dispatched.
fn is_task_of(guid: &ParameterisedGuid, made: &Made, found: &TaskDefinition) -> bool {
    let mut environment: BTreeMap<String, String> = BTreeMap::new();
    for Variable { name, value } in &found.environment_variables {
        environment.insert(name.to_string(), value.plain().unwrap_or_default().to_owned());
    }
    let text = environment.remove("MUSTER_PAYLOAD");
    // All that is dispatched in a run is text.
    let same_text = text.map(|text| spec::payload(text.as_bytes())) == made.dispatch.payload;
    let priority = made.dispatch.priority.unwrap_or(made.definition.priority);
    let rest = TaskDefinition { environment_variables: vec![], priority, ..made.definition.clone() };
    let found = TaskDefinition { environment_variables: vec![], ..found.clone() };
    same_text && environment == given(guid, &made.dispatch) && rest == found
}

impl Dispatches {
    /// Takes an entry in, and says what is wrong with it.
    pub(super) fn entry(&mut self, entry: &Entry, notes: &mut Notes) {
        for (at, decision) in entry.decisions.iter().enumerate() {
            match &decision.aggregate {
                Aggregate::Parameterised { guid, epoch, .. } => {
                    self.judge(guid, *epoch, decision, &entry.decisions[at + 1..], notes);
                }
                Aggregate::Task { guid, .. } => self.task(guid, decision, entry, notes),
                Aggregate::Periodic { .. }
                | Aggregate::Process { .. }
                | Aggregate::Domain(_)
                | Aggregate::Cell(_)
                | Aggregate::Cluster => {}
            }
        }
    }

    fn task(&mut self, guid: &TaskGuid, decision: &Decision, entry: &Entry, notes: &mut Notes) {
        let Some(template) = template_of(guid) else { return };
        for event in &decision.events {
            let Event::Task(event) = event else { continue };
            match event {
                task::Event::Desired(_) => {
                    let says = |event: &Event| matches!(event, Event::Parameterised(parameterised::Event::Launched { task_guid, .. }) if task_guid == guid);
                    let by = entry.decisions.iter().find(|one| one.events.iter().any(says));
                    notes.must(P::DispatchedOnce, by.is_some_and(|by| decision.cause == Some(by.id)), || {
                        format!("{guid} is desired, and no launch in the same entry is its cause")
                    });
                    self.live.insert(guid.clone());
                    let most = self.all.get(&template).and_then(|known| known.desired.as_ref()?.concurrency);
                    let lives = self.lives(&template);
                    notes.must(P::ConcurrencyHolds, most.is_none_or(|most| lives <= most as usize), || {
                        format!("{lives} tasks of {template} are there, and at most {most:?} may be")
                    });
                }
                task::Event::Completed { .. } => {
                    self.live.remove(guid);
                }
                task::Event::Started { .. }
                | task::Event::PlacementFailed { .. }
                | task::Event::Resolving {}
                | task::Event::CallbackTried { .. }
                | task::Event::Demoted {}
                | task::Event::Deleted {} => {}
            }
        }
    }

    /// How many tasks of a template are PENDING or RUNNING.
    fn lives(&self, guid: &ParameterisedGuid) -> usize {
        self.live.iter().filter(|task| template_of(task).as_ref() == Some(guid)).count()
    }

    fn judge(
        &mut self,
        guid: &ParameterisedGuid,
        epoch: Epoch,
        decision: &Decision,
        behind: &[Decision],
        notes: &mut Notes,
    ) {
        let lives = self.lives(guid);
        let known = self.all.entry(guid.clone()).or_default();
        known.version = decision.version;
        let waited = known.queue.len();
        for event in decision.events.iter().filter_map(Event::as_parameterised) {
            let right = known.take(event, decision, notes);
            notes.must(promise_of(event), right, || format!("{guid} is {known:?}: {event:?}"));
            if let parameterised::Event::Launched { number, task_guid } = event {
                known.check_launch(guid, (*number, task_guid), lives, behind, notes);
            }
        }
        let desired = known.desired.as_ref();
        let most = desired.and_then(|desired| desired.concurrency);
        if known.queue.len() > waited {
            notes.saw(Situation::DispatchQueued);
            let full = most.is_some_and(|most| lives >= most as usize);
            let queues = desired.is_some_and(|desired| desired.overflow == Overflow::Queued);
            notes.must(P::ConcurrencyHolds, (full || waited > 0) && queues, || {
                format!("{guid}: a dispatch waits, with {lives} of {most:?} there and {waited} before it")
            });
        }
        notes.must(P::OneLife, epoch == known.epoch, || {
            format!("{guid}: a decision of another life, {epoch:?}")
        });
    }

    /// What waits and need not wait any longer.
    pub(super) fn due(&self) -> Vec<Thing> {
        let free = |guid: &ParameterisedGuid, known: &Template| {
            let most = known.desired.as_ref().and_then(|desired| desired.concurrency);
            most.is_none_or(|most| self.lives(guid) < most as usize)
        };
        let freed = self.all.iter().filter(|(guid, known)| !known.queue.is_empty() && free(guid, known));
        let thing = |(guid, known): (&ParameterisedGuid, &Template)| {
            let what = format!("{guid}: dispatch {:?} waits, and may be launched", known.queue.front());
            Thing::new(P::NoDispatchLost, what)
        };
        freed.map(thing).collect()
    }

    /// A client is told that it is dispatched.
    pub(super) fn told(&self, request: &RequestId, command: &ClientCommand, done: Ack) -> Option<Broken> {
        let ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch } = command else {
            return None;
        };
        let number = done.version;
        let how = match self.all.get(parameterised_guid).and_then(|known| known.made.get(&number)) {
            Some(made) if made.dispatch == **dispatch => return None,
            Some(made) => format!(
                "request {request} dispatches {dispatch:?}, and is told of {number}, which is {:?}",
                made.dispatch
            ),
            None => format!(
                "request {request} is told of dispatch {number} of {parameterised_guid}, which the log doesn't have"
            ),
        };
        Some(Broken { promise: P::NoDispatchLost, how })
    }

    /// What a parameterised task is, in words that the services' fold has, too.
    fn in_words(&self, guid: &ParameterisedGuid) -> Option<String> {
        let known = self.all.get(guid)?;
        let most = known.desired.as_ref().map(|desired| desired.concurrency);
        let keys: BTreeSet<&DispatchKey> = known.keys.keys().collect();
        Some(format!("{:?} v{} {most:?} waits {:?} keys {keys:?}", known.epoch, known.version, known.queue))
    }
}

/// The promise that an event may break.
const fn promise_of(event: &parameterised::Event) -> P {
    match event {
        parameterised::Event::Dispatched { .. } | parameterised::Event::Repeated { .. } => P::DispatchedOnce,
        parameterised::Event::Launched { .. }
        | parameterised::Event::Withdrawn { .. }
        | parameterised::Event::Removed {}
        | parameterised::Event::Desired { .. }
        | parameterised::Event::Updated { .. } => P::NoDispatchLost,
    }
}

impl Template {
    /// Takes an event in. Answers whether it is right where this stands.
    fn take(&mut self, event: &parameterised::Event, decision: &Decision, notes: &mut Notes) -> bool {
        let by_client = matches!(decision.actor, Actor::Client { .. });
        match event {
            parameterised::Event::Desired { desired } => {
                let free = self.desired.is_none() && self.queue.is_empty();
                (self.epoch, self.desired) = (Epoch(decision.at), Some((**desired).clone()));
                self.keys.clear();
                free && by_client
            }
            parameterised::Event::Updated { desired } => {
                let was = self.desired.replace((**desired).clone()).is_some();
                was && by_client
            }
            parameterised::Event::Dispatched { number, dispatch, evicted_key: forgets } => {
                let Some(desired) = &self.desired else { return false };
                let new = dispatch.key.as_ref().is_none_or(|key| !self.keys.contains_key(key));
                self.keys.extend(dispatch.key.clone().map(|key| (key, *number)));
                let made = Made {
                    dispatch: (**dispatch).clone(),
                    definition: (*desired.definition).clone(),
                    launched: None,
                };
                let first = self.made.insert(*number, made).is_none();
                self.queue.push_back(*number);
                new && first && by_client && *number == decision.version && forgets.is_none()
            }
            parameterised::Event::Repeated { number } => {
                notes.saw(Situation::DispatchRepeated);
                by_client && self.keys.values().any(|known| known == number)
            }
            parameterised::Event::Launched { number, .. } => {
                notes.saw(if by_client { Situation::DispatchedAtOnce } else { Situation::DispatchFreed });
                let turn = self.queue.front() == Some(number);
                self.queue.retain(|waits| waits != number);
                turn && self.became(*number, true)
            }
            parameterised::Event::Withdrawn { numbers, reason } => {
                let waits = numbers.iter().all(|number| self.queue.contains(number));
                let right = match reason {
                    WithdrawReason::Requested => {
                        notes.saw(Situation::DispatchWithdrawn);
                        numbers.len() == 1
                    }
                    WithdrawReason::Removed => {
                        notes.saw(Situation::DispatchGivenUp);
                        let goes = |event: &Event| {
                            matches!(event, Event::Parameterised(parameterised::Event::Removed {}))
                        };
                        numbers.len() == self.queue.len() && decision.events.iter().any(goes)
                    }
                };
                self.queue.retain(|number| !numbers.contains(number));
                let once = numbers.iter().all(|number| self.became(*number, false));
                waits && right && once && by_client
            }
            parameterised::Event::Removed {} => {
                let nothing_lost = self.queue.is_empty();
                self.keys.clear();
                self.desired.take().is_some() && nothing_lost && by_client
            }
        }
    }

    /// A dispatch became a task, or never will. Answers whether it waited.
    fn became(&mut self, number: u64, launched: bool) -> bool {
        self.made.get_mut(&number).is_some_and(|made| made.launched.replace(launched).is_none())
    }

    /// The entry desires the task of a launch, with what was dispatched.
    fn check_launch(
        &self,
        guid: &ParameterisedGuid,
        (number, task_guid): (u64, &TaskGuid),
        lives: usize,
        behind: &[Decision],
        notes: &mut Notes,
    ) {
        let most = self.desired.as_ref().and_then(|desired| desired.concurrency);
        notes.must(P::ConcurrencyHolds, most.is_none_or(|most| lives < most as usize), || {
            format!("{guid}: dispatch {number} is launched beside {lives}, and at most {most:?} may be there")
        });
        let is_it =
            |one: &&Decision| matches!(&one.aggregate, Aggregate::Task { guid, .. } if guid == task_guid);
        let desired = behind.iter().find(is_it).and_then(|one| {
            let Some(Event::Task(task::Event::Desired(desired))) = one.events.first() else { return None };
            Some(desired)
        });
        let named = task_guid.as_str() == format!("{guid}--dispatch-{number}");
        let made = self.made.get(&number);
        let right =
            desired.zip(made).is_some_and(|(desired, made)| is_task_of(guid, made, &desired.definition));
        notes.must(P::DispatchedOnce, named && right, || {
            format!("{guid} launched {task_guid} of {made:?}, and the entry desires {desired:?}")
        });
    }
}

impl Checkers {
    /// A client is told that it is not dispatched.
    pub(super) fn not_dispatched(&mut self, command: &ClientCommand, code: Code) {
        if !matches!(command, ClientCommand::ParameterisedDispatch { .. }) {
            return;
        }
        if code == Code::RequestIdReused {
            self.coverage.saw(Situation::KeyReused);
        } else if code == Code::InvalidStateTransition {
            self.coverage.saw(Situation::DispatchRefused);
        }
    }

    /// The services' fold of a parameterised task and the model agree.
    pub(super) fn compare_parameterised(&self, guid: &ParameterisedGuid) -> Option<(String, String)> {
        let folded = self.world.parameterised(guid).map(|known| {
            let most = known.desired.as_ref().map(|desired| desired.concurrency);
            let queue: Vec<u64> = known.queue.iter().map(|waiting| waiting.number).collect();
            let keys: BTreeSet<&DispatchKey> = known.keys.iter().map(|known| &known.key).collect();
            format!("{:?} v{} {most:?} waits {queue:?} keys {keys:?}", known.epoch, known.version)
        });
        let model = self.dispatches.in_words(guid);
        (model != folded).then(|| (format!("{model:?}"), format!("{folded:?}")))
    }

    /// The parameterised tasks that somebody desires still.
    pub(crate) fn dispatching(&self) -> Vec<ParameterisedGuid> {
        let desired = self.world.parameterised_from(None).filter(|known| !known.is_removed());
        desired.map(|known| known.guid.clone()).collect()
    }
}
