//! Trie of subscription patterns. Each level corresponds to one token.

use std::collections::BTreeMap;

/// Trie of values by pattern.
#[derive(Debug)]
pub(super) struct Trie<T> {
    tokens: BTreeMap<Box<str>, Self>,
    /// Values whose pattern ends at this node.
    exact: Vec<T>,
    /// Values whose pattern ends with `>` after this node.
    below: Vec<T>,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self { tokens: BTreeMap::new(), exact: Vec::new(), below: Vec::new() }
    }
}

impl<T> Trie<T> {
    pub(super) fn insert(&mut self, pattern: &str, value: T) {
        let (prefix, below) = split(pattern);
        let node = prefix.into_iter().flat_map(|prefix| prefix.split('.')).fold(self, |node, word| {
            if !node.tokens.contains_key(word) {
                node.tokens.insert(word.into(), Self::default());
            }
            node.tokens.get_mut(word).expect("the word was inserted")
        });
        if below { &mut node.below } else { &mut node.exact }.push(value);
    }

    /// Removes the values of a pattern for which `gone` returns `true`. Nodes that become empty are removed,
    /// too.
    pub(super) fn remove(&mut self, pattern: &str, gone: impl Fn(&T) -> bool) {
        let (prefix, below) = split(pattern);
        let words: Vec<&str> = prefix.map(|prefix| prefix.split('.').collect()).unwrap_or_default();
        self.remove_below(&words, below, &gone);
    }

    fn remove_below(&mut self, words: &[&str], below: bool, gone: &impl Fn(&T) -> bool) {
        let Some((word, rest)) = words.split_first() else {
            if below { &mut self.below } else { &mut self.exact }.retain(|value| !gone(value));
            return;
        };
        let Some(node) = self.tokens.get_mut(*word) else { return };
        node.remove_below(rest, below, gone);
        if node.is_empty() {
            self.tokens.remove(*word);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.exact.is_empty() && self.below.is_empty()
    }

    /// Calls `show` with every value whose pattern matches a subject.
    pub(super) fn matching<'a>(&'a self, subject: &str, show: &mut impl FnMut(&'a T)) {
        self.below.iter().for_each(&mut *show);
        let (word, rest) = match subject.split_once('.') {
            Some((word, rest)) => (word, Some(rest)),
            None => (subject, None),
        };
        for node in [self.tokens.get(word), self.tokens.get("*")].into_iter().flatten() {
            match rest {
                Some(rest) => node.matching(rest, show),
                None => node.exact.iter().for_each(&mut *show),
            }
        }
    }
}

/// Returns a pattern without its `>`. The second value is `true` if the pattern ended with `>`.
fn split(pattern: &str) -> (Option<&str>, bool) {
    match pattern.strip_suffix('>') {
        Some(prefix) => (prefix.strip_suffix('.'), true),
        None => (Some(pattern), false),
    }
}

#[cfg(test)]
mod tests {
    use super::Trie;

    fn matching(patterns: &[&'static str], subject: &str) -> Vec<&'static str> {
        let mut trie = Trie::default();
        for pattern in patterns {
            trie.insert(pattern, *pattern);
        }
        let mut found = Vec::new();
        trie.matching(subject, &mut |pattern| found.push(*pattern));
        found.sort_unstable();
        for pattern in patterns {
            trie.remove(pattern, |value| value == pattern);
        }
        assert!(trie.is_empty());
        found
    }

    #[test]
    fn wildcards_match_as_on_nats() {
        let patterns = [">", "a", "a.*", "a.>", "a.b", "a.b.c", "*.b", "*.*.c", "b.>"];
        assert_eq!(matching(&patterns, "a"), [">", "a"]);
        assert_eq!(matching(&patterns, "a.b"), ["*.b", ">", "a.*", "a.>", "a.b"]);
        assert_eq!(matching(&patterns, "a.b.c"), ["*.*.c", ">", "a.>", "a.b.c"]);
        assert_eq!(matching(&patterns, "b"), [">"]);
    }
}
