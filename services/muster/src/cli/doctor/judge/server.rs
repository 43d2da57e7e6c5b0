//! Checks of the connection, and of the permissions of the credentials.

use std::time::Duration;

use super::super::super::words::{count, took};
use super::super::check::Check;
use super::super::facts::{Asked, Certificate, Folder, NoConnection, Rights, Server};
use super::unknown;

/// Remaining days of a certificate below which the check fails, and below which it warns.
const EXPIRES_NOW: u64 = 3;
const EXPIRES_SOON: u64 = 30;

/// Returns the check of a missing connection.
pub(super) fn no_connection(why: &NoConnection) -> Check {
    match why {
        NoConnection::Unreachable(why) if is_of_tls(why) => Check::failed("connection", why).advise(TLS),
        NoConnection::Unreachable(why) => Check::failed("connection", why)
            .advise("see that a NATS server runs there and that no firewall is between: nats-server -c deploy/nats.conf")
            .advise("or name another: --nats URL, MUSTER_NATS_URL"),
        NoConnection::Refused(why) if is_of_tls(why) => Check::failed("connection", why).advise(TLS),
        NoConnection::Refused(why) => Check::failed("connection", why).advise(LOGIN),
        NoConnection::Settings(why) => Check::failed("connection", why)
            .advise("see --nats, --creds, --tls-ca, --tls-cert and --tls-key, or the variables of users/NAME.env"),
    }
}

/// Advice for a failed TLS handshake.
const TLS: &str = "give the authority that signed the server's certificate (--tls-ca), and a certificate of this user (--tls-cert, --tls-key)";
/// Advice for a server that rejects the login.
const LOGIN: &str = "give the credentials of a user that the server knows: --creds FILE; muster auth list FOLDER says whom it knows";

/// Returns `true` if the connection failed because of certificates or TLS.
fn is_of_tls(why: &str) -> bool {
    let why = why.to_lowercase();
    ["tls", "certificate", "handshake"].iter().any(|word| why.contains(word))
}

/// Checks the connection to a NATS server, its certificates, and JetStream.
pub(super) fn checks(server: &Server) -> Vec<Check> {
    let Server { url, name, version, cluster, encrypted, round_trip, problems, .. } = server;
    let encryption = if *encrypted { "TLS" } else { "no TLS" };
    let of = cluster.as_ref().map(|cluster| format!(" of the cluster {cluster}")).unwrap_or_default();
    let within = match round_trip {
        Ok(time) => format!(", answers within {}", micros(*time)),
        Err(_) => String::new(),
    };
    let found = format!("{url}, {name}{of}, {version}, {encryption}, {}{within}", as_whom(server));
    let connection = match problems.as_slice() {
        [] => Check::ok("connection", found),
        problems => Check::failed("connection", format!("{found}; {}", problems.join("; ")))
            .advise("no service works with this server: install nats-server 2.12.7 or newer of 2.12, or 2.14 or newer, with max_payload: 2MB"),
    };
    let jetstream = if server.jetstream {
        Check::ok("jetstream", "enabled")
    } else {
        Check::failed("jetstream", "the server has no JetStream, so there is no place for the journal")
            .advise("add a block jetstream { store_dir: .. } to its configuration: see deploy/nats.conf")
    };
    vec![connection, certificate(&server.certificates), jetstream]
}

/// Checks the remaining validity of the certificates that this program uses.
fn certificate(files: &Asked<Vec<Certificate>>) -> Check {
    let files = match files {
        Ok(files) => files,
        Err(why) => return unknown("certificate", why).advise("see --tls-cert and --tls-ca"),
    };
    let days = |left: Option<Duration>| left.map(|left| left.as_secs() / 86_400);
    let found = files.iter().map(|Certificate { file, left }| match days(*left) {
        Some(days) => format!("{} expires in {}", file.display(), count(days, "day")),
        None => format!("{} has expired", file.display()),
    });
    let found = found.collect::<Vec<_>>().join("; ");
    let advice =
        "have a new one made, bring it to where the old one is, and start the programs that read it again";
    match files.iter().map(|one| days(one.left)).min() {
        None => Check::skipped("certificate", "no certificate is used: --tls-cert"),
        Some(None | Some(0..EXPIRES_NOW)) => Check::failed("certificate", found).advise(advice),
        Some(Some(EXPIRES_NOW..EXPIRES_SOON)) => Check::warning("certificate", found).advise(advice),
        Some(Some(_)) => Check::ok("certificate", found),
    }
}

