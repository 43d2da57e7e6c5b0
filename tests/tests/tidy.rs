//! What the compiler can't see: tables without a wildcard, files that belong to a module, crates that don't wait,
//! words that mean unfinished work.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every Rust file of the workspace, build output left out.
fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, found);
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    let mut found = vec![];
    walk(&root(), &mut found);
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a source file")
}

#[test]
fn tables_have_no_wildcard() {
    let tables = root().join("services/rep/src/reconcile");
    let mut seen = 0;
    for path in sources().iter().filter(|path| path.starts_with(&tables)) {
        seen += 1;
        for (at, line) in read(path).lines().enumerate() {
            let pattern = line.split("=>").next().filter(|_| line.contains("=>")).unwrap_or_default();
            let words = pattern.split(|c: char| !c.is_alphanumeric() && c != '_');
            assert!(!words.into_iter().any(|word| word == "_"), "{}:{}: {line}", path.display(), at + 1);
        }
    }
    assert!(seen >= 3, "the tables have moved: tell this test where");
}

#[test]
fn every_file_belongs_to_a_module() {
    let all = sources();
    for path in &all {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = path.parent().expect("a folder");
        let top = ["src", "tests", "examples", "benches", "bin"];
        let is_root = matches!(stem.as_str(), "lib" | "main" | "mod" | "build")
            || folder
                .file_name()
                .is_some_and(|name| top.contains(&name.to_string_lossy().as_ref()) && name != "src");
        if is_root {
            continue;
        }
        let parents = [
            folder.join("mod.rs"),
            folder.join("lib.rs"),
            folder.join("main.rs"),
            folder.with_extension("rs"),
        ];
        let mut siblings = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        let declares = |parent: &Path| {
            parent.is_file()
                && read(parent).lines().any(|line| {
                    line.trim().ends_with(&format!("mod {stem};"))
                        || line.contains(&format!("#[path = \"{stem}.rs\"]"))
                })
        };
        let named = parents.iter().any(|parent| declares(parent))
            || siblings.any(|sibling| sibling != *path && declares(&sibling));
        assert!(named, "{} belongs to no module, so nobody compiles it", path.display());
    }
}

#[test]
fn the_core_does_not_wait() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--offline"])
        .args([
            "-p",
            "schemas",
            "-p",
            "projections",
            "-p",
            "election",
            "-p",
            "bbs",
            "-p",
            "auctioneer",
            "-p",
            "rep",
        ])
        .current_dir(root())
        .output()
        .expect("cargo tree runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    let packages: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    for waiting in
        ["tokio", "async-nats", "sqlx", "futures", "bus", "journal", "clock", "runtime", "rand", "getrandom"]
    {
        assert!(!packages.contains(waiting), "the core depends on {waiting}");
    }
}

#[test]
fn nothing_is_left_open() {
    let words = ["todo!", "unimplemented!", "FIX\u{4d}E", "XX\u{58}", "dbg!(", "#[ignor\u{65}]"];
    let here = Path::new(file!()).file_name();
    for path in sources().iter().filter(|path| path.file_name() != here) {
        for (at, line) in read(path).lines().enumerate() {
            for word in words {
                assert!(!line.contains(word), "{}:{}: {line}", path.display(), at + 1);
            }
            assert!(line.trim_end() == line, "{}:{}: trailing blanks", path.display(), at + 1);
        }
    }
}
