//! Connection to a NATS server. The journal and the bus use separate connections with separate users.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Auth, AuthError, ConnectErrorKind, ConnectOptions, Event, ServerError};
use nkeys::KeyPair;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::limits::{
    API_TIMEOUT, CLIENT_QUEUE, RECONNECT_DELAY, REFUSED_RETRY_DELAY, REMEMBERED_VIOLATIONS,
    SUBSCRIPTION_QUEUE,
};
use crate::{BusError, LogLimit, check_inbox, truncated};

/// Addresses, login and encryption of a connection to a NATS server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// URLs of the servers, such as `nats://127.0.0.1:4222` or `tls://nats.example:4222`. At least one.
    pub urls: Vec<String>,
    /// Name of the connection in the server's lists.
    pub name: String,
    /// Prefix of the reply subjects of this connection, such as `muster.inbox.bbs`.
    pub inbox: String,
    pub login: Login,
    pub tls: Tls,
    /// Timeout of the first connect. A connection that is lost later is reestablished without a time limit.
    pub connect_timeout: Duration,
    /// Number of operations that the server refused because of a missing permission. Several connections may
    /// share the counter.
    pub violation_count: Arc<AtomicU64>,
    /// `true` if this connection probes its permissions. Violations of permissions are then expected and
    /// logged at level debug.
    pub probes_permissions: bool,
}

/// Identity of a connection. Secrets are in files so that they do not appear in a process list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// Identity in the URL, `nats://USER:PASSWORD@HOST` or `nats://TOKEN@HOST`, or no identity.
    #[default]
    Anonymous,
    /// A credentials file: a JWT and its key, or only the seed of an nkey.
    Credentials(PathBuf),
    /// A file with the seed of an nkey.
    Nkey(PathBuf),
    /// A user name and a file with the password.
    Password { user: String, file: PathBuf },
}

/// Encryption of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// `true` rejects servers that do not encrypt.
    pub required: bool,
    /// `true` starts the encryption before the first message of the server (`handshake_first`).
    pub handshake_first: bool,
    /// File with trusted root certificates. `None` selects the root certificates of the system.
    pub roots: Option<PathBuf>,
    /// Files with the client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Error while connecting to a server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server answers at these URLs.
    #[error("server unreachable at {urls}: {why}")]
    Unreachable {
        /// URLs without passwords.
        urls: String,
        why: String,
    },
    /// A server answers but rejects the connection.
    #[error("the server at {urls} refused the connection: {why}")]
    Refused {
        /// URLs without passwords.
        urls: String,
        why: String,
    },
    #[error("cannot read {path}")]
    File {
        path: String,
        #[source]
        source: io::Error,
    },
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
}

/// Connection to a NATS server. Clones share the same connection. The connection is reestablished
/// automatically.
#[derive(Clone, Debug)]
pub struct Connection {
    client: async_nats::Client,
    violations: Violations,
    /// Number of times that the connection was established.
    connect_count: watch::Receiver<u64>,
}

