//! Execution of changes, as clients, operators or the environment would make them.

use std::time::Duration;

use bbs::ChangeRequest;
use machines::actual;
use schemas::definition::{DesiredLrp, DesiredLrpUpdate};
use schemas::message::{Ack, Envelope};
use schemas::names::{CellId, ClientName, Domain, FolderId, ProcessGuid, TaskGuid};
use schemas::process::Purpose;
use schemas::spec::{ClientCommand, Item, own_definition_id};
use schemas::{Code, Refusal, cell};

use super::Unusable;
use super::cells::Node;
use super::change::{Change, NewCell};
use super::stage::{Asker, Due, LATENCY, Stage};

/// Timeout of a change request.
const ANSWERED: Duration = Duration::from_secs(30);
/// Interval at which a pending answer is polled.
const LOOK: Duration = Duration::from_millis(10);

/// Reason that a change was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The cluster refused the change.
    Refused(Refusal),
    /// The simulation cannot continue from the log.
    Unusable(Unusable),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Unusable> for Failed {
    fn from(unusable: Unusable) -> Self {
        Self::Unusable(unusable)
    }
}

impl Stage<'_> {
    /// Carries out a change and waits for the answer.
    pub(super) fn carry_out(&mut self, change: &Change) -> Result<(), Failed> {
        match change {
            Change::Lose(id) => self.lose(id).map_err(Failed::from),
            Change::Return(id) => self.bring_back(id).map_err(Failed::from),
            Change::Add(new) => self.add(new).map_err(Failed::from),
            Change::Operator(id, command) => self.operator(id, *command),
            Change::Apply(items) => items.iter().try_for_each(|item| self.apply(item)),
            Change::Update(guid, items) => self.update(guid, items),
            Change::Scale(guid, instances) => {
                self.set(guid, DesiredLrpUpdate { instances: Some(*instances), ..nothing() })
            }
            Change::Rank(guid, priority) => {
                self.set(guid, DesiredLrpUpdate { priority: Some(*priority), ..nothing() })
            }
            Change::Restart(guid) => self.of_process(guid, |process_guid| ClientCommand::LrpRestart {
                process_guid,
                purpose: Purpose::Restart,
            }),
            Change::Activate(guid, definition_id) => {
                let definition_id = definition_id.clone();
                self.of_process(guid, |process_guid| ClientCommand::LrpActivate {
                    process_guid,
                    definition_id,
                })
            }
            Change::Steer(guid, steer) => {
                let steer = *steer;
                self.of_process(guid, |process_guid| ClientCommand::LrpSteer { process_guid, steer })
            }
            Change::Remove(guid) => {
                self.of_process(guid, |process_guid| ClientCommand::LrpRemove { process_guid })
            }
            Change::Retire(guid, index) => {
                let (index, definition_id) = (*index, None);
                let retire = |process_guid| ClientCommand::LrpRetire { process_guid, index, definition_id };
                self.of_process(guid, retire)
            }
            Change::Crash(guid, index) => self.crash(guid, *index).map_err(Failed::from),
            Change::Cancel(guid) => self.cancel(guid),
            Change::Fresh(domain, ttl) => {
                let ttl_ms = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
                self.client(domain, ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms })
            }
            Change::Preemption(on) => {
                let command = schemas::cluster::Command::SwitchPreemption(*on);
                let (client, envelope) = (who(), Envelope::default());
                self.answered(ChangeRequest::Cluster { client, envelope, command }).map(drop)
            }
            Change::Wait(time) => self.until(self.now + *time).map_err(Failed::from),
        }
    }

    // ---- environment ----

    /// Kills the machine of a cell with all its containers.
    fn lose(&mut self, id: &CellId) -> Result<(), Refusal> {
        let there = self.cells.get_mut(id).is_some_and(|node| node.end(id));
        if there { Ok(()) } else { Err(self.no_cell(id, "is not there, and can't be lost")) }
    }

    /// Replaces the machine of a lost cell by an empty one.
    fn bring_back(&mut self, id: &CellId) -> Result<(), Refusal> {
        if self.cells.get(id).is_some_and(|node| node.rep.is_some()) {
            let why = format!("cell {id} is there: only a cell that is lost can return");
            return Err(Refusal::new(Code::InvalidStateTransition, why));
        }
        let Some(cell) = self.world().cell(id) else { return Err(Refusal::not_found(format!("cell {id}"))) };
        let presence = cell.presence.clone();
        let incarnation = self.incarnation();
        let node = self.cells.entry(id.clone()).or_insert_with(|| Node::new(id, presence));
        node.renew(incarnation);
        self.schedule(self.now + LATENCY, Due::Attach(id.clone()));
        Ok(())
    }

    fn add(&mut self, new: &NewCell) -> Result<(), Refusal> {
        let NewCell { id, like, memory_mb, disk_mb, containers, ports, zone, stack, tags } = new;
        if self.world().cell(id).is_some() || self.cells.contains_key(id) {
            let why = format!("there is a cell {id} already: return cell {id} brings back one that is lost");
            return Err(Refusal::new(Code::ResourceExists, why));
        }
        let pattern = match like {
            Some(like) => {
                self.world().cell(like).ok_or_else(|| Refusal::not_found(format!("cell {like}")))?
            }
            None => self.world().cells().next().map(|(_, cell)| cell).ok_or_else(|| {
                Refusal::new(Code::ResourceNotFound, "the log has no cell that another one could be like")
            })?,
        };
        let mut presence = pattern.presence.clone();
        presence.total.memory_mb = memory_mb.unwrap_or(presence.total.memory_mb);
        presence.total.disk_mb = disk_mb.unwrap_or(presence.total.disk_mb);
        presence.total.containers = containers.unwrap_or(presence.total.containers);
        presence.total.ports = ports.unwrap_or(presence.total.ports);
        presence.zone = zone.clone().unwrap_or(presence.zone);
        presence.stack = stack.clone().unwrap_or(presence.stack);
        if !tags.is_empty() {
            presence.placement_tags = tags.iter().cloned().collect();
        }
        presence.folder = FolderId(self.ids.next(self.now));
        presence.incarnation = self.incarnation();
        self.cells.insert(id.clone(), Node::new(id, presence));
        self.schedule(self.now + LATENCY, Due::Attach(id.clone()));
        Ok(())
    }

    /// Crashes the container of an instance.
    fn crash(&mut self, guid: &ProcessGuid, index: u32) -> Result<(), Refusal> {
        let process =
            self.world().process(guid).ok_or_else(|| Refusal::not_found(format!("process {guid}")))?;
        let actual = process.find(index, None).and_then(|slot| slot.actual.as_ref());
        let by = actual.and_then(actual::Actual::holder).cloned().ok_or_else(|| {
            let why = format!("instance {guid}/{index} is on no cell: nothing of it can crash");
            Refusal::new(Code::InvalidStateTransition, why)
        })?;
        let now = self.now;
        if let Some(node) = self.cells.get_mut(&by.cell_id) {
            node.containers.crash(now, by.instance_guid, "crashed, as was asked");
        }
        self.wait_for_containers(&by.cell_id);
        Ok(())
    }

    fn no_cell(&self, id: &CellId, but: &str) -> Refusal {
        match self.world().cell(id) {
            None => Refusal::not_found(format!("cell {id}")),
            Some(_) => Refusal::new(Code::CellAbsent, format!("cell {id} {but}")),
        }
    }

    // ---- operators and clients ----

    fn operator(&mut self, id: &CellId, command: cell::Command) -> Result<(), Failed> {
        let (client, envelope, cell) = (who(), Envelope::default(), id.clone());
        self.answered(ChangeRequest::Operator { client, envelope, cell, command }).map(drop)
    }

    fn client(&mut self, domain: &Domain, command: ClientCommand) -> Result<(), Failed> {
        self.asks_as_client(domain, Envelope::default(), command).map(drop)
    }

    /// Sends a command as a client of a domain and waits for the answer.
    pub(super) fn asks_as_client(
        &mut self,
        domain: &Domain,
        envelope: Envelope,
        command: ClientCommand,
    ) -> Result<Ack, Failed> {
        let (domain, client) = (domain.clone(), who());
        self.answered(ChangeRequest::client(domain, client, envelope, command))
    }

    fn of_process(
        &mut self,
        guid: &ProcessGuid,
        command: impl FnOnce(ProcessGuid) -> ClientCommand,
    ) -> Result<(), Failed> {
        let process = self.world().process(guid).filter(|process| !process.is_gone());
        let process = process.ok_or_else(|| Refusal::not_found(format!("process {guid}")))?;
        let domain = process.domain.clone();
        self.client(&domain, command(guid.clone()))
    }

    fn set(&mut self, guid: &ProcessGuid, update: DesiredLrpUpdate) -> Result<(), Failed> {
        self.of_process(guid, |process_guid| ClientCommand::LrpUpdate {
            process_guid,
            update,
            definition: None,
        })
    }

    fn cancel(&mut self, guid: &TaskGuid) -> Result<(), Failed> {
        let task = self.world().task(guid).filter(|task| task.state.is_some());
        let domain = task.ok_or_else(|| Refusal::not_found(format!("task {guid}")))?.domain.clone();
        self.client(&domain, ClientCommand::TaskCancel { task_guid: guid.clone() })
    }

    /// Desires one item of a file, or updates it if it is already desired.
    fn apply(&mut self, item: &Item) -> Result<(), Failed> {
        match item {
            Item::Lrp(lrp) => self.apply_lrp(lrp),
            Item::Task(task) => self.client(&task.domain, ClientCommand::TaskDesire(task.clone())),
            Item::Periodic(periodic) => {
                let known = self
                    .world()
                    .periodic(&periodic.periodic_guid)
                    .is_some_and(|known| known.desired.is_some());
                let desire = periodic.clone();
                let command = if known {
                    ClientCommand::PeriodicUpdate(desire)
                } else {
                    ClientCommand::PeriodicDesire(desire)
                };
                self.client(&periodic.domain, command)
            }
            Item::Parameterised(of) => {
                let known = self
                    .world()
                    .parameterised(&of.parameterised_guid)
                    .is_some_and(|known| known.desired.is_some());
                let desire = of.clone();
                let command = if known {
                    ClientCommand::ParameterisedUpdate(desire)
                } else {
                    ClientCommand::ParameterisedDesire(desire)
                };
                self.client(&of.domain, command)
            }
            Item::Domain { domain, ttl_ms } => {
                self.client(domain, ClientCommand::DomainUpsert { domain: domain.clone(), ttl_ms: *ttl_ms })
            }
        }
    }

    fn apply_lrp(&mut self, lrp: &DesiredLrp) -> Result<(), Failed> {
        let guid = &lrp.process_guid;
        let desired = self.world().process(guid).is_some_and(|process| process.desired.is_some());
        if desired {
            self.deploy(lrp)
        } else {
            self.client(&lrp.domain, ClientCommand::LrpDesire(Box::new(lrp.clone())))
        }
    }

    fn deploy(&mut self, lrp: &DesiredLrp) -> Result<(), Failed> {
        let definition = Some((own_definition_id(lrp), lrp.definition.clone()));
        let (process_guid, update) = (lrp.process_guid.clone(), lrp.to_update());
        self.client(&lrp.domain, ClientCommand::LrpUpdate { process_guid, update, definition })
    }

    fn update(&mut self, guid: &ProcessGuid, items: &[Item]) -> Result<(), Failed> {
        let of_process = items.iter().find_map(|item| match item {
            Item::Lrp(lrp) => Some(lrp).filter(|lrp| lrp.process_guid == *guid),
            Item::Task(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. } => None,
        });
        let Some(lrp) = of_process else {
            return Err(Refusal::not_found(format!("process {guid} in the file")).into());
        };
        if self.world().process(guid).is_none_or(|process| process.desired.is_none()) {
            return Err(Refusal::not_found(format!("process {guid}")).into());
        }
        self.deploy(lrp)
    }

    /// Sends a request to the BBS and waits for the answer.
    fn answered(&mut self, ask: ChangeRequest) -> Result<Ack, Failed> {
        self.changes += 1;
        let number = self.changes;
        self.asks_bbs(Asker::Change(number), ask);
        let patience = self.now + ANSWERED;
        while self.now < patience {
            self.until(self.now + LOOK)?;
            if let Some(answer) = self.take_answer(number) {
                return answer.map_err(Failed::from);
            }
        }
        Err(Refusal::new(Code::Unavailable, "nobody decides: it is never answered").into())
    }
}

/// Returns the client name of all simulated clients and operators.
pub(super) fn who() -> ClientName {
    ClientName::new("what-if").expect("a name")
}

fn nothing() -> DesiredLrpUpdate {
    DesiredLrpUpdate::default()
}
