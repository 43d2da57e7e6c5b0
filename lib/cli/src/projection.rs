//! `muster projection`: maintenance of the tables in a database.

use std::time::Duration;

use ::projector::rebuild::{self, RebuildResult, Step};
use ::projector::verify::{self, Comparison};
use ::projector::{Error, Generation, TextRow, Url};
use access::Role;
use clap::{Args, Subcommand};
use cli_base::connect::role;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use host::quarantine;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use runtime::exit::Exit;
use runtime::stop::{self, Hangup};
use schemas::Position;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::journal_access::read_journal;
use super::sql::database_of;

/// Database option of a command.
#[derive(Clone, Debug, Args)]
pub struct DatabaseOption {
    /// Database with the tables [default: the one in the data folder of muster dev]
    #[arg(long, value_name = "URL", env = "MUSTER_DATABASE")]
    pub(crate) database: Option<Url>,
}

/// Commands for the tables as a whole.
#[derive(Clone, Debug, Subcommand)]
pub enum ProjectionVerb {
    /// List the generations of the tables, and their lag
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        of: DatabaseOption,
    },
    /// Compare every row of the tables with the log: historical rows, too. Exits
    /// with 9 if any row differs
    Verify {
        #[command(flatten)]
        of: DatabaseOption,
    },
    /// Rebuild the tables from the log: next to the live ones, then readers switch over; an interrupted
    /// rebuild is continued
    Rebuild {
        /// Start from the beginning of the log, even if an unfinished rebuild exists
        #[arg(long)]
        restart: bool,
        #[command(flatten)]
        of: DatabaseOption,
    },
    /// Grant a database role read access to the tables only
    Grant {
        /// Existing role of the database
        role: String,
        #[command(flatten)]
        of: DatabaseOption,
    },
}

pub(crate) async fn run(verb: ProjectionVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        ProjectionVerb::List { of } => list(&database_of(of.database, global)?, global).await,
        ProjectionVerb::Verify { of } => verify(&database_of(of.database, global)?, global).await,
        ProjectionVerb::Rebuild { restart, of } => {
            rebuild(&database_of(of.database, global)?, restart, global).await
        }
        ProjectionVerb::Grant { role, of } => {
            let url = database_of(of.database, global)?;
            ::projector::grant(&url, &role).await?;
            note(&format!("{role} may now read the tables of {url}, including later generations"));
            Ok(())
        }
    }
}

/// Output row for a generation of the tables.
#[derive(Serialize)]
struct GenerationRow {
    generation: i64,
    state: &'static str,
    position: Position,
    /// Number of journal entries that the tables do not contain yet. `None` if the journal cannot be read.
    behind: Option<u64>,
    cluster_id: Option<String>,
    shape: String,
    /// `true` if this version of the program uses tables of the same shape.
    is_current_shape: bool,
    indexed: bool,
}

impl GenerationRow {
    fn from_generation(standing: Generation, url: &Url, live: Option<i64>, end: Option<Position>) -> Self {
        let state = match live {
            _ if standing.live => "live",
            Some(live) if standing.number < live => "replaced",
            Some(_) | None => "building",
        };
        Self {
            generation: standing.number,
            state,
            position: standing.end.position,
            behind: end.map(|end| end.0.saturating_sub(standing.end.position.0)),
            is_current_shape: standing.is_of_this_program(url),
            cluster_id: standing.cluster_id,
            shape: standing.shape,
            indexed: standing.indexed,
        }
    }
}

async fn list(url: &Url, global: &Global) -> Result<(), Failure> {
    let all = verify::list(url).await?;
    let end = match read_journal(global).await {
        Ok(journal) => Some(journal.end().await.map_err(Error::from)?),
        Err(failure) => {
            note(&format!("can't determine how far the tables are behind: {}", failure.message));
            None
        }
    };
    let live = all.iter().find(|one| one.live).map(|one| one.number);
    let rows: Vec<_> =
        all.into_iter().map(|one| GenerationRow::from_generation(one, url, live, end)).collect();
    Output::new(global).write_rows(&rows, |rows, _| {
        let headers = ["generation", "state", "position", "behind", "cluster", "shape", "version"];
        Table::with_rows(headers, rows, |row| {
            [
                Cell::number(row.generation),
                Cell::state(row.state),
                Cell::number(row.position),
                row.behind.map_or(Cell::None, Cell::number),
                Cell::optional(row.cluster_id.as_ref()),
                Cell::text(&row.shape),
                Cell::text(if row.is_current_shape { "this" } else { "another" }),
            ]
        })
    })
}

/// Output row for a compared table.
#[derive(Serialize)]
struct TableRow {
    table: String,
    rows: u64,
    hash: String,
    log_rows: u64,
    log_hash: String,
    same: bool,
    /// First rows of the table that do not follow from the log.
    not_in_log: Vec<Map<String, Value>>,
    /// First rows that follow from the log but are missing from the table.
    not_in_table: Vec<Map<String, Value>>,
}

/// Output of `muster projection verify`.
#[derive(Serialize)]
struct Report {
    position: Position,
    same: bool,
    tables: Vec<TableRow>,
}

impl TableRow {
    fn from_comparison(compared: &Comparison) -> Self {
        let columns = compared.table.columns();
        let object = |row: &TextRow| {
            let values = columns.iter().zip(row);
            values.map(|(column, value)| (column.name.to_owned(), value.clone().into())).collect()
        };
        let [extra, lacking] = &compared.differing;
        Self {
            table: compared.table.name(),
            rows: compared.found.rows,
            hash: format!("{:032x}", compared.found.hash),
            log_rows: compared.expected.rows,
            log_hash: format!("{:032x}", compared.expected.hash),
            same: compared.is_same(),
            not_in_log: extra.iter().map(object).collect(),
            not_in_table: lacking.iter().map(object).collect(),
        }
    }
}

