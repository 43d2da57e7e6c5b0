//! Changes between two moments. The module compares the rows of each object at both moments, so the fields of
//! these rows are the fields that are compared.

use std::collections::{BTreeMap, BTreeSet};

use client::{Client, ListFilter, instance_key};
use schemas::Position;
use schemas::names::Domain;
use schemas::query::{AsOf, InstancePresence, InstanceRow};
use serde::Serialize;
use serde_json::Value;

use crate::comparison::{Difference, differences};
use crate::{Error, Missing};

/// Changes between two moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub from: Position,
    pub to: Position,
    pub changes: Vec<Change>,
}

/// Change of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub noun: Noun,
    pub id: String,
    pub change: Kind,
    /// Fields that differ, or all fields if the object appeared or is gone.
    pub fields: Vec<Field>,
}

/// Field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Path of the field, such as `definition.memory_mb`.
    pub field: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Appeared,
    Changed,
    Gone,
}

/// Kinds of objects, in output order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Noun {
    Lrp,
    Instance,
    Task,
    Periodic,
    Parameterised,
    Domain,
    Cell,
}

/// All rows at one moment as JSON, by kind and id of the object.
pub type Rows = BTreeMap<(Noun, String), Value>;

/// Returns the changes between two moments: of one object if `about` is set, of one domain if `domain` is set, else
/// of all objects. `about` is a filter such as `lrp:web`, which also matches the instances of the process.
///
/// # Errors
/// A query fails, or the log has no entry at a moment.
pub async fn between(
    client: &Client,
    (from, to): (AsOf, AsOf),
    domain: Option<&Domain>,
    about: Option<&str>,
) -> Result<Changes, Error> {
    let (before, from) = rows(client.clone().at_moment(from), domain, about).await?;
    let (after, to) = rows(client.clone().at_moment(to), domain, about).await?;
    Ok(Changes { from, to, changes: changes(&before, &after) })
}

/// Returns the rows as of a moment, and the position of that moment.
async fn rows(
    client: Client,
    domain: Option<&Domain>,
    about: Option<&str>,
) -> Result<(Rows, Position), Error> {
    let only = domain.map_or_else(ListFilter::default, |domain| ListFilter::domain(domain.clone()));
    let mut rows = Rows::new();
    // The first answer fixes the position for all later queries. Domains are queried first, because their
    // freshness depends on both the time and the position.
    domains(&mut rows, &client, domain).await?;
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
    if domain.is_none() {
        insert_rows(&mut rows, Noun::Cell, client.cells().await?.rows, |row| row.cell_id.to_string());
    }
    if let Some(about) = about {
        rows.retain(|(noun, id), _| noun.matches(id, about));
    }
    match client.query_moment() {
        Some(AsOf::Position(position)) => Ok((rows, position)),
        Some(AsOf::Time(_) | AsOf::Ago(_)) | None => Err(Error::not_found("the moment", Missing::Other)),
    }
}

async fn domains(rows: &mut Rows, client: &Client, only: Option<&Domain>) -> Result<(), client::Error> {
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
#[must_use]
pub fn changes(before: &Rows, after: &Rows) -> Vec<Change> {
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
    #[must_use]
    pub const fn filter_kind(self) -> &'static str {
        match self {
            Self::Lrp | Self::Instance => "lrp",
            Self::Task => "task",
            Self::Periodic => "periodic",
            Self::Parameterised => "parameterised",
            Self::Domain => "domain",
            Self::Cell => "cell",
        }
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
