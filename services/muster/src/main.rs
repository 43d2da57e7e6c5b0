//! The one binary.
//!
//! Whatever it is started as, it does one thing: be a container's shim, be a service, or ask a running cluster.

mod bench;
mod cli;
mod config;
mod dev;
mod example_server;
mod home;
mod host;
mod launch;
mod local;
mod serve;
mod simulate;
mod wire;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Runs long-running processes and tasks on a fleet of cells, and keeps every change on one ordered log
#[derive(Debug, Parser)]
#[command(name = "muster", version, arg_required_else_help = true, after_help = EXITS)]
struct Muster {
    #[command(flatten)]
    global: cli::Global,
    #[command(subcommand)]
    command: Command,
}

/// What the program can be.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Service(launch::Service),
    #[command(flatten)]
    Cli(cli::Command),
    Simulate(simulate::SimulateArgs),
}

const EXITS: &str = "Exit status: 0 done, 1 error, 2 usage, 3 not found, 4 conflict, 5 server unreachable, \
                     6 not placed, 8 wait timed out";

fn main() -> ExitCode {
    // There is a shim for each container, and it lives as long: nothing of the rest is set up for it.
    let arguments: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    match arguments.iter().map(|argument| argument.as_os_str()).collect::<Vec<&OsStr>>()[..] {
        [verb, folder] if verb == "shim" => return executor::shim::run(Path::new(folder)),
        [verb] if verb == "example-server" => return example_server::run(false),
        [verb, check] if verb == "example-server" && check == "check" => return example_server::run(true),
        _ => {}
    }
    let Muster { global, command } = match parse() {
        Ok(muster) => muster,
        Err(error) => error.exit(),
    };
    match command {
        Command::Service(service) => launch::run(service, &global),
        Command::Simulate(args) => simulate::run(&args, &global),
        Command::Cli(command) => cli::run::<Muster>(command, &global),
    }
}

/// Reads the command line, over what the environment and a configuration file give.
fn parse() -> Result<Muster, clap::Error> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let mut command = Muster::command();
    if let Some(path) = config::file(&arguments, std::env::var_os("MUSTER_CONFIG")) {
        command = config::defaults(command, &path)
            .map_err(|why| Muster::command().error(clap::error::ErrorKind::ValueValidation, why))?;
    }
    Muster::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Muster::command().debug_assert();
    }

    #[test]
    fn every_command_of_the_documentation_is_read() {
        let lines = [
            "lrp desire web.toml",
            "lrp desire - --detach",
            "lrp diff web.toml",
            "lrp ls -o json",
            "desired-lrp show web",
            "lrp scale web=3 --timeout 30s",
            "lrp scale web 3",
            "lrp update web --routes r.json --annotation x --instances 2",
            "lrp remove web --reason because",
            "instance list --lrp web --cell c1 --state RUNNING --domain shop",
            "actual-lrp show web/0",
            "instance logs web/0 -f",
            "instance logs web --all",
            "instance stop web/0 --request-id again",
            "task run t.json --wait",
            "task list",
            "task show t",
            "task cancel t",
            "task resolve t",
            "task logs t -f",
            "domain list",
            "domain refresh shop --ttl 1h",
            "cell list",
            "node show c1",
            "cell evacuate c1",
            "cluster show --nats nats://127.0.0.1:4222",
            "--socket /tmp/x cluster show",
            "evaluation list",
            "evaluation show deadbeef --full-ids",
            "events tail --after 7",
            "events list --about lrp:web -o jsonl",
            "events show 7",
            "history lrp web",
            "history instance web/0",
            "history task t",
            "history cell c1",
            "why web/0 --color never",
            "watch --domain shop",
            "completion bash",
            "simulate tests/stories/crashes.txt --last 20",
            "simulate --seed 17 -o jsonl",
        ];
        for line in lines {
            let words = std::iter::once("muster").chain(line.split(' '));
            assert!(Muster::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn bad_words_are_refused() {
        let lines = [
            "lrp show a.b",
            "lrp scale",
            "task cancel *",
            "domain refresh shop --ttl soon",
            "events show x",
            "events list --about pod:x",
            "instance list --state sleeping",
            "cluster show --nats a --socket b",
            "fly",
            "simulate",
            "simulate story.txt --seed 3",
        ];
        for line in lines {
            let words = std::iter::once("muster").chain(line.split(' '));
            let refused = Muster::try_parse_from(words).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{line}");
        }
    }
}
