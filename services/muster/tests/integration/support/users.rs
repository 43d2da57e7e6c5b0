//! A nats-server with the users and permissions that `muster auth` makes, and programs that log in as them.

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
use super::plain::{Plain, Wire, greeting};
use super::{Muster, Place, Service};

/// How often a server is started at most, each time on other ports: somebody may have taken one since it was free.
const TRIES: usize = 5;

/// A server and the folder of its users.
pub(crate) struct Users {
    pub(crate) server: Server,
    pub(crate) folder: PathBuf,
    address: String,
}

impl Users {
    /// Makes a folder as `muster auth init` does, and starts a server with its configuration.
    pub(crate) fn init(place: &Place) -> Self {
        let mut why = String::new();
        for number in 0..TRIES {
            let folder = place.path().join(format!("auth-{number}"));
            let [address, monitoring] = free_addresses();
            let (shown, nobody) = (folder.display().to_string(), Muster::with("USER", "tester"));
            nobody
                .run(&["auth", "init", &shown, "--listen", &address, "--monitoring", &monitoring])
                .exits(0)
                .tells(&["nats-server -c", "operator-ops.env"]);
            let (url, monitoring) = (format!("tls://{address}"), format!("http://{monitoring}"));
            match Server::configured(&folder.join("nats.conf"), &url, &monitoring) {
                Ok(server) => return Self { server, folder, address },
                Err(error) => why = error.to_string(),
            }
        }
        panic!("{why}");
    }

    /// Adds a user, and waits until the server knows it.
    pub(crate) fn add(&self, role: &str) {
        let shown = self.folder.display().to_string();
        let words = ["auth", "add", &shown].into_iter().chain(role.split(' '));
        let words: Vec<&str> = words.collect();
        self.nobody().run(&words).exits(0);
    }

    /// Commands that log in nowhere.
    pub(crate) fn nobody(&self) -> Muster {
        Muster::with("USER", "tester")
    }

    /// The variables by which a program is a user.
    pub(crate) fn variables(&self, user: &str) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.of(user, "env")).unwrap();
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.lines().filter_map(pair).collect()
    }

    /// Commands of a user.
    pub(crate) fn muster(&self, user: &str) -> Muster {
        Muster::with_all(self.variables(user))
    }

    /// Starts a service as a user.
    pub(crate) fn start(&self, place: &Place, user: &str, args: &[&str]) -> Service {
        let variables = self.variables(user);
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Service::start(user, &place.path().join(format!("{user}.log")), args, &variables)
    }

    fn of(&self, user: &str, ending: &str) -> PathBuf {
        self.folder.join("users").join(format!("{user}.{ending}"))
    }

    /// A client that knows the text protocol and nothing of Muster, logged in as a user.
    pub(crate) fn plain(&self, user: &str, inbox: &str) -> Plain {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let nonce = greeting(&mut stream)["nonce"].as_str().unwrap().to_owned();
        let seed = fs::read_to_string(self.of(user, "nk")).unwrap();
        let key = KeyPair::from_seed(seed.lines().last().unwrap()).unwrap();
        let signed = data_encoding::BASE64URL_NOPAD.encode(&key.sign(nonce.as_bytes()).unwrap());
        let certificate = Some((self.of(user, "crt"), self.of(user, "key")));
        let wire = encrypted(stream, &self.folder.join("ca.crt"), certificate).unwrap();
        let mut plain = Plain::over(wire, inbox, json!({"nkey": key.public_key(), "sig": signed}));
        if !inbox.is_empty() {
            plain.subscribe(&format!("{inbox}.>"));
        }
        plain
    }

    /// Whether the server talks to somebody who encrypts, with a certificate or without one, but is no user.
    pub(crate) fn lets_in(&self, certificate: Option<&str>) -> bool {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        greeting(&mut stream);
        let pair = certificate.map(|user| (self.of(user, "crt"), self.of(user, "key")));
        let Ok(wire) = encrypted(stream, &self.folder.join("ca.crt"), pair) else { return false };
        Plain::over(wire, "", json!({})).complaints().is_some()
    }
}

/// Two addresses that nobody used a moment ago.
fn free_addresses() -> [String; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|held| held.local_addr().unwrap().to_string())
}

/// Encrypts a connection whose server has said what it is; what goes over the answer goes over it.
fn encrypted(
    stream: TcpStream,
    authority: &Path,
    certificate: Option<(PathBuf, PathBuf)>,
) -> std::io::Result<Wire> {
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
        Ok(Wire::Bridged(ours))
    })
}
