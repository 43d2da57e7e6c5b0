//! `muster diff`: prints the changes between two moments. It compares the output rows of each object at both
//! moments, so the fields of these rows are the fields that are compared.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::{Global, PastView};
use cli_base::output::{Output, RenderOptions};
use client::{Client, instance_key};
use runtime::exit::Exit;
use schemas::names::Domain;
use schemas::query::{AsOf, InstancePresence, InstanceRow};
use schemas::{Position, Timestamp};
use serde::Serialize;
use serde_json::Value;
use text::words::one_line;

use super::arguments::parse_about;
use super::decisions::end_of_log;
use super::diff::{Difference, differences};
use super::find;

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

/// Changes between two moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Changes {
    from: Position,
    to: Position,
    changes: Vec<Change>,
}

/// Change of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    noun: Noun,
    id: String,
    change: Kind,
    /// Fields that differ, or all fields if the object appeared or is gone.
    fields: Vec<Field>,
}

/// Field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Field {
    /// Path of the field, such as `definition.memory_mb`.
    field: String,
    before: Option<Value>,
    after: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Appeared,
    Changed,
    Gone,
}

/// Kinds of objects, in output order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Noun {
    Lrp,
    Instance,
    Task,
    Periodic,
    Parameterised,
    Domain,
    Cell,
}

/// All rows at one moment as JSON, by kind and id of the object.
pub(super) type Rows = BTreeMap<(Noun, String), Value>;

pub(crate) async fn run(args: DiffArgs, global: &Global) -> Result<(), Failure> {
    let DiffArgs { from, to, about } = args;
    // The default end is a position, not the current time. If a clock runs ahead, the newest decisions have
    // times in the future. An end at the current time would exclude these decisions.
    let to = match to {
        Some(to) => to,
        None => AsOf::Position(end_of_log(&connect(global).await?).await?),
    };
    let (before, from) = rows(from, about.as_deref(), global).await?;
    let (after, to) = rows(to, about.as_deref(), global).await?;
    let between = Changes { from, to, changes: changes(&before, &after) };
    Output::new(global).write_one(&between, text)?;
    if between.changes.is_empty() { Ok(()) } else { Err(Failure::silent(Exit::Differs)) }
}

/// Returns the rows as of a moment, and the position of that moment.
async fn rows(as_of: AsOf, about: Option<&str>, global: &Global) -> Result<(Rows, Position), Failure> {
    let shown = PastView::as_of(as_of, global).await?;
    let client = &shown.client;
    let only = find::only(global.domain.as_ref());
    let mut rows = Rows::new();
    // The first answer fixes the position for all later queries. Domains are queried first, because their
    // freshness depends on both the time and the position.
    domains(&mut rows, client, global.domain.as_ref()).await?;
    let lrps = client.lrps_with_definitions(&only).await?.rows;
    insert_rows(&mut rows, Noun::Lrp, lrps, |row| row.process_guid.to_string());
    insert_rows(&mut rows, Noun::Instance, client.instances(&only).await?.rows, instance);
    let tasks = client.tasks_with_definitions(&only).await?.rows;
    insert_rows(&mut rows, Noun::Task, tasks, |row| row.task_guid.to_string());
    let periodics = client.periodics(&only).await?.rows;
    insert_rows(&mut rows, Noun::Periodic, periodics, |row| row.periodic_guid.to_string());
    let parameterised = client.parameterised(&only).await?.rows;
    insert_rows(&mut rows, Noun::Parameterised, parameterised, |row| row.parameterised_guid.to_string());
    // Cells belong to no domain.
    if global.domain.is_none() {
        insert_rows(&mut rows, Noun::Cell, client.cells().await?.rows, |row| row.cell_id.to_string());
    }
    if let Some(about) = about {
        rows.retain(|(noun, id), _| noun.matches(id, about));
    }
    let position = shown.position().ok_or_else(|| Failure::not_found("the moment"))?;
    Ok((rows, position))
}

async fn domains(rows: &mut Rows, client: &Client, only: Option<&Domain>) -> Result<(), Failure> {
    let mut domains = client.domains().await?.rows;
    domains.retain(|row| only.is_none_or(|only| *only == row.domain));
    insert_rows(rows, Noun::Domain, domains, |row| row.domain.to_string());
    Ok(())
}

fn insert_rows<T: Serialize>(rows: &mut Rows, noun: Noun, listed: Vec<T>, id: impl Fn(&T) -> String) {
    for row in listed {
        // Rows are plain data, so the conversion to JSON does not fail.
        rows.insert((noun, id(&row)), serde_json::to_value(&row).unwrap_or_default());
    }
}

/// Returns the name of an instance. The name includes the definition id unless this id equals the guid of the
/// process.
fn instance(row: &InstanceRow) -> String {
    let key = instance_key(row);
    let first = row.definition_id.as_str() == row.process_guid.as_str();
    let name = if first { key.to_string() } else { key.with_definition() };
    match row.presence {
        InstancePresence::Ordinary => name,
        InstancePresence::Evacuating => format!("{name} evacuating"),
    }
}