fn as_whom(server: &Server) -> String {
    match (&server.role, &server.credentials) {
        (Some(role), _) => format!("as {role}"),
        (None, Some(file)) => format!("by {}, which says no role", file.display()),
        (None, None) => "without credentials".to_owned(),
    }
}

fn micros(time: Duration) -> String {
    if time.as_millis() == 0 { format!("{} µs", time.as_micros()) } else { took(time) }
}

/// Returns the connection checks of a local cluster.
pub(super) fn of_folder(folder: &Folder) -> Vec<Check> {
    let path = folder.path.display();
    vec![
        Check::ok("connection", format!("the socket of a local cluster in {path}")),
        Check::skipped("certificate", "a local cluster has no connection that could be encrypted"),
        Check::skipped("jetstream", "a local cluster has an embedded journal"),
    ]
}

/// Checks the permissions of the credentials.
pub(super) fn rights(rights: &Asked<Rights>) -> Check {
    let Rights { role, known, tried, refused, beyond } = match rights {
        Ok(rights) => rights,
        Err(why) => return unknown("rights", why),
    };
    let as_role = if *known {
        role.to_string()
    } else {
        format!("{role} (taken for that, as the credentials say no role)")
    };
    if !refused.is_empty() {
        let shown = refused.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let more = refused.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let found = format!("as {as_role} the server refuses {shown}{more}");
        return Check::failed("rights", found)
            .advise("log in as the role that this is for (--creds), or see its rows in users.conf: muster auth writes it anew with each muster auth add or revoke")
            .advise(format!("what {role} must be able to do is in docs/operations.md, \"Permissions\""));
    }
    let found = format!("none of {} of {as_role} is refused", count(*tried as u64, "right"));
    match beyond {
        None => Check::ok("rights", found),
        Some(heard) => Check::warning(
            "rights",
            format!("{found}, but {heard} may be heard as well, which is another role's: the server limits nobody"),
        )
        .advise("whoever reaches the server can do anything: muster auth init makes users and permissions, or keep it on a network of its own"),
    }
}

/// Checks that only its owner can access a local cluster.
pub(super) fn rights_of_folder(folder: &Folder) -> Check {
    let path = folder.path.display();
    if folder.open_to_others {
        return Check::failed(
            "rights",
            format!("others than its owner may enter {path}, and who reaches the socket can do anything"),
        )
        .advise(format!("chmod 700 {path}"));
    }
    Check::ok("rights", format!("only the owner of {path} reaches the socket, and may do anything"))
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use schemas::names::ClientName;

    fn of(refused: &[&str], beyond: Option<&str>) -> Rights {
        Rights {
            role: access::Role::Operator(ClientName::new("ops").unwrap()),
            known: true,
            tried: 7,
            refused: refused.iter().map(|text| (*text).to_owned()).collect(),
            beyond: beyond.map(str::to_owned),
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
        assert_eq!(rights(&Ok(of(&[], None))).outcome, Outcome::Ok);
        let open = rights(&Ok(of(&[], Some("muster.inbox.bbs.probe"))));
        assert_eq!(open.outcome, Outcome::Warning);
        assert!(
            open.found.contains("none of 7 rights of operator ops") && open.found.contains("limits nobody")
        );
        let lacking = rights(&Ok(of(&["to publish on a"; 7], Some("b"))));
        assert_eq!(lacking.outcome, Outcome::Failed);
        assert!(lacking.found.ends_with("to publish on a and 2 more"), "{}", lacking.found);
    }

    #[test]
    fn untrusted_certificate_gives_tls_advice() {
        let why = "server unreachable at a: IO error: invalid peer certificate: UnknownIssuer".to_owned();
        assert_eq!(no_connection(&NoConnection::Unreachable(why)).advice, [TLS]);
    }

    #[test]
    fn refused_connection_gives_matching_advice() {
        let check = |why: &str| no_connection(&NoConnection::Refused(why.into())).advice.concat();
        assert!(check("the server at a refuses us: TLS error: bad certificate").contains("--tls-ca"));
        assert!(check("the server at a refuses us: authorization violation").contains("muster auth list"));
    }
}
