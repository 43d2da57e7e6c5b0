//! `muster apply --dry-run` and `muster lrp rebalance`: print a plan, the predicted actions of the cluster.

mod tasks;

use std::collections::BTreeMap;
use std::path::PathBuf;

use auctioneer::plan::{PlacementFailure, Step, StepAction, Victim};
use cli_base::failure::Failure;
use cli_base::file::FileItem;
use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table};
use explain::plan::{
    OtherWork, Plan, PlanItem, PlannedAction, PlannedObject, PlannedProcess, RebalanceOutcome, RebalancePlan,
    plan, rebalance, spread,
};
use runtime::exit::Exit;
use schemas::names::{CellId, ProcessGuid};
use schemas::process::Purpose;
use schemas::spec::ObjectName;
use schemas::{ActualLrpKey, Place};
use serde::Serialize;
use text::words::count;

use super::diff;
use super::session::Session;

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

/// Prints the predicted effect of applying files. `unlisted` are the objects that would be deleted.
pub(crate) async fn run(
    session: &Session<'_>,
    paths: &[PathBuf],
    items: Vec<FileItem>,
    unlisted: Vec<ObjectName>,
    rerun: bool,
) -> Result<(), Failure> {
    let items = items.into_iter().map(|FileItem { item, is_named }| PlanItem { item, is_named });
    let plan = plan(&session.client, items.collect(), unlisted, rerun).await?;
    session.output.write_one(&plan, |plan, look| text(plan, paths, rerun, look))?;
    exit_result(plan.changes, plan.fits)
}

/// Returns the result that determines the exit status of a plan.
fn exit_result(changes: bool, fits: bool) -> Result<(), Failure> {
    match (changes, fits) {
        (false, _) => Ok(()),
        (true, true) => Err(Failure::silent(Exit::Differs)),
        (true, false) => Err(Failure::silent(Exit::NotPlaced)),
    }
}

/// Formats the predicted effect on an object.
pub(super) fn object_text(planned: &PlannedObject) -> String {
    let object = &planned.object;
    match (planned.action, object) {
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

/// Formats a plan.
fn text(plan: &Plan, paths: &[PathBuf], rerun: bool, look: RenderOptions) -> String {
    let mut parts: Vec<String> = plan.processes.iter().map(process_text).collect();
    parts.extend(plan.objects.iter().map(object_text));
    if !plan.steps.is_empty() {
        parts.push(steps(&plan.steps).render(look.colour));
    }
    if !plan.tasks.is_empty() {
        parts.push(tasks::table(&plan.tasks).render(look.colour));
    }
    for unplaced in &plan.unplaced {
        let name = ActualLrpKey::new(unplaced.process_guid.clone(), unplaced.place.clone()).with_definition();
        parts.push(format!("{name} would not be placed: {}", no_room_text(&unplaced.placement_failure)));
    }
    let stuck = plan.processes.iter().filter(|planned| !planned.carried_out);
    parts.extend(stuck.map(|planned| {
        let guid = &planned.compared.process_guid;
        let all = count(planned.instances.into(), "instance");
        format!("process {guid} would not reach the desired state: {} of {all} would run", planned.would_run)
    }));
    if !plan.changes {
        return parts.join("\n");
    }
    if plan.other_work.waiting > 0 {
        parts.push(other_work_text(&plan.other_work));
    }
    if plan.fits {
        parts.push("everything fits".to_owned());
    }
    parts.push(exact_plan_note(plan, paths, rerun));
    parts.join("\n")
}

/// Formats the note on how to carry out exactly this plan.
fn exact_plan_note(plan: &Plan, paths: &[PathBuf], rerun: bool) -> String {
    let position = plan.position;
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let prunes = plan.objects.iter().any(|planned| planned.action == PlannedAction::Delete);
    let prune = if prunes { " --prune" } else { "" };
    let rerun = if rerun && !plan.tasks.is_empty() { " --rerun" } else { "" };
    format!(
        "planned at position {position}, with the resources that were free then\n\
         to carry out exactly this plan: muster apply {}{prune}{rerun} --if-position {position}",
        paths.join(" ")
    )
}

fn other_work_text(work: &OtherWork) -> String {
    let OtherWork { waiting, placed } = work;
    let wait = if *waiting == 1 {
        "1 other instance or task waits".to_owned()
    } else {
        format!("{waiting} other instances and tasks wait")
    };
    format!("{wait} for room: {placed} would be placed in the same auctions")
}

fn process_text(planned: &PlannedProcess) -> String {
    if planned.compared.desired {
        return diff::text(&planned.compared);
    }
    let instances = count(planned.instances.into(), "instance");
    format!("process {} would be desired: {instances}", planned.compared.process_guid)
}

fn steps(all: &[Step]) -> Table {
    let headers = ["TURN", "INSTANCE", "DOES", "CELL", "ZONE", "NOTE"];
    Table::with_rows(headers, all, |Step { turn, process_guid, action: does }| {
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
        [
            turn,
            Cell::text(name),
            Cell::text(does),
            Cell::optional(cell),
            Cell::optional(zone),
            Cell::optional(note),
        ]
    })
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
        let RebalancePlan { skew, cells, outcome } = rebalance(&self.client, &row).await?;
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
        let planned = match outcome {
            RebalanceOutcome::Even => return nothing(None, "already as even as possible"),
            RebalanceOutcome::NoRoom { skew, failures } => {
                let left: Vec<String> = failures.iter().map(no_room_text).collect();
                nothing(Some(skew), &format!("no room for a rollout: {}", left.join("; ")))?;
                return Err(Failure::silent(Exit::NotPlaced));
            }
            RebalanceOutcome::NoImprovement { skew, cells } => {
                let why = format!("replacing all instances would result in {}", spread_text(&cells));
                return nothing(Some(skew), &why);
            }
            RebalanceOutcome::Improvement { cells, .. } => cells,
        };
        cli_base::output::note(&format!("{before}; planned: {}", spread_text(&planned)));
        self.replace_all(guid, &client, Purpose::Rebalance, detach).await?;
        if !detach {
            let after = spread(&self.client, guid).await?;
            cli_base::output::note(&format!("now: {}", spread_text(&after)));
        }
        Ok(())
    }
}

/// Formats the number of instances per cell.
fn spread_text(cells: &BTreeMap<CellId, u32>) -> String {
    let each: Vec<String> = cells.iter().map(|(id, instances)| format!("{instances} on {id}")).collect();
    if each.is_empty() { "no instances on any cell".to_owned() } else { each.join(", ") }
}