/// Returns the changes of all objects whose rows differ.
pub(super) fn changes(before: &Rows, after: &Rows) -> Vec<Change> {
    let all: BTreeSet<&(Noun, String)> = before.keys().chain(after.keys()).collect();
    let change = |key: &(Noun, String)| {
        let (was, is) = (before.get(key), after.get(key));
        let change = match (was, is) {
            (None, _) => Kind::Appeared,
            (Some(_), None) => Kind::Gone,
            (Some(was), Some(is)) if was == is => return None,
            (Some(_), Some(_)) => Kind::Changed,
        };
        let empty = Value::Object(serde_json::Map::new());
        let differ = differences(was.unwrap_or(&empty), is.unwrap_or(&empty));
        let field = |Difference { field, cluster, file }| Field { field, before: cluster, after: file };
        Some(Change {
            noun: key.0,
            id: key.1.clone(),
            change,
            fields: differ.into_iter().map(field).collect(),
        })
    };
    all.into_iter().filter_map(change).collect()
}

impl Noun {
    /// Returns `true` if an object matches a filter such as `lrp:web`. A filter for a process also matches
    /// its instances.
    fn matches(self, id: &str, about: &str) -> bool {
        let Some((kind, name)) = about.split_once(':') else { return false };
        let own = match self {
            Self::Instance => id.split('/').next().unwrap_or_default(),
            Self::Lrp | Self::Task | Self::Periodic | Self::Parameterised | Self::Domain | Self::Cell => id,
        };
        kind == self.filter_kind() && own == name
    }

    /// Returns the kind that a filter names.
    pub(super) const fn filter_kind(self) -> &'static str {
        match self {
            Self::Lrp | Self::Instance => "lrp",
            Self::Task => "task",
            Self::Periodic => "periodic",
            Self::Parameterised => "parameterised",
            Self::Domain => "domain",
            Self::Cell => "cell",
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::Lrp => "processes",
            Self::Instance => "instances",
            Self::Task => "tasks",
            Self::Periodic => "periodic tasks",
            Self::Parameterised => "parameterised tasks",
            Self::Domain => "domains",
            Self::Cell => "cells",
        }
    }
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
            lines.push(format!("\n{}", change.noun.heading()));
        }
        lines.push(format!("  {}", change.line()));
    }
    lines.join("\n")
}

impl Change {
    fn line(&self) -> String {
        let id = one_line(&self.id);
        match self.change {
            Kind::Appeared => format!("+ {id}: {}", self.summary()),
            Kind::Gone => format!("- {id}: {}", self.summary()),
            Kind::Changed => format!("~ {id}: {}", self.summary()),
        }
    }

    /// Formats the change as text, without the name of the object.
    pub(super) fn summary(&self) -> String {
        match self.change {
            Kind::Appeared => format!("appeared{}", self.brief(|field| field.after.as_ref())),
            Kind::Gone => format!("gone{}", self.brief(|field| field.before.as_ref())),
            Kind::Changed => {
                let told = |field: &&Field| !BOOKKEEPING_FIELDS.contains(&field.field.as_str());
                let fields: Vec<String> = self.fields.iter().filter(told).map(Field::describe).collect();
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
    fn brief<'a>(&'a self, value: impl Fn(&'a Field) -> Option<&'a Value>) -> String {
        let of = |name: &str| self.fields.iter().find(|field| field.field == name).and_then(&value);
        let text = |name: &str| of(name).and_then(Value::as_str);
        let mut brief = String::new();
        if let Some(instances) = of("instances").and_then(Value::as_u64) {
            brief.push_str(&format!(", {}", text::words::count(instances, "instance")));
        }
        if let Some(state) = text("state") {
            brief.push_str(&format!(", {}", one_line(state)));
        }
        if let Some(cell) = text("cell_id").filter(|cell| *cell != self.id) {
            brief.push_str(&format!(" on {}", one_line(cell)));
        }
        brief
    }
}

impl Field {
    fn describe(&self) -> String {
        let shown = |value: &Option<Value>| self.format_value(value.as_ref());
        format!("{} {} → {}", self.field, shown(&self.before), shown(&self.after))
    }

    fn format_value(&self, value: Option<&Value>) -> String {
        let name = self.field.rsplit('.').next().unwrap_or_default();
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
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn json_has_every_changed_field_with_both_values() {
        let json = json!(between());
        assert_eq!(json["changes"][0]["noun"], "lrp");
        assert_eq!(json["changes"][0]["change"], "changed");
        let instances = json!({"field": "instances", "before": 2, "after": 3});
        assert!(json["changes"][0]["fields"].as_array().unwrap().contains(&instances), "{json}");
        assert_eq!(json["changes"][1]["change"], "gone");
    }

    #[test]
    fn filter_matches_only_the_named_object() {
        assert!(Noun::Lrp.matches("web", "lrp:web") && Noun::Instance.matches("web/0@v2", "lrp:web"));
        assert!(!Noun::Instance.matches("web2/0", "lrp:web") && !Noun::Task.matches("web", "lrp:web"));
        assert!(Noun::Cell.matches("c1", "cell:c1") && !Noun::Domain.matches("c1", "cell:c1"));
    }
}
