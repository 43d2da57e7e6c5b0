//! What must hold of any bytes whatever: for each format that Muster reads a `check(bytes)`, which panics where something
//! doesn't hold. The corpus in `corpus/FORMAT/` is checked by a test, and a fuzzer grows it (docs/testing.md, "Any bytes
//! whatever").

pub mod action;
pub mod entry;
pub mod export;
pub mod headers;
pub mod message;
pub mod spec;
pub mod story;
pub mod text;

use std::path::{Path, PathBuf};

/// A check: it panics where something doesn't hold of these bytes.
pub type Check = fn(&[u8]);

/// Every format by the name of its folder in the corpus and of its target, and its check.
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

/// Where the corpus of a format is.
#[must_use]
pub fn corpus(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format)
}
