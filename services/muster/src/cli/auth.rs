//! `muster auth`: users of a NATS server with the permissions of their roles, their keys and certificates,
//! and the server's configuration. The commands change a folder and make a local server reload it. They
//! contact no cluster.

use std::fs;
use std::path::{Path, PathBuf};

use access::store::{CONFIGURATION, New, Renewed, Store, StoreError};
use access::{Role, User, server};
use clap::Subcommand;
use rustix::process::{Pid, Signal, kill_process};
use schemas::Timestamp;
use schemas::names::{CellId, ClientName, Domain};
use serde::Serialize;

use super::args::Global;
use super::failure::{Exit, Failure};
use super::output::{Output, note};
use super::table::{Cell, Table};
use crate::error::{ServiceError, chain};

/// Name of the NATS server program, which is signalled to reload its configuration.
const SERVER: &str = "nats-server";

/// Subcommands of `muster auth`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AuthVerb {
    /// Create a folder with a certificate authority, a user of each role, and the configuration of a NATS
    /// server for them
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
        /// Path of the folder as the server and its users see it, if different, as in containers
        #[arg(long, value_name = "DIR")]
        seen_at: Option<PathBuf>,
        /// Folder of the server's streams, as the server sees it [default: streams in the folder]
        #[arg(long, value_name = "DIR")]
        streams: Option<PathBuf>,
        /// Configure a cluster of three or five servers, one on each --host: nats-1.conf is for the first one
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
        /// Name of the user [default: the words of its role, as rep-c1]
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
    /// Renew the certificates of the named users; without names, those of the server and of all users. Nkeys
    /// stay
    Renew {
        /// Folder of the users
        folder: PathBuf,
        /// Names of the users
        names: Vec<String>,
        /// Additional name or address for the server's certificate; may be repeated
        #[arg(long = "host", value_name = "HOST", conflicts_with = "names")]
        hosts: Vec<String>,
        /// Create a new authority, which signs all certificates; the old one is trusted until
        /// --forget-authority
        #[arg(long, conflicts_with = "names")]
        authority: bool,
        /// Renew nothing, and stop trusting all authorities before the newest one
        #[arg(long, conflicts_with_all = ["names", "hosts", "authority"])]
        forget_authority: bool,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Give a user a new nkey and certificate, and make the server reload its users: it refuses the old nkey
    /// from then on
    Rotate {
        /// Folder of the users
        folder: PathBuf,
        /// Name of the user
        name: String,
        /// File with the process id of the server [default: nats.pid in the folder]
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Write the server's users from the list with the permissions of this version, for example after an
    /// upgrade, and make the server reload them
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
struct Shown<'a> {
    name: &'a str,
    role: String,
    nkey: &'a str,
    /// File with the environment variables that a program needs to connect as this user.
    environment: PathBuf,
}

/// Answer to a change of a user.
#[derive(Serialize)]
struct Changed<'a> {
    did: &'a str,
    #[serde(flatten)]
    user: Shown<'a>,
    /// `true` if a running server was signalled to reload.
    server_told: bool,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let why = chain(&error);
        match error {
            StoreError::Exists { .. } | StoreError::Taken { .. } => Self::new(Exit::Conflict, "Exists", why),
            StoreError::Absent { .. } | StoreError::Unknown { .. } => {
                Self::new(Exit::NotFound, "NotFound", why)
            }
            StoreError::Servers(_) => Self::usage(why),
            StoreError::Busy { .. }
            | StoreError::Unreadable { .. }
            | StoreError::Unwritable { .. }
            | StoreError::Malformed { .. }
            | StoreError::Certificate(_)
            | StoreError::Key(_) => Self::new(Exit::Failed, "Auth", why),
        }
    }
}

