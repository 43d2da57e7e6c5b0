//! Where the cluster is, and who we are there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::target::{SOCKET, is_ours};
use client::{Client, Target, default_domain, default_socket};
use schemas::names::ClientName;

use super::args::Global;
use super::failure::{Exit, Failure};

/// How long the command line asks for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a cluster may be, and who told so.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A NATS server.
    Nats(String),
    /// A socket that the user named.
    Socket(PathBuf),
    /// The socket where a local cluster is if nobody says otherwise.
    Usual(PathBuf),
}

impl Global {
    /// The credentials file that was named, if one was.
    fn credentials(&self) -> Option<PathBuf> {
        self.creds.clone().or_else(|| text("MUSTER_NATS_CREDS").map(PathBuf::from))
    }
}

/// Connects to the cluster that the user means.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    let place = place(global, text);
    let target = match &place {
        Place::Nats(url) => match global.credentials() {
            Some(file) => Target::nats_with_credentials(url, &file),
            None => Target::nats(url),
        },
        Place::Socket(path) => Target::Socket(path.clone()),
        Place::Usual(path) if is_ours(path) => Target::Socket(path.clone()),
        Place::Usual(path) => return Err(no_cluster(path)),
    };
    let name = match &global.client {
        Some(name) => name.clone(),
        None => user_name(text("USER").or_else(|| text("LOGNAME"))),
    };
    let domain = global.domain.clone().unwrap_or_else(default_domain);
    let client = Client::connect(target).domain(domain).name(name).await.map_err(|error| {
        let failure = Failure::from(error).doing("reach the cluster");
        match &place {
            Place::Nats(url) => {
                failure.advise(format!("is a NATS server running at {}?", without_password(url)))
            }
            Place::Socket(path) => {
                failure.advise(format!("is muster dev running with its socket at {}?", path.display()))
            }
            Place::Usual(_) => failure.advise("or name a NATS server: --nats nats://127.0.0.1:4222"),
        }
    })?;
    Ok(with_terms(client, global))
}

/// The client with what the user says with every command.
fn with_terms(client: Client, global: &Global) -> Client {
    let mut client = client.patience(global.timeout.unwrap_or(PATIENCE).min(PATIENCE));
    if let Some(reason) = &global.reason {
        client = client.because(reason.clone());
    }
    match &global.request_id {
        Some(id) => client.request(id.clone()),
        None => client,
    }
}

/// What the user says on the command line goes before the environment, NATS before a socket.
fn place(global: &Global, environment: impl Fn(&str) -> Option<String>) -> Place {
    let in_folder = |folder: &Path| Place::Socket(folder.join(SOCKET));
    if let Some(url) = &global.nats {
        return Place::Nats(url.clone());
    }
    if let Some(path) = &global.socket {
        return Place::Socket(path.clone());
    }
    if let Some(folder) = &global.data {
        return in_folder(folder);
    }
    if let Some(url) = environment("MUSTER_NATS_URL") {
        return Place::Nats(url);
    }
    match environment("MUSTER_DATA") {
        Some(folder) => in_folder(Path::new(&folder)),
        None => Place::Usual(default_socket()),
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

fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (Some(_) | None, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        move |asked| variables.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_command_line_goes_before_the_environment() {
        let none = Global::default();
        let data = Global { data: Some("/d".into()), ..Global::default() };
        let nats = Global { nats: Some("nats://a".into()), ..data.clone() };
        let both = with(&[("MUSTER_NATS_URL", "nats://b"), ("MUSTER_DATA", "/e")]);
        assert_eq!(place(&nats, &both), Place::Nats("nats://a".into()));
        assert_eq!(place(&data, &both), Place::Socket("/d/muster.sock".into()));
        assert_eq!(place(&none, &both), Place::Nats("nats://b".into()));
        assert_eq!(place(&none, with(&[("MUSTER_DATA", "/e")])), Place::Socket("/e/muster.sock".into()));
        assert_eq!(place(&none, with(&[])), Place::Usual(default_socket()));
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
