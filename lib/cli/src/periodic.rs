//! `muster periodic`: commands for periodic tasks.

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table, facts};
use client::{Client, Error};
use explain::decisions::events_of;
use schemas::Code;
use schemas::definition::{DesiredPeriodic, Overlap};
use schemas::message::Ack;
use schemas::names::{PeriodicGuid, TaskGuid};
use schemas::query::PeriodicRow;
use schemas::spec::{self, Item, PeriodicAction};
use serde::Serialize;
use text::words::{age, time_until};

use super::find;
use super::rows::indented_json;
use super::session::UNCHANGED;

/// Output of a command that changes a periodic task.
#[derive(Serialize)]
struct ChangeResult<'a> {
    periodic_guid: &'a PeriodicGuid,
    action: &'a str,
    /// Task that the command launched. `None` for commands that launch no task.
    task_guid: Option<TaskGuid>,
    position: schemas::Position,
    version: u64,
}

/// Subcommands of `muster periodic`.
#[derive(Clone, Debug, Subcommand)]
pub enum PeriodicVerb {
    /// List periodic tasks
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a periodic task and its last launch; -o toml writes the definition as a file for apply
    Show {
        /// Guid of the periodic task
        guid: PeriodicGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Pause a periodic task: it launches nothing until it is resumed
    Pause {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Resume a periodic task: its next launch is at the next due time
    Resume {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Launch a task now, regardless of the schedule
    Launch {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Delete a periodic task; tasks that it launched keep running
    #[command(aliases = ["rm", "remove"])]
    Delete {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
}

pub(crate) async fn run(verb: PeriodicVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    match verb {
        PeriodicVerb::List { .. } => {
            let listed = connect(global).await?.periodics(&find::only(global.domain.as_ref())).await?;
            output.write_rows(&listed.rows, table)
        }
        PeriodicVerb::Show { guid, .. } => {
            let row = find::periodic(&connect(global).await?, &guid).await?.row;
            find::check_domain(global, format!("periodic task {guid}"), row.domain.clone())?;
            let item = |row: &PeriodicRow| row.to_desired().map(|desired| Item::Periodic(Box::new(desired)));
            output.write_details(&row, item, shown)
        }
        PeriodicVerb::Pause { guid } => {
            command(&connect(global).await?, &guid, PeriodicAction::Pause, global).await
        }
        PeriodicVerb::Resume { guid } => {
            command(&connect(global).await?, &guid, PeriodicAction::Resume, global).await
        }
        PeriodicVerb::Launch { guid } => {
            command(&connect(global).await?, &guid, PeriodicAction::Launch, global).await
        }
        PeriodicVerb::Delete { guid } => {
            command(&connect(global).await?, &guid, PeriodicAction::Remove, global).await
        }
    }
}

/// Sends a command to a periodic task, and prints the result.
pub(super) async fn command(
    client: &Client,
    guid: &PeriodicGuid,
    ask: PeriodicAction,
    global: &Global,
) -> Result<(), Failure> {
    let (verb, action) = match ask {
        PeriodicAction::Pause => ("pause", "paused"),
        PeriodicAction::Resume => ("resume", "resumed"),
        PeriodicAction::Launch => ("launch", "launched"),
        PeriodicAction::Remove => ("delete", "deleted"),
    };
    let doing = |failure: Failure| failure.while_doing(format!("{verb} periodic task {guid}"));
    let known = find::periodic(client, guid).await.map_err(doing)?.row;
    let client = client.in_domain(find::check_domain(global, format!("periodic task {guid}"), known.domain)?);
    let done = client.command_periodic(guid.clone(), ask).await.map_err(|error| doing(error.into()))?;
    let mut task_guid = None;
    if ask == PeriodicAction::Launch {
        let row = client.periodic(guid).await?.row;
        // The row may already show a later launch, and the version of that launch differs.
        task_guid = row.last.filter(|_| row.version == done.version).map(|last| last.task_guid);
    }
    print_change(guid, action, task_guid, done, Output::new(global))
}

fn print_change(
    guid: &PeriodicGuid,
    action: &str,
    task_guid: Option<TaskGuid>,
    done: Ack,
    output: Output,
) -> Result<(), Failure> {
    let launched = task_guid.as_ref().map(|task| format!(": task {task}")).unwrap_or_default();
    let changed = ChangeResult {
        periodic_guid: guid,
        action,
        task_guid,
        position: done.position,
        version: done.version,
    };
    output.add_result(&changed, |_, _| format!("periodic task {guid} {action}{launched}"))
}

/// Creates a periodic task, or updates it if it is already desired. Prints the result.
pub(super) async fn apply(client: &Client, periodic: DesiredPeriodic, output: Output) -> Result<(), Failure> {
    let guid = periodic.periodic_guid.clone();
    let applied = desire_or_update(client, periodic).await;
    let (action, done) =
        applied.map_err(|failure| failure.while_doing(format!("apply periodic task {guid}")))?;
    print_change(&guid, action, None, done, output)
}

async fn desire_or_update(
    client: &Client,
    periodic: DesiredPeriodic,
) -> Result<(&'static str, Ack), Failure> {
    let (guid, domain) = (periodic.periodic_guid.clone(), periodic.domain.clone());
    // A request id that the client chose may belong to an earlier update. In this case the update is sent
    // again.
    let exists = |error: &Error| matches!(error.code(), Some(Code::ResourceExists | Code::RequestIdReused));
    let error = match client.desire_periodic(periodic.clone()).await {
        Ok(done) => return Ok(("desired", done)),
        Err(error) if exists(&error) => match client.update_periodic(periodic).await {
            Ok(done) => {
                let events = events_of(client, &format!("periodic:{guid}"), &done).await?;
                return Ok((if events.is_empty() { UNCHANGED } else { "updated" }, done));
            }
            Err(error) => error,
        },
        Err(error) => error,
    };
    let known = client.periodic(&guid).await.ok().map(|one| one.row.domain);
    Err(find::exists_in_other_domain(error.into(), format!("periodic task {guid}"), known, &domain))
}

/// Builds the table of periodic tasks.
fn table(rows: &[PeriodicRow], look: RenderOptions) -> Table {
    let headers =
        ["PERIODIC", "DOMAIN", "STATE", "CRON", "ZONE", "NEXT", "LAST", "RUNNING", "LAUNCHED", "SKIPPED"];
    Table::with_rows(headers, rows, |row| {
        [
            Cell::text(&row.periodic_guid),
            Cell::text(&row.domain),
            Cell::state(row.state.as_str()),
            Cell::text(&row.cron),
            Cell::text(&row.time_zone),
            Cell::optional(row.next.map(|next| time_until(look.now, next))),
            Cell::optional(row.last.as_ref().map(|last| format!("{} ago", age(look.now, last.at)))),
            Cell::text(row.running.len()),
            Cell::text(row.launched),
            Cell::text(row.skipped),
        ]
    })
}

/// Formats the details of a periodic task.
fn shown(row: &PeriodicRow, look: RenderOptions) -> String {
    let overlap = match row.overlap {
        Overlap::Allowed => "allowed: a task is launched even if an earlier one still runs",
        Overlap::Skipped => "skipped: no task is launched while an earlier one runs",
        Overlap::Queued => "queued: a task is launched when the earlier one has ended",
    };
    let next = row.next.map(|next| format!("{next} ({})", time_until(look.now, next)));
    let last = row.last.as_ref().map(|last| {
        let (ago, reason) = (age(look.now, last.at), last.reason.as_str());
        format!("{} {ago} ago, due {} ({reason})", last.task_guid, last.due)
    });
    let running: Vec<String> = row.running.iter().map(ToString::to_string).collect();
    let mut shown = facts(&[
        ("periodic task", row.periodic_guid.to_string()),
        ("domain", row.domain.to_string()),
        ("state", format!("{} since {} ({})", row.state.as_str(), row.since, age(look.now, row.since))),
        ("schedule", format!("{} in {}", row.cron, row.time_zone)),
        ("overlap", overlap.to_owned()),
        ("next", next.unwrap_or_default()),
        ("waits", row.queued.map(|due| format!("the launch due {due}")).unwrap_or_default()),
        ("last", last.unwrap_or_default()),
        ("running", running.join(", ")),
        ("launched", row.launched.to_string()),
        ("skipped", row.skipped.to_string()),
        ("created", row.epoch.0.to_string()),
    ]);
    if let Some(desired) = row.to_desired() {
        shown.push_str(&format!("\n\n{}", indented_json(&spec::periodic_to_json(&desired))));
    }
    shown
}
