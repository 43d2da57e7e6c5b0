//! Rules of the repository that the compiler does not check: no wildcards in tables, no file without a
//! module, no async crates in the core, and no words that mark unfinished work.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::{Regex, RegexSet};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Returns every Rust file of the workspace, without build output.
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
fn core_has_no_async_dependencies() {
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
fn sources_contain_no_unfinished_work() {
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

/// Returns every text file of the repository that may cite a document: code, pages, stories.
fn texts() -> Vec<PathBuf> {
    let listed =
        Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root()).output();
    let listed = String::from_utf8(listed.expect("git runs").stdout).expect("paths are text");
    let kinds = [".rs", ".md", ".txt", ".toml", ".csv", ".json", ".conf", ".py", ".sh"];
    let is_text = |path: &&str| kinds.iter().any(|kind| path.ends_with(kind));
    listed.lines().filter(is_text).map(|path| root().join(path)).filter(|path| path.is_file()).collect()
}

/// Returns the headings of a page, whose path is relative to the root of the repository.
fn headings(page: &str) -> BTreeSet<String> {
    let text = read(&root().join(page));
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim().replace('`', ""))
        .collect()
}

/// Returns the anchor that `GitHub` generates for a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// Returns the documents that comments may cite, with their headings: the pages of documentation and the
/// source documents.
fn documents() -> Vec<(String, BTreeSet<String>)> {
    let cited = ["tests/stories/README.md", "CONTRIBUTING.md"].map(str::to_owned);
    let under_docs = texts().into_iter().filter_map(|path| {
        let page = path.strip_prefix(root()).expect("a file of the workspace").to_str()?.to_owned();
        (page.starts_with("docs/") && page.ends_with(".md")).then_some(page)
    });
    let pages = under_docs.chain(cited);
    let mut documents: Vec<_> = pages.map(|page| (page.clone(), headings(&page))).collect();
    let sources = read(&root().join("docs/internals/sources.md")).replace("\n  ", " ").replace('`', "");
    for line in sources.lines() {
        if let Some((title, sections)) = line.strip_prefix("- *").and_then(|line| line.split_once("*: ")) {
            documents.push((title.to_owned(), sections.split(" · ").map(str::to_owned).collect()));
        }
    }
    assert!(documents.len() > 10, "docs/internals/sources.md lists no sections: {documents:?}");
    documents
}

/// Returns a text as one line, without comment markers.
fn to_one_line(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim();
        let marks = ["//!", "///", "//", "#"];
        marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim()
    });
    lines.collect::<Vec<_>>().join(" ").replace(['*', '`'], "")
}

/// Returns the cited sections of the document `title` in a text. A citation has the form `TITLE, "Section"`
/// or `"TITLE, Section"`.
fn cited_sections<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let sections = text.match_indices(title).filter_map(|(at, _)| {
        let rest = text[at + title.len()..].strip_prefix(", ")?;
        let quoted = rest.strip_prefix('"');
        let within = text[..at].ends_with('"').then_some(rest);
        quoted.or(within)?.split('"').next()
    });
    sections.collect()
}

#[test]
fn cited_sections_exist() {
    let documents = documents();
    let mut seen = 0;
    for path in texts() {
        let text = to_one_line(&read(&path));
        for (title, sections) in &documents {
            for section in cited_sections(&text, title) {
                let section = section.trim_end_matches(',');
                seen += 1;
                assert!(sections.contains(section), "{}: {title} has no section {section:?}", path.display());
            }
        }
    }
    assert!(seen > 80, "only {seen} pointers were found: the way in which they are written has changed");
}