pub(crate) fn run(verb: AuthVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        AuthVerb::Init { folder, hosts, listen, monitoring, seen_at, streams, cluster } => {
            let usual = if hosts.is_empty() { "127.0.0.1:4222" } else { "0.0.0.0:4222" };
            let listen = listen.as_deref().unwrap_or(usual);
            for address in [listen, &monitoring] {
                check_address(address)?;
            }
            let new = New {
                hosts: &hosts,
                listen,
                monitoring: &monitoring,
                seen_at: seen_at.as_deref(),
                streams: streams.as_deref(),
                cluster,
            };
            init(&folder, &new, global)
        }
        AuthVerb::Add { folder, role, name, pid_file } => {
            let role = role
                .join(" ")
                .parse()
                .map_err(|error: access::roles::NoRole| Failure::usage(error.to_string()))?;
            let mut store = open(&folder, pid_file.as_deref())?;
            let user = store.add(role, name, random()?, clock::now())?.clone();
            told("added", &user, &store, pid_file.as_deref(), global)
        }
        AuthVerb::Revoke { folder, name, pid_file } => {
            let mut store = open(&folder, pid_file.as_deref())?;
            let user = store.revoke(&name)?;
            told("revoked", &user, &store, pid_file.as_deref(), global)
        }
        AuthVerb::Renew { folder, names, hosts, authority, forget_authority, pid_file } => {
            let mut store = open(&folder, pid_file.as_deref())?;
            if forget_authority {
                store.forget_authority()?;
                tell_server(&store, pid_file.as_deref())?;
                return Ok(());
            }
            if authority {
                store.renew_authority(clock::now())?;
            }
            let renewed = renew(&mut store, names, &hosts)?;
            tell_server(&store, pid_file.as_deref())?;
            show_renewed(&renewed, global)
        }
        AuthVerb::Rotate { folder, name, pid_file } => {
            let mut store = open(&folder, pid_file.as_deref())?;
            let user = store.rotate(&name, random()?, clock::now())?.clone();
            told("rotated", &user, &store, pid_file.as_deref(), global)
        }
        AuthVerb::Refresh { folder, pid_file } => {
            let store = open(&folder, pid_file.as_deref())?;
            list(&store, global)
        }
        AuthVerb::List { folder } => list(&Store::open(&folder)?, global),
    }
}

/// Renews the certificates of the named users; without names, those of the server and of all users.
fn renew(store: &mut Store, names: Vec<String>, hosts: &[String]) -> Result<Vec<Renewed>, Failure> {
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

fn show_renewed(renewed: &[Renewed], global: &Global) -> Result<(), Failure> {
    let row = |one: &Renewed| RenewedRow { certificate: one.file.clone(), expires_at: one.expires_at };
    let rows: Vec<RenewedRow> = renewed.iter().map(row).collect();
    Output::new(global).rows(&rows, |rows, _| {
        let mut table = Table::new(&["CERTIFICATE", "EXPIRES"]);
        for RenewedRow { certificate, expires_at } in rows {
            table.row(vec![Cell::text(certificate.display()), Cell::text(expires_at)]);
        }
        table
    })
}

/// Checks a listen address. The server would refuse an invalid one, or read it as a different setting.
fn check_address(text: &str) -> Result<(), Failure> {
    let valid =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if valid && !text.contains(['"', '\\']) && !text.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(Failure::usage(format!("{text:?} is no address to listen on: use HOST:PORT, as 127.0.0.1:4222")))
}

fn random() -> Result<[u8; 32], Failure> {
    clock::key().map_err(|error| Failure::from(ServiceError::Randomness(error)))
}

/// Returns the initial users of a new folder: one of each role.
fn first_users() -> [Role; 9] {
    let named = |name| ClientName::new(name).expect("it is a name");
    let domain = Domain::new("default").expect("it is a name");
    [
        Role::System,
        // Precedes the BBS, whose environment file names this user's file.
        Role::BbsWriter,
        Role::Bbs,
        Role::Auctioneer,
        Role::Projector,
        Role::Rep(CellId::new("c1").expect("it is a name")),
        Role::Client(domain, named("client")),
        Role::Operator(named("ops")),
        Role::Auditor(named("audit")),
    ]
}

fn init(folder: &Path, new: &New<'_>, global: &Global) -> Result<(), Failure> {
    let mut store = Store::create(folder, new, clock::now())?;
    for role in first_users() {
        store.add(role, None, random()?, clock::now())?;
    }
    list(&store, global)?;
    let (shown, operator) = (store.folder().display(), store.file_of("operator-ops", "env"));
    note(&format!(
        "{shown} is made: ca.key and users/*.nk and *.key are secret, bring each user's files to where it runs"
    ));
    let file = if new.cluster { server::member_file(1) } else { CONFIGURATION.to_owned() };
    let rest = if new.cluster { ", and each other one with the file of its number" } else { "" };
    note(&format!("start the server: nats-server -c {shown}/{file}{rest}"));
    note(&format!("be its operator: set -a; . {}; muster cluster show", operator.display()));
    Ok(())
}

/// Opens a folder to change it. First completes a command that was killed before it was done.
fn open(folder: &Path, pid_file: Option<&Path>) -> Result<Store, Failure> {
    let store = Store::open(folder)?;
    if store.is_behind()? {
        store.write()?;
        note("the server's users were not as the list and this version have them: they are written anew");
        tell_server(&store, pid_file)?;
    }
    Ok(store)
}

fn shown<'a>(user: &'a User, store: &Store) -> Shown<'a> {
    let User { name, nkey, role } = user;
    Shown { name, role: role.to_string(), nkey, environment: store.file_of(name, "env") }
}

