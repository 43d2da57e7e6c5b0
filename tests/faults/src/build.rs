//! Builds of the program: from this work tree and from the previous commit.

use std::env;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::{Failed, Result, ensure};
use crate::program::Binary;

/// Returns the root of the work tree.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    here.map(Path::to_owned).ok_or_else(|| Failed::new("can't find the root of the work tree"))
}

/// Builds the program of this work tree. The program gets the same profile and folder as the running program.
///
/// # Errors
/// Returns an error if the build fails.
pub async fn build_this_tree() -> Result<Binary> {
    let own = env::current_exe().map_err(Failed::context("the path of this program"))?;
    let folder = own.parent().ok_or_else(|| Failed::new("the path of this program has no folder"))?;
    let release = folder.file_name().is_some_and(|name| name == "release");
    cargo(&root()?, release, &[]).await?;
    Binary::new(folder.join("muster"))
}

/// Builds the program of the previous commit. Its work tree and its target folder are kept for the next run.
///
/// # Errors
/// Returns an error if there is no previous commit or the build fails.
pub async fn build_previous_commit() -> Result<Binary> {
    let root = root()?;
    let (tree, target) = (root.join("target/faults/earlier"), root.join("target/faults/earlier-target"));
    let shown = tree.display().to_string();
    if tree.join(".git").exists() {
        git(&tree, &["checkout", "--quiet", "--detach", &commit(&root).await?]).await?;
    } else {
        git(&root, &["worktree", "prune"]).await?;
        git(&root, &["worktree", "add", "--quiet", "--detach", &shown, "HEAD~1"]).await?;
    }
    cargo(&tree, true, &["--target-dir", &target.display().to_string()]).await?;
    Binary::new(target.join("release/muster"))
}

async fn commit(root: &Path) -> Result<String> {
    git(root, &["rev-parse", "HEAD~1"]).await.map(|said| said.trim().to_owned())
}

async fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let ran = Command::new("git").arg("-C").arg(folder).args(args).output().await;
    let ran = ran.map_err(Failed::context("git"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure(ran.status.success(), || {
        let advice = "set the earlier program with --earlier FILE, or select other faults with --only";
        format!("git {}: {}; {advice}", args.join(" "), said(&ran.stderr).trim())
    })?;
    Ok(said(&ran.stdout))
}

async fn cargo(tree: &Path, release: bool, args: &[&str]) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(tree).args(["build", "--locked", "--package", "muster", "--bin", "muster"]);
    command.args(release.then_some("--release")).args(args);
    let status = command.status().await.map_err(Failed::context("cargo"))?;
    ensure(status.success(), || format!("cargo build in {}: {status}", tree.display()))
}
