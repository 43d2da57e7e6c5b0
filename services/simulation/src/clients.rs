//! Clients, operators, and the owners of completed tasks.

use std::time::Duration;

use bbs::callbacks::CallbackResult;
use bytes::Bytes;
use schemas::codec::{self, Form};
use schemas::container::Epoch;
use schemas::definition::DesiredLrpUpdate;
use schemas::evaluation::Trigger;
use schemas::message::{Ack, Envelope, ReportsReply, Request};
use schemas::names::{CellId, Domain, ProcessGuid, RequestId, TaskGuid};
use schemas::policy::RestartPolicy;
use schemas::query::{EvaluationSubject, LrpRow, Show, ShowAnswer};
use schemas::refusal::Code;
use schemas::spec::{ClientCommand, PeriodicAction};
use schemas::subject::Position;
use schemas::{Refusal, Timestamp, cell};

use crate::arrived::Arrived;
use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::event::{About, ClusterEvent, Kind, NodeEvent, Question, Table, bytes_of, decoded};
use crate::generate::rollouts;
use crate::invariants::Invariant;
use crate::layout::cell_id;
use crate::machine::Machine;
use crate::requests::{ClientRequest, Response};
use crate::shape::{Life, Node, rep_of};
use crate::story::newest;
use crate::work::{Ask, domain, other_domain};

/// Answers of a moody owner in each of three moods: success, refusal, and requests to repeat the call. In a
/// fourth mood the owner does not answer.
const MOODS: [&[u16]; 3] = [&[200, 204], &[404, 302, 400, 499], &[503, 408, 429, 500, 599]];

/// Time to live of a domain that no client requests.
const NEVER_ASKED_MS: u64 = 1_234_567;
/// Maximum number of attempts of a client.
const TRIES: u32 = 40;
/// Time for which a client waits for the retry of an evaluation.
const RETRY_PATIENCE: Duration = Duration::from_secs(20);

impl Cluster {
    /// Sends the command of a plan.
    pub(crate) fn client_wants(&mut self, domain: Domain, ask: &Ask, patience: Duration) {
        let command = ask.command(&domain);
        self.client_commands(domain, command, patience);
    }

    fn client_commands(&mut self, domain: Domain, command: ClientCommand, patience: Duration) {
        let expected = self.expected_version(&command);
        let mut request = self.requests.create(domain, command, self.now, patience, expected);
        request.envelope.if_position = self.planned_at(&request.command);
        self.checkers.requested(&request);
        self.send_request(request);
    }

    /// Retries the newest evaluation of a process or a task with this trigger, if there is one.
    pub(crate) fn client_retries(&mut self, of: &ProcessGuid, trigger: Trigger) {
        let seen = self.facts().evaluations;
        let Some(row) = newest(seen.iter(), of.as_str(), trigger) else { return };
        let (domain, evaluation) = (row.domain.clone(), row.evaluation.id);
        let command = match row.subject.clone() {
            EvaluationSubject::Process(process_guid) => ClientCommand::LrpRetry { process_guid, evaluation },
            EvaluationSubject::Task(task_guid) => ClientCommand::TaskRetry { task_guid, evaluation },
        };
        self.client_commands(domain, command, RETRY_PATIENCE);
    }

    /// Draws an expected version: the current one or an older one.
    fn expected_version(&mut self, command: &ClientCommand) -> Option<u64> {
        if self.faults.versioned == 0 || !self.users.chance(self.faults.versioned) {
            return None;
        }
        let version = self.checkers.version_of(command)?;
        let behind = if self.users.chance(300) { 1 } else { 0 };
        Some(version.saturating_sub(behind))
    }

    /// Draws the position of a plan: the end of the log, a position before or after it, or around the last
    /// decision about the target.
    fn planned_at(&mut self, command: &ClientCommand) -> Option<Position> {
        if self.faults.planned == 0 || !self.planners.chance(self.faults.planned) {
            return None;
        }
        let (end, last) = (self.journal.end(), self.checkers.last_decision(command));
        let at = match self.planners.below(10) {
            0..=4 => end.0,
            5 | 6 => end.0.saturating_sub(self.planners.below(30)),
            7 => last.0,
            8 => last.0.saturating_sub(1),
            _ => end.0 + self.planners.below(3),
        };
        Some(Position(at))
    }

