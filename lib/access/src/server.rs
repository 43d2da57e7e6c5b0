//! The configuration of a NATS server: what is written once, and the users, which are written anew with each change.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use schemas::limits::MESSAGE_BYTES;

use crate::roles::{Rights, Role};

/// Who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What it is called, here and in the list of users.
    pub name: String,
    /// The public part of its nkey.
    pub nkey: String,
    /// What it may do.
    pub role: Role,
}

/// How a server is reached, and where its files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens for clients, as `127.0.0.1:4222`.
    pub listen: String,
    /// Where its monitoring listens, as `127.0.0.1:8222`. Who reaches that sees who is connected.
    pub monitoring: String,
    /// The folder with certificates and users, as the server sees it.
    pub folder: PathBuf,
    /// Where the server keeps its streams.
    pub streams: PathBuf,
}

/// The file with the users, below the one that includes it.
pub const USERS: &str = "users.conf";
/// The file in which the server writes its process id.
pub const PID: &str = "nats.pid";
/// The certificate of the authority.
pub const AUTHORITY: &str = "ca.crt";
/// The server's certificate, and its key.
pub const SERVER: (&str, &str) = ("server.crt", "server.key");

/// A text as the configuration has it, in quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// What NATS puts around a message: subject, headers.
const AROUND: usize = 1024 * 1024;

/// The configuration itself, which is the operator's once it is written.
#[must_use]
pub fn configuration(settings: &Settings) -> String {
    let Settings { listen, monitoring, folder, streams } = settings;
    let within = |name: &str| path(&folder.join(name));
    format!(
        "# A nats-server for Muster: 2.12.7, 2.14 or newer. Written once by muster auth init, and yours to change.\n\
         # Users and what they may do are in {USERS}, which muster auth add and revoke write anew.\n\
         \n\
         server_name: muster\n\
         listen: {}\n\
         # Who reaches this sees who is connected, and nothing else: keep it on the host. muster bbs --monitoring asks it whether\n\
         # every write is synced.\n\
         http: {}\n\
         # By this muster auth has the server read its users again.\n\
         pid_file: {}\n\
         # Muster's largest message, with what NATS puts around it.\n\
         max_payload: {}\n\
         # Connections of all users together: the server has no limit for each of them. Who opens too many is revoked.\n\
         max_connections: 16384\n\
         \n\
         jetstream {{\n    store_dir: {}\n    \
         # An acknowledged entry survives a power cut only if it is synced before it is acknowledged.\n    \
         sync_interval: always\n}}\n\
         \n\
         # Nobody connects without a certificate of the authority.\n\
         tls {{\n    cert_file: {}\n    key_file: {}\n    ca_file: {}\n    verify: true\n    timeout: 10\n}}\n\
         \n\
         include {}\n",
        quoted(listen),
        quoted(monitoring),
        within(PID),
        MESSAGE_BYTES + AROUND,
        path(streams),
        within(SERVER.0),
        within(SERVER.1),
        within(AUTHORITY),
        quoted(USERS),
    )
}

/// The port on which the servers of a cluster talk to each other.
const ROUTES: u16 = 6222;

/// A name that the certificate of every server has, and that of no user.
pub(crate) const SERVERS_OWN: &str = "localhost";

/// The file with the configuration of one server of a cluster, counted from 1.
#[must_use]
pub fn member_file(number: usize) -> String {
    format!("nats-{number}.conf")
}

/// The configuration of one server of a cluster, counted from 1, whose servers are reached at these hosts: what all of them
/// have, and what is its own.
#[must_use]
pub fn member(settings: &Settings, hosts: &[String], number: usize) -> String {
    let within = |name: &str| path(&settings.folder.join(name));
    let routes = hosts.iter().map(|host| quoted(&format!("tls://{host}:{ROUTES}"))).collect::<Vec<_>>();
    format!(
        "# The server on {}, one of {}. Written once by muster auth init, and yours to change.\n\
         include \"nats.conf\"\n\
         server_name: muster-{number}\n\
         \n\
         cluster {{\n    name: muster\n    listen: \"0.0.0.0:{ROUTES}\"\n    routes: [{}]\n    \
         # Everybody is told all servers by the names that their certificate has.\n    no_advertise: true\n    \
         # A server's certificate has the name {SERVERS_OWN}, and no user's has: a user is no server of the cluster.\n    \
         authorization {{ user: {SERVERS_OWN} }}\n    \
         tls {{\n        cert_file: {}\n        key_file: {}\n        ca_file: {}\n        verify_and_map: true\n        \
         timeout: 10\n    }}\n}}\n",
        hosts[number - 1],
        hosts.len(),
        routes.join(", "),
        within(SERVER.0),
        within(SERVER.1),
        within(AUTHORITY),
    )
}

/// The users, each with its permissions: all of Muster in one account, the server's own in another.
#[must_use]
pub fn users(users: &[User]) -> String {
    let mut text = "# Written by muster auth, from users.list: what is changed here is lost with the next change there.\n\
                    system_account: SYS\naccounts {\n    SYS {\n        users: ["
        .to_owned();
    for user in users.iter().filter(|user| user.role.rights().is_none()) {
        write_user(&mut text, user, None);
    }
    text.push_str("\n        ]\n    }\n    MUSTER {\n        jetstream: enabled\n        users: [");
    for user in users {
        if let Some(rights) = user.role.rights() {
            write_user(&mut text, user, Some(&rights));
        }
    }
    text.push_str("\n        ]\n    }\n}\n");
    text
}

fn write_user(text: &mut String, user: &User, rights: Option<&Rights>) {
    let User { name, nkey, role } = user;
    let list = |patterns: &[String]| patterns.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(", ");
    // Writing to a text doesn't fail.
    let written = match rights {
        None => write!(text, "\n            # {name}: {role}\n            {{ nkey: {nkey} }}"),
        Some(Rights { publishes, subscribes, answers }) => write!(
            text,
            "\n            # {name}: {role}\n            {{ nkey: {nkey}, permissions: {{\n                \
             publish: [{}]\n                subscribe: [{}]{}\n            }} }}",
            list(publishes),
            list(subscribes),
            if *answers { "\n                allow_responses: true" } else { "" },
        ),
    };
    debug_assert!(written.is_ok());
}
