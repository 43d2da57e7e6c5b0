//! The command line: asks a running cluster, and shows what it says.
//!
//! Everything here is a client of the bus, so it works alike against a local cluster and against NATS. What is shown is
//! made by pure functions ([`rows`], [`describe`], [`live`]); answers leave by [`output`] alone, and every way to fail has
//! its exit status in [`failure`].

mod args;
mod connect;
pub(crate) mod describe;
pub(crate) mod diff;
mod emptying;
mod ended;
mod evaluation;
mod events;
pub(crate) mod failure;
pub(crate) mod file;
mod find;
mod fleet;
mod instance;
mod journal;
mod live;
mod lrp;
mod missing;
mod names;
mod near;
pub(crate) mod output;
mod parameterised;
mod past;
mod periodic;
mod plan;
mod planned;
mod progress;
mod rollout;
pub(crate) mod rows;
mod scope;
mod screen;
mod several;
mod status;
pub(crate) mod table;
mod task;
mod waits;
pub(crate) mod watch;
mod why;
pub(crate) mod words;

use std::process::ExitCode;

use clap::CommandFactory;
use runtime::telemetry;
use tokio::runtime::Builder;

pub(crate) use args::{Command, Global, Named, Strength};
use failure::{Exit, Failure};
pub(crate) use scope::check;
#[cfg(test)]
pub(crate) use scope::{DomainUse, domain_use};

/// Carries out a command, and gives the program's exit status. `Whole` is the whole command line, for completions.
pub(crate) fn run<Whole: CommandFactory>(command: Command, global: &Global) -> ExitCode {
    match carry_out::<Whole>(command, global) {
        Ok(()) => ExitCode::from(Exit::Done as u8),
        Err(failure) => {
            output::failed(&failure, global);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn carry_out<Whole: CommandFactory>(command: Command, global: &Global) -> Result<(), Failure> {
    check(&command, global)?;
    if let Command::Completion { shell } = command {
        return complete::<Whole>(shell);
    }
    // What the client has to say belongs to its answer: only what the user should know of is shown.
    telemetry::start(global.log.as_deref(), "muster=warn", telemetry::Format::Text)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "Start", format!("can't start: {error}")))?;
    runtime.block_on(ask(command, global))
}

async fn ask(command: Command, global: &Global) -> Result<(), Failure> {
    match command {
        Command::Lrp(verb) => Box::pin(lrp::run(verb, global)).await,
        Command::Instance(verb) => instance::run(verb, global).await,
        Command::Task(verb) => task::run(verb, global).await,
        Command::Periodic(verb) => periodic::run(verb, global).await,
        Command::Parameterised(verb) => parameterised::run(verb, global).await,
        Command::Domain(verb) => fleet::domain(verb, global).await,
        Command::Cell(verb) => fleet::cell(verb, global).await,
        Command::Cluster(verb) => fleet::cluster(verb, global).await,
        Command::Status => status::run(global).await,
        Command::Evaluation(verb) => evaluation::run(verb, global).await,
        Command::Events(verb) => events::run(verb, global).await,
        Command::Journal(verb) => journal::run(verb, global).await,
        Command::History(whose) => events::history(whose, global).await,
        Command::Watch => watch::run(global).await,
        Command::Why { id } => why::run(&id, global).await,
        Command::Completion { .. } => Ok(()),
    }
}

fn complete<Whole: CommandFactory>(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(shell, &mut Whole::command(), "muster", &mut script);
    output::text_as_it_is(&String::from_utf8_lossy(&script))
}
