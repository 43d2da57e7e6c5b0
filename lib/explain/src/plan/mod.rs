//! Plans: predictions of the actions of the cluster by a simulation on a copy of its state. The copy is read with
//! queries; planning sends no commands.

mod rebalance;
mod state;
mod tasks;

use std::collections::BTreeSet;

use auctioneer::board::BoardCell;
use auctioneer::plan::{ClusterCopy, Step, UnplacedInstance};
use client::{Client, ListFilter};
use schemas::definition::{DesiredLrp, DesiredTask, Mode};
use schemas::names::{CellId, Domain, ProcessGuid, Zone};
use schemas::process::Command;
use schemas::query::LrpRow;
use schemas::resources::Resources;
use schemas::spec::{Item, ObjectName};
use schemas::{Code, Position, Refusal};
use serde::{Serialize, Serializer};
use state::ClusterState;

use crate::Error;
use crate::comparison::{Comparison, compare_lrps, definition_id};

pub use rebalance::{RebalanceOutcome, RebalancePlan, rebalance, spread};
pub use tasks::{PlannedTask, existing_task, last_decision, may_run_again};

/// Object to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanItem {
    pub item: Item,
    /// `true` if the item is a process with a definition id that the client chose.
    pub is_named: bool,
}

/// Predicted effect of applying files.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Log position of the plan. The plan may already include some of the changes after this position.
    pub position: Position,
    /// `true` if anything would change.
    pub changes: bool,
    /// `true` if all changes would be carried out.
    pub fits: bool,
    pub processes: Vec<PlannedProcess>,
    /// Tasks that would run.
    pub tasks: Vec<PlannedTask>,
    /// Other objects: those that are neither placed nor compared field by field, and those that would be deleted.
    pub objects: Vec<PlannedObject>,
    /// Predicted actions for processes, in order.
    pub steps: Vec<Step>,
    /// Instances that could not be placed.
    pub unplaced: Vec<UnplacedInstance>,
    /// Work outside of the files that waits for placement.
    pub other_work: OtherWork,
    /// Free resources of the cells, before and afterwards.
    pub cells: Vec<CellResources>,
}

/// Predicted effect on an object.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedObject {
    /// Kind and name of the object, such as `periodic task report`.
    #[serde(serialize_with = "as_text")]
    pub object: ObjectName,
    pub action: PlannedAction,
}

/// Predicted action for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAction {
    Desire,
    Update,
    Delete,
    /// Mark a domain as fresh. Does not count as a change.
    Refresh,
    /// The object already is as the file describes it, or the task has run before.
    None,
}

fn as_text<S: Serializer>(name: &ObjectName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}

/// Work outside of the plan that waits for placement. This work takes part in the same auctions.
#[derive(Clone, Debug, Serialize)]
pub struct OtherWork {
    /// Number of waiting instances and tasks.
    pub waiting: usize,
    /// Number of these instances and tasks that would be placed in the same auctions.
    pub placed: usize,
}

/// Predicted effect on a process.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedProcess {
    #[serde(flatten)]
    pub compared: Comparison,
    /// `true` if the process would change.
    pub changes: bool,
    /// Desired instances: the number in the file or, for a global process, one for each cell that fits.
    pub instances: u32,
    /// Number of instances that would run afterwards.
    pub would_run: u32,
    /// `true` if every instance would run as the file describes.
    pub carried_out: bool,
}

/// Free resources of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct CellResources {
    pub cell_id: CellId,
    pub zone: Zone,
    pub free: Resources,
    pub free_afterwards: Resources,
}