async fn verify(url: &Url, global: &Global) -> Result<(), Failure> {
    let journal = read_journal(global).await?;
    let stop = CancellationToken::new();
    let known =
        quarantine::quarantined_positions(&journal, &stop).await.map_err(Error::from)?.unwrap_or_default();
    let bar = bar("folding the log: {bar:30} {pos} of {len} entries, {eta} left");
    let compared = verify::verify(&journal, &known, url, |position, end| {
        bar.set_length(end.0);
        bar.set_position(position.0);
    });
    let (standing, compared) = compared.await?;
    drop(bar);
    let tables: Vec<_> = compared.iter().map(TableRow::from_comparison).collect();
    let report = Report { position: standing.end.position, same: tables.iter().all(|row| row.same), tables };
    Output::new(global).write_one(&report, |report, look| text(report, look.colour))?;
    if report.same {
        return Ok(());
    }
    let names: Vec<&str> = report.tables.iter().filter(|row| !row.same).map(|row| &*row.table).collect();
    let why = format!("tables differ from the log at position {}: {}", report.position, names.join(", "));
    Err(Failure::new(Exit::Found, "TablesDiffer", why)
        .advise("rebuild the tables: muster projection rebuild"))
}

fn text(report: &Report, colour: bool) -> String {
    let headers = ["table", "rows", "hash", "rows of the log", "same"];
    let table = Table::with_rows(headers, &report.tables, |row| {
        [
            Cell::text(&row.table),
            Cell::number(row.rows),
            Cell::text(&row.hash),
            Cell::number(row.log_rows),
            Cell::text(if row.same { "yes" } else { "no" }),
        ]
    });
    let mut text = format!("at position {}\n{}", report.position, table.render(colour));
    for row in &report.tables {
        let mut say = |what: &str, rows: &[Map<String, Value>]| {
            for row_of in rows {
                text.push_str(&format!("\n{}: {what}: {}", row.table, Value::Object(row_of.clone())));
            }
        };
        say("not in the log", &row.not_in_log);
        say("not in the table", &row.not_in_table);
    }
    text
}

/// Fails unless the role may follow the journal. Without this check, the requests would get no reply, and the
/// command would retry them forever.
fn check_may_follow(role: Option<Role>) -> Result<(), Failure> {
    match role {
        None | Some(Role::Projector | Role::BbsWriter | Role::Auctioneer | Role::Admin(_)) => Ok(()),
        Some(
            role @ (Role::Bbs
            | Role::Rep(_)
            | Role::Client(..)
            | Role::Auditor(_)
            | Role::Operator(_)
            | Role::Gateway(_)
            | Role::System),
        ) => {
            let why = format!("{role} may not follow the log, which a rebuild requires");
            Err(Failure::new(Exit::Failed, "PermissionDenied", why)
                .advise("use the credentials of a projector: --creds FILE"))
        }
    }
}

async fn rebuild(url: &Url, restart: bool, global: &Global) -> Result<(), Failure> {
    check_may_follow(role(global))?;
    let journal = read_journal(global).await?;
    let signal = |error| Failure::new(Exit::Failed, "Signal", format!("can't listen for signals: {error}"));
    let stop = stop::on_signal(Hangup::Stop).map_err(signal)?;
    let known =
        quarantine::quarantined_positions(&journal, &stop).await.map_err(Error::from)?.unwrap_or_default();
    let bar = bar("{msg} {bar:30} {pos} of {len} entries, {per_sec}, {eta} left");
    let done = rebuild::rebuild(&journal, &known, url, restart, &stop, |step| match step {
        Step::Writing(position, end) => {
            bar.set_message("writing the tables");
            bar.set_length(end.0);
            bar.set_position(position.0);
        }
        Step::Comparing => bar.set_message("creating indexes, and comparing with the old tables"),
        Step::Switching => bar.set_message("switching readers over"),
    });
    let done = done.await?;
    let reached = bar.position();
    drop(bar);
    match done {
        Some(rebuilt) => {
            Output::new(global).write_one(&RebuildOutput::from_result(&rebuilt), |shown, _| shown.text())
        }
        None => {
            let why = format!("rebuild stopped at position {reached}: readers still use the old tables");
            Err(Failure::new(Exit::Failed, "Stopped", why)
                .advise("to continue: muster projection rebuild")
                .advise("to start over: muster projection rebuild --restart"))
        }
    }
}

/// Output of `muster projection rebuild`.
#[derive(Serialize)]
struct RebuildOutput {
    generation: i64,
    position: Position,
    /// `true` if the previous tables had the same shape and were compared.
    compared: bool,
    /// Names of the tables that differed from the rebuilt tables.
    differing_tables: Vec<String>,
}

impl RebuildOutput {
    fn from_result(rebuilt: &RebuildResult) -> Self {
        let compared = rebuilt.comparison.as_deref();
        let differed = compared.unwrap_or_default().iter().filter(|one| !one.is_same());
        Self {
            generation: rebuilt.standing.number,
            position: rebuilt.standing.end.position,
            compared: compared.is_some(),
            differing_tables: differed.map(|one| one.table.name()).collect(),
        }
    }

    fn text(&self) -> String {
        let were = match self.differing_tables.as_slice() {
            _ if !self.compared => "no old tables of the same shape to compare with".to_owned(),
            [] => "the old tables had the same rows".to_owned(),
            names => format!("the old tables had other rows in {}", names.join(", ")),
        };
        let Self { generation, position, .. } = self;
        format!("readers now use generation {generation} of the tables, at position {position}: {were}")
    }
}

/// Creates a progress bar.
fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
    // The template is a valid constant, so this never fails.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
