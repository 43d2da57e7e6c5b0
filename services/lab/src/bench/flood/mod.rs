//! `muster-lab bench --flood`: one client floods a cluster of real services while another client sends few
//! commands.
//!
//! The services are separate processes. The BBS has an open-file limit of 1,024. The loud client sends
//! everything at once and accepts every refusal. The quiet client belongs to another domain and sends
//! commands at a steady pace, without waiting for earlier answers.
//!
//! The benchmark measures the quiet client's latencies, and compares them with those before the flood. It
//! also checks that every request is answered.

mod loud;
mod quiet;
mod services;

use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use host::serve::Nats;
use schemas::bus::Inbox;
use schemas::names::{ClientName, Domain};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::loud::{Loud, Outcome};
use self::quiet::{Latencies, Quiet};
use self::services::Services;
use super::{BenchError, progress_bar};

/// Number of instances in each list.
const INSTANCES: u32 = 2_000;
/// Number of lists requested at once.
const LISTS: u32 = 8_000;
/// Number of concurrent long polls for events.
const POLLS: u32 = 64;
/// Number of commands sent at once.
const COMMANDS: u32 = 20_000;
/// Number of commands, and also of lists, that wait for an answer at any time. The value is twice the limit
/// of a client.
const SUSTAINED: u32 = 128;
/// Number of tasks whose completion callback is never answered.
const CALLBACKS: u32 = 3_000;
/// Duration of measurements without an end of their own.
const PART_DURATION: Duration = Duration::from_secs(10);
/// Pause between two parts.
const PAUSE: Duration = Duration::from_secs(1);

/// Result of one part of the measurement.
struct Part {
    name: &'static str,
    loud: Outcome,
    quiet: Latencies,
}

/// Runs the flood and returns the results of both clients.
pub(super) async fn run(
    nats: Option<Nats>,
    json: bool,
    stop: CancellationToken,
) -> Result<String, BenchError> {
    let nats = nats.ok_or(BenchError::NeedsServer)?;
    let mut services = Services::start(&nats).await?;
    let parts = tokio::select! {
        parts = measure(&nats) => parts,
        ended = services.wait_for_exit() => Err(BenchError::ServiceEnded(ended)),
        () = stop.cancelled() => Err(BenchError::Stopped),
    };
    let files = services.files_of_bbs();
    services.stop().await;
    let parts = parts?;
    Ok(if json { as_json(&parts, files) } else { as_table(&parts, files) })
}

async fn measure(nats: &Nats) -> Result<Vec<Part>, BenchError> {
    let bar = progress_bar();
    bar.set_message("waiting for the services");
    let loud = loud_client(nats).await?;
    services::wait_until_ready(&loud).await?;
    bar.set_message("desiring instances");
    loud.desire_instances(INSTANCES).await?;
    let quiet = Quiet::start(nats.clone(), &inbox("quiet")?).await?;
    let mut parts = vec![];
    let mut part = |name, quiet: Latencies, loud| parts.push(Part { name, loud, quiet });

    bar.set_message("alone");
    quiet.begin();
    tokio::time::sleep(PART_DURATION).await;
    part("alone", quiet.end().await?, Outcome::default());

    bar.set_message("lists");
    quiet.begin();
    let outcome = loud.lists(LISTS).await;
    part("8,000 lists at once", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("long polls");
    quiet.begin();
    let outcome = loud.polls(POLLS, PART_DURATION).await;
    part("64 long polls", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("commands");
    quiet.begin();
    let outcome = loud.commands(COMMANDS).await;
    part("20,000 commands at once", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("commands and lists");
    quiet.begin();
    let outcome = loud.sustained(SUSTAINED, PART_DURATION).await;
    part("commands and lists for 10 s", quiet.end().await?, outcome);
    tokio::time::sleep(PAUSE).await;

    bar.set_message("callbacks");
    let owner = loud::silent_owner().await?;
    quiet.begin();
    let outcome = loud.tasks(CALLBACKS, &owner).await;
    tokio::time::sleep(PART_DURATION).await;
    part("3,000 hanging callbacks", quiet.end().await?, outcome);

    bar.set_message("all at once");
    quiet.begin();
    let (lists, polls, commands) =
        tokio::join!(loud.lists(LISTS), loud.polls(POLLS, PART_DURATION), loud.commands(COMMANDS));
    part("all at once", quiet.end().await?, lists.merge(polls).merge(commands));
    bar.finish_and_clear();
    loud.remove_instances().await;
    Ok(parts)
}

/// Domain of the loud client. The quiet client belongs to another domain.
const LOUD_DOMAIN: &str = "hostile";

fn inbox(name: &str) -> Result<Inbox, BenchError> {
    Ok(Inbox::Client(Domain::new("bench")?, ClientName::new(name)?))
}

async fn loud_client(nats: &Nats) -> Result<Loud, BenchError> {
    let (domain, name) = (
        Domain::new(LOUD_DOMAIN).map_err(BenchError::from)?,
        ClientName::new("loud").map_err(BenchError::from)?,
    );
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
        "quiet client",
        "lost",
        "p50 ms",
        "p99 ms",
        "p99 factor",
        "worst ms",
    ]);
    for Part { name, loud, quiet } in parts {
        let refused: Vec<String> =
            loud.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
        table.add_row([
            (*name).to_owned(),
            loud.answered.to_string(),
            if refused.is_empty() { "0".to_owned() } else { refused.join(", ") },
            loud.unanswered.to_string(),
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
    format!("{table}\nopen files of the BBS at the end: {files} of {}{lost}", services::BBS_FILE_LIMIT)
}

fn as_json(parts: &[Part], files: Option<usize>) -> String {
    let part = |Part { name, loud, quiet }: &Part| {
        json!({
            "loud": name, "answered": loud.answered, "refused": loud.refused, "no_answer": loud.unanswered,
            "quiet_commands": quiet.answered(), "quiet_lost": quiet.lost,
            "p50_ms": quiet.percentile(50).as_secs_f64() * 1e3, "p99_ms": quiet.percentile(99).as_secs_f64() * 1e3,
            "p99_times_alone": ratio(parts, quiet),
            "worst_ms": quiet.percentile(100).as_secs_f64() * 1e3,
        })
    };
    let parts: Vec<Value> = parts.iter().map(part).collect();
    json!({ "parts": parts, "files_of_bbs": files }).to_string()
}

/// Returns the 99th percentile of the quiet client's latencies, divided by the 99th percentile in the first
/// part. The first part has no flood.
fn ratio(parts: &[Part], quiet: &Latencies) -> f64 {
    let alone = parts.first().map_or(Duration::ZERO, |part| part.quiet.percentile(99)).as_secs_f64();
    if alone > 0.0 { quiet.percentile(99).as_secs_f64() / alone } else { 1.0 }
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
