//! Selection in a list whose rows are added and removed. All functions are pure.

/// The selected row of a list. The same row stays selected when other rows are added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    key: Option<String>,
    pub(super) at: usize,
}

impl Selection {
    /// Finds the selected row in the current list. If the list no longer has this row, selects the row at the
    /// same index.
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
