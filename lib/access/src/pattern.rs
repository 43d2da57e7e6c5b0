//! Matching of subject patterns. `*` matches one token; `>` at the end matches one or more tokens.

/// Returns `true` if `wide` matches every subject that `narrow` matches. A subject without wildcards matches
/// itself.
#[must_use]
pub fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('.'), narrow.split('.'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(word)) if word != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return false,
        }
    }
}

/// Returns a subject that the pattern matches.
#[must_use]
pub fn example(pattern: &str) -> String {
    let word = |word: &str| if matches!(word, "*" | ">") { "probe".to_owned() } else { word.to_owned() };
    pattern.split('.').map(word).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_accepts_only_narrower_patterns() {
        for (wide, narrow) in [
            ("a.b", "a.b"),
            ("a.*", "a.b"),
            ("a.*", "a.*"),
            ("a.>", "a.b"),
            ("a.>", "a.b.c"),
            ("a.>", "a.*.>"),
            (">", "a.b"),
            ("*.b", "a.b"),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
        }
        for (wide, narrow) in [
            ("a.b", "a.c"),
            ("a.b", "a"),
            ("a", "a.b"),
            ("a.*", "a.>"),
            ("a.b", "a.*"),
            ("a.>", "a"),
            ("a.>", ">"),
            ("*", "a.b"),
        ] {
            assert!(!covers(wide, narrow), "{wide} does not cover {narrow}");
        }
    }

    #[test]
    fn example_returns_a_covered_subject() {
        for pattern in ["a.b", "a.*.c", "a.>", "*.>"] {
            let subject = example(pattern);
            assert!(covers(pattern, &subject) && !subject.contains(['*', '>']), "{subject}");
        }
    }
}
