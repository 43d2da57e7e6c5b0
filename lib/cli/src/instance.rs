//! `muster instance`: commands for instances.

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use client::{Client, ListFilter};
use explain::monitors::{monitor_failures, starting_instances};
use schemas::health::MonitorHealth;
use schemas::names::{CellId, DefinitionId, ProcessGuid};
use schemas::query::InstanceRow;
use serde::Serialize;
use text::words::{age, one_line};

use super::exec::{self, ExecArgs};
use super::find::{self, FoundInstance, no_container};
use super::{ended_rows, files, rows};

/// Subcommands of `muster instance`.
#[derive(Clone, Debug, Subcommand)]
pub enum InstanceVerb {
    /// List instances
    #[command(alias = "ls")]
    List {
        /// Only instances of this process
        #[arg(long, visible_alias = "process", value_name = "GUID")]
        lrp: Option<ProcessGuid>,
        /// Only instances on this cell
        #[arg(long, value_name = "ID")]
        cell: Option<CellId>,
        /// List ended instances instead: the newest ones of each index, with the reason for their end
        #[arg(long, conflicts_with_all = ["state", "all"])]
        ended: bool,
        /// With --ended and --lrp: only this index of the process
        #[arg(long, value_name = "N")]
        index: Option<u32>,
        /// Only instances in this state: unclaimed, claimed, running, crashed
        #[arg(long, ignore_case = true, value_parser = ["unclaimed", "claimed", "running", "crashed"])]
        state: Option<String>,
        /// Both records of an evacuating instance, not only the one that counts
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show an instance
    Show {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// List a folder of an instance, or print a file. Paths are below its work directory
    Files {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
        /// Path below the work directory [default: the work directory itself]
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Run a program in the container of an instance; exits with its status
    Exec(ExecArgs),
    /// Stop an instance; if it is still desired, a replacement starts
    Stop {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
    },
}

/// Output of `muster instance show`: the row of an instance, and the results of its monitor.
#[derive(Serialize)]
struct ShownInstance {
    #[serde(flatten)]
    row: InstanceRow,
    /// `None` if the instance has no monitor, was not probed yet, or its cell does not answer.
    health: Option<MonitorHealth>,
}

/// Output of `muster instance stop`.
#[derive(Serialize)]
struct StopResult {
    process_guid: ProcessGuid,
    index: u32,
    definition_id: DefinitionId,
    position: schemas::Position,
    version: u64,
}

pub(crate) async fn run(verb: InstanceVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    match verb {
        InstanceVerb::List { lrp, cell, ended, index, state, all, .. } => {
            if index.is_some() && !(ended && lrp.is_some()) {
                let why = "--index selects ended instances of one process: add --ended and --lrp GUID";
                return Err(Failure::usage(why.to_owned()));
            }
            let only = ListFilter { domain: global.domain.clone(), process_guid: lrp, cell_id: cell };
            if ended {
                return output.write_rows(
                    &client.ended_instances(&only, index).await?.rows,
                    ended_rows::instance_table,
                );
            }
            let listed =
                if all { client.instances(&only).await? } else { client.effective_instances(&only).await? };
            let mut rows = listed.rows;
            if let Some(state) = state {
                rows.retain(|row| row.state.as_str().eq_ignore_ascii_case(&state));
            }
            let names = starting_instances(&rows);
            let monitors = monitor_failures(&client, &names).await;
            output.write_rows(&rows, |rows, look| rows::instances_with_complaints(rows, &monitors, look))
        }
        InstanceVerb::Show { id, .. } => {
            let FoundInstance { name, rows } = match find::instance(&client, &id).await {
                Err(error) if error.is_not_found() => {
                    return show_ended(&client, global, &id, error.into()).await;
                }
                found => found?,
            };
            for row in rows {
                find::check_domain(global, format!("instance {id}"), row.domain.clone())?;
                let health = health_of(&client, &row).await;
                output.add_result(&ShownInstance { row, health }, |shown, look| {
                    format!(
                        "{}{}",
                        rows::instance(&name, &shown.row, look),
                        monitor_text(shown.health.as_ref(), look)
                    )
                })?;
            }
            Ok(())
        }
        InstanceVerb::Files { id, path } => files::show(&client, global, &id, &path, output).await,
        InstanceVerb::Exec(args) => Box::pin(exec::run(&client, global, args)).await,
        InstanceVerb::Stop { id } => stop(&client, global, &id, output).await,
    }
}

/// Shows an ended container, found by its guid. Returns `missing` if `id` has the form `PROCESS/INDEX`, or if
/// the container is not recorded.
async fn show_ended(client: &Client, global: &Global, id: &str, missing: Failure) -> Result<(), Failure> {
    if find::parse_selector(id)?.is_some() {
        return Err(missing);
    }
    let Some(row) = ended_rows::find_instance(client, id).await? else {
        return Err(missing.advise("for ended instances see muster instance list --ended"));
    };
    find::check_domain(global, format!("instance {id}"), row.domain.clone())?;
    Output::new(global).add_result(&row, ended_rows::describe_instance)
}

/// Returns the monitor results of an instance. `None` if the instance has no monitor, its cell does not
/// answer, or the query is about a past position.
async fn health_of(client: &Client, row: &InstanceRow) -> Option<MonitorHealth> {
    let guid = row.instance_guid.filter(|_| client.query_moment().is_none())?;
    // Best effort: an instance is shown even if its cell does not answer.
    let all = client.instance_health(&guid.to_string()).await.ok()?;
    all.into_iter().find(|one| one.instance_guid == guid)?.health
}

/// Formats monitor results as text.
fn monitor_text(health: Option<&MonitorHealth>, look: RenderOptions) -> String {
    let Some((health, last)) = health.and_then(|health| Some((health, health.last.last()?))) else {
        return String::new();
    };
    let ago = age(look.now, last.at);
    let mut text = match &last.failure {
        Some(why) => {
            let times =
                if health.failures == 1 { "once".to_owned() } else { format!("{} times", health.failures) };
            format!("\nmonitor      failed {times}, last {ago} ago: {}", one_line(why))
        }
        None => format!("\nmonitor      succeeded {ago} ago"),
    };
    for line in &last.output {
        text.push_str(&format!("\n             | {}", one_line(line)));
    }
    text
}

async fn stop(client: &Client, global: &Global, id: &str, output: Output) -> Result<(), Failure> {
    let FoundInstance { name, rows } = find::instance(client, id).await?;
    let Some(InstanceRow { process_guid, index, definition_id, domain, .. }) = rows.into_iter().next() else {
        return Err(no_container(id));
    };
    let client = client.in_domain(find::check_domain(global, format!("process {process_guid}"), domain)?);
    // The definition id is sent along, so that the command does not stop a successor with another definition.
    let stopped = client.retire_lrp(process_guid.clone(), index, Some(definition_id.clone())).await;
    let done = stopped.map_err(|error| Failure::from(error).while_doing(format!("stop instance {name}")))?;
    let (position, version) = (done.position, done.version);
    let stopped = StopResult { process_guid, index, definition_id, position, version };
    output.add_result(&stopped, |_, _| {
        format!("stopping instance {name}; a replacement starts if it is still desired")
    })
}
