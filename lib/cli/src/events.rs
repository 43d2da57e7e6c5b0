//! `muster events`.

use std::ops::ControlFlow;

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::{Format, Global};
use cli_base::output::{Output, RenderOptions, note};
use cli_base::table::Table;
use client::Client;
use explain::decisions::{end_of_log, for_each_entry};
use runtime::exit::Exit;
use schemas::query::{ReadEntry, ReadEvents, RecordedEntry};
use schemas::{Decision, Position};
use text::describe::{actor, sentences};
use text::words::one_line;

use super::arguments::{parse_about, parse_position};
use super::rows;

/// Subcommands of `muster events`.
#[derive(Clone, Debug, Subcommand)]
pub enum EventsVerb {
    /// Show new events as they arrive
    Tail {
        /// Start after this position [default: now]
        #[arg(long, value_parser = parse_position, value_name = "POSITION")]
        after: Option<Position>,
        /// Only events about this object: lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID,
        /// domain:NAME or cluster
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// List events
    #[command(alias = "ls")]
    List {
        /// Start after this position [default: the start of the log]
        #[arg(long, value_parser = parse_position, value_name = "POSITION")]
        after: Option<Position>,
        /// Only events about this object: lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID,
        /// domain:NAME or cluster
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// Show one entry of the log in full
    Show {
        /// Position of the entry in the log
        #[arg(value_parser = parse_position)]
        position: Position,
    },
}

pub(crate) async fn run(verb: EventsVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    match verb {
        EventsVerb::Tail { after, about } => {
            let after = match after {
                Some(after) => after,
                None => end_of_log(&client).await?,
            };
            tail(&client, after, about, output).await
        }
        EventsVerb::List { after, about } => list(&client, after.unwrap_or_default(), about, output).await,
        EventsVerb::Show { position } => {
            let after = Position(position.0.saturating_sub(1));
            let read = ReadEvents { after, limit: Some(1), ..ReadEvents::default() };
            let page = client.read_events(&read).await?;
            let found = page.entries.into_iter().find(|entry| entry.position == position);
            let entry = found.ok_or_else(|| {
                Failure::not_found(format!("an entry at position {position}"))
                    .advise(format!("the log ends at position {}", page.end))
            })?;
            output.write_one(&entry, |entry, _| rows::entry_details(entry))
        }
    }
}

async fn tail(
    client: &Client,
    after: Position,
    about: Option<String>,
    output: Output,
) -> Result<(), Failure> {
    let mut events = client.events(after);
    if let Some(about) = about {
        events = events.for_target(about);
    }
    loop {
        let entry = tokio::select! {
            entry = events.next() => entry?,
            interrupted = tokio::signal::ctrl_c() => {
                note(&format!("continue with muster events tail --after {}", events.position()));
                return interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()));
            }
        };
        output.write_stream_item(&entry, lines)?;
    }
}

async fn list(
    client: &Client,
    after: Position,
    about: Option<String>,
    output: Output,
) -> Result<(), Failure> {
    match output.format {
        Format::Json => {
            let (entries, _) = client.history(after, about.as_deref()).await?;
            return output.write_rows(&entries, |_, _| Table::default());
        }
        Format::Table | Format::Jsonl | Format::Csv | Format::Toml => {}
    }
    for_each_entry(client, after, about, |entry| {
        output.write_stream_item(&entry, lines).map(ControlFlow::Continue)
    })
    .await
}

/// Formats an entry as lines with position, time, actor and sentence.
pub(crate) fn lines(entry: &RecordedEntry, look: RenderOptions) -> String {
    let position = entry.position;
    match &entry.entry {
        ReadEntry::Known(known) => {
            let line = |decision: &Decision| {
                let head = format!("{position:>6}  {}  {:<18}", decision.at, actor(&decision.actor));
                let shown = sentences(decision, look.full_ids).into_iter();
                shown.map(|sentence| format!("{head}  {sentence}")).collect::<Vec<_>>()
            };
            known.decisions.iter().flat_map(line).collect::<Vec<_>>().join("\n")
        }
        ReadEntry::Unknown { reason: why, .. } => {
            format!("{position:>6}  unknown entry on {}: {}", one_line(&entry.subject), one_line(why))
        }
    }
}
