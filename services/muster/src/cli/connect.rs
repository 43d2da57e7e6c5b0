//! Where the cluster is, and who we are there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use access::Role;
use access::store::identity;
use client::target::{SOCKET, is_ours};
use client::{Client, Inbox, Target, default_domain, default_socket};
use schemas::names::{ClientName, Domain};

use super::args::{Global, Named, Strength};
use super::failure::{Exit, Failure};

/// How long the command line asks for an answer, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may take to be there, and how often is looked.
const SERVER: Duration = Duration::from_secs(2);
const SERVER_AGAIN: Duration = Duration::from_millis(50);

/// Where a cluster may be, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A NATS server.
    Nats(String),
    /// A socket that the user named.
    Socket(PathBuf),
    /// The socket where a local cluster is if nobody says otherwise.
    Usual(PathBuf),
}

/// Connects to the cluster that the user means.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    if let Some(past) = &global.past {
        return Ok(past.client.clone());
    }
    let place = place(global);
    let target = match &place {
        Place::Nats(url) => match &global.creds {
            Some(file) => Target::nats_with_credentials(url, file),
            None => Target::nats(url),
        }
        .encrypted(global.tls.of_nats()),
        Place::Socket(path) => Target::Socket(path.clone()),
        Place::Usual(path) if is_ours(path) => Target::Socket(path.clone()),
        Place::Usual(path) => return Err(no_cluster(path)),
    };
    let who = Who::of(global);
    let client = reach(target, &who, global.timeout).await.map_err(|error| {
        let failure = Failure::from(error).doing("reach the cluster");
        match &place {
            Place::Nats(url) => {
                let advice = format!("is a NATS server running at {}?", without_password(url));
                let local = "for a local cluster (muster dev) unset MUSTER_NATS_URL";
                let is_variable = global.named.nats == Strength::Environment;
                let failure = failure.advise_on(Exit::Unreachable, advice);
                failure.advise_some(is_variable.then(|| local.to_owned()))
            }
            Place::Socket(path) => {
                let denied = failure.message.to_lowercase().contains("permission denied");
                let path = path.display();
                let advice = if denied {
                    format!("the socket {path} belongs to another user: run muster as that user, or name another --data")
                } else {
                    format!("is muster dev running with its socket at {path}?")
                };
                failure.advise_on(Exit::Unreachable, advice)
            }
            Place::Usual(_) => failure.advise("or name a NATS server: --nats nats://127.0.0.1:4222"),
        }
    })?;
    Ok(with_terms(client, global))
}

/// Connects. Who starts a server and asks at once is not too early: for a moment it is tried again.
async fn reach(target: Target, who: &Who, limit: Option<Duration>) -> Result<Client, client::Error> {
    let until = Instant::now() + limit.unwrap_or(SERVER).min(SERVER);
    loop {
        let connect = Client::connect(target.clone()).domain(who.domain.clone()).name(who.name.clone());
        match connect.inbox(who.inbox.clone()).await {
            Err(client::Error::Unreachable(_)) if Instant::now() + SERVER_AGAIN < until => {
                tokio::time::sleep(SERVER_AGAIN).await;
            }
            done => return done,
        }
    }
}

/// The client with what the user says with every command.
fn with_terms(client: Client, global: &Global) -> Client {
    let mut client = client.patience(global.timeout.unwrap_or(PATIENCE));
    if let Some(reason) = &global.reason {
        client = client.because(reason.clone());
    }
    match &global.request_id {
        Some(id) => client.request(id.clone()),
        None => client,
    }
}

/// What is named most strongly counts; of what is named as strongly, NATS goes before a socket, and that before a folder.
fn place(global: &Global) -> Place {
    let Named { nats, data, socket, domain: _ } = global.named;
    let by_nats = global.nats.clone().map(|url| (nats, Place::Nats(url)));
    let by_socket = global.socket.clone().map(|path| (socket, Place::Socket(path)));
    let by_data = global.data.as_ref().map(|folder| (data, Place::Socket(folder.join(SOCKET))));
    let places = [by_data, by_socket, by_nats].into_iter().flatten();
    // Of several that are as strong the last is taken.
    let strongest = places.max_by_key(|(strength, _)| *strength);
    strongest.map_or_else(|| Place::Usual(default_socket()), |(_, place)| place)
}

/// The data folder of the local cluster that the user means; none: it isn't a local one.
pub(crate) fn data_folder(global: &Global) -> Option<PathBuf> {
    match place(global) {
        Place::Nats(_) => None,
        Place::Socket(path) | Place::Usual(path) => path.parent().map(Path::to_owned),
    }
}

