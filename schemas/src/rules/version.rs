//! Versions of hosts and programs, and ranges of versions.
//!
//! In semantic versioning, `5.15.0-91-generic` precedes 5.15.0, and a range includes such a version only if
//! the range names the version explicitly. However, a user who writes `>= 5.15` expects such kernels to
//! match. Therefore text after the numbers is ignored here.

use std::cmp::Ordering;

/// Version as a list of numbers. Missing numbers at the end count as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Vec<u64>);

impl Version {
    /// Parses a version: numbers separated by dots, with an optional `v` before them. The first other
    /// character and the text after it are ignored. Returns `None` if the text is not a version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let numbers = text[..end].trim_end_matches('.').split('.');
        let mut numbers = numbers.map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Some(Self(numbers))
    }

    /// Returns the number of components that the text contains.
    fn component_count(text: &str) -> usize {
        let numbers = |c: char| c.is_ascii_digit() || c == '.';
        text.trim()
            .trim_start_matches('v')
            .split(|c| !numbers(c))
            .next()
            .unwrap_or_default()
            .split('.')
            .count()
    }

    fn component(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let longest = self.0.len().max(other.0.len());
        let differ = (0..longest).map(|at| self.component(at).cmp(&other.component(at)));
        differ.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// Range of versions such as `>= 1.2, < 2`. A version has to satisfy every bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range(Vec<Bound>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    comparison: Comparison,
    version: Version,
    /// Number of components in the text of the bound. `~> 1.2` allows 1.2 and later 1.x, whereas `~> 1.2.0`
    /// allows every 1.2.x.
    component_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Compatible,
}

/// Error for text that is not a range of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of versions: write one like >= 1.2, < 2 with = != < <= > >= ~>")]
pub struct BadRange(String);

/// Comparison operators. Longer operators come first, because `<` is a prefix of `<=`.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("~>", Comparison::Compatible),
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("!=", Comparison::NotEqual),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
    ("=", Comparison::Equal),
];

impl Range {
    /// Parses a range. A version without an operator allows only that version.
    ///
    /// # Errors
    /// `BadRange`, which contains the text.
    pub fn parse(text: &str) -> Result<Self, BadRange> {
        let bounds = text.split(',').map(parse_bound).collect::<Option<Vec<_>>>();
        bounds.map(Self).ok_or_else(|| BadRange(text.chars().take(40).collect()))
    }

    /// Returns `true` if the range includes a version.
    #[must_use]
    pub fn contains(&self, version: &Version) -> bool {
        self.0.iter().all(|bound| bound.has(version))
    }
}

fn parse_bound(text: &str) -> Option<Bound> {
    let text = text.trim();
    let signed = |(sign, comparison): &(&str, Comparison)| Some((text.strip_prefix(sign)?, *comparison));
    let (rest, comparison) = COMPARISONS.iter().find_map(signed).unwrap_or((text, Comparison::Equal));
    let rest = rest.trim();
    // A bound is exact, so text after its numbers is not allowed.
    let plain = rest.trim_start_matches('v').bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let version = Version::parse(rest).filter(|_| plain)?;
    Some(Bound { comparison, version, component_count: Version::component_count(rest) })
}

impl Bound {
    fn has(&self, version: &Version) -> bool {
        let order = version.cmp(&self.version);
        match self.comparison {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::AtMost => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::AtLeast => order.is_ge(),
            Comparison::Compatible => {
                let same = |at| version.component(at) == self.version.component(at);
                order.is_ge() && (0..self.component_count.saturating_sub(1)).all(same)
            }
        }
    }
}