#[test]
fn documentation_links_resolve() {
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
fn files_named_in_pages_exist() {
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

/// Rejects names of documents that are not part of the repository.
#[test]
fn no_text_cites_external_documents() {
    let words = ["seed `\u{30}", "seed \u{30}", "DESIG\u{4e}", "the issu\u{65} "];
    for path in texts() {
        for (at, line) in read(&path).lines().enumerate() {
            for word in words {
                assert!(!line.contains(word), "{}:{}: {word:?} in: {line}", path.display(), at + 1);
            }
        }
    }
}

/// A comment, a string literal of several words, or a paragraph of a document.
struct Passage {
    line: usize,
    text: String,
    is_doc: bool,
}

/// Comments and string literals of Rust source. Consecutive comment lines of one kind are one passage.
fn passages_of_source(source: &str) -> Vec<Passage> {
    let literal =
        Regex::new(r##"(?s)(//[^\n]*)|r#".*?"#|"((?:[^"\\]|\\.)*)"|'(?:[^'\\\n]|\\(?:x..|u\{[^}]*\}|.))'"##)
            .expect("a valid pattern");
    let mut passages: Vec<Passage> = vec![];
    let mut comment: Option<(usize, &str, Passage)> = None;
    let (mut line, mut counted) = (1, 0);
    for found in literal.captures_iter(source) {
        let whole = found.get(0).expect("a match");
        line += source[counted..whole.start()].matches('\n').count();
        counted = whole.start();
        if let Some(text) = found.get(1) {
            let marker = ["///", "//!", "//"].into_iter().find(|marker| text.as_str().starts_with(marker));
            let marker = marker.expect("a comment begins with its marker");
            let words = text.as_str()[marker.len()..].trim();
            match &mut comment {
                Some((last, before, passage)) if *last + 1 == line && *before == marker => {
                    passage.text = format!("{} {words}", passage.text);
                    *last = line;
                }
                Some(_) | None => {
                    let passage = Passage { line, text: words.to_owned(), is_doc: marker != "//" };
                    passages.extend(comment.replace((line, marker, passage)).map(|(.., passage)| passage));
                }
            }
        } else if let Some(text) = found.get(2).filter(|text| text.as_str().split_whitespace().count() > 2) {
            passages.push(Passage { line, text: text.as_str().to_owned(), is_doc: false });
        }
    }
    passages.extend(comment.map(|(.., passage)| passage));
    passages
}

/// Paragraphs, list items and table rows of a document, without fenced code.
fn passages_of_document(text: &str) -> Vec<Passage> {
    let (mut passages, mut is_fenced, mut is_open) = (Vec::<Passage>::new(), false, false);
    for (at, line) in text.lines().map(str::trim).enumerate() {
        is_fenced ^= line.starts_with("```");
        let starts = line.starts_with(['-', '*', '|', '#', '>']) || line.starts_with(char::is_numeric);
        match passages.last_mut() {
            _ if is_fenced || line.is_empty() || line.starts_with("```") => is_open = false,
            Some(passage) if is_open && !starts => passage.text = format!("{} {line}", passage.text),
            Some(_) | None => {
                passages.push(Passage { line: at + 1, text: line.to_owned(), is_doc: false });
                is_open = true;
            }
        }
    }
    passages
}

/// Returns the crate or folder of a file, the unit of the counts.
fn part_of(path: &Path) -> String {
    let path = path.strip_prefix(root()).expect("a file of the workspace");
    let mut folders = path.iter().map(|folder| folder.to_string_lossy());
    let top = folders.next().expect("a file").into_owned();
    let is_nested = ["services", "lib", "tests"].contains(&top.as_str());
    folders.next().filter(|_| is_nested).map_or(top.clone(), |second| format!("{top}/{second}"))
}

/// Awkward forms of sentences. CONTRIBUTING.md lists the recommended wording.
const AWKWARD: [&str; 8] = [
    r"^(What|How|Whether|Who|Whose|Which|Those|That|Of|It|Its|As|All)\b",
    r"\b(somebody|nobody|whoever|whomever|anybody|who (asks?|asked|reads?|waits?|knows?|leads?))\b",
    r"\b(is|are|was|were|be|been) (told|said|heard)\b|\b(tells?|says?|speaks?|hears?)\b",
    r"\b(ought to|kept apart|walls|of late|lets? go|looked through)\b",
    r"\b(shall|anew|meanwhile|thereby|whereby|as ever|any more|by then|by now)\b",
    r"; (none|else): ",
    r"\b(So long|So many|So much|Of (the|those|what|how))\b",
    r"\b(what|whatever) (is|was|are|were|has|have|had|can|must|may|they|runs?|stands?|comes?|goes?)\b",
];

/// Maximum share of awkward passages in a crate or folder, in thousandths of its passages.
const MAX_AWKWARD: usize = 25;

/// Folders that are not counted yet.
const NOT_COUNTED: [&str; 1] = ["tests/stories"];

fn counted_sources() -> impl Iterator<Item = PathBuf> {
    sources().into_iter().filter(|path| !NOT_COUNTED.contains(&part_of(path).as_str()))
}

#[test]
fn prose_is_plain() {
    let awkward = RegexSet::new(AWKWARD).expect("valid patterns");
    let code = Regex::new("`[^`]*`").expect("a valid pattern");
    let mut parts: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for path in texts() {
        let name = path.display().to_string();
        let passages = match path.extension().and_then(OsStr::to_str) {
            _ if path.ends_with("tests/tests/tidy.rs") => continue,
            Some("rs") => passages_of_source(&read(&path)),
            Some("md") => passages_of_document(&read(&path)),
            Some(_) | None => continue,
        };
        let (count, found) = parts.entry(part_of(&path)).or_default();
        *count += passages.len();
        let bad =
            passages.into_iter().filter(|passage| awkward.is_match(&code.replace_all(&passage.text, "")));
        found.extend(bad.map(|Passage { line, text, .. }| format!("{name}:{line}: {text}")));
    }
    let above = parts.into_iter().filter(|(part, (count, found))| {
        !NOT_COUNTED.contains(&part.as_str()) && found.len() * 1000 > count * MAX_AWKWARD
    });
    let above: Vec<String> = above
        .map(|(part, (count, found))| {
            format!("{part}: {} of {count} passages:\n{}", found.len(), found.join("\n"))
        })
        .collect();
    assert!(above.is_empty(), "{}", above.join("\n\n"));
}

#[test]
fn doc_comments_are_noun_phrases_or_verbs() {
    let question =
        Regex::new(r"^(What|Who|Whose|How|When|Where|Why|Which|Whether)\b").expect("a valid pattern");
    let mut parts: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for path in counted_sources() {
        let (count, bad) = parts.entry(part_of(&path)).or_default();
        for doc in passages_of_source(&read(&path)).into_iter().filter(|passage| passage.is_doc) {
            *count += 1;
            bad.extend(question.is_match(&doc.text).then_some(doc.text));
        }
    }
    for (part, (count, bad)) in parts {
        assert!(bad.len() * 100 <= count * 3, "{part}: {}", bad.join("\n"));
    }
}

/// Rejects names without a clear meaning at the place of use.
#[test]
fn names_are_nouns_and_verbs_of_the_field() {
    let vague = Regex::new(
        r"\b(?:struct|enum|trait|type) (?:Told|Said|Seen|Asked|Shown|Heard|Held|Given|Taken|Known|Found|Done|Did|Does|Got|Of|Me|Whose|Which|Who|Own|Sought|Wanted|Gone|Left|Met|Made|Kept|Called|Watched|Fed|Ended|Decided|Folded)\b|\bfn (?:of|told|said)\b",
    )
    .expect("a valid pattern");
    for path in counted_sources() {
        for (at, line) in read(&path).lines().enumerate() {
            assert!(!vague.is_match(line), "{}:{}: {line}", path.display(), at + 1);
        }
    }
}

/// Checks that public types, traits and functions have documentation. The lint `missing_docs` is off, because
/// many fields and variants need no documentation.
#[test]
fn public_items_are_documented() {
    let public = Regex::new(r"^\s*pub (?:const |async |unsafe )*(?:struct|enum|trait|type|fn|mod) \w+.*")
        .expect("a valid pattern");
    let is_product = |path: &&PathBuf| path.components().any(|folder| folder.as_os_str() == "src");
    for path in sources().iter().filter(is_product) {
        let text = read(path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| public.is_match(line)) {
            let before = lines[..at].iter().rev().map(|line| line.trim());
            let above = before.take_while(|line| !line.is_empty() && !line.ends_with(['}', ';', '{']));
            let mut above = above.peekable();
            let is_module = line.trim_start().starts_with("pub mod") && line.ends_with(';');
            let is_documented = above.any(|line| line.starts_with("///"));
            assert!(is_module || is_documented, "{}:{}: {line}", path.display(), at + 1);
        }
    }
}
