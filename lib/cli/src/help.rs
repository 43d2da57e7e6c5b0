//! Help texts: the overview of everyday commands, the list of all commands, and an example for each command.

use clap::{Arg, Command};

/// Overview that `muster --help` prints. It fits on a terminal of 80x24.
pub const OVERVIEW: &str = "\
Run processes and tasks on a fleet of cells, and record every change in one log

Usage: muster COMMAND [OPTIONS]

Deploy
  apply, delete   Create, update or delete everything that files describe
  run             Run a program, or the tasks of a file, and wait for the end
  lrp             Scale, restart, update and roll back processes
Inspect
  ps, logs        List instances and tasks; show their output
  status, top     Show the health of the cluster; watch it live
  why             Explain why an instance or a task is where it is
History
  history, diff   Show every decision about an object; compare two moments
  events, trace   Show recorded events, and everything that a command caused
Operate
  cell            List, cordon, evacuate and delete cells
  doctor          Diagnose the cluster and suggest fixes
Services
  dev             Run a whole cluster on this machine
  bbs, rep        Run a service of a cluster; also auctioneer and projector

muster help all lists every command, muster help COMMAND shows its options";

/// Groups of commands, in the order of the list of all commands.
pub const GROUPS: [(&str, &[&str]); 5] = [
    ("Deploy", &["apply", "delete", "run", "lrp", "task", "periodic", "parameterised", "domain"]),
    ("Inspect", &["ps", "logs", "instance", "status", "why", "watch", "top", "evaluation", "sql"]),
    (
        "History",
        &["history", "events", "trace", "diff", "what-if", "export", "import", "audit", "bundle", "schema"],
    ),
    (
        "Operate",
        &[
            "cell",
            "cluster",
            "doctor",
            "probe",
            "auth",
            "secrets",
            "install",
            "journal",
            "projection",
            "dead-letters",
        ],
    ),
    ("Services", &["dev", "bbs", "auctioneer", "rep", "projector", "completion", "man", "version", "help"]),
];

/// Global options that a command honours. The help of the command shows only these global options.
pub(crate) type Options = &'static [&'static str];

/// Commands that need no cluster.
const LOCAL: Options = &["output"];
/// Commands that read from a cluster.
const READ: Options = &["output", "data", "nats", "timeout"];
/// Commands that read objects of a domain from a cluster.
const READ_DOMAIN: Options = &["output", "data", "nats", "timeout", "domain"];
/// Commands that change a cluster.
const CHANGE: Options = &["output", "data", "nats", "timeout", "reason"];
/// Commands that change objects of a domain.
const CHANGE_DOMAIN: Options = &["output", "data", "nats", "timeout", "domain", "reason"];
/// Services.
const SERVICE: Options = &["nats", "creds", "tls_ca", "config", "log"];
const REP: Options = &["nats", "creds", "tls_ca", "config", "log", "data"];
const DEV: Options = &["data", "socket", "log"];

