//! Arguments that several verbs share, and the parsers of their values.

use clap::Args;
use schemas::Position;
use schemas::limits::{MAX_PRIORITY, MIN_PRIORITY};
use schemas::names::{EvaluationId, ProcessGuid};
use schemas::priority::Priority;
use text::words::InvalidValue;

/// Option that makes a command return before the command has taken effect.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Return as soon as the command is in the log
    #[arg(long, short, visible_alias = "no-wait")]
    pub(crate) detach: bool,
}

/// Option that ties a command to a plan.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PlanArgs {
    /// Refuse the command if a decision about an object in the file was recorded after this position; a plan
    /// prints the position to pass
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub(crate) if_position: Option<Position>,
}

pub(crate) fn parse_priority(text: &str) -> Result<Priority, InvalidValue> {
    let (least, greatest) = (MIN_PRIORITY, MAX_PRIORITY);
    let expected = || format!("{least} to {greatest}");
    let read = text.parse().ok().and_then(Priority::new);
    read.ok_or_else(|| InvalidValue::new("priority", text, expected()))
}

pub(crate) fn parse_parameter(text: &str) -> Result<(String, String), InvalidValue> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| InvalidValue::new("parameter", text, "NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn parse_position(text: &str) -> Result<Position, InvalidValue> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    digits.parse().map(Position).map_err(|_| InvalidValue::new("position", text, "a number such as 41"))
}

pub(crate) fn parse_about(text: &str) -> Result<String, InvalidValue> {
    // The names of all these kinds have the same syntax, so one parser checks them.
    let known = match text.split_once(':') {
        Some(("lrp" | "task" | "periodic" | "parameterised" | "cell" | "domain", name)) => {
            ProcessGuid::new(name).is_ok()
        }
        None => text == "cluster",
        Some(_) => false,
    };
    let expected = "lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster, with a name of 1 to 128 of A-Z a-z 0-9 _ -";
    if known { Ok(text.to_owned()) } else { Err(InvalidValue::new("filter", text, expected)) }
}

/// Parses a whole evaluation id. Returns `None` for any other text.
pub(crate) fn parse_full_id(text: &str) -> Option<EvaluationId> {
    (text.len() == 36).then(|| text.parse().ok()).flatten()
}
