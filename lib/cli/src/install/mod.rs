//! `muster install --systemd`: writes the systemd units that are embedded in this program, and the files that
//! the units need.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | the command: checks, file access, output |
//! | `plan.rs` | file contents, and actions for existing files (pure) |

mod plan;

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use runtime::exit::Exit;
use rustix::process::geteuid;
use serde::Serialize;
use text::chain;

use plan::{Action, Item, Kind};

/// Directory that exists if systemd is the running init system.
const SYSTEMD_RUN_DIR: &str = "/run/systemd/system";

/// Options of `muster install`.
#[derive(Clone, Debug, Args)]
pub struct InstallArgs {
    /// Write systemd units
    #[arg(long, required = true)]
    systemd: bool,
    /// Services to install: bbs, auctioneer, rep, projector; may be repeated [default: all of them]
    #[arg(long = "role", value_enum, value_delimiter = ',', value_name = "ROLE")]
    roles: Vec<UnitRole>,
    /// Variables file of the selected role, such as the users/NAME.env that muster auth creates; requires
    /// exactly one --role; an existing variables file is not replaced
    #[arg(long, value_name = "FILE")]
    env: Option<PathBuf>,
    /// Installation prefix of this program, such as /usr/local; the program is PREFIX/bin/muster [default:
    /// path of the running program]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Write below this folder instead of into the file system of this host, for packages and tests
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Show the planned changes without writing files
    #[arg(long)]
    dry_run: bool,
    /// Overwrite existing units that differ. Files with variables are never overwritten
    #[arg(long)]
    force: bool,
}

/// Role of a service that has a systemd unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum UnitRole {
    /// Accepts commands and decides.
    Bbs,
    /// Places instances and tasks on cells.
    Auctioneer,
    /// Runs containers on a cell.
    Rep,
    /// Maintains projections in a database.
    Projector,
}

/// Output row for one file.
#[derive(Serialize)]
struct Row {
    path: PathBuf,
    action: Action,
    /// Line differences between the existing and the planned file. Empty if the files are equal.
    differences: Vec<String>,
}

pub(crate) fn run(args: &InstallArgs, global: &Global) -> Result<(), Failure> {
    validate(args)?;
    let program = program_path(args.prefix.as_deref())?;
    let env = args.env.as_deref().map(|path| read(path).map_err(|why| failed(path, &why))).transpose()?;
    let mut roles =
        if args.roles.is_empty() { UnitRole::value_variants().to_vec() } else { args.roles.clone() };
    roles.sort();
    roles.dedup();
    let items = plan::items(&roles, &program, env.as_deref());
    let mut rows = vec![];
    for item in items {
        rows.push(plan_row(item, args)?);
    }
    let taken: Vec<String> = rows
        .iter()
        .filter(|(row, _)| row.action == Action::Differs)
        .map(|(row, _)| row.path.display().to_string())
        .collect();
    if !args.dry_run && taken.is_empty() {
        for (row, item) in rows.iter().filter(|(row, _)| row.action.is_write()) {
            write(&row.path, item).map_err(|why| failed(&row.path, &why))?;
        }
    }
    let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    let output = Output::new(global);
    output.write_rows(&rows, |rows, _| table(rows, args.dry_run || !taken.is_empty()))?;
    if !taken.is_empty() && !args.dry_run {
        let why = format!("nothing was written, because different files exist: {}", taken.join(", "));
        return Err(Failure::new(Exit::Conflict, "Exists", why).advise(
            "overwrite them: --force; settings in a drop-in (systemctl edit) are never overwritten",
        ));
    }
    if output.is_human_readable() {
        plan::next(&roles, args.root.is_some(), args.dry_run).iter().for_each(|line| note(line));
    }
    Ok(())
}

/// Validates the arguments. Also requires systemd and root unless `--root` or `--dry-run` is set.
fn validate(args: &InstallArgs) -> Result<(), Failure> {
    if args.env.is_some() && args.roles.len() != 1 {
        return Err(Failure::usage("--env FILE sets the variables of one role: select it with --role"));
    }
    if args.root.is_some() || args.dry_run {
        return Ok(());
    }
    if !Path::new(SYSTEMD_RUN_DIR).is_dir() {
        let why = format!("this host doesn't run systemd: {SYSTEMD_RUN_DIR} does not exist");
        return Err(Failure::new(Exit::Failed, "NoSystemd", why)
            .advise("write into a folder: --root DIR; or show the planned files: --dry-run"));
    }
    if !geteuid().is_root() {
        return Err(Failure::new(Exit::Failed, "NotRoot", "only root may install units on this host")
            .advise("use sudo muster install --systemd ..; or write into a folder: --root DIR"));
    }
    Ok(())
}

/// Returns the path of the program that the units start.
fn program_path(prefix: Option<&Path>) -> Result<PathBuf, Failure> {
    let program = match prefix {
        Some(prefix) => prefix.join("bin/muster"),
        None => std::env::current_exe().map_err(|error| {
            Failure::new(Exit::Failed, "Failed", format!("can't determine the path of this program: {error}"))
        })?,
    };
    let text = program.display().to_string();
    if !program.is_absolute()
        || text.contains(|c: char| c.is_whitespace() || c.is_control() || "%$\"'\\".contains(c))
    {
        let why = format!(
            "invalid path of the program {text:?}: expected an absolute path \
             without blanks, quotes, \\, % and $"
        );
        return Err(Failure::usage(why));
    }
    Ok(program)
}

/// Determines the action for one file.
fn plan_row(item: Item, args: &InstallArgs) -> Result<(Row, Item), Failure> {
    let path = match &args.root {
        Some(root) => root.join(item.path.trim_start_matches('/')),
        None => PathBuf::from(&item.path),
    };
    let there = match read(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&path, &error)),
    };
    let (action, differences) = plan::action(&item, there.as_deref(), args.force);
    Ok((Row { path, action, differences }, item))
}

fn read(path: &Path) -> std::io::Result<String> {
    fs::read_to_string(path)
}

/// Writes a file atomically. Fails if `item` is a variables file and the file already exists.
fn write(path: &Path, item: &Item) -> std::io::Result<()> {
    let (mode, folder_mode) = match item.kind {
        Kind::Variables => (0o600, 0o755),
        Kind::Unit | Kind::Users => (0o644, 0o755),
    };
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = PathBuf::from(name);
    drop(fs::remove_file(&draft));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    file.write_all(item.content.as_bytes())?;
    file.sync_all()?;
    match item.kind {
        Kind::Variables => {
            // Another process may have created the file after the planning. `hard_link` never replaces a
            // file.
            let made = fs::hard_link(&draft, path);
            fs::remove_file(&draft)?;
            made
        }
        Kind::Unit | Kind::Users => fs::rename(&draft, path),
    }
}

fn failed(path: &Path, why: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "Install", format!("{}: {}", path.display(), chain(why)))
}

fn table(rows: &[Row], would: bool) -> Table {
    let mut table = Table::new(&["FILE", if would { "PLANNED" } else { "RESULT" }]);
    for Row { path, action, differences } in rows {
        table.row(vec![Cell::text(path.display()), Cell::text(action.word())]);
        for line in differences {
            table.row(vec![Cell::text(format!("  {line}")), Cell::text("")]);
        }
    }
    table
}