/// Predicts the effect of applying objects. `unlisted` are the objects that would be deleted. With `rerun`, tasks run
/// even if they have run before.
///
/// # Errors
/// A query fails, or the cluster would refuse one of the objects.
pub async fn plan(
    client: &Client,
    items: Vec<PlanItem>,
    unlisted: Vec<ObjectName>,
    rerun: bool,
) -> Result<Plan, Error> {
    let (mut lrps, mut new_tasks, mut objects) = (vec![], vec![], vec![]);
    for PlanItem { item, is_named } in items {
        let object = ObjectName::from_item(&item);
        let doing = |error: Error| error.while_doing(format!("plan {object}"));
        let action = match seal(client, item).await? {
            Item::Lrp(lrp) => {
                lrps.push((*lrp, is_named));
                continue;
            }
            Item::Task(task) if tasks::runs(client, &task, rerun).await.map_err(doing)? => {
                new_tasks.push(*task);
                continue;
            }
            Item::Task(_) => PlannedAction::None,
            Item::Periodic(desired) => {
                let guid = &desired.periodic_guid;
                let row = client.periodic(guid).await.map(|one| one.row.to_desired());
                action_for(row, &desired)?
            }
            Item::Parameterised(desired) => {
                let guid = &desired.parameterised_guid;
                let row = client.parameterised_one(guid).await;
                action_for(row.map(|one| one.row.to_desired()), &desired)?
            }
            Item::Domain { .. } => PlannedAction::Refresh,
        };
        objects.push(PlannedObject { object, action });
    }
    let is_process = |name: &ObjectName| match name {
        ObjectName::Process(guid) => Some(guid.clone()),
        ObjectName::Task(_)
        | ObjectName::Periodic(_)
        | ObjectName::Parameterised(_)
        | ObjectName::Domain(_) => None,
    };
    let deleted: Vec<ProcessGuid> = unlisted.iter().filter_map(is_process).collect();
    let delete = |object| PlannedObject { object, action: PlannedAction::Delete };
    objects.extend(unlisted.into_iter().map(delete));
    let guids = lrps.iter().map(|(lrp, _)| &lrp.process_guid).chain(&deleted);
    let known = ClusterState::query(client, guids).await?;
    simulate(known, lrps, &deleted, new_tasks, objects)
}

/// Lets the cluster seal the secrets of an item. The item can then be compared with the stored item.
async fn seal(client: &Client, item: Item) -> Result<Item, Error> {
    client.seal(item).await.map_err(|error| Error::from(error).while_doing("seal the secrets of the file"))
}

/// Returns the existing objects that are missing in the items, within the domains of the items. Leaves out tasks,
/// because tasks end without being deleted.
///
/// # Errors
/// A query fails.
pub async fn unlisted_objects(
    client: &Client,
    items: impl IntoIterator<Item = &Item>,
) -> Result<Vec<ObjectName>, Error> {
    let (mut listed, mut domains): (BTreeSet<ObjectName>, BTreeSet<&Domain>) = Default::default();
    for item in items {
        listed.insert(ObjectName::from_item(item));
        domains.insert(item.domain());
    }
    let mut found = vec![];
    for domain in domains {
        let only = ListFilter::domain(domain.clone());
        let lrps = client.lrps(&only).await?.rows;
        // A deleted process stays in the list until its instances have stopped.
        let lrps = lrps.into_iter().filter(|row| row.desired);
        found.extend(lrps.map(|row| ObjectName::Process(row.process_guid)));
        let periodics = client.periodics(&only).await?.rows;
        found.extend(periodics.into_iter().map(|row| ObjectName::Periodic(row.periodic_guid)));
        let parameterised = client.parameterised(&only).await?.rows;
        found.extend(parameterised.into_iter().map(|row| ObjectName::Parameterised(row.parameterised_guid)));
    }
    found.retain(|name| !listed.contains(name));
    Ok(found)
}

/// Returns the action for an object, given its current desired state.
fn action_for<T: PartialEq>(
    known: Result<Option<T>, client::Error>,
    desired: &T,
) -> Result<PlannedAction, Error> {
    match known {
        Ok(Some(known)) if known == *desired => Ok(PlannedAction::None),
        Ok(_) => Ok(PlannedAction::Update),
        Err(error) if error.is_not_found() => Ok(PlannedAction::Desire),
        Err(error) => Err(error.into()),
    }
}

