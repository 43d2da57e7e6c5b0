//! Stories: text that a person writes.

use simulation::story::Story;

/// What is read as a story is written and read again as the same.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(story) = text.parse::<Story>() else { return };
    let written = story.to_string();
    let again =
        written.parse::<Story>().unwrap_or_else(|bad| panic!("{bad} in what was written:\n{written}"));
    assert_eq!(again, story, "what was written:\n{written}");
}
