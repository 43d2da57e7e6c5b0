//! Third of the three programs. It enters the file system of its container, drops all rights, and becomes the
//! program that the definition names. It can instead unpack a downloaded archive or open a file for an
//! upload, with no more rights than such a program.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid, openat2};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use schemas::isolation::Wall;

use super::mounts::show;
use super::outer::named;
use super::plan::Plan;
use super::users::{self, User};
use super::{calls, landlock, tree};
use crate::archive;
use crate::image::files::Files;
use crate::socket::{receive_piece, send_piece};
use crate::transfer::is_absolute;

/// Time limit for starting a program.
const LIMIT: Duration = Duration::from_secs(60);

/// Request to the third program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// Isolation of the container. `None` if it is not isolated.
    pub(crate) plan: Option<Plan>,
    pub(crate) deed: Deed,
    pub(crate) environment: BTreeMap<String, String>,
    /// Work directory of the container, as the container sees it.
    pub(crate) work: PathBuf,
    /// Initial working directory, as the container sees it.
    pub(crate) dir: PathBuf,
    /// User that runs it. Empty for the default user of the container.
    pub(crate) user: String,
    /// Maximum size of a file that it may write, in bytes. `None` if unlimited.
    pub(crate) file_bytes: Option<u64>,
    /// Maximum number of open files. `None` for the cell's own limit.
    pub(crate) nofile: Option<u64>,
    pub(crate) session: Session,
}

/// Session of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Session {
    /// Session of the container.
    Container,
    /// Session of its own.
    Own,
    /// Session of its own, whose controlling terminal is the program's standard input.
    Terminal,
}

impl Wish {
    fn has(&self, wall: Wall) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.has(wall))
    }
}

/// Operation to perform once all rights are dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// Executes a program.
    Run { path: String, args: Vec<String> },
    /// Unpacks the archive that is open as standard output.
    Unpack {
        /// Target folder.
        to: String,
        /// Maximum unpacked size in bytes.
        most_bytes: u64,
    },
    /// Opens a file for reading and sends its descriptor to the caller.
    Open { path: String },
}

/// Reason why a program did not start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NotStarted {
    /// The working directory cannot be entered: the system's error number, if known, and the text.
    Dir(Option<i32>, String),
    /// Any other reason.
    Other(String),
}

/// Sends a request to a new process over the other end of its standard input, and waits until the process has
/// become the program. The program's standard input is then `input`, or `/dev/null` if that is `None`.
pub(crate) fn exchange(
    mut socket: UnixStream,
    wish: &Wish,
    input: Option<BorrowedFd<'_>>,
) -> io::Result<Result<(), NotStarted>> {
    // A send error counts only if the process did not reply with a reason of its own.
    let told = tell(&mut socket, wish, input)?;
    let mut answer = vec![];
    socket.read_to_end(&mut answer)?;
    match (answer.as_slice(), told) {
        ([], Ok(())) => Ok(Ok(())),
        ([], Err(error)) => Err(error),
        (answer, _) => Ok(Err(serde_json::from_slice(answer)?)),
    }
}

/// Sends a request to open a file to a new process, and returns the file.
pub(crate) fn exchange_for_file(mut socket: UnixStream, wish: &Wish) -> io::Result<Result<File, NotStarted>> {
    let told = tell(&mut socket, wish, None)?;
    let (answer, file) = receive_all(&socket)?;
    match (file, answer.as_slice()) {
        (Some(file), _) => Ok(Ok(file.into())),
        (None, []) => {
            told?;
            Err(io::Error::other("it ended before it was asked"))
        }
        (None, answer) => Ok(Err(serde_json::from_slice(answer)?)),
    }
}

/// Sends a request. The inner error means that the process does not read it.
fn tell(socket: &mut UnixStream, wish: &Wish, input: Option<BorrowedFd<'_>>) -> io::Result<io::Result<()>> {
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    let wish = serde_json::to_vec(wish)?;
    let told = send_piece(&*socket, &wish, input.as_slice())
        .and_then(|sent| socket.write_all(&wish[sent..]))
        .and_then(|()| socket.shutdown(Shutdown::Write));
    Ok(told)
}

