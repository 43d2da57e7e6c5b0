//! Subjects that patterns stand for.

/// A subject that a pattern stands for.
#[must_use]
pub fn example(pattern: &str) -> String {
    let word = |word: &str| if matches!(word, "*" | ">") { "probe".to_owned() } else { word.to_owned() };
    pattern.split('.').map(word).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use schemas::reach::covers;

    use super::*;

    #[test]
    fn an_example_is_a_subject_that_is_covered() {
        for pattern in ["a.b", "a.*.c", "a.>", "*.>"] {
            let subject = example(pattern);
            assert!(covers(pattern, &subject) && !subject.contains(['*', '>']), "{subject}");
        }
    }
}
