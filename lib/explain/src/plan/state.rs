//! State of the cluster that a plan is computed from.

use std::collections::BTreeMap;

use auctioneer::plan::{ClusterCopy, board_cell, known_process, known_task, running_instance, running_task};
use auctioneer::preempt::PreemptibleWork;
use client::{Client, ListFilter};
use machines::process::Process;
use schemas::Position;
use schemas::names::ProcessGuid;
use schemas::query::{LrpRow, TaskRow, TaskState};

use crate::Error;

/// State of the cluster that a plan is computed from.
pub(super) struct ClusterState {
    pub(super) position: Position,
    pub(super) copy: ClusterCopy,
    pub(super) rows: BTreeMap<ProcessGuid, LrpRow>,
}

impl ClusterState {
    /// Queries the cells and these processes.
    pub(super) async fn query(
        client: &Client,
        guids: impl IntoIterator<Item = &ProcessGuid>,
    ) -> Result<Self, Error> {
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
) -> Result<Vec<Process>, Error> {
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
async fn preemptible(client: &Client) -> Result<Vec<PreemptibleWork>, Error> {
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
async fn waiting_tasks(client: &Client) -> Result<Vec<auctioneer::auction::Item>, Error> {
    let waits = |row: &TaskRow| row.state == TaskState::Pending;
    if !client.tasks(&ListFilter::default()).await?.rows.iter().any(waits) {
        return Ok(vec![]);
    }
    let rows = client.tasks_with_definitions(&ListFilter::default()).await?.rows;
    Ok(rows.iter().filter(|row| waits(row)).filter_map(known_task).collect())
}