/// Receives bytes until the end, and the file that was attached.
fn receive_all(socket: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let (mut bytes, mut file) = (vec![], None);
    loop {
        let (count, mut came) = receive_piece(socket, &mut bytes)?;
        file = came.pop().or(file);
        if count == 0 {
            return Ok((bytes, file));
        }
    }
}

/// Handles the request on standard input. A failure is reported to the same socket.
pub(crate) fn become_program() -> ExitCode {
    match obey() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::shim::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn obey() -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (wish, input) = receive_all(&socket)?;
    let wish: Wish = serde_json::from_slice(&wish)?;
    let why = match be(&wish, input) {
        Ok(Ready::ToUnpack(into, most_bytes)) => {
            let archive = io::stdout().as_fd().try_clone_to_owned()?;
            // Closing the socket signals success. The caller then waits for this process to exit.
            drop(socket);
            return archive::unpack(archive.into(), &into, most_bytes);
        }
        Ok(Ready::ToGive(file)) => return send_piece(&socket, b".", &[file.as_fd()]).map(drop),
        Err(why) => why,
    };
    socket.write_all(&serde_json::to_vec(&why)?)?;
    Err(io::Error::other("it was told why it is not the program"))
}

/// Operation that remains after all rights are dropped.
enum Ready {
    /// Unpack into this folder, at most this many bytes.
    ToUnpack(Files, u64),
    /// Send this file to the caller.
    ToGive(File),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<Errno> for NotStarted {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Drops rights in an order that keeps each remaining step permitted, and performs or prepares the operation.
/// Does not return if it becomes a program.
fn be(wish: &Wish, input: Option<OwnedFd>) -> Result<Ready, NotStarted> {
    if wish.has(Wall::Files) {
        enter(Path::new(tree::ROOT))?;
    }
    if wish.has(Wall::Memory) {
        // The container's first process is exempt from the OOM killer, but its programs are not.
        fs::write("/proc/self/oom_score_adj", "0").map_err(|error| named("be killed like others", error))?;
    }
    read_from(input)?;
    lead_session(wish.session)?;
    match &wish.plan {
        Some(plan) => give_up(wish, plan)?,
        None => begin_in(wish)?,
    }
    match &wish.deed {
        Deed::Run { path, args } => {
            Err(Command::new(path).args(args).env_clear().envs(&wish.environment).exec().into())
        }
        Deed::Unpack { to, most_bytes } => {
            let top = if is_absolute(to) { own_files(wish, to).map(|()| "/")? } else { "." };
            let into = Files::open(Path::new(top), None).and_then(|top| top.below(Path::new(to)));
            Ok(Ready::ToUnpack(into.map_err(|error| named(&format!("make {to}"), error))?, *most_bytes))
        }
        Deed::Open { path } => open(wish, path).map(Ready::ToGive),
    }
}

/// Replaces standard input. `None` stands for `/dev/null`.
fn read_from(input: Option<OwnedFd>) -> io::Result<()> {
    let null = || rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let input = input.map_or_else(null, Ok)?;
    Ok(rustix::stdio::dup2_stdin(&input)?)
}

fn lead_session(session: Session) -> io::Result<()> {
    match session {
        Session::Container => {}
        Session::Own => drop(rustix::process::setsid()?),
        Session::Terminal => {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
                .map_err(|error| named("have the terminal", error.into()))?;
        }
    }
    Ok(())
}

/// Drops every right that a program in a container must not have.
fn give_up(wish: &Wish, plan: &Plan) -> Result<(), NotStarted> {
    let name = if wish.user.is_empty() { plan.user() } else { &wish.user };
    let user = plan.has(Wall::Files).then(|| users::find(Path::new("/etc"), name)).transpose()?;
    give_up_ways_to_rights(plan)?;
    if let Some(user) = user.as_ref().filter(|_| plan.first_id.is_some()) {
        if wish.session == Session::Terminal {
            let owner = Uid::from_raw(user.id);
            rustix::fs::fchown(rustix::stdio::stdin(), Some(owner), None)
                .map_err(|error| named("own the terminal", error.into()))?;
        }
        become_user(user)?;
    }
    give_up_rights()?;
    begin_in(wish)?;
    rustix::thread::set_no_new_privs(true)?;
    // Landlock applies as far as the kernel supports it, even if the host lacks the complete Landlock layer.
    landlock::hold(&wish.work).map_err(|error| named("be held by Landlock", error))?;
    if plan.has(Wall::Calls) {
        calls::refuse().map_err(|error| named("give up system calls", error))?;
    }
    Ok(())
}

fn begin_in(wish: &Wish) -> Result<(), NotStarted> {
    std::env::set_current_dir(&wish.dir)
        .map_err(|error| NotStarted::Dir(error.raw_os_error(), error.to_string()))?;
    Ok(limit(wish)?)
}

/// Fails if the container has no file system of its own, so that absolute paths would be those of the host.
fn own_files(wish: &Wish, path: &str) -> Result<(), NotStarted> {
    if wish.has(Wall::Files) {
        return Ok(());
    }
    Err(NotStarted::Other(format!(
        "{path} is none of the work directory, and the container has no files of its own"
    )))
}

/// Opens a file for an upload. Links that the container created give access only to files that it may read
/// itself.
fn open(wish: &Wish, path: &str) -> Result<File, NotStarted> {
    let resolve = if is_absolute(path) {
        own_files(wish, path)?;
        ResolveFlags::NO_MAGICLINKS
    } else if wish.has(Wall::Files) {
        ResolveFlags::NO_MAGICLINKS
    } else {
        ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH
    };
    // Do not block: a program may have created a pipe with that name.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened =
        openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).map_err(|error| match error {
            Errno::XDEV => NotStarted::Other(format!("{path} leads out of the work directory")),
            error => io::Error::from(error).into(),
        })?;
    let file = File::from(opened);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(NotStarted::Other(format!("{path} is not a file")))
    }
}

