//! Configuration of a NATS server. The main file is written once. The list of users is rewritten with each
//! change.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use schemas::limits::MESSAGE_BYTES;

use crate::roles::{Rights, Role};

/// User that may log in to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Unique name, used in the list of users and in the names of the user's files.
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
    /// Listen address for monitoring, such as `127.0.0.1:8222`. Every process that can reach this address can
    /// read the list of connected users.
    pub monitoring: String,
    /// Folder with certificates and users, as a path on the server's host.
    pub folder: PathBuf,
    /// Folder in which the server stores its streams.
    pub streams: PathBuf,
}

/// Name of the file with the users, relative to the file that includes it.
pub const USERS_FILE: &str = "users.conf";
/// Name of the file to which the server writes its process id.
pub const PID_FILE: &str = "nats.pid";
/// Name of the file with the authority's certificate.
pub const AUTHORITY_FILE: &str = "ca.crt";
/// Names of the files with the server's certificate and its key.
pub const SERVER_FILES: (&str, &str) = ("server.crt", "server.key");

/// Returns a text in quotes, escaped for the configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Size limit of a message's subject and headers together, in bytes.
const MESSAGE_OVERHEAD: usize = 1024 * 1024;

/// Returns the main configuration. `muster auth` writes it once; operators may edit it afterwards.
#[must_use]
pub fn configuration(settings: &Settings) -> String {
    let Settings { listen, monitoring, folder, streams } = settings;
    let within = |name: &str| quoted_path(&folder.join(name));
    format!(
        "# Configuration of a nats-server for Muster: 2.12.7, 2.14 or newer.\n\
         # muster auth init created it. You may edit it.\n\
         # Users and their permissions are in {USERS_FILE}, which muster auth add and revoke rewrite.\n\
         \n\
         server_name: muster\n\
         listen: {}\n\
         # Monitoring shows the connected users to every process that can reach it: keep it on the host.\n\
         # muster bbs --monitoring reads from it if every write is synced.\n\
         http: {}\n\
         # muster auth makes the server with this process id reload its users.\n\
         pid_file: {}\n\
         # Largest message of Muster, with its subject and headers.\n\
         max_payload: {}\n\
         # Limit for all users together: the server has no limit per user.\n\
         # Revoke a user that opens too many connections.\n\
         max_connections: 16384\n\
         \n\
         jetstream {{\n    store_dir: {}\n    \
         # An acknowledged entry survives a power cut only if it is synced before it is acknowledged.\n    \
         sync_interval: always\n}}\n\
         \n\
         # Every client needs a certificate of the authority.\n\
         tls {{\n    cert_file: {}\n    key_file: {}\n    ca_file: {}\n    verify: true\n    timeout: 10\n}}\n\
         \n\
         include {}\n",
        quoted(listen),
        quoted(monitoring),
        within(PID_FILE),
        MESSAGE_BYTES + MESSAGE_OVERHEAD,
        quoted_path(streams),
        within(SERVER_FILES.0),
        within(SERVER_FILES.1),
        within(AUTHORITY_FILE),
        quoted(USERS_FILE),
    )
}

/// Port for connections between the servers of a cluster.
const ROUTE_PORT: u16 = 6222;

/// Host name in the certificate of every server. No certificate of a user contains it.
pub(crate) const SERVER_CERTIFICATE_HOST: &str = "localhost";

/// Returns the name of the file with the configuration of one server of a cluster. Numbers start at 1.
#[must_use]
pub fn member_file(number: usize) -> String {
    format!("nats-{number}.conf")
}

/// Returns the configuration of one server of a cluster. It includes the common configuration, and adds the
/// server's own name and routes.
///
/// `hosts` has the host of every server. `number` is the number of the server, from 1.
#[must_use]
pub fn member_configuration(settings: &Settings, hosts: &[String], number: usize) -> String {
    let within = |name: &str| quoted_path(&settings.folder.join(name));
    let routes = hosts.iter().map(|host| quoted(&format!("tls://{host}:{ROUTE_PORT}"))).collect::<Vec<_>>();
    format!(
        "# Configuration of the server on {}, one of {}. muster auth init created it. You may edit it.\n\
         include \"nats.conf\"\n\
         server_name: muster-{number}\n\
         \n\
         cluster {{\n    name: muster\n    listen: \"0.0.0.0:{ROUTE_PORT}\"\n    routes: [{}]\n    \
         # Clients are configured with every server, by the names in the certificates.\n    \
         no_advertise: true\n    \
         # Only certificates of servers have the name {SERVER_CERTIFICATE_HOST}.\n    \
         # So no user can join the cluster as a server.\n    \
         authorization {{ user: {SERVER_CERTIFICATE_HOST} }}\n    \
         tls {{\n        cert_file: {}\n        key_file: {}\n        ca_file: {}\n        verify_and_map: true\n        \
         timeout: 10\n    }}\n}}\n",
        hosts[number - 1],
        hosts.len(),
        routes.join(", "),
        within(SERVER_FILES.0),
        within(SERVER_FILES.1),
        within(AUTHORITY_FILE),
    )
}

/// Returns the configuration of the users. The users of Muster share one account, and each user has its own
/// permissions. Users with the role `system` are in the server's own account.
#[must_use]
pub fn users_configuration(users: &[User]) -> String {
    let mut text =
        "# Generated by muster auth from users.list, which overwrites every change in this file.\n\
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
