//! Shell completion: the shell runs this program to get candidates, which include live names of the cluster.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::{Global, OptionSources};
use cli_base::output;
use client::ListFilter;
use runtime::exit::Exit;
use tokio::runtime::Builder;

/// Environment variable that the completion scripts set when a shell requests candidates.
pub const VARIABLE: &str = "MUSTER_COMPLETE";

/// Maximum time to wait for the names of a cluster. After a timeout, no names are offered.
const PATIENCE: Duration = Duration::from_millis(500);

/// Shells with completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

/// Kinds of names that exist in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Processes,
    Instances,
    Tasks,
    Periodic,
    Parameterised,
    Domains,
    Cells,
    /// Processes, instances and tasks.
    Work,
}

/// Prints the completion script of a shell.
pub(super) fn print_script(shell: CompletionShell) -> Result<(), Failure> {
    let completer: &dyn EnvCompleter = match shell {
        CompletionShell::Bash => &Bash,
        CompletionShell::Elvish => &Elvish,
        CompletionShell::Fish => &Fish,
        CompletionShell::Powershell => &Powershell,
        CompletionShell::Zsh => &Zsh,
    };
    let mut script = vec![];
    completer.write_registration(VARIABLE, "muster", "muster", "muster", &mut script).map_err(|error| {
        Failure::new(Exit::Failed, "Output", format!("can't create the completion script: {error}"))
    })?;
    output::write_text(&String::from_utf8_lossy(&script))
}

/// Prints the candidates for a shell. `Whole` is the complete command line.
///
/// # Errors
/// The shell is unknown, or the candidates cannot be written.
pub fn print_candidates<Whole: CommandFactory>() -> Result<(), clap::Error> {
    let complete =
        CompleteEnv::with_factory(|| with_live_names(Whole::command(), "", Whole::command)).var(VARIABLE);
    complete.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref()).map(drop)
}

/// Adds live names to the arguments of a command and its subcommands.
fn with_live_names(command: Command, noun: &str, whole: fn() -> Command) -> Command {
    let subcommands: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match names_of(noun, arg.get_id().as_str()) {
        Some(names) => arg.add(ArgValueCandidates::new(move || candidates(names, whole))),
        None => arg,
    });
    let is_noun = |name: &str| kind(name).is_some();
    subcommands.into_iter().fold(command, |command, name| {
        let noun = if is_noun(&name) { name.clone() } else { noun.to_owned() };
        command.mut_subcommand(name, |sub| with_live_names(sub, &noun, whole))
    })
}

/// Returns the kind of names that belongs to a noun of the command line.
fn kind(noun: &str) -> Option<Names> {
    match noun {
        "lrp" => Some(Names::Processes),
        "instance" => Some(Names::Instances),
        "task" => Some(Names::Tasks),
        "periodic" => Some(Names::Periodic),
        "parameterised" => Some(Names::Parameterised),
        "domain" => Some(Names::Domains),
        "cell" => Some(Names::Cells),
        "logs" | "why" => Some(Names::Work),
        _ => None,
    }
}

/// Returns the kind of names that an argument accepts below a noun.
fn names_of(noun: &str, argument: &str) -> Option<Names> {
    match argument {
        "guid" | "guids" | "id" | "name" | "counts" => kind(noun),
        "lrp" | "cell" | "domain" => kind(argument),
        _ => None,
    }
}

fn candidates(names: Names, whole: fn() -> Command) -> Vec<CompletionCandidate> {
    let global = global_options(whole);
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return vec![] };
    // A shell cannot show an error. If the cluster does not answer, no names are offered.
    let found = runtime
        .block_on(async { tokio::time::timeout(PATIENCE, live_names(names, &global)).await.ok()?.ok() });
    found.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the options that locate the cluster, from the environment and from the incomplete command line.
fn global_options(whole: fn() -> Command) -> Global {
    let line: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let matches: Option<ArgMatches> = whole().ignore_errors(true).try_get_matches_from(line).ok();
    let read = |matches: ArgMatches| {
        let global = Global::from_arg_matches(&matches).ok()?;
        Some(Global { named: OptionSources::from_matches(&matches), timeout: Some(PATIENCE), ..global })
    };
    matches.and_then(read).unwrap_or_default()
}

async fn live_names(names: Names, global: &Global) -> Result<Vec<String>, Failure> {
    let client = connect(global).await?;
    let all = ListFilter::default();
    let mut found = vec![];
    if matches!(names, Names::Processes | Names::Work) {
        found.extend(client.lrps(&all).await?.rows.into_iter().map(|row| row.process_guid.to_string()));
    }
    if matches!(names, Names::Instances | Names::Work) {
        let rows = client.effective_instances(&all).await?.rows;
        found.extend(rows.into_iter().map(|row| format!("{}/{}", row.process_guid, row.index)));
    }
    if matches!(names, Names::Tasks | Names::Work) {
        found.extend(client.tasks(&all).await?.rows.into_iter().map(|row| row.task_guid.to_string()));
    }
    match names {
        Names::Processes | Names::Instances | Names::Tasks | Names::Work => {}
        Names::Periodic => {
            let rows = client.periodics(&all).await?.rows;
            found.extend(rows.into_iter().map(|row| row.periodic_guid.to_string()));
        }
        Names::Parameterised => {
            let rows = client.parameterised(&all).await?.rows;
            found.extend(rows.into_iter().map(|row| row.parameterised_guid.to_string()));
        }
        Names::Domains => {
            found.extend(client.domains().await?.rows.into_iter().map(|row| row.domain.to_string()));
            // A domain without any refresh is known only by its objects.
            found.extend(client.lrps(&all).await?.rows.into_iter().map(|row| row.domain.to_string()));
            found.extend(client.tasks(&all).await?.rows.into_iter().map(|row| row.domain.to_string()));
        }
        Names::Cells => {
            found.extend(client.cells().await?.rows.into_iter().map(|row| row.cell_id.to_string()));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
