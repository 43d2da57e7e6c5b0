//! nats-server with the users and permissions of `muster auth`, and programs that log in as these users.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nkeys::KeyPair;
use serde_json::json;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::cluster::{RUNTIME, Server};
use super::plain::{PlainClient, Transport, read_info};
use super::{Muster, Service, TestDir};

/// Maximum number of attempts to start a server. Another process may take a free port first, so each attempt
/// uses other ports.
const START_ATTEMPTS: usize = 5;

/// Server, with the folder of its users.
pub(crate) struct Users {
    pub(crate) server: Server,
    pub(crate) folder: PathBuf,
    address: String,
}

impl Users {
    /// Creates a folder by `muster auth init` and starts a server with its configuration.
    pub(crate) fn init(place: &TestDir) -> Self {
        let mut why = String::new();
        for number in 0..START_ATTEMPTS {
            let folder = place.path().join(format!("auth-{number}"));
            let [address, monitoring] = free_addresses();
            let (shown, nobody) = (folder.display().to_string(), Muster::with("USER", "tester"));
            nobody
                .run(&["auth", "init", &shown, "--listen", &address, "--monitoring", &monitoring])
                .expect_status(0)
                .expect_output(&["nats-server -c", "operator-ops.env"]);
            let (url, monitoring) = (format!("tls://{address}"), format!("http://{monitoring}"));
            match Server::start_configured(&folder.join("nats.conf"), &url, &monitoring) {
                Ok(server) => return Self { server, folder, address },
                Err(error) => why = error.to_string(),
            }
        }
        panic!("{why}");
    }

    /// Adds a user by `muster auth add`.
    pub(crate) fn add(&self, role: &str) {
        let shown = self.folder.display().to_string();
        let words = ["auth", "add", &shown].into_iter().chain(role.split(' '));
        let words: Vec<&str> = words.collect();
        self.anonymous().run(&words).expect_status(0);
    }

    /// Returns a command line without credentials.
    pub(crate) fn anonymous(&self) -> Muster {
        Muster::with("USER", "tester")
    }

    /// Returns the environment variables with a user's credentials.
    pub(crate) fn variables(&self, user: &str) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.user_file(user, "env")).unwrap();
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.lines().filter_map(pair).collect()
    }

    /// Returns the command line of a user.
    pub(crate) fn muster(&self, user: &str) -> Muster {
        Muster::with_all(self.variables(user))
    }

    /// Starts a service as a user.
    pub(crate) fn start(&self, place: &TestDir, user: &str, args: &[&str]) -> Service {
        let variables = self.variables(user);
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Service::start(user, &place.path().join(format!("{user}.log")), args, &variables)
    }

    fn user_file(&self, user: &str, ending: &str) -> PathBuf {
        self.folder.join("users").join(format!("{user}.{ending}"))
    }

    /// Connects a plain NATS client, logged in as a user.
    pub(crate) fn plain(&self, user: &str, inbox: &str) -> PlainClient {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let nonce = read_info(&mut stream)["nonce"].as_str().unwrap().to_owned();
        let seed = fs::read_to_string(self.user_file(user, "nk")).unwrap();
        let key = KeyPair::from_seed(seed.lines().last().unwrap()).unwrap();
        let signed = data_encoding::BASE64URL_NOPAD.encode(&key.sign(nonce.as_bytes()).unwrap());
        let certificate = Some((self.user_file(user, "crt"), self.user_file(user, "key")));
        let wire = encrypted(stream, &self.folder.join("ca.crt"), certificate).unwrap();
        let mut plain = PlainClient::over(wire, inbox, json!({"nkey": key.public_key(), "sig": signed}));
        if !inbox.is_empty() {
            plain.subscribe(&format!("{inbox}.>"));
        }
        plain
    }

    /// Returns `true` if the server accepts an encrypted connection without an nkey. The connection is made
    /// with the certificate of a user, or without a certificate.
    pub(crate) fn accepts_without_nkey(&self, certificate: Option<&str>) -> bool {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        read_info(&mut stream);
        let pair = certificate.map(|user| (self.user_file(user, "crt"), self.user_file(user, "key")));
        let Ok(wire) = encrypted(stream, &self.folder.join("ca.crt"), pair) else { return false };
        PlainClient::over(wire, "", json!({})).errors().is_some()
    }
}

/// Returns two addresses whose ports were free a moment ago.
fn free_addresses() -> [String; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|held| held.local_addr().unwrap().to_string())
}

/// Encrypts a connection whose server has sent its INFO line. Returns the transport to a bridge. The bridge
/// encrypts all data that is sent over the transport.
fn encrypted(
    stream: TcpStream,
    authority: &Path,
    certificate: Option<(PathBuf, PathBuf)>,
) -> std::io::Result<Transport> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match certificate {
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    stream.set_nonblocking(true)?;
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    RUNTIME.block_on(async {
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let mut theirs = tokio::net::UnixStream::from_std(theirs)?;
        let server = ServerName::try_from("127.0.0.1").unwrap();
        let mut encrypted = TlsConnector::from(Arc::new(config)).connect(server, stream).await?;
        tokio::spawn(async move {
            drop(tokio::io::copy_bidirectional(&mut encrypted, &mut theirs).await);
        });
        Ok(Transport::Bridged(ours))
    })
}
