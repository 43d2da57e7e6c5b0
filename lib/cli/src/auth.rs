//! `muster auth`: manages the users of a NATS server. The commands create the keys and certificates of users.
//! They also generate the server's configuration, with the permissions of each user's role.
//!
//! The commands change a folder and make a local server reload it. They contact no cluster.

use std::fs;
use std::path::{Path, PathBuf};

use access::store::{CONFIGURATION_FILE, RenewedCertificate, Store, StoreOptions};
use access::{Role, User, server};
use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use host::error::ServiceError;
use runtime::exit::Exit;
use rustix::process::{Pid, Signal, kill_process};
use schemas::Timestamp;
use schemas::names::{CellId, ClientName, Domain};
use serde::Serialize;

/// Name of the NATS server program. The commands signal this program to reload its configuration.
const SERVER: &str = "nats-server";

/// Subcommands of `muster auth`.
#[derive(Clone, Debug, Subcommand)]
pub enum AuthVerb {
    /// Create a folder with users of a NATS server. It has a certificate authority, a user of each role, and the
    /// configuration of a server for them
    Init {
        /// Folder to create
        folder: PathBuf,
        /// Name or address of the server; may be repeated. Users connect to the first one [default:
        /// 127.0.0.1]
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
        /// Address that the server listens on [default: 127.0.0.1:4222, or 0.0.0.0:4222 if a host is named]
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<String>,
        /// Address of the monitoring endpoint; everyone who can reach it sees all connections
        #[arg(long, default_value = "127.0.0.1:8222", value_name = "ADDRESS")]
        monitoring: String,
        /// Path at which the server and its users find the folder, if they run in containers or on other
        /// hosts [default: the path of the folder on this host]
        #[arg(long, value_name = "DIR")]
        seen_at: Option<PathBuf>,
        /// Folder in which the server stores its streams, as a path that is valid for the server [default: a
        /// subfolder "streams" of the users' folder]
        #[arg(long, value_name = "DIR")]
        streams: Option<PathBuf>,
        /// Configure a cluster of three or five servers, one on each --host; nats-1.conf is the configuration
        /// of the first one
        #[arg(long)]
        cluster: bool,
    },
    /// Add a user, and make the server reload its users; connections stay open
    Add {
        /// Folder of the users
        folder: PathBuf,
        /// Role of the user: bbs, bbs-writer, auctioneer, projector, rep CELL, client DOMAIN NAME, auditor
        /// NAME, operator NAME, gateway NAME, admin NAME or system
        #[arg(num_args = 1..=3, required = true, value_names = ["ROLE", "NAME"])]
        role: Vec<String>,
        /// Name of the user [default: the words of its role, such as rep-c1]
        #[arg(long)]
        name: Option<ClientName>,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Remove a user, and make the server reload its users: the user is disconnected, all others stay
    /// connected
    Revoke {
        /// Folder of the users
        folder: PathBuf,
        /// Name of the user
        name: String,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Renew the certificates of the named users. Without names, renew the certificates of the server and of
    /// all users. Nkeys stay
    Renew {
        /// Folder of the users
        folder: PathBuf,
        /// Names of the users
        names: Vec<String>,
        /// Additional name or address for the server's certificate; may be repeated
        #[arg(long = "host", value_name = "HOST", conflicts_with = "names")]
        hosts: Vec<String>,
        /// Create a new authority, which signs all certificates; the old authority stays trusted until muster
        /// auth renew --forget-authority
        #[arg(long, conflicts_with = "names")]
        authority: bool,
        /// Stop trusting all authorities except the newest one; renews no certificates
        #[arg(long, conflicts_with_all = ["names", "hosts", "authority"])]
        forget_authority: bool,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Give a user a new nkey and certificate. The server reloads its users, and then refuses the old nkey
    Rotate {
        /// Folder of the users
        folder: PathBuf,
        /// Name of the user
        name: String,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Generate the server's users again. They get the permissions of this muster version, and the server
    /// reloads them: use it after an upgrade
    Refresh {
        /// Folder of the users
        folder: PathBuf,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// List the users
    #[command(alias = "ls")]
    List {
        /// Folder of the users
        folder: PathBuf,
    },
}

/// Output row of a user.
#[derive(Serialize)]
struct UserRow<'a> {
    name: &'a str,
    role: String,
    nkey: &'a str,
    /// File with the environment variables that a program needs to connect as this user.
    environment: PathBuf,
}

/// Answer to a change of a user.
#[derive(Serialize)]
struct UserChange<'a> {
    action: &'a str,
    #[serde(flatten)]
    user: UserRow<'a>,
    /// `true` if a running server was signalled to reload.
    server_reloaded: bool,
}

pub(crate) fn run(verb: AuthVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        AuthVerb::Init { folder, hosts, listen, monitoring, seen_at, streams, cluster } => {
            let default_listen = if hosts.is_empty() { "127.0.0.1:4222" } else { "0.0.0.0:4222" };
            let listen = listen.as_deref().unwrap_or(default_listen);
            for address in [listen, &monitoring] {
                check_address(address)?;
            }
            let new = StoreOptions {
                hosts: &hosts,
                listen,
                monitoring: &monitoring,
                visible_path: seen_at.as_deref(),
                streams: streams.as_deref(),
                cluster,
            };
            init(&folder, &new, global)
        }
        AuthVerb::Add { folder, role, name, pid_file } => {
            let role = role
                .join(" ")
                .parse()
                .map_err(|error: access::roles::InvalidRole| Failure::usage(error.to_string()))?;
            let mut store = open(&folder, pid_file.as_deref())?;
            let user = store.add(role, name, random_seed()?, clock::now())?.clone();
            print_change("added", &user, &store, pid_file.as_deref(), global)
        }
        AuthVerb::Revoke { folder, name, pid_file } => {
            let mut store = open(&folder, pid_file.as_deref())?;
            let user = store.revoke(&name)?;
            print_change("revoked", &user, &store, pid_file.as_deref(), global)
        }
        AuthVerb::Renew { folder, names, hosts, authority, forget_authority, pid_file } => {
            let mut store = open(&folder, pid_file.as_deref())?;
            if forget_authority {
                store.forget_authority()?;
                reload_server(&store, pid_file.as_deref())?;
                return Ok(());
            }
            if authority {
                store.renew_authority(clock::now())?;
            }
            let renewed = renew(&mut store, names, &hosts)?;
            reload_server(&store, pid_file.as_deref())?;
            show_renewed(&renewed, global)
        }
        AuthVerb::Rotate { folder, name, pid_file } => {
            let mut store = open(&folder, pid_file.as_deref())?;
            let user = store.rotate(&name, random_seed()?, clock::now())?.clone();
            print_change("rotated", &user, &store, pid_file.as_deref(), global)
        }
        AuthVerb::Refresh { folder, pid_file } => {
            let store = open(&folder, pid_file.as_deref())?;
            list(&store, global)
        }
        AuthVerb::List { folder } => list(&Store::open(&folder)?, global),
    }
}

/// Renews the certificates of the named users. Without names, renews the certificates of the server and of
/// all users.
fn renew(
    store: &mut Store,
    names: Vec<String>,
    hosts: &[String],
) -> Result<Vec<RenewedCertificate>, Failure> {
    let (mut renewed, mut names) = (Vec::new(), names);
    if names.is_empty() {
        renewed.push(store.renew_server(hosts, clock::now())?);
        names = store.users().iter().map(|user| user.name.clone()).collect();
    }
    for name in &names {
        renewed.push(store.renew(name, clock::now())?);
    }
    Ok(renewed)
}

/// Output row of a renewed certificate.
#[derive(Serialize)]
struct RenewedRow {
    certificate: PathBuf,
    expires_at: Timestamp,
}

fn show_renewed(renewed: &[RenewedCertificate], global: &Global) -> Result<(), Failure> {
    let row =
        |one: &RenewedCertificate| RenewedRow { certificate: one.file.clone(), expires_at: one.expires_at };
    let rows: Vec<RenewedRow> = renewed.iter().map(row).collect();
    Output::new(global).write_rows(&rows, |rows, _| {
        let headers = ["CERTIFICATE", "EXPIRES"];
        Table::with_rows(headers, rows, |RenewedRow { certificate, expires_at }| {
            [Cell::text(certificate.display()), Cell::text(expires_at)]
        })
    })
}

/// Checks a listen address. The server would refuse an invalid address, or read it as a different setting.
fn check_address(text: &str) -> Result<(), Failure> {
    let valid =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if valid && !text.contains(['"', '\\']) && !text.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "invalid listen address {text:?}: expected HOST:PORT, such as 127.0.0.1:4222"
    )))
}

