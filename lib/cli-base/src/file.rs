//! Files that describe desired state. Files are TOML or JSON, and are read from a path or from standard
//! input.

mod secret_files;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use runtime::exit::Exit;
use schemas::Refusal;
use schemas::names::Domain;
use schemas::spec::{self, Item, ObjectName};
use secrets::Keys;
use serde_json::Value;

use super::failure::Failure;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileItem {
    pub item: Item,
    /// `true` if the item is a process, and the file sets a `definition_id` that equals the guid of the
    /// process. If the file sets no id, the field has the same value, but the cluster derives the id from the
    /// content of the definition.
    pub is_named: bool,
}

/// Reads all items of a file. `domain` is the default for items that name no domain.
pub fn read_items(path: &Path, domain: Option<&Domain>) -> Result<Vec<Item>, Failure> {
    parse_items(path, secret_files::replace_secret_files(path, read_value(path)?)?, domain)
}

/// Reads all items of several files. Fails if two files describe the same object.
pub fn read_files(paths: &[PathBuf], domain: Option<&Domain>) -> Result<Vec<FileItem>, Failure> {
    let mut all = vec![];
    let mut sources: BTreeMap<ObjectName, &Path> = BTreeMap::new();
    for path in paths {
        for file_item in read_file(path, domain)? {
            let name = ObjectName::from_item(&file_item.item);
            if let Some(other) = sources.get(&name) {
                let (one, two) = (display_path(other), display_path(path));
                let why = format!("{name} is described twice: in {one} and in {two}");
                return Err(Failure::new(Exit::Failed, "InvalidRequest", why));
            }
            sources.insert(name, path);
            all.push(file_item);
        }
    }
    Ok(all)
}

fn read_file(path: &Path, domain: Option<&Domain>) -> Result<Vec<FileItem>, Failure> {
    let value = secret_files::replace_secret_files(path, read_value(path)?)?;
    let all = match value.get("lrp") {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(one) => vec![one],
        None => vec![&value],
    };
    let named = |one: &Value| {
        let guid = one.get("process_guid")?.as_str()?;
        (one.get("definition_id")?.as_str()? == guid).then(|| guid.to_owned())
    };
    let named: Vec<String> = all.into_iter().filter_map(named).collect();
    let is_named = |item: &Item| match item {
        Item::Lrp(lrp) => named.iter().any(|guid| *guid == lrp.process_guid.as_str()),
        Item::Task(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. } => false,
    };
    let items = parse_items(path, value, domain)?;
    Ok(items.into_iter().map(|item| FileItem { is_named: is_named(&item), item }).collect())
}

/// Reads all items of a file. Seals the secrets of the items locally, as a BBS does before a decision.
pub fn sealed_items(path: &Path, domain: Option<&Domain>, keys: &Keys) -> Result<Vec<Item>, Failure> {
    let sealed = |item: Item| item.sealed(&keys.sealer());
    let items: Result<_, Refusal> = read_items(path, domain)?.into_iter().map(sealed).collect();
    items.map_err(|refusal| {
        file_failure(path, refusal, &format!("seal the secrets of {}", display_path(path)))
    })
}

fn parse_items(path: &Path, mut value: Value, domain: Option<&Domain>) -> Result<Vec<Item>, Failure> {
    let is_shown = value.get("process_guid").is_some() && value.get("epoch").is_some();
    if let (Value::Object(root), Some(domain)) = (&mut value, domain) {
        root.entry("domain").or_insert_with(|| domain.as_str().into());
    }
    let refused = |refusal: Refusal| {
        let failure = file_failure(path, refusal, &format!("read the definitions in {}", display_path(path)));
        if is_shown {
            return failure.advise(
                "this is the output of muster lrp show -o json, not a definition: use muster lrp show NAME \
                 -o toml, or restore an earlier state with muster lrp rollback NAME --to POSITION",
            );
        }
        if domain.is_none() && failure.fields.iter().any(|bad| bad.field.ends_with("domain")) {
            return failure.advise("set a domain in the file or with --domain");
        }
        failure
    };
    spec::document(value).map_err(refused)
}

/// Reads a TOML or JSON file as a JSON value.
pub fn read_value(path: &Path) -> Result<Value, Failure> {
    let text = read_text(path)?;
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_json = match extension {
        Some("json") => true,
        Some("toml") => false,
        Some(_) | None => text.trim_start().starts_with('{'),
    };
    let bad = |language: &str, problem: String| {
        Failure::new(
            Exit::Failed,
            "InvalidRequest",
            format!("{} is not valid {language}: {}", display_path(path), problem.trim_end()),
        )
    };
    if !is_json {
        let doubled = text.contains("[[domain]]").then(|| {
            "a file with [[domain]] can't set domain at the top level: \
             set the domain of each process and task"
                .to_owned()
        });
        return toml::from_str(&text)
            .map_err(|error| bad("TOML", without_secrets(&error, &text)).advise_some(doubled));
    }
    spec::json(text.as_bytes())
        .map_err(|refusal| file_failure(path, refusal, &format!("read {}", display_path(path))))
}

/// Formats a TOML error. The error does not quote the faulty line if the file contains secrets or callback
/// URLs, which may be secret.
fn without_secrets(error: &toml::de::Error, text: &str) -> String {
    if !text.contains("secret") && !text.contains("completion_callback_url") {
        return error.to_string();
    }
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: not shown because the file contains secrets", before.matches('\n').count() + 1)
}