/// Every command that can be run, with its honoured global options and an example.
pub const COMMANDS: &[(&str, Options, &str)] = &[
    ("apply", CHANGE_DOMAIN, "muster apply shop.toml --dry-run"),
    ("delete", CHANGE_DOMAIN, "muster delete shop.toml"),
    ("run", CHANGE_DOMAIN, "muster run --env NAME=world -- sh -c 'echo hello $NAME'"),
    ("ps", READ_DOMAIN, "muster ps --cell c1"),
    ("logs", READ_DOMAIN, "muster logs web --follow"),
    ("lrp list", READ_DOMAIN, "muster lrp list -o json"),
    ("lrp show", READ_DOMAIN, "muster lrp show web --as-of -10m"),
    ("lrp scale", CHANGE_DOMAIN, "muster lrp scale web=5 api=2"),
    ("lrp update", CHANGE_DOMAIN, "muster lrp update web --priority 80"),
    ("lrp activate", CHANGE_DOMAIN, "muster lrp activate web v2"),
    ("lrp restart", CHANGE_DOMAIN, "muster lrp restart web --reason 'read the new certificate'"),
    ("lrp rebalance", CHANGE_DOMAIN, "muster lrp rebalance web"),
    ("lrp rollback", CHANGE_DOMAIN, "muster lrp rollback web --to -10m"),
    ("lrp rollout status", READ_DOMAIN, "muster lrp rollout status web"),
    ("lrp rollout watch", READ_DOMAIN, "muster lrp rollout watch web"),
    ("lrp rollout pause", CHANGE_DOMAIN, "muster lrp rollout pause web"),
    ("lrp rollout resume", CHANGE_DOMAIN, "muster lrp rollout resume web"),
    ("lrp rollout history", READ_DOMAIN, "muster lrp rollout history web --limit 5"),
    ("lrp delete", CHANGE_DOMAIN, "muster lrp delete web api"),
    ("instance list", READ_DOMAIN, "muster instance list --lrp web --state crashed"),
    ("instance show", READ_DOMAIN, "muster instance show web/0"),
    ("instance files", READ_DOMAIN, "muster instance files web/0 logs/app.log"),
    ("instance exec", CHANGE_DOMAIN, "muster instance exec web/0 -- ps aux"),
    ("instance stop", CHANGE_DOMAIN, "muster instance stop web/0"),
    ("task list", READ_DOMAIN, "muster task list --ended"),
    ("task show", READ_DOMAIN, "muster task show report"),
    ("task cancel", CHANGE_DOMAIN, "muster task cancel report"),
    ("task resolve", CHANGE_DOMAIN, "muster task resolve report"),
    ("periodic list", READ_DOMAIN, "muster periodic list"),
    ("periodic show", READ_DOMAIN, "muster periodic show nightly"),
    ("periodic pause", CHANGE_DOMAIN, "muster periodic pause nightly"),
    ("periodic resume", CHANGE_DOMAIN, "muster periodic resume nightly"),
    ("periodic launch", CHANGE_DOMAIN, "muster periodic launch nightly"),
    ("periodic delete", CHANGE_DOMAIN, "muster periodic delete nightly"),
    ("parameterised list", READ_DOMAIN, "muster parameterised list"),
    ("parameterised show", READ_DOMAIN, "muster parameterised show resize"),
    ("parameterised dispatch", CHANGE_DOMAIN, "muster parameterised dispatch resize --param size=64 --wait"),
    ("parameterised cancel", CHANGE_DOMAIN, "muster parameterised cancel resize 7"),
    ("parameterised delete", CHANGE_DOMAIN, "muster parameterised delete resize"),
    ("domain list", READ_DOMAIN, "muster domain list"),
    ("domain show", READ, "muster domain show shop"),
    ("domain limit", CHANGE, "muster domain limit shop --instances 50"),
    ("domain refresh", CHANGE, "muster domain refresh shop --ttl 1h"),
    ("cell list", READ, "muster cell list"),
    ("cell show", READ, "muster cell show c1"),
    ("cell evacuate", CHANGE, "muster cell evacuate c1 --wait"),
    ("cell cordon", CHANGE, "muster cell cordon c1 --reason 'disk is failing'"),
    ("cell uncordon", CHANGE, "muster cell uncordon c1"),
    ("cell delete", CHANGE, "muster cell delete c1"),
    ("cell accept-log", CHANGE, "muster cell accept-log c1"),
    ("cluster show", READ, "muster cluster show"),
    ("cluster found", CHANGE, "muster cluster found --replicas 3"),
    ("cluster preemption", CHANGE, "muster cluster preemption on"),
    ("cluster shards", CHANGE, "muster cluster shards 8"),
    ("status", READ, "muster status --as-of -1h"),
    ("doctor", READ, "muster doctor"),
    ("install", LOCAL, "muster install --systemd --role rep"),
    ("evaluation list", READ_DOMAIN, "muster evaluation list --lrp web --open"),
    ("evaluation show", READ_DOMAIN, "muster evaluation show 0193f4a2"),
    ("evaluation watch", READ_DOMAIN, "muster evaluation watch"),
    ("evaluation retry", CHANGE_DOMAIN, "muster evaluation retry 0193f4a2"),
    ("events tail", READ, "muster events tail --about lrp:web"),
    ("events list", READ, "muster events list --after 100 -o jsonl"),
    ("events show", READ, "muster events show 41"),
    ("journal quarantine", CHANGE, "muster journal quarantine 41 --reason 'written by a newer version'"),
    ("journal migrate", READ, "muster journal migrate"),
    ("secrets init", LOCAL, "muster secrets init muster.keys"),
    ("secrets rotate", LOCAL, "muster secrets rotate muster.keys"),
    ("secrets list", LOCAL, "muster secrets list muster.keys"),
    ("secrets delete", READ, "muster secrets delete 3f9a2c1d muster.keys"),
    ("auth init", LOCAL, "muster auth init auth --host nats.example"),
    ("auth add", LOCAL, "muster auth add auth client shop web --name web"),
    ("auth revoke", LOCAL, "muster auth revoke auth web"),
    ("auth renew", LOCAL, "muster auth renew auth web"),
    ("auth rotate", LOCAL, "muster auth rotate auth web"),
    ("auth refresh", LOCAL, "muster auth refresh auth"),
    ("auth list", LOCAL, "muster auth list auth"),
    ("probe", LOCAL, "muster probe --metrics 127.0.0.1:9464"),
    ("history lrp", READ, "muster history lrp web"),
    ("history instance", READ, "muster history instance web/0"),
    ("history task", READ, "muster history task report"),
    ("history periodic", READ, "muster history periodic nightly"),
    ("history parameterised", READ, "muster history parameterised resize"),
    ("history cell", READ, "muster history cell c1"),
    ("watch", READ_DOMAIN, "muster watch"),
    ("top", READ_DOMAIN, "muster top"),
    ("why", READ_DOMAIN, "muster why web/0"),
    ("diff", READ_DOMAIN, "muster diff --from -1h --about lrp:web"),
    ("what-if", READ_DOMAIN, "muster what-if 'lose cell c2' 'scale web=5'"),
    ("sql", READ, "muster sql 'SELECT count(*) FROM events'"),
    ("projection list", LOCAL, "muster projection list --database sqlite:muster.db"),
    ("projection verify", READ, "muster projection verify"),
    ("projection rebuild", READ, "muster projection rebuild"),
    ("projection grant", LOCAL, "muster projection grant analyst"),
    ("dead-letters list", READ, "muster dead-letters list"),
    ("dead-letters retry", LOCAL, "muster dead-letters retry"),
    ("trace", READ, "muster trace deadbeef"),
    ("export", READ, "muster export log.jsonl --from -1h"),
    ("import", READ, "muster import log.jsonl --data restored"),
    ("audit keygen", LOCAL, "muster audit keygen audit.key"),
    ("audit checkpoint", READ, "muster audit checkpoint checkpoints.jsonl --key audit.key"),
    ("audit verify", READ, "muster audit verify --against checkpoints.jsonl"),
    ("bundle", READ, "muster bundle --around -10m incident"),
    ("schema list", LOCAL, "muster schema list"),
    ("schema show", LOCAL, "muster schema show actual.claimed.v1"),
    ("dev", DEV, "muster dev examples/hello.toml --data cluster"),
    ("bbs", SERVICE, "muster bbs --nats nats://127.0.0.1:4222"),
    ("auctioneer", SERVICE, "muster auctioneer --nats nats://127.0.0.1:4222"),
    ("rep", REP, "muster rep --nats nats://127.0.0.1:4222 --cell c1 --zone z1 --data cells"),
    ("projector", SERVICE, "muster projector --nats nats://127.0.0.1:4222 --database sqlite:muster.db"),
    ("completion", &[], "muster completion bash"),
    ("man", &[], "muster man target/man"),
    ("version", LOCAL, "muster version"),
    ("help", &[], "muster help lrp scale"),
];

