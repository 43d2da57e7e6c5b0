//! Options from a file. Flags override the environment, which overrides the file.
//!
//! `--config FILE`, or `MUSTER_CONFIG`, names a TOML file whose keys are the long names of options: `nats =
//! "nats://.."`. The values become clap defaults, so clap handles parsing, precedence and errors. With a
//! crate for layered configuration, every option would have to be defined a second time as a field, and its
//! errors would differ from those of clap.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use text::chain;
use toml::{Table, Value};

use super::options::Global;

/// Returns the path of the configuration file from the command line or the environment.
pub fn config_path(arguments: &[OsString], environment: Option<OsString>) -> Option<PathBuf> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--config" {
            return words.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
    }
    environment.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Reads a configuration file, and sets its values as defaults of the options of a command.
///
/// # Errors
/// The file cannot be read, or contains an unknown option.
pub fn with_file_defaults(mut command: Command, path: &Path) -> Result<Command, ConfigError> {
    let file = || path.to_owned();
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: file(), source })?;
    let table: Table = text.parse().map_err(|source| ConfigError::Syntax { path: file(), source })?;
    let mut names = vec![];
    for (name, value) in &table {
        let text =
            value_text(value).ok_or_else(|| ConfigError::Value { path: file(), name: name.clone() })?;
        let (changed, known) = set_default(command, name, &text);
        command = changed;
        if !known {
            names.push(name.clone());
        }
    }
    if names.is_empty() { Ok(command) } else { Err(ConfigError::Unknown { path: file(), names }) }
}

/// Reason why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("can't read the configuration file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("configuration file {}: invalid TOML", path.display())]
    Syntax { path: PathBuf, source: toml::de::Error },
    /// The value of an option has an unsupported type.
    #[error(
        "configuration file {}: invalid value for {name}: expected a string, a number, true or false, \
         or a list of them",
        path.display()
    )]
    Value { path: PathBuf, name: String },
    /// No command has options of these names.
    #[error(
        "configuration file {}: unknown option {}: expected the long name of an option, such as nats or cell",
        path.display(),
        names.join(", ")
    )]
    Unknown { path: PathBuf, names: Vec<String> },
}

/// Returns the command line of a program, with the environment and a configuration file as defaults.
///
/// # Errors
/// The file cannot be read, or contains an unknown option.
pub fn command_line<Program: CommandFactory>(file: Option<&Path>) -> Result<Command, clap::Error> {
    let command = with_environment(Program::command());
    let Some(path) = file else { return Ok(command) };
    with_file_defaults(command, path)
        .map_err(|why| Program::command().error(ErrorKind::ValueValidation, chain(&why).trim_end()))
}

/// Reads a program from its matched command line, and completes its common options.
///
/// # Errors
/// Options exclude each other, or one requires another.
pub fn from_matches<Program: CommandFactory + FromArgMatches>(
    matches: &ArgMatches,
    global: fn(&mut Program) -> &mut Global,
) -> Result<Program, clap::Error> {
    let mut program = Program::from_arg_matches(matches)?;
    let conflict = |why| Program::command().error(ErrorKind::ArgumentConflict, why);
    global(&mut program).complete(matches).map_err(conflict)?;
    Ok(program)
}

/// Changes how the options of a command use environment variables. Variables that are set to the empty string
/// are ignored. The help shows the names of variables but not their values, which may be passwords.
pub(crate) fn with_environment(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_env().map(is_empty) {
        Some(true) => arg.env(Resettable::Reset),
        Some(false) | None => arg.hide_env_values(true),
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_environment))
}

/// Sets the default of an option in all subcommands that have this option. Returns `true` if at least one
/// subcommand has it.
fn set_default(command: Command, name: &str, text: &str) -> (Command, bool) {
    let id = command.get_arguments().find(|arg| arg.get_long() == Some(name)).map(|arg| arg.get_id().clone());
    let known = id.is_some();
    let mut command = match id {
        Some(id) => command.mut_arg(id, |arg| arg.required(false).default_value(text.to_owned())),
        None => command,
    };
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let mut any = known;
    for sub in names {
        command = command.mut_subcommand(sub, |sub| {
            let (sub, known) = set_default(sub, name, text);
            any |= known;
            sub
        });
    }
    (command, any)
}

fn value_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(so) => Some(so.to_string()),
        Value::Array(values) => {
            let words: Option<Vec<String>> = values.iter().map(value_text).collect();
            words.map(|words| words.join(","))
        }
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn command() -> Command {
        let cell = Arg::new("cell").long("cell").required(true);
        Command::new("muster")
            .arg(Arg::new("nats").long("nats").global(true))
            .subcommand(Command::new("rep").arg(cell).arg(Arg::new("zone").long("zone").default_value("z0")))
    }

    #[test]
    fn flag_overrides_configuration_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("muster.toml");
        std::fs::write(&path, "nats = \"nats://x\"\ncell = \"c1\"\nzone = \"z1\"\n").unwrap();
        let matches =
            with_file_defaults(command(), &path).unwrap().get_matches_from(["muster", "rep", "--zone", "z2"]);
        let (_, rep) = matches.subcommand().unwrap();
        let get = |name| rep.get_one::<String>(name).map(String::as_str);
        assert_eq!([get("nats"), get("cell"), get("zone")], [Some("nats://x"), Some("c1"), Some("z2")]);
    }

    #[test]
    fn unknown_option_in_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("muster.toml");
        std::fs::write(&path, "zoen = \"z1\"\n").unwrap();
        assert!(
            with_file_defaults(command(), &path).unwrap_err().to_string().contains("unknown option zoen")
        );
    }

    #[test]
    fn configuration_file_is_named_by_flag_or_environment() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(config_path(&words("rep --config a.toml"), Some("b".into())), Some("a.toml".into()));
        assert_eq!(config_path(&words("rep --config=a.toml"), None), Some("a.toml".into()));
        assert_eq!(config_path(&words("rep"), Some("b".into())), Some("b".into()));
        assert_eq!(config_path(&words("rep"), None), None);
    }
}
