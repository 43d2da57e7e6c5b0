//! Lookup of resources by name, or by an unambiguous fragment of an id.

use std::fmt;

use cli_base::failure::Failure;
use cli_base::options::Global;
use client::{Client, ListFilter};
use runtime::exit::Exit;
use schemas::Code;
use schemas::names::{CellId, Domain, ParameterisedGuid, PeriodicGuid, TaskGuid};
use schemas::query::{CellRow, EvaluationRow, ParameterisedRow, PeriodicRow, ShowAnswer, TaskRow};
use text::suggestions::did_you_mean;

use super::arguments::parse_full_id;
pub(crate) use explain::find::{
    FoundInstance, INSTANCE_FORMS, InstanceSelector, check_fragment, instance, lrp, matches, parse_selector,
    pick,
};

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
            pick("evaluation", id, rows, of).map_err(|error| missing(error.into()))
        }
    }
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
    Ok(explain::find::check_domain(global.domain.as_ref(), what, own)?)
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
        let id = |row: &&str| Some((*row).to_owned());
        let pick = |part: &str| pick("instance", part, rows(), id).map_err(Failure::from);
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
}
