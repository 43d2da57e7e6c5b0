//! The folder that `muster auth` manages: users with their keys and certificates, and the server's
//! configuration.
//!
//! `users.list` is authoritative; the server's `users.conf` is generated from it. Both files are replaced
//! atomically. If a command is killed between the two writes, the next command writes `users.conf` again.
//! Only the owner of a file with secrets can read it. A certificate or key is replaced only by a renewal or a
//! rotation.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use nkeys::{KeyPair, KeyPairType};
use schemas::Timestamp;
use schemas::names::ClientName;

use crate::certificates::{self, CertificateError, Holder, IssuedCertificate};
use crate::roles::Role;
use crate::server::{
    self, AUTHORITY_FILE, SERVER_CERTIFICATE_HOST, SERVER_FILES, Settings, USERS_FILE, User,
};

/// Name of the file with the list of users.
const LIST_FILE: &str = "users.list";
/// Name of the file with the server's configuration.
pub const CONFIGURATION_FILE: &str = "nats.conf";
/// Name of the file with the authority's key.
const AUTHORITY_KEY_FILE: &str = "ca.key";
/// Name of the folder with the keys and certificates of users.
pub const USERS_FOLDER: &str = "users";
/// Valid numbers of servers in a cluster. A cluster of three servers tolerates the loss of one server, a
/// cluster of five the loss of two.
const CLUSTER_SIZES: [usize; 2] = [3, 5];
/// Name of the lock file. The process that uses the folder holds the lock.
const LOCK_FILE: &str = ".lock";
/// First line of the list of users.
const HEADING: &str = "# Users of a Muster cluster, managed by muster auth: name, public nkey, role.\n";
/// Prefix of the first line of a seed file. The role of the user follows the prefix, so a program can read
/// its own role from the seed file.
const IDENTITY_PREFIX: &str = "# Muster: ";

/// Error while using or changing the folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file exists, and the command does not overwrite it.
    #[error("{} already exists and was not changed: muster auth add and revoke change it", path.display())]
    Exists { path: PathBuf },
    /// The folder contains no list of users.
    #[error("{} is not a folder of users: create one with muster auth init DIR", path.display())]
    Absent { path: PathBuf },
    /// The number of hosts is not a valid cluster size.
    #[error("invalid number of hosts {0}: a cluster has 3 or 5 servers; name the host of each server once")]
    ClusterSize(usize),
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    /// Another process has locked the folder.
    #[error("{} is being changed by another muster auth: try again", path.display())]
    Busy { path: PathBuf },
    /// The list of users cannot be parsed.
    #[error("{} is not a valid list of users: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    /// The user name is in use.
    #[error("user {name} already exists ({role}): revoke it first, or set another name with --name")]
    Taken {
        name: String,
        /// Role of the existing user.
        role: Role,
    },
    /// No user has this name.
    #[error("user {name} does not exist: the users are {}", known.join(", "))]
    Unknown {
        name: String,
        /// Names of all users.
        known: Vec<String>,
    },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("cannot create an nkey: {0}")]
    Key(String),
}

/// Options for a new folder.
#[derive(Clone, Debug)]
pub struct StoreOptions<'a> {
    /// Names and addresses of the server. Clients connect to the first host, or to all hosts if `cluster` is
    /// set. If the list is empty, clients connect to `127.0.0.1`.
    pub hosts: &'a [String],
    /// Listen address of the server.
    pub listen: &'a str,
    /// Listen address of the server's monitoring.
    pub monitoring: &'a str,
    /// Path of the folder as the server and the clients see it, for example in containers. `None` if the path
    /// is the same.
    pub visible_path: Option<&'a Path>,
    /// Folder in which the server stores its streams, as a path on its host. Default: `streams` in the
    /// folder.
    pub streams: Option<&'a Path>,
    /// `true` if each host runs a server and the servers form a cluster.
    pub cluster: bool,
}

/// Connection data that is stored in the list of users.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerInfo {
    /// URL of the server. In a cluster, the URLs of all servers, separated by commas.
    url: String,
    /// Path of the folder as clients see it. `None` if the path is the same.
    visible_path: Option<PathBuf>,
    /// Names and addresses in the server's certificate.
    hosts: Vec<String>,
}

/// Renewed certificate. The key is in the file beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedCertificate {
    /// Path of the certificate.
    pub file: PathBuf,
    pub expires_at: Timestamp,
}