    pub(crate) fn operator_asks(&mut self, cell: usize, command: cell::Command) {
        let to = self.leader();
        let question = Question { from: None, about: About::Operator };
        self.ask(to, question, Kind::Operator(cell_id(cell), command), Bytes::new());
    }

    /// Sends a command of an operator about the whole cluster.
    pub(crate) fn order_cluster(&mut self, command: schemas::cluster::Command) {
        let to = self.leader();
        let question = Question { from: None, about: About::Operator };
        self.ask(to, question, Kind::Cluster(command), Bytes::new());
    }

    /// Reports once that the rep of a cell leaves. The message may be lost.
    pub(crate) fn rep_leaves(&mut self, cell: usize) {
        let Some(Machine::Rep(rep)) = &self.place(Node::Rep(cell)).machine else { return };
        let leave = rep.leave();
        let to = self.leader();
        let question = Question { from: None, about: About::Operator };
        self.ask(to, question, Kind::Leave(cell_id(cell)), bytes_of(&leave));
    }

    /// Refreshes every domain without expiry.
    pub(crate) fn refresh_for_ever(&mut self) {
        let patience = Duration::from_secs(30) + self.clocks_apart();
        for domain in [domain(), other_domain()] {
            self.client_wants(domain, &Ask::Fresh(None), patience);
        }
    }

    /// Uncordons every cell.
    pub(crate) fn take_back_cordons(&mut self) {
        for cell in self.checkers.cordoned() {
            if let Node::Rep(at) = rep_of(&cell) {
                self.operator_asks(at, cell::Command::Uncordon);
            }
        }
    }

    /// Deploys working definitions to most processes that were rolled out, so that their rollouts end.
    pub(crate) fn mend_definitions(&mut self) {
        let patience = Duration::from_secs(30) + self.clocks_apart();
        for (domain, ask) in rollouts::mending(&self.checkers.rolled_out(), &mut self.users) {
            self.client_wants(domain, &ask, patience);
        }
        // Instances that restart after a short constant delay never come to rest.
        for (process, domain) in self.checkers.with_constant_delay() {
            let basic = Ask::Policy { process, restart: RestartPolicy::default() };
            self.client_wants(domain, &basic, patience);
        }
    }

    /// Removes periodic and parameterised tasks, which never come to rest.
    pub(crate) fn remove_launchers(&mut self) {
        let patience = Duration::from_secs(30) + self.clocks_apart();
        for periodic in self.checkers.periodics() {
            self.client_wants(domain(), &Ask::OfPeriodic(periodic, PeriodicAction::Remove), patience);
        }
        for parameterised in self.checkers.parameterised() {
            self.client_wants(domain(), &Ask::RemoveParameterised(parameterised), patience);
        }
    }

    /// Sends a command to the leader.
    pub(crate) fn send_request(&mut self, request: ClientRequest) {
        self.checkers.sent(request.id(), &request.command);
        let (domain, command) = (request.domain.clone(), request.command.clone());
        let left = request.until.since(self.now).as_millis();
        let timeout_ms = Some(u64::try_from(left).unwrap_or(u64::MAX));
        let envelope = Envelope { timeout_ms, ..request.envelope.clone() };
        self.send_command(About::Request(Box::new(request)), domain, envelope, &command);
    }

    /// Sends a command to the leader.
    fn send_command(&mut self, about: About, domain: Domain, envelope: Envelope, command: &ClientCommand) {
        let to = self.leader();
        let (noun, verb) = command.noun_and_verb();
        let bytes = codec::encode(Form::Json, &Request { envelope, body: command.body() }).into();
        self.ask(to, Question { from: None, about }, Kind::Client(domain, noun, verb), bytes);
    }

    /// Handles an answer to a client. `None` after the timeout.
    pub(crate) fn client_answered(&mut self, token: u64, bytes: Option<&Bytes>) {
        let Some(question) = self.questions.remove(&token) else { return };
        match question.about {
            About::Request(request) => self.request_answered(*request, bytes.map(decoded)),
            About::Show { at_least, version } => {
                let rows: Option<Result<String, Refusal>> = bytes.map(decoded);
                if let Some(Ok(rows)) = rows {
                    self.shown(&rows, at_least, version);
                }
            }
            About::Read(read) => self.read_answered(&read, bytes),
            // The operator inspects the cell instead.
            About::Operator => {}
            About::Attach(cell) => self.attached(cell, bytes.map(decoded)),
            About::Forged(cell) => self.forged_answered(&cell, bytes),
            About::Reused(request) => self.reuse_answered(&request, bytes),
            About::Lead
            | About::Report(_)
            | About::Records(_)
            | About::Outcomes(_)
            | About::Perform(..)
            | About::Probe(_) => {
                self.violated(Invariant::ToldTrue, "a client got an answer that is not its own".into());
            }
        }
    }

