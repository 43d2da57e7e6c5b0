//! Stories: texts that people write.

use simulation::story::Story;

/// Checks that a story is the same after printing and parsing.
///
/// # Panics
/// Panics if it is not.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(story) = text.parse::<Story>() else { return };
    let written = story.to_string();
    let again =
        written.parse::<Story>().unwrap_or_else(|bad| panic!("{bad} in the printed story:\n{written}"));
    assert_eq!(again, story, "printed story:\n{written}");
}