/// Returns `true` if the command with this path, such as `lrp scale`, honours a global option.
pub(crate) fn honours(path: &str, option: &str) -> bool {
    let found = COMMANDS.iter().find(|(known, ..)| *known == path);
    found.is_some_and(|(_, options, _)| options.contains(&option))
}

/// Adds the help texts to a command line. The help of a command shows its honoured global options, or all
/// global options if `show_all` is set.
#[must_use]
pub fn with_help(command: Command, show_all: bool) -> Command {
    let is_global = |arg: &&Arg| arg.is_global_set() && arg.get_id() != "help_all";
    let globals: Vec<Arg> = command.get_arguments().filter(is_global).cloned().collect();
    let command = if show_all { command } else { command.override_help(OVERVIEW) };
    let hidden = command.mut_args(|arg| if is_global(&&arg) { arg.hide(!show_all) } else { arg });
    with_help_of_subcommands(hidden, "", &globals, show_all)
}

fn with_help_of_subcommands(mut command: Command, path: &str, globals: &[Arg], show_all: bool) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}").trim_start().to_owned();
        command = command.mut_subcommand(name, |sub| {
            let sub = with_help_of_subcommands(sub, &path, globals, show_all);
            with_help_of_command(sub, &path, globals, show_all)
        });
    }
    command
}

/// Adds the example of a command, and its own copies of the global options. The copies differ from the
/// originals only in their visibility.
fn with_help_of_command(mut command: Command, path: &str, globals: &[Arg], show_all: bool) -> Command {
    let Some((_, options, example)) = COMMANDS.iter().find(|(known, ..)| *known == path) else {
        return command;
    };
    for arg in globals {
        let id = arg.get_id().as_str();
        if !command.get_arguments().any(|own| own.get_id() == id) {
            command = command.arg(arg.clone().hide(!show_all && !options.contains(&id)));
        }
    }
    command.after_help(format!("Example: {example}"))
}

/// Returns the list of all commands by group, with a line for each command.
#[must_use]
pub fn all_commands(root: &Command) -> String {
    let mut lines = vec![];
    for (group, names) in GROUPS {
        lines.push(group.to_owned());
        for name in names {
            let Some(command) = root.find_subcommand(name) else { continue };
            leaves(command, name, &mut |path, leaf| {
                lines.push(format!("  {path:<24} {}", summary(leaf)));
            });
        }
    }
    lines.push("\nmuster help COMMAND shows the options of a command, and an example".to_owned());
    lines.join("\n")
}

/// Calls `visit` for each executable command below `command`, with the path of that command.
pub fn leaves(command: &Command, path: &str, visit: &mut impl FnMut(&str, &Command)) {
    let mut subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help").peekable();
    if subcommands.peek().is_none() {
        return visit(path, command);
    }
    subcommands.for_each(|sub| leaves(sub, &format!("{path} {}", sub.get_name()), visit));
}

/// Returns the first clause of the description of a command.
pub fn summary(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let end = [". ", ": ", "; "].iter().filter_map(|mark| about.find(mark)).min();
    about[..end.unwrap_or(about.len())].to_owned()
}