    /// Checks the answer to a forged report.
    fn forged_answered(&mut self, cell: &CellId, bytes: Option<&Bytes>) {
        let answer: Option<Result<ReportsReply, Refusal>> = bytes.map(decoded);
        match answer {
            Some(Ok(_)) => {
                let how =
                    format!("a report under the name of {cell} about another cell's container is taken");
                self.violated(Invariant::OneContainer, how);
            }
            Some(Err(refusal)) if refusal.code == Code::Forbidden => self.met(Situation::ForgedRefused),
            Some(Err(_)) | None => {}
        }
    }

    fn request_answered(&mut self, request: ClientRequest, answer: Option<Result<Ack, Refusal>>) {
        self.log(|| {
            let (noun, verb) = request.command.noun_and_verb();
            let answer = match &answer {
                None => "no answer".to_owned(),
                Some(Ok(done)) => format!("version {} at {}", done.version, done.position),
                Some(Err(refusal)) => refusal.to_string(),
            };
            format!("client: {} {noun}.{verb} {} -> {answer}", request.id(), subject_of(&request.command))
        });
        if let Some(answer) = &answer {
            let end = self.journal.end();
            self.checkers.answered(&request.id(), &request.command, answer, end);
        }
        match answer {
            Some(Ok(done)) => {
                self.requests.record_answer(&request, Response::Done(done));
                self.read_own_write(&request, done);
                self.reuse_id(&request);
            }
            Some(Err(Refusal { code: Code::Unavailable | Code::Overloaded, .. })) | None
                if request.tries < TRIES =>
            {
                let again = ClientRequest { tries: request.tries + 1, ..request };
                self.schedule(self.now + Duration::from_millis(500), ClusterEvent::Request(Box::new(again)));
            }
            Some(Err(refusal)) => {
                if refusal.code == Code::InvalidRequest && !self.requests.scales_global(&request.command) {
                    let detail = format!("valid request {} is refused with {refusal}", request.id());
                    self.violated(Invariant::ToldTrue, detail);
                }
                if refusal.code == Code::ResourceConflict && request.envelope.expect_version.is_some() {
                    self.met(Situation::VersionRefused);
                }
                self.requests.record_answer(&request, Response::Refused(refusal.code));
            }
            None => {}
        }
    }

    /// May reuse the id of a request for another command.
    fn reuse_id(&mut self, request: &ClientRequest) {
        if self.faults.reused == 0 || !self.users.chance(self.faults.reused) {
            return;
        }
        self.inject("request ids used for something else");
        let (domain, envelope) = (request.domain.clone(), request.envelope.clone());
        self.send_command(About::Reused(request.id()), domain, envelope, &something_else(&request.command));
    }

    /// Checks the answer to a reused request id.
    fn reuse_answered(&mut self, request: &RequestId, bytes: Option<&Bytes>) {
        let answer: Option<Result<Ack, Refusal>> = bytes.map(decoded);
        match answer {
            Some(Ok(done)) => {
                let how = format!(
                    "request {request} is used for something else, and answered as done at {}",
                    done.position
                );
                self.violated(Invariant::RequestOnce, how);
            }
            Some(Err(refusal)) if refusal.code == Code::RequestIdReused => self.met(Situation::IdReused),
            Some(Err(_)) | None => {}
        }
    }