fn random_seed() -> Result<[u8; 32], Failure> {
    clock::key().map_err(|error| Failure::from(ServiceError::Randomness(error)))
}

/// Returns the initial users of a new folder: one of each role.
fn first_users() -> [Role; 9] {
    let named = |name| ClientName::new(name).expect("constant name is valid");
    let domain = Domain::new("default").expect("constant name is valid");
    [
        Role::System,
        // The BBS writer is created before the BBS, because the environment file of the BBS contains the path
        // of the writer's seed file.
        Role::BbsWriter,
        Role::Bbs,
        Role::Auctioneer,
        Role::Projector,
        Role::Rep(CellId::new("c1").expect("constant name is valid")),
        Role::Client(domain, named("client")),
        Role::Operator(named("ops")),
        Role::Auditor(named("audit")),
    ]
}

fn init(folder: &Path, new: &StoreOptions<'_>, global: &Global) -> Result<(), Failure> {
    let mut store = Store::create(folder, new, clock::now())?;
    for role in first_users() {
        store.add(role, None, random_seed()?, clock::now())?;
    }
    list(&store, global)?;
    let (shown, operator) = (store.folder().display(), store.user_file("operator-ops", "env"));
    note(&format!(
        "created {shown}: ca.key, users/*.nk and users/*.key are secret; copy each user's files to its host"
    ));
    let file = if new.cluster { server::member_file(1) } else { CONFIGURATION_FILE.to_owned() };
    let rest = if new.cluster { ", and every other server with the file of its number" } else { "" };
    note(&format!("start the server: nats-server -c {shown}/{file}{rest}"));
    note(&format!("connect as operator: set -a; . {}; muster cluster show", operator.display()));
    Ok(())
}