/// Folder of users, locked for exclusive use by this process.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    server_info: ServerInfo,
    users: Vec<User>,
    #[expect(dead_code, reason = "holds the lock until it is dropped")]
    lock: File,
}

impl Store {
    /// Creates a folder with an authority, the server's certificate and its configuration, without users.
    ///
    /// # Errors
    /// Returns an error if one of the files exists, a host is invalid, the number of hosts is not a valid
    /// cluster size, or a file cannot be written.
    pub fn create(folder: &Path, new: &StoreOptions<'_>, now: Timestamp) -> Result<Self, StoreError> {
        let unwritable = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Unwritable { path, source }
        };
        if new.cluster && !CLUSTER_SIZES.contains(&new.hosts.len()) {
            return Err(StoreError::ClusterSize(new.hosts.len()));
        }
        let mut folders = fs::DirBuilder::new();
        folders.recursive(true).mode(0o700);
        folders.create(folder.join(USERS_FOLDER)).map_err(unwritable(folder))?;
        let folder = folder.canonicalize().map_err(unwritable(folder))?;
        let lock = lock_folder(&folder)?;
        for name in [
            LIST_FILE,
            CONFIGURATION_FILE,
            USERS_FILE,
            AUTHORITY_FILE,
            AUTHORITY_KEY_FILE,
            SERVER_FILES.0,
            SERVER_FILES.1,
        ] {
            let path = folder.join(name);
            if path.exists() {
                return Err(StoreError::Exists { path });
            }
        }
        let hosts = with_local_hosts(new.hosts);
        let authority = certificates::create_authority(now)?;
        let of_server = certificates::issue(Holder::Server(&hosts), &authority.key, now)?;
        write_pair(&folder, (AUTHORITY_FILE, AUTHORITY_KEY_FILE), &authority)?;
        write_pair(&folder, SERVER_FILES, &of_server)?;
        let seen_at = new.visible_path.unwrap_or(&folder);
        let settings = Settings {
            listen: new.listen.to_owned(),
            monitoring: new.monitoring.to_owned(),
            folder: seen_at.to_owned(),
            streams: new.streams.map_or_else(|| seen_at.join("streams"), Path::to_owned),
        };
        write_new(&folder.join(CONFIGURATION_FILE), 0o644, &server::configuration(&settings))?;
        let addresses: Vec<String> = hosts.iter().map(|host| url_host(host)).collect();
        let servers = &addresses[..if new.cluster { new.hosts.len() } else { 1 }];
        if new.cluster {
            for number in 1..=servers.len() {
                let text = server::member_configuration(&settings, servers, number);
                write_new(&folder.join(server::member_file(number)), 0o644, &text)?;
            }
        }
        let port = new.listen.rsplit_once(':').map_or("4222", |(_, port)| port);
        let url = servers.iter().map(|host| format!("tls://{host}:{port}")).collect::<Vec<_>>().join(",");
        let told = ServerInfo { url, visible_path: new.visible_path.map(Path::to_owned), hosts };
        let store = Self { folder, server_info: told, users: Vec::new(), lock };
        store.write()?;
        Ok(store)
    }

    /// Opens a folder and locks it.
    ///
    /// # Errors
    /// Returns an error if the folder contains no list of users, the list cannot be parsed, or another
    /// process has locked the folder.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let list = folder.join(LIST_FILE);
        if !list.is_file() {
            return Err(StoreError::Absent { path: folder.to_owned() });
        }
        let unreadable = |source| StoreError::Unreadable { path: folder.to_owned(), source };
        let folder = folder.canonicalize().map_err(unreadable)?;
        let lock = lock_folder(&folder)?;
        let text = read(&list)?;
        let (told, users) =
            parse(&text).map_err(|why| StoreError::Malformed { path: folder.join(LIST_FILE), why })?;
        Ok(Self { folder, server_info: told, users, lock })
    }

    /// Returns the users in the order in which they were added.
    #[must_use]
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// Returns the absolute path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the URL that users connect to. In a cluster, the URLs of all servers, separated by commas.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.server_info.url
    }

    /// Returns the path of one file of a user. The file `nk` has the seed, `crt` has the certificate, `key`
    /// has the certificate's key, and `env` has the environment variables that name these files.
    #[must_use]
    pub fn user_file(&self, name: &str, ending: &str) -> PathBuf {
        self.folder.join(USERS_FOLDER).join(format!("{name}.{ending}"))
    }

    /// Adds a user and derives its nkey from `random`. The server accepts the user after reloading its
    /// configuration.
    ///
    /// # Errors
    /// Returns an error if the name is in use, one of the user's files exists, or a file cannot be written.
    pub fn add(
        &mut self,
        role: Role,
        name: Option<ClientName>,
        random: [u8; 32],
        now: Timestamp,
    ) -> Result<&User, StoreError> {
        let name = name.map_or_else(|| role.default_name(), |name| name.to_string());
        if let Some(known) = self.users.iter().find(|user| user.name == name) {
            return Err(StoreError::Taken { name, role: known.role.clone() });
        }
        let (nkey, seed) = derive_nkey(random)?;
        let certificate = self.issue(Holder::User(&name), now)?;
        write_new(&self.user_file(&name, "nk"), 0o600, &format!("{IDENTITY_PREFIX}{role}\n{seed}\n"))?;
        write_new(&self.user_file(&name, "crt"), 0o644, &certificate.certificate)?;
        write_new(&self.user_file(&name, "key"), 0o600, &certificate.key)?;
        write_new(&self.user_file(&name, "env"), 0o644, &self.environment(&name, &role))?;
        self.users.push(User { name, nkey, role });
        self.write()?;
        Ok(&self.users[self.users.len() - 1])
    }

    /// Returns the environment variables for a program that connects as this user.
    fn environment(&self, name: &str, role: &Role) -> String {
        let at = self.server_info.visible_path.as_ref().unwrap_or(&self.folder);
        let file_of = |name: &str, ending: &str| {
            at.join(USERS_FOLDER).join(format!("{name}.{ending}")).display().to_string()
        };
        let file = |ending| file_of(name, ending);
        let mut text = format!(
            "MUSTER_NATS_URL={}\nMUSTER_NATS_CREDS={}\nMUSTER_NATS_CA={}\nMUSTER_NATS_CERT={}\nMUSTER_NATS_KEY={}\n",
            self.server_info.url,
            file("nk"),
            at.join(AUTHORITY_FILE).display(),
            file("crt"),
            file("key"),
        );
        let more = match role {
            Role::Bbs => {
                let writer = self.users.iter().find(|user| user.role == Role::BbsWriter);
                writer.map(|writer| format!("MUSTER_NATS_WRITER_CREDS={}\n", file_of(&writer.name, "nk")))
            }
            Role::Rep(cell) => Some(format!("MUSTER_CELL={cell}\n")),
            Role::Client(domain, name) => Some(format!("MUSTER_DOMAIN={domain}\nMUSTER_CLIENT={name}\n")),
            Role::Operator(name) | Role::Auditor(name) | Role::Gateway(name) => {
                Some(format!("MUSTER_CLIENT={name}\n"))
            }
            Role::BbsWriter | Role::Auctioneer | Role::Projector | Role::Admin(_) | Role::System => None,
        };
        text.push_str(&more.unwrap_or_default());
        text
    }

    /// Issues a new certificate and key for the server. `hosts` are added to the hosts in the certificate.
    ///
    /// # Errors
    /// Returns an error if a host is invalid or a file cannot be read or written.
    pub fn renew_server(
        &mut self,
        hosts: &[String],
        now: Timestamp,
    ) -> Result<RenewedCertificate, StoreError> {
        let known = &self.server_info.hosts;
        let added: Vec<String> = hosts.iter().filter(|host| !known.contains(host)).cloned().collect();
        let all = [known.as_slice(), &added].concat();
        let made = self.issue(Holder::Server(&all), now)?;
        self.server_info.hosts = all;
        self.write()?;
        replace_pair(&self.folder.join(SERVER_FILES.0), &self.folder.join(SERVER_FILES.1), &made)
    }

    /// Issues a new TLS certificate and key for a user. The nkey stays the same.
    ///
    /// # Errors
    /// Returns an error if there is no such user or a file cannot be read or written.
    pub fn renew(&self, name: &str, now: Timestamp) -> Result<RenewedCertificate, StoreError> {
        let name = &self.users[self.position(name)?].name;
        let made = self.issue(Holder::User(name), now)?;
        replace_pair(&self.user_file(name, "crt"), &self.user_file(name, "key"), &made)
    }

    /// Replaces the nkey of a user by an nkey derived from `random`, and issues a new TLS certificate and
    /// key. The server rejects the old nkey after reloading its configuration.
    ///
    /// # Errors
    /// Returns an error if there is no such user or a file cannot be read or written.
    pub fn rotate(&mut self, name: &str, random: [u8; 32], now: Timestamp) -> Result<&User, StoreError> {
        let at = self.position(name)?;
        let (nkey, seed) = derive_nkey(random)?;
        self.renew(name, now)?;
        replace(
            &self.user_file(name, "nk"),
            0o600,
            &format!("{IDENTITY_PREFIX}{}\n{seed}\n", self.users[at].role),
        )?;
        self.users[at].nkey = nkey;
        self.write()?;
        Ok(&self.users[at])
    }

    /// Creates a new authority, which signs all later certificates. Afterwards, `ca.crt` contains the new and
    /// the old authority. Certificates from the old authority stay valid until [`Self::forget_authority`].
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written.
    pub fn renew_authority(&self, now: Timestamp) -> Result<(), StoreError> {
        let made = certificates::create_authority(now)?;
        let file = self.folder.join(AUTHORITY_FILE);
        replace(&file, 0o644, &format!("{}{}", made.certificate, read(&file)?))?;
        replace(&self.folder.join(AUTHORITY_KEY_FILE), 0o600, &made.key)
    }

    /// Removes every authority except the newest from `ca.crt`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub fn forget_authority(&self) -> Result<(), StoreError> {
        let file = self.folder.join(AUTHORITY_FILE);
        let text = read(&file)?;
        let newest = text.split_inclusive("-----END CERTIFICATE-----").next().unwrap_or_default();
        replace(&file, 0o644, &format!("{newest}\n"))
    }

    fn issue(&self, holder: Holder<'_>, now: Timestamp) -> Result<IssuedCertificate, StoreError> {
        let authority = read(&self.folder.join(AUTHORITY_KEY_FILE))?;
        Ok(certificates::issue(holder, &authority, now)?)
    }

    fn position(&self, name: &str) -> Result<usize, StoreError> {
        self.users.iter().position(|user| user.name == name).ok_or_else(|| {
            let known = self.users.iter().map(|user| user.name.clone()).collect();
            StoreError::Unknown { name: name.to_owned(), known }
        })
    }

    /// Removes a user and its files.
    ///
    /// # Errors
    /// Returns an error if there is no such user or a file cannot be written.
    pub fn revoke(&mut self, name: &str) -> Result<User, StoreError> {
        let user = self.users.remove(self.position(name)?);
        self.write()?;
        for ending in ["nk", "crt", "key", "env"] {
            let path = self.user_file(name, ending);
            match fs::remove_file(&path) {
                Ok(()) => {}
                // The file was moved to the host that uses it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(StoreError::Unwritable { path, source }),
            }
        }
        Ok(user)
    }

    /// Returns `true` if the users in the server's configuration differ from the list. A command that was
    /// killed between the two writes causes such a difference.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot be read.
    pub fn is_outdated(&self) -> Result<bool, StoreError> {
        Ok(read(&self.folder.join(USERS_FILE))? != server::users_configuration(&self.users))
    }

    /// Writes the list of users, and generates the server's configuration from the list.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self) -> Result<(), StoreError> {
        let mut list = format!("{HEADING}server {}\n", self.server_info.url);
        if let Some(seen_at) = &self.server_info.visible_path {
            list.push_str(&format!("seen-at {}\n", seen_at.display()));
        }
        for host in &self.server_info.hosts {
            list.push_str(&format!("host {host}\n"));
        }
        for User { name, nkey, role } in &self.users {
            // Writing to a `String` cannot fail.
            let written = writeln!(list, "user {name} {nkey} {role}");
            debug_assert!(written.is_ok());
        }
        replace(&self.folder.join(LIST_FILE), 0o644, &list)?;
        replace(&self.folder.join(USERS_FILE), 0o644, &server::users_configuration(&self.users))
    }
}

