//! Lookup of resources by name, or by an unambiguous fragment of an id.

use std::fmt;

use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::suggestions::did_you_mean;
use client::{Client, ListFilter, instance_key};
use runtime::exit::Exit;
use schemas::Code;
use schemas::names::{
    CellId, DefinitionId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::query::{
    CellRow, EvaluationRow, InstanceRow, LrpRow, ParameterisedRow, PeriodicRow, ShowAnswer, TaskRow,
};
use text::words::InvalidValue;

use super::arguments::parse_full_id;
use super::names::Names;

/// Minimum length of an id fragment.
const MIN_FRAGMENT_LEN: usize = 4;
/// Accepted forms of an instance name, for help texts and errors.
pub(crate) const INSTANCE_FORMS: &str =
    "PROCESS/INDEX[@DEFINITION], or the beginning or end of an instance guid";

/// An instance that a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundInstance {
    /// Display name. Contains the definition if the user named it, or if another definition is known at the
    /// same index.
    pub(crate) name: String,
    /// The row of the instance, followed by the row of the evacuating instance at the same index, if any.
    pub(crate) rows: Vec<InstanceRow>,
}

/// Selector for the instances at an index, optionally limited to one definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceSelector {
    pub(crate) process: ProcessGuid,
    pub(crate) index: u32,
    /// `None` selects the instances of all definitions at the index.
    pub(crate) definition: Option<DefinitionId>,
}

impl fmt::Display for InstanceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process, self.index)?;
        self.definition.as_ref().map_or(Ok(()), |definition| write!(f, "@{definition}"))
    }
}

