//! Where a cluster is reached.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bus::Bus;
use bus::nats::Settings;
pub use bus::nats::{Login, Tls};
use schemas::bus::{INBOX_ROOT, Inbox};

use crate::error::Error;

/// The name of the socket in a data folder.
pub const SOCKET: &str = "muster.sock";

/// Where a cluster is reached.
#[derive(Clone, Debug)]
pub enum Target {
    /// By a NATS server.
    Nats {
        /// Addresses of the servers, as `nats://127.0.0.1:4222`. At least one.
        urls: Vec<String>,
        /// Who we say that we are.
        login: Login,
        /// How the connection is encrypted.
        tls: Tls,
    },
    /// By the Unix socket of a program that runs a cluster by itself, as `muster dev` does.
    Socket(PathBuf),
}

impl Target {
    /// A NATS server that lets everybody in. Several addresses of one cluster may stand with commas between them.
    #[must_use]
    pub fn nats(urls: &str) -> Self {
        let urls = urls.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect();
        Self::Nats { urls, login: Login::default(), tls: Tls::default() }
    }

    /// A NATS server that wants a credentials file.
    #[must_use]
    pub fn nats_with_credentials(urls: &str, file: &Path) -> Self {
        match Self::nats(urls) {
            Self::Nats { urls, tls, .. } => Self::Nats { urls, login: Login::Credentials(file.into()), tls },
            socket @ Self::Socket(_) => socket,
        }
    }

    /// The same NATS server, whose connections are encrypted so.
    #[must_use]
    pub fn encrypted(self, tls: Tls) -> Self {
        match self {
            Self::Nats { urls, login, .. } => Self::Nats { urls, login, tls },
            socket @ Self::Socket(_) => socket,
        }
    }

    /// Connects as somebody whose answers come to an inbox.
    pub(crate) async fn connect(&self, inbox: &Inbox) -> Result<Bus, Error> {
        let inbox = inbox.to_string();
        match self {
            Self::Nats { urls, login, tls } => {
                let mut settings = Settings::new(urls.clone(), &said_by(&inbox), &inbox);
                settings.login = login.clone();
                settings.tls = tls.clone();
                Ok(Bus::from(settings.connect().await?))
            }
            Self::Socket(path) => Ok(Bus::connect_socket(path, &inbox).await?),
        }
    }
}

/// What the server calls a connection: who it is for, as `client shop web`.
fn said_by(inbox: &str) -> String {
    inbox.strip_prefix(INBOX_ROOT).unwrap_or(inbox).replace('.', " ")
}

/// The data folder of a local cluster that wasn't given another: `$XDG_RUNTIME_DIR/muster`, else `/tmp/muster-$UID`.
#[must_use]
pub fn default_folder() -> PathBuf {
    folder_for(std::env::var_os("XDG_RUNTIME_DIR"), user())
}

/// Where a local cluster that wasn't given another place serves its socket, and where clients look for it.
#[must_use]
pub fn default_socket() -> PathBuf {
    default_folder().join(SOCKET)
}

/// Whether there is a socket at `path` that is ours, in a folder that is ours. `/tmp` is everybody's, so a socket that
/// somebody else put there, or leads to by a link, isn't to be trusted with what we say.
#[must_use]
pub fn is_ours(path: &Path) -> bool {
    let ours = |path: &Path| std::fs::symlink_metadata(path).ok().filter(|found| found.uid() == user());
    let folder = path.parent().and_then(ours);
    folder.is_some_and(|found| found.is_dir())
        && ours(path).is_some_and(|found| found.file_type().is_socket())
}

fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

fn folder_for(runtime_dir: Option<OsString>, user: u32) -> PathBuf {
    match runtime_dir.filter(|folder| Path::new(folder).is_absolute()) {
        Some(folder) => Path::new(&folder).join("muster"),
        None => PathBuf::from(format!("/tmp/muster-{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_cluster_has_one_place_for_each_user() {
        assert_eq!(folder_for(Some("/run/user/7".into()), 7), Path::new("/run/user/7/muster"));
        assert_eq!(folder_for(Some("".into()), 7), Path::new("/tmp/muster-7"));
        assert_eq!(folder_for(None, 0), Path::new("/tmp/muster-0"));
        assert!(default_socket().ends_with(SOCKET));
    }

    #[test]
    fn several_addresses_are_one_target() {
        let Target::Nats { urls, .. } = Target::nats("nats://a:1, nats://b:2,") else {
            panic!("no NATS target")
        };
        assert_eq!(urls, ["nats://a:1", "nats://b:2"]);
    }
}