fn list(store: &Store, global: &Global) -> Result<(), Failure> {
    let rows: Vec<Shown<'_>> = store.users().iter().map(|user| shown(user, store)).collect();
    Output::new(global).rows(&rows, |rows, _| {
        let mut table = Table::new(&["USER", "ROLE", "NKEY"]);
        for Shown { name, role, nkey, .. } in rows {
            table.row(vec![Cell::text(name), Cell::text(role), Cell::text(nkey)]);
        }
        table
    })
}

fn told(
    did: &'static str,
    user: &User,
    store: &Store,
    pid_file: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    let server_told = tell_server(store, pid_file)?;
    let changed = Changed { did, user: shown(user, store), server_told };
    let added = did == "added";
    Output::new(global).one(&changed, |changed, _| {
        let Shown { name, role, environment, .. } = &changed.user;
        let what = format!("{name} is {did}: {role}");
        if added { format!("{what}\nhow to connect as it: {}", environment.display()) } else { what }
    })
}

/// Makes the server reload its configuration if it runs on this host, else prints how to do it. Returns
/// `true` if the server was signalled.
fn tell_server(store: &Store, pid_file: Option<&Path>) -> Result<bool, Failure> {
    let usual = store.folder().join(server::PID);
    let file = pid_file.unwrap_or(&usual);
    if let Some(pid) = running(file) {
        let failed = |error| {
            let why = format!(
                "{SERVER} with process id {} can't be told to read its users again: {error}",
                pid.as_raw_nonzero()
            );
            Failure::new(Exit::Failed, "Reload", why).advise(by_hand(file))
        };
        kill_process(pid, Signal::HUP).map_err(failed)?;
        return Ok(true);
    }
    note(&format!("no {SERVER} runs here by {}: {}", file.display(), by_hand(file)));
    Ok(false)
}

fn by_hand(file: &Path) -> String {
    format!("where it runs, have it read its users again: {SERVER} --signal reload={}", file.display())
}

/// Returns the server process that a pid file names, if it runs on this host. `None` if the pid belongs to
/// another program, or to a process in a container.
fn running(file: &Path) -> Option<Pid> {
    let pid = Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)?;
    let program = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    (program.trim() == SERVER).then_some(pid)
}
