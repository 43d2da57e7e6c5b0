//! The folder that `muster auth` makes: users with their keys and certificates, and the server's configuration.
//!
//! `users.list` is what counts; the server's `users.conf` follows from it. Both are replaced as a whole, and a command that
//! was killed in between is completed by the next one. What is secret is readable by its owner alone. Only renewing a
//! certificate or rotating a key replaces it.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use nkeys::{KeyPair, KeyPairType};
use schemas::Timestamp;
use schemas::names::ClientName;

use crate::certificates::{self, CertificateError, Holder, Made};
use crate::roles::Role;
use crate::server::{self, AUTHORITY, SERVER, SERVERS_OWN, Settings, USERS, User};

/// The list of users.
const LIST: &str = "users.list";
/// The server's configuration.
pub const CONFIGURATION: &str = "nats.conf";
/// The authority's key.
const AUTHORITY_KEY: &str = "ca.key";
/// Keys and certificates of users.
pub const OF_USERS: &str = "users";
/// How many servers can lose one or two of them and go on.
const SERVERS: [usize; 2] = [3, 5];
/// Held by who changes the folder.
const LOCK: &str = ".lock";
/// What the list begins with.
const HEADING: &str = "# The users of a Muster cluster, made by muster auth: name, public nkey, role.\n";
/// What a seed's file begins with, before the role: by that the command line knows who it is.
const IDENTITY: &str = "# Muster: ";

/// Why the folder can't be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is one already.
    #[error("{} is there already, and is left as it is: muster auth add and revoke change it", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// There is none.
    #[error("{} is no folder of users: make one by muster auth init DIR", path.display())]
    Absent {
        /// The folder.
        path: PathBuf,
    },
    /// They can't agree on anything.
    #[error(
        "a cluster has 3 or 5 servers, and {0} hosts are named: name the host of each server, and nothing else"
    )]
    Servers(usize),
    /// A file can't be read.
    #[error("{} can't be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file can't be written.
    #[error("{} can't be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody changes the folder at this moment.
    #[error("{} is being changed by another muster auth: try again", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The list of users is spoiled.
    #[error("{} is no list of users: {why}", path.display())]
    Malformed {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A user of that name is there.
    #[error("there is a user {name} already ({role}): revoke it first, or give another name with --name")]
    Taken {
        /// The name.
        name: String,
        /// What that user is.
        role: Role,
    },
    /// Nobody is called so.
    #[error("there is no user {name}: the users are {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A certificate can't be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A key can't be made.
    #[error("an nkey can't be made: {0}")]
    Key(String),
}

/// What a new folder is made with.
#[derive(Clone, Debug)]
pub struct New<'a> {
    /// Names and addresses by which the server is reached; the first one is what users are told.
    pub hosts: &'a [String],
    /// Where the server listens.
    pub listen: &'a str,
    /// Where its monitoring listens.
    pub monitoring: &'a str,
    /// The folder as the server and whoever connects see it, if elsewhere: in containers.
    pub seen_at: Option<&'a Path>,
    /// Where the server keeps its streams, as it sees it; else a folder below that one.
    pub streams: Option<&'a Path>,
    /// Whether there is a server on each of the hosts, and together they are a cluster.
    pub cluster: bool,
}

/// What users are told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    /// The server's address; of a cluster those of all servers, with commas between them.
    url: String,
    /// The folder as they see it; none: where it is.
    seen_at: Option<PathBuf>,
    /// Names and addresses that the server's certificate is valid for.
    hosts: Vec<String>,
}

/// A certificate that was renewed, with its key beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The file with the certificate.
    pub file: PathBuf,
    /// The end of its validity.
    pub expires_at: Timestamp,
}

/// A folder of users, which nobody else changes meanwhile.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    told: Told,
    users: Vec<User>,
    #[expect(dead_code, reason = "held for the lock that its drop gives back")]
    lock: File,
}

