//! Check of permission violations that services had on the server. Each one is a configuration error or an
//! attempt at unauthorised access.

use super::super::check::Check;
use super::super::facts::{Place, Told};

pub(super) fn check(told: &[Told], place: &Place) -> Check {
    if let Place::Local(_) = place {
        return Check::skipped("denials", "a local cluster has no permissions");
    }
    if told.is_empty() {
        return Check::skipped(
            "denials",
            "only the services know what they were refused, and no address of their metrics was given",
        )
        .advise("muster doctor --metrics HOST:9464, for each service that runs with --metrics");
    }
    let silent: Vec<String> =
        told.iter().filter_map(|one| Some(format!("{}: {}", one.url, one.refused.as_ref().err()?))).collect();
    if !silent.is_empty() {
        return Check::failed("denials", silent.join("; "))
            .advise("see that the service runs, with --metrics at that address");
    }
    let refused = told.iter().flat_map(|one| {
        let all = one.refused.iter().flatten();
        all.filter(|(_, count)| **count > 0)
            .map(|(service, count)| format!("{service} at {}: {count}", one.url))
    });
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() {
        let services: usize =
            told.iter().flat_map(|one| one.refused.iter().map(std::collections::BTreeMap::len)).sum();
        return Check::ok("denials", format!("none of {services} services was refused anything"));
    }
    Check::warning("denials", format!("refused for want of permission: {}", refused.join("; ")))
        .advise(
            "what was refused is in the log of that service and in the server's: \"Permissions Violation\"",
        )
        .advise("see whether it runs as its own user: muster auth list FOLDER")
}
