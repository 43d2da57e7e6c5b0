//! `muster` as tests start it.

use std::path::Path;
use std::process::{Command, Stdio};

/// The program, with nothing of the tester's own settings.
#[must_use]
pub fn muster(program: &Path) -> Command {
    let mut command = Command::new(program);
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.to_string_lossy().starts_with("MUSTER_")) {
        command.env_remove(name);
    }
    command.env_remove("XDG_RUNTIME_DIR").env_remove("RUST_LOG").env("USER", "tester").stdin(Stdio::null());
    // Tests look at what runs in containers, and let it touch their files: they say where they want it kept apart.
    command.env("MUSTER_ISOLATION", "none");
    command
}