/// Converts a refusal. A problem of the whole message becomes a problem of the file.
fn file_failure(path: &Path, refusal: Refusal, doing: &str) -> Failure {
    match &refusal.fields[..] {
        [whole] if whole.field == "message" => {
            let message = format!("{} {}", display_path(path), whole.problem);
            Failure { message, ..Failure::from(refusal) }
        }
        _ => Failure::from(refusal).while_doing(doing),
    }
}

/// Reads text from a file or from standard input.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
    };
    match read {
        Ok(bytes) if bytes as u64 > MAX_FILE_BYTES => {
            let why = format!("{} is larger than {MAX_FILE_BYTES} bytes", display_path(path));
            Err(Failure::new(Exit::Failed, "InvalidRequest", why))
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(Failure::new(
            Exit::Failed,
            "InvalidRequest",
            format!("{} is not UTF-8 text", display_path(path)),
        )),
        Err(error) => {
            Err(Failure::new(Exit::Failed, "File", format!("can't read {}: {error}", display_path(path))))
        }
    }
}

/// Formats the path of a file. The path `-` is the standard input.
#[must_use]
pub fn display_path(path: &Path) -> String {
    if path == Path::new("-") { "the standard input".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    const JSON: &str = r#"{"process_guid": "web", "domain": "d", "action": {"run": {"path": "true"}}}"#;
    const TOML: &str = "process_guid = \"web\"\ndomain = \"d\"\naction.run.path = \"true\"\n";

    #[test]
    fn toml_and_json_give_the_same_items() {
        let read = |name, text| {
            let (_folder, path) = file(name, text);
            read_items(&path, None).unwrap()
        };
        let one = read("a.json", JSON);
        assert_eq!(one.len(), 1);
        assert!(
            [read("a.toml", TOML), read("a", JSON), read("b.txt", TOML)].iter().all(|other| *other == one)
        );
    }

    #[test]
    fn definition_id_that_equals_the_guid_is_named_only_if_the_file_sets_it() {
        let (_folder, plain) = file("a.toml", TOML);
        let (_other, named) =
            file("b.toml", &format!("{}definition_id = \"api\"\n", TOML.replace("web", "api")));
        let items = read_files(&[plain.clone(), named], None).unwrap();
        let is_named: Vec<bool> = items.iter().map(|file_item| file_item.is_named).collect();
        assert_eq!(is_named, [false, true]);
        let twice = read_files(&[plain.clone(), plain], None).unwrap_err();
        assert!(twice.message.contains("process web is described twice: in "), "{}", twice.message);
    }

    #[test]
    fn domain_option_applies_to_items_without_domain() {
        let (_folder, path) = file("a.toml", "process_guid = \"web\"\naction.run.path = \"true\"\n");
        let domain = Domain::new("shop").unwrap();
        let [Item::Lrp(lrp)] = &read_items(&path, Some(&domain)).unwrap()[..] else { panic!("one process") };
        assert_eq!(lrp.domain, domain);
        let failure = read_items(&path, None).unwrap_err();
        assert!(failure.text(false).contains("--domain"), "{}", failure.text(false));
    }

    #[test]
    fn example_files_are_valid() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let hello = read_items(&examples.join("hello.toml"), None).unwrap();
        assert_eq!(hello.len(), 3, "{hello:?}");
        assert_eq!(read_items(&examples.join("web.json"), None).unwrap().len(), 1);
        assert_eq!(read_items(&examples.join("rolling.toml"), None).unwrap().len(), 1);
        assert_eq!(read_items(&examples.join("periodic.toml"), None).unwrap().len(), 2);
        assert_eq!(read_items(&examples.join("parameterised.toml"), None).unwrap().len(), 1);
    }

    #[test]
    fn invalid_file_error_names_the_problem() {
        let failure = |name, text: &str| {
            let (_folder, path) = file(name, text);
            read_items(&path, None).unwrap_err().text(false)
        };
        assert!(failure("a.json", "{").contains("/a.json is not JSON: EOF"));
        assert!(failure("a.toml", "").contains("/a.toml defines nothing: expected process_guid"));
        let doubled =
            failure("a.json", r#"{"process_guid": "a", "process_guid": "b", "action": {"x": 1, "x": 2}}"#);
        assert!(doubled.contains("process_guid: ") && doubled.contains("action.x: "), "{doubled}");
        assert!(failure("a.toml", "a = ").contains("is not valid TOML"));
        let doubled = failure("a.toml", "domain = \"d\"\n[[domain]]\ndomain = \"e\"\n");
        assert!(doubled.contains("set the domain of each process"), "{doubled}");
        let shown =
            failure("a.json", r#"{"process_guid": "web", "epoch": "2026-10-02T14:00:00Z", "running": 1}"#);
        assert!(shown.contains("muster lrp rollback NAME --to POSITION"), "{shown}");
        assert!(failure("a.json", &"[".repeat(10_000)).contains("nested deeper"));
        let bad = failure("a.json", r#"{"process_guid": "a b", "domain": "d", "instances": -1}"#);
        assert!(
            bad.contains("process_guid: ") && bad.contains("instances: ") && bad.contains("action: "),
            "{bad}"
        );
        assert!(
            read_items(Path::new("/nowhere.toml"), None)
                .unwrap_err()
                .text(false)
                .contains("can't read /nowhere.toml")
        );
    }
}