/// Opens a folder to change it. A killed command or an earlier program version may have left outdated users
/// in the folder. In this case, writes the users again first, and makes the server reload them.
fn open(folder: &Path, pid_file: Option<&Path>) -> Result<Store, Failure> {
    let store = Store::open(folder)?;
    if store.is_outdated()? {
        store.write()?;
        note("rewrote the server's users: they did not match the list and this version");
        reload_server(&store, pid_file)?;
    }
    Ok(store)
}

fn user_row<'a>(user: &'a User, store: &Store) -> UserRow<'a> {
    let User { name, nkey, role } = user;
    UserRow { name, role: role.to_string(), nkey, environment: store.user_file(name, "env") }
}

fn list(store: &Store, global: &Global) -> Result<(), Failure> {
    let rows: Vec<UserRow<'_>> = store.users().iter().map(|user| user_row(user, store)).collect();
    Output::new(global).write_rows(&rows, |rows, _| {
        let headers = ["USER", "ROLE", "NKEY"];
        Table::with_rows(headers, rows, |UserRow { name, role, nkey, .. }| {
            [Cell::text(name), Cell::text(role), Cell::text(nkey)]
        })
    })
}

fn print_change(
    action: &'static str,
    user: &User,
    store: &Store,
    pid_file: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    let server_reloaded = reload_server(store, pid_file)?;
    let changed = UserChange { action, user: user_row(user, store), server_reloaded };
    let added = action == "added";
    Output::new(global).write_one(&changed, |changed, _| {
        let UserRow { name, role, environment, .. } = &changed.user;
        let what = format!("user {name} {action}: {role}");
        if added { format!("{what}\nenvironment of this user: {}", environment.display()) } else { what }
    })
}

/// Makes the server reload its configuration if the server runs on this host. Otherwise prints instructions
/// for the reload. Returns `true` if the server was signalled.
fn reload_server(store: &Store, pid_file: Option<&Path>) -> Result<bool, Failure> {
    let default_file = store.folder().join(server::PID_FILE);
    let file = pid_file.unwrap_or(&default_file);
    if let Some(pid) = running_server(file) {
        let failed = |error| {
            let why = format!(
                "can't signal {SERVER} with process id {} to reload its users: {error}",
                pid.as_raw_nonzero()
            );
            Failure::new(Exit::Failed, "Reload", why).advise(manual_reload_hint(file))
        };
        kill_process(pid, Signal::HUP).map_err(failed)?;
        return Ok(true);
    }
    note(&format!(
        "{SERVER} does not run on this host (pid file {}): {}",
        file.display(),
        manual_reload_hint(file)
    ));
    Ok(false)
}

fn manual_reload_hint(file: &Path) -> String {
    format!("make it reload its users on its own host: {SERVER} --signal reload={}", file.display())
}

/// Returns the server process that a pid file names, if the server runs on this host. `None` if the pid
/// belongs to another program, or to a process in a container.
fn running_server(file: &Path) -> Option<Pid> {
    let pid = Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)?;
    let program = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    (program.trim() == SERVER).then_some(pid)
}