    /// May read what a client wrote.
    fn read_own_write(&mut self, request: &ClientRequest, done: Ack) {
        let guid = match &request.command {
            ClientCommand::LrpDesire(lrp) => &lrp.process_guid,
            ClientCommand::LrpUpdate { process_guid, .. }
            | ClientCommand::LrpActivate { process_guid, .. }
            | ClientCommand::LrpRestart { process_guid, .. }
            | ClientCommand::LrpSteer { process_guid, .. } => process_guid,
            ClientCommand::LrpRemove { .. }
            | ClientCommand::LrpRetire { .. }
            | ClientCommand::LrpRetry { .. }
            | ClientCommand::InstanceExec { .. }
            | ClientCommand::TaskRetry { .. }
            | ClientCommand::DomainUpsert { .. }
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::PeriodicUpdate(_)
            | ClientCommand::PeriodicAction { .. }
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::ParameterisedUpdate(_)
            | ClientCommand::ParameterisedDispatch { .. }
            | ClientCommand::ParameterisedWithdraw { .. }
            | ClientCommand::ParameterisedRemove { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => return,
        };
        if self.users.chance(300) {
            let show = Show { id: guid.to_string(), at_least: Some(done.position), as_of: None };
            let to = self.any_bbs();
            let about = About::Show { at_least: done.position, version: done.version };
            self.ask(to, Question { from: None, about }, Kind::Query(Table::Lrp), bytes_of(&show));
        }
    }

    fn shown(&mut self, rows: &str, at_least: Position, version: u64) {
        let shown: ShowAnswer<LrpRow> = serde_json::from_str(rows).expect("the rows are valid");
        if shown.position < at_least || shown.row.version < version {
            let (row, position) = (shown.row, shown.position);
            let guid = row.process_guid;
            let how = format!(
                "who wrote version {version} of {guid} at {at_least} reads version {} at {position}",
                row.version
            );
            self.violated(Invariant::ReadsOwnWrites, how);
        }
    }

    // ---- the owners of tasks -------------------------------------------------------------------------------------

    /// Carries out the call of a task's owner.
    pub(crate) fn call(&mut self, from: Life, task: TaskGuid, epoch: Epoch, url: &str, body: &str) {
        let (node, _) = from;
        self.log(|| format!("{node} calls {url} for {task}"));
        let delivered = self.place(node).delivered;
        self.checkers.called(from, (&task, epoch), (delivered, body));
        let (at, called) = self.owner_answers(url);
        if !self.checkers.owner_answered(&task, epoch, &called) {
            self.met(Situation::CallRepeated);
        }
        self.schedule_for(at, from, NodeEvent::Called { task, epoch, called });
    }

    /// Draws the answer of a moody owner. `None` stands for no answer.
    fn mood(&mut self) -> Option<u16> {
        let mood = usize::try_from(self.users.below(MOODS.len() as u64 + 1)).ok()?;
        let answers = MOODS.get(mood)?;
        self.users.place(answers.len()).map(|at| answers[at])
    }

    fn owner_answers(&mut self, url: &str) -> (Timestamp, CallbackResult) {
        let soon = self.now + self.users.millis(1, 300);
        let moody = url.ends_with("/moody").then(|| self.mood());
        match (url, moody) {
            (_, Some(None)) => {
                (self.now + Duration::from_secs(10), CallbackResult::Failed("no answer".into()))
            }
            (_, Some(Some(status))) => (soon, CallbackResult::Answered(status)),
            ("http://owner/broken", None) => (soon, CallbackResult::Answered(500)),
            ("http://owner/absent", None) => (soon, CallbackResult::Answered(404)),
            (_, None) => (soon, CallbackResult::Answered(200)),
        }
    }

    /// Passes the answer of an owner to the BBS that made the call.
    pub(crate) fn called(&mut self, node: Node, task: TaskGuid, epoch: Epoch, called: CallbackResult) {
        if let Some(life) = self.life(node) {
            self.checkers.call_returned(life, (&task, epoch), &called);
        }
        self.input(node, Arrived::Called { task, epoch, called });
    }
}

/// Returns another command about the same target, which no client sends.
fn something_else(command: &ClientCommand) -> ClientCommand {
    let described = |guid: &ProcessGuid| ClientCommand::LrpUpdate {
        process_guid: guid.clone(),
        update: DesiredLrpUpdate {
            annotation: Some("never asked for".into()),
            ..DesiredLrpUpdate::default()
        },
        definition: None,
    };
    match command {
        ClientCommand::LrpDesire(lrp) => described(&lrp.process_guid),
        ClientCommand::LrpUpdate { process_guid, .. }
        | ClientCommand::LrpActivate { process_guid, .. }
        | ClientCommand::LrpRestart { process_guid, .. }
        | ClientCommand::LrpSteer { process_guid, .. }
        | ClientCommand::LrpRemove { process_guid }
        | ClientCommand::LrpRetry { process_guid, .. }
        | ClientCommand::InstanceExec { process_guid, .. }
        | ClientCommand::LrpRetire { process_guid, .. } => described(process_guid),
        ClientCommand::TaskDesire(desired) => {
            ClientCommand::TaskCancel { task_guid: desired.task_guid.clone() }
        }
        ClientCommand::TaskCancel { task_guid } => {
            ClientCommand::TaskResolve { task_guid: task_guid.clone() }
        }
        ClientCommand::TaskResolve { task_guid } | ClientCommand::TaskRetry { task_guid, .. } => {
            ClientCommand::TaskCancel { task_guid: task_guid.clone() }
        }
        ClientCommand::PeriodicDesire(desired) | ClientCommand::PeriodicUpdate(desired) => {
            let periodic_guid = desired.periodic_guid.clone();
            ClientCommand::PeriodicAction { periodic_guid, ask: PeriodicAction::Remove }
        }
        ClientCommand::ParameterisedDesire(desired) | ClientCommand::ParameterisedUpdate(desired) => {
            ClientCommand::ParameterisedRemove { parameterised_guid: desired.parameterised_guid.clone() }
        }
        ClientCommand::ParameterisedDispatch { parameterised_guid, .. }
        | ClientCommand::ParameterisedWithdraw { parameterised_guid, .. } => {
            ClientCommand::ParameterisedRemove { parameterised_guid: parameterised_guid.clone() }
        }
        ClientCommand::ParameterisedRemove { parameterised_guid } => {
            let parameterised_guid = parameterised_guid.clone();
            ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch: Box::default() }
        }
        ClientCommand::PeriodicAction { periodic_guid, ask } => {
            let other =
                if *ask == PeriodicAction::Launch { PeriodicAction::Remove } else { PeriodicAction::Launch };
            ClientCommand::PeriodicAction { periodic_guid: periodic_guid.clone(), ask: other }
        }
        ClientCommand::DomainUpsert { domain, .. } => {
            ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms: Some(NEVER_ASKED_MS) }
        }
    }
}

