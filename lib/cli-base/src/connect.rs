//! Selection of the cluster to connect to, and the client's identity there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use access::Role;
use access::store::seed_file_role;
use client::target::{SOCKET_FILE, is_own_socket};
use client::{Client, Inbox, Login, Target, default_domain, default_socket};
use host::serve::Nats;
use runtime::exit::Exit;
use schemas::names::{ClientName, Domain};

use super::failure::Failure;
use super::options::{Global, OptionSource, OptionSources};

/// Default of `--timeout` for commands of the command line.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time to wait for a server to come up, and the interval between attempts.
const SERVER_WAIT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Location of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    Nats(String),
    /// A socket that the user named.
    Socket(PathBuf),
    /// The default socket of a local cluster.
    DefaultSocket(PathBuf),
}

/// Returns the NATS servers and credentials from the options. `None` if no server is named.
pub fn nats(global: &Global) -> Option<Nats> {
    let urls = global.nats.as_ref()?;
    let urls = urls.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect();
    let login = global.creds.clone().map_or(Login::Anonymous, Login::Credentials);
    Some(Nats::new(urls, login, global.tls.nats_tls()))
}

/// Connects to the cluster that the options select.
pub async fn connect(global: &Global) -> Result<Client, Failure> {
    if let Some(past) = &global.past {
        return Ok(past.client.clone());
    }
    let place = location(global);
    let target = match &place {
        Location::Nats(url) => match &global.creds {
            Some(file) => Target::nats_with_credentials(url, file),
            None => Target::nats(url),
        }
        .with_tls(global.tls.nats_tls()),
        Location::Socket(path) => Target::Socket(path.clone()),
        Location::DefaultSocket(path) if is_own_socket(path) => Target::Socket(path.clone()),
        Location::DefaultSocket(path) => return Err(no_cluster(path)),
    };
    let who = Identity::from_options(global);
    let client = connect_with_retry(target, &who, global.timeout).await.map_err(|error| {
        let failure = Failure::from(error).while_doing("reach the cluster");
        match &place {
            Location::Nats(url) => {
                let advice = format!("is a NATS server running at {}?", without_password(url));
                let local = "for a local cluster (muster dev) unset MUSTER_NATS_URL";
                let is_variable = global.named.nats == OptionSource::Environment;
                let failure = failure.advise_if_exit(Exit::Unreachable, advice);
                failure.advise_some(is_variable.then(|| local.to_owned()))
            }
            Location::Socket(path) => {
                let denied = failure.message.to_lowercase().contains("permission denied");
                let path = path.display();
                let advice = if denied {
                    format!("the socket {path} belongs to another user: run muster as that user, or pass another --data")
                } else {
                    format!("is muster dev running with its socket at {path}?")
                };
                failure.advise_if_exit(Exit::Unreachable, advice)
            }
            Location::DefaultSocket(_) => failure.advise("or use a NATS server: --nats nats://127.0.0.1:4222"),
        }
    })?;
    Ok(with_global_options(client, global))
}

/// Connects, and retries for a short time so that a command right after the start of a server succeeds.
async fn connect_with_retry(
    target: Target,
    who: &Identity,
    limit: Option<Duration>,
) -> Result<Client, client::Error> {
    let until = Instant::now() + limit.unwrap_or(SERVER_WAIT).min(SERVER_WAIT);
    loop {
        let connect = Client::connect(target.clone()).domain(who.domain.clone()).name(who.name.clone());
        match connect.inbox(who.inbox.clone()).await {
            Err(client::Error::Unreachable(_)) if Instant::now() + RETRY_INTERVAL < until => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            done => return done,
        }
    }
}

/// Applies the options of every command to a client: timeout, reason and request id.
fn with_global_options(client: Client, global: &Global) -> Client {
    let mut client = client.patience(global.timeout.unwrap_or(DEFAULT_TIMEOUT));
    if let Some(reason) = &global.reason {
        client = client.with_reason(reason.clone());
    }
    match &global.request_id {
        Some(id) => client.with_request_id(id.clone()),
        None => client,
    }
}

/// Selects the location whose option has the highest precedence. Among equals, NATS precedes a socket, and a
/// socket precedes a folder.
fn location(global: &Global) -> Location {
    let OptionSources { nats, data, socket, domain: _ } = global.named;
    let by_nats = global.nats.clone().map(|url| (nats, Location::Nats(url)));
    let by_socket = global.socket.clone().map(|path| (socket, Location::Socket(path)));
    let by_data = global.data.as_ref().map(|folder| (data, Location::Socket(folder.join(SOCKET_FILE))));
    let places = [by_data, by_socket, by_nats].into_iter().flatten();
    // `max_by_key` returns the last of several equal elements.
    let strongest = places.max_by_key(|(strength, _)| *strength);
    strongest.map_or_else(|| Location::DefaultSocket(default_socket()), |(_, place)| place)
}

/// Returns the data folder of the local cluster that the options select. `None` if they select a NATS server.
pub fn data_folder(global: &Global) -> Option<PathBuf> {
    match location(global) {
        Location::Nats(_) => None,
        Location::Socket(path) | Location::DefaultSocket(path) => path.parent().map(Path::to_owned),
    }
}

/// Location of the journal, for commands that write it without a BBS: a NATS server or a data folder that the
/// user named.
pub enum JournalLocation {
    Nats,
    /// The data folder of a local cluster.
    Data(PathBuf),
}

/// Returns the location of the journal if the user named it.
#[must_use]
pub fn journal_location(global: &Global) -> Option<JournalLocation> {
    match (location(global), &global.data) {
        (Location::Nats(_), _) => Some(JournalLocation::Nats),
        (Location::Socket(path), Some(folder)) if path == folder.join(SOCKET_FILE) => {
            Some(JournalLocation::Data(folder.clone()))
        }
        (Location::Socket(_) | Location::DefaultSocket(_), _) => None,
    }
}

