//! Replay: the recorded causes of a part of a log against changed settings.
//!
//! Clients and operators ask what they asked, at the same times; cells are lost and come back as they did; each container
//! runs for as long as the recorded one of its place did, and ends alike. Everything else is decided anew.

mod causes;
mod figures;
mod lives;
mod losses;
mod misfits;
mod said;

use std::collections::BTreeMap;
use std::time::Duration;

use bbs::{Bbs, ChangeRequest};
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::Aggregate;
use schemas::message::Envelope;
use schemas::names::{CellId, Domain, FolderId, ProcessGuid};
use schemas::policy::{Policies, RestartCondition, RestartPolicy};
use schemas::spec::ClientCommand;
use schemas::subject::Position;
use schemas::{BadField, Decision, Entry, Refusal, Timestamp, task};
use serde::{Deserialize, Serialize};

pub(super) use self::causes::Cause;
use self::causes::{Causes, Restarted};
use self::figures::Counting;
pub use self::figures::{Figures, OfProcess, OfTask};
pub(super) use self::lives::Lives;
pub use self::misfits::Misfit;
use self::misfits::Names;
use self::said::Said;
use super::act::who;
use super::cells::Node;
use super::stage::{Asker, Due, LATENCY, PATIENCE, Stage};
use super::tape::Message;
use super::{Recording, Unusable};

/// What happens so close to the end may be on either side of it: nobody is told that it differs.
const SLACK: Duration = Duration::from_secs(5);
/// So long after its time everything is brought about: whoever asks something has seen what comes before it, and that may be a
/// few messages later here.
const AFTERWARDS: Duration = Duration::from_millis(50);

/// What shall be otherwise; nothing said: as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The restart policy of every process.
    pub restart: Option<Restart>,
    /// What one process has of its own.
    pub process: BTreeMap<ProcessGuid, ProcessSettings>,
    /// Whether what is less urgent may be stopped for what waits, from the beginning.
    pub preemption: Option<bool>,
    /// What is otherwise of a cell.
    pub cell: BTreeMap<CellId, CellSettings>,
}

/// What a process has of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessSettings {
    /// Its restart policy.
    pub restart: Option<Restart>,
}

/// A restart policy; what isn't said is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restart {
    /// After which crashes an instance is restarted.
    pub condition: RestartCondition,
    /// How long each restart waits, in milliseconds.
    pub delay_ms: Option<u32>,
    /// How often an index is restarted.
    pub max_attempts: Option<u32>,
    /// Restarts that are longer ago than this are not counted, in milliseconds; 0: all of them are.
    pub window_ms: u32,
}

/// What is otherwise of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CellSettings {
    /// Its memory, in MiB.
    pub memory_mb: Option<u64>,
    /// Its disk, in MiB.
    pub disk_mb: Option<u64>,
    /// How many containers it takes.
    pub containers: Option<u32>,
    /// How many ports of the host it has.
    pub ports: Option<u32>,
    /// It is another cell, there from the beginning, and like this one.
    pub like: Option<CellId>,
    /// It was never there.
    pub removed: bool,
}

/// What would have been different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// Where it begins.
    pub from: Position,
    /// Where it ends.
    pub to: Position,
    /// How long that took, in milliseconds.
    pub length_ms: u64,
    /// What was recorded.
    pub recorded: Figures,
    /// What would have been.
    pub replayed: Figures,
    /// What must be equal where the settings are, and isn't.
    pub differences: Vec<String>,
    /// Commands of clients and operators that were carried out in the record, and are refused now.
    pub refused: Vec<String>,
    /// Commands that can't be asked again from what is recorded of them, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Why there is no replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReplay {
    /// These settings don't fit what was recorded.
    Misfits(Vec<Misfit>),
    /// The log can't be run on.
    Unusable(Unusable),
}

impl From<Unusable> for NoReplay {
    fn from(unusable: Unusable) -> Self {
        Self::Unusable(unusable)
    }
}

/// What a part of a log holds that a replay is made of.
struct Part {
    causes: Causes,
    lives: Lives,
    end: Timestamp,
}

impl Restart {
    const fn policy(&self) -> RestartPolicy {
        let Self { condition, delay_ms, max_attempts, window_ms } = *self;
        RestartPolicy { condition, delay_ms, max_attempts, window_ms }
    }
}

impl Settings {
    fn restart_of(&self, guid: &ProcessGuid) -> Option<&Restart> {
        self.process.get(guid).and_then(|of| of.restart.as_ref()).or(self.restart.as_ref())
    }

