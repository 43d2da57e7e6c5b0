//! Versions as hosts and programs have them, and ranges of them.
//!
//! Semantic versions take `5.15.0-91-generic` for something before 5.15.0, and no range that doesn't name it has it. Who asks
//! for `>= 5.15` means such kernels, too: here what stands behind the numbers doesn't count.

use std::cmp::Ordering;

/// A version: its numbers. What is missing at the end is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Vec<u64>);

impl Version {
    /// Reads one: numbers with dots between them, perhaps behind a `v`. What follows is left out, if it begins with what is no
    /// digit and no dot.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
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

    /// How many numbers were written.
    fn written(text: &str) -> usize {
        let numbers = |c: char| c.is_ascii_digit() || c == '.';
        text.trim()
            .trim_start_matches('v')
            .split(|c| !numbers(c))
            .next()
            .unwrap_or_default()
            .split('.')
            .count()
    }

    fn number(&self, at: usize) -> u64 {
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
        let differ = (0..longest).map(|at| self.number(at).cmp(&other.number(at)));
        differ.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// Versions between bounds: `>= 1.2, < 2`, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range(Vec<Bound>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    comparison: Comparison,
    version: Version,
    /// How many numbers of it were written: `~> 1.2` allows all of 1, `~> 1.2.0` all of 1.2.
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    About,
}

/// Text that is no range of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of versions: write one like >= 1.2, < 2 with = != < <= > >= ~>")]
pub struct BadRange(String);

/// The longer ones first: `<` begins `<=`.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("~>", Comparison::About),
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("!=", Comparison::NotEqual),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
    ("=", Comparison::Equal),
];

impl Range {
    /// Reads one. A version alone is that version.
    ///
    /// # Errors
    /// `BadRange` with the text.
    pub fn read(text: &str) -> Result<Self, BadRange> {
        let bounds = text.split(',').map(bound).collect::<Option<Vec<_>>>();
        bounds.map(Self).ok_or_else(|| BadRange(text.chars().take(40).collect()))
    }

    /// Whether a version is in it.
    #[must_use]
    pub fn has(&self, version: &Version) -> bool {
        self.0.iter().all(|bound| bound.has(version))
    }
}

fn bound(text: &str) -> Option<Bound> {
    let text = text.trim();
    let signed = |(sign, comparison): &(&str, Comparison)| Some((text.strip_prefix(sign)?, *comparison));
    let (rest, comparison) = COMPARISONS.iter().find_map(signed).unwrap_or((text, Comparison::Equal));
    let rest = rest.trim();
    // A bound is exact: nothing may stand behind its numbers.
    let plain = rest.trim_start_matches('v').bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let version = Version::read(rest).filter(|_| plain)?;
    Some(Bound { comparison, version, written: Version::written(rest) })
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
            Comparison::About => {
                let same = |at| version.number(at) == self.version.number(at);
                order.is_ge() && (0..self.written.saturating_sub(1)).all(same)
            }
        }
    }
}
