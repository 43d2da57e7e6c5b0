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
    let (mut writer, head) = Writer::begin(&host::version(), cluster, range.from);
    sink.write(&head)?;
    let mut pages = Pages::new(journal.clone(), Position(range.from.0 - 1), range.to);
    let (bar, mut expected) = (bar(range.len(), "exporting"), range.from);
    while let Some(next) = pages.next().await? {
        check_next(expected, next.position)?;
        expected = Position(expected.0 + 1);
        sink.write(&writer.line(&message(next)))?;
        bar.inc(1);
    }
    check_next(expected, Position(range.to.0 + 1))?;
    let (manifest, last) = writer.finish();
    sink.write(&last)?;
    bar.finish_and_clear();
    Ok(manifest)
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

/// Writes the events of a range, one a line. What is no entry has none.
///
/// # Errors
/// The journal can't be read, holds what a later program wrote, or the lines can't be written.
pub(crate) async fn events(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<Events, Failure> {
    let mut told = Events::default();
    let take = |read: &Recorded, entry: Option<&Entry>| {
        let position = read.position;
        for event in told.of(entry, |entry| cloudevent::of_entry(cluster, position, entry)) {
            let mut line = serde_json::to_vec(&event)
                .map_err(|error| failed(format!("position {position}: {error}")))?;
            line.push(b'\n');
            sink.write(&line)?;
        }
        Ok(())
    };
    each(journal, range, take).await?;
    Ok(told)
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
    let (mut lines, _) = Writer::begin(&host::version(), cluster, range.from);
    let mut columns = Columns::begin().map_err(unwritable)?;
    let (mut told, mut expected) = (Events::default(), range.from);
    let take = |read: &Recorded, entry: Option<&Entry>| {
        check_next(expected, read.position)?;
        expected = Position(expected.0 + 1);
        drop(lines.line(&message(read.clone())));
        for row in told.of(entry, |entry| tables::events::rows(read.position, entry)) {
            sink.write(&columns.add(row).map_err(unwritable)?)?;
        }
        Ok(())
    };
    each(journal, range, take).await?;
    check_next(expected, Position(range.to.0 + 1))?;
    let (manifest, _) = lines.finish();
    sink.write(&columns.finish(&manifest).map_err(unwritable)?)?;
    Ok((told, manifest))
}

/// Gives each message of a range to `take`, with the entry that it is, if it is one. That is told from what stands before
/// it, so the log is read from its beginning.
async fn each(
    journal: &Journal,
    range: Range,
    mut take: impl FnMut(&Recorded, Option<&Entry>) -> Result<(), Failure>,
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
            Read::SetAside(_) => take(&next, None)?,
            Read::Entry(entry) => take(&next, Some(&entry))?,
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// A reader that knows what operators set aside.
async fn reader(journal: &Journal) -> Result<Reader, Failure> {
    let known = setting_aside::known(journal, &CancellationToken::new()).await.map_err(unreadable)?;
    Ok(Reader::knowing(known.unwrap_or_default()))
}

/// What operators set aside, by the messages of the cluster's subject.
pub(crate) fn note_cluster(log: &mut ClusterLog, subject: &str, position: Position, bytes: &[u8]) {
    if subject == Subject::Cluster.to_string() {
        log.read(position, bytes);
    }
}
