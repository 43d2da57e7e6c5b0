//! `muster dead-letters`: journal entries that projections skipped, and the entry that a projector cannot
//! process.

use ::projector::ask::Reading;
use ::projector::{Error, Url};
use clap::Subcommand;
use schemas::Position;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::args::{Global, JournalVerb, parse_position};
use super::direct::read_journal;
use super::failure::{Exit, Failure};
use super::output::{Output, note};
use super::projection::OfDatabase;
use super::sql::database_of;
use super::table::{Cell, Table};
use super::{journal, words};
use crate::wire::setting_aside;

/// Maximum number of listed dead letters. A damaged journal can contain many more.
const LISTED: usize = 10_000;

/// Subcommands of `muster dead-letters`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DeadLettersVerb {
    /// List quarantined entries, and the entry that the projector cannot process
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        of: OfDatabase,
    },
    /// Make a waiting projector read the entry again that it cannot process
    Retry {
        #[command(flatten)]
        of: OfDatabase,
    },
    /// Make every service skip the entry at a position: the same as journal set-aside
    Skip {
        /// Position of the entry in the log
        #[arg(value_parser = parse_position)]
        position: Position,
    },
}

/// Entry that is in no table.
#[derive(Serialize)]
struct Letter {
    position: Position,
    /// `true` if the projector waits at this entry. `false` if the entry is quarantined and the projector
    /// continued.
    stops: bool,
    subject: String,
    why: String,
}

pub(crate) async fn run(verb: DeadLettersVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        DeadLettersVerb::List { of } => list(&database_of(of.database, global)?, global).await,
        DeadLettersVerb::Retry { of } => retry(&database_of(of.database, global)?, global).await,
        DeadLettersVerb::Skip { position } => journal::run(JournalVerb::SetAside { position }, global).await,
    }
}

async fn list(url: &Url, global: &Global) -> Result<(), Failure> {
    let (mut reading, standing) = Reading::open(url).await?;
    let asked =
        format!("SELECT position, subject, why FROM set_aside ORDER BY position LIMIT {}", LISTED + 1);
    let answer = reading.ask(&asked).await?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut letters: Vec<Letter> = answer
        .rows
        .iter()
        .take(LISTED)
        .filter_map(|row| match row.as_slice() {
            [position, subject, why] => {
                let position = Position(position.as_u64()?);
                Some(Letter { position, stops: false, subject: text(subject), why: text(why) })
            }
            _ => None,
        })
        .collect();
    letters.extend(stop(standing.end.position, global).await?);
    let output = Output::new(global);
    if output.is_for_people() {
        note(&format!("the tables stand at position {}", standing.end.position));
    }
    if answer.rows.len() > LISTED {
        note(&format!(
            "only the first {LISTED} of what was set aside are listed; all of them: \
             muster sql \"SELECT * FROM set_aside ORDER BY position\" -o csv"
        ));
    }
    output.rows(&letters, |letters, _| {
        let mut table = Table::new(&["position", "is", "subject", "why"]);
        for letter in letters {
            table.row(vec![
                Cell::number(letter.position),
                Cell::text(if letter.stops { "stops" } else { "set aside" }),
                Cell::text(&letter.subject),
                Cell::text(words::one_line(&letter.why)),
            ]);
        }
        table
    })
}

/// Returns the entry after the position of the tables, if it cannot be read.
async fn stop(stand: Position, global: &Global) -> Result<Option<Letter>, Failure> {
    let journal = read_journal(global).await?;
    let known = setting_aside::known(&journal, &CancellationToken::new()).await.map_err(Error::from)?;
    let stop = setting_aside::stop_behind(&journal, stand, &known.unwrap_or_default()).await;
    let stop = stop.map_err(Error::from)?;
    Ok(stop.map(|(position, subject, why)| Letter { position, stops: true, subject, why }))
}

async fn retry(url: &Url, global: &Global) -> Result<(), Failure> {
    let (_, standing) = Reading::open(url).await?;
    let stand = standing.end.position;
    if stop(stand, global).await?.is_none() {
        let why = format!("nothing stops a projector behind position {stand}, where the tables stand");
        let failure = Failure::new(Exit::Conflict, "NothingStops", why);
        return Err(failure.advise(
            "a projector of an older version may stop at what this one can read: start it again with this one",
        ));
    }
    ::projector::ask_again(url).await?;
    note(&format!("the projector reads again what stands behind position {stand}"));
    Ok(())
}
