//! Configuration of a NATS server. The main file is written once. The list of users is rewritten with each
//! change.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use schemas::limits::MESSAGE_BYTES;

use crate::roles::{Rights, Role};

/// User that may log in to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Unique name, which the list of users and the user's files share.
    pub name: String,
    /// Public part of the nkey.
    pub nkey: String,
    pub role: Role,
}

/// Addresses and paths of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Listen address for clients, such as `127.0.0.1:4222`.
    pub listen: String,
    /// Listen address for monitoring, such as `127.0.0.1:8222`. It shows the connected users to every process
    /// that can reach it.
    pub monitoring: String,
    /// Folder with certificates and users, as a path on the server's host.
    pub folder: PathBuf,
    /// Folder in which the server stores its streams.
    pub streams: PathBuf,
}

/// Name of the file with the users, relative to the file that includes it.
pub const USERS: &str = "users.conf";
/// Name of the file to which the server writes its process id.
pub const PID: &str = "nats.pid";
/// Name of the file with the authority's certificate.
pub const AUTHORITY: &str = "ca.crt";
/// Names of the files with the server's certificate and its key.
pub const SERVER: (&str, &str) = ("server.crt", "server.key");

/// Returns a text in quotes, escaped for the configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Size limit of the subject and the headers of a message, in bytes.
const AROUND: usize = 1024 * 1024;

/// Returns the main configuration. `muster auth` writes it once; operators may edit it afterwards.
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

/// Port for connections between the servers of a cluster.
const ROUTES: u16 = 6222;

/// Host name in the certificate of every server. No certificate of a user contains it.
pub(crate) const SERVERS_OWN: &str = "localhost";

/// Returns the name of the file with the configuration of one server of a cluster. Numbers start at 1.
#[must_use]
pub fn member_file(number: usize) -> String {
    format!("nats-{number}.conf")
}

/// Returns the configuration of one server of a cluster. It includes the common configuration and adds the
/// server's own name and routes.
///
/// Numbers start at 1. `hosts` has the host of every server.
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

/// Returns the configuration of the users. The users of Muster share one account, each with its permissions.
/// Users with the role `system` are in the server's own account.
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
    // Writing to a `String` cannot fail.
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
