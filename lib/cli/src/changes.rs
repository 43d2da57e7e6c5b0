//! `muster diff`: prints the changes between two moments.

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use explain::changes::{Change, Changes, Field, Kind, Noun, between};
use explain::decisions::end_of_log;
use runtime::exit::Exit;
use schemas::Timestamp;
use schemas::query::AsOf;
use serde_json::Value;
use text::words::one_line;

use super::arguments::parse_about;

/// Fields that change with every decision and carry no other information. The text output omits them.
const BOOKKEEPING_FIELDS: [&str; 5] =
    ["version", "last_decision", "changed_at", "since", "modification_tag.index"];
/// Maximum number of fields shown per object in text output, and the maximum length of a value in characters.
const MAX_FIELDS: usize = 12;
const MAX_VALUE_CHARS: usize = 60;

/// Arguments of `muster diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// Earlier moment: a log position, a time (UTC, or local as "2026-10-02 14:00"), or a time ago such
    /// as -10m
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    from: AsOf,
    /// Later moment [default: now]
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    to: Option<AsOf>,
    /// Only changes of this object: lrp:GUID with its instances, task:GUID, periodic:GUID,
    /// parameterised:GUID, cell:ID or domain:NAME
    #[arg(long, value_parser = parse_about, value_name = "THING")]
    about: Option<String>,
}

pub(crate) async fn run(args: DiffArgs, global: &Global) -> Result<(), Failure> {
    let DiffArgs { from, to, about } = args;
    let client = connect(global).await?;
    // The default end is a position, not the current time. If a clock runs ahead, the newest decisions have
    // times in the future. An end at the current time would exclude these decisions.
    let to = match to {
        Some(to) => to,
        None => AsOf::Position(end_of_log(&client).await?),
    };
    let between = between(&client, (from, to), global.domain.as_ref(), about.as_deref()).await?;
    Output::new(global).write_one(&between, text)?;
    if between.changes.is_empty() { Ok(()) } else { Err(Failure::silent(Exit::Differs)) }
}

/// Formats the changes as text: a line for each object, grouped by kind.
fn text(between: &Changes, _: RenderOptions) -> String {
    let Changes { from, to, changes } = between;
    if changes.is_empty() {
        return format!("nothing changed between positions {from} and {to}");
    }
    let mut lines = vec![format!("between positions {from} and {to}:")];
    let mut noun = None;
    for change in changes {
        if noun != Some(change.noun) {
            noun = Some(change.noun);
            lines.push(format!("\n{}", heading(change.noun)));
        }
        lines.push(format!("  {}", line(change)));
    }
    lines.join("\n")
}

/// Returns the heading of a kind of objects.
const fn heading(noun: Noun) -> &'static str {
    match noun {
        Noun::Lrp => "processes",
        Noun::Instance => "instances",
        Noun::Task => "tasks",
        Noun::Periodic => "periodic tasks",
        Noun::Parameterised => "parameterised tasks",
        Noun::Domain => "domains",
        Noun::Cell => "cells",
    }
}

/// Formats the change of an object as a line.
fn line(change: &Change) -> String {
    let id = one_line(&change.id);
    match change.change {
        Kind::Appeared => format!("+ {id}: {}", summary(change)),
        Kind::Gone => format!("- {id}: {}", summary(change)),
        Kind::Changed => format!("~ {id}: {}", summary(change)),
    }
}

/// Formats the change as text, without the name of the object.
pub(crate) fn summary(change: &Change) -> String {
    match change.change {
        Kind::Appeared => format!("appeared{}", brief(change, |field| field.after.as_ref())),
        Kind::Gone => format!("gone{}", brief(change, |field| field.before.as_ref())),
        Kind::Changed => {
            let told = |field: &&Field| !BOOKKEEPING_FIELDS.contains(&field.field.as_str());
            let fields: Vec<String> = change.fields.iter().filter(told).map(describe).collect();
            let left = fields.len().saturating_sub(MAX_FIELDS);
            let mut line = fields.into_iter().take(MAX_FIELDS).collect::<Vec<_>>().join(", ");
            if left > 0 {
                line.push_str(&format!(", and {left} more fields"));
            }
            if line.is_empty() {
                line.push_str("no change");
            }
            line
        }
    }
}

