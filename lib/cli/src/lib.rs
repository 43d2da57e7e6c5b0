//! Command line client: sends queries and commands to a cluster, and prints the replies.
//!
//! Commands reach the cluster through the bus, so they work the same with a local cluster and with NATS. Pure
//! functions (`rows`, `text::describe`, `live`) render the output. `cli_base::output` writes all replies, and
//! `cli_base::failure` assigns an exit status to every failure.

mod apply;
pub mod archive;
mod arguments;
mod audit;
mod auth;
mod bar;
mod batch;
mod bundle;
mod changes;
pub mod command;
pub mod completion;
mod dead_letters;
pub mod diff;
mod doctor;
mod ended_rows;
mod evacuation_wait;
mod evaluation;
mod events;
mod exec;
mod files;
mod find;
mod fleet;
mod founding;
pub mod help;
mod history;
mod install;
mod instance;
mod journal;
mod journal_access;
mod keys;
mod live;
mod log;
mod logs;
mod lrp;
mod parameterised;
mod past;
mod periodic;
mod placement_gap;
mod plan;
mod precondition;
mod probe;
mod process_logs;
mod progress;
mod projection;
mod ps;
pub mod recorded;
mod restarts;
mod rollback;
mod rollout;
mod rollout_history;
pub mod rows;
mod run;
mod schema;
mod screen;
pub mod secrets;
mod session;
mod sql;
mod status;
mod stuck;
pub mod synonyms;
mod task;
mod top;
mod trace;
mod waits;
pub mod watch;
mod what_if;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use cli_base::failure::Failure;
use cli_base::options::{Format, Global, OptionSource, PastView};
use cli_base::output::{self, Output};
use runtime::exit::Exit;
use runtime::telemetry;
use tokio::runtime::Builder;

use command::Command;

/// Runs a command and returns the exit status of the program. `Whole` is the complete command line, for help
/// texts.
#[must_use]
pub fn run<Whole: CommandFactory>(command: Command, global: &Global) -> ExitCode {
    let is_exec = matches!(command, Command::Instance(instance::InstanceVerb::Exec(_)));
    let done = run_command::<Whole>(command, global);
    let done = match (done, output::finish()) {
        (Ok(()), written) => written,
        (Err(failure), _) => Err(failure),
    };
    match done {
        Ok(()) => ExitCode::from(Exit::Done as u8),
        Err(failure) => {
            output::report_failure(&failure, global);
            ExitCode::from(if is_exec { failure.status_beside_program() } else { failure.status() })
        }
    }
}

