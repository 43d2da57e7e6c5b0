//! The `muster` binary.
//!
//! Each process has one role: the shim of a container, a service, or a client of a running cluster.

mod archive;
mod bench;
mod callback;
mod cli;
mod config;
mod dev;
mod error;
mod example_server;
mod founding;
mod home;
mod host;
mod http;
mod launch;
mod local;
mod otlp;
mod serve;
mod simulate;
mod supervised;
mod transfers;
mod watched;
mod wire;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Messages are short-lived, and are often allocated on one thread and dropped on another. This allocator
/// reduces the cost of such allocations by about a fifth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run long-running processes and tasks on a fleet of cells, and record every change in one ordered log
#[derive(Debug, Parser)]
#[command(name = "muster", version, arg_required_else_help = true, after_help = cli::failure::exit_status_help())]
struct Muster {
    #[command(flatten)]
    global: cli::Global,
    #[command(subcommand)]
    command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Service(launch::Service),
    #[command(flatten)]
    Cli(cli::Command),
    Simulate(simulate::SimulateArgs),
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
        [verb] if verb == "example-server" => return example_server::run(false),
        [verb, check] if verb == "example-server" && check == "check" => return example_server::run(true),
        _ => {}
    }
    let Muster { global, command } = match parse() {
        Ok(muster) => muster,
        Err(error) => return report_parse_error(&error),
    };
    match command {
        Command::Service(service) => launch::run(service, &global),
        Command::Simulate(args) => simulate::run(&args, &global),
        Command::Cli(command) => cli::run::<Muster>(command, &global),
    }
}

/// Prints a command line error, or the requested help.
fn report_parse_error(error: &clap::Error) -> ExitCode {
    // The message cannot be printed if the terminal is gone.
    drop(error.print());
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_exec =
        words.windows(2).any(|pair| (pair[0] == "instance" || pair[0] == "actual-lrp") && pair[1] == "exec");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_exec => ExitCode::from(cli::failure::Exit::NotReached as u8),
        _ => ExitCode::from(cli::failure::Exit::Usage as u8),
    }
}

/// Parses the command line, with the environment and the configuration file as defaults.
fn parse() -> Result<Muster, clap::Error> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let file = config::config_path(&arguments, std::env::var_os("MUSTER_CONFIG"));
    parse_from(arguments, file.as_deref())
}

