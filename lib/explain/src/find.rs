//! Lookup of instances and processes by their names or ids.

use std::fmt;

use client::{Client, ListFilter, instance_key};
use schemas::names::{DefinitionId, Domain, InstanceGuid, ProcessGuid};
use schemas::query::{InstanceRow, LrpRow, ShowAnswer};
use text::suggestions::similar_names;
use text::words::InvalidValue;

use crate::names::Names;
use crate::{Error, Missing};

/// Minimum length of an id fragment.
const MIN_FRAGMENT_LEN: usize = 4;
/// Maximum number of ids in the error for an ambiguous fragment.
const MAX_NAMED: usize = 5;
/// Accepted forms of an instance name, for help texts and errors.
pub const INSTANCE_FORMS: &str = "PROCESS/INDEX[@DEFINITION], or the beginning or end of an instance guid";

/// An instance that a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInstance {
    /// Display name. Contains the definition if the client named it, or if another definition is known at the
    /// same index.
    pub name: String,
    /// The row of the instance, followed by the row of the evacuating instance at the same index, if any.
    pub rows: Vec<InstanceRow>,
}

/// Selector for the instances at an index, optionally limited to one definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSelector {
    pub process: ProcessGuid,
    pub index: u32,
    /// `None` selects the instances of all definitions at the index.
    pub definition: Option<DefinitionId>,
}

impl fmt::Display for InstanceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process, self.index)?;
        self.definition.as_ref().map_or(Ok(()), |definition| write!(f, "@{definition}"))
    }
}

