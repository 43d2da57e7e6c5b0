//! Parses downloads, uploads and cached dependencies of specs.

use serde_json::{Value, json};

use super::actions::take_label;
use super::policies::take_word;
use super::take_url;
use crate::action::{ChecksumAlgorithm, Download, Upload, path_fault};
use crate::fields::{Field, Fields};
use crate::limits;

/// Problem text for egress rules of a container that shares the network of its host.
const NO_RULES_SHARED_NETWORK: &str = "is not supported, because containers share the network of their \
                                       host: remove the rules, or use network none for no network access";
/// Problem text for egress rules of a container with network none.
const NO_RULES_NO_NETWORK: &str = "is not supported with network none: remove the rules";

/// Parses a `download` action.
pub(super) fn take_download(fields: &mut Fields<'_>, source: &str) -> Option<Download> {
    let artifact = fields.with_default("artifact", String::new(), take_name);
    let user = fields.with_default("user", String::new(), |field| field.text(limits::USER_BYTES));
    let rest = take_archive(fields, source);
    Some(Download { artifact: artifact?, user: user?, ..rest? })
}

/// Parses an `upload` action.
pub(super) fn take_upload(fields: &mut Fields<'_>, source: &str) -> Option<Upload> {
    let artifact = fields.with_default("artifact", String::new(), take_name);
    let from = fields.required("from", take_path);
    let to = fields.required("to", take_url);
    let user = fields.with_default("user", String::new(), |field| field.text(limits::USER_BYTES));
    Some(Upload { artifact: artifact?, from: from?, to: to?, log_source: source.to_owned(), user: user? })
}

/// Parses `cached_dependencies` and `legacy_download_user` (the user that owns the dependencies).
pub(super) fn take_dependencies(fields: &mut Fields<'_>) -> Option<Vec<Download>> {
    fields.document(
        "legacy_download_user",
        "Owner of the `cached_dependencies`, in the form of a run's `user`. The default is the default user of \
         programs.",
    );
    let user =
        fields.with_default("legacy_download_user", String::new(), |field| field.text(limits::USER_BYTES));
    let all = fields.with_default("cached_dependencies", vec![], |field| {
        field.list_of(limits::CACHED_DEPENDENCIES, take_dependency)
    });
    let user = user?;
    Some(all?.into_iter().map(|one| Download { user: user.clone(), ..one }).collect())
}

fn take_dependency(field: Field<'_>) -> Option<Download> {
    let mut fields =
        field.object_named("DependencySpec", "An archive that is fetched before anything runs.")?;
    fields.document("name", "Name of the archive in the log. Without it, the download is not logged.");
    fields.document_by::<Download>();
    let name = fields.with_default("name", String::new(), take_name);
    let source = fields.with_default("log_source", String::new(), take_label);
    let rest = take_archive(&mut fields, "");
    fields.finish(&[]);
    Some(Download { artifact: name?, log_source: source?, ..rest? })
}

/// Parses the fields that downloads and cached dependencies share.
fn take_archive(fields: &mut Fields<'_>, source: &str) -> Option<Download> {
    let from = fields.required("from", take_url);
    let to = fields.required("to", take_path);
    let cache_key =
        fields.with_default("cache_key", String::new(), |field| field.text(limits::CACHE_KEY_BYTES));
    let checksum = take_checksum(fields);
    let (checksum_algorithm, checksum_value) = checksum?;
    Some(Download {
        artifact: String::new(),
        from: from?,
        to: to?,
        cache_key: cache_key?,
        log_source: source.to_owned(),
        user: String::new(),
        checksum_algorithm,
        checksum_value,
    })
}

/// Parses the checksum of an archive. The spec must set both fields or neither.
fn take_checksum(fields: &mut Fields<'_>) -> Option<(Option<ChecksumAlgorithm>, String)> {
    let algorithm = fields.with_default("checksum_algorithm", None, |field| {
        let is_empty = field.value.as_str().is_some_and(str::is_empty);
        if is_empty { Some(None) } else { take_word(field, &ChecksumAlgorithm::ALL).map(Some) }
    });
    let value = fields.with_default("checksum_value", String::new(), |field| field.text(limits::LABEL_BYTES));
    let (algorithm, value) = (algorithm?, value?.to_ascii_lowercase());
    match algorithm {
        None if value.is_empty() => {}
        None => {
            fields.bad("checksum_algorithm", "is missing: checksum_value requires it");
            return None;
        }
        Some(algorithm) => {
            let digits = algorithm.digits();
            if value.len() != digits || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                fields.bad("checksum_value", format!("must be {digits} hexadecimal digits"));
                return None;
            }
        }
    }
    Some((algorithm, value))
}

fn take_name(field: Field<'_>) -> Option<String> {
    let (path, problems) = (field.path.clone(), field.problems);
    let name = field.text(limits::LABEL_BYTES)?;
    if name.contains(char::is_control) {
        problems.add(path, "must not contain control characters");
    }
    Some(name)
}

fn take_path(field: Field<'_>) -> Option<String> {
    let (at, problems) = (field.path.clone(), field.problems);
    let path = field.text(limits::PATH_BYTES)?;
    if let Some(fault) = path_fault(&path) {
        problems.add(at, fault);
        return None;
    }
    Some(path)
}

/// Refuses `egress_rules`, which Muster does not support. An empty list has no effect and is accepted.
pub(super) fn refuse_rules(fields: &mut Fields<'_>, has_own_network: bool) {
    let text = "Egress rules. Only an empty list is accepted, because a container shares its host's network or \
                reaches nothing.";
    fields.document("egress_rules", text);
    fields.optional("egress_rules", |rules| {
        let (path, problems) = (rules.path.clone(), rules.problems);
        if rules.records("type", "array") {
            rules.records("items", json!({}));
            rules.records("maxItems", 0);
            return None;
        }
        if !rules.list(usize::MAX)?.is_empty() {
            problems.add(path, if has_own_network { NO_RULES_NO_NETWORK } else { NO_RULES_SHARED_NETWORK });
        }
        Some(())
    });
}

/// Returns the cached dependencies as JSON, and their owner.
pub(super) fn dependencies_to_json(all: &[Download]) -> (Value, Option<&str>) {
    let one = |download: &Download| {
        let Download {
            artifact,
            from,
            to,
            cache_key,
            log_source,
            checksum_algorithm,
            checksum_value,
            user: _,
        } = download;
        super::compact(json!({
            "name": artifact,
            "from": from,
            "to": to,
            "cache_key": cache_key,
            "log_source": log_source,
            "checksum_algorithm": checksum_algorithm,
            "checksum_value": checksum_value,
        }))
    };
    let user = all.first().map(|first| first.user.as_str());
    (all.iter().map(one).collect(), user)
}
