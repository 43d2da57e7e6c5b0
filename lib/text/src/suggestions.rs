//! Suggestions for mistyped names.

/// Maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// Returns the known names that `name` is probably a typo of, the most similar first. A name matches if one
/// is the beginning of the other, or if few letters differ.
#[must_use]
pub fn similar_names<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let distance = |other: &str| {
        let other = other.to_lowercase();
        let begins = lower.len() >= 2 && (other.starts_with(&lower) || lower.starts_with(&other));
        if begins { usize::from(other != lower) } else { strsim::osa_distance(&lower, &other) }
    };
    let close = 1 + lower.len() / 4;
    let mut all: Vec<(usize, &str)> = known.map(|other| (distance(other), other)).collect();
    all.retain(|(distance, _)| *distance <= close);
    all.sort_unstable();
    all.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// Returns a question that suggests similar names, if there are any.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    question(&similar_names(name, known))
}

/// Returns a question that suggests these names, if there are any.
#[must_use]
pub fn question<S: AsRef<str>>(names: &[S]) -> Option<String> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_finds_typos() {
        let known = ["web", "worker", "web-staging", "database"];
        assert_eq!(similar_names("wbe", known.into_iter()), ["web"]);
        assert_eq!(similar_names("Web", known.into_iter()), ["web", "web-staging"]);
        assert_eq!(similar_names("wroker", known.into_iter()), ["worker"]);
        assert_eq!(similar_names("zzz", known.into_iter()), Vec::<&str>::new());
        assert_eq!(did_you_mean("databse", known.into_iter()).unwrap(), "did you mean database?");
    }
}
