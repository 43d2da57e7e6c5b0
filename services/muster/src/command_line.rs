//! Command line of the complete program: help, and words that stand for commands.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory};
use cli_base::config;

use crate::Muster;

/// Matches a command line. A known command replaces an unknown word that stands for it.
pub(crate) fn matches(arguments: Vec<OsString>, file: Option<&Path>) -> Result<ArgMatches, clap::Error> {
    match matches_from(&arguments, file) {
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
            matches_from(&without_synonym(arguments, error)?, file)
        }
        parsed => parsed,
    }
}

/// Matches a given command line. The help texts are added only if help is shown, so that other commands start
/// without this work.
fn matches_from(arguments: &[OsString], file: Option<&Path>) -> Result<ArgMatches, clap::Error> {
    let error = match config::command_line::<Muster>(file)?.try_get_matches_from(arguments) {
        Ok(matches) => return Ok(matches),
        Err(error) => error,
    };
    let shows_help = [ErrorKind::DisplayHelp, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if !shows_help.contains(&error.kind()) {
        return Err(error);
    }
    let shows_all = arguments.iter().any(|word| word == "--help-all");
    cli::help::with_help(config::command_line::<Muster>(file)?, shows_all).try_get_matches_from(arguments)
}

/// Returns the command line in which a known command replaces an unknown word. If the word stands for no
/// command, fails with `error`, or with the commands to use.
fn without_synonym(arguments: Vec<OsString>, error: clap::Error) -> Result<Vec<OsString>, clap::Error> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return Err(error);
    };
    if let Some(arguments) = cli::synonyms::rewritten(&arguments, unknown) {
        return Ok(arguments);
    }
    let Some(advice) = cli::synonyms::pointer(unknown) else { return Err(error) };
    let why = format!("unrecognized subcommand '{unknown}'\n\n  tip: {advice}");
    Err(Muster::command().error(ErrorKind::InvalidSubcommand, why))
}

#[cfg(test)]
mod tests {
    use schemas::names::Domain;

    use super::*;
    use cli_base::options::Global;

