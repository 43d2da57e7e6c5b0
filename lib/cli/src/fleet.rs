//! `muster domain`, `muster cell` and `muster cluster`.

use std::time::Duration;

use cli_base::connect::{connect, nats};
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use client::{Client, ListFilter};
use schemas::Position;
use schemas::cell::{Command, EVACUATED};
use schemas::names::{CellId, Domain};
use schemas::quota::LimitDomain;
use serde::Serialize;
use text::words::count;

use super::args::{CellVerb, ClusterVerb, DomainVerb, Switch};
use super::{find, rows};
use crate::founding;

/// Output of `muster domain refresh`.
#[derive(Serialize)]
struct RefreshResult {
    domain: Domain,
    ttl_ms: Option<u128>,
    position: Position,
}

/// Output of `muster cluster preemption`.
#[derive(Serialize)]
struct PreemptionResult {
    preemption: bool,
    position: Position,
}

/// Output of `muster cluster shards`.
#[derive(Serialize)]
struct ReshardResult {
    shards: u16,
    position: Position,
}

/// Output of `muster domain limit`.
#[derive(Serialize)]
struct LimitResult {
    domain: Domain,
    position: Position,
}

/// Output of the commands that change a cell.
#[derive(Serialize)]
struct CellCommandResult {
    cell_id: CellId,
    position: Position,
}

pub(crate) async fn domain(verb: DomainVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    match verb {
        DomainVerb::List { .. } => {
            let mut listed = client.domains().await?.rows;
            listed.retain(|row| global.domain.as_ref().is_none_or(|only| *only == row.domain));
            output.write_rows(&listed, rows::domains)
        }
        DomainVerb::Show { name, .. } => {
            output.write_one(&client.domain_use(&name).await?.row, rows::domain_use)
        }
        DomainVerb::Limit { name, instances, processes_and_tasks, commands_per_second, exec_sessions } => {
            let domain = name.clone();
            if [instances, processes_and_tasks, commands_per_second, exec_sessions] == [None; 4] {
                return Err(Failure::usage(
                    "no quota is set: expected at least one of --instances, --processes-and-tasks, \
                     --commands-per-second, --exec-sessions",
                ));
            }
            let order =
                LimitDomain { domain, instances, processes_and_tasks, commands_per_second, exec_sessions };
            let done = client.limit_domain(&order).await;
            let done =
                done.map_err(|error| Failure::from(error).while_doing(format!("limit domain {name}")))?;
            let limited = LimitResult { domain: name, position: done.position };
            output.add_result(&limited, |limited, _| format!("quotas of domain {} are set", limited.domain))
        }
        DomainVerb::Refresh { name, ttl } => refresh(&client, name, ttl, output).await,
    }
}

/// Marks a domain as fresh, and prints the result.
pub(super) async fn refresh(
    client: &Client,
    name: Domain,
    ttl: Option<Duration>,
    output: Output,
) -> Result<(), Failure> {
    let done = client.in_domain(name.clone()).refresh_domain(ttl).await;
    let done = done.map_err(|error| Failure::from(error).while_doing(format!("refresh domain {name}")))?;
    let ttl_ms = ttl.map(|ttl| ttl.as_millis());
    let refreshed = RefreshResult { domain: name, ttl_ms, position: done.position };
    output.add_result(&refreshed, |refreshed, _| {
        let long = ttl.map_or("without a time limit".to_owned(), |ttl: Duration| {
            format!("for {}", text::words::duration_text(ttl))
        });
        format!("domain {} is fresh {long}", refreshed.domain)
    })
}

