//! Writing the log down: as lines that can be read again, or as events for programs of others.

use ::journal::{Journal, Recorded};
use audit::export::{Manifest, Writer};
use projections::reader::Read;
use projections::{ClusterLog, Reader, tables};
use schemas::names::ClusterId;
use schemas::{Entry, Position, Subject, cloudevent};
use tokio_util::sync::CancellationToken;

use super::file::Sink;
use super::parquet::Columns;
use super::range::Range;
use super::source::Pages;
use super::{bar, failed, message, unreadable};
use crate::cli::failure::Failure;
use crate::host;
use crate::wire::setting_aside;

/// Writes a range of the log as lines that can be read again.
///
/// # Errors
/// The journal can't be read, has a gap, or the lines can't be written.
pub(crate) async fn lines(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<Manifest, Failure> {
    let (mut lines, head) = Lines::begin(cluster, range);
    sink.write(&head)?;
    let mut pages = Pages::new(journal.clone(), Position(range.from.0 - 1), range.to);
    let bar = bar(range.len(), "exporting");
    while let Some(next) = pages.next().await? {
        sink.write(&lines.next(next)?)?;
        bar.inc(1);
    }
    let (manifest, last) = lines.finish()?;
    sink.write(&last)?;
    bar.finish_and_clear();
    Ok(manifest)
}

/// The lines of a range, and what they say of themselves. No position is left out.
struct Lines {
    writer: Writer,
    expected: Position,
    range: Range,
}

impl Lines {
    fn begin(cluster: ClusterId, range: Range) -> (Self, Vec<u8>) {
        let (writer, head) = Writer::begin(&host::version(), cluster, range.from);
        (Self { writer, expected: range.from, range }, head)
    }

    /// The line of the next message.
    fn next(&mut self, recorded: Recorded) -> Result<Vec<u8>, Failure> {
        check_next(self.expected, recorded.position)?;
        self.expected = Position(recorded.position.0 + 1);
        self.writer.line(&message(recorded)).map_err(|error| failed(error.to_string()))
    }

    /// What they say of themselves, and as the last of them.
    fn finish(self) -> Result<(Manifest, Vec<u8>), Failure> {
        check_next(self.expected, Position(self.range.to.0 + 1))?;
        Ok(self.writer.finish())
    }
}

fn check_next(expected: Position, found: Position) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let why = format!("the journal is damaged: nothing stands at position {expected}");
    Err(failed(why).advise("muster audit verify says what else is missing"))
}

/// What became of a range as events.
#[derive(Default)]
pub(crate) struct Events {
    /// How many there are.
    pub(crate) count: u64,
    /// How many messages are no entries, and have none.
    pub(crate) set_aside: u64,
}

impl Events {
    /// The events of a message, counted; of what is no entry there are none.
    fn of<'a, E, I: IntoIterator<Item = E>>(
        &mut self,
        entry: Option<&'a Entry>,
        events: impl FnOnce(&'a Entry) -> I,
    ) -> Vec<E> {
        let Some(entry) = entry else {
            self.set_aside += 1;
            return vec![];
        };
        let events: Vec<E> = events(entry).into_iter().collect();
        self.count += u64::try_from(events.len()).unwrap_or(u64::MAX);
        events
    }
}

/// Writes the events of a range, one a line. What is no entry has none. Answers what an export of the range as lines would
/// say of itself, too.
///
/// # Errors
/// The journal can't be read, has a gap, holds what a later program wrote, or the lines can't be written.
pub(crate) async fn events(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<(Events, Manifest), Failure> {
    let (mut lines, _) = Lines::begin(cluster, range);
    let mut told = Events::default();
    let take = |read: Recorded, entry: Option<&Entry>| {
        let position = read.position;
        drop(lines.next(read)?);
        for event in told.of(entry, |entry| cloudevent::of_entry(cluster, position, entry)) {
            let mut line = serde_json::to_vec(&event)
                .map_err(|error| failed(format!("position {position}: {error}")))?;
            line.push(b'\n');
            sink.write(&line)?;
        }
        Ok(())
    };
    each(journal, range, take).await?;
    let (manifest, _) = lines.finish()?;
    Ok((told, manifest))
}

/// Writes the events of a range as columns. Answers what an export of the range as lines would say of itself, too, which the
/// file holds.
///
/// # Errors
/// The journal can't be read, has a gap, holds what a later program wrote, or the columns can't be written.
pub(crate) async fn columns(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<(Events, Manifest), Failure> {
    let unwritable = |error| failed(format!("can't write columns: {error}"));
    let (mut lines, _) = Lines::begin(cluster, range);
    let mut columns = Columns::begin().map_err(unwritable)?;
    let mut told = Events::default();
    let take = |read: Recorded, entry: Option<&Entry>| {
        let position = read.position;
        drop(lines.next(read)?);
        for row in told.of(entry, |entry| tables::events::rows(position, entry)) {
            sink.write(&columns.add(row).map_err(unwritable)?)?;
        }
        Ok(())
    };
    each(journal, range, take).await?;
    let (manifest, _) = lines.finish()?;
    sink.write(&columns.finish(&manifest).map_err(unwritable)?)?;
    Ok((told, manifest))
}

/// Gives each message of a range to `take`, with the entry that it is, if it is one. That is told from what stands before
/// it, so the log is read from its beginning.
async fn each(
    journal: &Journal,
    range: Range,
    mut take: impl FnMut(Recorded, Option<&Entry>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reader = reader(journal).await?;
    let mut pages = Pages::new(journal.clone(), Position(0), range.to);
    let bar = bar(range.to.0, "exporting");
    while let Some(next) = pages.next().await? {
        let read = reader.read(next.position, &next.subject, &next.bytes);
        let read = read.map_err(|why| failed(format!("position {}: {why}", next.position)))?;
        bar.inc(1);
        match read {
            Read::Entry(_) | Read::SetAside(_) if next.position < range.from => {}
            Read::SetAside(_) => take(next, None)?,
            Read::Entry(entry) => take(next, Some(&entry))?,
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// A reader that knows what operators set aside.
pub(super) async fn reader(journal: &Journal) -> Result<Reader, Failure> {
    let known = setting_aside::known(journal, &CancellationToken::new()).await.map_err(unreadable)?;
    Ok(Reader::knowing(known.unwrap_or_default()))
}

/// What operators set aside, by the messages of the cluster's subject.
pub(crate) fn note_cluster(log: &mut ClusterLog, subject: &str, position: Position, bytes: &[u8]) {
    if subject == Subject::Cluster.to_string() {
        log.read(position, bytes);
    }
}
