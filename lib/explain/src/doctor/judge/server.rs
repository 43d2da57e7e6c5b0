//! Checks of the connection, and of the permissions of the credentials.

use std::time::Duration;

use text::words::{count, precise_duration};

use super::super::check::Check;
use super::super::facts::{Certificate, Fact, Folder, NoConnection, Permissions, Server};
use super::unknown_fact;

/// Remaining days of a certificate: the check fails below the first value and warns below the second.
const EXPIRY_FAILURE_DAYS: u64 = 3;
const EXPIRY_WARNING_DAYS: u64 = 30;

/// Returns the failed check that reports a missing connection.
pub(super) fn no_connection(why: &NoConnection) -> Check {
    match why {
        NoConnection::Unreachable(why) if is_tls_failure(why) => {
            Check::failed("connection", why).advise(TLS_ADVICE)
        }
        NoConnection::Unreachable(why) => Check::failed("connection", why)
            .advise(
                "check that a NATS server runs there and that no firewall blocks it: nats-server -c \
                     deploy/nats.conf",
            )
            .advise("or use another server: --nats URL, MUSTER_NATS_URL"),
        NoConnection::Refused(why) if is_tls_failure(why) => {
            Check::failed("connection", why).advise(TLS_ADVICE)
        }
        NoConnection::Refused(why) => Check::failed("connection", why).advise(LOGIN_ADVICE),
        NoConnection::Settings(why) => Check::failed("connection", why).advise(
            "check --nats, --creds, --tls-ca, --tls-cert and --tls-key, or the variables of \
                     users/NAME.env",
        ),
    }
}

/// Advice for a failed TLS handshake.
const TLS_ADVICE: &str = "pass the authority that signed the server's certificate (--tls-ca), and a \
                          certificate of this user (--tls-cert, --tls-key)";
/// Advice for a server that rejects the login.
const LOGIN_ADVICE: &str = "pass the credentials of a user of the server: --creds FILE; list the users: \
                            muster auth list FOLDER";

/// Returns `true` if the connection failed because of certificates or TLS.
fn is_tls_failure(why: &str) -> bool {
    let why = why.to_lowercase();
    ["tls", "certificate", "handshake"].iter().any(|word| why.contains(word))
}

/// Checks the connection to a NATS server, its certificates, and JetStream.
pub(super) fn checks(server: &Server) -> Vec<Check> {
    let Server { url, name, version, cluster, encrypted, round_trip, problems, .. } = server;
    let encryption = if *encrypted { "TLS" } else { "no TLS" };
    let of = cluster.as_ref().map(|cluster| format!(" of the cluster {cluster}")).unwrap_or_default();
    let within = match round_trip {
        Ok(time) => format!(", answers within {}", format_round_trip(*time)),
        Err(_) => String::new(),
    };
    let found = format!("{url}, {name}{of}, {version}, {encryption}, {}{within}", login_text(server));
    let connection = match problems.as_slice() {
        [] => Check::ok("connection", found),
        problems => Check::failed("connection", format!("{found}; {}", problems.join("; "))).advise(
            "services reject this server: install nats-server 2.12.7 or newer of 2.12, or 2.14 or \
                     newer, with max_payload: 2MB",
        ),
    };
    let jetstream = if server.jetstream {
        Check::ok("jetstream", "enabled")
    } else {
        Check::failed("jetstream", "the server has no JetStream, so it can't store the journal")
            .advise("add a block jetstream { store_dir: .. } to its configuration, as in deploy/nats.conf")
    };
    vec![connection, certificate(&server.certificates), jetstream]
}

/// Checks the remaining validity of the certificates that this program uses.
fn certificate(files: &Fact<Vec<Certificate>>) -> Check {
    let files = match files {
        Ok(files) => files,
        Err(why) => return unknown_fact("certificate", why).advise("check --tls-cert and --tls-ca"),
    };
    let days = |left: Option<Duration>| left.map(|left| left.as_secs() / 86_400);
    let found = files.iter().map(|Certificate { file, left }| match days(*left) {
        Some(days) => format!("{} expires in {}", file.display(), count(days, "day")),
        None => format!("{} has expired", file.display()),
    });
    let found = found.collect::<Vec<_>>().join("; ");
    let advice = "get a new certificate (muster auth renew FOLDER), replace the old file, and restart the programs \
         that use it";
    match files.iter().map(|one| days(one.left)).min() {
        None => Check::skipped("certificate", "no certificate is used: --tls-cert"),
        Some(None | Some(0..EXPIRY_FAILURE_DAYS)) => Check::failed("certificate", found).advise(advice),
        Some(Some(EXPIRY_FAILURE_DAYS..EXPIRY_WARNING_DAYS)) => {
            Check::warning("certificate", found).advise(advice)
        }
        Some(Some(_)) => Check::ok("certificate", found),
    }
}