pub(crate) async fn cell(verb: CellVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    match verb {
        CellVerb::List { .. } => output.write_rows(&client.cells().await?.rows, rows::cells),
        CellVerb::Show { id, .. } => {
            let row = find::cell(&client, &id).await?.row;
            let (instances, tasks) = if output.is_human_readable() {
                let only = ListFilter::cell(id);
                (client.instances(&only).await?.rows, client.tasks(&only).await?.rows)
            } else {
                (vec![], vec![])
            };
            output.write_one(&row, |row, look| rows::cell(row, &instances, &tasks, look))
        }
        CellVerb::Evacuate { id, wait } => {
            let ordered = order(&client, &id, Command::Evacuate).await?;
            if !wait {
                let text = format!("cell {id} is being evacuated; see muster cell show {id}");
                return output.add_result(&ordered, |_, _| text);
            }
            let gone = super::evacuation_wait::wait_until_empty(
                &client,
                &id,
                ordered.position,
                global.timeout,
                output,
            )
            .await?;
            let text = match gone.as_str() {
                EVACUATED => format!("cell {id} is empty: its containers have ended and its rep has stopped"),
                why => format!("cell {id} is absent ({why}): no work is placed on it"),
            };
            output.add_result(&ordered, |_, _| text)
        }
        CellVerb::Cordon { id } => {
            let ordered = order(&client, &id, Command::Cordon).await?;
            output.add_result(&ordered, |_, _| {
                format!("cell {id} is cordoned: it accepts no new work, and running work stays")
            })
        }
        CellVerb::Uncordon { id } => {
            let ordered = order(&client, &id, Command::Uncordon).await?;
            output.add_result(&ordered, |_, _| format!("cell {id} accepts work again"))
        }
        CellVerb::Delete { id } => {
            let ordered = order(&client, &id, Command::Forget).await?;
            output.add_result(&ordered, |_, _| format!("cell {id} deleted"))
        }
        CellVerb::AcceptLog { id } => {
            let done = client.accept_log(&id).await;
            let doing = |error| Failure::from(error).while_doing(format!("make cell {id} accept the log"));
            let ordered = CellCommandResult { cell_id: id.clone(), position: done.map_err(doing)?.position };
            output
                .add_result(&ordered, |_, _| format!("cell {id} continues with the log in its current state"))
        }
    }
}

/// Sends an operator command to a cell. Fails early if the cell does not exist.
async fn order(client: &Client, id: &CellId, command: Command) -> Result<CellCommandResult, Failure> {
    let verb = match command {
        Command::Evacuate => "evacuate",
        Command::Cordon => "cordon",
        Command::Uncordon => "uncordon",
        Command::Forget => "delete",
    };
    let doing = |failure: Failure| failure.while_doing(format!("{verb} cell {id}"));
    find::cell(client, id).await.map_err(doing)?;
    let done = client.command_cell(id, command).await.map_err(|error| doing(error.into()))?;
    Ok(CellCommandResult { cell_id: id.clone(), position: done.position })
}

pub(crate) async fn cluster(verb: ClusterVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Show { .. } => {
            let row = connect(global).await?.cluster().await?.row;
            Output::new(global).write_one(&row, rows::cluster)
        }
        ClusterVerb::Found(args) => {
            let doing = |failure: Failure| failure.while_doing("found a cluster");
            let nats = nats(global).ok_or_else(|| {
                doing(Failure::usage("no NATS server is set: muster dev founds its own cluster"))
                    .advise("set a server: --nats URL")
            })?;
            let founded = founding::found(&nats, &args).await.map_err(doing)?;
            Output::new(global).write_one(&founded, |founded, _| {
                let word = if founded.new { "is founded" } else { "exists already" };
                format!("cluster {} {word}", founded.cluster_id)
            })
        }
        ClusterVerb::Shards { number } => {
            let done = connect(global).await?.reshard(number).await;
            let doing = |error| Failure::from(error).while_doing("change the number of shards");
            let resharded = ReshardResult { shards: number, position: done.map_err(doing)?.position };
            Output::new(global).add_result(&resharded, |_, _| {
                format!("the log now has {}", count(u64::from(number), "shard"))
            })
        }
        ClusterVerb::Preemption { switch } => {
            let on = switch == Switch::On;
            let done = connect(global).await?.switch_preemption(on).await;
            let word = if on { "on" } else { "off" };
            let doing = |error| Failure::from(error).while_doing(format!("switch preemption {word}"));
            let switched = PreemptionResult { preemption: on, position: done.map_err(doing)?.position };
            Output::new(global).add_result(&switched, |_, _| {
                if on {
                    "preemption is on: waiting work may stop work whose priority is lower by 10 or more"
                        .to_owned()
                } else {
                    "preemption is off: no work is stopped for work of a higher priority".to_owned()
                }
            })
        }
    }
}