/// Returns the role that a seed file names. `None` if the file names no valid role.
#[must_use]
pub fn seed_file_role(seed_file: &str) -> Option<Role> {
    seed_file.lines().find_map(|line| line.strip_prefix(IDENTITY_PREFIX))?.parse().ok()
}

/// Returns the hosts, followed by the names and addresses of the local host.
fn with_local_hosts(hosts: &[String]) -> Vec<String> {
    let mut all = hosts.to_vec();
    for local in ["127.0.0.1", SERVER_CERTIFICATE_HOST, "::1"] {
        if !all.iter().any(|host| host == local) {
            all.push(local.to_owned());
        }
    }
    all
}

/// Returns a host as it appears in a URL: IPv6 addresses are in brackets.
fn url_host(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn parse(text: &str) -> Result<(ServerInfo, Vec<User>), String> {
    let (mut url, mut seen_at, mut hosts, mut users) = (None, None, Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty())
    {
        let wrong = |why: &str| format!("line {}: {why}", at + 1);
        if let Some(path) = line.strip_prefix("seen-at ") {
            seen_at = Some(PathBuf::from(path));
            continue;
        }
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["server", address] => url = Some(address.to_owned()),
            ["host", host] => hosts.push(host.to_owned()),
            ["user", name, nkey, role] => {
                let name = ClientName::new(name).map_err(|error| wrong(&error.to_string()))?.to_string();
                KeyPair::from_public_key(nkey).map_err(|_| wrong("invalid nkey"))?;
                let role =
                    role.parse().map_err(|error: crate::roles::InvalidRole| wrong(&error.to_string()))?;
                users.push(User { name, nkey: nkey.to_owned(), role });
            }
            _ => {
                return Err(wrong("expected server URL, seen-at DIR, host HOST or user NAME NKEY ROLE"));
            }
        }
    }
    Ok((
        ServerInfo { url: url.ok_or("the line server URL is missing")?, visible_path: seen_at, hosts },
        users,
    ))
}