/// Where the journal itself is, for who must write it without a BBS: a NATS server or a data folder that the user named.
pub(crate) enum JournalPlace {
    /// A NATS server.
    Nats,
    /// The data folder of a local cluster.
    Data(PathBuf),
}

/// The place of the journal, if the user named it.
pub(crate) fn journal_place(global: &Global) -> Option<JournalPlace> {
    match (place(global), &global.data) {
        (Place::Nats(_), _) => Some(JournalPlace::Nats),
        (Place::Socket(path), Some(folder)) if path == folder.join(SOCKET) => {
            Some(JournalPlace::Data(folder.clone()))
        }
        (Place::Socket(_) | Place::Usual(_), _) => None,
    }
}

/// Who the command line is on a cluster.
struct Who {
    /// Whose processes and tasks its commands are about.
    domain: Domain,
    /// Who asks, as the log shall know it.
    name: ClientName,
    /// Where it is answered.
    inbox: Inbox,
}

impl Who {
    /// By options, else by what the file with the credentials says whose it is.
    fn of(global: &Global) -> Self {
        let role = role(global);
        let domain = global.domain.clone().or_else(|| match &role {
            Some(Role::Client(domain, _)) => Some(domain.clone()),
            Some(_) | None => None,
        });
        let (domain, name) = (domain.unwrap_or_else(default_domain), name(global));
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

/// Whose processes and tasks commands are about, and who gives them.
pub(crate) fn who(global: &Global) -> (Domain, ClientName) {
    let Who { domain, name, inbox: _ } = Who::of(global);
    (domain, name)
}

/// Whose the credentials are by which the command line logs in on a NATS server, if their file says it.
pub(crate) fn role(global: &Global) -> Option<Role> {
    let Place::Nats(_) = place(global) else { return None };
    // Who can't read it is told so by who logs in.
    identity(&fs::read_to_string(global.creds.as_ref()?).ok()?)
}

/// Who asks, as the log shall know it.
pub(crate) fn name(global: &Global) -> ClientName {
    match (&global.client, role(global)) {
        (Some(name), _) => name.clone(),
        (
            None,
            Some(Role::Client(_, name) | Role::Operator(name) | Role::Auditor(name) | Role::Gateway(name)),
        ) => name,
        (None, Some(_) | None) => user_name(text("USER").or_else(|| text("LOGNAME"))),
    }
}

fn no_cluster(path: &Path) -> Failure {
    let why = format!(
        "no cluster found: neither --nats nor MUSTER_NATS_URL is given, and nobody serves the socket {}",
        path.display()
    );
    Failure::new(Exit::Unreachable, "Unreachable", why)
        .advise("start a local cluster: muster dev")
        .advise("or name a NATS server: --nats nats://127.0.0.1:4222")
}

/// A variable of the environment, if it is set to something.
fn text(name: &str) -> Option<String> {
    std::env::var_os(name).map(OsString::into_string).and_then(Result::ok).filter(|text| !text.is_empty())
}

/// The user's name as far as it is a client's name.
fn user_name(user: Option<String>) -> ClientName {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = user.unwrap_or_default().chars().map(legal).take(64).collect();
    ClientName::new(&name).unwrap_or_else(|_| ClientName::new("cli").expect("it is a name"))
}

/// An address, fit to be shown.
pub(crate) fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (Some(_) | None, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Strength;

    #[test]
    fn the_place_that_is_named_most_strongly_counts() {
        use Strength::{Environment, File, Flag};
        // How strongly NATS, the socket and the data folder are named, and which of them counts.
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
                named: Named {
                    nats: nats.unwrap_or_default(),
                    socket: socket.unwrap_or_default(),
                    data: data.unwrap_or_default(),
                    ..Named::default()
                },
                ..Global::default()
            };
            let wanted = match counts {
                "nats" => Place::Nats("nats://a".into()),
                "socket" => Place::Socket("/s".into()),
                "data" => Place::Socket("/d/muster.sock".into()),
                _ => Place::Usual(default_socket()),
            };
            assert_eq!(place(&global), wanted, "{nats:?} {socket:?} {data:?}");
        }
    }

    #[test]
    fn nobody_there_is_said_with_advice() {
        let failure = no_cluster(Path::new("/run/muster.sock"));
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.text(false).contains("muster dev"), "{}", failure.text(false));
    }

    #[test]
    fn any_user_has_a_name() {
        assert_eq!(user_name(Some("ada.l@home".into())).as_str(), "ada_l_home");
        assert_eq!(user_name(None).as_str(), "cli");
    }
}