/// Returns a process. If it does not exist, the error suggests a similar name.
pub(crate) async fn lrp(client: &Client, guid: &ProcessGuid) -> Result<ShowAnswer<LrpRow>, Failure> {
    match client.lrp(guid).await {
        Ok(one) => Ok(one),
        Err(error) if error.is_not_found() => {
            let known = client.lrps(&ListFilter::default()).await?.rows;
            let names = known.iter().map(|row| row.process_guid.as_str());
            Err(missing(&format!("process {guid}"), guid.as_str(), names, "muster lrp list"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a task. If it does not exist, the error suggests a similar name.
pub(crate) async fn task(client: &Client, guid: &TaskGuid) -> Result<ShowAnswer<TaskRow>, Failure> {
    match client.task(guid).await {
        Ok(one) => Ok(one),
        Err(error) if error.is_not_found() => {
            let known = client.tasks(&ListFilter::default()).await?.rows;
            let names = known.iter().map(|row| row.task_guid.as_str());
            let failure = missing(&format!("task {guid}"), guid.as_str(), names, "muster task list");
            Err(failure.advise(format!(
                "a completed task is kept for two minutes, or until its callback has succeeded; \
                 for older tasks see muster task list --ended and muster history task {guid}"
            )))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a parameterised task. If it does not exist, the error suggests a similar name.
pub(crate) async fn parameterised(
    client: &Client,
    guid: &ParameterisedGuid,
) -> Result<ShowAnswer<ParameterisedRow>, Failure> {
    match client.parameterised_one(guid).await {
        Ok(one) => Ok(one),
        Err(error) if error.is_not_found() => {
            let known = client.parameterised(&ListFilter::default()).await?.rows;
            let names = known.iter().map(|row| row.parameterised_guid.as_str());
            let what = format!("parameterised task {guid}");
            Err(missing(&what, guid.as_str(), names, "muster parameterised list"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a periodic task. If it does not exist, the error suggests a similar name.
pub(crate) async fn periodic(
    client: &Client,
    guid: &PeriodicGuid,
) -> Result<ShowAnswer<PeriodicRow>, Failure> {
    match client.periodic(guid).await {
        Ok(one) => Ok(one),
        Err(error) if error.is_not_found() => {
            let known = client.periodics(&ListFilter::default()).await?.rows;
            let names = known.iter().map(|row| row.periodic_guid.as_str());
            Err(missing(&format!("periodic task {guid}"), guid.as_str(), names, "muster periodic list"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a cell. If it does not exist, the error suggests a similar id.
pub(crate) async fn cell(client: &Client, id: &CellId) -> Result<ShowAnswer<CellRow>, Failure> {
    match client.cell(id).await {
        Ok(one) => Ok(one),
        Err(error) if error.is_not_found() => {
            let known = client.cells().await?.rows;
            let names = known.iter().map(|row| row.cell_id.as_str());
            Err(missing(&format!("cell {id}"), id.as_str(), names, "muster cell list"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the instance with the name or id `id`, together with the evacuating instance at the same index, if
/// any. See [`INSTANCE_FORMS`] for the accepted forms. If `id` names no definition and the index has
/// instances of several definitions, selects the active definition.
pub(crate) async fn instance(client: &Client, id: &str) -> Result<FoundInstance, Failure> {
    if let Some(which) = parse_selector(id)? {
        let name = which.to_string();
        return match client.instance(&name).await {
            Ok(one) => Ok(FoundInstance { name, rows: one.row }),
            Err(error) if error.is_not_found() => {
                lrp(client, &which.process)
                    .await
                    .map_err(|failure| failure.while_doing(format!("find instance {name}")))?;
                let advice = format!("see muster instance list --lrp {}", which.process);
                Err(Failure::not_found(format!("instance {name}")).advise(advice))
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

/// Returns an evaluation by its id or a fragment of the id.
pub(crate) async fn evaluation(client: &Client, id: &str) -> Result<EvaluationRow, Failure> {
    let missing = |failure: Failure| {
        failure.advise(
            "only open evaluations and the newest ended ones are kept; muster history shows all of them",
        )
    };
    match parse_full_id(id) {
        Some(id) => Ok(client.evaluation(id).await.map_err(|error| missing(error.into()))?.row),
        None => {
            check_fragment("evaluation", id, "the id, or its beginning or end")?;
            let rows = client.evaluations(&ListFilter::default()).await?.rows;
            let of = |row: &EvaluationRow| Some(row.evaluation.id.to_string());
            pick("evaluation", id, rows, of).map_err(missing)
        }
    }
}

/// Parses `PROCESS/INDEX` or `PROCESS/INDEX@DEFINITION`. Returns `None` if `id` has no slash.
pub(crate) fn parse_selector(id: &str) -> Result<Option<InstanceSelector>, Failure> {
    let Some((process, place)) = id.split_once('/') else { return Ok(None) };
    let process = ProcessGuid::new(process).map_err(|bad| Failure::usage(bad.to_string()))?;
    let (index, definition) = place.split_once('@').map_or((place, None), |(index, id)| (index, Some(id)));
    let wrong = |_| InvalidValue::new("index", index, format!("a number, as in {process}/0"));
    let index = index.parse().map_err(wrong)?;
    let definition = definition.map(DefinitionId::new).transpose();
    let definition =
        definition.map_err(|bad| Failure::usage(format!("{bad}, as in {process}/{index}@v2")))?;
    Ok(Some(InstanceSelector { process, index, definition }))
}

/// Rejects text that is too short, or that cannot be a fragment of an id.
pub(crate) fn check_fragment(what: &str, text: &str, instead: &str) -> Result<(), Failure> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if hex && text.len() >= MIN_FRAGMENT_LEN {
        return Ok(());
    }
    Err(Failure::usage(format!("invalid {what} {text:?}: expected {instead}")))
}

/// Returns the only row with an id that starts or ends with `part`. Fails if no row or more than one row
/// matches.
pub(crate) fn pick<T>(
    what: &str,
    part: &str,
    rows: Vec<T>,
    id: impl Fn(&T) -> Option<String>,
) -> Result<T, Failure> {
    let mut found: Vec<(String, T)> = rows
        .into_iter()
        .filter_map(|row| id(&row).map(|id| (id, row)))
        .filter(|(id, _)| matches(id, part))
        .collect();
    match found.len() {
        1 => Ok(found.remove(0).1),
        0 => Err(Failure::not_found(format!("{what} {part}")).advise(format!("see muster {what} list"))),
        several => {
            let ids: Vec<&str> = found.iter().take(5).map(|(id, _)| id.as_str()).collect();
            let why = format!("ambiguous id {part}: it matches {several} ids: {}", ids.join(", "));
            Err(Failure::new(Exit::Usage, "Ambiguous", why).advise("use more characters of the id"))
        }
    }
}

/// Returns `true` if `id` starts or ends with `part`, ignoring the case of `part`.
pub(crate) fn matches(id: &str, part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    id.starts_with(&part) || id.ends_with(&part)
}

/// Returns the failure for a missing object. Suggests a similar name if there is one, otherwise a command
/// that lists the names.
pub(super) fn missing<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
    list: &str,
) -> Failure {
    let failure = Failure::not_found(what);
    match did_you_mean(name, known) {
        Some(question) => failure.advise(question),
        None => failure.advise(format!("see {list}")),
    }
}

/// Returns the domain of an existing resource. Fails with not-found if the user selected a different domain
/// with `--domain`.
pub(crate) fn check_domain(global: &Global, what: impl fmt::Display, own: Domain) -> Result<Domain, Failure> {
    match &global.domain {
        Some(named) if *named != own => Err(Failure::not_found(format!("{what} in domain {named}"))
            .advise(format!("it is in domain {own}: use --domain {own}, or omit --domain"))),
        Some(_) | None => Ok(own),
    }
}

/// If the resource to create already exists in another domain, replaces a `Forbidden` failure by a conflict.
pub(crate) fn exists_in_other_domain(
    failure: Failure,
    what: impl fmt::Display,
    known: Option<Domain>,
    wanted: &Domain,
) -> Failure {
    match known {
        Some(own) if failure.code == Code::Forbidden.to_string() && own != *wanted => {
            let why = format!("{what} exists in domain {own}, not in {wanted}");
            Failure::new(Exit::Conflict, &Code::ResourceExists.to_string(), why)
        }
        Some(_) | None => failure,
    }
}

/// Returns a filter for the selected domain, or for all domains.
pub(crate) fn only(domain: Option<&Domain>) -> ListFilter {
    domain.map_or_else(ListFilter::default, |domain| ListFilter::domain(domain.clone()))
}

pub(crate) fn no_container(id: &str) -> Failure {
    Failure::not_found(format!("a container of instance {id}")).advise(format!("see muster why {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_fragment_selects_its_only_match() {
        let rows = || vec!["0193-aaaa", "0193-bbbb", "0194-bbbc"];
        let pick = |part: &str| pick("instance", part, rows(), |row| Some((*row).to_owned()));
        assert_eq!(pick("bbbc"), Ok("0194-bbbc"));
        assert_eq!(pick("0194"), Ok("0194-bbbc"));
        assert_eq!(pick("AAAA"), Ok("0193-aaaa"));
        assert_eq!(pick("ffff").unwrap_err().exit, Exit::NotFound);
        let several = pick("0193").unwrap_err();
        assert_eq!(several.exit, Exit::Usage);
        assert!(several.text(false).contains("0193-aaaa, 0193-bbbb"), "{}", several.text(false));
    }

    #[test]
    fn resource_in_other_domain_is_not_found() {
        let domain = |name: &str| Domain::new(name).unwrap();
        let global = |named: Option<&str>| Global { domain: named.map(domain), ..Global::default() };
        assert_eq!(check_domain(&global(None), "process web", domain("a")), Ok(domain("a")));
        assert_eq!(check_domain(&global(Some("a")), "process web", domain("a")), Ok(domain("a")));
        let missing = check_domain(&global(Some("b")), "process web", domain("a")).unwrap_err();
        assert_eq!(missing.exit, Exit::NotFound);
        assert!(
            missing.text(false).contains("process web in domain b does not exist"),
            "{}",
            missing.text(false)
        );
    }

    #[test]
    fn forbidden_create_is_conflict_if_resource_exists_in_other_domain() {
        let domain = |name: &str| Domain::new(name).unwrap();
        let forbidden = || Failure::from(schemas::Refusal::new(Code::Forbidden, "no"));
        let failure = |known| exists_in_other_domain(forbidden(), "process web", known, &domain("b"));
        assert_eq!(failure(Some(domain("a"))).exit, Exit::Conflict);
        assert_eq!(failure(Some(domain("b"))).exit, Exit::Failed, "the server's own reason");
        assert_eq!(failure(None).exit, Exit::Failed);
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
            let failure = parse_selector(bad).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{bad}");
            assert!(failure.message.contains(why), "{bad}: {}", failure.message);
        }
        assert!(check_fragment("instance", "beef", "").is_ok());
        assert!(
            check_fragment("instance", "web", "").is_err() && check_fragment("instance", "abc", "").is_err()
        );
    }
}
