//! A connection to a NATS server: for the journal one, for the bus another, each with its own user.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Auth, AuthError, ConnectErrorKind, ConnectOptions, Event, ServerError};
use nkeys::KeyPair;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::limits::{API, CLIENT_QUEUE, RECONNECT, REFUSED_AGAIN, REMEMBERED_VIOLATIONS, SUBSCRIPTION_QUEUE};
use crate::{BusError, LogLimit, brief, check_inbox};

/// How to reach a NATS server, and as whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses of the servers, as `nats://127.0.0.1:4222` or `tls://nats.example:4222`. At least one.
    pub urls: Vec<String>,
    /// What the server calls the connection in its lists.
    pub name: String,
    /// What stands before the subjects of answers to this connection, as `muster.inbox.bbs`.
    pub inbox: String,
    /// Who we say that we are.
    pub login: Login,
    /// How the connection is encrypted.
    pub tls: Tls,
    /// How long connecting may take at the start. Afterwards a lost connection is made again for ever.
    pub patience: Duration,
    /// Counts how often the server refuses a subject for want of permission. Several connections may count together.
    pub refused: Arc<AtomicU64>,
    /// `true` if this connection tries what it may do: violations of permissions are then expected, and logged at level debug.
    pub tries_rights: bool,
}

/// Who we say that we are. Secrets are files, so that they stand in no process list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// As the address says, `nats://USER:PASSWORD@HOST` or `nats://TOKEN@HOST`; else whoever connects.
    #[default]
    Anonymous,
    /// A credentials file: a JWT and its key, or the seed of an nkey alone.
    Credentials(PathBuf),
    /// A file with an nkey's seed.
    Nkey(PathBuf),
    /// A user and a file with the password.
    Password {
        /// The user.
        user: String,
        /// The file with the password.
        file: PathBuf,
    },
}

/// How the connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Refuse a server that doesn't encrypt.
    pub required: bool,
    /// Encrypt before the server says anything (`handshake_first`).
    pub first: bool,
    /// A file with the roots to trust, instead of those of the system.
    pub roots: Option<PathBuf>,
    /// Files with our certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers there.
    #[error("server unreachable at {urls}: {why}")]
    Unreachable {
        /// The addresses that were tried, without passwords.
        urls: String,
        /// What went wrong.
        why: String,
    },
    /// Somebody answers and doesn't let us in.
    #[error("the server at {urls} refuses us: {why}")]
    Refused {
        /// The addresses that were tried, without passwords.
        urls: String,
        /// What went wrong.
        why: String,
    },
    /// A file can't be read.
    #[error("{path} can't be read")]
    File {
        /// The file.
        path: String,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
    /// The settings can't be.
    #[error("{0}")]
    Settings(String),
}

/// A connection to a NATS server. Clones are the same connection. It mends itself.
#[derive(Clone, Debug)]
pub struct Connection {
    client: async_nats::Client,
    violations: Violations,
    /// How often the connection was made.
    made: watch::Receiver<u64>,
}

impl Settings {
    /// Settings for servers that let everybody in, unencrypted, with 5 seconds of patience.
    #[must_use]
    pub fn new(urls: Vec<String>, name: &str, inbox: &str) -> Self {
        Self {
            urls,
            name: name.to_owned(),
            inbox: inbox.to_owned(),
            login: Login::default(),
            tls: Tls::default(),
            patience: Duration::from_secs(5),
            refused: Arc::default(),
            tries_rights: false,
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// Nobody answers within the patience, the server doesn't let us in, a file can't be read.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        match self.connect_once().await {
            // A server that reads its users again in this moment refuses who hasn't said yet who he is.
            Err(ConnectError::Refused { .. }) => {
                sleep(REFUSED_AGAIN).await;
                self.connect_once().await
            }
            done => done,
        }
    }

    async fn connect_once(&self) -> Result<Connection, ConnectError> {
        let addresses = self.addresses()?;
        let violations = Violations::new(Arc::clone(&self.refused));
        let (count, made) = watch::channel(0);
        let options = self.options(violations.clone(), count).await?;
        let urls = self.shown();
        let client = match timeout(self.patience, options.connect(addresses)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(connect_error(&error, urls)),
            Err(_) => {
                let why = format!("no answer within {:?}", self.patience);
                return Err(ConnectError::Unreachable { urls, why });
            }
        };
        Ok(Connection { client, violations, made })
    }

