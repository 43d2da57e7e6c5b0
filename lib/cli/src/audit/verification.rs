//! Verification of a log in a single pass: its checkpoints, its match with exports, and the legality of every
//! decision.

use std::path::{Path, PathBuf};

use ::journal::Journal;
use audit::checkpoint::PublicKey;
use audit::compare::{Compare, Side};
use audit::export::{ExportError, ParsedLine};
use audit::verify::{Checkpoints, Trust, Verifier};
use audit::{Chain, Finding, Kind, Law, Message};
use cli_base::failure::Failure;
use explain::recorded::note_quarantined;
use host::quarantine;
use projections::cluster_log::QuarantinedPositions;
use projections::reader::{ReadMessage, empty_entry};
use projections::{ClusterLog, Reader, World};
use schemas::names::ClusterId;
use schemas::{Entry, Position};
use text::words::count;
use tokio_util::sync::CancellationToken;

use super::{BoundedLines, MAX_SHOWN};
use crate::archive::file::{ExportReader, ReadError};
use crate::archive::source::Pages;
use crate::archive::{failed, file_failure, known_cluster, progress_bar, to_message, unreadable};

/// Maximum number of positions listed in one line.
const MAX_LISTED: usize = 10;

/// Result of a verification.
pub(super) struct VerificationResult {
    /// First findings, up to the maximum number in the output.
    pub(super) findings: Vec<Finding>,
    /// Total number of findings.
    pub(super) finding_count: u64,
    /// First and last position of the log.
    range: (Position, Position),
    chain: Option<Chain>,
    checkpoints: Option<(usize, usize)>,
    exports: usize,
    /// `true` if decisions can be checked, which requires a log that starts at position 1.
    decisions_judged: bool,
    aside: QuarantineSummary,
}

/// Positions quarantined by operators.
#[derive(Default)]
struct QuarantineSummary {
    all: Vec<Position>,
    /// Quarantined positions whose entries this program can read. These positions are suspicious, because a
    /// forged quarantine record could hide a valid entry.
    readable: Vec<Position>,
}

impl VerificationResult {
    /// Creates a result without findings.
    fn new(from: Position, exports: usize) -> Self {
        let decisions_judged = from == Position(1);
        Self {
            findings: vec![],
            finding_count: 0,
            range: (from, Position(from.0.saturating_sub(1))),
            chain: decisions_judged.then(Chain::default),
            checkpoints: None,
            exports,
            decisions_judged,
            aside: QuarantineSummary::default(),
        }
    }

    fn add_findings(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            // Each of several checkpoint files reports the same missing entries.
            if self.findings.last() == Some(&finding) {
                continue;
            }
            self.finding_count += 1;
            if self.findings.len() < MAX_SHOWN {
                self.findings.push(finding);
            }
        }
    }

    /// Formats the result as one line.
    pub(super) fn summary(&self) -> String {
        let mut parts = vec![format!("positions {}-{}", self.range.0, self.range.1)];
        if let Some(chain) = &self.chain {
            parts.push(format!("hash {}", chain.hash()));
        }
        parts.push(match self.checkpoints {
            Some((held, all)) => format!("{held} of {all} checkpoints hold"),
            None => "no checkpoints were given".to_owned(),
        });
        if self.exports > 0 {
            parts.push("compared message by message".to_owned());
        }
        parts.push(match (self.decisions_judged, self.finding_count) {
            (true, 0) => "every decision was legal".to_owned(),
            (true, _) => "every decision was judged".to_owned(),
            (false, _) => "decisions were not judged: the log does not start at position 1".to_owned(),
        });
        let aside = &self.aside.all;
        if !aside.is_empty() {
            let positions = count(u64::try_from(aside.len()).unwrap_or(u64::MAX), "position");
            parts.push(format!("{positions} quarantined by operators ({})", format_positions(aside)));
        }
        parts.join(", ")
    }

    /// Returns a warning about quarantined entries that this program can read. The warning is not a finding.
    pub(super) fn notes(&self) -> Option<String> {
        let readable = &self.aside.readable;
        (!readable.is_empty()).then(|| {
            format!(
                "operators quarantined entries that this version can read, and every service skips them: \
                 check that the quarantine is justified ({})",
                format_positions(readable)
            )
        })
    }
}

