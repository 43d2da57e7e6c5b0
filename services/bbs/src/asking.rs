//! Commands: who asks, whether the subject proves it, and who is answered when it is settled.

use std::time::Duration;

use projections::{Due, WorkRef, records};
use schemas::entry::Actor;
use schemas::limits::COMMANDS_IN_FLIGHT;
use schemas::message::{Done, Envelope, Lead, Outcome, Outcomes, Report, ReportResult, Reported, Reports};
use schemas::names::{CellId, ClientName, Domain};
use schemas::spec::ClientCommand;
use schemas::subject::Position;
use schemas::{Code, Refusal, Timestamp, cluster, process, task};

use crate::machine::{Ask, Bbs, Effect, Gather, QUEUE, Reply};
use crate::shard::{Command, Item, Origin, Verdict};

impl Bbs {
    pub(crate) fn asked(&mut self, now: Timestamp, asker: u64, ask: Ask, out: &mut Vec<Effect>) {
        let refuse = |refusal: Refusal, out: &mut Vec<Effect>| {
            let reply = match &ask {
                Ask::Cell { .. } => Reply::Reported(Err(refusal)),
                Ask::Client { .. }
                | Ask::Attach { .. }
                | Ask::Leave { .. }
                | Ask::Operator { .. }
                | Ask::Outcomes(_)
                | Ask::Lead(_) => Reply::Done(Err(refusal)),
            };
            out.push(Effect::Answer { asker, reply });
        };
        if !self.leading {
            return refuse(not_leading(), out);
        }
        if self.waiting >= QUEUE {
            return refuse(Refusal::new(Code::Overloaded, "too many commands wait: try again"), out);
        }
        match ask {
            Ask::Client { domain, client, envelope, command } => {
                self.asked_by_client(asker, &domain, client, envelope, command, out);
            }
            Ask::Cell { cell, reports } => self.asked_by_cell(now, asker, &cell, reports, out),
            Ask::Outcomes(outcomes) => self.asked_by_auctioneer(asker, outcomes, out),
            Ask::Attach { cell, attach } => {
                let taken = self.taken(&cell, attach.folder, now);
                out.extend(taken.iter().map(|refusal| Effect::Warn(refusal.message.clone())));
                let done = Done { position: self.world.position(), version: 0 };
                let reply = Reply::Done(taken.map_or(Ok(done), Err));
                out.push(Effect::Answer { asker, reply });
            }
            Ask::Leave { cell, leave } => match self.taken(&cell, leave.folder, now) {
                Some(refusal) => {
                    out.push(Effect::Answer { asker, reply: Reply::Done(Err(refusal)) });
                }
                None => {
                    let command = Command::Left(cell.clone(), leave.incarnation);
                    self.enqueue(item(Origin::Asker(asker), Actor::Cell(cell), command));
                }
            },
            Ask::Operator { client, envelope, cell, command } => {
                let actor = Actor::Operator(client);
                let digest = envelope.request_id.is_some().then(|| command.digest(&cell));
                let item = item(Origin::Asker(asker), actor, Command::Cell(cell, command));
                self.enqueue(Item { envelope, digest, ..item });
            }
            Ask::Lead(Lead { id, term }) => {
                let actor = Actor::Auctioneer(id.clone());
                let role = cluster::Role::Auctioneer;
                let command = Command::Lead { role, id, term, found: None };
                self.enqueue(item(Origin::Asker(asker), actor, command));
            }
        }
    }

    pub(crate) fn asked_by_client(
        &mut self,
        asker: u64,
        domain: &Domain,
        client: ClientName,
        envelope: Envelope,
        command: ClientCommand,
        out: &mut Vec<Effect>,
    ) {
        let digest = envelope.request_id.is_some().then(|| command.digest());
        let process = |guid, command| Command::Process(guid, Box::new(command));
        let task = |guid, command| Command::Task(guid, Box::new(command));
        let command = match command {
            ClientCommand::LrpDesire(lrp) => process(lrp.process_guid.clone(), process::Command::Desire(lrp)),
            ClientCommand::LrpUpdate { process_guid, update } => {
                process(process_guid, process::Command::Update(update))
            }
            ClientCommand::LrpRemove { process_guid } => process(process_guid, process::Command::Remove),
            ClientCommand::LrpRetire { process_guid, index } => {
                process(process_guid, process::Command::Retire { index })
            }
            ClientCommand::TaskDesire(desired) => {
                task(desired.task_guid.clone(), task::Command::Desire(desired))
            }
            ClientCommand::TaskCancel { task_guid } => task(task_guid, task::Command::Cancel),
            ClientCommand::TaskResolve { task_guid } => task(task_guid, task::Command::Resolve),
            ClientCommand::DomainUpsert { domain, ttl_ms } => {
                Command::Refresh(domain, ttl_ms.map(Duration::from_millis))
            }
        };
        let waiting = self.asking.entry((domain.clone(), client.clone())).or_default();
        if *waiting >= COMMANDS_IN_FLIGHT {
            let why = format!(
                "client {client} has {COMMANDS_IN_FLIGHT} commands waiting: wait for an answer first"
            );
            let reply = Reply::Done(Err(Refusal::new(Code::Overloaded, why)));
            return out.push(Effect::Answer { asker, reply });
        }
        *waiting += 1;
        let actor = Actor::Client { domain: domain.clone(), name: client };
        let mut item = item(Origin::Asker(asker), actor, command);
        item.envelope = envelope;
        item.digest = digest;
        self.enqueue(item);
    }