    /// What can't be: where, and what is wrong there.
    #[must_use]
    pub fn faults(&self) -> Vec<BadField> {
        let own = self.process.iter().map(|(guid, of)| (format!("process.{guid}.restart"), &of.restart));
        let all = own.chain([("restart".to_owned(), &self.restart)]);
        let fault = |(field, restart): (String, &Option<Restart>)| {
            let problem = restart.as_ref()?.policy().fault()?;
            Some(BadField { field: format!("{field}.window_ms"), problem })
        };
        all.filter_map(fault).collect()
    }

    fn with_restart(&self, guid: &ProcessGuid, policies: &Policies) -> Option<Policies> {
        self.restart_of(guid).map(|restart| Policies { restart: restart.policy(), ..policies.clone() })
    }

    /// What is asked, with these settings.
    fn rewritten(&self, mut command: ClientCommand) -> ClientCommand {
        if let ClientCommand::LrpDesire(lrp) = &mut command
            && let Some(policies) = self.with_restart(&lrp.process_guid, &lrp.policies)
        {
            lrp.policies = policies;
        }
        if let ClientCommand::LrpUpdate { process_guid, update, .. } = &mut command
            && let Some(policies) = &update.policies
            && let Some(policies) = self.with_restart(process_guid, policies)
        {
            update.policies = Some(policies);
        }
        command
    }

    /// What a cell has in all, with these settings.
    fn resize(&self, id: &CellId, node: &mut Node) -> bool {
        let Some(of) = self.cell.get(id) else { return false };
        let total = &mut node.presence.total;
        let before = *total;
        total.memory_mb = of.memory_mb.unwrap_or(total.memory_mb);
        total.disk_mb = of.disk_mb.unwrap_or(total.disk_mb);
        total.containers = of.containers.unwrap_or(total.containers);
        total.ports = of.ports.unwrap_or(total.ports);
        before != *total
    }

    fn removes(&self, id: &CellId) -> bool {
        self.cell.get(id).is_some_and(|of| of.removed)
    }
}

impl Recording {
    /// What would have become of everything from here to a position with other settings.
    ///
    /// # Errors
    /// Why the log can't be run on, or settings that don't fit it.
    pub fn replay(&self, to: Position, settings: &Settings) -> Result<Replay, NoReplay> {
        let messages = self.behind(to)?;
        let Part { causes, lives, end } = self.part(messages);
        let (recorded, early_recorded) = self.figures(messages, end)?;
        let (stage, refused) = self.again(&causes, lives, settings, end)?;
        let (replayed, early_replayed) = self.figures(stage.tape.appended_messages(), end)?;
        Ok(Replay {
            from: self.position(),
            to,
            length_ms: u64::try_from(end.since(self.time()).as_millis()).unwrap_or(u64::MAX),
            differences: differences((&early_recorded, &recorded), (&early_replayed, &replayed)),
            recorded,
            replayed,
            refused,
            skipped: causes.skipped,
        })
    }

