//! `muster parameterised`: commands for parameterised tasks and their dispatches.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table, facts};
use client::{Client, Error};
use runtime::exit::Exit;
use schemas::action::{Secret, Variable};
use schemas::definition::{DesiredParameterised, Overflow, PayloadRule};
use schemas::limits::PAYLOAD_BYTES;
use schemas::message::Ack;
use schemas::names::{DispatchKey, ParameterisedGuid, TaskGuid};
use schemas::parameterised::Dispatch;
use schemas::priority::Priority;
use schemas::query::ParameterisedRow;
use schemas::spec::{self, Item};
use schemas::{Code, Position};
use serde::Serialize;
use text::words::{age, count};

use super::arguments::{parse_parameter, parse_priority};
use super::rows::indented_json;
use super::session::UNCHANGED;
use super::{find, task};

/// Output of a command that changes a parameterised task.
#[derive(Serialize)]
struct ChangeResult<'a> {
    parameterised_guid: &'a ParameterisedGuid,
    action: &'a str,
    /// Number of the dispatch that was requested or cancelled.
    number: Option<u64>,
    /// Task of the dispatch. The task exists once the dispatch is launched.
    task_guid: Option<&'a TaskGuid>,
    /// Number of dispatches that wait before this dispatch. `None` if this dispatch was launched.
    waits_behind: Option<u64>,
    position: Position,
    version: u64,
}

/// Subcommands of `muster parameterised`.
#[derive(Clone, Debug, Subcommand)]
pub enum ParameterisedVerb {
    /// List parameterised tasks
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a parameterised task and its waiting dispatches; -o toml writes the definition as a file for apply
    Show {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Run a task from a template. It has its own payload and parameters
    Dispatch {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        /// File with the payload, at most 16 KiB; - is standard input
        #[arg(long, value_name = "FILE")]
        payload: Option<PathBuf>,
        /// Parameter; may be repeated
        #[arg(long = "param", value_parser = parse_parameter, value_name = "NAME=VALUE")]
        parameters: Vec<(String, String)>,
        /// Idempotency key: a repeated dispatch with the same key creates no second task
        #[arg(long)]
        key: Option<DispatchKey>,
        /// Priority of the task, 1 to 100 [default: the priority in the template]
        #[arg(long, value_name = "N", value_parser = parse_priority, allow_negative_numbers = true)]
        priority: Option<Priority>,
        /// Wait until the task ends, and show its result
        #[arg(short, long)]
        wait: bool,
    },
    /// Cancel a waiting dispatch, so that it creates no task
    #[command(alias = "withdraw")]
    Cancel {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        /// Number of the dispatch
        number: u64,
    },
    /// Delete a parameterised task; tasks that it launched keep running, waiting dispatches are cancelled
    #[command(aliases = ["rm", "remove"])]
    Delete {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
    },
}

pub(crate) async fn run(verb: ParameterisedVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    match verb {
        ParameterisedVerb::List { .. } => {
            let listed = connect(global).await?.parameterised(&find::only(global.domain.as_ref())).await?;
            output.write_rows(&listed.rows, table)
        }
        ParameterisedVerb::Show { guid, .. } => {
            let row = find::parameterised(&connect(global).await?, &guid).await?.row;
            find::check_domain(global, format!("parameterised task {guid}"), row.domain.clone())?;
            let item = |row: &ParameterisedRow| {
                row.to_desired().map(|desired| Item::Parameterised(Box::new(desired)))
            };
            output.write_details(&row, item, shown)
        }
        ParameterisedVerb::Dispatch { guid, payload, parameters, key, priority, wait } => {
            let payload = payload.map(|path| read_payload(&path)).transpose()?;
            let variable = |(name, value): (String, String)| Variable {
                name: name.into(),
                value: Secret::Plain(value.into()),
            };
            let parameters = parameters.into_iter().map(variable).collect();
            dispatch(&guid, Dispatch { payload, parameters, key, priority }, wait, global).await
        }
        ParameterisedVerb::Cancel { guid, number } => {
            let client =
                client_in_domain(&connect(global).await?, global, &guid, "cancel a dispatch of").await?;
            let done = client.withdraw_dispatch(guid.clone(), number).await.map_err(|error| {
                let failure = Failure::from(error).while_doing(format!("cancel dispatch {number} of {guid}"));
                failure.advise_if_exit(
                    Exit::NotFound,
                    format!("for the waiting dispatches see muster parameterised show {guid}"),
                )
            })?;
            let changed = ChangeResult { number: Some(number), ..changed(&guid, "cancelled", done) };
            output.add_result(&changed, |_, _| format!("dispatch {number} of {guid} cancelled"))
        }
        ParameterisedVerb::Delete { guid } => delete(&connect(global).await?, &guid, global).await,
    }
}

/// Deletes a parameterised task, and prints the result.
pub(super) async fn delete(
    client: &Client,
    guid: &ParameterisedGuid,
    global: &Global,
) -> Result<(), Failure> {
    let client = client_in_domain(client, global, guid, "delete").await?;
    let done = client
        .remove_parameterised(guid.clone())
        .await
        .map_err(|error| Failure::from(error).while_doing(format!("delete parameterised task {guid}")))?;
    print_change(guid, "deleted", done, Output::new(global))
}

async fn client_in_domain(
    client: &Client,
    global: &Global,
    guid: &ParameterisedGuid,
    verb: &str,
) -> Result<Client, Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("{verb} parameterised task {guid}"));
    let known = find::parameterised(client, guid).await.map_err(doing)?.row;
    Ok(client.in_domain(find::check_domain(global, format!("parameterised task {guid}"), known.domain)?))
}

