//! From where to where: positions, or times that are looked up in the log.

use ::journal::Journal;
use audit::export::time_of;
use schemas::query::Moment;
use schemas::{Position, Timestamp};

use super::source::Pages;
use super::unreadable;
use crate::cli::failure::Failure;

/// Positions, the first and the last of them included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: Position,
    pub(crate) to: Position,
}

impl Range {
    /// How many positions it has.
    pub(crate) const fn len(self) -> u64 {
        (self.to.0 + 1).saturating_sub(self.from.0)
    }
}

/// Finds a range in a journal: from the first entry at or after the one moment to the last before anything later than the
/// other one.
///
/// # Errors
/// There is nothing in it, or the journal can't be read.
pub(crate) async fn find(
    journal: &Journal,
    from: Option<Moment>,
    to: Option<Moment>,
) -> Result<Range, Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    if end == Position(0) {
        return Err(Failure::usage("the journal is empty: nothing has happened yet"));
    }
    let first = match from {
        None => Position(1),
        Some(Moment::Position(position)) => within(position, end)?,
        Some(Moment::Time(time)) => {
            let just_before = Timestamp(time.0.saturating_sub(1));
            let first = first_later(journal, just_before, end).await?;
            first.ok_or_else(|| {
                Failure::usage(format!("nothing happened at {time} or later: the log ends at position {end}"))
            })?
        }
    };
    let last = match to {
        None => end,
        Some(Moment::Position(position)) => within(position, end)?,
        Some(Moment::Time(time)) => match first_later(journal, time, end).await? {
            None => end,
            Some(Position(1)) => {
                return Err(Failure::usage(format!("{time} is before the log: its first entry is later")));
            }
            Some(later) => Position(later.0 - 1),
        },
    };
    if first > last {
        return Err(Failure::usage(format!("from position {first} to position {last} there is nothing")));
    }
    Ok(Range { from: first, to: last })
}

fn within(position: Position, end: Position) -> Result<Position, Failure> {
    if position == Position(0) || position > end {
        let why = format!("position {position} is not in the log: it goes from position 1 to position {end}");
        return Err(Failure::usage(why));
    }
    Ok(position)
}

/// Where the first entry stands that was decided later than a time. Times go forward on each subject by itself, and not
/// quite over all of them: so it is looked for from the beginning.
async fn first_later(journal: &Journal, time: Timestamp, end: Position) -> Result<Option<Position>, Failure> {
    let mut pages = Pages::new(journal.clone(), Position(0), end);
    while let Some(next) = pages.next().await? {
        if time_of(&next.bytes).is_some_and(|at| at > time) {
            return Ok(Some(next.position));
        }
    }
    Ok(None)
}
