//! The `muster` binary.
//!
//! Each process has one role: the shim of a container, a service, or a client of a running cluster.

#[cfg(feature = "all")]
mod command_line;
#[cfg(feature = "all")]
mod dev;
mod launch;
#[cfg(all(test, feature = "all"))]
mod reference_tests;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cli_base::config;
use cli_base::options::Global;
use runtime::exit::{self, Exit};

#[cfg(feature = "all")]
use command_line::matches;

/// Messages are short-lived, and are often allocated on one thread and dropped on another. This allocator
/// reduces the cost of such allocations by about a fifth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run processes and tasks on a fleet of cells, and record every change in one log
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = exit::exit_status_help()
)]
struct Muster {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Service(launch::Service),
    #[cfg(feature = "all")]
    #[command(flatten)]
    Cli(cli::args::Command),
}

fn main() -> ExitCode {
    // This process may be the shim of a container. Each container has a shim that runs as long as the
    // container, so a shim initialises nothing else.
    let arguments: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    match arguments.iter().map(|argument| argument.as_os_str()).collect::<Vec<&OsStr>>()[..] {
        [verb, folder] if verb == "shim" => return executor::shim::run(Path::new(folder), None),
        [verb, folder, stage] if verb == "shim" => {
            return executor::shim::run(Path::new(folder), Some(stage));
        }
        [verb] if verb == "example-server" => return host::example_server::run(false),
        [verb, check] if verb == "example-server" && check == "check" => {
            return host::example_server::run(true);
        }
        _ => {}
    }
    #[cfg(feature = "all")]
    if std::env::var_os(cli::completion::VARIABLE).is_some_and(|shell| !shell.is_empty()) {
        return match cli::completion::print_candidates::<Muster>() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_parse_error(&error),
        };
    }
    let Muster { global, command } = match parse() {
        Ok(muster) => muster,
        Err(error) => return report_parse_error(&error),
    };
    match command {
        Command::Service(service) => launch::run(service, &global),
        #[cfg(feature = "all")]
        Command::Cli(command) => cli::run::<Muster>(command, &global),
    }
}

/// Prints a command line error, or the requested help.
fn report_parse_error(error: &clap::Error) -> ExitCode {
    // The message cannot be printed if the terminal is gone.
    drop(error.print());
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_exec = words.iter().take_while(|word| *word != "--").any(|word| word == "exec");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_exec => ExitCode::from(Exit::NotReached as u8),
        _ => ExitCode::from(Exit::Usage as u8),
    }
}

/// Parses the command line, with the environment and the configuration file as defaults.
fn parse() -> Result<Muster, clap::Error> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let file = config::config_path(&arguments, std::env::var_os("MUSTER_CONFIG"));
    parse_from(arguments, file.as_deref())
}

/// Parses a given command line and configuration file.
fn parse_from(arguments: Vec<OsString>, file: Option<&Path>) -> Result<Muster, clap::Error> {
    let matches = matches(arguments, file)?;
    let mut muster = Muster::from_arg_matches(&matches)?;
    let conflict = |why| Muster::command().error(ErrorKind::ArgumentConflict, why);
    muster.global.complete(&matches).map_err(conflict)?;
    Ok(muster)
}

#[cfg(not(feature = "all"))]
fn matches(arguments: Vec<OsString>, file: Option<&Path>) -> Result<clap::ArgMatches, clap::Error> {
    config::command_line::<Muster>(file)?.try_get_matches_from(arguments)
}