const fn changed<'a>(guid: &'a ParameterisedGuid, action: &'a str, done: Ack) -> ChangeResult<'a> {
    let (position, version) = (done.position, done.version);
    ChangeResult {
        parameterised_guid: guid,
        action,
        number: None,
        task_guid: None,
        waits_behind: None,
        position,
        version,
    }
}

fn print_change(guid: &ParameterisedGuid, action: &str, done: Ack, output: Output) -> Result<(), Failure> {
    output.add_result(&changed(guid, action, done), |_, _| format!("parameterised task {guid} {action}"))
}

/// Reads the payload of a dispatch from a file, or from the standard input if the path is `-`.
fn read_payload(path: &PathBuf) -> Result<Secret, Failure> {
    let most = PAYLOAD_BYTES as u64;
    let mut bytes = vec![];
    let read = if path == Path::new("-") {
        io::stdin().lock().take(most + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
    };
    let shown =
        if path == Path::new("-") { "the standard input".to_owned() } else { path.display().to_string() };
    let bad = |code: &str, why: String| Failure::new(Exit::Failed, code, why);
    read.map_err(|error| bad("File", format!("can't read {shown}: {error}")))?;
    if bytes.len() > PAYLOAD_BYTES {
        let why = format!("{shown} is too large: expected a payload of at most {PAYLOAD_BYTES} bytes");
        return Err(bad("InvalidRequest", why));
    }
    Ok(spec::payload(&bytes))
}

async fn dispatch(
    guid: &ParameterisedGuid,
    dispatch: Dispatch,
    wait: bool,
    global: &Global,
) -> Result<(), Failure> {
    let output = Output::new(global);
    let doing = |failure: Failure| failure.while_doing(format!("dispatch parameterised task {guid}"));
    let client = client_in_domain(&connect(global).await?, global, guid, "dispatch").await?;
    let has_key = dispatch.key.is_some();
    let done = client.dispatch(guid.clone(), dispatch).await.map_err(|error| {
        let mut failure = Failure::from(error);
        if failure.message.starts_with("key ") {
            // The existing advice is about request ids, so it does not apply here.
            failure.advice.clear();
        }
        doing(failure)
    })?;
    let number = done.version;
    let task_guid = guid
        .dispatched_task_guid(number)
        .map_err(|error| doing(Failure::new(Exit::Failed, "InvalidRequest", error.to_string())))?;
    if !wait {
        // The parameterised task may have been removed after the dispatch. The dispatch then no longer waits.
        let row = client.parameterised_one(guid).await.ok().map(|one| one.row);
        let queued = row.into_iter().flat_map(|row| row.queued);
        let before = queued.enumerate().find(|(_, waiting)| waiting.number == number);
        let waits_behind = before.map(|(before, _)| before as u64);
        let (number, task_guid) = (Some(number), Some(&task_guid));
        let changed = ChangeResult { number, task_guid, waits_behind, ..changed(guid, "dispatched", done) };
        return output.add_result(&changed, |changed, _| dispatch_text(changed));
    }
    // If the user passed a key, the reply may name an earlier dispatch with the same key. The end of the
    // earlier dispatch may be anywhere in the log.
    let after = if has_key { Position(0) } else { done.position };
    let limit = global.timeout;
    let waits = Box::pin(client.wait_for_dispatch(&task_guid, after, limit.unwrap_or(Duration::MAX)));
    match task::wait_for_end(&task_guid, waits, limit, Some(task::running_bar(&task_guid, output))).await? {
        Some(end) => task::print_outcome(&task_guid, &end, true, output),
        None => {
            let why = format!("dispatch {number} of {guid} was cancelled while it waited");
            let advice = format!("for the reason see muster history parameterised {guid}");
            Err(Failure::new(Exit::Failed, "Withdrawn", why).advise(advice))
        }
    }
}

fn dispatch_text(changed: &ChangeResult<'_>) -> String {
    let guid = changed.parameterised_guid;
    let task = changed.task_guid.map(|task| format!(": task {task}")).unwrap_or_default();
    let waits = match changed.waits_behind {
        None => String::new(),
        Some(0) => ", which waits until a running one has ended".to_owned(),
        Some(before) => format!(", which waits behind {}", count(before, "other")),
    };
    format!("parameterised task {guid} dispatched{task}{waits}")
}

/// Creates a parameterised task. If the task is already desired, updates it. Prints the result.
pub(super) async fn apply(
    client: &Client,
    desired: DesiredParameterised,
    output: Output,
) -> Result<(), Failure> {
    let guid = desired.parameterised_guid.clone();
    let applied = desire_or_update(client, desired).await;
    let (action, done) =
        applied.map_err(|failure| failure.while_doing(format!("apply parameterised task {guid}")))?;
    print_change(&guid, action, done, output)
}

async fn desire_or_update(
    client: &Client,
    desired: DesiredParameterised,
) -> Result<(&'static str, Ack), Failure> {
    let (guid, domain) = (desired.parameterised_guid.clone(), desired.domain.clone());
    let desired = seal(client, desired).await?;
    // A request id that the client chose may belong to an earlier update. The update is then sent again.
    let exists = |error: &Error| matches!(error.code(), Some(Code::ResourceExists | Code::RequestIdReused));
    let error = match client.desire_parameterised(desired.clone()).await {
        Ok(done) => return Ok(("desired", done)),
        Err(error) if exists(&error) => {
            let before = client.parameterised_one(&guid).await?.row;
            let same = row_matches(&before, &desired);
            match client.update_parameterised(desired).await {
                Ok(done) if same => return Ok((UNCHANGED, done)),
                Ok(done) => return Ok(("updated", done)),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    let known = client.parameterised_one(&guid).await.ok().map(|one| one.row.domain);
    Err(find::exists_in_other_domain(error.into(), format!("parameterised task {guid}"), known, &domain))
}

/// Returns the desired state with sealed secrets, in the form that the cluster stores.
async fn seal(client: &Client, desired: DesiredParameterised) -> Result<DesiredParameterised, Failure> {
    let item = client.seal(Item::Parameterised(Box::new(desired.clone()))).await?;
    Ok(if let Item::Parameterised(sealed) = item { *sealed } else { desired })
}

/// Returns `true` if the row already matches `desired`. The version is not sufficient for this check, because
/// dispatches increment the version, too.
fn row_matches(row: &ParameterisedRow, desired: &DesiredParameterised) -> bool {
    row.to_desired().as_ref() == Some(desired)
}

/// Builds the table of parameterised tasks.
fn table(rows: &[ParameterisedRow], look: RenderOptions) -> Table {
    let headers = [
        "PARAMETERISED",
        "DOMAIN",
        "PAYLOAD",
        "PARAMETERS",
        "RUNNING",
        "LIMIT",
        "WAITING",
        "DISPATCHED",
        "LAST",
    ];
    Table::with_rows(headers, rows, |row| {
        [
            Cell::text(&row.parameterised_guid),
            Cell::text(&row.domain),
            Cell::text(payload_word(row.payload)),
            Cell::text(row.required_parameters.len() + row.optional_parameters.len()),
            Cell::text(row.running),
            Cell::optional(row.concurrency),
            Cell::text(row.waiting),
            Cell::text(row.dispatched),
            Cell::optional(row.last.as_ref().map(|last| format!("{} ago", age(look.now, last.at)))),
        ]
    })
}

const fn payload_word(rule: PayloadRule) -> &'static str {
    match rule {
        PayloadRule::Required => "required",
        PayloadRule::Optional => "optional",
        PayloadRule::Forbidden => "forbidden",
    }
}

/// Formats the details of a parameterised task.
fn shown(row: &ParameterisedRow, look: RenderOptions) -> String {
    let parameters =
        |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let beyond = match row.overflow {
        Overflow::Queued => "further dispatches wait",
        Overflow::Refused => "further dispatches are refused",
    };
    let limit = row.concurrency.map(|most| format!("{most} at a time; {beyond}"));
    let last = row.last.as_ref().map(|last| format!("{} {} ago", last.task_guid, age(look.now, last.at)));
    let waits = row.queued.iter().map(|one| {
        let key = one.key.as_ref().map(|key| format!(" with key {key}")).unwrap_or_default();
        format!("{} for {}{key}", one.number, age(look.now, one.at))
    });
    let running = row.tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let more = row.running.saturating_sub(row.tasks.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut shown = facts(&[
        ("parameterised task", row.parameterised_guid.to_string()),
        ("domain", row.domain.to_string()),
        ("since", format!("{} ({})", row.since, age(look.now, row.since))),
        ("payload", payload_word(row.payload).to_owned()),
        ("required", parameters(&row.required_parameters)),
        ("optional", parameters(&row.optional_parameters)),
        ("limit", limit.unwrap_or_else(|| "none".to_owned())),
        ("running", format!("{running}{more}")),
        ("waits", waits.collect::<Vec<_>>().join(", ")),
        ("last", last.unwrap_or_default()),
        ("dispatched", row.dispatched.to_string()),
        ("launched", row.launched.to_string()),
        ("withdrawn", row.withdrawn.to_string()),
        ("created", row.epoch.0.to_string()),
    ]);
    if let Some(desired) = row.to_desired() {
        shown.push_str(&format!("\n\n{}", indented_json(&spec::parameterised_to_json(&desired))));
    }
    shown
}