    fn addresses(&self) -> Result<Vec<async_nats::ServerAddr>, ConnectError> {
        check_inbox(&self.inbox).map_err(|error| ConnectError::Settings(error.to_string()))?;
        if self.urls.is_empty() {
            return Err(ConnectError::Settings(
                "no address of a NATS server is given: use nats://HOST:PORT".to_owned(),
            ));
        }
        let parse = |url: &String| {
            url.parse().map_err(|error| {
                let why = format!(
                    "{:?} is not an address of a NATS server: {error}; use nats://HOST:PORT",
                    shown(url)
                );
                ConnectError::Settings(why)
            })
        };
        self.urls.iter().map(parse).collect()
    }

    async fn options(
        &self,
        violations: Violations,
        made: watch::Sender<u64>,
    ) -> Result<ConnectOptions, ConnectError> {
        let (name, tries_rights) = (self.name.clone(), self.tries_rights);
        let options = self
            .logged_in()
            .await?
            .name(&self.name)
            .custom_inbox_prefix(&self.inbox)
            .connection_timeout(self.patience)
            .request_timeout(Some(API))
            .client_capacity(CLIENT_QUEUE)
            .subscription_capacity(SUBSCRIPTION_QUEUE)
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                noted(&name, &event, &violations, tries_rights);
                if matches!(event, Event::Connected) {
                    made.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        Ok(self.encrypted(options))
    }

    async fn logged_in(&self) -> Result<ConnectOptions, ConnectError> {
        let options = ConnectOptions::new();
        Ok(match &self.login {
            Login::Anonymous => match self.urls.iter().find_map(|url| user_of(url)) {
                Some((user, Some(password))) => options.user_and_password(user, password),
                Some((token, None)) => options.token(token),
                None => options,
            },
            Login::Credentials(path) => {
                let text = secret(path).await?;
                if is_seed(&text) {
                    by_nkey(path.clone())
                } else {
                    // Without a line break behind its last line a credentials file isn't understood.
                    options.credentials(&format!("{text}\n")).map_err(|source| unreadable(path, source))?
                }
            }
            Login::Nkey(path) => {
                secret(path).await?;
                by_nkey(path.clone())
            }
            Login::Password { user, file } => options.user_and_password(user.clone(), secret(file).await?),
        })
    }

    fn encrypted(&self, options: ConnectOptions) -> ConnectOptions {
        let mut options = options;
        if self.tls.required {
            options = options.require_tls(true);
        }
        if self.tls.first {
            options = options.tls_first();
        }
        if let Some(roots) = &self.tls.roots {
            options = options.add_root_certificates(roots.clone());
        }
        if let Some((certificate, key)) = &self.tls.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        options
    }

    /// The addresses, without passwords.
    fn shown(&self) -> String {
        self.urls.iter().map(|url| shown(url)).collect::<Vec<_>>().join(", ")
    }
}

impl Connection {
    /// The version of the server that we are connected to, as it says.
    #[must_use]
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// The largest message that the server takes, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    /// Whether there is a connection in this moment.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Counts how often the connection was made: changes when one that was lost is there again.
    #[must_use]
    pub fn made(&self) -> watch::Receiver<u64> {
        self.made.clone()
    }

    /// Sends what waits, and closes the connection for every clone of it.
    ///
    /// # Errors
    /// It was closed before.
    pub async fn close(self) -> Result<(), BusError> {
        self.client.drain().await.map_err(|error| BusError::Disconnected(error.to_string()))
    }

    /// The client of the NATS library, for what else is asked of a server.
    #[must_use]
    pub const fn client(&self) -> &async_nats::Client {
        &self.client
    }

    /// What the server refused this connection for want of permission, since it was made.
    #[must_use]
    pub fn denials(&self) -> Denials {
        self.violations.lock().denials.clone()
    }

    /// What the server said when it refused something for want of permission: each text once, and of very many the last.
    #[must_use]
    pub fn complaints(&self) -> BTreeSet<String> {
        self.violations.lock().said.clone()
    }

    /// Whether the server said after `since` that we may not publish on `subject`. It says so beside the message's own
    /// way, so an answer that never comes is explained here.
    #[must_use]
    pub fn may_not_publish(&self, subject: &str, since: Instant) -> bool {
        self.violations.after(subject, since)
    }