    pub(crate) fn asked_by_cell(
        &mut self,
        now: Timestamp,
        asker: u64,
        cell: &CellId,
        reports: Reports,
        out: &mut Vec<Effect>,
    ) {
        let strange = self.is_strange(cell, reports.folder, now);
        let reports = reports.reports;
        if reports.is_empty() || reports.len() > schemas::limits::BATCH {
            let why = format!("a message holds 1 to {} reports", schemas::limits::BATCH);
            let reply = Reply::Reported(Err(Refusal::new(Code::InvalidRequest, why)));
            return out.push(Effect::Answer { asker, reply });
        }
        let foreign = |report: &Report| match report {
            Report::Lrp { report, .. } => report.by.cell_id != *cell,
            Report::Task { report, .. } => report.by.cell_id != *cell,
        };
        if reports.iter().any(foreign) {
            let why = format!("the subject names cell {cell}, a report another one");
            let reply = Reply::Reported(Err(Refusal::new(Code::Forbidden, why)));
            return out.push(Effect::Answer { asker, reply });
        }
        if let Some(refusal) = strange {
            return out.push(Effect::Answer { asker, reply: Reply::Reported(Err(refusal)) });
        }
        let left = reports.len();
        let items: Vec<Item> = reports
            .iter()
            .enumerate()
            .map(|(part, report)| {
                let command = match report {
                    Report::Lrp { process_guid, report } => {
                        let command = process::Command::Report(report.clone());
                        Command::Process(process_guid.clone(), Box::new(command))
                    }
                    Report::Task { task_guid, report } => {
                        Command::Task(task_guid.clone(), Box::new(task::Command::Report(report.clone())))
                    }
                };
                item(Origin::Part { asker, part }, Actor::Cell(cell.clone()), command)
            })
            .collect();
        let gather = Gather { cell: Some(cell.clone()), reports, verdicts: vec![None; left], left };
        self.gathers.insert(asker, gather);
        for item in items {
            self.enqueue(item);
        }
    }

    pub(crate) fn asked_by_auctioneer(&mut self, asker: u64, outcomes: Outcomes, out: &mut Vec<Effect>) {
        let leader = self.world.cluster().and_then(|cluster| cluster.auctioneer.as_ref());
        if leader.is_none_or(|leader| leader.term < outcomes.term) {
            let why =
                format!("this BBS has not heard of the auctioneer's term {} yet: try again", outcomes.term);
            let reply = Reply::Done(Err(Refusal::new(Code::Unavailable, why)));
            return out.push(Effect::Answer { asker, reply });
        }
        let leads = leader.is_some_and(|leader| leader.id == outcomes.id && leader.term == outcomes.term);
        let refusal = if !leads {
            Some(Refusal::new(Code::StaleTerm, format!("auctioneer {} does not lead", outcomes.id)))
        } else if outcomes.outcomes.is_empty() || outcomes.outcomes.len() > schemas::limits::BATCH {
            let why = format!("a message holds 1 to {} outcomes", schemas::limits::BATCH);
            Some(Refusal::new(Code::InvalidRequest, why))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return out.push(Effect::Answer { asker, reply: Reply::Done(Err(refusal)) });
        }
        let left = outcomes.outcomes.len();
        self.gathers.insert(asker, Gather { cell: None, reports: vec![], verdicts: vec![None; left], left });
        for (part, outcome) in outcomes.outcomes.into_iter().enumerate() {
            // Whether it is stale is judged in its turn: the auctioneer may know an entry that is still on its way here.
            let (command, epoch) = match outcome {
                Outcome::Lrp { process_guid, epoch, unplaced, explanation } => {
                    let command = process::Command::Fail(unplaced, explanation);
                    (Command::Process(process_guid, Box::new(command)), epoch)
                }
                Outcome::Task { task_guid, epoch, error, explanation } => {
                    (Command::Task(task_guid, Box::new(task::Command::Fail(explanation, error))), epoch)
                }
            };
            let origin = Origin::Part { asker, part };
            let mut item = item(origin, Actor::Auctioneer(outcomes.id.clone()), command);
            item.epoch = Some(epoch);
            self.enqueue(item);
        }
    }

