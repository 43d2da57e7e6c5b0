//! `muster`, as tests start it.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the program without the settings of the user who runs the tests.
#[must_use]
pub fn muster(program: &Path) -> Command {
    let mut command = Command::new(program);
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.to_string_lossy().starts_with("MUSTER_")) {
        command.env_remove(name);
    }
    command.env_remove("XDG_RUNTIME_DIR").env_remove("RUST_LOG").env("USER", "tester").stdin(Stdio::null());
    // Tests inspect the processes in containers and share files with them, so isolation is off by default.
    // Tests of isolation enable it.
    command.env("MUSTER_ISOLATION", "none");
    command
}
