//! Display names of instances: `web/0`, or `web/0@v2` if another definition has an instance at the same
//! index.

use std::collections::{BTreeMap, BTreeSet};

use client::instance_key;
use schemas::ActualLrpKey;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::query::InstanceRow;

/// Indices with instances of several definitions.
#[derive(Debug, Default)]
pub struct Names {
    shared: BTreeSet<(ProcessGuid, u32)>,
}

impl Names {
    /// Collects the indices that several definitions share.
    pub fn from_keys(keys: impl IntoIterator<Item = ActualLrpKey>) -> Self {
        let mut first: BTreeMap<(ProcessGuid, u32), DefinitionId> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for ActualLrpKey { process_guid, place } in keys {
            let at = (process_guid, place.index);
            match first.get(&at) {
                Some(known) if *known == place.definition_id => {}
                Some(_) => {
                    shared.insert(at);
                }
                None => {
                    first.insert(at, place.definition_id);
                }
            }
        }
        Self { shared }
    }

    /// Collects the indices that several definitions share among rows.
    pub fn from_rows(rows: &[InstanceRow]) -> Self {
        Self::from_keys(rows.iter().map(instance_key))
    }

    /// Returns the display name of an instance.
    #[must_use]
    pub fn name(&self, key: &ActualLrpKey) -> String {
        let at = (key.process_guid.clone(), key.place.index);
        if self.shared.contains(&at) { key.with_definition() } else { key.to_string() }
    }

    /// Returns the display name of the instance in a row.
    #[must_use]
    pub fn row_name(&self, row: &InstanceRow) -> String {
        self.name(&instance_key(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fixtures::rows::{running, with_definition};

    #[test]
    fn name_includes_definition_if_index_is_shared() {
        let rows =
            [running(0), with_definition("v2", running(1)), running(1), with_definition("v2", running(2))];
        let names = Names::from_rows(&rows);
        let called: Vec<String> = rows.iter().map(|row| names.row_name(row)).collect();
        assert_eq!(called, ["web/0", "web/1@v2", "web/1@web", "web/2"]);
        let twice = [running(0), running(0)];
        assert_eq!(
            Names::from_rows(&twice).row_name(&twice[0]),
            "web/0",
            "an instance and its evacuating instance"
        );
    }
}
