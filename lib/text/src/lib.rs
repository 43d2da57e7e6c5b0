//! Text of values, events and errors, for people.
//!
//! | module | content |
//! |---|---|
//! | [`words`] | ages, durations, ids, sizes; values of options |
//! | [`describe`] | sentences about events |
//! | [`suggestions`] | similar names |

pub mod describe;
pub mod suggestions;
pub mod words;

/// Formats an error with its causes on one line. Omits a cause if the preceding message already ends with the
/// text of the cause.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.ends_with(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}
