//! Requests that a BBS forwards to reps: monitor results, files, programs in containers, and the logs of
//! removed containers.

use futures::StreamExt;
use futures::stream;
use projections::Query;
use schemas::bus::{BusSubject, RepVerb};
use schemas::exec::{Talked, Talking};
use schemas::health::ContainerHealth;
use schemas::message::{AcceptLog, Done};
use schemas::names::{CellId, InstanceGuid};
use schemas::query::{
    CellRow, CellState, ClusterRow, Files, Filter, InstanceRow, Logs, One, Page, ReadFiles, ReadLogs, Show,
};
use schemas::sight::Sight;
use schemas::{Code, Refusal};

use crate::wire::bbs::Driver;

/// Maximum number of cells that are queried concurrently for a removed container.
const ASKED_AT_ONCE: usize = 16;

/// Returns the monitor results of the containers of an instance. An evacuating instance has two.
pub(super) async fn health(driver: &Driver, asked: Show) -> Result<Vec<ContainerHealth>, Refusal> {
    let rows = driver.query(Query::Instance(asked)).await?;
    let found: One<Vec<InstanceRow>> = parse(&rows)?;
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

/// Makes the rep of a cell accept the current log.
pub(super) async fn accept_log(driver: &Driver, cell: CellId) -> Result<Done, Refusal> {
    let shown: One<ClusterRow> = parse(&driver.query(Query::Cluster(Filter::default())).await?)?;
    let asked = AcceptLog { cluster_id: shown.row.cluster_id };
    let () = driver.relay(&BusSubject::Rep(cell, RepVerb::AcceptLog).to_string(), &asked).await?;
    Ok(Done { position: shown.position, version: 0 })
}

/// Reads the work directory of an instance. Requires read access to its environment, which any file may
/// contain.
pub(super) async fn files(driver: &Driver, sight: &Sight, asked: ReadFiles) -> Result<Files, Refusal> {
    let show = Show { id: asked.id.clone(), at_least: None, as_of: None };
    let found: One<Vec<InstanceRow>> = parse(&driver.query(Query::Instance(show)).await?)?;
    let mut rows = found.row.into_iter();
    let holder = rows.find_map(|row| Some((row.instance_guid?, row.cell_id?, row.domain)));
    let Some((guid, cell, domain)) = holder else {
        return Err(Refusal::not_found(format!("a container of {}", asked.id)));
    };
    if !sight.reaches(&domain) {
        let why = format!("instance {} is of domain {domain}: its files are for its own clients", asked.id);
        return Err(Refusal::new(Code::Forbidden, why));
    }
    let question = ReadFiles { id: guid.to_string(), ..asked };
    driver.relay(&BusSubject::Rep(cell, RepVerb::Files).to_string(), &question).await
}

/// Exchanges input and output between a client and its program on a cell. The subject proves the client.
pub(super) async fn talk(driver: &Driver, talking: Talking) -> Result<Talked, Refusal> {
    let rep = BusSubject::Rep(talking.talk.cell_id.clone(), RepVerb::Talk);
    driver.relay(&rep.to_string(), &talking).await
}

/// Reads the log of a removed container. All cells are queried, because the one that had it keeps the log for
/// a while.
pub(super) async fn log_of_removed(
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
        let mut answers = stream::iter(there).map(ask).buffer_unordered(ASKED_AT_ONCE);
        while let Some(answer) = answers.next().await {
            if let Ok(logs) = answer {
                return Ok(logs);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Err(Refusal::not_found(format!("a log of container {guid} on any cell that answers")));
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Refusal> {
    serde_json::from_str(json).map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
}
