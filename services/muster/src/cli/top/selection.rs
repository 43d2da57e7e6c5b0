//! Selection in a list whose rows are added and removed. Pure.

/// The selected row of a list. The selection stays on its row when other rows are added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    key: Option<String>,
    pub(super) at: usize,
}

impl Selection {
    /// Finds the selected row in the current list. If it is gone, selects the row at its index.
    pub(super) fn update(&mut self, keys: &[String]) {
        let found = self.key.as_ref().and_then(|key| keys.iter().position(|known| known == key));
        self.at = found.unwrap_or(self.at).min(keys.len().saturating_sub(1));
        self.key = keys.get(self.at).cloned();
    }

    /// Selects another row.
    pub(super) fn select(&mut self, keys: &[String], to: usize) {
        self.at = to.min(keys.len().saturating_sub(1));
        self.key = keys.get(self.at).cloned();
    }
}
