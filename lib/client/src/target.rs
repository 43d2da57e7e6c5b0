//! Address of a cluster.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bus::Bus;
use bus::nats::Settings;
pub use bus::nats::{Login, Tls};
use schemas::bus::{INBOX_ROOT, Inbox};

use crate::error::Error;

/// Name of the socket in a data folder.
pub const SOCKET_FILE: &str = "muster.sock";

/// Address of a cluster.
#[derive(Clone, Debug)]
pub enum Target {
    /// NATS servers.
    Nats {
        /// URLs of the servers, such as `nats://127.0.0.1:4222`. At least one.
        urls: Vec<String>,
        login: Login,
        tls: Tls,
    },
    /// Unix socket of a program that runs a whole cluster, such as `muster dev`.
    Socket(PathBuf),
}

impl Target {
    /// Returns the target of NATS servers without login. Several URLs of one cluster are separated by commas.
    #[must_use]
    pub fn nats(urls: &str) -> Self {
        let urls = urls.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect();
        Self::Nats { urls, login: Login::default(), tls: Tls::default() }
    }

    /// Returns the target of NATS servers that require a credentials file.
    #[must_use]
    pub fn nats_with_credentials(urls: &str, file: &Path) -> Self {
        match Self::nats(urls) {
            Self::Nats { urls, tls, .. } => Self::Nats { urls, login: Login::Credentials(file.into()), tls },
            socket @ Self::Socket(_) => socket,
        }
    }

    /// Sets the encryption of the connections to NATS servers. Does not affect a socket.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        match self {
            Self::Nats { urls, login, .. } => Self::Nats { urls, login, tls },
            socket @ Self::Socket(_) => socket,
        }
    }

    /// Connects to the cluster. Answers are sent to the inbox.
    pub(crate) async fn connect(&self, inbox: &Inbox) -> Result<Bus, Error> {
        let inbox = inbox.to_string();
        match self {
            Self::Nats { urls, login, tls } => {
                let mut settings = Settings::new(urls.clone(), &connection_name(&inbox), &inbox);
                settings.login = login.clone();
                settings.tls = tls.clone();
                Ok(Bus::from(settings.connect().await?))
            }
            Self::Socket(path) => Ok(Bus::connect_socket(path, &inbox).await?),
        }
    }
}

/// Returns the name of a connection in the server's lists: the owner of the connection's inbox, such as
/// `client shop web`.
fn connection_name(inbox: &str) -> String {
    inbox.strip_prefix(INBOX_ROOT).unwrap_or(inbox).replace('.', " ")
}

/// Returns the default data folder of a local cluster: `$XDG_RUNTIME_DIR/muster`, else `/tmp/muster-$UID`.
#[must_use]
pub fn default_folder() -> PathBuf {
    folder_for(std::env::var_os("XDG_RUNTIME_DIR"), user())
}

/// Returns the default path of the socket of a local cluster.
#[must_use]
pub fn default_socket() -> PathBuf {
    default_folder().join(SOCKET_FILE)
}

/// Returns `true` if `path` is a socket of this user in a folder of this user. Every user can create files in
/// `/tmp`. A socket or link of another user must not receive any data.
#[must_use]
pub fn is_own_socket(path: &Path) -> bool {
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
    fn default_folder_differs_per_user() {
        assert_eq!(folder_for(Some("/run/user/7".into()), 7), Path::new("/run/user/7/muster"));
        assert_eq!(folder_for(Some("".into()), 7), Path::new("/tmp/muster-7"));
        assert_eq!(folder_for(None, 0), Path::new("/tmp/muster-0"));
        assert!(default_socket().ends_with(SOCKET_FILE));
    }

    #[test]
    fn nats_target_splits_several_urls() {
        let Target::Nats { urls, .. } = Target::nats("nats://a:1, nats://b:2,") else {
            panic!("no NATS target")
        };
        assert_eq!(urls, ["nats://a:1", "nats://b:2"]);
    }
}