/// Derives an nkey from random bytes. Returns its public key and its seed.
fn derive_nkey(random: [u8; 32]) -> Result<(String, String), StoreError> {
    let failed = |error: nkeys::error::Error| StoreError::Key(error.to_string());
    let key = KeyPair::new_from_raw(KeyPairType::User, random).map_err(failed)?;
    Ok((key.public_key(), key.seed().map_err(failed)?))
}

fn lock_folder(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK_FILE);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
    let file = file.map_err(|source| StoreError::Unwritable { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(StoreError::Busy { path: folder.to_owned() }),
        Err(fs::TryLockError::Error(source)) => Err(StoreError::Unwritable { path, source }),
    }
}

fn read(path: &Path) -> Result<String, StoreError> {
    fs::read_to_string(path).map_err(|source| StoreError::Unreadable { path: path.to_owned(), source })
}

fn write_pair(
    folder: &Path,
    (certificate, key): (&str, &str),
    made: &IssuedCertificate,
) -> Result<(), StoreError> {
    write_new(&folder.join(certificate), 0o644, &made.certificate)?;
    write_new(&folder.join(key), 0o600, &made.key)
}

/// Replaces a certificate and its key. A program that reads the two files between the two writes cannot
/// connect and retries.
fn replace_pair(
    certificate: &Path,
    key: &Path,
    made: &IssuedCertificate,
) -> Result<RenewedCertificate, StoreError> {
    replace(key, 0o600, &made.key)?;
    replace(certificate, 0o644, &made.certificate)?;
    let expires_at = certificates::expiry(made.certificate.as_bytes()).map_err(CertificateError::from)?;
    Ok(RenewedCertificate { file: certificate.to_owned(), expires_at })
}

/// Creates a file and syncs it to disk. Fails if the file exists.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), StoreError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| {
        if source.kind() == ErrorKind::AlreadyExists {
            return StoreError::Exists { path: path.to_owned() };
        }
        StoreError::Unwritable { path: path.to_owned(), source }
    })
}

/// Replaces a file atomically: a reader sees either the old or the new text. The owner of the file stays the
/// same.
fn replace(path: &Path, mode: u32, text: &str) -> Result<(), StoreError> {
    let draft = path.with_extension("new");
    let write = || {
        // A killed command may have left the draft behind, with a different file mode.
        if let Err(error) = fs::remove_file(&draft)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
        if let Ok(old) = fs::metadata(path) {
            chown(&draft, Some(old.uid()), Some(old.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    write().map_err(|source| StoreError::Unwritable { path: path.to_owned(), source })
}