    /// The cluster in the end of a replay.
    #[cfg(test)]
    pub(super) fn replayed(&self, to: Position, settings: &Settings) -> Result<Stage<'_>, NoReplay> {
        let Part { causes, lives, end } = self.part(self.behind(to)?);
        self.again(&causes, lives, settings, end).map(|(stage, _)| stage)
    }

    /// The causes that are recorded up to a position, each with its time.
    #[cfg(test)]
    pub(super) fn causes(&self, to: Position) -> Result<Vec<(Timestamp, Cause)>, Unusable> {
        Ok(self.part(self.behind(to)?).causes.all(self.mass_loss_wait))
    }

    /// What was recorded from here to a position.
    fn behind(&self, to: Position) -> Result<&[Message], Unusable> {
        self.tape.behind(to).ok_or(Unusable::Beyond { position: to, end: self.tape.recorded_end() })
    }

    /// Reads what was recorded from here on.
    fn part(&self, messages: &[Message]) -> Part {
        let (mut causes, mut lives, mut end) =
            (Causes::beginning(self.world()), Lives::default(), self.time());
        // What began before is ended by what is recorded now.
        for message in self.tape.messages().chain(messages) {
            let Ok(entry) = Entry::decode(&message.bytes) else { continue };
            entry.decisions.iter().for_each(|decision| lives.note(decision));
        }
        lives.forget_before(self.time());
        for message in messages {
            let Ok(entry) = Entry::decode(&message.bytes) else { continue };
            entry.decisions.iter().for_each(|decision| causes.note(decision));
            end = entry.decisions.last().map_or(end, |last| end.max(last.at));
        }
        Part { causes, lives, end }
    }

    /// Brings about with other settings what was recorded, until a time. Answers what is refused.
    fn again(
        &self,
        causes: &Causes,
        lives: Lives,
        settings: &Settings,
        end: Timestamp,
    ) -> Result<(Stage<'_>, Vec<String>), NoReplay> {
        let causes = causes.all(self.mass_loss_wait);
        let names = Names::of(self.world(), &causes);
        let misfits = names.misfits(settings);
        if !misfits.is_empty() {
            return Err(NoReplay::Misfits(misfits));
        }
        let mut stage = Stage::living(self, lives);
        stage.set_up_cells(settings, &names);
        let refused = stage.bring_about_all(causes, settings, end)?;
        Ok((stage, refused))
    }

    /// What some messages behind this recording come to at a time, and shortly before.
    fn figures(&self, messages: &[Message], end: Timestamp) -> Result<(Figures, Figures), Unusable> {
        let mut bbs: Bbs = self.bbs.clone();
        let mut counting = Counting::new(bbs.world(), self.time());
        let early = end - SLACK;
        let mut before = None;
        for (at, message) in messages.iter().enumerate() {
            let position = Position(self.position().0 + at as u64 + 1);
            let Some(entry) = super::fold(&mut bbs, position, message)? else { continue };
            for decision in entry.decisions.iter().filter(|decision| decision.at <= end) {
                if decision.at > early && before.is_none() {
                    before = Some(counting.so_far());
                }
                counting.note(bbs.world(), decision);
            }
        }
        let before = before.unwrap_or_else(|| counting.so_far());
        Ok((counting.end(bbs.world(), end), before))
    }
}

