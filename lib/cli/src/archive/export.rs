//! Export of the log: as lines that can be imported again, or as events and columns for other programs.

use ::journal::{Journal, StoredEntry};
use audit::export::{Manifest, Writer};
use cli_base::failure::Failure;
use host::quarantine;
use projections::Reader;
use projections::reader::ReadMessage;
#[cfg(feature = "parquet")]
use projections::tables;
use schemas::names::ClusterId;
use schemas::{Entry, Position, cloudevent};
use tokio_util::sync::CancellationToken;

use super::file::Sink;
#[cfg(feature = "parquet")]
use super::parquet::ParquetWriter;
use super::range::Range;
use super::source::Pages;
use super::{failed, progress_bar, to_message, unreadable};

/// Exports a range of the log as lines that can be imported again.
///
/// # Errors
/// The journal cannot be read or has a gap, or the lines cannot be written.
pub(crate) async fn export_lines(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<Manifest, Failure> {
    let (mut lines, head) = LineEncoder::start(cluster, range);
    sink.write(&head)?;
    let mut pages = Pages::new(journal.clone(), Position(range.from.0 - 1), range.to);
    let bar = progress_bar(range.len(), "exporting");
    while let Some(next) = pages.next().await? {
        sink.write(&lines.next(next)?)?;
        bar.inc(1);
    }
    let (manifest, last) = lines.finish()?;
    sink.write(&last)?;
    bar.finish_and_clear();
    Ok(manifest)
}

/// Encoder of a range as lines. Encoding fails if a position is missing.
struct LineEncoder {
    writer: Writer,
    expected: Position,
    range: Range,
}

impl LineEncoder {
    fn start(cluster: ClusterId, range: Range) -> (Self, Vec<u8>) {
        let (writer, head) = Writer::start(&host::fingerprint::version(), cluster, range.from);
        (Self { writer, expected: range.from, range }, head)
    }

    /// Returns the line of the next message.
    fn next(&mut self, recorded: StoredEntry) -> Result<Vec<u8>, Failure> {
        check_next(self.expected, recorded.position)?;
        self.expected = Position(recorded.position.0 + 1);
        self.writer.add(&to_message(recorded)).map_err(|error| failed(error.to_string()))
    }

    /// Returns the manifest, and the line of the manifest, which is the last line of the export.
    fn finish(self) -> Result<(Manifest, Vec<u8>), Failure> {
        check_next(self.expected, Position(self.range.to.0 + 1))?;
        Ok(self.writer.finish())
    }
}

fn check_next(expected: Position, found: Position) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let why = format!("the journal is damaged: position {expected} is missing");
    Err(failed(why).advise("list all missing positions: muster audit verify"))
}

/// Statistics of an export of events.
#[derive(Default)]
pub(crate) struct EventCounts {
    pub(crate) count: u64,
    /// Number of quarantined messages, which have no events.
    pub(crate) quarantined: u64,
}

impl EventCounts {
    /// Returns the events of a message, and counts them. A quarantined message has none.
    fn take<'a, E, I: IntoIterator<Item = E>>(
        &mut self,
        entry: Option<&'a Entry>,
        events: impl FnOnce(&'a Entry) -> I,
    ) -> Vec<E> {
        let Some(entry) = entry else {
            self.quarantined += 1;
            return vec![];
        };
        let events: Vec<E> = events(entry).into_iter().collect();
        self.count += u64::try_from(events.len()).unwrap_or(u64::MAX);
        events
    }
}

/// Exports the events of a range, one per line. Quarantined messages have no events. Also returns the
/// manifest that an export of the range as lines would have.
///
/// # Errors
/// The journal cannot be read, has a gap or contains an entry of a newer program version, or the lines cannot
/// be written.
pub(crate) async fn export_events(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<(EventCounts, Manifest), Failure> {
    let (mut lines, _) = LineEncoder::start(cluster, range);
    let mut told = EventCounts::default();
    let take = |read: StoredEntry, entry: Option<&Entry>| {
        let position = read.position;
        drop(lines.next(read)?);
        for event in told.take(entry, |entry| cloudevent::entry_events(cluster, position, entry)) {
            let mut line = serde_json::to_vec(&event)
                .map_err(|error| failed(format!("position {position}: {error}")))?;
            line.push(b'\n');
            sink.write(&line)?;
        }
        Ok(())
    };
    for_each_message(journal, range, take).await?;
    let (manifest, _) = lines.finish()?;
    Ok((told, manifest))
}

/// Exports the events of a range as columns. Also returns the manifest that an export of the range as lines
/// would have. The file contains this manifest as well.
///
/// # Errors
/// The journal cannot be read, has a gap or contains an entry of a newer program version, or the columns
/// cannot be written.
#[cfg(feature = "parquet")]
pub(crate) async fn export_columns(
    journal: &Journal,
    cluster: ClusterId,
    range: Range,
    sink: &mut Sink,
) -> Result<(EventCounts, Manifest), Failure> {
    let unwritable = |error| failed(format!("can't write columns: {error}"));
    let (mut lines, _) = LineEncoder::start(cluster, range);
    let mut columns = ParquetWriter::start().map_err(unwritable)?;
    let mut told = EventCounts::default();
    let take = |read: StoredEntry, entry: Option<&Entry>| {
        let position = read.position;
        drop(lines.next(read)?);
        for row in told.take(entry, |entry| tables::events::rows(position, entry)) {
            sink.write(&columns.add(row).map_err(unwritable)?)?;
        }
        Ok(())
    };
    for_each_message(journal, range, take).await?;
    let (manifest, _) = lines.finish()?;
    sink.write(&columns.finish(&manifest).map_err(unwritable)?)?;
    Ok((told, manifest))
}

/// Passes each message of a range to `take`, with its entry unless it is quarantined. Quarantine depends on
/// earlier messages, so the log is read from its start.
async fn for_each_message(
    journal: &Journal,
    range: Range,
    mut take: impl FnMut(StoredEntry, Option<&Entry>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reader = open_reader(journal).await?;
    let mut pages = Pages::new(journal.clone(), Position(0), range.to);
    let bar = progress_bar(range.to.0, "exporting");
    while let Some(next) = pages.next().await? {
        let read = reader.read(next.position, &next.subject, &next.bytes);
        let read = read.map_err(|why| failed(format!("position {}: {why}", next.position)))?;
        bar.inc(1);
        match read {
            ReadMessage::Entry(_) | ReadMessage::Quarantined(_) if next.position < range.from => {}
            ReadMessage::Quarantined(_) => take(next, None)?,
            ReadMessage::Entry(entry) => take(next, Some(&entry))?,
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Creates a reader that knows the positions that operators quarantined.
pub(super) async fn open_reader(journal: &Journal) -> Result<Reader, Failure> {
    let known =
        quarantine::quarantined_positions(journal, &CancellationToken::new()).await.map_err(unreadable)?;
    Ok(Reader::with_quarantines(known.unwrap_or_default()))
}