/// Returns the target of a command as text.
fn subject_of(command: &ClientCommand) -> String {
    match command {
        ClientCommand::LrpDesire(lrp) => format!("{} x{}", lrp.process_guid, lrp.instances),
        ClientCommand::LrpUpdate { process_guid, update, definition } => {
            let id = definition.as_ref().map(|(id, _)| id.as_str());
            format!("{process_guid} {:?} {}", update.instances, id.unwrap_or_default())
        }
        ClientCommand::LrpActivate { process_guid, definition_id } => {
            format!("{process_guid} {definition_id}")
        }
        ClientCommand::LrpRestart { process_guid, .. } => format!("{process_guid} restart"),
        ClientCommand::LrpSteer { process_guid, steer } => format!("{process_guid} {steer:?}"),
        ClientCommand::LrpRemove { process_guid } => process_guid.to_string(),
        ClientCommand::LrpRetire { process_guid, index, .. } => format!("{process_guid}/{index}"),
        ClientCommand::InstanceExec { process_guid, index, exec, .. } => {
            format!("{} in {process_guid}/{index}", exec.path)
        }
        ClientCommand::LrpRetry { process_guid, evaluation } => format!("{process_guid} {evaluation}"),
        ClientCommand::TaskRetry { task_guid, evaluation } => format!("{task_guid} {evaluation}"),
        ClientCommand::TaskDesire(desired) => desired.task_guid.to_string(),
        ClientCommand::TaskCancel { task_guid } | ClientCommand::TaskResolve { task_guid } => {
            task_guid.to_string()
        }
        ClientCommand::PeriodicDesire(desired) | ClientCommand::PeriodicUpdate(desired) => {
            format!("{} at {:?}", desired.periodic_guid, desired.schedule.cron())
        }
        ClientCommand::ParameterisedDesire(desired) | ClientCommand::ParameterisedUpdate(desired) => {
            format!("{} at most {:?}", desired.parameterised_guid, desired.concurrency)
        }
        ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch } => {
            format!("{parameterised_guid} {:?}", dispatch.key)
        }
        ClientCommand::ParameterisedWithdraw { parameterised_guid, number } => {
            format!("{parameterised_guid} {number}")
        }
        ClientCommand::ParameterisedRemove { parameterised_guid } => parameterised_guid.to_string(),
        ClientCommand::PeriodicAction { periodic_guid, ask } => format!("{periodic_guid} {ask:?}"),
        ClientCommand::DomainUpsert { domain, .. } => domain.to_string(),
    }
}