/// Simulates the changes on a copy of the cluster: first the processes, then the new tasks.
fn simulate(
    known: ClusterState,
    lrps: Vec<(DesiredLrp, bool)>,
    deleted: &[ProcessGuid],
    new_tasks: Vec<DesiredTask>,
    objects: Vec<PlannedObject>,
) -> Result<Plan, Error> {
    let ClusterState { position, mut copy, rows } = known;
    let before = free(&copy);
    let mut asked = vec![];
    for (lrp, is_named) in lrps {
        let guid = lrp.process_guid.clone();
        let known = rows.get(&guid).and_then(LrpRow::to_desired);
        let compared = known.as_ref().map(|known| compare_lrps(known, &lrp, is_named));
        let compared = compared.unwrap_or_else(|| Comparison::missing(guid.clone()));
        let (mode, instances) = (lrp.mode, lrp.instances);
        let doing = format!("plan process {guid}");
        let changes = apply_command(&mut copy, known.as_ref(), lrp, is_named)
            .map_err(|error| error.while_doing(doing))?;
        asked.push((compared, guid, (mode, instances), changes));
    }
    for guid in deleted {
        if let Some(row) = rows.get(guid) {
            copy.apply(guid, &row.domain, &Command::Remove)?;
        }
    }
    let changed: BTreeSet<ProcessGuid> =
        asked.iter().filter(|(.., changes)| *changes).map(|(_, guid, ..)| guid.clone()).collect();
    if !changed.is_empty() || !deleted.is_empty() {
        copy.run()?;
    }
    let tasks = tasks::place(&mut copy, new_tasks)?;
    let processes = asked.into_iter().map(|(compared, guid, (mode, instances), changes)| PlannedProcess {
        compared,
        changes,
        instances: match mode {
            Mode::Replicated => instances,
            Mode::Global => desired(&copy, &guid),
        },
        would_run: running(&copy, &guid),
        carried_out: !changes || copy.is_settled(&guid),
    });
    let processes: Vec<PlannedProcess> = processes.collect();
    let unplaced = copy.unplaced_instances();
    Ok(Plan {
        position,
        changes: !changed.is_empty() || !tasks.is_empty() || objects.iter().any(PlannedObject::changes),
        fits: processes.iter().all(|planned| planned.carried_out)
            && tasks.iter().all(|planned| planned.outcome.runs()),
        steps: copy.steps().to_vec(),
        unplaced: unplaced.into_iter().filter(|one| changed.contains(&one.process_guid)).collect(),
        processes,
        tasks,
        objects,
        other_work: OtherWork::from_copy(&copy),
        cells: cell_resources(before, &copy),
    })
}

/// Returns the free resources of each cell.
fn free(copy: &ClusterCopy) -> Vec<Resources> {
    copy.cells().map(|(_, free)| free).collect()
}

/// Combines the free resources of each cell before the plan with those in the copy.
fn cell_resources(before: Vec<Resources>, copy: &ClusterCopy) -> Vec<CellResources> {
    let room = |(free, (cell, free_afterwards)): (Resources, (&BoardCell, Resources))| CellResources {
        cell_id: cell.id.clone(),
        zone: cell.zone.clone(),
        free,
        free_afterwards,
    };
    before.into_iter().zip(copy.cells()).map(room).collect()
}

/// Applies a change of a process to the copy. `apply` would send the same change to the cluster. Returns
/// `true` if the change has an effect.
fn apply_command(
    copy: &mut ClusterCopy,
    known: Option<&DesiredLrp>,
    lrp: DesiredLrp,
    is_named: bool,
) -> Result<bool, Error> {
    let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
    let Some(known) = known else {
        return Ok(copy.apply(&guid, &domain, &Command::Desire(Box::new(lrp)))?);
    };
    if known.domain != domain {
        let why = format!("it is in domain {}, but the file sets domain {domain}", known.domain);
        return Err(Refusal::new(Code::ResourceConflict, why).into());
    }
    let definition_id = definition_id(&lrp, is_named);
    client::check_mode(&lrp, Some(known.mode))?;
    let command = Command::Deploy { update: lrp.to_update(), definition_id, definition: lrp.definition };
    Ok(copy.apply(&guid, &domain, &command)?)
}

/// Returns the number of desired instances of a process.
fn desired(copy: &ClusterCopy, guid: &ProcessGuid) -> u32 {
    copy.process(guid).and_then(|process| process.desired.as_deref()).map_or(0, |desired| desired.instances)
}

/// Returns the number of running instances of a process that were not asked to stop.
fn running(copy: &ClusterCopy, guid: &ProcessGuid) -> u32 {
    let slots = copy.process(guid).into_iter().flat_map(|process| process.slots.iter());
    let runs = slots.filter_map(|slot| slot.actual.as_ref()).filter(|lrp| lrp.keeps_running());
    u32::try_from(runs.count()).unwrap_or(u32::MAX)
}

impl PlannedObject {
    const fn changes(&self) -> bool {
        match self.action {
            PlannedAction::Desire | PlannedAction::Update | PlannedAction::Delete => true,
            PlannedAction::Refresh | PlannedAction::None => false,
        }
    }
}

impl OtherWork {
    fn from_copy(copy: &ClusterCopy) -> Self {
        let (waiting, placed) = copy.other_work();
        Self { waiting, placed }
    }
}
