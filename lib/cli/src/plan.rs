//! `muster apply --dry-run` and `muster lrp rebalance`: predict the actions of the cluster by a simulation on a
//! copy of its state. The copy is read with queries; planning sends no commands.

mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use auctioneer::board::BoardCell;
use auctioneer::plan::{
    ClusterCopy, PlacementFailure, Step, StepAction, UnplacedInstance, Victim, board_cell, known_process,
    known_task, running_instance, running_task,
};
use auctioneer::preempt::PreemptibleWork;
use cli_base::failure::Failure;
use cli_base::file::{self, FileItem};
use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table};
use client::{Client, ListFilter};
use explain::comparison::{Comparison, compare_lrps, definition_id};
use machines::process::Process;
use runtime::exit::Exit;
use schemas::definition::{DesiredLrp, DesiredTask, Mode};
use schemas::names::{CellId, ProcessGuid, Zone};
use schemas::process::{Command, Purpose};
use schemas::query::{LrpRow, TaskRow, TaskState};
use schemas::resources::Resources;
use schemas::spec::{Item, ObjectName};
use schemas::{ActualLrpKey, Place, Position};
use serde::{Serialize, Serializer};
use tasks::PlannedTask;
use text::words::count;

use super::diff;
use super::session::Session;

/// Predicted effect of applying files.
#[derive(Clone, Debug, Serialize)]
struct Plan {
    /// Log position of the plan. The plan may already include some of the changes after this position.
    position: Position,
    /// `true` if anything would change.
    changes: bool,
    /// `true` if all changes would be carried out.
    fits: bool,
    processes: Vec<PlannedProcess>,
    /// Tasks that would run.
    tasks: Vec<PlannedTask>,
    /// Other objects: those that are neither placed nor compared field by field, and those that would be deleted.
    objects: Vec<PlannedObject>,
    /// Predicted actions for processes, in order.
    steps: Vec<Step>,
    /// Instances that could not be placed.
    unplaced: Vec<UnplacedInstance>,
    /// Work outside of the files that waits for placement.
    other_work: OtherWork,
    /// Free resources of the cells, before and afterwards.
    cells: Vec<CellResources>,
}

/// Predicted effect on an object.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PlannedObject {
    /// Kind and name of the object, such as `periodic task report`.
    #[serde(serialize_with = "as_text")]
    pub(super) object: ObjectName,
    pub(super) action: PlannedAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlannedAction {
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
struct OtherWork {
    /// Number of waiting instances and tasks.
    waiting: usize,
    /// Number of these instances and tasks that would be placed in the same auctions.
    placed: usize,
}

/// Predicted effect on a process.
#[derive(Clone, Debug, Serialize)]
struct PlannedProcess {
    #[serde(flatten)]
    compared: Comparison,
    /// `true` if the process would change.
    changes: bool,
    /// Desired instances: the number in the file or, for a global process, one for each cell that fits.
    instances: u32,
    /// Number of instances that would run afterwards.
    would_run: u32,
    /// `true` if every instance would run as the file describes.
    carried_out: bool,
}

/// Free resources of a cell.
#[derive(Clone, Debug, Serialize)]
struct CellResources {
    cell_id: CellId,
    zone: Zone,
    free: Resources,
    free_afterwards: Resources,
}

/// Output of `muster lrp rebalance`.
#[derive(Clone, Debug, Serialize)]
struct RebalanceResult<'a> {
    process_guid: &'a ProcessGuid,
    action: &'a str,
    /// Difference between the highest and the lowest number of instances on the cells that may run the
    /// process.
    skew: u32,
    /// Predicted skew after the replacement of every instance. `None` if it was not computed.
    skew_afterwards: Option<u32>,
    /// Number of instances by cell.
    cells: BTreeMap<CellId, u32>,
}

/// State of the cluster that a plan is computed from.
struct ClusterState {
    position: Position,
    copy: ClusterCopy,
    rows: BTreeMap<ProcessGuid, LrpRow>,
}