    pub(crate) fn enqueue(&mut self, item: Item) {
        let subject = item.command.subject(self.world.shards());
        let shard = self.shards.entry(subject.clone()).or_default();
        shard.queue.push_back(item);
        self.waiting += 1;
        if shard.is_ready() {
            self.ready.insert(subject);
        }
    }

    /// Looks at what is due, unless the answer to that is on its way to the log.
    pub(crate) fn look_at_due(&mut self, suspect: Due) {
        if !self.flying.contains(&suspect) {
            self.look_at(suspect);
        }
    }

    /// Looks at one process or task, once until it is looked at: what happens after that is a reason to look again, even
    /// while what was decided is on its way to the log.
    pub(crate) fn look_at(&mut self, suspect: Due) {
        if !self.own.insert(suspect.clone()) {
            return;
        }
        let command = match suspect {
            Due::Process(guid) => Command::Process(guid, Box::new(process::Command::Converge)),
            Due::Task(guid) => Command::Task(guid, Box::new(task::Command::Converge)),
        };
        self.enqueue_own(command);
    }

    pub(crate) fn enqueue_own(&mut self, command: Command) {
        let item = item(Origin::Own, Actor::Bbs(self.settings.id.clone()), command);
        self.enqueue(item);
    }

    /// Tells whoever waits for it what became of a command.
    pub(crate) fn settle(
        &mut self,
        item: &Item,
        position: Position,
        verdict: Verdict,
        out: &mut Vec<Effect>,
    ) {
        match item.origin {
            Origin::Own => {
                if let Some(suspect) = item.suspect() {
                    self.flying.remove(&suspect);
                }
            }
            Origin::Asker(asker) => {
                self.answered(&item.actor);
                let done = verdict.map(|version| Done { position, version });
                out.push(Effect::Answer { asker, reply: Reply::Done(done) });
            }
            Origin::Part { asker, part } => self.settle_part(asker, part, verdict, out),
        }
    }

    /// A client has one command less that waits.
    fn answered(&mut self, actor: &Actor) {
        if let Actor::Client { domain, name } = actor {
            let client = (domain.clone(), name.clone());
            match self.asking.get_mut(&client) {
                Some(waiting) if *waiting > 1 => *waiting -= 1,
                Some(_) | None => drop(self.asking.remove(&client)),
            }
        }
    }

    pub(crate) fn settle_part(&mut self, asker: u64, part: usize, verdict: Verdict, out: &mut Vec<Effect>) {
        let Some(gather) = self.gathers.get_mut(&asker) else { return };
        if let Some(slot) = gather.verdicts.get_mut(part).filter(|slot| slot.is_none()) {
            *slot = Some(verdict);
            gather.left -= 1;
        }
        if gather.left > 0 {
            return;
        }
        let Some(gather) = self.gathers.remove(&asker) else { return };
        let position = self.world.position();
        let reply = match gather.cell {
            None => {
                // What was not decided is told again. Any other refusal says that the work has changed since.
                let mut refusals = gather.verdicts.into_iter().flatten().filter_map(Result::err);
                let undecided = refusals.find(|refusal| refusal.code == Code::Unavailable);
                Reply::Done(undecided.map_or(Ok(Done { position, version: 0 }), Err))
            }
            Some(_) => {
                let verdicts = gather.verdicts.into_iter().flatten();
                let results = gather.reports.iter().zip(verdicts).map(|(report, verdict)| ReportResult {
                    refused: verdict.err(),
                    record: records::record(&self.world, &work_of(report)),
                });
                Reply::Reported(Ok(Reported {
                    position,
                    terms: records::terms(&self.world),
                    results: results.collect(),
                }))
            }
        };
        out.push(Effect::Answer { asker, reply });
    }
}

pub(crate) fn not_leading() -> Refusal {
    Refusal::new(Code::Unavailable, "this BBS does not lead: try again")
}

fn item(origin: Origin, actor: Actor, command: Command) -> Item {
    Item { origin, actor, envelope: Envelope::default(), digest: None, epoch: None, command }
}

fn work_of(report: &Report) -> WorkRef {
    match report {
        Report::Lrp { process_guid, report } => WorkRef::Lrp(process_guid.clone(), report.index),
        Report::Task { task_guid, .. } => WorkRef::Task(task_guid.clone()),
    }
}