/// Makes the container's file system the root of this mount namespace.
fn enter(root: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // A bind mount on itself belongs to this namespace, so it can be moved.
    show(root, root)?;
    std::env::set_current_dir(root)?;
    rustix::process::pivot_root(".", ".").map_err(|error| named("enter the container", error.into()))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|error| named("leave the host", error.into()))?;
    std::env::set_current_dir("/")
}

/// Drops capabilities that executing a file could grant.
fn give_up_ways_to_rights(plan: &Plan) -> io::Result<()> {
    if !super::leaves_host(plan) {
        // A program that never was root has none.
        return Ok(());
    }
    for right in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(right) {
            // This kernel does not know the capability.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(named("give up the way to rights", error.into())),
        }
    }
    Ok(rustix::thread::clear_ambient_capability_set()?)
}

fn become_user(user: &User) -> io::Result<()> {
    let become_it = || {
        let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let (id, group) = (Uid::from_raw(user.id), Gid::from_raw(user.group));
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(id, id, id)
    };
    become_it()
        .map_err(|error| named(&format!("be the user {} of the group {}", user.id, user.group), error.into()))
}

fn give_up_rights() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(|error| named("give up rights", error.into()))
}

fn limit(wish: &Wish) -> io::Result<()> {
    let to = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, to(0))?;
    if let Some(bytes) = wish.file_bytes {
        setrlimit(Resource::Fsize, to(bytes))?;
    }
    if let Some(most) = wish.nofile {
        setrlimit(Resource::Nofile, to(most)).map_err(|error| {
            let may = getrlimit(Resource::Nofile).maximum;
            let may = may.map_or_else(String::new, |may| format!(" (the cell lets it open {may})"));
            named(&format!("have {most} files open{may}"), error.into())
        })?;
    }
    Ok(())
}