impl Settings {
    /// Creates settings for servers without login and encryption, with a timeout of 5 seconds.
    #[must_use]
    pub fn new(urls: Vec<String>, name: &str, inbox: &str) -> Self {
        Self {
            urls,
            name: name.to_owned(),
            inbox: inbox.to_owned(),
            login: Login::default(),
            tls: Tls::default(),
            connect_timeout: Duration::from_secs(5),
            violation_count: Arc::default(),
            probes_permissions: false,
        }
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// Returns an error if no server answers within the timeout, the server rejects the connection, or a file
    /// cannot be read.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        match self.connect_once().await {
            // A server that reloads its users rejects connections that have not logged in yet.
            Err(ConnectError::Refused { .. }) => {
                sleep(REFUSED_RETRY_DELAY).await;
                self.connect_once().await
            }
            done => done,
        }
    }

    async fn connect_once(&self) -> Result<Connection, ConnectError> {
        let addresses = self.addresses()?;
        let violations = Violations::new(Arc::clone(&self.violation_count));
        let (count, connect_count) = watch::channel(0);
        let options = self.options(violations.clone(), count).await?;
        let urls = self.redacted_urls();
        let client = match timeout(self.connect_timeout, options.connect(addresses)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(connect_error(&error, urls)),
            Err(_) => {
                let why = format!("no answer within {:?}", self.connect_timeout);
                return Err(ConnectError::Unreachable { urls, why });
            }
        };
        Ok(Connection { client, violations, connect_count })
    }

    fn addresses(&self) -> Result<Vec<async_nats::ServerAddr>, ConnectError> {
        check_inbox(&self.inbox).map_err(|error| ConnectError::Settings(error.to_string()))?;
        if self.urls.is_empty() {
            return Err(ConnectError::Settings("no NATS server URL set: use nats://HOST:PORT".to_owned()));
        }
        let parse = |url: &String| {
            url.parse().map_err(|error| {
                let why =
                    format!("invalid NATS server URL {:?}: {error}; use nats://HOST:PORT", redact_url(url));
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
        let (name, tries_rights) = (self.name.clone(), self.probes_permissions);
        let options = self
            .login_options()
            .await?
            .name(&self.name)
            .custom_inbox_prefix(&self.inbox)
            .connection_timeout(self.connect_timeout)
            .request_timeout(Some(API_TIMEOUT))
            .client_capacity(CLIENT_QUEUE)
            .subscription_capacity(SUBSCRIPTION_QUEUE)
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                handle_event(&name, &event, &violations, tries_rights);
                if matches!(event, Event::Connected) {
                    made.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        Ok(self.with_tls(options))
    }

    async fn login_options(&self) -> Result<ConnectOptions, ConnectError> {
        let options = ConnectOptions::new();
        Ok(match &self.login {
            Login::Anonymous => match self.urls.iter().find_map(|url| url_identity(url)) {
                Some((user, Some(password))) => options.user_and_password(user, password),
                Some((token, None)) => options.token(token),
                None => options,
            },
            Login::Credentials(path) => {
                let text = read_secret(path).await?;
                if is_seed(&text) {
                    nkey_options(path.clone())
                } else {
                    // The library does not parse a credentials file without a line break after its last line.
                    options.credentials(&format!("{text}\n")).map_err(|source| file_error(path, source))?
                }
            }
            Login::Nkey(path) => {
                read_secret(path).await?;
                nkey_options(path.clone())
            }
            Login::Password { user, file } => {
                options.user_and_password(user.clone(), read_secret(file).await?)
            }
        })
    }

    fn with_tls(&self, options: ConnectOptions) -> ConnectOptions {
        let mut options = options;
        if self.tls.required {
            options = options.require_tls(true);
        }
        if self.tls.handshake_first {
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

    /// Returns the URLs without passwords.
    fn redacted_urls(&self) -> String {
        self.urls.iter().map(|url| redact_url(url)).collect::<Vec<_>>().join(", ")
    }
}

impl Connection {
    /// Returns the version that the connected server reports.
    #[must_use]
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// Returns the maximum message size of the server, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    /// Returns `true` if the connection is established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Returns a watch on the number of times that the connection was established. The number changes after
    /// every reconnect.
    #[must_use]
    pub fn connect_count(&self) -> watch::Receiver<u64> {
        self.connect_count.clone()
    }

    /// Sends pending messages and closes the connection for all clones.
    ///
    /// # Errors
    /// Returns an error if the connection was closed before.
    pub async fn close(self) -> Result<(), BusError> {
        self.client.drain().await.map_err(|error| BusError::Disconnected(error.to_string()))
    }

    /// Returns the client of the NATS library, for requests that this type does not offer.
    #[must_use]
    pub const fn client(&self) -> &async_nats::Client {
        &self.client
    }

    /// Returns the permission violations since the connection was created.
    #[must_use]
    pub fn denials(&self) -> Denials {
        self.violations.refused.lock().denials.clone()
    }

    /// Returns the error messages of permission violations, without duplicates. If there are very many, only
    /// the last ones are kept.
    #[must_use]
    pub fn violation_messages(&self) -> BTreeSet<String> {
        self.violations.refused.lock().messages.clone()
    }

    /// Returns `true` if the server refused a publish on `subject` after `since`. The server reports the
    /// refusal separately from the message. Such a refusal explains a missing response.
    #[must_use]
    pub fn publish_was_denied(&self, subject: &str, since: Instant) -> bool {
        self.violations.denied_since(subject, since)
    }

    /// Waits until the server refuses a publish on `subject`. Use this function while waiting for a response.
    pub async fn publish_denied(&self, subject: &str, since: Instant) {
        let mut counted = self.violations.changes.subscribe();
        while !self.publish_was_denied(subject, since) {
            if counted.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Permission violations of a connection. If every program has the permissions of its role, no violation
/// occurs. A violation indicates a wrong configuration or an attack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Number of refused messages.
    pub publish: u64,
    /// Number of refused subscriptions.
    pub subscribe: u64,
    /// Error message of the last violation. `None` if there was none.
    pub last: Option<String>,
}

/// Record of the permission violations of a connection.
#[derive(Clone, Debug)]
struct Violations {
    refused: Arc<Mutex<DeniedState>>,
    /// Number of violations.
    changes: watch::Sender<u64>,
    /// Number of violations, including those of other connections.
    shared_count: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct DeniedState {
    denials: Denials,
    /// Distinct error messages.
    messages: BTreeSet<String>,
    /// Time of the last violation for each subject of a publish.
    publish: BTreeMap<String, Instant>,
}

impl Violations {
    fn new(shared_count: Arc<AtomicU64>) -> Self {
        Self { refused: Arc::default(), changes: watch::Sender::new(0), shared_count }
    }

    fn record(&self, violation: Violation<'_>, text: &str) {
        self.shared_count.fetch_add(1, Ordering::Relaxed);
        self.record_details(violation, text);
        self.changes.send_modify(|count| *count += 1);
    }

    fn record_details(&self, violation: Violation<'_>, text: &str) {
        let mut noted = self.refused.lock();
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
        if noted.messages.len() >= REMEMBERED_VIOLATIONS {
            noted.messages.clear();
        }
        noted.messages.insert(text.to_owned());
        noted.denials.last = Some(text.to_owned());
    }

    fn denied_since(&self, subject: &str, since: Instant) -> bool {
        self.refused.lock().publish.get(subject).is_some_and(|at| *at >= since)
    }
}

static SLOW_CONSUMER_LOG: LogLimit = LogLimit::new();
static SERVER_ERROR_LOG: LogLimit = LogLimit::new();

/// Logs an event of a connection, and records permission violations.
fn handle_event(name: &str, event: &Event, violations: &Violations, tries_rights: bool) {
    match event {
        Event::Connected => tracing::info!(name, "connected to NATS"),
        Event::Disconnected => tracing::warn!(name, "disconnected from NATS"),
        Event::LameDuckMode => tracing::info!(name, "the NATS server is shutting down"),
        Event::Draining | Event::Closed => tracing::debug!(name, %event, "NATS connection is closing"),
        Event::SlowConsumer(subscription) => {
            SLOW_CONSUMER_LOG.log(|| {
                tracing::warn!(name, subscription, "dropped messages: the subscriber is too slow");
            });
        }
        Event::ServerError(error) => {
            if let Some((violation, text)) = Violation::parse(error) {
                violations.record(violation, text);
                if tries_rights {
                    tracing::debug!(name, %error, "the NATS server denied a probed permission");
                    return;
                }
            }
            SERVER_ERROR_LOG.log(|| {
                let error = truncated(&error.to_string());
                tracing::error!(name, %error, "error reported by the NATS server");
            });
        }
        Event::ClientError(error) => tracing::warn!(name, %error, "NATS connection error"),
    }
}

/// Permission that a connection lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation<'a> {
    /// Publish on this subject.
    Publish(&'a str),
    /// Subscribe to a pattern.
    Subscribe,
    /// Another permission, or the right to connect.
    Other,
}

impl<'a> Violation<'a> {
    /// Parses an error of the server. Returns the missing permission and the error message, or `None` for
    /// other errors.
    fn parse(complaint: &'a ServerError) -> Option<(Self, &'a str)> {
        match complaint {
            ServerError::AuthorizationViolation => Some((Self::Other, "")),
            ServerError::SlowConsumer(_) => None,
            // The case of the first letter depends on the version of the library.
            ServerError::Other(text) => {
                let (_, what) = text.split_once("ermissions Violation")?;
                Some((Self::from_text(what), text))
            }
        }
    }

    fn from_text(what: &'a str) -> Self {
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
    let (shortest, longest) = RECONNECT_DELAY;
    match u32::try_from(attempt) {
        Ok(0 | 1) => Duration::ZERO,
        Ok(attempt @ 2..16) => (shortest * 2u32.pow(attempt - 2)).min(longest),
        Ok(_) | Err(_) => longest,
    }
}

/// Returns options that log in with the nkey in a file. The file is read for each connect, so a rotated key
/// needs no restart.
fn nkey_options(path: PathBuf) -> ConnectOptions {
    ConnectOptions::with_auth_callback(move |nonce| {
        let path = path.clone();
        async move {
            let seed = read_secret(&path).await.map_err(|error| AuthError::new(error.to_string()))?;
            let key = KeyPair::from_seed(&seed).map_err(|error| AuthError::new(error.to_string()))?;
            let signature = key.sign(&nonce).map_err(|error| AuthError::new(error.to_string()))?;
            let mut auth = Auth::new();
            auth.nkey = Some(key.public_key());
            auth.signature = Some(signature);
            Ok(auth)
        }
    })
}

/// Returns the content of a file with a secret, without comments before it.
async fn read_secret(path: &Path) -> Result<String, ConnectError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|source| file_error(path, source))?;
    let mut rest = text.trim();
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest.trim_start());
    }
    Ok(rest.to_owned())
}

/// Returns `true` if a text is the seed of a user's nkey and nothing else.
fn is_seed(text: &str) -> bool {
    text.starts_with("SU") && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Returns the identity in a URL: a user with a password, or a token.
fn url_identity(url: &str) -> Option<(String, Option<String>)> {
    let address: async_nats::ServerAddr = url.parse().ok()?;
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    Some((plain(address.username()?), address.password().map(plain)))
}

fn file_error(path: &Path, source: io::Error) -> ConnectError {
    ConnectError::File { path: path.display().to_string(), source }
}

/// Returns a URL without its password.
fn redact_url(url: &str) -> String {
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
    fn url_is_shown_without_password() {
        assert_eq!(redact_url("nats://bbs:hunter2@host:4222"), "nats://host:4222");
        assert_eq!(redact_url("bbs:hunter2@host"), "host");
        assert_eq!(redact_url("tls://host:4222"), "tls://host:4222");
    }

    #[test]
    fn identity_is_parsed_from_url() {
        let of = |url: &str| url_identity(url).map(|(user, password)| (user, password.unwrap_or_default()));
        assert_eq!(of("nats://bbs:a%40b%2F@host:4222"), Some(("bbs".into(), "a@b/".into())));
        assert_eq!(of("nats://s3cret@host"), Some(("s3cret".into(), String::new())));
        assert_eq!(of("nats://host:4222"), None);
    }

    #[test]
    fn permission_violations_are_parsed_and_counted() {
        let of_all = Arc::new(AtomicU64::new(0));
        let violations = Violations::new(Arc::clone(&of_all));
        let began = Instant::now();
        let said = |text: &str| {
            handle_event("test", &Event::ServerError(ServerError::Other(text.into())), &violations, false);
        };
        said("Permissions Violation for Publish to \"muster.event.lrp.0\"");
        said("permissions Violation for Publish to \"muster.event.lrp.1\"");
        said("Permissions Violation for Subscription to \"a.>\"");
        said("Unknown Protocol Operation");
        handle_event("test", &Event::ServerError(ServerError::AuthorizationViolation), &violations, false);
        let last = Some("Permissions Violation for Subscription to \"a.>\"".to_owned());
        assert_eq!(violations.refused.lock().denials, Denials { publish: 2, subscribe: 1, last });
        assert_eq!(violations.refused.lock().messages.len(), 3);
        assert_eq!(of_all.load(Ordering::Relaxed), 4, "other violations are counted, too");
        assert!(
            violations.denied_since("muster.event.lrp.1", began) && !violations.denied_since("a.>", began)
        );
    }

    #[test]
    fn reconnect_delay_grows_to_its_maximum() {
        let waits: Vec<u128> = (0..9).map(|attempt| reconnect_delay(attempt).as_millis()).collect();
        assert_eq!(waits, [0, 0, 50, 100, 200, 400, 800, 1600, 2000]);
        assert_eq!(reconnect_delay(usize::MAX), RECONNECT_DELAY.1);
    }

    #[tokio::test]
    async fn unreachable_server_error_names_the_url() {
        let settings = Settings::new(vec!["nats://u:p@127.0.0.1:9".into()], "test", "muster.inbox.test");
        let error = settings.connect().await.unwrap_err().to_string();
        assert!(error.starts_with("server unreachable at nats://127.0.0.1:9: "), "{error}");
    }
}