impl ClusterState {
    /// Queries the cells and these processes.
    async fn query(client: &Client, guids: impl IntoIterator<Item = &ProcessGuid>) -> Result<Self, Failure> {
        // The position of this reply becomes the position of the plan. The later queries are answered at this
        // position or a later one. Some rows may therefore miss a decision that other rows include. A command
        // with `--if-position` is refused if such a decision affects the target of the command.
        let all = client.lrps(&ListFilter::default()).await?;
        let (mut rows, mut processes): (BTreeMap<_, _>, Vec<Process>) = (BTreeMap::new(), vec![]);
        for guid in guids {
            let row = match client.lrp(guid).await {
                Ok(one) => one.row,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            let instances = client.instances(&ListFilter::process(guid.clone())).await?.rows;
            processes.push(known_process(&row, &instances));
            rows.insert(guid.clone(), row);
        }
        let (others, tasks) = (others(client, all.rows, &rows).await?, waiting_tasks(client).await?);
        let listed = client.cells().await?;
        let cells = listed.rows.iter().filter_map(board_cell);
        let copy = ClusterCopy::new(clock::now(), cells, processes).with_waiting(others, tasks);
        let copy = copy.with_preemption(preemptible(client).await?);
        Ok(Self { position: all.position, copy: copy.with_cell_ordinals(&listed.rows)?, rows })
    }
}

/// Returns the other processes with instances that wait for placement.
async fn others(
    client: &Client,
    all: Vec<LrpRow>,
    known: &BTreeMap<ProcessGuid, LrpRow>,
) -> Result<Vec<Process>, Failure> {
    let mut others = vec![];
    for row in all {
        if row.unclaimed == 0 || known.contains_key(&row.process_guid) {
            continue;
        }
        let row = match client.lrp(&row.process_guid).await {
            Ok(one) => one.row,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        let instances = client.instances(&ListFilter::process(row.process_guid.clone())).await?.rows;
        others.push(known_process(&row, &instances));
    }
    Ok(others)
}

/// Returns the work that preemption may stop. Empty if preemption is off.
async fn preemptible(client: &Client) -> Result<Vec<PreemptibleWork>, Failure> {
    if !client.cluster().await?.row.preemption {
        return Ok(vec![]);
    }
    let all = ListFilter::default();
    let lrps = client.lrps(&all).await?.rows;
    let lrps: BTreeMap<&ProcessGuid, &LrpRow> = lrps.iter().map(|row| (&row.process_guid, row)).collect();
    let instances = client.instances(&all).await?.rows;
    let instance = |row| running_instance(row, lrps.get(&row.process_guid)?);
    let tasks = client.tasks_with_definitions(&all).await?.rows;
    Ok(instances.iter().filter_map(instance).chain(tasks.iter().filter_map(running_task)).collect())
}

/// Returns the tasks that wait for placement.
async fn waiting_tasks(client: &Client) -> Result<Vec<auctioneer::auction::Item>, Failure> {
    let waits = |row: &TaskRow| row.state == TaskState::Pending;
    if !client.tasks(&ListFilter::default()).await?.rows.iter().any(waits) {
        return Ok(vec![]);
    }
    let rows = client.tasks_with_definitions(&ListFilter::default()).await?.rows;
    Ok(rows.iter().filter(|row| waits(row)).filter_map(known_task).collect())
}

/// Prints the predicted effect of applying files. `unlisted` are the objects that would be deleted.
pub(crate) async fn run(
    session: &Session<'_>,
    paths: &[PathBuf],
    items: Vec<FileItem>,
    unlisted: Vec<ObjectName>,
    rerun: bool,
) -> Result<(), Failure> {
    let client = &session.client;
    let (mut lrps, mut new_tasks, mut objects) = (vec![], vec![], vec![]);
    for FileItem { item, is_named } in items {
        let object = ObjectName::from_item(&item);
        let doing = |failure: Failure| failure.while_doing(format!("plan {object}"));
        let action = match file::sealed(client, item).await? {
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
    let plan = plan(known, lrps, &deleted, new_tasks, objects)?;
    session.output.write_one(&plan, |plan, look| plan.text(paths, rerun, look))?;
    exit_result(plan.changes, plan.fits)
}

/// Returns the action for an object, given its current desired state.
fn action_for<T: PartialEq>(
    known: Result<Option<T>, client::Error>,
    desired: &T,
) -> Result<PlannedAction, Failure> {
    match known {
        Ok(Some(known)) if known == *desired => Ok(PlannedAction::None),
        Ok(_) => Ok(PlannedAction::Update),
        Err(error) if error.is_not_found() => Ok(PlannedAction::Desire),
        Err(error) => Err(error.into()),
    }
}

/// Returns the result that determines the exit status of a plan.
fn exit_result(changes: bool, fits: bool) -> Result<(), Failure> {
    match (changes, fits) {
        (false, _) => Ok(()),
        (true, true) => Err(Failure::silent(Exit::Differs)),
        (true, false) => Err(Failure::silent(Exit::NotPlaced)),
    }
}

/// Simulates the changes on a copy of the cluster: first the processes, then the new tasks.
fn plan(
    known: ClusterState,
    lrps: Vec<(DesiredLrp, bool)>,
    deleted: &[ProcessGuid],
    new_tasks: Vec<DesiredTask>,
    objects: Vec<PlannedObject>,
) -> Result<Plan, Failure> {
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
            .map_err(|failure| failure.while_doing(doing))?;
        asked.push((compared, guid, (mode, instances), changes));
    }
    for guid in deleted {
        if let Some(row) = rows.get(guid) {
            copy.apply(guid, &row.domain, &Command::Remove).map_err(Failure::from)?;
        }
    }
    let changed: BTreeSet<ProcessGuid> =
        asked.iter().filter(|(.., changes)| *changes).map(|(_, guid, ..)| guid.clone()).collect();
    if !changed.is_empty() || !deleted.is_empty() {
        copy.run().map_err(Failure::from)?;
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
) -> Result<bool, Failure> {
    let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
    let Some(known) = known else {
        return copy.apply(&guid, &domain, &Command::Desire(Box::new(lrp))).map_err(Failure::from);
    };
    if known.domain != domain {
        let why = format!("it is in domain {}, but the file sets domain {domain}", known.domain);
        return Err(Failure::new(Exit::Conflict, "ResourceConflict", why));
    }
    let definition_id = definition_id(&lrp, is_named);
    client::check_mode(&lrp, Some(known.mode)).map_err(Failure::from)?;
    let command = Command::Deploy { update: lrp.to_update(), definition_id, definition: lrp.definition };
    copy.apply(&guid, &domain, &command).map_err(Failure::from)
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

    pub(super) fn text(&self) -> String {
        let object = &self.object;
        match (self.action, object) {
            (PlannedAction::Desire, _) => format!("{object} would be desired"),
            (PlannedAction::Update, _) => format!("{object} would be updated"),
            (PlannedAction::Delete, _) => format!("{object} would be deleted"),
            (PlannedAction::Refresh, _) => format!("{object} would be refreshed"),
            (PlannedAction::None, ObjectName::Task(_)) => {
                format!("{object} exists or has run before; to run it again: --rerun")
            }
            (PlannedAction::None, _) => format!("{object} matches the file"),
        }
    }
}

impl Plan {
    fn text(&self, paths: &[PathBuf], rerun: bool, look: RenderOptions) -> String {
        let mut parts: Vec<String> = self.processes.iter().map(PlannedProcess::text).collect();
        parts.extend(self.objects.iter().map(PlannedObject::text));
        if !self.steps.is_empty() {
            parts.push(steps(&self.steps).render(look.colour));
        }
        if !self.tasks.is_empty() {
            parts.push(tasks::table(&self.tasks).render(look.colour));
        }
        for unplaced in &self.unplaced {
            let name =
                ActualLrpKey::new(unplaced.process_guid.clone(), unplaced.place.clone()).with_definition();
            parts.push(format!("{name} would not be placed: {}", no_room_text(&unplaced.placement_failure)));
        }
        let stuck = self.processes.iter().filter(|planned| !planned.carried_out);
        parts.extend(stuck.map(|planned| {
            let guid = &planned.compared.process_guid;
            let all = count(planned.instances.into(), "instance");
            format!(
                "process {guid} would not reach the desired state: {} of {all} would run",
                planned.would_run
            )
        }));
        if !self.changes {
            return parts.join("\n");
        }
        if self.other_work.waiting > 0 {
            parts.push(self.other_work.text());
        }
        if self.fits {
            parts.push("everything fits".to_owned());
        }
        parts.push(self.exact_plan_note(paths, rerun));
        parts.join("\n")
    }

    /// Formats the note on how to carry out exactly this plan.
    fn exact_plan_note(&self, paths: &[PathBuf], rerun: bool) -> String {
        let position = self.position;
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let prunes = self.objects.iter().any(|planned| planned.action == PlannedAction::Delete);
        let prune = if prunes { " --prune" } else { "" };
        let rerun = if rerun && !self.tasks.is_empty() { " --rerun" } else { "" };
        format!(
            "planned at position {position}, with the resources that were free then\n\
             to carry out exactly this plan: muster apply {}{prune}{rerun} --if-position {position}",
            paths.join(" ")
        )
    }
}

impl OtherWork {
    fn from_copy(copy: &ClusterCopy) -> Self {
        let (waiting, placed) = copy.other_work();
        Self { waiting, placed }
    }

    fn text(&self) -> String {
        let Self { waiting, placed } = self;
        let wait = if *waiting == 1 {
            "1 other instance or task waits".to_owned()
        } else {
            format!("{waiting} other instances and tasks wait")
        };
        format!("{wait} for room: {placed} would be placed in the same auctions")
    }
}

impl PlannedProcess {
    fn text(&self) -> String {
        if self.compared.desired {
            return diff::text(&self.compared);
        }
        let instances = count(self.instances.into(), "instance");
        format!("process {} would be desired: {instances}", self.compared.process_guid)
    }
}

fn steps(all: &[Step]) -> Table {
    let mut table = Table::new(&["TURN", "INSTANCE", "DOES", "CELL", "ZONE", "NOTE"]);
    for Step { turn, process_guid, action: does } in all {
        let turn = if *turn == 0 { Cell::None } else { Cell::number(turn) };
        let name = |place: &Place| ActualLrpKey::new(process_guid.clone(), place.clone()).with_definition();
        let (name, does, cell, zone, note) = match does {
            StepAction::Starts { place, cell_id, zone } => {
                (name(place), "starts", Some(cell_id), Some(zone), None)
            }
            StepAction::Stops { place, cell_id } => (name(place), "stops", Some(cell_id), None, None),
            StepAction::Preempts { place, cell_id, victims } => {
                (name(place), "preempts", Some(cell_id), None, Some(victims_text(victims)))
            }
            StepAction::FallsBack { index, placement_failure: no_room } => {
                let why = no_room
                    .as_ref()
                    .map_or_else(String::new, |no_room| format!(": {}", no_room_text(no_room)));
                let note = format!("no room for both: after a delay the old instance is stopped first{why}");
                (format!("{process_guid}/{index}"), "waits", None, None, Some(note))
            }
            StepAction::Pauses { reason } => {
                (process_guid.to_string(), "pauses", None, None, Some(reason.clone()))
            }
        };
        table.row(vec![
            turn,
            Cell::text(name),
            Cell::text(does),
            Cell::optional(cell),
            Cell::optional(zone),
            Cell::optional(note),
        ]);
    }
    table
}

/// Formats the work that would be stopped.
fn victims_text(victims: &[Victim]) -> String {
    let victim = |one: &Victim| format!("{} (priority {})", one.name, one.priority);
    victims.iter().map(victim).collect::<Vec<_>>().join(", ")
}

/// Formats the reasons for a failed placement, cell by cell.
fn no_room_text(no_room: &PlacementFailure) -> String {
    let cells = no_room.cells.iter().map(|(id, why)| format!("{id}: {}", why.join(", ")));
    let cells: Vec<String> = cells.collect();
    if cells.is_empty() { no_room.error.clone() } else { format!("{} ({})", no_room.error, cells.join("; ")) }
}

impl Session<'_> {
    /// Replaces every instance of a process if the replacement spreads the instances more evenly.
    pub(super) async fn rebalance(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (row, client) = self.existing(guid, "rebalance").await?;
        let refused = |why: &str| {
            let why = format!("can't rebalance process {guid}: {why}");
            Err(Failure::new(Exit::Conflict, "InvalidStateTransition", why))
        };
        if !row.desired {
            return refused("it is no longer desired");
        }
        if row.rollout.as_ref().is_some_and(|rollout| !rollout.is_completed()) {
            let failure = refused("a rollout is under way, which places its instances again");
            return failure
                .map_err(|failure| failure.advise(format!("see muster lrp rollout status {guid}")));
        }
        let mut copy = ClusterState::query(&self.client, [guid]).await?.copy;
        let (skew, cells) = (copy.skew(guid), copy.spread(guid));
        let before = spread_text(&cells);
        let nothing = |skew_afterwards, why: &str| {
            let balance = RebalanceResult {
                process_guid: guid,
                action: "nothing",
                skew,
                skew_afterwards,
                cells: cells.clone(),
            };
            self.output.add_result(&balance, |_, _| format!("process {guid} unchanged: {before}; {why}"))
        };
        if skew <= 1 {
            return nothing(None, "already as even as possible");
        }
        copy.apply(guid, &row.domain, &Command::Restart(Purpose::Rebalance))
            .map_err(|refusal| Failure::from(refusal).while_doing(format!("rebalance process {guid}")))?;
        copy.run().map_err(Failure::from)?;
        let (planned, afterwards) = (copy.skew(guid), spread_text(&copy.spread(guid)));
        if !copy.is_settled(guid) {
            let left: Vec<String> =
                copy.unplaced_instances().iter().map(|left| no_room_text(&left.placement_failure)).collect();
            let why = format!("no room for a rollout: {}", left.join("; "));
            nothing(Some(planned), &why)?;
            return Err(Failure::silent(Exit::NotPlaced));
        }
        if planned >= skew {
            return nothing(Some(planned), &format!("replacing all instances would result in {afterwards}"));
        }
        cli_base::output::note(&format!("{before}; planned: {afterwards}"));
        self.replace_all(guid, &client, Purpose::Rebalance, detach).await?;
        if !detach {
            let after = ClusterState::query(&self.client, [guid]).await?.copy;
            cli_base::output::note(&format!("now: {}", spread_text(&after.spread(guid))));
        }
        Ok(())
    }
}

/// Formats the number of instances per cell.
fn spread_text(cells: &BTreeMap<CellId, u32>) -> String {
    let each: Vec<String> = cells.iter().map(|(id, instances)| format!("{instances} on {id}")).collect();
    if each.is_empty() { "no instances on any cell".to_owned() } else { each.join(", ") }
}