    /// Waits until the server says so: for whoever waits for an answer at the same time.
    pub async fn refuses_to_publish(&self, subject: &str, since: Instant) {
        let mut counted = self.violations.counted.subscribe();
        while !self.may_not_publish(subject, since) {
            if counted.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// What a server refused a connection for want of permission. Where each program has the permissions of its role there is
/// none: one is a fault of the configuration, or somebody who tries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Messages that were refused.
    pub publish: u64,
    /// Subscriptions that were refused.
    pub subscribe: u64,
    /// The last one, in the server's words.
    pub last: Option<String>,
}

/// What the server said that we may not do.
#[derive(Clone, Debug)]
struct Violations {
    refused: Arc<Mutex<Refused>>,
    /// How many there were.
    counted: watch::Sender<u64>,
    /// The same, with those of other connections.
    of_all: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Refused {
    denials: Denials,
    /// In which words.
    said: BTreeSet<String>,
    /// When it last said so of a subject that we publish on.
    publish: BTreeMap<String, Instant>,
}

impl Violations {
    fn new(of_all: Arc<AtomicU64>) -> Self {
        Self { refused: Arc::default(), counted: watch::Sender::new(0), of_all }
    }

    fn note(&self, violation: Violation<'_>, text: &str) {
        self.of_all.fetch_add(1, Ordering::Relaxed);
        self.count(violation, text);
        self.counted.send_modify(|count| *count += 1);
    }

    fn count(&self, violation: Violation<'_>, text: &str) {
        let mut noted = self.lock();
        match violation {
            Violation::Other => return,
            Violation::Publish(subject) => {
                noted.denials.publish += 1;
                if noted.publish.len() >= REMEMBERED_VIOLATIONS {
                    noted.publish.clear();
                }
                noted.publish.insert(subject.to_owned(), Instant::now());
            }
            Violation::Subscribe => noted.denials.subscribe += 1,
        }
        if noted.said.len() >= REMEMBERED_VIOLATIONS {
            noted.said.clear();
        }
        noted.said.insert(text.to_owned());
        noted.denials.last = Some(text.to_owned());
    }

    fn after(&self, subject: &str, since: Instant) -> bool {
        self.lock().publish.get(subject).is_some_and(|at| *at >= since)
    }

    fn lock(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static SLOW: LogLimit = LogLimit::new();
static SERVER: LogLimit = LogLimit::new();

/// Tells what happened to a connection.
fn noted(name: &str, event: &Event, violations: &Violations, tries_rights: bool) {
    match event {
        Event::Connected => tracing::info!(name, "connected to NATS"),
        Event::Disconnected => tracing::warn!(name, "disconnected from NATS"),
        Event::LameDuckMode => tracing::info!(name, "the NATS server is about to stop"),
        Event::Draining | Event::Closed => tracing::debug!(name, %event, "NATS connection ends"),
        Event::SlowConsumer(subscription) => {
            SLOW.log(|| {
                tracing::warn!(name, subscription, "messages dropped: a subscription isn't read fast enough");
            });
        }
        Event::ServerError(error) => {
            if let Some((violation, text)) = Violation::of(error) {
                violations.note(violation, text);
                if tries_rights {
                    tracing::debug!(name, %error, "the NATS server refuses a right that was tried");
                    return;
                }
            }
            SERVER.log(|| {
                let error = brief(&error.to_string());
                tracing::error!(name, %error, "the NATS server reports an error");
            });
        }
        Event::ClientError(error) => tracing::warn!(name, %error, "NATS connection"),
    }
}

/// What a server's complaint says that we may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation<'a> {
    /// To publish on this subject.
    Publish(&'a str),
    /// To subscribe.
    Subscribe,
    /// Something else, or to be there at all.
    Other,
}

impl<'a> Violation<'a> {
    /// What a server complains of, and in which words; none: it is nothing that we may not do.
    fn of(complaint: &'a ServerError) -> Option<(Self, &'a str)> {
        match complaint {
            ServerError::AuthorizationViolation => Some((Self::Other, "")),
            ServerError::SlowConsumer(_) => None,
            // Its first letter is large or small, by the library's version.
            ServerError::Other(text) => {
                let (_, what) = text.split_once("ermissions Violation")?;
                Some((Self::named(what), text))
            }
        }
    }

    fn named(what: &'a str) -> Self {
        let Some(what) = what.strip_prefix(" for ") else { return Self::Other };
        let subject = what.strip_prefix("Publish to \"").and_then(|rest| rest.split('"').next());
        match subject {
            Some(subject) => Self::Publish(subject),
            None if what.starts_with("Subscription to") => Self::Subscribe,
            None => Self::Other,
        }
    }
}

fn reconnect_delay(attempt: usize) -> Duration {
    let (shortest, longest) = RECONNECT;
    match u32::try_from(attempt) {
        Ok(0 | 1) => Duration::ZERO,
        Ok(attempt @ 2..16) => (shortest * 2u32.pow(attempt - 2)).min(longest),
        Ok(_) | Err(_) => longest,
    }
}

/// Options that log in with the nkey in a file. The file is read at each connect, so a rotated key needs no restart.
fn by_nkey(path: PathBuf) -> ConnectOptions {
    ConnectOptions::with_auth_callback(move |nonce| {
        let path = path.clone();
        async move {
            let seed = secret(&path).await.map_err(|error| AuthError::new(error.to_string()))?;
            let key = KeyPair::from_seed(&seed).map_err(|error| AuthError::new(error.to_string()))?;
            let signature = key.sign(&nonce).map_err(|error| AuthError::new(error.to_string()))?;
            let mut auth = Auth::new();
            auth.nkey = Some(key.public_key());
            auth.signature = Some(signature);
            Ok(auth)
        }
    })
}

/// What a file with a secret says, without comments before it.
async fn secret(path: &Path) -> Result<String, ConnectError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|source| unreadable(path, source))?;
    let mut rest = text.trim();
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest.trim_start());
    }
    Ok(rest.to_owned())
}

/// Whether a file holds the seed of a user's nkey and nothing else.
fn is_seed(text: &str) -> bool {
    text.starts_with("SU") && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Who an address says that we are: a user with a password, or a token.
fn user_of(url: &str) -> Option<(String, Option<String>)> {
    let address: async_nats::ServerAddr = url.parse().ok()?;
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    Some((plain(address.username()?), address.password().map(plain)))
}

fn unreadable(path: &Path, source: io::Error) -> ConnectError {
    ConnectError::File { path: path.display().to_string(), source }
}

/// An address without its password.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (Some(_) | None, None) => url.to_owned(),
    }
}

fn connect_error(error: &async_nats::ConnectError, urls: String) -> ConnectError {
    let why = error.to_string();
    match error.kind() {
        ConnectErrorKind::Authentication
        | ConnectErrorKind::AuthorizationViolation
        | ConnectErrorKind::Tls => ConnectError::Refused { urls, why },
        ConnectErrorKind::ServerParse => ConnectError::Settings(why),
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => ConnectError::Unreachable { urls, why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(shown("nats://bbs:hunter2@host:4222"), "nats://host:4222");
        assert_eq!(shown("bbs:hunter2@host"), "host");
        assert_eq!(shown("tls://host:4222"), "tls://host:4222");
    }

    #[test]
    fn an_address_says_who_we_are() {
        let of = |url: &str| user_of(url).map(|(user, password)| (user, password.unwrap_or_default()));
        assert_eq!(of("nats://bbs:a%40b%2F@host:4222"), Some(("bbs".into(), "a@b/".into())));
        assert_eq!(of("nats://s3cret@host"), Some(("s3cret".into(), String::new())));
        assert_eq!(of("nats://host:4222"), None);
    }

    #[test]
    fn a_complaint_says_what_was_refused_and_is_counted() {
        let of_all = Arc::new(AtomicU64::new(0));
        let violations = Violations::new(Arc::clone(&of_all));
        let began = Instant::now();
        let said = |text: &str| {
            noted("test", &Event::ServerError(ServerError::Other(text.into())), &violations, false);
        };
        said("Permissions Violation for Publish to \"muster.event.lrp.0\"");
        said("permissions Violation for Publish to \"muster.event.lrp.1\"");
        said("Permissions Violation for Subscription to \"a.>\"");
        said("Unknown Protocol Operation");
        noted("test", &Event::ServerError(ServerError::AuthorizationViolation), &violations, false);
        let last = Some("Permissions Violation for Subscription to \"a.>\"".to_owned());
        assert_eq!(violations.lock().denials, Denials { publish: 2, subscribe: 1, last });
        assert_eq!(violations.lock().said.len(), 3);
        assert_eq!(of_all.load(Ordering::Relaxed), 4, "who may not be there is counted, too");
        assert!(violations.after("muster.event.lrp.1", began) && !violations.after("a.>", began));
    }

    #[test]
    fn the_wait_grows_to_its_limit() {
        let waits: Vec<u128> = (0..9).map(|attempt| reconnect_delay(attempt).as_millis()).collect();
        assert_eq!(waits, [0, 0, 50, 100, 200, 400, 800, 1600, 2000]);
        assert_eq!(reconnect_delay(usize::MAX), RECONNECT.1);
    }

    #[tokio::test]
    async fn an_unreachable_server_is_named() {
        let settings = Settings::new(vec!["nats://u:p@127.0.0.1:9".into()], "test", "muster.inbox.test");
        let error = settings.connect().await.unwrap_err().to_string();
        assert!(error.starts_with("server unreachable at nats://127.0.0.1:9: "), "{error}");
    }
}
