//! Options from a file: flags win over the environment, the environment over the file.
//!
//! `--config FILE`, or `MUSTER_CONFIG`, names a TOML file whose keys are the long names of options: `nats = "nats://.."`.
//! What stands there becomes the option's default, so that a flag and an environment variable still win: reading values,
//! their order, and what is wrong with them is clap's. A crate for layered configuration would need every option of every
//! command once more as a field, and refuse values in words of its own.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::builder::Resettable;
use toml::{Table, Value};

/// The file that the command line or the environment names.
pub(crate) fn file(arguments: &[OsString], environment: Option<OsString>) -> Option<PathBuf> {
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

/// Makes what a file says the defaults of a command line.
///
/// # Errors
/// The file can't be read, or names what is not an option.
pub(crate) fn defaults(mut command: Command, path: &Path) -> Result<Command, ConfigError> {
    let file = || path.to_owned();
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: file(), source })?;
    let table: Table = text.parse().map_err(|source| ConfigError::Syntax { path: file(), source })?;
    let mut names = vec![];
    for (name, value) in &table {
        let text = word(value).ok_or_else(|| ConfigError::Value { path: file(), name: name.clone() })?;
        let (changed, known) = set_default(command, name, &text);
        command = changed;
        if !known {
            names.push(name.clone());
        }
    }
    if names.is_empty() { Ok(command) } else { Err(ConfigError::Unknown { path: file(), names }) }
}

/// Why a file with options can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It can't be read.
    #[error("can't read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not TOML.
    #[error("the configuration file {} is not valid TOML", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: toml::de::Error,
    },
    /// The value of an option is none.
    #[error(
        "the configuration file {}: invalid value of {name}: expected a text, a number, true or false, or a list of them",
        path.display()
    )]
    Value {
        /// The file.
        path: PathBuf,
        /// The option.
        name: String,
    },
    /// No command has such options.
    #[error(
        "the configuration file {}: unknown option {}: expected long names of options, as nats or cell",
        path.display(),
        names.join(", ")
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it names.
        names: Vec<String>,
    },
}

/// The same command line as variables of the environment are read: those that are set to nothing say nothing. Help names
/// variables and not what they are set to, which may be a password.
pub(crate) fn with_environment(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_env().map(is_empty) {
        Some(true) => arg.env(Resettable::Reset),
        Some(false) | None => arg.hide_env_values(true),
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_environment))
}

/// Sets the default wherever a command has the option.
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

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(so) => Some(so.to_string()),
        Value::Array(values) => {
            let words: Option<Vec<String>> = values.iter().map(word).collect();
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
    fn a_flag_wins_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("muster.toml");
        std::fs::write(&path, "nats = \"nats://x\"\ncell = \"c1\"\nzone = \"z1\"\n").unwrap();
        let matches = defaults(command(), &path).unwrap().get_matches_from(["muster", "rep", "--zone", "z2"]);
        let (_, rep) = matches.subcommand().unwrap();
        let get = |name| rep.get_one::<String>(name).map(String::as_str);
        assert_eq!([get("nats"), get("cell"), get("zone")], [Some("nats://x"), Some("c1"), Some("z2")]);
    }

    #[test]
    fn a_word_that_is_no_option_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("muster.toml");
        std::fs::write(&path, "zoen = \"z1\"\n").unwrap();
        assert!(defaults(command(), &path).unwrap_err().to_string().contains("unknown option zoen"));
    }

    #[test]
    fn the_file_is_named_by_the_flag_or_the_environment() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(file(&words("rep --config a.toml"), Some("b".into())), Some("a.toml".into()));
        assert_eq!(file(&words("rep --config=a.toml"), None), Some("a.toml".into()));
        assert_eq!(file(&words("rep"), Some("b".into())), Some("b".into()));
        assert_eq!(file(&words("rep"), None), None);
    }
}