/// Returns a process.
///
/// # Errors
/// The query fails, or the process does not exist. In this case, the error has similar names.
pub async fn lrp(client: &Client, guid: &ProcessGuid) -> Result<ShowAnswer<LrpRow>, Error> {
    match client.lrp(guid).await {
        Ok(one) => Ok(one),
        Err(error) if error.is_not_found() => {
            let known = client.lrps(&ListFilter::default()).await?.rows;
            let known = known.iter().map(|row| row.process_guid.as_str());
            let similar = similar_names(guid.as_str(), known).into_iter().map(str::to_owned).collect();
            Err(Error::not_found(format!("process {guid}"), Missing::Process { similar }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the instance with the name or id `id`, together with the evacuating instance at the same index, if
/// any. See [`INSTANCE_FORMS`] for the accepted forms. If `id` names no definition and the index has
/// instances of several definitions, selects the active definition.
///
/// # Errors
/// A query fails, `id` is not valid or ambiguous, or the instance does not exist.
pub async fn instance(client: &Client, id: &str) -> Result<FoundInstance, Error> {
    if let Some(which) = parse_selector(id)? {
        let name = which.to_string();
        return match client.instance(&name).await {
            Ok(one) => Ok(FoundInstance { name, rows: one.row }),
            Err(error) if error.is_not_found() => {
                lrp(client, &which.process)
                    .await
                    .map_err(|error| error.while_doing(format!("find instance {name}")))?;
                Err(Error::not_found(format!("instance {name}"), Missing::InstanceOf(which.process)))
            }
            Err(error) => Err(error.into()),
        };
    }
    if id.parse::<InstanceGuid>().is_err() {
        check_fragment("instance", id, INSTANCE_FORMS)?;
    }
    let rows = client.instances(&ListFilter::default()).await?.rows;
    let names = Names::from_rows(&rows);
    let of = |row: &InstanceRow| row.instance_guid.map(|guid| guid.to_string());
    let found = pick("instance", id, rows, of)?;
    Ok(FoundInstance { name: names.name(&instance_key(&found)), rows: vec![found] })
}

/// Parses `PROCESS/INDEX` or `PROCESS/INDEX@DEFINITION`. Returns `None` if `id` has no slash.
///
/// # Errors
/// A part of `id` is not valid.
pub fn parse_selector(id: &str) -> Result<Option<InstanceSelector>, Error> {
    let Some((process, place)) = id.split_once('/') else { return Ok(None) };
    let process = ProcessGuid::new(process).map_err(|bad| Error::Invalid(bad.to_string()))?;
    let (index, definition) = place.split_once('@').map_or((place, None), |(index, id)| (index, Some(id)));
    let wrong = |_| InvalidValue::new("index", index, format!("a number, as in {process}/0"));
    let index = index.parse().map_err(wrong)?;
    let definition = definition.map(DefinitionId::new).transpose();
    let definition =
        definition.map_err(|bad| Error::Invalid(format!("{bad}, as in {process}/{index}@v2")))?;
    Ok(Some(InstanceSelector { process, index, definition }))
}

/// Rejects text that is too short, or that cannot be a fragment of an id.
///
/// # Errors
/// The text is not a fragment of an id. The error lists the valid values `expected`.
pub fn check_fragment(what: &str, text: &str, expected: &str) -> Result<(), Error> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if hex && text.len() >= MIN_FRAGMENT_LEN {
        return Ok(());
    }
    Err(Error::Invalid(format!("invalid {what} {text:?}: expected {expected}")))
}

/// Returns the only row with an id that starts or ends with `part`.
///
/// # Errors
/// No row or more than one row matches.
pub fn pick<T>(what: &str, part: &str, rows: Vec<T>, id: impl Fn(&T) -> Option<String>) -> Result<T, Error> {
    let mut found: Vec<(String, T)> = rows
        .into_iter()
        .filter_map(|row| id(&row).map(|id| (id, row)))
        .filter(|(id, _)| matches(id, part))
        .collect();
    match found.len() {
        1 => Ok(found.remove(0).1),
        0 => Err(Error::not_found(format!("{what} {part}"), Missing::Fragment(what.to_owned()))),
        count => {
            let ids = found.into_iter().take(MAX_NAMED).map(|(id, _)| id).collect();
            Err(Error::AmbiguousId { part: part.to_owned(), count, ids })
        }
    }
}

/// Returns `true` if `id` starts or ends with `part`, ignoring the case of `part`.
#[must_use]
pub fn matches(id: &str, part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    id.starts_with(&part) || id.ends_with(&part)
}

/// Returns the domain of an existing object.
///
/// # Errors
/// The client requested the object of another domain.
pub fn check_domain(
    requested: Option<&Domain>,
    what: impl fmt::Display,
    actual: Domain,
) -> Result<Domain, Error> {
    match requested {
        Some(requested) if *requested != actual => {
            Err(Error::OtherDomain { what: what.to_string(), requested: requested.clone(), actual })
        }
        Some(_) | None => Ok(actual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_fragment_selects_its_only_match() {
        let rows = || vec!["0193-aaaa", "0193-bbbb", "0194-bbbc"];
        let pick = |part: &str| pick("instance", part, rows(), |row| Some((*row).to_owned()));
        assert_eq!(pick("bbbc").unwrap(), "0194-bbbc");
        assert_eq!(pick("0194").unwrap(), "0194-bbbc");
        assert_eq!(pick("AAAA").unwrap(), "0193-aaaa");
        assert!(pick("ffff").unwrap_err().is_not_found());
        let several = pick("0193").unwrap_err();
        assert_eq!(several.to_string(), "ambiguous id 0193: it matches 2 ids: 0193-aaaa, 0193-bbbb");
    }

    #[test]
    fn instance_selector_parses_name_forms() {
        let split_up = |id| {
            parse_selector(id)
                .unwrap()
                .map(|which| (which.index, which.definition.clone(), which.to_string()))
        };
        let v2 = DefinitionId::new("v2").unwrap();
        assert_eq!(split_up("web/3"), Some((3, None, "web/3".into())));
        assert_eq!(split_up("web/3@v2"), Some((3, Some(v2), "web/3@v2".into())));
        assert_eq!(split_up("deadbeef"), None);
        for (bad, why) in [
            ("web/x", "expected a number, as in web/0"),
            ("web/x@v2", "expected a number, as in web/0"),
            ("web/@v2", "expected a number, as in web/0"),
            ("a b/0", "process guid"),
            ("web/0@", "definition id"),
            ("web/0@v 2", "as in web/0@v2"),
            ("web/0@v2@v3", "as in web/0@v2"),
        ] {
            let error = parse_selector(bad).unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(why)), "{bad}: {error}");
        }
        assert!(check_fragment("instance", "beef", "").is_ok());
        assert!(
            check_fragment("instance", "web", "").is_err() && check_fragment("instance", "abc", "").is_err()
        );
    }
}
