//! Properties that must hold for any input. Each format that Muster reads has a function `check(bytes)`,
//! which panics if a property is violated. A test checks the corpus in `corpus/FORMAT/`, and a fuzzer extends
//! the corpus (docs/internals/fuzzing.md, "Fuzzing").

pub mod action;
pub mod entry;
pub mod export;
pub mod headers;
pub mod message;
pub mod spec;
pub mod story;
pub mod text;

use std::path::{Path, PathBuf};

/// Check that panics if these bytes violate a property.
pub type Check = fn(&[u8]);

/// Formats, each with the name of its corpus folder and of its fuzz target, and its check.
pub const FORMATS: [(&str, Check); 8] = [
    ("action", action::check),
    ("entry", entry::check),
    ("export", export::check),
    ("headers", headers::check),
    ("message", message::check),
    ("spec", spec::check),
    ("story", story::check),
    ("text", text::check),
];

/// Returns the corpus folder of a format.
#[must_use]
pub fn corpus(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format)
}