impl Store {
    /// Makes a folder: an authority, the server's certificate and configuration, and no user yet.
    ///
    /// # Errors
    /// There is one already, a host is none, the hosts are too few or too many for a cluster, or something can't be written.
    pub fn create(folder: &Path, new: &New<'_>, now: Timestamp) -> Result<Self, StoreError> {
        let unwritable = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Unwritable { path, source }
        };
        if new.cluster && !SERVERS.contains(&new.hosts.len()) {
            return Err(StoreError::Servers(new.hosts.len()));
        }
        let mut folders = fs::DirBuilder::new();
        folders.recursive(true).mode(0o700);
        folders.create(folder.join(OF_USERS)).map_err(unwritable(folder))?;
        let folder = folder.canonicalize().map_err(unwritable(folder))?;
        let lock = locked(&folder)?;
        for name in [LIST, CONFIGURATION, USERS, AUTHORITY, AUTHORITY_KEY, SERVER.0, SERVER.1] {
            let path = folder.join(name);
            if path.exists() {
                return Err(StoreError::Exists { path });
            }
        }
        let hosts = with_local(new.hosts);
        let authority = certificates::authority(now)?;
        let of_server = certificates::signed(Holder::Server(&hosts), &authority.key, now)?;
        write_pair(&folder, (AUTHORITY, AUTHORITY_KEY), &authority)?;
        write_pair(&folder, SERVER, &of_server)?;
        let seen_at = new.seen_at.unwrap_or(&folder);
        let settings = Settings {
            listen: new.listen.to_owned(),
            monitoring: new.monitoring.to_owned(),
            folder: seen_at.to_owned(),
            streams: new.streams.map_or_else(|| seen_at.join("streams"), Path::to_owned),
        };
        write_new(&folder.join(CONFIGURATION), 0o644, &server::configuration(&settings))?;
        let addresses: Vec<String> = hosts.iter().map(|host| address(host)).collect();
        let servers = &addresses[..if new.cluster { new.hosts.len() } else { 1 }];
        if new.cluster {
            for number in 1..=servers.len() {
                let text = server::member(&settings, servers, number);
                write_new(&folder.join(server::member_file(number)), 0o644, &text)?;
            }
        }
        let port = new.listen.rsplit_once(':').map_or("4222", |(_, port)| port);
        let url = servers.iter().map(|host| format!("tls://{host}:{port}")).collect::<Vec<_>>().join(",");
        let told = Told { url, seen_at: new.seen_at.map(Path::to_owned), hosts };
        let store = Self { folder, told, users: Vec::new(), lock };
        store.write()?;
        Ok(store)
    }

    /// Opens a folder, to look at it or to change it.
    ///
    /// # Errors
    /// It is none, is spoiled, or somebody changes it at this moment.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let list = folder.join(LIST);
        if !list.is_file() {
            return Err(StoreError::Absent { path: folder.to_owned() });
        }
        let unreadable = |source| StoreError::Unreadable { path: folder.to_owned(), source };
        let folder = folder.canonicalize().map_err(unreadable)?;
        let lock = locked(&folder)?;
        let text = read(&list)?;
        let (told, users) =
            parse(&text).map_err(|why| StoreError::Malformed { path: folder.join(LIST), why })?;
        Ok(Self { folder, told, users, lock })
    }

    /// The users, in the order in which they were added.
    #[must_use]
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// The folder, by its whole path.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's address, as users are told.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.told.url
    }

    /// Where a user's files are: with `nk` the seed, `crt` and `key` the certificate, `env` the variables that name them all.
    #[must_use]
    pub fn file_of(&self, name: &str, ending: &str) -> PathBuf {
        self.folder.join(OF_USERS).join(format!("{name}.{ending}"))
    }

    /// Adds a user, whose key is made of these random bytes. The server learns of it when it reads its configuration again.
    ///
    /// # Errors
    /// There is one of that name, or a file of it; something can't be written.
    pub fn add(
        &mut self,
        role: Role,
        name: Option<ClientName>,
        random: [u8; 32],
        now: Timestamp,
    ) -> Result<&User, StoreError> {
        let name = name.map_or_else(|| role.usual_name(), |name| name.to_string());
        if let Some(known) = self.users.iter().find(|user| user.name == name) {
            return Err(StoreError::Taken { name, role: known.role.clone() });
        }
        let (nkey, seed) = nkey(random)?;
        let certificate = self.signed(Holder::User(&name), now)?;
        write_new(&self.file_of(&name, "nk"), 0o600, &format!("{IDENTITY}{role}\n{seed}\n"))?;
        write_new(&self.file_of(&name, "crt"), 0o644, &certificate.certificate)?;
        write_new(&self.file_of(&name, "key"), 0o600, &certificate.key)?;
        write_new(&self.file_of(&name, "env"), 0o644, &self.environment(&name, &role))?;
        self.users.push(User { name, nkey, role });
        self.write()?;
        Ok(&self.users[self.users.len() - 1])
    }

    /// The variables by which a program knows how to connect as a user.
    fn environment(&self, name: &str, role: &Role) -> String {
        let at = self.told.seen_at.as_ref().unwrap_or(&self.folder);
        let file_of = |name: &str, ending: &str| {
            at.join(OF_USERS).join(format!("{name}.{ending}")).display().to_string()
        };
        let file = |ending| file_of(name, ending);
        let mut text = format!(
            "MUSTER_NATS_URL={}\nMUSTER_NATS_CREDS={}\nMUSTER_NATS_CA={}\nMUSTER_NATS_CERT={}\nMUSTER_NATS_KEY={}\n",
            self.told.url,
            file("nk"),
            at.join(AUTHORITY).display(),
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

    /// Gives the server a new certificate and key, also for these hosts.
    ///
    /// # Errors
    /// A host is not a valid name, or a file can't be read or written.
    pub fn renew_server(&mut self, hosts: &[String], now: Timestamp) -> Result<Renewed, StoreError> {
        let known = &self.told.hosts;
        let added: Vec<String> = hosts.iter().filter(|host| !known.contains(host)).cloned().collect();
        let all = [known.as_slice(), &added].concat();
        let made = self.signed(Holder::Server(&all), now)?;
        self.told.hosts = all;
        self.write()?;
        replace_pair(&self.folder.join(SERVER.0), &self.folder.join(SERVER.1), &made)
    }

    /// Gives a user a new certificate and key for TLS. Its nkey stays.
    ///
    /// # Errors
    /// There is no such user, or a file can't be read or written.
    pub fn renew(&self, name: &str, now: Timestamp) -> Result<Renewed, StoreError> {
        let name = &self.users[self.position(name)?].name;
        let made = self.signed(Holder::User(name), now)?;
        replace_pair(&self.file_of(name, "crt"), &self.file_of(name, "key"), &made)
    }

    /// Gives a user a new nkey, made of these random bytes, with a new certificate and key for TLS. The server stops accepting the
    /// old nkey when it reads its configuration again.
    ///
    /// # Errors
    /// There is no such user, or a file can't be read or written.
    pub fn rotate(&mut self, name: &str, random: [u8; 32], now: Timestamp) -> Result<&User, StoreError> {
        let at = self.position(name)?;
        let (nkey, seed) = nkey(random)?;
        self.renew(name, now)?;
        replace(&self.file_of(name, "nk"), 0o600, &format!("{IDENTITY}{}\n{seed}\n", self.users[at].role))?;
        self.users[at].nkey = nkey;
        self.write()?;
        Ok(&self.users[at])
    }

    /// Makes a new authority, which signs from now on. `ca.crt` has the certificates of both, so that certificates of the old one
    /// stay valid until [`Self::forget_authority`].
    ///
    /// # Errors
    /// A file can't be read or written.
    pub fn renew_authority(&self, now: Timestamp) -> Result<(), StoreError> {
        let made = certificates::authority(now)?;
        let file = self.folder.join(AUTHORITY);
        replace(&file, 0o644, &format!("{}{}", made.certificate, read(&file)?))?;
        replace(&self.folder.join(AUTHORITY_KEY), 0o600, &made.key)
    }

    /// Removes all but the newest authority from `ca.crt`.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub fn forget_authority(&self) -> Result<(), StoreError> {
        let file = self.folder.join(AUTHORITY);
        let text = read(&file)?;
        let newest = text.split_inclusive("-----END CERTIFICATE-----").next().unwrap_or_default();
        replace(&file, 0o644, &format!("{newest}\n"))
    }

    fn signed(&self, holder: Holder<'_>, now: Timestamp) -> Result<Made, StoreError> {
        let authority = read(&self.folder.join(AUTHORITY_KEY))?;
        Ok(certificates::signed(holder, &authority, now)?)
    }

    fn position(&self, name: &str) -> Result<usize, StoreError> {
        self.users.iter().position(|user| user.name == name).ok_or_else(|| {
            let known = self.users.iter().map(|user| user.name.clone()).collect();
            StoreError::Unknown { name: name.to_owned(), known }
        })
    }

    /// Takes a user out, and removes its files.
    ///
    /// # Errors
    /// Nobody is called so, or something can't be written.
    pub fn revoke(&mut self, name: &str) -> Result<User, StoreError> {
        let user = self.users.remove(self.position(name)?);
        self.write()?;
        for ending in ["nk", "crt", "key", "env"] {
            let path = self.file_of(name, ending);
            match fs::remove_file(&path) {
                Ok(()) => {}
                // It was moved to where it is used.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(StoreError::Unwritable { path, source }),
            }
        }
        Ok(user)
    }

    /// Whether the server's configuration has other users than the list: a command was killed in between.
    ///
    /// # Errors
    /// It can't be read.
    pub fn is_behind(&self) -> Result<bool, StoreError> {
        Ok(read(&self.folder.join(USERS))? != server::users(&self.users))
    }

    /// Writes the list, and the server's configuration that follows from it.
    ///
    /// # Errors
    /// Something can't be written.
    pub fn write(&self) -> Result<(), StoreError> {
        let mut list = format!("{HEADING}server {}\n", self.told.url);
        if let Some(seen_at) = &self.told.seen_at {
            list.push_str(&format!("seen-at {}\n", seen_at.display()));
        }
        for host in &self.told.hosts {
            list.push_str(&format!("host {host}\n"));
        }
        for User { name, nkey, role } in &self.users {
            // Writing to a text doesn't fail.
            let written = writeln!(list, "user {name} {nkey} {role}");
            debug_assert!(written.is_ok());
        }
        replace(&self.folder.join(LIST), 0o644, &list)?;
        replace(&self.folder.join(USERS), 0o644, &server::users(&self.users))
    }
}

