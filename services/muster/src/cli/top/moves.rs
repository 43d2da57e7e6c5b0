//! Which row of a list is chosen while rows come and go. Pure.

/// Which row of a list is chosen. The row stays chosen where others come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    key: Option<String>,
    pub(super) at: usize,
}

impl Chosen {
    /// Where it is in a list now.
    pub(super) fn settle(&mut self, keys: &[String]) {
        let found = self.key.as_ref().and_then(|key| keys.iter().position(|known| known == key));
        self.at = found.unwrap_or(self.at).min(keys.len().saturating_sub(1));
        self.key = keys.get(self.at).cloned();
    }

    /// Another row is chosen.
    pub(super) fn moved(&mut self, keys: &[String], to: usize) {
        self.at = to.min(keys.len().saturating_sub(1));
        self.key = keys.get(self.at).cloned();
    }
}
