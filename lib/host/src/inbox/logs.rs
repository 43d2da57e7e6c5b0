//! Reads of container logs. The World (the state folded from the log of the cluster) names the cell of the
//! container, and the rep of this cell reads the container's log.

use projections::Query;
use schemas::bus::BusSubject;
use schemas::container::Instance;
use schemas::names::{CellId, InstanceGuid};
use schemas::query::{InstanceRow, Logs, ReadLogs, Show, ShowAnswer, TaskRow};
use schemas::verb::RepVerb;
use schemas::{Code, Refusal};

use super::relay::removed_container_log;
use crate::driver::Driver;

/// Finds a container in the World, and reads its log on the cell of the container.
pub(super) async fn read_logs(driver: &Driver, of_task: bool, asked: ReadLogs) -> Result<Logs, Refusal> {
    let show = Show { id: asked.id.clone(), at_least: None, as_of: None };
    let parse = |error: serde_json::Error| Refusal::new(Code::Unavailable, error.to_string());
    let (holder, crashed) = if of_task {
        let found: ShowAnswer<TaskRow> =
            serde_json::from_str(&driver.query(Query::Task(show)).await?).map_err(parse)?;
        (container(found.row.instance_guid, found.row.cell_id), None)
    } else {
        let rows = match (driver.query(Query::Instance(show)).await, asked.id.parse::<InstanceGuid>()) {
            // The World forgets a container as soon as its record is removed, but the cell keeps the
            // container's log.
            (Err(refusal), Ok(guid)) if refusal.code == Code::ResourceNotFound => {
                return removed_container_log(driver, guid, &asked).await;
            }
            (rows, _) => rows?,
        };
        let found: ShowAnswer<Vec<InstanceRow>> = serde_json::from_str(&rows).map_err(parse)?;
        let crashed = found.row.iter().find_map(|row| row.crashed_instance.clone());
        (found.row.into_iter().find_map(|row| container(row.instance_guid, row.cell_id)), crashed)
    };
    match (holder.filter(|_| !asked.previous), crashed) {
        (Some(holder), _) => read_container_log(driver, &holder, asked).await,
        (None, Some(crashed)) => read_container_log(driver, &crashed, asked)
            .await
            .map_err(|refusal| gone_as_not_found(refusal, &crashed)),
        (None, None) => Err(Refusal::not_found(format!("a container of {}", asked.id))),
    }
}

fn container(instance_guid: Option<InstanceGuid>, cell_id: Option<CellId>) -> Option<Instance> {
    instance_guid.zip(cell_id).map(|(instance_guid, cell_id)| Instance { instance_guid, cell_id })
}

async fn read_container_log(driver: &Driver, container: &Instance, asked: ReadLogs) -> Result<Logs, Refusal> {
    let question = ReadLogs { id: container.instance_guid.to_string(), previous: false, ..asked };
    let subject = BusSubject::Rep(container.cell_id.clone(), RepVerb::Logs);
    driver.relay(&subject.to_string(), &question).await
}

/// Converts the refusal if the log of a crashed container is gone together with its cell. The missing log is
/// not a failure: a client that follows the instance waits for the next container.
fn gone_as_not_found(refusal: Refusal, crashed: &Instance) -> Refusal {
    if refusal.code != Code::Unavailable {
        return refusal;
    }
    let Instance { instance_guid, cell_id } = crashed;
    let why = format!("cell {cell_id}, where container {instance_guid} crashed, does not answer");
    Refusal::new(Code::ResourceNotFound, why)
}
