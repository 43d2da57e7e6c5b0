//! Secrets in separate files. `{"secret_file": "token"}` in a document is replaced by `{"secret": ..}` with
//! the content of the file `token`. A document is a file that describes desired state. Documents with secret
//! files can be shared, because the secrets are stored elsewhere.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use runtime::exit::Exit;
use schemas::limits::ENVIRONMENT_BYTES;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Name of the field with the path of a secret file.
const FIELD: &str = "secret_file";
/// Maximum size of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = ENVIRONMENT_BYTES as u64;
/// Fields whose values may be secret.
const SECRET_FIELDS: [&str; 3] = ["environment_variables", "env", "completion_callback_url"];
/// Fields with arbitrary client data, which is never interpreted.
const OPAQUE_FIELDS: [&str; 2] = ["routes", "annotation"];

/// Replaces the secret files of a document by their content. Relative paths start at the folder of the
/// document. A newline at the end of a file is not part of the secret.
pub(super) fn replace_secret_files(document: &Path, mut value: Value) -> Result<Value, Failure> {
    let folder = if document == Path::new("-") { None } else { document.parent() };
    replace_in(&mut value, folder.unwrap_or(Path::new("")), false)?;
    Ok(value)
}

fn replace_in(value: &mut Value, folder: &Path, may_be_secret: bool) -> Result<(), Failure> {
    match value {
        Value::Object(object) if may_be_secret && object.contains_key(FIELD) => {
            if let Some(text) = read_secret(object, folder)? {
                *value = Value::Object(Map::from_iter([("secret".to_owned(), text.into())]));
            }
            Ok(())
        }
        Value::Object(object) => {
            let members = object.iter_mut().filter(|(name, _)| !OPAQUE_FIELDS.contains(&name.as_str()));
            for (name, member) in members {
                replace_in(member, folder, may_be_secret || SECRET_FIELDS.contains(&name.as_str()))?;
            }
            Ok(())
        }
        Value::Array(all) => all.iter_mut().try_for_each(|one| replace_in(one, folder, may_be_secret)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Returns the content of the secret file that an object names. `None` if the object has other fields or no
/// path. The parser of the document rejects such an object.
fn read_secret(object: &Map<String, Value>, folder: &Path) -> Result<Option<String>, Failure> {
    let Some(path) = object.get(FIELD).and_then(Value::as_str).filter(|_| object.len() == 1) else {
        return Ok(None);
    };
    let path = folder.join(path);
    let failed = |why: String| {
        Failure::new(Exit::Failed, "File", format!("can't read secret file {}: {why}", path.display()))
    };
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_string(&mut text));
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    if bytes as u64 > MAX_SECRET_BYTES {
        return Err(failed(format!("expected at most {MAX_SECRET_BYTES} bytes")));
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_files_are_replaced_only_in_secret_fields() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
        write("a", b"one\ntwo\r\n");
        write("b", b"");
        let document = folder.path().join("web.toml");
        let here = |name: &str| json!({"secret_file": name});
        let taken = |value: Value| replace_secret_files(&document, value);
        let given = json!({"lrp": [{"env": {"A": here("a")}, "routes": {"env": here("a")}, "annotation": here("a"),
            "action": {"run": {"env": [{"name": "B", "value": here("b")}], "path": here("a")}}}],
            "completion_callback_url": here("b")});
        let got = json!({"lrp": [{"env": {"A": {"secret": "one\ntwo"}}, "routes": {"env": here("a")}, "annotation": here("a"),
            "action": {"run": {"env": [{"name": "B", "value": {"secret": ""}}], "path": here("a")}}}],
            "completion_callback_url": {"secret": ""}});
        assert_eq!(taken(given).unwrap(), got);
        let more = json!({"env": {"A": {"secret_file": "a", "x": 1}, "B": {"secret_file": 1}}});
        assert_eq!(taken(more.clone()).unwrap(), more, "rejected when it is parsed");
        write("large", &[b'x'; 70_000]);
        write("bytes", &[0xff]);
        for (name, why) in [("none", "No such file"), ("large", "at most 65536 bytes"), ("bytes", "UTF-8")] {
            let failure = taken(json!({"env": {"A": here(name)}})).unwrap_err();
            assert!(failure.message.contains(why) && failure.message.contains(name), "{}", failure.message);
        }
    }
}
