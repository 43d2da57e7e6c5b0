//! `muster bench --flood`: one client asks far too much of a cluster of real services, and another one wants little.
//!
//! The services are processes of their own, the BBS with 1,024 files. The loud client sends everything at once and takes
//! every refusal; the quiet one, of another domain, sends a command at a steady pace, whether earlier ones are answered or not. What
//! counts is how long the quiet one waits, also as a multiple of what it waits alone, and that nobody is left without an answer.

mod loud;
mod quiet;
mod services;

use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use schemas::bus::Inbox;
use schemas::names::{ClientName, Domain};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::loud::{Loud, Outcome};
use self::quiet::{Quiet, Waits};
use self::services::Services;
use super::{BenchError, bar};
use crate::error::ServiceError;
use crate::serve::Nats;

/// Instances in the lists that are asked for.
const INSTANCES: u32 = 2_000;
/// Lists that are asked for at once.
const LISTS: u32 = 8_000;
/// Reads of events that wait at once.
const POLLS: u32 = 64;
/// Commands that are sent at once.
const COMMANDS: u32 = 20_000;
/// Commands, and lists, that are kept under way: twice what a client may have.
const KEPT: u32 = 128;
/// Tasks whose owner never answers.
const CALLBACKS: u32 = 3_000;
/// How long is measured what has no end of its own.
const WHILE: Duration = Duration::from_secs(10);
/// How long the cluster is left alone between two parts.
const PAUSE: Duration = Duration::from_secs(1);

/// One part of the measurement.
struct Part {
    name: &'static str,
    loud: Outcome,
    quiet: Waits,
}

/// Runs the flood and says what became of both clients.
pub(super) async fn run(
    nats: Option<Nats>,
    json: bool,
    stop: CancellationToken,
) -> Result<String, ServiceError> {
    let nats = nats.ok_or(BenchError::NeedsServer)?;
    let mut services = Services::start(&nats).await?;
    let parts = tokio::select! {
        parts = measure(&nats) => parts,
        ended = services.failed() => Err(BenchError::ServiceEnded(ended).into()),
        () = stop.cancelled() => Err(BenchError::Stopped.into()),
    };
    let files = services.files_of_bbs();
    services.end().await;
    let parts = parts?;
    Ok(if json { as_json(&parts, files) } else { as_table(&parts, files) })
}

async fn measure(nats: &Nats) -> Result<Vec<Part>, ServiceError> {
    let bar = bar();
    bar.set_message("waiting for the services");
    let loud = hostile(nats).await?;
    services::ready(&loud).await?;
    bar.set_message("a world to ask about");
    loud.desire_instances(INSTANCES).await?;
    let quiet = Quiet::start(nats.clone(), &inbox("quiet")?).await?;
    let mut parts = vec![];
    let mut part = |name, quiet: Waits, loud| parts.push(Part { name, loud, quiet });

    bar.set_message("alone");
    quiet.begin();
    tokio::time::sleep(WHILE).await;
    part("alone", quiet.end().await?, Outcome::default());

    bar.set_message("lists");
    quiet.begin();
    let outcome = loud.lists(LISTS).await;
    part("8,000 lists at once", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("long polls");
    quiet.begin();
    let outcome = loud.polls(POLLS, WHILE).await;
    part("64 long polls", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("commands");
    quiet.begin();
    let outcome = loud.commands(COMMANDS).await;
    part("20,000 commands at once", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("commands and lists");
    quiet.begin();
    let outcome = loud.keeps_asking(KEPT, WHILE).await;
    part("commands and lists for 10 s", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("callbacks");
    let owner = loud::silent_owner().await?;
    quiet.begin();
    let outcome = loud.tasks(CALLBACKS, &owner).await;
    tokio::time::sleep(WHILE).await;
    part("3,000 hanging callbacks", quiet.end().await?, outcome);

    bar.set_message("all together");
    quiet.begin();
    let (lists, polls, commands) =
        tokio::join!(loud.lists(LISTS), loud.polls(POLLS, WHILE), loud.commands(COMMANDS));
    part("all of it together", quiet.end().await?, lists.and(polls).and(commands));
    bar.finish_and_clear();
    loud.remove_instances().await;
    Ok(parts)
}

/// The domain of the client that floods the cluster; the quiet client is of another one.
const HOSTILE: &str = "hostile";

fn inbox(name: &str) -> Result<Inbox, BenchError> {
    Ok(Inbox::Client(Domain::new("bench")?, ClientName::new(name)?))
}

async fn hostile(nats: &Nats) -> Result<Loud, ServiceError> {
    let (domain, name) =
        (Domain::new(HOSTILE).map_err(BenchError::from)?, ClientName::new("loud").map_err(BenchError::from)?);
    let inbox = Inbox::Client(domain.clone(), name.clone());
    Ok(Loud::new(nats.bus("bench loud", &inbox).await?, domain, name))
}

fn as_table(parts: &[Part], files: Option<usize>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "loud client",
        "answered",
        "refused",
        "no answer",
        "quiet: commands",
        "lost",
        "p50 ms",
        "p99 ms",
        "times alone",
        "worst ms",
    ]);
    for Part { name, loud, quiet } in parts {
        let refused: Vec<String> =
            loud.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
        table.add_row([
            (*name).to_owned(),
            loud.answered.to_string(),
            if refused.is_empty() { "0".to_owned() } else { refused.join(", ") },
            loud.silent.to_string(),
            quiet.answered().to_string(),
            quiet.lost.len().to_string(),
            millis(quiet.percentile(50)),
            millis(quiet.percentile(99)),
            format!("{:.1}", ratio(parts, quiet)),
            millis(quiet.percentile(100)),
        ]);
    }
    let lost: Vec<&String> = parts.iter().flat_map(|part| &part.quiet.lost).take(3).collect();
    let files = files.map_or("unknown".to_owned(), |files| files.to_string());
    let lost = if lost.is_empty() { String::new() } else { format!("\nlost: {lost:?}") };
    format!("{table}\nfiles of the BBS at the end: {files}, of {}{lost}", services::FILES)
}

fn as_json(parts: &[Part], files: Option<usize>) -> String {
    let part = |Part { name, loud, quiet }: &Part| {
        json!({
            "loud": name, "answered": loud.answered, "refused": loud.refused, "no_answer": loud.silent,
            "quiet_commands": quiet.answered(), "quiet_lost": quiet.lost,
            "p50_ms": quiet.percentile(50).as_secs_f64() * 1e3, "p99_ms": quiet.percentile(99).as_secs_f64() * 1e3,
            "p99_times_alone": ratio(parts, quiet),
            "worst_ms": quiet.percentile(100).as_secs_f64() * 1e3,
        })
    };
    let parts: Vec<Value> = parts.iter().map(part).collect();
    json!({ "parts": parts, "files_of_bbs": files }).to_string()
}

/// Returns the 99th percentile of the quiet client's waits as a multiple of the one that it has alone, in the first part.
fn ratio(parts: &[Part], quiet: &Waits) -> f64 {
    let alone = parts.first().map_or(Duration::ZERO, |part| part.quiet.percentile(99)).as_secs_f64();
    if alone > 0.0 { quiet.percentile(99).as_secs_f64() / alone } else { 1.0 }
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
