//! `muster domain`, `muster cell` and `muster cluster`.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use cli_base::connect::{connect, nats};
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::Output;
use client::{Client, ListFilter};
use machines::cell::EVACUATED;
use schemas::Position;
use schemas::cell::Command;
use schemas::names::{CellId, Domain};
use schemas::quota::LimitDomain;
use schemas::subject::MAX_SHARDS;
use serde::Serialize;
use text::words::{count, number, parse_duration};

use super::founding::{self, FoundArgs};
use super::{find, rows};

/// Subcommands of `muster domain`.
#[derive(Clone, Debug, Subcommand)]
pub enum DomainVerb {
    /// List domains
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show usage and quotas of a domain
    Show {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Change quotas of a domain, as an operator; omitted quotas keep their values
    Limit {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        /// Desired instances of all processes
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        instances: Option<u32>,
        /// Desired processes, tasks that are not deleted, periodic and parameterised tasks, counted together
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        processes_and_tasks: Option<u32>,
        /// Commands per second of all clients together, at least 1
        #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX), allow_negative_numbers = true)]
        commands_per_second: Option<u32>,
        /// Programs of `instance exec` that may run on one cell at the same time
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        exec_sessions: Option<u32>,
    },
    /// Declare that the desired state is up to date: instances of the domain that are no longer desired are
    /// then stopped
    Refresh {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        /// Time for which the domain counts as up to date, such as 1h [default: without limit]
        #[arg(long, value_parser = parse_duration, value_name = "TIME")]
        ttl: Option<Duration>,
    },
}

/// Subcommands of `muster cell`.
#[derive(Clone, Debug, Subcommand)]
pub enum CellVerb {
    /// List cells
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a cell, with its instances and tasks
    Show {
        /// Id of the cell
        id: CellId,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Move everything off a cell; it accepts no new work, and its rep exits when it is empty
    #[command(alias = "drain")]
    Evacuate {
        /// Id of the cell
        id: CellId,
        /// Wait until the containers of the cell are gone and its rep has left the cluster
        #[arg(long)]
        wait: bool,
    },
    /// Place no new work on a cell; running work stays
    Cordon {
        /// Id of the cell
        id: CellId,
    },
    /// Cancel a cordon or an evacuation: the cell accepts work again, and work that was not moved stays
    Uncordon {
        /// Id of the cell
        id: CellId,
    },
    /// Delete the record of an ABSENT cell: it is no longer listed
    #[command(aliases = ["rm", "remove", "forget"])]
    Delete {
        /// Id of the cell
        id: CellId,
    },
    /// Let a cell continue with a restored log. Without this command its rep accepts no leader, because the
    /// rep knows a later term from the lost log
    AcceptLog {
        /// Id of the cell
        id: CellId,
    },
}

/// Subcommands of `muster cluster`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterVerb {
    /// Show services, leaders and counts of the cluster
    Show {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Found a cluster on a NATS server that has none: creates the stream and writes its first entry
    Found(FoundArgs),
    /// Switch preemption on or off. With preemption, waiting work can stop running work whose priority is
    /// lower by 10 or more
    Preemption {
        /// New setting
        #[arg(value_enum)]
        switch: Switch,
    },
    /// Change the number of shards of the log. Shards are written concurrently; the number applies to the
    /// entries of processes and to those of tasks
    Shards {
        /// Number of shards, 1 to 1024; with more shards the log has more but smaller entries
        #[arg(value_name = "N", value_parser = number(1..=MAX_SHARDS), allow_negative_numbers = true)]
        number: u16,
    },
}

/// State of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Enabled
    On,
    /// Disabled
    Off,
}

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
