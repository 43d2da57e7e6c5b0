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
            "audit",
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

/// Every text of the repository that may point at a document: code, pages, stories.
fn texts() -> Vec<PathBuf> {
    let listed =
        Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root()).output();
    let listed = String::from_utf8(listed.expect("git runs").stdout).expect("paths are text");
    let kinds = [".rs", ".md", ".txt", ".toml", ".csv", ".json", ".conf", ".py", ".sh"];
    let is_text = |path: &&str| kinds.iter().any(|kind| path.ends_with(kind));
    listed.lines().filter(is_text).map(|path| root().join(path)).filter(|path| path.is_file()).collect()
}

/// A page of documentation by its path from the top of the repository.
fn headings(page: &str) -> BTreeSet<String> {
    let text = read(&root().join(page));
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim().replace('`', ""))
        .collect()
}

/// How a heading is linked to: as `GitHub` does it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// What comments may name: the pages of documentation and the source documents, each with its headings.
fn documents() -> Vec<(String, BTreeSet<String>)> {
    let pages = ["architecture", "audit", "clients", "glossary", "model", "operations", "using"]
        .map(|page| format!("docs/{page}.md"))
        .into_iter()
        .chain(["tests/stories/README.md", "schemas/README.md", "CONTRIBUTING.md"].map(str::to_owned));
    let mut documents: Vec<_> = pages.map(|page| (page.clone(), headings(&page))).collect();
    let sources = read(&root().join("docs/sources.md")).replace("\n  ", " ").replace('`', "");
    for line in sources.lines() {
        if let Some((title, sections)) = line.strip_prefix("- *").and_then(|line| line.split_once("*: ")) {
            documents.push((title.to_owned(), sections.split(" · ").map(str::to_owned).collect()));
        }
    }
    assert!(documents.len() > 10, "docs/sources.md lists no sections: {documents:?}");
    documents
}

/// A text as one line, without the marks of comments.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim();
        let marks = ["//!", "///", "//", "#"];
        marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim()
    });
    lines.collect::<Vec<_>>().join(" ").replace(['*', '`'], "")
}

/// The sections of a document that a text names: `TITLE, "Section"`, or `"TITLE, Section"`.
fn named<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let sections = text.match_indices(title).filter_map(|(at, _)| {
        let rest = text[at + title.len()..].strip_prefix(", ")?;
        let quoted = rest.strip_prefix('"');
        let within = text[..at].ends_with('"').then_some(rest);
        quoted.or(within)?.split('"').next()
    });
    sections.collect()
}

#[test]
fn a_pointer_to_a_section_names_one_that_is_there() {
    let documents = documents();
    let mut seen = 0;
    for path in texts() {
        let text = joined(&read(&path));
        for (title, sections) in &documents {
            for section in named(&text, title) {
                let section = section.trim_end_matches(',');
                seen += 1;
                assert!(sections.contains(section), "{}: {title} has no section {section:?}", path.display());
            }
        }
    }
    assert!(seen > 80, "only {seen} pointers were found: the way in which they are written has changed");
}

#[test]
fn a_link_leads_to_a_file_and_a_heading_that_are_there() {
    for path in texts().iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let folder = path.parent().expect("a folder");
        let text = read(path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, fragment) = link.split_once('#').map_or((link, None), |(file, of)| (file, Some(of)));
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: there is no {link}", path.display());
            if let Some(fragment) = fragment {
                let found = read(&target).lines().any(|line| {
                    line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == fragment
                });
                assert!(found, "{}: {link} leads to no heading", path.display());
            }
        }
    }
}

#[test]
fn a_page_names_only_files_that_are_there() {
    let all = texts();
    let kinds = [".rs", ".toml", ".txt", ".md", ".csv", ".py"];
    for page in all.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = read(page);
        for name in
            text.split('`').skip(1).step_by(2).filter(|name| kinds.iter().any(|kind| name.ends_with(kind)))
        {
            if name.contains(char::is_whitespace) || name.starts_with('.') {
                continue;
            }
            assert!(all.iter().any(|path| path.ends_with(name)), "{}: there is no {name}", page.display());
        }
    }
}

/// Names by which documents were called that are not part of the repository.
#[test]
fn nothing_points_outside_of_the_repository() {
    let words = ["seed `\u{30}", "seed \u{30}", "DESIG\u{4e}", "the issu\u{65} "];
    for path in texts() {
        for (at, line) in read(&path).lines().enumerate() {
            for word in words {
                assert!(!line.contains(word), "{}:{}: {word:?} in: {line}", path.display(), at + 1);
            }
        }
    }
}
