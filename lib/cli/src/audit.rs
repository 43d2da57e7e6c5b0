//! `muster audit`: signs the log, and verifies that the log still matches its signatures.

mod checkpoints;
mod verification;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use audit::Finding;
use audit::checkpoint::{Checkpoint, LINE_BYTES, PublicKey};
use audit::export::Header;
use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use runtime::exit::Exit;
use text::words::{InvalidValue, count};

use super::archive::{file_failure, until_interrupted};
use super::audit::verification::{VerificationResult, verify_log};
use super::journal_access::inspect_journal;

/// Maximum number of findings that are shown. The total counts all of them.
const MAX_SHOWN: usize = 1_000;

/// Subcommands of `muster audit`.
#[derive(Clone, Debug, Subcommand)]
pub enum AuditVerb {
    /// Create a key that signs checkpoints. Keep it away from the machines that hold the log
    Keygen {
        /// File to create, readable by this user only
        file: PathBuf,
    },
    /// Sign the hash of the whole log: the checkpoint is appended to a file
    Checkpoint {
        /// Checkpoint file
        file: PathBuf,
        /// File with the signing key, created by muster audit keygen
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Verify the log against checkpoints or an export. Also verifies that each decision was legal when it was
    /// made; exits 9 if there are findings
    Verify {
        /// Checkpoint file, or an export of the same log; may be repeated
        #[arg(long, value_name = "FILE")]
        against: Vec<PathBuf>,
        /// Public key of the trusted checkpoints [default: the key of the first checkpoint]
        #[arg(long, value_name = "KEY", value_parser = parse_key)]
        key: Option<PublicKey>,
        /// Verify this export instead of the cluster's journal
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
    },
}

pub(super) async fn run(verb: AuditVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        AuditVerb::Keygen { file } => {
            checkpoints::keygen(&file, global).map_err(|failure| failure.while_doing("create a key"))
        }
        AuditVerb::Checkpoint { file, key } => {
            let work = checkpoints::sign(&file, &key, global);
            until_interrupted(Box::pin(work))
                .await
                .map_err(|failure| failure.while_doing("sign a checkpoint"))
        }
        AuditVerb::Verify { against, key, export } => {
            let work = verify(&against, key, export.as_deref(), global);
            until_interrupted(Box::pin(work)).await.map_err(|failure| failure.while_doing("verify the log"))
        }
    }
}

/// Kind of a file to verify against.
enum ReferenceKind {
    Checkpoints,
    Export,
}

fn reference_kind(path: &Path) -> Result<ReferenceKind, Failure> {
    let file = File::open(path).map_err(|error| file_failure(&error, path))?;
    let mut lines = BoundedLines::new(file);
    while let Some(line) = lines.next().map_err(|error| file_failure(&error, path))? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if serde_json::from_slice::<Header>(&line).is_ok() {
            return Ok(ReferenceKind::Export);
        }
        return match Checkpoint::read(&line) {
            Ok(_) => Ok(ReferenceKind::Checkpoints),
            Err(error) => {
                let why = format!("{} is neither a checkpoint file nor an export: {error}", path.display());
                Err(Failure::usage(why)
                    .advise("pass a file written by muster audit checkpoint or muster export"))
            }
        };
    }
    // An empty file counts as a checkpoint file: the verification then reports that it holds no checkpoints.
    Ok(ReferenceKind::Checkpoints)
}

/// Bounded reader of a file's lines. A line longer than `LINE_BYTES` is cut to `LINE_BYTES` + 1 bytes.
struct BoundedLines(BufReader<File>);

impl BoundedLines {
    fn new(file: File) -> Self {
        Self(BufReader::new(file))
    }

    /// Returns the next line with its terminator, or `None` at the end of the file.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let most = u64::try_from(LINE_BYTES).unwrap_or(u64::MAX) + 1;
        (&mut self.0).take(most).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') && line.len() > LINE_BYTES {
            self.0.skip_until(b'\n')?;
        }
        Ok((!line.is_empty()).then_some(line))
    }
}

async fn verify(
    files: &[PathBuf],
    key: Option<PublicKey>,
    export: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    let (mut checkpoints, mut exports) = (vec![], vec![]);
    for path in files {
        match reference_kind(path)? {
            ReferenceKind::Checkpoints => checkpoints.push(path.clone()),
            ReferenceKind::Export => exports.push(path.clone()),
        }
    }
    if checkpoints.is_empty() && key.is_some() {
        return Err(Failure::usage("--key needs a checkpoint file to verify: add --against FILE"));
    }
    let journal = match export {
        Some(_) => None,
        None => Some(inspect_journal(global).await?),
    };
    let judged = verify_log(journal.as_ref(), export, (&checkpoints, key), &exports).await;
    if let Some(journal) = journal {
        journal.close().await;
    }
    print_result(&judged?, Output::new(global))
}

/// Prints the findings and a summary.
fn print_result(judged: &VerificationResult, output: Output) -> Result<(), Failure> {
    let shown = &judged.findings[..judged.findings.len().min(MAX_SHOWN)];
    if !shown.is_empty() || !output.is_human_readable() {
        output.write_rows(shown, |findings, _| table(findings))?;
    }
    let summary = judged.summary();
    if let Some(notes) = judged.notes() {
        note(&notes);
    }
    if judged.finding_count == 0 {
        if output.is_human_readable() {
            return cli_base::output::write_line(&summary);
        }
        note(&summary);
        return Ok(());
    }
    let more = judged.finding_count.saturating_sub(u64::try_from(shown.len()).unwrap_or(u64::MAX));
    if more > 0 {
        note(&format!("and {more} more"));
    }
    note(&format!("{}: {summary}", count(judged.finding_count, "finding")));
    Err(Failure::silent(Exit::Found))
}

fn table(findings: &[Finding]) -> Table {
    let headers = ["POSITION", "KIND", "TARGET", "FINDING"];
    Table::with_rows(headers, findings, |finding| {
        let about = Some(&finding.target).filter(|about| !about.is_empty());
        [
            Cell::text(finding.position_text()),
            Cell::text(finding.kind),
            Cell::optional(about),
            Cell::text(&finding.detail),
        ]
    })
}

fn parse_key(text: &str) -> Result<PublicKey, InvalidValue> {
    let expected = "64 hexadecimal digits, as printed by muster audit keygen";
    text.parse().map_err(|_| InvalidValue::new("public key", text, expected))
}
