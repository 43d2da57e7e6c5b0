//! Writing the log down: as lines that can be read again, or as events for programs of others.

use ::journal::Journal;
use audit::export::{Manifest, Writer};
use projections::reader::Read;
use projections::{ClusterLog, Reader};
use schemas::names::ClusterId;
use schemas::{Position, Subject, cloudevent};
use tokio_util::sync::CancellationToken;

use super::file::Sink;
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
pub(crate) struct Events {
    /// How many there are.
    pub(crate) count: u64,
    /// How many messages are no entries, and have none.
    pub(crate) set_aside: u64,
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
    let mut reader = reader(journal).await?;
    let mut pages = Pages::new(journal.clone(), Position(0), range.to);
    let (bar, mut told) = (bar(range.to.0, "exporting"), Events { count: 0, set_aside: 0 });
    // What is an entry is told from what stands before it.
    while let Some(next) = pages.next().await? {
        let position = next.position;
        let read = reader.read(position, &next.subject, &next.bytes);
        let read = read.map_err(|why| failed(format!("position {position}: {why}")))?;
        bar.inc(1);
        match read {
            Read::Entry(_) | Read::SetAside(_) if position < range.from => {}
            Read::SetAside(_) => told.set_aside += 1,
            Read::Entry(entry) => {
                for event in cloudevent::of_entry(cluster, position, &entry) {
                    let mut line = serde_json::to_vec(&event)
                        .map_err(|error| failed(format!("position {position}: {error}")))?;
                    line.push(b'\n');
                    sink.write(&line)?;
                    told.count += 1;
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(told)
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