    use crate::parse_from;
    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("muster").chain(line.split(' ')).map(OsString::from).collect()
    }

    #[test]
    fn help_of_a_command_shows_the_common_options_that_it_honours() {
        let help = |line: &str| parse_from(words(line), None).unwrap_err().to_string();
        for line in ["lrp scale --help", "lrp scale -h"] {
            let own = help(line);
            for option in
                ["--detach", "--data", "--output", "--domain", "--timeout", "--reason", "--help-all"]
            {
                assert!(own.contains(option), "{option}: {own}");
            }
            assert!(!own.contains("--creds") && !own.contains("--color"), "{own}");
            assert!(own.contains("Example: muster lrp scale web=5"), "{own}");
        }
        assert!(!help("cell list --help").contains("--domain") && help("dev --help").contains("--data"));
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
        let asks_one_of_two = |path: &str| path == "run";
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

    const LINES_WITH_OPTIONS: [&str; 102] = [
        "periodic show p",
        "periodic pause p",
        "periodic resume p",
        "periodic launch p --reason because",
        "periodic rm p",
        "history periodic p",
        "parameterised show p",
        "parameterised dispatch p --reason because",
        "parameterised dispatch p --payload - --param a=1 --param b=c=d --key k --priority 70 --wait",
        "parameterised rm p",
        "history parameterised p",
        "trace 0193f4a2-7c1e-7d2a-8000-0000deadbeef",
        "trace deadbeef -o jsonl --otlp http://127.0.0.1:4318",
        "sql SELECT --database sqlite:a.db --as-of 7 -o csv",
        "lrp list --as-of 41",
        "why web/0 --as-of -10m",
        "status --as-of 2026-10-02T14:00:00Z -o json",
        "lrp rollout status web --as-of #41",
        "diff --from -1h --domain shop",
        "diff --from 41 --to 2026-10-02T14:00:00Z --about lrp:web -o json",
        "secrets rotate --seal 3f9a2c1d muster.keys",
        "secrets list",
        "secrets delete 3f9a2c1d muster.keys --yes",
        "bbs --secrets muster.keys --metrics 0.0.0.0:9464 --otlp http://127.0.0.1:4318 --log-format json",
        "rep --cell c1 --zone z1 --secrets muster.keys",
        "rep --cell c1 --zone z1 --evacuated-status 0 --stopped-status 143",
        "probe --metrics 0.0.0.0:9464 --live -o json",
        "auth init auth",
        "auth init auth --host nats.example --host 10.0.0.7 --listen 0.0.0.0:4222 --seen-at /etc/nats",
        "auth init auth --cluster --host n1 --host n2 --host n3",
        "auth add auth rep c2",
        "auth add auth client shop web --name web --pid-file /run/nats.pid",
        "auth renew auth",
        "auth renew auth --authority --host n4",
        "auth renew auth web --pid-file /run/nats.pid",
        "auth list auth -o json",
        "auth refresh auth --pid-file /run/nats.pid",
        "cluster show --creds ops.nk --tls-ca ca.crt --tls-cert ops.crt --tls-key ops.key",
        "export log.jsonl",
        "export - --from 7 --to 2026-11-24T07:05:38Z --format cloudevents",
        "export events.parquet --from -10m --format parquet",
        "import log.jsonl --continue --data d",
        "audit verify --against checkpoints.jsonl --against log.jsonl --export other.jsonl -o json",
        "bundle --around 41 --minutes 5 incident",
        "projection list",
        "projection verify --database postgres://a@b/c -o json",
        "projection rebuild --restart --database sqlite:a.db",
        "journal quarantine 7 --reason because",
        "what-if wait --as-of -10m --for 1h -o json",
        "what-if remove -f changes.txt --mass-loss-wait 0s",
        "apply --dry-run - -o json",
        "apply web.toml --if-position 41",
        "run t.json --if-position #41 --detach",
        "apply web.toml more.json",
        "apply - --detach --prune --rerun",
        "lrp ls -o json",
        "desired-lrp show web",
        "lrp scale web=3 --timeout 30s",
        "lrp scale web 3",
        "lrp update web --routes r.json --annotation x --instances 2 --priority 80",
        "apply web.toml --no-wait",
        "lrp activate web v2 --timeout 5m",
        "lrp restart web --detach",
        "lrp rebalance web --timeout 5m",
        "lrp rollout status web -o json",
        "lrp rollout history web",
        "lrp rm web --reason because",
        "instance list --lrp web --cell c1 --state RUNNING --domain shop",
        "actual-lrp show web/0",
        "logs web/0 -f",
        "logs web/0 --previous",
        "instance stop web/0 --request-id again",
        "run t.json",
        "task list",
        "task show t",
        "task cancel t",
        "task resolve t",
        "logs t --task -f",
        "domain limit shop --instances 5 --processes-and-tasks 3 --commands-per-second 9 --exec-sessions 0",
        "node show c1",
        "cell evacuate c1",
        "cell evacuate c1 --wait --timeout 5m --reason maintenance",
        "cell cordon c1",
        "cell rm c1",
        "cluster show --nats nats://127.0.0.1:4222",
        "--socket /tmp/x cluster show",
        "status",
        "evaluation list",
        "evaluation list --task t --open",
        "evaluation show deadbeef --full-ids",
        "evaluation watch deadbeef",
        "evaluation retry deadbeef",
        "events tail --after 7",
        "events list --about lrp:web -o jsonl",
        "events show 7",
        "history task t",
        "why web/0 --color never",
        "watch --domain shop",
        "top --domain shop",
        "run --name t --memory-mb 64 --disk-mb 1 -e A=b -- sh -c true",
        "delete a.toml b.toml --dry-run",
        "ps --as-of 41 -o json",
    ];

    #[test]
    fn command_lines_with_options_are_parsed() {
        for line in LINES_WITH_OPTIONS {
            assert!(parse_from(words(line), None).is_ok(), "{line}");
        }
    }

    #[test]
    fn example_of_every_command_is_parsed_as_this_command() {
        for (path, options, example) in cli::help::COMMANDS {
            // Quoted parts of an example are single words.
            let words: Vec<OsString> = example
                .split('\'')
                .enumerate()
                .flat_map(
                    |(nth, part)| {
                        if nth % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
                    },
                )
                .map(OsString::from)
                .collect();
            let read = parse_from(words, None).unwrap_or_else(|error| panic!("{example}: {error}"));
            assert_eq!(read.global.command, *path, "{example}");
            let global = Global {
                domain: Some(Domain::new("shop").unwrap()),
                named: cli_base::options::OptionSources {
                    domain: cli_base::options::OptionSource::Flag,
                    ..read.global.named
                },
                ..read.global
            };
            assert_eq!(cli::check(&global).is_ok(), options.contains(&"domain"), "{path}");
        }
    }

    #[test]
    fn words_of_other_tools_stand_for_commands_or_are_explained() {
        let command = |line: &str| parse_from(words(line), None).map(|read| read.global.command);
        for (line, path) in [
            ("scale web=3", "lrp scale"),
            ("--data d exec web/0 -- ls", "instance exec"),
            ("cell drain c1", "cell evacuate"),
            ("drain c1", "cell evacuate"),
            ("lrp remove web", "lrp delete"),
            ("lrp apply f", "apply"),
            ("lrp plan f", "apply"),
            ("task logs t", "logs"),
            ("lrp rollout rollback web", "lrp rollback"),
            ("nodes ls", "cell list"),
        ] {
            assert_eq!(command(line).unwrap(), path, "{line}");
        }
        let refused = command("get pods").unwrap_err();
        assert!(refused.exit_code() == 2 && refused.to_string().contains("muster ps"), "{refused}");
        assert!(command("fly").unwrap_err().to_string().contains("unrecognized subcommand 'fly'"));
    }

    #[test]
    fn every_command_is_in_one_group_and_has_an_example() {
        let command = Muster::command();
        let mut grouped: Vec<&str> =
            cli::help::GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        names.sort_unstable();
        assert_eq!(grouped, names);
        let mut paths = vec![];
        command.get_subcommands().for_each(|sub| {
            cli::help::leaves(sub, sub.get_name(), &mut |path, _| paths.push(path.to_owned()));
        });
        let mut known: Vec<&str> = cli::help::COMMANDS.iter().map(|(path, ..)| *path).collect();
        paths.sort_unstable();
        known.sort_unstable();
        assert_eq!(paths, known);
        let all = cli::help::all_commands(&command);
        let wide: Vec<&str> = all.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn overview_fits_on_a_small_terminal() {
        let help = parse_from(words("--help"), None).unwrap_err().to_string();
        assert!(help.lines().count() <= 23, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        let command = Muster::command();
        let names = help.lines().filter_map(|line| line.strip_prefix("  ")?.split("   ").next());
        for name in names.flat_map(|names| names.split(", ")) {
            assert!(command.find_subcommand(name).is_some(), "{name}");
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
        ];
        for line in lines {
            let refused = parse_from(words(line), None).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{line}");
        }
    }
}