fn login_text(server: &Server) -> String {
    match (&server.role, &server.credentials) {
        (Some(role), _) => format!("as {role}"),
        (None, Some(file)) => format!("with {}, which names no role", file.display()),
        (None, None) => "without credentials".to_owned(),
    }
}

fn format_round_trip(time: Duration) -> String {
    if time.as_millis() == 0 { format!("{} µs", time.as_micros()) } else { precise_duration(time) }
}

/// Returns the connection checks of a local cluster.
pub(super) fn local_checks(folder: &Folder) -> Vec<Check> {
    let path = folder.path.display();
    vec![
        Check::ok("connection", format!("the socket of a local cluster in {path}")),
        Check::skipped("certificate", "a local cluster has no connection that could be encrypted"),
        Check::skipped("jetstream", "a local cluster has an embedded journal"),
    ]
}

/// Checks the permissions of the credentials.
pub(super) fn rights(rights: &Fact<Permissions>) -> Check {
    let Permissions { role, role_is_known, tried, refused, excess: beyond } = match rights {
        Ok(rights) => rights,
        Err(why) => return unknown_fact("rights", why),
    };
    let as_role = if *role_is_known {
        role.to_string()
    } else {
        format!("{role} (assumed: the credentials name no role)")
    };
    if !refused.is_empty() {
        let shown = refused.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let more = refused.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let found = format!("the server denies {as_role}: {shown}{more}");
        return Check::failed("rights", found)
            .advise(
                "log in as the intended role (--creds), or check its user in users.conf, which muster \
                     auth refresh FOLDER rewrites",
            )
            .advise(format!("permissions of {role}: docs/reference/permissions.md"));
    }
    let found = format!("none of {} of {as_role} is denied", count(*tried as u64, "permission"));
    match beyond {
        None => Check::ok("rights", found),
        Some(heard) => Check::warning(
            "rights",
            format!(
                "{found}, but {heard} of another role can be read, too: the server has no permissions \
                     set up"
            ),
        )
        .advise(
            "anyone who can connect can do anything: create users and permissions (muster auth init), \
                 or isolate the server's network",
        ),
    }
}

/// Checks that only the owner of the data folder can access a local cluster.
pub(super) fn local_rights(folder: &Folder) -> Check {
    let path = folder.path.display();
    if folder.open_to_others {
        return Check::failed(
            "rights",
            format!("other users can access {path}, and any user who reaches its socket can do anything"),
        )
        .advise(format!("chmod 700 {path}"));
    }
    Check::ok("rights", format!("only the owner of {path} can reach its socket, and may do anything"))
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use schemas::names::ClientName;

    fn sample_rights(refused: &[&str], beyond: Option<&str>) -> Permissions {
        Permissions {
            role: access::Role::Operator(ClientName::new("ops").unwrap()),
            role_is_known: true,
            tried: 7,
            refused: refused.iter().map(|text| (*text).to_owned()).collect(),
            excess: beyond.map(str::to_owned),
        }
    }

    #[test]
    fn certificate_is_judged_by_the_days_that_are_left() {
        let of = |days: Option<u64>| {
            let left = days.map(|days| Duration::from_secs(days * 86_400));
            certificate(&Ok(vec![Certificate { file: "bbs.crt".into(), left }])).outcome
        };
        assert_eq!(
            [Some(30), Some(29), Some(3), Some(2), None].map(of),
            [Outcome::Ok, Outcome::Warning, Outcome::Warning, Outcome::Failed, Outcome::Failed]
        );
        assert_eq!(certificate(&Ok(vec![])).outcome, Outcome::Skipped);
    }

    #[test]
    fn missing_permission_fails_and_excess_permission_warns() {
        assert_eq!(rights(&Ok(sample_rights(&[], None))).outcome, Outcome::Ok);
        let open = rights(&Ok(sample_rights(&[], Some("muster.inbox.bbs.probe"))));
        assert_eq!(open.outcome, Outcome::Warning);
        assert!(
            open.found.contains("none of 7 permissions of operator ops")
                && open.found.contains("no permissions set up")
        );
        let lacking = rights(&Ok(sample_rights(&["publish to a"; 7], Some("b"))));
        assert_eq!(lacking.outcome, Outcome::Failed);
        assert!(lacking.found.ends_with("publish to a and 2 more"), "{}", lacking.found);
    }

    #[test]
    fn untrusted_certificate_gives_tls_advice() {
        let why = "server unreachable at a: IO error: invalid peer certificate: UnknownIssuer".to_owned();
        assert_eq!(no_connection(&NoConnection::Unreachable(why)).advice, [TLS_ADVICE]);
    }

    #[test]
    fn refused_connection_gives_matching_advice() {
        let check = |why: &str| no_connection(&NoConnection::Refused(why.into())).advice.concat();
        let refused = "the server at a refused the connection";
        assert!(check(&format!("{refused}: TLS error: bad certificate")).contains("--tls-ca"));
        assert!(check(&format!("{refused}: authorization violation")).contains("muster auth list"));
    }
}