impl Stage<'_> {
    /// Brings about what was recorded, with other settings, until a time. Answers what is refused.
    fn bring_about_all(
        &mut self,
        causes: Vec<(Timestamp, Cause)>,
        settings: &Settings,
        end: Timestamp,
    ) -> Result<Vec<String>, Unusable> {
        self.answer_what_is_called();
        self.until_led()?;
        let mut asked = self.ask_from_the_beginning(settings);
        for (at, cause) in causes {
            self.until((at + AFTERWARDS).max(self.now))?;
            let words = words(&cause);
            if let Some(number) = self.bring_about(cause, settings) {
                asked.insert(number, words);
            }
        }
        self.until(end.max(self.now))?;
        let refused = |(number, words): (u64, String)| match self.answers.remove(&number)? {
            Ok(_) => None,
            Err(Refusal { message, .. }) => Some(format!("{words}: {message}")),
        };
        Ok(asked.into_iter().filter_map(refused).collect())
    }

    /// Lets time run until a BBS leads: before, it refuses what is asked. In an empty log the cluster is founded first.
    fn until_led(&mut self) -> Result<(), Unusable> {
        let patience = self.now + PATIENCE;
        while !self.bbs.leads() && self.now < patience {
            self.until(self.now + LATENCY)?;
        }
        Ok(())
    }

    /// Owners that were being called when the log was left answer when they did.
    fn answer_what_is_called(&mut self) {
        let resolving = |task: &&task::Task| matches!(task.state, Some(task::State::Resolving(_)));
        let called: Vec<_> = self
            .world()
            .tasks_from(None)
            .filter(resolving)
            .map(|task| (task.guid.clone(), task.epoch))
            .collect();
        for (task, epoch) in called {
            let next = self.lives.as_mut().and_then(|lives| lives.next_answer(&task));
            if let Some((at, called)) = next {
                self.schedule(at, Due::Bbs(Box::new(bbs::Input::CallResult { task, epoch, called })));
            }
        }
    }

    /// The cells that are otherwise from the beginning, before time goes on.
    fn set_up_cells(&mut self, settings: &Settings, names: &Names<'_>) {
        for (id, of) in &settings.cell {
            let Some(pattern) = of.like.as_ref().and_then(|like| names.cell(like)) else { continue };
            let mut presence = pattern.clone();
            presence.folder = FolderId(self.ids.next(self.now));
            presence.incarnation = self.incarnation();
            self.cells.insert(id.clone(), Node::new(id, presence));
            self.schedule(self.now + LATENCY, Due::Attach(id.clone()));
        }
        self.cells.retain(|id, _| !settings.removes(id));
        for id in self.cells.keys().cloned().collect::<Vec<_>>() {
            let incarnation = self.incarnation();
            if let Some(node) = self.cells.get_mut(&id)
                && settings.resize(&id, node)
            {
                node.presence.incarnation = incarnation;
            }
        }
    }

    /// Asks for what else is otherwise from the beginning. Answers what is asked, by its number, as it is told if it is
    /// refused.
    fn ask_from_the_beginning(&mut self, settings: &Settings) -> BTreeMap<u64, String> {
        let policies: Vec<(Domain, ProcessGuid, Policies)> = self
            .world()
            .processes_from(None)
            .filter_map(|process| {
                let policies = settings.with_restart(&process.guid, &process.desired.as_ref()?.policies)?;
                Some((process.domain.clone(), process.guid.clone(), policies))
            })
            .collect();
        let mut asked = BTreeMap::new();
        for (domain, process_guid, policies) in policies {
            let words = format!("another restart policy of process {process_guid}");
            let update = DesiredLrpUpdate { policies: Some(policies), ..DesiredLrpUpdate::default() };
            let command = ClientCommand::LrpUpdate { process_guid, update, definition: None };
            asked.insert(self.client_asks(domain, command), words);
        }
        if let Some(on) = settings.preemption {
            let cause = Cause::Preemption(on);
            let command = schemas::cluster::Command::SwitchPreemption(on);
            let number =
                self.operator_asks(|client, envelope| ChangeRequest::Cluster { client, envelope, command });
            asked.insert(number, format!("{} from the beginning", words(&cause)));
        }
        asked
    }

    /// Brings about what was recorded once; answers the number of what is asked.
    fn bring_about(&mut self, cause: Cause, settings: &Settings) -> Option<u64> {
        match cause {
            Cause::Client(domain, command) => {
                let command = self.as_here(settings.rewritten(*command));
                Some(self.client_asks(domain, command))
            }
            Cause::Restart(domain, Restarted { process, purpose, made }) => {
                let process_guid = process.clone();
                let number = self.client_asks(domain, ClientCommand::LrpRestart { process_guid, purpose });
                self.restarts.insert(number, (process, made));
                Some(number)
            }
            Cause::Operator(cell, command) => Some(self.operator_asks(|client, envelope| {
                ChangeRequest::Operator { client, envelope, cell, command }
            })),
            Cause::Preemption(on) if settings.preemption.is_none() => {
                let command = schemas::cluster::Command::SwitchPreemption(on);
                Some(self.operator_asks(|client, envelope| ChangeRequest::Cluster {
                    client,
                    envelope,
                    command,
                }))
            }
            Cause::Preemption(_) => None,
            Cause::Lost(id) => {
                self.cells.get_mut(&id).map(|node| node.end(&id));
                None
            }
            Cause::Appeared(id, presence) if !settings.removes(&id) => {
                let known =
                    self.cells.entry(id.clone()).or_insert_with(|| Node::new(&id, (*presence).clone()));
                // Another run of its rep: what runs there runs on.
                if known.rep.is_none() || known.presence.incarnation != presence.incarnation {
                    known.rep = None;
                    known.presence = *presence;
                    settings.resize(&id, known);
                    self.schedule(self.now, Due::Attach(id));
                }
                None
            }
            Cause::Appeared(..) => None,
            Cause::Health(id, sick) => {
                if let Some(node) = self.cells.get_mut(&id) {
                    node.sick = sick;
                }
                None
            }
        }
    }

    /// What is asked, of the definitions that are called otherwise here than in the record.
    fn as_here(&self, mut command: ClientCommand) -> ClientCommand {
        if let ClientCommand::LrpActivate { process_guid, definition_id: id }
        | ClientCommand::LrpUpdate { process_guid, definition: Some((id, _)), .. }
        | ClientCommand::LrpRetire { process_guid, definition_id: Some(id), .. } = &mut command
            && let Some(here) = self.lives.as_ref().and_then(|lives| lives.here(process_guid, id))
        {
            *id = here;
        }
        command
    }

    /// What a client or an operator asked is carried out, and stands at a position. If that is a restart of the record, what
    /// it makes here lives as what it made there.
    pub(super) fn carried_out(&mut self, number: u64, position: Position) {
        let Some((process, recorded)) = self.restarts.remove(&number) else { return };
        let entry = self.tape.get(position).and_then(|message| Entry::decode(&message.bytes).ok());
        let Some((entry, lives)) = entry.zip(self.lives.as_mut()) else { return };
        let of_process = |decision: &&Decision| match &decision.aggregate {
            Aggregate::Process { guid, .. } => *guid == process,
            Aggregate::Task { .. }
            | Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cell(_)
            | Aggregate::Cluster => false,
        };
        let made = |decision: &Decision| Some(Said::of(&decision.events).restarted()?.1.clone());
        let mut made = entry.decisions.iter().filter(of_process).filter_map(made);
        // One entry may hold several: they are answered in their order.
        if let Some(here) = made.find(|here| !lives.is_known(&process, here)) {
            lives.know(process, here, recorded);
        }
    }

    fn client_asks(&mut self, domain: Domain, command: ClientCommand) -> u64 {
        self.operator_asks(|client, envelope| ChangeRequest::Client { domain, client, envelope, command })
    }

    fn operator_asks(
        &mut self,
        ask: impl FnOnce(schemas::names::ClientName, Envelope) -> ChangeRequest,
    ) -> u64 {
        self.changes += 1;
        let number = self.changes;
        self.asks_bbs(Asker::Change(number), ask(who(), Envelope::default()));
        number
    }
}