/// Who somebody is by the file with the seed, if that says so.
#[must_use]
pub fn identity(seed_file: &str) -> Option<Role> {
    seed_file.lines().find_map(|line| line.strip_prefix(IDENTITY))?.parse().ok()
}

/// The names by which the server is reached, with those of this host behind them.
fn with_local(hosts: &[String]) -> Vec<String> {
    let mut all = hosts.to_vec();
    for local in ["127.0.0.1", SERVERS_OWN, "::1"] {
        if !all.iter().any(|host| host == local) {
            all.push(local.to_owned());
        }
    }
    all
}

/// A host as an address has it: IPv6 in brackets.
fn address(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn parse(text: &str) -> Result<(Told, Vec<User>), String> {
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
                KeyPair::from_public_key(nkey).map_err(|_| wrong("its nkey is none"))?;
                let role = role.parse().map_err(|error: crate::roles::NoRole| wrong(&error.to_string()))?;
                users.push(User { name, nkey: nkey.to_owned(), role });
            }
            _ => {
                return Err(wrong(
                    "it is neither server URL, seen-at DIR, host HOST nor user NAME NKEY ROLE",
                ));
            }
        }
    }
    Ok((Told { url: url.ok_or("it names no server")?, seen_at, hosts }, users))
}

/// Makes an nkey of random bytes: its public part, and its seed.
fn nkey(random: [u8; 32]) -> Result<(String, String), StoreError> {
    let failed = |error: nkeys::error::Error| StoreError::Key(error.to_string());
    let key = KeyPair::new_from_raw(KeyPairType::User, random).map_err(failed)?;
    Ok((key.public_key(), key.seed().map_err(failed)?))
}

fn locked(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
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

fn write_pair(folder: &Path, (certificate, key): (&str, &str), made: &Made) -> Result<(), StoreError> {
    write_new(&folder.join(certificate), 0o644, &made.certificate)?;
    write_new(&folder.join(key), 0o600, &made.key)
}

/// Replaces a certificate and its key. A program that reads both in between fails to connect, and tries again.
fn replace_pair(certificate: &Path, key: &Path, made: &Made) -> Result<Renewed, StoreError> {
    replace(key, 0o600, &made.key)?;
    replace(certificate, 0o644, &made.certificate)?;
    let expires_at = certificates::expiry(made.certificate.as_bytes()).map_err(CertificateError::from)?;
    Ok(Renewed { file: certificate.to_owned(), expires_at })
}

/// Writes a file that isn't there yet, to the disk.
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

/// Replaces a file as a whole: a reader sees either the old or the new text. The file keeps its owner.
fn replace(path: &Path, mode: u32, text: &str) -> Result<(), StoreError> {
    let draft = path.with_extension("new");
    let write = || {
        // A command that was killed may have left it, with another mode.
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
