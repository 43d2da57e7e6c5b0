//! Property test: tables that are maintained step by step equal the tables computed from the whole World (the
//! state folded from the log), at every position.

use std::collections::BTreeMap;
use std::path::Path;

use projections::tables::{Row, Step, Table, Tables, Value, events, sql};
use proptest::prelude::*;
use schemas::Entry;

use crate::log::{Entries, groups, write};

/// Tables in memory, built from steps only.
#[derive(Default)]
struct MemoryTables(BTreeMap<(Table, Vec<Value>), Row>);

impl MemoryTables {
    /// Applies a step and checks it against the existing row.
    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let (row, is_there) = match &step {
            Step::Open(row) => (row.clone(), None),
            Step::Replace(row) => (row.clone(), Some(true)),
            Step::Close(row) => (row.clone(), Some(false)),
            Step::Renew(row) => {
                self.0.insert(row.name(), row.clone());
                return Ok(());
            }
            Step::Clear(table, key) => {
                self.0.remove(&(*table, key.clone()));
                return Ok(());
            }
        };
        let name = row.name();
        let known = self.0.remove(&name);
        prop_assert_eq!(known.is_some(), is_there.is_some(), "{:?}", step);
        if is_there == Some(true) {
            prop_assert_ne!(known.as_ref(), Some(&row), "a replaced row has other values");
        }
        if is_there != Some(false) {
            self.0.insert(name, row);
        } else {
            prop_assert_eq!(known, Some(row), "a closed row has its last values");
        }
        Ok(())
    }

    fn check(&self, tables: &Tables) -> Result<(), TestCaseError> {
        let all = tables.rows();
        for row in all.iter().filter(|row| row.table.is_record()) {
            prop_assert_eq!(self.0.get(&row.name()), Some(row));
        }
        let present: Vec<&Row> = self.0.values().filter(|row| !row.table.is_record()).collect();
        let expected: Vec<&Row> = all.iter().filter(|row| !row.table.is_record()).collect();
        prop_assert_eq!(present, expected);
        // The check includes ended containers that the World has forgotten: an existing container has no row
        // of an ended container.
        for container in all.iter().filter(|row| row.table == Table::ActualLrps).filter_map(container_of) {
            prop_assert_eq!(self.0.get(&(Table::EndedInstances, vec![container.clone()])), None);
        }
        Ok(())
    }
}

/// Returns the container of an instance's row.
fn container_of(row: &Row) -> Option<&Value> {
    let at = row.table.columns().iter().position(|column| column.name == "instance_guid")?;
    row.values.get(at).filter(|container| **container != Value::Null)
}

/// Maintains the tables of a log, and checks them at each position.
pub(crate) fn check_tables(entries: &Entries) -> Result<(), TestCaseError> {
    let (mut tables, mut kept) = (Tables::default(), MemoryTables::default());
    for (position, entry) in entries {
        let folded = tables.fold(*position, entry);
        prop_assert_eq!(folded.events.len(), event_count(entry));
        for step in folded.steps {
            kept.apply(step)?;
        }
        kept.check(&tables)?;
        let again = tables.fold(*position, entry);
        prop_assert_eq!((again.steps, again.events), (vec![], vec![]), "folded twice");
    }
    Ok(())
}

fn event_count(entry: &Entry) -> usize {
    entry.decisions.iter().map(|decision| decision.events.len()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_tables_equal_full_tables(groups in groups()) {
        check_tables(&write(&groups).entries)?;
    }
}

#[test]
fn columns_have_unique_names_and_comments() {
    for table in Table::ALL {
        let columns = table.columns();
        let names: std::collections::BTreeSet<&str> = columns.iter().map(|column| column.name).collect();
        assert_eq!(names.len(), columns.len(), "{}", table.name());
        assert!((1..columns.len()).contains(&table.key_columns()));
        assert!(columns.iter().all(|column| column.comment.ends_with('.')), "{}", table.name());
    }
    let events = events::column_specs();
    assert_eq!((events[0].name, events[1].name), ("position", "nth"), "the key columns");
}

#[test]
fn reference_page_describes_every_table_view_and_column() {
    let mut text = "| table or view | content | columns |\n|---|---|---|\n".to_owned();
    let mut tables: Vec<(String, String)> = vec![];
    let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, column, comment) in sql::documentation() {
        match column {
            Some(column) => columns.entry(table).or_default().push(format!("`{column}`")),
            None => tables.push((table, comment)),
        }
    }
    // A history table has the columns of its base table, and the end of the interval.
    for (table, comment) in tables.iter().filter(|(table, _)| !table.ends_with("_history")) {
        let comment = comment.trim_end_matches('.').replace('|', "\\|");
        text.push_str(&format!("| `{table}` | {comment} | {} |\n", columns[table].join(", ")));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/sql-tables.md");
    fixtures::pages::check_tables(&page, &BTreeMap::from([("tables", text)]));
}
