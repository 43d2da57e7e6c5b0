//! Collects facts about the database of a projector, and the projector's lag behind the journal.

use std::time::Duration;

use cli_base::connect::data_folder;
use cli_base::options::Global;
use explain::doctor::facts::{Fact, LiveTables, Tables, Unknown};
use projector::{Url, verify};
use schemas::{Entry, Position};
use text::chain;

use super::super::super::journal_access::inspect_journal;
use super::super::super::sql::database_of;

pub(super) async fn collect(named: Option<&Url>, global: &Global) -> Fact<Tables> {
    let url = database_url(named, global)?;
    let generations = verify::list(&url).await.map_err(|error| Unknown::Failed(chain(&error)))?;
    let live = generations.into_iter().find(|one| one.live).map(|one| LiveTables {
        generation: one.number,
        position: one.end.position,
        is_of_this_program: one.is_of_this_program(&url),
        cluster_id: one.cluster_id,
    });
    let position = live.as_ref().map(|live| live.position);
    let behind = lag(position.unwrap_or_default(), global).await;
    Ok(Tables { url: url.to_string(), live, behind })
}

fn database_url(named: Option<&Url>, global: &Global) -> Fact<Url> {
    let Some(url) = named else {
        let Some(folder) = data_folder(global) else {
            return Err(Unknown::Skipped(
                "no database is set: pass --database URL, or set MUSTER_DATABASE".to_owned(),
            ));
        };
        if !folder.join(projector::FILE_NAME).is_file() {
            return Err(Unknown::Skipped(format!("no tables in {}", folder.display())));
        }
        return database_of(None, global).map_err(|failure| Unknown::Failed(failure.message));
    };
    Ok(url.clone())
}

/// Returns the end of the journal, and the age of the first entry after a position. The age is `None` if this
/// entry does not exist or cannot be read.
async fn lag(position: Position, global: &Global) -> Fact<(Position, Option<Duration>)> {
    let journal = inspect_journal(global).await.map_err(|failure| Unknown::Skipped(failure.message))?;
    let failed = |error: journal::JournalError| Unknown::Skipped(chain(&error));
    let end = journal.end().await.map_err(failed)?;
    if end <= position {
        return Ok((end, None));
    }
    let next = journal.read(position, None, 1).await.map_err(failed)?;
    let entry = next.first().and_then(|recorded| Entry::decode(&recorded.bytes).ok());
    let decided = entry.and_then(|entry| entry.decisions.iter().map(|decision| decision.at).min());
    Ok((end, decided.map(|at| clock::now().since(at))))
}