/// Formats the first positions, and the number of remaining positions.
fn format_positions(positions: &[Position]) -> String {
    let first: Vec<String> = positions.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = positions.len().saturating_sub(MAX_LISTED);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

/// Source of the log to verify.
enum Log {
    Journal(Pages),
    Export(Box<ExportReader>),
}

impl Log {
    /// Returns the next message. If the export is damaged, returns a finding instead and ends the log.
    async fn next(&mut self, last: Position) -> Result<Result<Option<Message>, Finding>, Failure> {
        match self {
            Self::Journal(pages) => Ok(Ok(pages.next().await?.map(to_message))),
            Self::Export(lines) => loop {
                match lines.next() {
                    Ok(Some(ParsedLine::Message(message))) => return Ok(Ok(Some(message))),
                    Ok(Some(ParsedLine::Header(_) | ParsedLine::Manifest(_))) => {}
                    Ok(None) => return Ok(Ok(None)),
                    Err(ReadError::File(failure)) => return Err(failure),
                    Err(ReadError::Export(error)) => return Ok(Err(export_finding(&error, last))),
                }
            },
        }
    }
}

/// Converts an error in the verified export to a finding.
fn export_finding(error: &ExportError, last: Position) -> Finding {
    let next = Position(last.0 + 1);
    let (kind, position) = match error {
        ExportError::Truncated(_) => (Kind::Missing, next),
        ExportError::Gap { expected, .. } => (Kind::Missing, *expected),
        ExportError::Altered(_) => (Kind::Altered, last),
        ExportError::InvalidHeader
        | ExportError::Format(_)
        | ExportError::Line { .. }
        | ExportError::MessageTooLong { .. }
        | ExportError::TrailingLine => (Kind::Altered, next),
    };
    let what = format!("the export: {error}");
    Finding::at_position(kind, position, what)
}

/// Verifies a journal or an export.
pub(super) async fn verify_log(
    journal: Option<&Journal>,
    export: Option<&Path>,
    (files, key): (&[PathBuf], Option<PublicKey>),
    exports: &[PathBuf],
) -> Result<VerificationResult, Failure> {
    let OpenedLog { mut log, cluster, from, end, known } = open(journal, export).await?;
    let mut judged = VerificationResult::new(from, exports.len());
    let mut stretches = vec![];
    for file in files {
        let read = checkpoints(file, Trust { key, cluster })?;
        let (_, all) = judged.checkpoints.unwrap_or_default();
        judged.checkpoints = Some((0, all + read.trusted.len()));
        stretches.push(Verifier::new(read.trusted, from));
        judged.add_findings(read.findings);
        judged.finding_count += read.omitted_findings;
    }
    if stretches.is_empty() {
        // Missing entries are detected even without checkpoints.
        stretches.push(Verifier::new(vec![], from));
    }
    let mut others =
        exports.iter().map(|path| ReferenceExport::open(path, from)).collect::<Result<Vec<_>, _>>()?;
    let mut bench = DecisionJudge::new(known, judged.decisions_judged);
    let bar = progress_bar(end.0, "verifying");
    loop {
        let next = match log.next(judged.range.1).await? {
            Ok(next) => next,
            Err(finding) => {
                judged.add_findings([finding]);
                None
            }
        };
        let Some(message) = next else { break };
        for stretch in &mut stretches {
            judged.add_findings(stretch.add(&message));
        }
        for other in &mut others {
            judged.add_findings(other.take(Some(&message))?);
        }
        judged.add_findings(bench.judge(&message));
        judged.chain.iter_mut().for_each(|chain| chain.add(&message));
        judged.range.1 = message.position;
        bar.inc(1);
    }
    bar.finish_and_clear();
    judged.add_findings(missing_end(judged.range.1, end));
    for other in &mut others {
        judged.add_findings(other.take(None)?);
    }
    if let Some((held, _)) = &mut judged.checkpoints {
        *held = stretches.iter().map(Verifier::matched_checkpoints).sum();
    }
    for stretch in stretches {
        judged.add_findings(stretch.finish());
    }
    judged.add_findings(bench.check_world());
    judged.aside = bench.aside;
    judged.findings.sort_by_key(|one| (one.position, one.last_position, one.kind));
    Ok(judged)
}

/// Reads a checkpoint file line by line.
fn checkpoints(path: &Path, trust: Trust) -> Result<Checkpoints, Failure> {
    let unreadable = |error: std::io::Error| file_failure(&error, path);
    let mut lines = BoundedLines::new(std::fs::File::open(path).map_err(unreadable)?);
    let mut read = Checkpoints::start(trust);
    while let Some(line) = lines.next().map_err(unreadable)? {
        read.read_line(&line);
    }
    Ok(read.finish())
}

/// Returns a finding if the last message is before the end position that the journal reports.
fn missing_end(last: Position, end: Position) -> Option<Finding> {
    let what = format!("no message, but the journal ends at position {end}");
    let (kind, position) = (Kind::Missing, Position(last.0 + 1));
    (last < end).then(|| Finding { kind, position, last_position: end, target: String::new(), detail: what })
}

/// Opened log, ready to be verified.
struct OpenedLog {
    log: Log,
    /// Id of the cluster. `None` if the founding entry is missing or damaged.
    cluster: Option<ClusterId>,
    from: Position,
    end: Position,
    /// Positions quarantined by operators.
    known: QuarantinedPositions,
}

async fn open(journal: Option<&Journal>, export: Option<&Path>) -> Result<OpenedLog, Failure> {
    match (journal, export) {
        (Some(journal), _) => {
            let end = journal.end().await.map_err(unreadable)?;
            if end == Position(0) {
                return Err(failed("the journal is empty: nothing has happened yet"));
            }
            let known = quarantine::quarantined_positions(journal, &CancellationToken::new())
                .await
                .map_err(unreadable)?;
            Ok(OpenedLog {
                log: Log::Journal(Pages::until_available_end(journal.clone(), Position(0), end)),
                cluster: known_cluster(journal).await?,
                from: Position(1),
                end,
                known: known.unwrap_or_default(),
            })
        }
        (None, Some(path)) => open_export(path),
        (None, None) => Err(Failure::usage("there is nothing to verify")),
    }
}

/// Opens an export. The export is first read to its end, because a quarantine record follows the entry that
/// it quarantines.
fn open_export(path: &Path) -> Result<OpenedLog, Failure> {
    let mut lines = ExportReader::open(path)?;
    let Some(ParsedLine::Header(head)) = lines.next_valid()? else {
        return Err(Failure::usage(format!("{} is not an export", path.display())));
    };
    let (mut log, mut end) = (ClusterLog::default(), Position(head.from.0.saturating_sub(1)));
    while let Ok(Some(taken)) = lines.next() {
        if let ParsedLine::Message(message) = taken {
            note_quarantined(&mut log, &message.subject, message.position, &message.bytes);
            end = message.position;
        }
    }
    let known = log.quarantined().clone();
    let log = Log::Export(Box::new(ExportReader::open(path)?));
    Ok(OpenedLog { log, cluster: Some(head.cluster), from: head.from, end, known })
}

/// Checker for the decisions in a log.
struct DecisionJudge {
    known: QuarantinedPositions,
    reader: Reader,
    world: World,
    law: Law,
    /// `true` after an entry that the checker cannot interpret. Later entries are not checked.
    halted: bool,
    aside: QuarantineSummary,
}

impl DecisionJudge {
    fn new(known: QuarantinedPositions, judges: bool) -> Self {
        Self {
            known: known.clone(),
            reader: Reader::with_quarantines(known),
            world: World::new(),
            law: Law::default(),
            halted: !judges,
            aside: QuarantineSummary::default(),
        }
    }

    fn judge(&mut self, message: &Message) -> Vec<Finding> {
        let position = message.position;
        let is_aside = self.known.contains_key(&position);
        if is_aside {
            self.aside.all.push(position);
            let read = self.reader.decode(message.position, &message.subject, &message.bytes);
            self.aside.readable.extend(read.is_ok().then_some(position));
        }
        if self.halted {
            return vec![];
        }
        let found = |kind, detail: String| vec![Finding::at_position(kind, position, detail)];
        match self.reader.read(position, &message.subject, &message.bytes) {
            Ok(ReadMessage::Entry(entry)) => {
                let mut findings = id_mismatch(message, &entry);
                findings.extend(self.law.judge(&self.world, position, &entry));
                self.world.fold(position, &entry);
                findings
            }
            Ok(ReadMessage::Quarantined(why)) => {
                self.world.fold(position, &empty_entry());
                if is_aside {
                    self.law.quarantine(&message.subject, &message.bytes);
                    return vec![];
                }
                found(Kind::InvalidEntry, why)
            }
            Err(why) => {
                self.halted = true;
                found(Kind::Unreadable, format!("{why}; later decisions are not judged"))
            }
        }
    }

    /// Checks the World at the end of the log. A World after quarantined entries is not checked, because
    /// these entries may have changed any record.
    fn check_world(&self) -> Vec<Finding> {
        if self.halted || !self.aside.all.is_empty() {
            return vec![];
        }
        let finding = |violation: projections::Violation| {
            Finding::at_position(Kind::InvariantViolated, self.world.position(), violation.to_string())
        };
        self.world.check().into_iter().map(finding).collect()
    }
}

/// Returns a finding if the message id differs from the id of its entry.
fn id_mismatch(message: &Message, entry: &Entry) -> Vec<Finding> {
    if message.id == Some(entry.id) {
        return vec![];
    }
    let is = message.id.map_or_else(|| "has no id".to_owned(), |id| format!("has id {id}"));
    let (position, detail) = (message.position, format!("the message {is}, but contains entry {}", entry.id));
    vec![Finding::at_position(Kind::Altered, position, detail)]
}

/// Export to compare the log with.
struct ReferenceExport {
    lines: ExportReader,
    compare: Compare,
    path: PathBuf,
    ended: bool,
}

impl ReferenceExport {
    /// Opens an export, which must start at the same position as the log.
    fn open(path: &Path, from: Position) -> Result<Self, Failure> {
        let mut lines = ExportReader::open(path)?;
        match lines.next_valid()? {
            Some(ParsedLine::Header(head)) if head.from == from => {}
            Some(ParsedLine::Header(_) | ParsedLine::Message(_) | ParsedLine::Manifest(_)) | None => {
                let why = format!("{} does not start at position {from} like the log", path.display());
                return Err(Failure::usage(why));
            }
        }
        Ok(Self { lines, compare: Compare::default(), path: path.to_owned(), ended: false })
    }

    /// Compares the next message of the verified log, or its end if `message` is `None`.
    fn take(&mut self, message: Option<&Message>) -> Result<Vec<Finding>, Failure> {
        let mut findings = self.feed()?;
        findings.extend(self.compare.add(Side::Audited, message));
        if message.is_none() {
            findings.extend(self.feed()?);
        }
        Ok(findings)
    }

    /// Reads from the export while the comparison needs messages.
    fn feed(&mut self) -> Result<Vec<Finding>, Failure> {
        let mut findings = vec![];
        while self.compare.next_side() == Some(Side::Reference) && !self.ended {
            let next = self
                .lines
                .next_valid()
                .map_err(|failure| failure.while_doing(format!("compare with {}", self.path.display())))?;
            match next {
                Some(ParsedLine::Message(message)) => {
                    findings.extend(self.compare.add(Side::Reference, Some(&message)));
                }
                Some(ParsedLine::Header(_) | ParsedLine::Manifest(_)) => {}
                None => {
                    self.ended = true;
                    findings.extend(self.compare.add(Side::Reference, None));
                }
            }
        }
        Ok(findings)
    }
}
