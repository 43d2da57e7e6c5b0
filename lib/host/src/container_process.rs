//! Processes of containers that are this program: shims, and the example server.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use super::example_server;

/// Runs this process as the shim or the example server of a container, if its arguments name one. Returns `None`
/// for every other command line.
///
/// Each container has a shim that runs as long as the container. A program calls this function first, so a shim
/// initialises nothing else.
#[must_use]
pub fn run() -> Option<ExitCode> {
    let arguments: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    match arguments.iter().map(|argument| argument.as_os_str()).collect::<Vec<&OsStr>>()[..] {
        [verb, folder] if verb == "shim" => Some(executor::shim::run(Path::new(folder), None)),
        [verb, folder, stage] if verb == "shim" => Some(executor::shim::run(Path::new(folder), Some(stage))),
        [verb] if verb == "example-server" => Some(example_server::run(false)),
        [verb, check] if verb == "example-server" && check == "check" => Some(example_server::run(true)),
        _ => None,
    }
}
