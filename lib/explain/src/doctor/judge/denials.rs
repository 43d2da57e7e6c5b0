//! Check of permission violations that services had on the server. Each violation is a configuration error or
//! an attempt at unauthorised access.

use text::words::count;

use super::super::check::Check;
use super::super::facts::{Place, ServiceMetrics};

pub(super) fn check(told: &[ServiceMetrics], place: &Place) -> Check {
    if let Place::Local(_) = place {
        return Check::skipped("denials", "a local cluster has no permissions");
    }
    if told.is_empty() {
        return Check::skipped(
            "denials",
            "no metrics address is set: only the services count their permission violations",
        )
        .advise(
            "pass the address of each service that runs with --metrics: muster doctor --metrics HOST:9464",
        );
    }
    let silent: Vec<String> =
        told.iter().filter_map(|one| Some(format!("{}: {}", one.url, one.refused.as_ref().err()?))).collect();
    if !silent.is_empty() {
        return Check::failed("denials", silent.join("; "))
            .advise("check that the service runs with --metrics at that address");
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
        let services = count(services as u64, "service");
        return Check::ok("denials", format!("no permission violations ({services} checked)"));
    }
    Check::warning("denials", format!("permission violations: {}", refused.join("; ")))
        .advise("search the log of that service, or of the server, for \"Permissions Violation\"")
        .advise("check that the service runs as its own user: muster auth list FOLDER")
}
