//! Files that describe desired state, in TOML or JSON, from a path or standard input.

mod secret_files;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::Path;

use client::Client;
use schemas::Refusal;
use schemas::definition::DesiredLrp;
use schemas::names::{Domain, ProcessGuid};
use schemas::spec::{self, Item};
use secrets::Keys;
use serde_json::Value;

use super::failure::{Exit, Failure};
use super::output::note;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Reads all items of a file. `domain` is the default for items that name no domain.
pub(crate) fn read_items(path: &Path, domain: Option<&Domain>) -> Result<Vec<Item>, Failure> {
    parse_items(path, secret_files::replace_secret_files(path, read_value(path)?)?, domain)
}

/// Reads all items of a file, and the guids of the processes for which the file sets a `definition_id` equal
/// to the guid.
pub(super) fn read_items_and_named(
    path: &Path,
    domain: Option<&Domain>,
) -> Result<(Vec<Item>, BTreeSet<String>), Failure> {
    let value = secret_files::replace_secret_files(path, read_value(path)?)?;
    let all = match value.get("lrp") {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(one) => vec![one],
        None => vec![&value],
    };
    let named = all.into_iter().filter_map(|one| {
        let guid = one.get("process_guid")?.as_str()?;
        (one.get("definition_id")?.as_str()? == guid).then(|| guid.to_owned())
    });
    let named = named.collect();
    parse_items(path, value, domain).map(|items| (items, named))
}

/// Reads all items of a file, and seals their secrets locally, as a BBS does before it decides.
pub(crate) fn sealed_items(path: &Path, domain: Option<&Domain>, keys: &Keys) -> Result<Vec<Item>, Failure> {
    let sealed = |item: Item| item.sealed(&keys.sealer());
    let items: Result<_, Refusal> = read_items(path, domain)?.into_iter().map(sealed).collect();
    items.map_err(|refusal| {
        file_failure(path, refusal, &format!("seal the secrets of {}", display_path(path)))
    })
}

/// Lets the cluster seal the secrets of items, so that they can be compared with stored ones.
pub(crate) async fn seal_items(client: &Client, items: Vec<Item>) -> Result<Vec<Item>, Failure> {
    let mut sealed = vec![];
    for item in items {
        sealed.push(
            client
                .sealed(item)
                .await
                .map_err(|error| Failure::from(error).while_doing("seal the secrets of the file"))?,
        );
    }
    Ok(sealed)
}

/// Returns the command that handles an item of this kind. Other commands skip the item and suggest this
/// command.
pub(super) const fn command_for(item: &Item) -> &'static str {
    match item {
        Item::Lrp(_) => "muster lrp apply",
        Item::Task(_) => "muster task run",
        Item::Periodic(_) => "muster periodic apply",
        Item::Parameterised(_) => "muster parameterised apply",
        Item::Domain { .. } => "muster domain refresh",
    }
}

/// Prints a note with the commands for the remaining items of a file. Prints nothing if there are none.
pub(super) fn note_rest(done: &str, rest: &BTreeSet<&'static str>) {
    if !rest.is_empty() {
        let commands: Vec<&str> = rest.iter().copied().collect();
        note(&format!("only {done}; for the rest of the file: {}", commands.join(", ")));
    }
}

/// Description of one process in a file.
#[derive(Debug)]
pub(crate) struct ProcessInFile {
    /// The whole process, with defaults for fields that the file omits.
    pub(crate) lrp: DesiredLrp,
    /// Names of the fields that the file sets.
    pub(crate) fields: BTreeSet<String>,
}

/// Reads the description of one process from a file.
pub(crate) fn read_process(
    path: &Path,
    guid: &ProcessGuid,
    domain: Option<&Domain>,
) -> Result<ProcessInFile, Failure> {
    let value = secret_files::replace_secret_files(path, read_value(path)?)?;
    let is_it = |one: &&Value| one.get("process_guid").and_then(Value::as_str) == Some(guid.as_str());
    let fields = match value.get("lrp") {
        Some(Value::Array(all)) => all.iter().find(is_it),
        Some(one) => Some(one).filter(is_it),
        None => Some(&value).filter(is_it),
    };
    let fields = fields.and_then(Value::as_object).map(|fields| fields.keys().cloned().collect());
    let lrp = parse_items(path, value, domain)?.into_iter().find_map(|item| match item {
        Item::Lrp(lrp) if lrp.process_guid == *guid => Some(*lrp),
        Item::Lrp(_) | Item::Task(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. } => {
            None
        }
    });
    match lrp.zip(fields) {
        Some((lrp, fields)) => Ok(ProcessInFile { lrp, fields }),
        None => {
            let why = format!("{} does not define process {guid}", display_path(path));
            Err(Failure::new(Exit::Failed, "InvalidRequest", why))
        }
    }
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
                "this is output of muster lrp show, not a definition; \
                         to restore it: muster lrp rollback NAME --to POSITION",
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
pub(crate) fn read_value(path: &Path) -> Result<Value, Failure> {
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

/// Formats a TOML error. The faulty line is not quoted if the file contains secrets, or callback URLs, which
/// may be secret.
fn without_secrets(error: &toml::de::Error, text: &str) -> String {
    if !text.contains("secret") && !text.contains("completion_callback_url") {
        return error.to_string();
    }
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: not shown because the file contains secrets", before.matches('\n').count() + 1)
}

/// Converts a refusal. A problem of the whole message is reported as a problem of the file.
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
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
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

fn display_path(path: &Path) -> String {
    if path == Path::new("-") { "the standard input".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
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
    fn process_in_file_lists_the_fields_that_are_set() {
        let fields = |name, text: &str| {
            let (_folder, path) = file(name, text);
            read_process(&path, &ProcessGuid::new("web").unwrap(), None).map(|found| found.fields)
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(fields("a.toml", TOML).unwrap(), names(&["action", "domain", "process_guid"]));
        let several = "domain = \"d\"\n[[lrp]]\nprocess_guid = \"other\"\naction.run.path = \"true\"\n\
                       [[lrp]]\nprocess_guid = \"web\"\ninstances = 2\naction.run.path = \"true\"\n";
        assert_eq!(fields("a.toml", several).unwrap(), names(&["action", "instances", "process_guid"]));
        let missing = fields("a.toml", &TOML.replace("web", "other")).unwrap_err();
        assert!(missing.message.ends_with("does not define process web"), "{}", missing.message);
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