/// Identity of the command line on a cluster.
struct Identity {
    /// Domain of the processes and tasks that commands refer to.
    domain: Domain,
    /// Client name that the log records.
    name: ClientName,
    inbox: Inbox,
}

impl Identity {
    /// Derives the identity from the options, else from the role in the credentials file.
    fn from_options(global: &Global) -> Self {
        let role = role(global);
        let domain = global.domain.clone().or_else(|| match &role {
            Some(Role::Client(domain, _)) => Some(domain.clone()),
            Some(_) | None => None,
        });
        let (domain, name) = (domain.unwrap_or_else(default_domain), client_name(global));
        let inbox = match role {
            Some(Role::Client(domain, name)) => Inbox::Client(domain, name),
            Some(Role::Operator(name)) => Inbox::Operator(name),
            Some(Role::Auditor(name)) => Inbox::Auditor(name),
            Some(Role::Gateway(name)) => Inbox::Gateway(name),
            Some(
                Role::BbsWriter
                | Role::Bbs
                | Role::Auctioneer
                | Role::Rep(_)
                | Role::Projector
                | Role::Admin(_)
                | Role::System,
            )
            | None => Inbox::Client(domain.clone(), name.clone()),
        };
        Self { domain, name, inbox }
    }
}

/// Returns the domain that commands refer to, and the client name that the log records.
#[must_use]
pub fn identity_of(global: &Global) -> (Domain, ClientName) {
    let Identity { domain, name, inbox: _ } = Identity::from_options(global);
    (domain, name)
}

/// Returns the role named in the credentials file, if the command line logs in to a NATS server.
#[must_use]
pub fn role(global: &Global) -> Option<Role> {
    let Location::Nats(_) = location(global) else { return None };
    // An unreadable file is reported by the login itself.
    seed_file_role(&fs::read_to_string(global.creds.as_ref()?).ok()?)
}

/// Returns the client name that the log records.
#[must_use]
pub fn client_name(global: &Global) -> ClientName {
    match (&global.client, role(global)) {
        (Some(name), _) => name.clone(),
        (
            None,
            Some(Role::Client(_, name) | Role::Operator(name) | Role::Auditor(name) | Role::Gateway(name)),
        ) => name,
        (None, Some(_) | None) => user_name(environment("USER").or_else(|| environment("LOGNAME"))),
    }
}

fn no_cluster(path: &Path) -> Failure {
    let why = format!(
        "no cluster found: neither --nats nor MUSTER_NATS_URL is set, and no process serves the socket {}",
        path.display()
    );
    Failure::new(Exit::Unreachable, "Unreachable", why)
        .advise("start a local cluster: muster dev")
        .advise("or use a NATS server: --nats nats://127.0.0.1:4222")
}

/// Returns an environment variable if it is set and not empty.
fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(OsString::into_string).and_then(Result::ok).filter(|text| !text.is_empty())
}

/// Converts a user name to a valid client name.
fn user_name(user: Option<String>) -> ClientName {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = user.unwrap_or_default().chars().map(legal).take(64).collect();
    ClientName::new(&name).unwrap_or_else(|_| ClientName::new("cli").expect("constant name is valid"))
}

/// Returns a URL without its user name and password, for output.
#[must_use]
pub fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (Some(_) | None, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OptionSource;

    #[test]
    fn location_with_highest_precedence_is_selected() {
        use OptionSource::{Environment, File, Flag};
        // Each case contains the sources of the options for NATS, the socket and the data folder, and the
        // location that must be selected.
        let cases = [
            ([None, None, None], "usual"),
            ([Some(File), Some(File), Some(File)], "nats"),
            ([None, Some(File), Some(File)], "socket"),
            ([None, None, Some(File)], "data"),
            ([Some(File), None, Some(Environment)], "data"),
            ([Some(File), Some(Environment), None], "socket"),
            ([Some(Environment), Some(File), Some(File)], "nats"),
            ([Some(Environment), Some(Environment), Some(Environment)], "nats"),
            ([Some(Environment), Some(Environment), Some(Flag)], "data"),
            ([Some(Environment), Some(Flag), Some(Environment)], "socket"),
            ([Some(Flag), Some(Environment), Some(File)], "nats"),
            ([None, Some(Flag), Some(Flag)], "socket"),
        ];
        for ([nats, socket, data], counts) in cases {
            let global = Global {
                nats: nats.map(|_| "nats://a".into()),
                socket: socket.map(|_| "/s".into()),
                data: data.map(|_| "/d".into()),
                named: OptionSources {
                    nats: nats.unwrap_or_default(),
                    socket: socket.unwrap_or_default(),
                    data: data.unwrap_or_default(),
                    ..OptionSources::default()
                },
                ..Global::default()
            };
            let wanted = match counts {
                "nats" => Location::Nats("nats://a".into()),
                "socket" => Location::Socket("/s".into()),
                "data" => Location::Socket("/d/muster.sock".into()),
                _ => Location::DefaultSocket(default_socket()),
            };
            assert_eq!(location(&global), wanted, "{nats:?} {socket:?} {data:?}");
        }
    }

    #[test]
    fn unreachable_cluster_error_gives_advice() {
        let failure = no_cluster(Path::new("/run/muster.sock"));
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.text(false).contains("muster dev"), "{}", failure.text(false));
    }

    #[test]
    fn user_name_is_converted_to_a_client_name() {
        assert_eq!(user_name(Some("ada.l@home".into())).as_str(), "ada_l_home");
        assert_eq!(user_name(None).as_str(), "cli");
    }
}