/// Parses a given command line and configuration file. Global options are hidden in the help of commands
/// unless `--help-all` is given.
fn parse_from(arguments: Vec<OsString>, file: Option<&Path>) -> Result<Muster, clap::Error> {
    let mut command = config::with_environment(Muster::command());
    if let Some(path) = file {
        command = config::with_file_defaults(command, path).map_err(|why| {
            Muster::command().error(ErrorKind::ValueValidation, error::chain(&why).trim_end())
        })?;
    }
    if !arguments.iter().any(|word| word == "--help-all") {
        let is_general = |arg: &Arg| arg.is_global_set() && arg.get_id() != "help_all";
        command = command.mut_args(|arg| if is_general(&arg) { arg.hide(true) } else { arg });
    }
    let matches = command.try_get_matches_from(arguments)?;
    let mut muster = Muster::from_arg_matches(&matches)?;
    let named = cli::OptionSources::from_matches(&matches);
    if named.nats == cli::OptionSource::Flag && named.socket == cli::OptionSource::Flag {
        let why = "--nats and --socket are mutually exclusive: set one of them";
        return Err(Muster::command().error(ErrorKind::ArgumentConflict, why));
    }
    if muster.global.tls.is_incomplete() {
        let why = "incomplete client certificate: set both --tls-cert and --tls-key";
        return Err(Muster::command().error(ErrorKind::ArgumentConflict, why));
    }
    muster.global.named = named;
    Ok(muster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cli::DomainUse::{Checks, Filters, None as Nothing, SetsDefault};

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("muster").chain(line.split(' ')).map(OsString::from).collect()
    }

    #[test]
    fn command_help_hides_global_options() {
        let help = |line: &str| parse_from(words(line), None).unwrap_err().to_string();
        for line in ["lrp scale --help", "lrp scale -h"] {
            let own = help(line);
            assert!(own.contains("--detach") && own.contains("--help-all"), "{own}");
            assert!(!own.contains("--nats") && !own.contains("--color"), "{own}");
        }
        for line in ["lrp scale --help-all", "--help-all", "rep --help-all"] {
            let all = help(line);
            assert!(all.contains("--nats") && all.contains("--color"), "{line}: {all}");
            assert!(all.contains("[env: MUSTER_DATA]") && !all.contains("=]"), "{line}: {all}");
        }
    }

    /// Collects all options with a value, of all commands, with their ids.
    fn options(command: &clap::Command, path: &str, found: &mut Vec<[String; 3]>) {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            if let Some(name) = arg.get_long().filter(|name| *name != "config") {
                found.push([path.trim().to_owned(), name.to_owned(), arg.get_id().to_string()]);
            }
        }
        for sub in command.get_subcommands() {
            options(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    /// Returns two different valid values of an option.
    fn values(name: &str) -> [&'static str; 2] {
        match name {
            "output" => ["json", "jsonl"],
            "color" => ["always", "never"],
            "ports" => ["1-2", "3-4"],
            "replicas" => ["1", "3"],
            "callback-allow" | "download-allow" => ["*.a", "10.0.0.0/8"],
            "state" => ["running", "crashed"],
            "about" => ["lrp:a", "lrp:b"],
            "attribute" => ["rack=r1", "rack=r2"],
            "database" => ["sqlite:a.db", "sqlite:b.db"],
            "param" => ["a=1", "a=2"],
            "from" | "to" | "around" => ["7", "-8m"],
            "format" => ["jsonl", "cloudevents"],
            "key" => [
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            ],
            "isolation" => ["full", "none"],
            "first-id" => ["100000", "200000"],
            "log-format" => ["text", "json"],
            "metrics" => ["127.0.0.1:9464", "[::1]:1"],
            "role" => ["bbs", "rep"],
            "otlp" => ["http://a/v1/traces", "https://b/v1/traces"],
            _ => ["7", "8"],
        }
    }

    #[test]
    fn flag_overrides_file_for_every_option() {
        let mut found = vec![];
        options(&Muster::command(), "", &mut found);
        assert!(found.len() > 30, "{found:?}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("muster.toml");
        // These commands require exactly one of several options. A configuration file that sets one would
        // conflict with a command line that sets another.
        let asks_one_of_two = |path: &str| ["simulate", "decide"].contains(&path);
        for [path, name, id] in found.into_iter().filter(|[path, ..]| !asks_one_of_two(path)) {
            let [low, high] = values(&name);
            std::fs::write(&file, format!("{name} = {low:?}\n")).unwrap();
            let of = |line: &str| {
                let command = config::with_file_defaults(Muster::command(), &file).unwrap();
                let words = words(line.trim());
                let matches = without_required(command)
                    .try_get_matches_from(words)
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
                let mut last = &matches;
                while let Some((_, sub)) = last.subcommand() {
                    last = sub;
                }
                let raw = last.get_raw(&id).unwrap_or_else(|| panic!("{line}: no {id}"));
                raw.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>()
            };
            let path = if path.is_empty() { "cell list".to_owned() } else { path };
            assert_eq!(of(&path), [low], "{path} --{name} from the file");
            assert_eq!(of(&format!("{path} --{name} {high}")), [high], "{path} --{name} from the flag");
        }
    }

    /// Returns the command without required arguments.
    fn without_required(command: clap::Command) -> clap::Command {
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let command = command.mut_args(|arg| arg.required(false));
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, without_required))
    }

    #[test]
    fn clap_definitions_are_consistent() {
        Muster::command().debug_assert();
    }

    const PERIODIC_LINES: [&str; 8] = [
        "periodic apply p.toml",
        "periodic list",
        "periodic show p",
        "periodic pause p",
        "periodic resume p",
        "periodic launch p --reason because",
        "periodic remove p",
        "history periodic p",
    ];

    const PARAMETERISED_LINES: [&str; 8] = [
        "parameterised apply p.toml",
        "parameterised list",
        "parameterised show p",
        "parameterised dispatch p --reason because",
        "parameterised dispatch p --payload - --param a=1 --param b=c=d --key k --priority 70 --wait",
        "parameterised withdraw p 7",
        "parameterised remove p",
        "history parameterised p",
    ];

    const SCHEMA_LINES: [&str; 2] = ["schema list -o json", "schema show actual.claimed.v1"];

    const PAST_LINES: [&str; 9] = [
        "trace 0193f4a2-7c1e-7d2a-8000-0000deadbeef",
        "trace deadbeef -o jsonl --otlp http://127.0.0.1:4318",
        "sql SELECT --database sqlite:a.db --as-of 7 -o csv",
        "lrp list --as-of 41",
        "why web/0 --as-of -10m",
        "status --as-of 2026-10-02T14:00:00Z -o json",
        "lrp rollout status web --as-of #41",
        "diff --from -1h --domain shop",
        "diff --from 41 --to 2026-10-02T14:00:00Z --about lrp:web -o json",
    ];

    const SECRETS_LINES: [&str; 9] = [
        "secrets init muster.keys",
        "secrets rotate muster.keys",
        "secrets rotate --seal 3f9a2c1d muster.keys",
        "secrets list",
        "secrets forget 3f9a2c1d muster.keys --yes",
        "bbs --secrets muster.keys --metrics 0.0.0.0:9464 --otlp http://127.0.0.1:4318 --log-format json",
        "rep --cell c1 --zone z1 --secrets muster.keys",
        "rep --cell c1 --zone z1 --evacuated-status 0 --stopped-status 143",
        "probe --metrics 0.0.0.0:9464 --live -o json",
    ];

    const AUTH_LINES: [&str; 13] = [
        "auth init auth",
        "auth init auth --host nats.example --host 10.0.0.7 --listen 0.0.0.0:4222 --seen-at /etc/nats",
        "auth init auth --cluster --host n1 --host n2 --host n3",
        "auth add auth rep c2",
        "auth add auth client shop web --name web --pid-file /run/nats.pid",
        "auth revoke auth web",
        "auth renew auth",
        "auth renew auth --authority --host n4",
        "auth renew auth web --pid-file /run/nats.pid",
        "auth rotate auth web",
        "auth list auth -o json",
        "auth refresh auth --pid-file /run/nats.pid",
        "cluster show --creds ops.nk --tls-ca ca.crt --tls-cert ops.crt --tls-key ops.key",
    ];

    const ARCHIVE_LINES: [&str; 8] = [
        "export log.jsonl",
        "export - --from 7 --to 2026-11-24T07:05:38Z --format cloudevents",
        "export events.parquet --from -10m --format parquet",
        "import log.jsonl --continue --data d",
        "audit keygen audit.key",
        "audit checkpoint checkpoints.jsonl --key audit.key",
        "audit verify --against checkpoints.jsonl --against log.jsonl --export other.jsonl -o json",
        "bundle --around 41 --minutes 5 incident",
    ];

    const PROJECTION_LINES: [&str; 8] = [
        "projection list",
        "projection verify --database postgres://a@b/c -o json",
        "projection rebuild",
        "projection rebuild --restart --database sqlite:a.db",
        "projection grant analyst",
        "dead-letters list",
        "dead-letters retry",
        "dead-letters skip 7 --reason because",
    ];

    const WHAT_IF_LINES: [&str; 6] = [
        "replay --policy new.toml --from 7 --to -1m --check",
        "what-if wait --as-of -10m --for 1h -o json",
        "what-if remove -f changes.txt --mass-loss-wait 0s",
        "decide remove --as-of 41",
        "decide --command lrp.update --file m.json --empty --domain shop",
        "reconcile case.json",
    ];

    const PLAN_LINES: [&str; 5] = [
        "lrp plan web.toml",
        "lrp plan - -o json",
        "lrp apply web.toml --if-position 41",
        "task plan t.json -o json",
        "task run t.json --if-position #41",
    ];

    const NOUN_LINES: [&str; 67] = [
        "lrp desire web.toml",
        "lrp desire - --detach",
        "lrp diff web.toml",
        "lrp ls -o json",
        "desired-lrp show web",
        "lrp scale web=3 --timeout 30s",
        "lrp scale web 3",
        "lrp update web --routes r.json --annotation x --instances 2 --priority 80",
        "lrp update web web.toml",
        "lrp update web --file web.toml --instances 2",
        "lrp apply web.toml --no-wait",
        "lrp activate web v2 --timeout 5m",
        "lrp restart web --detach",
        "lrp rebalance web --timeout 5m",
        "lrp rollback web --to -10m",
        "lrp rollout status web -o json",
        "lrp rollout watch web",
        "lrp rollout pause web",
        "lrp rollout resume web",
        "lrp rollout rollback web --reason because",
        "lrp rollout history web",
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
        "domain show shop",
        "domain limit shop --instances 5 --processes-and-tasks 3 --commands-per-second 9 --exec-sessions 0",
        "cell list",
        "node show c1",
        "cell evacuate c1",
        "cell evacuate c1 --wait --timeout 5m --reason maintenance",
        "cell cordon c1",
        "cell uncordon c1",
        "cell forget c1",
        "cluster show --nats nats://127.0.0.1:4222",
        "cluster shards 8",
        "--socket /tmp/x cluster show",
        "status",
        "evaluation list",
        "evaluation list --task t --open",
        "evaluation show deadbeef --full-ids",
        "evaluation watch",
        "evaluation watch deadbeef",
        "evaluation retry deadbeef",
        "events tail --after 7",
        "events list --about lrp:web -o jsonl",
        "events show 7",
        "history lrp web",
        "history instance web/0",
        "history task t",
        "history cell c1",
        "why web/0 --color never",
        "watch --domain shop",
        "top --domain shop",
        "completion bash",
        "simulate tests/stories/crashes.txt --last 20",
        "simulate --seed 17 -o jsonl",
    ];

    #[test]
    fn documented_commands_are_parsed() {
        let lines = [
            &NOUN_LINES[..],
            &PERIODIC_LINES,
            &PARAMETERISED_LINES,
            &PLAN_LINES,
            &PAST_LINES,
            &WHAT_IF_LINES,
            &SCHEMA_LINES,
            &PROJECTION_LINES,
            &ARCHIVE_LINES,
            &SECRETS_LINES,
            &AUTH_LINES,
        ]
        .concat();
        for line in lines {
            assert!(parse_from(words(line), None).is_ok(), "{line}");
        }
    }

    /// Returns all commands that contact a cluster, such as `lrp list`.
    fn commands_to_a_cluster() -> std::collections::BTreeSet<String> {
        let whole = Muster::command();
        let own = cli::Command::augment_subcommands(clap::Command::new("muster"));
        let mut found = std::collections::BTreeSet::new();
        for noun in own.get_subcommands() {
            assert!(whole.find_subcommand(noun.get_name()).is_some());
            let verbs: Vec<_> = noun.get_subcommands().map(clap::Command::get_name).collect();
            if verbs.is_empty() {
                found.insert(noun.get_name().to_owned());
            }
            found.extend(verbs.into_iter().map(|verb| format!("{} {verb}", noun.get_name())));
        }
        found
    }

    /// Effect of `--domain` on each command.
    const DOMAIN_USES: &[(&str, cli::DomainUse)] = &[
        ("lrp desire f", SetsDefault),
        ("lrp apply f", SetsDefault),
        ("lrp diff f", SetsDefault),
        ("lrp plan f", SetsDefault),
        ("lrp list", Filters),
        ("lrp show web", Checks),
        ("lrp scale web=1", Checks),
        ("lrp update web", Checks),
        ("lrp activate web v2", Checks),
        ("lrp restart web", Checks),
        ("lrp rebalance web", Checks),
        ("lrp rollback web", Checks),
        ("lrp rollout status web", Checks),
        ("lrp rollout watch web", Checks),
        ("lrp rollout pause web", Checks),
        ("lrp rollout resume web", Checks),
        ("lrp rollout rollback web", Checks),
        ("lrp rollout history web", Checks),
        ("lrp remove web", Checks),
        ("instance list", Filters),
        ("instance show web/0", Checks),
        ("instance logs web/0", Checks),
        ("instance files web/0", Checks),
        ("instance exec web/0 -- true", Checks),
        ("instance stop web/0", Checks),
        ("task run f", SetsDefault),
        ("task plan f", SetsDefault),
        ("task list", Filters),
        ("task show t", Checks),
        ("task cancel t", Checks),
        ("task resolve t", Checks),
        ("task logs t", Checks),
        ("periodic apply f", SetsDefault),
        ("periodic list", Filters),
        ("periodic show p", Checks),
        ("periodic pause p", Checks),
        ("periodic resume p", Checks),
        ("periodic launch p", Checks),
        ("periodic remove p", Checks),
        ("parameterised apply f", SetsDefault),
        ("parameterised list", Filters),
        ("parameterised show p", Checks),
        ("parameterised dispatch p", Checks),
        ("parameterised withdraw p 1", Checks),
        ("parameterised remove p", Checks),
        ("domain list", Filters),
        ("domain refresh shop", Nothing),
        ("domain show shop", Nothing),
        ("domain limit shop --instances 5", Nothing),
        ("cell list", Nothing),
        ("cell show c1", Nothing),
        ("cell evacuate c1", Nothing),
        ("cell cordon c1", Nothing),
        ("cell uncordon c1", Nothing),
        ("cell forget c1", Nothing),
        ("cluster show", Nothing),
        ("cluster preemption on", Nothing),
        ("cluster shards 8", Nothing),
        ("status", Nothing),
        ("what-if wait", SetsDefault),
        ("decide wait", SetsDefault),
        ("reconcile f", Nothing),
        ("replay", Nothing),
        ("evaluation list", Filters),
        ("evaluation show deadbeef", Checks),
        ("evaluation watch deadbeef", Checks),
        ("evaluation retry deadbeef", Checks),
        ("events tail", Nothing),
        ("events list", Nothing),
        ("journal set-aside 4", Nothing),
        ("journal migrate", Nothing),
        ("projection list", Nothing),
        ("projection verify", Nothing),
        ("projection rebuild", Nothing),
        ("projection grant r", Nothing),
        ("dead-letters list", Nothing),
        ("dead-letters retry", Nothing),
        ("dead-letters skip 4", Nothing),
        ("events show 7", Nothing),
        ("cluster found", Nothing),
        ("cell accept-log c1", Nothing),
        ("secrets init k", Nothing),
        ("secrets rotate k", Nothing),
        ("secrets list k", Nothing),
        ("secrets forget 3f9a2c1d k", Nothing),
        ("auth init d", Nothing),
        ("auth add d rep c1", Nothing),
        ("auth revoke d rep-c1", Nothing),
        ("auth list d", Nothing),
        ("auth refresh d", Nothing),
        ("auth renew d", Nothing),
        ("auth rotate d n", Nothing),
        ("probe --metrics 127.0.0.1:1", Nothing),
        ("doctor", Nothing),
        ("install --systemd", Nothing),
        ("history lrp web", Nothing),
        ("history instance web/0", Nothing),
        ("history task t", Nothing),
        ("history periodic p", Nothing),
        ("history parameterised p", Nothing),
        ("history cell c1", Nothing),
        ("diff --from 7", Filters),
        ("sql q", Nothing),
        ("watch", Filters),
        ("top", Filters),
        ("why web/0", Checks),
        ("trace deadbeef", Nothing),
        ("export f", Nothing),
        ("import f", Nothing),
        ("audit keygen f", Nothing),
        ("audit checkpoint f --key k", Nothing),
        ("audit verify", Nothing),
        ("bundle --around 7 d", Nothing),
        ("schema list", Nothing),
        ("schema show entry", Nothing),
        ("completion bash", Nothing),
    ];

    #[test]
    fn domain_option_has_an_effect_or_is_refused() {
        let mut left = commands_to_a_cluster();
        for &(line, meant) in DOMAIN_USES {
            let read = parse_from(words(&format!("{line} --domain shop")), None).unwrap();
            let Command::Cli(command) = read.command else { panic!("{line} is not a client command") };
            assert_eq!(cli::domain_use(&command), meant, "{line}");
            let refused = cli::check(&command, &read.global).is_err();
            assert_eq!(refused, meant == Nothing, "{line}");
            let mut by_environment = read.global;
            by_environment.named.domain = cli::OptionSource::Environment;
            assert!(cli::check(&command, &by_environment).is_ok(), "{line}");
            left.retain(|known| !line.starts_with(known.as_str()));
        }
        assert!(left.is_empty(), "missing in DOMAIN_USES: {left:?}");
        for line in ["lrp list --cell c1", "cell list --cell c1", "domain list --lrp web"] {
            assert_eq!(parse_from(words(line), None).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn invalid_command_lines_are_refused() {
        let lines = [
            "lrp show a.b",
            "lrp scale",
            "export log.jsonl --from yesterday",
            "export log.jsonl --format avro",
            "audit verify --key 00",
            "audit checkpoint f",
            "bundle d",
            "task cancel *",
            "domain refresh shop --ttl soon",
            "events show x",
            "lrp list --as-of tomorrow",
            "lrp scale web=1 --as-of 7",
            "diff --to 7",
            "events list --about pod:x",
            "trace web/0",
            "trace deadbeef --otlp 127.0.0.1:4318",
            "instance list --state sleeping",
            "cluster show --nats a --socket b",
            "cluster show --tls-cert a",
            "auth add d",
            "fly",
            "simulate",
            "simulate story.txt --seed 3",
        ];
        for line in lines {
            let refused = parse_from(words(line), None).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{line}");
        }
    }
}
