//! `muster ps`: instances and tasks, in one list.

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use client::{Client, ListFilter};
use explain::monitors::{monitor_failures, starting_instances};
use schemas::names::CellId;
use schemas::query::{InstanceRow, TaskRow};
use serde::Serialize;

use super::rows;

/// Arguments of `muster ps`.
#[derive(Clone, Debug, Args)]
pub struct PsArgs {
    /// Only instances and tasks on this cell
    #[arg(long, value_name = "ID")]
    cell: Option<CellId>,
    #[command(flatten)]
    pub(crate) at: AsOfOption,
}

/// Output of `muster ps`.
#[derive(Serialize)]
struct Work {
    instances: Vec<InstanceRow>,
    tasks: Vec<TaskRow>,
}

pub(crate) async fn run(args: PsArgs, global: &Global) -> Result<(), Failure> {
    let client: Client = connect(global).await?;
    let only = ListFilter { domain: global.domain.clone(), process_guid: None, cell_id: args.cell };
    let instances = client.effective_instances(&only).await?.rows;
    let tasks = client.tasks(&only).await?.rows;
    let monitors = monitor_failures(&client, &starting_instances(&instances)).await;
    let text = |work: &Work, look: RenderOptions| {
        let mut parts = vec![];
        if !work.instances.is_empty() {
            let table = rows::instances_with_complaints(&work.instances, &monitors, look);
            parts.push(table.render(look.colour));
        }
        if !work.tasks.is_empty() {
            parts.push(rows::tasks(&work.tasks, look).render(look.colour));
        }
        if parts.is_empty() { "no instances and no tasks".to_owned() } else { parts.join("\n\n") }
    };
    Output::new(global).write_one(&Work { instances, tasks }, text)
}
