//! The mutated copy of everything that the simulation is made of.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::list::{Change, Mutation};
use super::schemata;

/// The packages that the simulation is made of.
const PACKAGES: [&str; 12] = [
    "schemas",
    "projections",
    "services/bbs",
    "services/auctioneer",
    "services/rep",
    "lib/audit",
    "lib/election",
    "lib/machines",
    "lib/scenario",
    "lib/scripted",
    "services/simulation",
    // Not of the simulation: other packages have tests that need it, and Cargo wants to see it.
    "tests/fixtures",
];

/// The manifest of the simulation.
const MANIFEST: &str = "services/simulation/Cargo.toml";

/// What the copy's program is called: it is built beside the program that runs it.
pub const PROGRAM: &str = "simulation-mutated";

/// Text by file, as the workspace names it.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Writes the mutated copy of a workspace into a folder. What didn't change isn't touched, so that it isn't built again.
///
/// # Errors
/// A mutation that doesn't fit, or a file that can't be read or written.
pub fn write(workspace: &Path, folder: &Path, mutations: &[Mutation]) -> Result<(), String> {
    sync(folder, &mutated(workspace, mutations)?)
}

/// The files of the copy.
fn mutated(workspace: &Path, mutations: &[Mutation]) -> Result<Files, String> {
    let mut files = Files::new();
    for package in PACKAGES {
        read_all(workspace, Path::new(package), &mut files)?;
    }
    for file in ["Cargo.lock", "rust-toolchain.toml"] {
        files.insert(file.into(), read(&workspace.join(file))?);
    }
    let manifest = text(Path::new("Cargo.toml"), read(&workspace.join("Cargo.toml"))?)?;
    files.insert("Cargo.toml".into(), reduced(&manifest).into_bytes());
    let simulation = files.get_mut(Path::new(MANIFEST)).ok_or_else(|| format!("there is no {MANIFEST}"))?;
    simulation
        .extend_from_slice(format!("\n[[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n").as_bytes());
    mutate(&mut files, mutations)?;
    Ok(files)
}

fn mutate(files: &mut Files, mutations: &[Mutation]) -> Result<(), String> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &str, &Change)>> = BTreeMap::new();
    for (number, mutation) in (1..).zip(mutations) {
        for change in &mutation.changes {
            by_file.entry(&change.file).or_default().push((number, &mutation.name, change));
        }
    }
    let mut roots: Vec<PathBuf> = vec![];
    for (file, changes) in by_file {
        let path = PathBuf::from(file);
        let package = PACKAGES.iter().find(|package| path.starts_with(package));
        let known = package.and_then(|package| Some((package, files.get_mut(&path)?)));
        let Some((package, bytes)) = known else {
            return Err(format!("{}: there is no {file} in the simulation", changes[0].1));
        };
        *bytes = schemata::write(&text(&path, std::mem::take(bytes))?, &changes)?.into_bytes();
        roots.push(Path::new(package).join("src/lib.rs"));
    }
    roots.dedup();
    for root in roots {
        let file = files.get_mut(&root).ok_or_else(|| format!("there is no {}", root.display()))?;
        file.extend_from_slice(schemata::mutated().as_bytes());
    }
    Ok(())
}

/// The workspace's manifest with these packages alone, and nothing to warn of.
fn reduced(manifest: &str) -> String {
    let packages = PACKAGES.map(|package| format!("{package:?}")).join(", ");
    let mut written = String::new();
    let mut kept = true;
    for line in manifest.lines() {
        if line.starts_with('[') {
            kept = !line.starts_with("[workspace.lints") && line != "[workspace]";
        }
        if kept {
            written.push_str(line);
            written.push('\n');
        }
    }
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{packages}]\n\n[workspace.lints.rust]\nwarnings = \"allow\"\n\n{written}"
    )
}

fn read_all(workspace: &Path, folder: &Path, files: &mut Files) -> Result<(), String> {
    for path in entries(&workspace.join(folder))? {
        let name = path.strip_prefix(workspace).map_err(|error| error.to_string())?;
        if path.is_dir() {
            read_all(workspace, name, files)?;
        } else {
            files.insert(name.to_owned(), read(&path)?);
        }
    }
    Ok(())
}

/// Makes a folder hold these files and no others.
fn sync(folder: &Path, files: &Files) -> Result<(), String> {
    for (name, bytes) in files {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|there| there == *bytes) {
            continue;
        }
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
        fs::write(&path, bytes).map_err(|error| failed(&path, &error))?;
    }
    remove_others(folder, folder, files)
}

fn remove_others(root: &Path, folder: &Path, files: &Files) -> Result<(), String> {
    for path in entries(folder)? {
        if path.is_dir() {
            remove_others(root, &path, files)?;
        } else if path.strip_prefix(root).is_ok_and(|name| !files.contains_key(name)) {
            fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| failed(folder, &error))).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| failed(path, &error))
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| format!("{} is not text", path.display()))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutations::{self, list};
    use crate::promises::Promise;

    #[test]
    fn every_promise_has_a_mutation() {
        let list = fs::read_to_string(mutations::list_file()).unwrap();
        let broken: Vec<Promise> =
            list::read(&list).unwrap().into_iter().flat_map(|one| one.breaks).collect();
        // Only a story expects something of its own: the stories' own tests break it.
        let unproved = Promise::ALL
            .iter()
            .filter(|promise| **promise != Promise::AsExpected && !broken.contains(promise));
        assert_eq!(unproved.collect::<Vec<_>>(), Vec::<&Promise>::new());
    }

    #[test]
    fn the_copy_holds_all_that_it_is_made_of() {
        let root = mutations::workspace();
        let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        for package in PACKAGES {
            let manifest = fs::read_to_string(root.join(package).join("Cargo.toml")).unwrap();
            for name in
                manifest.lines().filter_map(|line| line.split_once(".workspace").map(|(name, _)| name))
            {
                let ours = format!("\n{name} = {{ path = \"");
                let path = workspace.split_once(&ours).and_then(|(_, rest)| rest.split_once('"'));
                assert!(
                    path.is_none_or(|(path, _)| PACKAGES.contains(&path)),
                    "{package} needs {name}, and a copy without it can't be built"
                );
            }
        }
    }

    #[test]
    fn the_list_fits_the_sources() {
        let list = fs::read_to_string(mutations::list_file()).unwrap();
        let mutations = list::read(&list).unwrap();
        assert!(mutations.len() >= 20);
        let fits = mutated(mutations::workspace(), &mutations).map(|files| files.len() > 100);
        assert_eq!(fits, Ok(true));
    }
}
