//! Requests that a BBS forwards to reps, the agents on the cells: monitor results, files, programs in
//! containers, and the logs of removed containers.

use futures::{StreamExt, stream};
use projections::Query;
use schemas::bus::BusSubject;
use schemas::exec::{ExecIoReply, ForwardedExecIo};
use schemas::health::ContainerHealth;
use schemas::message::{AcceptLog, Ack};
use schemas::names::{CellId, InstanceGuid};
use schemas::query::{
    CellRow, CellState, ClusterRow, Files, Filter, InstanceRow, Logs, Page, ReadFiles, ReadLogs, Show,
    ShowAnswer,
};
use schemas::sight::ReadScope;
use schemas::verb::RepVerb;
use schemas::{Code, Refusal};

use crate::driver::Driver;

/// Maximum number of cells that are queried concurrently for a removed container.
const MAX_CONCURRENT_QUERIES: usize = 16;

/// Returns the monitor results of the containers of an instance. An evacuating instance has two containers,
/// and two results.
pub(super) async fn health(driver: &Driver, asked: Show) -> Result<Vec<ContainerHealth>, Refusal> {
    let rows = driver.query(Query::Instance(asked)).await?;
    let found: ShowAnswer<Vec<InstanceRow>> = parse(&rows)?;
    let mut all = vec![];
    for row in found.row {
        let Some((guid, cell)) = row.instance_guid.zip(row.cell_id) else { continue };
        let question = Show { id: guid.to_string(), at_least: None, as_of: None };
        let answer = driver.relay(&BusSubject::Rep(cell, RepVerb::Health).to_string(), &question).await;
        match answer {
            Ok(health) => all.push(health),
            // The container is not created yet, or has just ended.
            Err(refusal) if refusal.code == Code::ResourceNotFound => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(all)
}

/// Orders the rep of a cell to accept the current log.
pub(super) async fn accept_log(driver: &Driver, cell: CellId) -> Result<Ack, Refusal> {
    let shown: ShowAnswer<ClusterRow> = parse(&driver.query(Query::Cluster(Filter::default())).await?)?;
    let asked = AcceptLog { cluster_id: shown.row.cluster_id };
    let () = driver.relay(&BusSubject::Rep(cell, RepVerb::AcceptLog).to_string(), &asked).await?;
    Ok(Ack { position: shown.position, version: 0 })
}

/// Reads the work directory of an instance. The caller needs read access to the environment of the instance,
/// because any file may contain values from the environment.
pub(super) async fn files(driver: &Driver, sight: &ReadScope, asked: ReadFiles) -> Result<Files, Refusal> {
    let show = Show { id: asked.id.clone(), at_least: None, as_of: None };
    let found: ShowAnswer<Vec<InstanceRow>> = parse(&driver.query(Query::Instance(show)).await?)?;
    let mut rows = found.row.into_iter();
    let holder = rows.find_map(|row| Some((row.instance_guid?, row.cell_id?, row.domain)));
    let Some((guid, cell, domain)) = holder else {
        return Err(Refusal::not_found(format!("a container of {}", asked.id)));
    };
    if !sight.includes(&domain) {
        let why = format!(
            "instance {} belongs to domain {domain}: \
             only clients of that domain, operators and auditors may read its files",
            asked.id
        );
        return Err(Refusal::new(Code::Forbidden, why));
    }
    let question = ReadFiles { id: guid.to_string(), ..asked };
    driver.relay(&BusSubject::Rep(cell, RepVerb::Files).to_string(), &question).await
}

/// Exchanges input and output between a client and its program on a cell. The subject of the request proves
/// the identity of the client.
pub(super) async fn talk(driver: &Driver, talking: ForwardedExecIo) -> Result<ExecIoReply, Refusal> {
    let rep = BusSubject::Rep(talking.io.cell_id.clone(), RepVerb::ExecIo);
    driver.relay(&rep.to_string(), &talking).await
}

/// Reads the log of a removed container. The cell that ran the container retains the log for a while, but the
/// cluster no longer knows this cell. Therefore all cells are queried.
pub(super) async fn removed_container_log(
    driver: &Driver,
    guid: InstanceGuid,
    asked: &ReadLogs,
) -> Result<Logs, Refusal> {
    let question = ReadLogs { id: guid.to_string(), previous: false, ..asked.clone() };
    let mut cursor = None;
    loop {
        let filter = Filter { cursor, ..Filter::default() };
        let page: Page<CellRow> = parse(&driver.query(Query::Cells(filter)).await?)?;
        let there = page.rows.into_iter().filter(|row| row.state != CellState::Absent).map(|row| row.cell_id);
        let ask = |cell: CellId| {
            let (subject, question) = (BusSubject::Rep(cell, RepVerb::Logs).to_string(), &question);
            async move { driver.relay::<_, Logs>(&subject, question).await }
        };
        let mut answers = stream::iter(there).map(ask).buffer_unordered(MAX_CONCURRENT_QUERIES);
        while let Some(answer) = answers.next().await {
            if let Ok(logs) = answer {
                return Ok(logs);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Err(Refusal::not_found(format!("a log of container {guid} on a cell that answers")));
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Refusal> {
    serde_json::from_str(json).map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
}