/// Summarises an object that appeared or is gone: instance count, state and cell.
fn brief<'a>(change: &'a Change, value: impl Fn(&'a Field) -> Option<&'a Value>) -> String {
    let of = |name: &str| change.fields.iter().find(|field| field.field == name).and_then(&value);
    let text = |name: &str| of(name).and_then(Value::as_str);
    let mut brief = String::new();
    if let Some(instances) = of("instances").and_then(Value::as_u64) {
        brief.push_str(&format!(", {}", text::words::count(instances, "instance")));
    }
    if let Some(state) = text("state") {
        brief.push_str(&format!(", {}", one_line(state)));
    }
    if let Some(cell) = text("cell_id").filter(|cell| *cell != change.id) {
        brief.push_str(&format!(" on {}", one_line(cell)));
    }
    brief
}

fn describe(field: &Field) -> String {
    let shown = |value: &Option<Value>| format_value(&field.field, value.as_ref());
    format!("{} {} → {}", field.field, shown(&field.before), shown(&field.after))
}

fn format_value(field: &str, value: Option<&Value>) -> String {
    let name = field.rsplit('.').next().unwrap_or_default();
    let is_time = name.ends_with("_at") || matches!(name, "since" | "epoch");
    let text = match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => {
            let time = is_time.then(|| text.parse::<Timestamp>().ok()).flatten();
            time.map_or_else(|| one_line(text), |time| time.to_string())
        }
        Some(other) => one_line(&other.to_string()),
    };
    if text.chars().count() <= MAX_VALUE_CHARS {
        return text;
    }
    let cut: String = text.chars().take(MAX_VALUE_CHARS - 1).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use explain::changes::{Rows, changes};
    use schemas::Position;
    use serde_json::json;

    use super::*;

    fn rows(all: &[(Noun, &str, Value)]) -> Rows {
        all.iter().map(|(noun, id, row)| ((*noun, (*id).to_owned()), row.clone())).collect()
    }

    fn between() -> Changes {
        let lrp = |instances: u32, version: u32| {
            json!({"process_guid": "web", "instances": instances, "version": version,
                   "definition": {"memory_mb": 64}, "changed_to_at": "2027-01-15T08:00:00.000000000Z"})
        };
        let before = rows(&[
            (Noun::Lrp, "web", lrp(2, 1)),
            (Noun::Lrp, "same", lrp(1, 1)),
            (Noun::Instance, "web/1", json!({"state": "RUNNING", "cell_id": "c2"})),
            (Noun::Cell, "c1", json!({"version": 1})),
        ]);
        let mut changed = lrp(3, 2);
        changed["definition"]["memory_mb"] = json!(128);
        changed["changed_to_at"] = json!("2027-01-15T08:00:01.000000000Z");
        let after = rows(&[
            (Noun::Lrp, "web", changed),
            (Noun::Lrp, "same", lrp(1, 1)),
            (Noun::Instance, "web/2", json!({"state": "CLAIMED", "cell_id": "c1"})),
            (Noun::Cell, "c1", json!({"version": 2})),
        ]);
        Changes { from: Position(4), to: Position(9), changes: changes(&before, &after) }
    }

    #[test]
    fn text_has_one_line_per_changed_object() {
        let look = RenderOptions { now: Timestamp(0), full_ids: false, colour: false };
        assert_eq!(
            text(&between(), look),
            "between positions 4 and 9:\n\nprocesses\n  ~ web: changed_to_at 2027-01-15T08:00:00.000Z → 2027-01-15T08:00:01.000Z, \
             definition.memory_mb 64 → 128, instances 2 → 3\n\ninstances\n  - web/1: gone, RUNNING on c2\n  + web/2: \
             appeared, CLAIMED on c1\n\ncells\n  ~ c1: no change"
        );
        let nothing = Changes { changes: vec![], ..between() };
        assert_eq!(text(&nothing, look), "nothing changed between positions 4 and 9");
    }
}
