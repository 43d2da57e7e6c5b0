//! `muster audit`: signing what the log says, and verifying that it still does.

mod checkpoints;
mod judging;

use std::path::{Path, PathBuf};

use audit::Finding;
use audit::checkpoint::PublicKey;
use audit::export::Head;

use self::judging::{Judged, judge};
use super::args::{AuditVerb, Global};
use super::direct::read_journal;
use super::failure::{Exit, Failure};
use super::output::{Output, note};
use super::table::{Cell, Table};
use super::words::count;
use crate::archive::{file_failure, unless_cancelled};

/// Findings that are shown, the first ones. All are counted.
const SHOWN: usize = 1_000;

pub(super) async fn run(verb: AuditVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        AuditVerb::Keygen { file } => {
            checkpoints::keygen(&file, global).map_err(|failure| failure.doing("make a key"))
        }
        AuditVerb::Checkpoint { file, key } => {
            let work = checkpoints::sign(&file, &key, global);
            unless_cancelled(Box::pin(work)).await.map_err(|failure| failure.doing("sign a checkpoint"))
        }
        AuditVerb::Verify { against, key, export } => {
            let work = verify(&against, key, export.as_deref(), global);
            unless_cancelled(Box::pin(work)).await.map_err(|failure| failure.doing("verify the log"))
        }
    }
}

/// What a file to verify against is.
enum Against {
    /// Checkpoints: the text of the file.
    Checkpoints(Vec<u8>),
    /// An export.
    Export(PathBuf),
}

fn against(path: &Path) -> Result<Against, Failure> {
    let unreadable = |error: std::io::Error| file_failure(&error, path);
    let mut first = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut file = std::io::BufReader::new(file);
    let most = 64 * 1024;
    std::io::BufRead::read_until(&mut std::io::Read::take(&mut file, most), b'\n', &mut first)
        .map_err(unreadable)?;
    if serde_json::from_slice::<Head>(&first).is_ok() {
        return Ok(Against::Export(path.to_owned()));
    }
    std::fs::read(path).map(Against::Checkpoints).map_err(unreadable)
}

async fn verify(
    files: &[PathBuf],
    key: Option<PublicKey>,
    export: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    let files = files.iter().map(|path| against(path)).collect::<Result<Vec<_>, _>>()?;
    let (mut checkpoints, mut exports) = (vec![], vec![]);
    for file in files {
        match file {
            Against::Checkpoints(text) => checkpoints.push(text),
            Against::Export(path) => exports.push(path),
        }
    }
    if checkpoints.is_empty() && key.is_some() {
        return Err(Failure::usage(
            "a key without checkpoints verifies nothing: give them with --against FILE",
        ));
    }
    let journal = match export {
        Some(_) => None,
        None => Some(read_journal(global).await?),
    };
    let judged = judge(journal.as_ref(), export, (&checkpoints, key), &exports).await;
    if let Some(journal) = journal {
        journal.close().await;
    }
    tell(&judged?, Output::new(global))
}

/// Shows what was found.
fn tell(judged: &Judged, output: Output) -> Result<(), Failure> {
    let shown = &judged.findings[..judged.findings.len().min(SHOWN)];
    if !shown.is_empty() || !output.is_for_people() {
        output.rows(shown, |findings, _| table(findings))?;
    }
    let summary = judged.summary();
    if judged.found == 0 {
        if output.is_for_people() {
            return super::output::line(&summary);
        }
        note(&summary);
        return Ok(());
    }
    let more = judged.found.saturating_sub(u64::try_from(shown.len()).unwrap_or(u64::MAX));
    if more > 0 {
        note(&format!("and {more} more"));
    }
    note(&format!("{}: {summary}", count(judged.found, "finding")));
    Err(Failure::silent(Exit::Found))
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["POSITION", "KIND", "ABOUT", "FOUND"]);
    for finding in findings {
        let about = Some(&finding.about).filter(|about| !about.is_empty());
        table.row(vec![
            Cell::text(finding.place()),
            Cell::text(finding.kind),
            Cell::maybe(about),
            Cell::text(&finding.what),
        ]);
    }
    table
}
