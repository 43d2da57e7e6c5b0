//! Tests that docs/reference/cli.md and docs/reference/configuration.md list every command, option and
//! variable.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p muster reference` writes the tables of these pages again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use cli::help::{COMMANDS, GROUPS, leaves, summary};
use fixtures::pages::check_tables;

use crate::Muster;

/// Checks a generated table of a page of the reference.
fn check_page(name: &str, place: &'static str, text: String) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    check_tables(&page, &BTreeMap::from([(place, text)]));
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('\n', " ")
}

#[test]
fn reference_of_commands_is_up_to_date() {
    let root = Muster::command();
    let mut text = String::new();
    for (group, names) in GROUPS {
        write!(text, "\n## {group}\n\n| command | effect | example |\n|---|---|---|\n").unwrap();
        for name in names {
            leaves(root.find_subcommand(name).unwrap(), name, &mut |path, command| {
                let is_past = command.get_arguments().any(|arg| arg.get_long() == Some("as-of"));
                let mark = if is_past { " †" } else { "" };
                let (.., example) = COMMANDS.iter().find(|(known, ..)| *known == path).unwrap();
                writeln!(text, "| `{path}`{mark} | {} | `{example}` |", cell(&summary(command))).unwrap();
            });
        }
    }
    check_page("cli.md", "commands", text);
}

/// Row of the table of environment variables.
#[derive(Default)]
struct Variable {
    option: String,
    commands: BTreeSet<String>,
    meaning: String,
    default: String,
}

#[test]
fn reference_of_variables_is_up_to_date() {
    let root = Muster::command();
    let mut variables: BTreeMap<String, Variable> = BTreeMap::new();
    root.get_arguments().for_each(|arg| add(&mut variables, arg, "every command"));
    root.get_subcommands().for_each(|sub| {
        leaves(sub, sub.get_name(), &mut |path, command: &Command| {
            command.get_arguments().for_each(|arg| add(&mut variables, arg, path));
        });
    });
    let mut text = "| variable | option | commands | meaning | default |\n|---|---|---|---|---|\n".to_owned();
    for (name, Variable { option, commands, meaning, default }) in variables {
        let commands: Vec<String> = commands.into_iter().collect();
        let (commands, meaning) = (commands.join(", "), cell(&meaning));
        writeln!(text, "| `{name}` | `{option}` | {commands} | {meaning} | {default} |").unwrap();
    }
    check_page("configuration.md", "variables", text);
}

/// Adds the environment variable of an option.
fn add(variables: &mut BTreeMap<String, Variable>, arg: &Arg, command: &str) {
    let Some(name) = arg.get_env().map(|name| name.to_string_lossy().into_owned()) else { return };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = match help.split_once(" [default: ") {
        Some((meaning, default)) => (meaning.to_owned(), default.trim_end_matches(']').to_owned()),
        None => {
            let values: Vec<String> = arg
                .get_default_values()
                .iter()
                .map(|value| format!("`{}`", value.to_string_lossy()))
                .collect();
            (help, values.join(" "))
        }
    };
    let option = arg.get_long().map_or_else(
        || arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default(),
        |long| format!("--{long}"),
    );
    let variable = variables.entry(name).or_default();
    variable.commands.insert(command.to_owned());
    if variable.option.is_empty() {
        *variable = Variable { option, meaning, default, commands: std::mem::take(&mut variable.commands) };
    }
}