fn run_command<Whole: CommandFactory>(command: Command, global: &Global) -> Result<(), Failure> {
    check(global)?;
    // The client returns errors as part of its results. By default, therefore, only warnings of Muster itself
    // are logged.
    telemetry::start(global.log.as_deref(), "muster=warn,bus=off", global.log_format.into())
        .map_err(|error| Failure::usage(error.to_string()))?;
    // Projections are folded and written concurrently.
    let of_tables = matches!(command, Command::Projection(_));
    let mut builder = if of_tables { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = builder.enable_all().build().map_err(|error| {
        Failure::new(Exit::Failed, "Start", format!("can't start the async runtime: {error}"))
    })?;
    runtime.block_on(async {
        let Some(as_of) = global.as_of else { return dispatch::<Whole>(command, global).await };
        let past = PastView::as_of(as_of, global).await?;
        let global = Global { past: Some(past.clone()), ..global.clone() };
        let done = dispatch::<Whole>(command, &global).await;
        // A failed command has printed nothing, with one exception: an unhealthy status prints its result and
        // fails silently.
        let is_shown = done.as_ref().err().is_none_or(Failure::is_silent);
        if is_shown && Output::new(&global).is_human_readable() {
            past.print_position();
        }
        done
    })
}

async fn dispatch<Whole: CommandFactory>(command: Command, global: &Global) -> Result<(), Failure> {
    match command {
        Command::Apply(args) => Box::pin(apply::apply(args, global)).await,
        Command::Delete(args) => Box::pin(apply::delete(args, global)).await,
        Command::Run(args) => Box::pin(run::run(args, global)).await,
        Command::Ps(args) => ps::run(args, global).await,
        Command::Logs(args) => logs::run(args, global).await,
        Command::Lrp(verb) => Box::pin(lrp::run(verb, global)).await,
        Command::Instance(verb) => instance::run(verb, global).await,
        Command::Task(verb) => task::run(verb, global).await,
        Command::Periodic(verb) => periodic::run(verb, global).await,
        Command::Parameterised(verb) => parameterised::run(verb, global).await,
        Command::Domain(verb) => fleet::domain(verb, global).await,
        Command::Cell(verb) => fleet::cell(verb, global).await,
        Command::Cluster(verb) => fleet::cluster(verb, global).await,
        Command::Status { .. } => status::run(global).await,
        Command::Install(args) => install::run(&args, global),
        Command::Doctor(args) => Box::pin(doctor::run(&args, global)).await,
        Command::Evaluation(verb) => evaluation::run(verb, global).await,
        Command::Events(verb) => events::run(verb, global).await,
        Command::Journal(verb) => journal::run(verb, global).await,
        Command::Secrets(verb) => secrets::run(verb, global).await,
        Command::Auth(verb) => auth::run(verb, global),
        Command::Probe(args) => probe::run(&args, global).await,
        Command::History(whose) => history::run(whose, global).await,
        Command::Watch => watch::run(global).await,
        Command::Top => Box::pin(top::run(global)).await,
        Command::WhatIf(args) => what_if::run(&args, global).await,
        Command::Why(args) => why::run(&args, global).await,
        Command::Diff(args) => changes::run(args, global).await,
        Command::Sql(args) => sql::run(args, global).await,
        Command::Projection(verb) => Box::pin(projection::run(verb, global)).await,
        Command::DeadLetters(verb) => Box::pin(dead_letters::run(verb, global)).await,
        Command::Trace(args) => trace::run(args, global).await,
        Command::Export(args) => log::export(args, global).await,
        Command::Import(args) => log::import(args, global).await,
        Command::Audit(verb) => Box::pin(audit::run(verb, global)).await,
        Command::Bundle(args) => bundle::run(args, global).await,
        Command::Schema(verb) => schema::run(verb, global),
        Command::Completion { shell } => completion::print_script(shell),
        Command::Man { folder } => write_man_pages(Whole::command(), &folder),
        Command::Version => print_version(global),
        Command::Help { words } => print_help(Whole::command(), &words),
    }
}

/// Refuses a domain flag that the command ignores, and an output format that the command does not support.
///
/// The environment and the options file may set a domain for all commands. Therefore only the flag is
/// refused.
pub fn check(global: &Global) -> Result<(), Failure> {
    check_options(global, help::honours(&global.command, "domain"))
}

/// Checks the options like [`check`], for a command that honours a domain or ignores it.
///
/// # Errors
/// A usage failure that names the option.
pub fn check_options(global: &Global, honours_domain: bool) -> Result<(), Failure> {
    if global.output == Format::Csv && global.command != "sql" {
        let why = "invalid output format csv: only muster sql supports it; use -o table, json or jsonl";
        return Err(Failure::usage(why));
    }
    if global.output == Format::Toml && !global.command.ends_with(" show") {
        let why = "invalid output format toml: only the commands that show a process or a task support it; use -o \
                   table, json or jsonl";
        return Err(Failure::usage(why));
    }
    let domain = global.domain.as_ref().filter(|_| global.named.domain == OptionSource::Flag);
    let Some(domain) = domain.filter(|_| !honours_domain) else { return Ok(()) };
    let failure = Failure::usage(format!("--domain {domain} is not used by this command: leave it out"));
    Err(match global.command.split(' ').next() {
        Some("events") => failure.advise(
            "filter events with --about lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID or \
             domain:NAME",
        ),
        Some("domain") => failure.advise("name the domain as an argument: muster domain refresh DOMAIN"),
        Some(_) | None => failure,
    })
}

fn print_version(global: &Global) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let row = serde_json::json!({ "version": version });
    Output::new(global).write_one(&row, |_, _| format!("muster {version}"))
}

/// Prints the list of all commands, the help of one command, or the overview.
fn print_help(whole: clap::Command, words: &[String]) -> Result<(), Failure> {
    let mut whole = help::with_help(whole, false);
    whole.build();
    if words == ["all"] {
        return output::write_line(&help::all_commands(&whole));
    }
    let mut command = &mut whole;
    for word in words {
        let failure = || {
            let why = format!("no command {}", words.join(" "));
            Failure::usage(why).advise("muster help all lists every command")
        };
        command = command.find_subcommand_mut(word).ok_or_else(failure)?;
    }
    output::write_text(&command.render_long_help().to_string())
}

/// Writes one man page for the program and one for each command.
fn write_man_pages(whole: clap::Command, folder: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(help::with_help(whole, false), folder).map_err(|error| {
        Failure::new(Exit::Failed, "File", format!("can't write to {}: {error}", folder.display()))
    })
}
