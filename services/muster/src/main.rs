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

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
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
    Cli(cli::command::Command),
}

fn main() -> ExitCode {
    if let Some(status) = host::container_process::run() {
        return status;
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
    config::from_matches(&matches(arguments, file)?, |muster: &mut Muster| &mut muster.global)
}

#[cfg(not(feature = "all"))]
fn matches(arguments: Vec<OsString>, file: Option<&Path>) -> Result<clap::ArgMatches, clap::Error> {
    config::command_line::<Muster>(file)?.try_get_matches_from(arguments)
}