/// A cause, as it is told if it is refused.
fn words(cause: &Cause) -> String {
    match cause {
        Cause::Client(domain, command) => {
            let (noun, verb) = command.verb().noun_and_verb();
            format!("{noun}.{verb} of domain {domain}")
        }
        Cause::Restart(domain, _) => format!("lrp.restart of domain {domain}"),
        Cause::Operator(cell, command) => {
            let (noun, verb) = command.verb().noun_and_verb();
            format!("{noun}.{verb} {cell}")
        }
        Cause::Preemption(on) => format!("preemption {}", if *on { "on" } else { "off" }),
        Cause::Lost(cell) => format!("cell {cell} is lost"),
        Cause::Appeared(cell, _) => format!("cell {cell} appears"),
        Cause::Health(cell, _) => format!("the health of cell {cell}"),
    }
}

/// A figure of a process.
type Count = fn(&OfProcess) -> u64;

/// What must be equal where the settings are. Of each side: shortly before the end, and at the end.
fn differences(recorded: (&Figures, &Figures), replayed: (&Figures, &Figures)) -> Vec<String> {
    let mut found = vec![];
    let usual = OfProcess::default();
    let guids: std::collections::BTreeSet<_> =
        recorded.1.processes.keys().chain(replayed.1.processes.keys()).collect();
    for guid in guids {
        let of = |figures: &Figures| figures.processes.get(guid).cloned().unwrap_or_else(|| usual.clone());
        let (was, is) = ([recorded.0, recorded.1].map(of), [replayed.0, replayed.1].map(of));
        let counts: [(&str, Count); 4] = [
            ("crashes", |of| of.crashes),
            ("restarts", |of| of.restarts),
            ("instances desired", |of| of.desired),
            ("instances running", |of| of.running),
        ];
        for (what, count) in counts {
            let (was, is) = ([count(&was[0]), count(&was[1])], [count(&is[0]), count(&is[1])]);
            let apart = |one: [u64; 2], other: [u64; 2]| one[0].min(one[1]) > other[0].max(other[1]);
            if apart(was, is) || apart(is, was) {
                found.push(format!("process {guid}: {} {what} recorded, {} replayed", was[1], is[1]));
            }
        }
    }
    for guid in recorded.1.tasks.keys() {
        // Who gets what room is left is decided within a millisecond, here and there.
        let waited = |figures: &Figures| figures.tasks.get(guid).is_some_and(|of| of.placement_failures > 0);
        if waited(recorded.1) || waited(replayed.1) {
            continue;
        }
        let succeeded = |figures: &Figures| figures.tasks.get(guid).and_then(|of| of.succeeded);
        let (was, is) = ([recorded.0, recorded.1].map(succeeded), [replayed.0, replayed.1].map(succeeded));
        if !was.iter().any(|one| is.contains(one)) {
            let word = |succeeded: Option<bool>| match succeeded {
                Some(true) => "succeeded",
                Some(false) => "failed",
                None => "not ended",
            };
            found.push(format!("task {guid}: {} recorded, {} replayed", word(was[1]), word(is[1])));
        }
    }
    found
}
