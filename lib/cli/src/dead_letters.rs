//! `muster dead-letters`: journal entries that projections skipped, and the entry that a projector cannot
//! process.

use ::projector::ask::QuerySession;
use ::projector::{Error, Url};
use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use host::quarantine;
use runtime::exit::Exit;
use schemas::Position;
use serde::Serialize;
use text::words;
use tokio_util::sync::CancellationToken;

use super::journal_access::read_journal;
use super::projection::DatabaseOption;
use super::sql::database_of;

/// Maximum number of listed dead letters. A damaged journal can contain many more.
const MAX_LISTED: usize = 10_000;

/// Subcommands of `muster dead-letters`.
#[derive(Clone, Debug, Subcommand)]
pub enum DeadLettersVerb {
    /// List entries that a projector skipped or waits at
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        of: DatabaseOption,
    },
    /// Retry the entry that a projector cannot process
    Retry {
        #[command(flatten)]
        of: DatabaseOption,
    },
}

/// Journal entry that no table of the database contains.
#[derive(Serialize)]
struct DeadLetter {
    position: Position,
    /// `true` if the projector waits at this entry. `false` if the entry is quarantined and the projector has
    /// skipped it.
    stops: bool,
    subject: String,
    why: String,
}

pub(crate) async fn run(verb: DeadLettersVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        DeadLettersVerb::List { of } => list(&database_of(of.database, global)?, global).await,
        DeadLettersVerb::Retry { of } => retry(&database_of(of.database, global)?, global).await,
    }
}

async fn list(url: &Url, global: &Global) -> Result<(), Failure> {
    let (mut reading, standing) = QuerySession::open(url).await?;
    let asked = format!(
        "SELECT position, subject, reason FROM quarantined_entries ORDER BY position LIMIT {}",
        MAX_LISTED + 1
    );
    let answer = reading.ask(&asked).await?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut letters: Vec<DeadLetter> = answer
        .rows
        .iter()
        .take(MAX_LISTED)
        .filter_map(|row| match row.as_slice() {
            [position, subject, why] => {
                let position = Position(position.as_u64()?);
                Some(DeadLetter { position, stops: false, subject: text(subject), why: text(why) })
            }
            _ => None,
        })
        .collect();
    letters.extend(blocking_letter(standing.end.position, global).await?);
    let output = Output::new(global);
    if output.is_human_readable() {
        note(&format!("the tables contain the log up to position {}", standing.end.position));
    }
    if answer.rows.len() > MAX_LISTED {
        note(&format!(
            "only the first {MAX_LISTED} quarantined entries are listed; list all of them: \
             muster sql \"SELECT * FROM quarantined_entries ORDER BY position\" -o csv"
        ));
    }
    output.write_rows(&letters, |letters, _| {
        let headers = ["position", "state", "subject", "reason"];
        Table::with_rows(headers, letters, |letter| {
            [
                Cell::number(letter.position),
                Cell::text(if letter.stops { "blocking" } else { "quarantined" }),
                Cell::text(&letter.subject),
                Cell::text(words::one_line(&letter.why)),
            ]
        })
    })
}

/// Returns the first entry after the position of the tables. `None` if this program can read the entry.
async fn blocking_letter(stand: Position, global: &Global) -> Result<Option<DeadLetter>, Failure> {
    let journal = read_journal(global).await?;
    let known =
        quarantine::quarantined_positions(&journal, &CancellationToken::new()).await.map_err(Error::from)?;
    let stop = quarantine::unreadable_entry_after(&journal, stand, &known.unwrap_or_default()).await;
    let stop = stop.map_err(Error::from)?;
    Ok(stop.map(|(position, subject, why)| DeadLetter { position, stops: true, subject, why }))
}

async fn retry(url: &Url, global: &Global) -> Result<(), Failure> {
    let (_, standing) = QuerySession::open(url).await?;
    let stand = standing.end.position;
    if blocking_letter(stand, global).await?.is_none() {
        let why = format!("no entry blocks the projector after position {stand}, where its tables end");
        let failure = Failure::new(Exit::Conflict, "NothingStops", why);
        return Err(failure.advise(
            "a projector of an older version may stop at an entry that this version can read: \
             restart it with this version",
        ));
    }
    ::projector::request_retry(url).await?;
    note(&format!("the projector reads the entry after position {stand} again"));
    Ok(())
}
