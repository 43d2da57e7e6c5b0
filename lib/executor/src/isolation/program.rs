//! Third of the three programs that start a container (see `mod.rs`). It enters the file system of its
//! container, drops all rights, and becomes the program that the definition names. Instead of becoming that
//! program, it can unpack a downloaded archive or open a file for an upload. In these cases it has no more
//! rights than a program of the definition.

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

use schemas::isolation::IsolationLayer;

use super::mounts::bind_recursive;
use super::outer::with_operation;
use super::plan::Plan;
use super::users::{self, User};
use super::{calls, landlock, tree};
use crate::archive;
use crate::image::files::FileTree;
use crate::socket::{receive_some, send_some};
use crate::transfer::is_absolute;

/// Time limit for starting a program.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Request to the third program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProgramRequest {
    /// Isolation of the container. `None` if it is not isolated.
    pub(crate) plan: Option<Plan>,
    pub(crate) operation: Operation,
    pub(crate) environment: BTreeMap<String, String>,
    /// Work directory of the container, as the container sees it.
    pub(crate) work: PathBuf,
    /// Initial working directory, as the container sees it.
    pub(crate) dir: PathBuf,
    /// User that the operation runs as. Empty for the default user of the container.
    pub(crate) user: String,
    /// Maximum size of a file that the program may write, in bytes. `None` if unlimited.
    pub(crate) max_file_bytes: Option<u64>,
    /// Maximum number of open files. `None` for the limit of the cell itself.
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
    /// Session of its own. Its controlling terminal is the program's standard input.
    Terminal,
}

impl ProgramRequest {
    fn has(&self, layer: IsolationLayer) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.has(layer))
    }
}

/// Operation to perform once all rights are dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// Executes a program.
    Run { path: String, args: Vec<String> },
    /// Unpacks the archive that is open as the standard output of this process.
    Unpack {
        /// Target folder.
        to: String,
        /// Maximum unpacked size in bytes.
        max_bytes: u64,
    },
    /// Opens a file for reading and sends its descriptor to the caller.
    Open { path: String },
}

/// Reason why a program did not start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StartError {
    /// The working directory cannot be entered. Contains the system's error number, if known, and the error
    /// text.
    WorkingDir(Option<i32>, String),
    /// Any other reason.
    Other(String),
}

/// Sends a request to a new process, and waits until the process has become the program. The other end of
/// `socket` is the standard input of that process. The program's standard input is `input`, or `/dev/null` if
/// `input` is `None`.
pub(crate) fn send_request(
    mut socket: UnixStream,
    wish: &ProgramRequest,
    input: Option<BorrowedFd<'_>>,
) -> io::Result<Result<(), StartError>> {
    // An error while sending counts only if the process did not reply with a reason of its own.
    let told = write_request(&mut socket, wish, input)?;
    let mut answer = vec![];
    socket.read_to_end(&mut answer)?;
    match (answer.as_slice(), told) {
        ([], Ok(())) => Ok(Ok(())),
        ([], Err(error)) => Err(error),
        (answer, _) => Ok(Err(serde_json::from_slice(answer)?)),
    }
}

/// Sends a new process the request to open a file, and returns the open file.
pub(crate) fn request_file(
    mut socket: UnixStream,
    wish: &ProgramRequest,
) -> io::Result<Result<File, StartError>> {
    let told = write_request(&mut socket, wish, None)?;
    let (answer, file) = receive_all(&socket)?;
    match (file, answer.as_slice()) {
        (Some(file), _) => Ok(Ok(file.into())),
        (None, []) => {
            told?;
            Err(io::Error::other("the program ended before it received the request"))
        }
        (None, answer) => Ok(Err(serde_json::from_slice(answer)?)),
    }
}

/// Sends a request. If the inner result is an error, the process does not read the request.
fn write_request(
    socket: &mut UnixStream,
    wish: &ProgramRequest,
    input: Option<BorrowedFd<'_>>,
) -> io::Result<io::Result<()>> {
    socket.set_read_timeout(Some(START_TIMEOUT))?;
    socket.set_write_timeout(Some(START_TIMEOUT))?;
    let wish = serde_json::to_vec(wish)?;
    let told = send_some(&*socket, &wish, input.as_slice())
        .and_then(|sent| socket.write_all(&wish[sent..]))
        .and_then(|()| socket.shutdown(Shutdown::Write));
    Ok(told)
}

/// Receives bytes until the end of the stream, and the file that was attached to them.
fn receive_all(socket: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let (mut bytes, mut file) = (vec![], None);
    loop {
        let (count, mut came) = receive_some(socket, &mut bytes)?;
        file = came.pop().or(file);
        if count == 0 {
            return Ok((bytes, file));
        }
    }
}

/// Handles the request on standard input. A failure is reported over the same socket.
pub(crate) fn run_program() -> ExitCode {
    match handle_request() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::shim::log_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn handle_request() -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (wish, input) = receive_all(&socket)?;
    let wish: ProgramRequest = serde_json::from_slice(&wish)?;
    let why = match perform(&wish, input) {
        Ok(Remaining::Unpack(into, most_bytes)) => {
            let archive = io::stdout().as_fd().try_clone_to_owned()?;
            // The end of the socket signals success to the caller, which then waits for this process to exit.
            drop(socket);
            return archive::unpack(archive.into(), &into, most_bytes);
        }
        Ok(Remaining::SendFile(file)) => return send_some(&socket, b".", &[file.as_fd()]).map(drop),
        Err(why) => why,
    };
    socket.write_all(&serde_json::to_vec(&why)?)?;
    Err(io::Error::other("the request failed; the caller received the reason"))
}

/// Operation that remains after all rights are dropped.
enum Remaining {
    /// Unpack into this folder, at most this many bytes.
    Unpack(FileTree, u64),
    /// Send this file to the caller.
    SendFile(File),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<Errno> for StartError {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Drops rights and performs or prepares the operation. The steps are ordered so that each step still has the
/// rights that it needs. Does not return if this process becomes a program.
fn perform(wish: &ProgramRequest, input: Option<OwnedFd>) -> Result<Remaining, StartError> {
    if wish.has(IsolationLayer::Files) {
        enter_root(Path::new(tree::ROOT))?;
    }
    if wish.has(IsolationLayer::Memory) {
        // The container's first process is exempt from the OOM killer, but its programs are not.
        fs::write("/proc/self/oom_score_adj", "0")
            .map_err(|error| with_operation("reset the OOM score", error))?;
    }
    set_stdin(input)?;
    start_session(wish.session)?;
    match &wish.plan {
        Some(plan) => drop_rights(wish, plan)?,
        None => enter_dir(wish)?,
    }
    match &wish.operation {
        Operation::Run { path, args } => {
            Err(Command::new(path).args(args).env_clear().envs(&wish.environment).exec().into())
        }
        Operation::Unpack { to, max_bytes } => {
            let top = if is_absolute(to) { require_own_files(wish, to).map(|()| "/")? } else { "." };
            let into = FileTree::open(Path::new(top), None).and_then(|top| top.open_subtree(Path::new(to)));
            Ok(Remaining::Unpack(
                into.map_err(|error| with_operation(&format!("create {to}"), error))?,
                *max_bytes,
            ))
        }
        Operation::Open { path } => open_for_upload(wish, path).map(Remaining::SendFile),
    }
}

/// Replaces standard input. `None` stands for `/dev/null`.
fn set_stdin(input: Option<OwnedFd>) -> io::Result<()> {
    let null = || rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let input = input.map_or_else(null, Ok)?;
    Ok(rustix::stdio::dup2_stdin(&input)?)
}

fn start_session(session: Session) -> io::Result<()> {
    match session {
        Session::Container => {}
        Session::Own => drop(rustix::process::setsid()?),
        Session::Terminal => {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
                .map_err(|error| with_operation("acquire the terminal", error.into()))?;
        }
    }
    Ok(())
}

/// Drops every right that a program in a container must not have.
fn drop_rights(wish: &ProgramRequest, plan: &Plan) -> Result<(), StartError> {
    let name = if wish.user.is_empty() { plan.default_user() } else { &wish.user };
    let user = plan.has(IsolationLayer::Files).then(|| users::find(Path::new("/etc"), name)).transpose()?;
    drop_inheritable_capabilities(plan)?;
    if let Some(user) = user.as_ref().filter(|_| plan.first_id.is_some()) {
        if wish.session == Session::Terminal {
            let owner = Uid::from_raw(user.id);
            rustix::fs::fchown(rustix::stdio::stdin(), Some(owner), None)
                .map_err(|error| with_operation("change the owner of the terminal", error.into()))?;
        }
        become_user(user)?;
    }
    drop_capabilities()?;
    enter_dir(wish)?;
    rustix::thread::set_no_new_privs(true)?;
    // Landlock is applied as far as the kernel supports it, even if the host does not support the whole
    // Landlock layer.
    landlock::restrict_self(&wish.work).map_err(|error| with_operation("apply the Landlock rules", error))?;
    if plan.has(IsolationLayer::Syscalls) {
        calls::install_filters().map_err(|error| with_operation("install the system call filters", error))?;
    }
    Ok(())
}

fn enter_dir(wish: &ProgramRequest) -> Result<(), StartError> {
    std::env::set_current_dir(&wish.dir)
        .map_err(|error| StartError::WorkingDir(error.raw_os_error(), error.to_string()))?;
    Ok(set_resource_limits(wish)?)
}

/// Fails if the container has no file system of its own, because absolute paths would name files of the host
/// in this case.
fn require_own_files(wish: &ProgramRequest, path: &str) -> Result<(), StartError> {
    if wish.has(IsolationLayer::Files) {
        return Ok(());
    }
    Err(StartError::Other(format!(
        "{path} is outside the work directory, and the container has no file system of its own"
    )))
}

/// Opens a file for an upload. The file may be a link that the container created, but only files that the
/// container may read itself can be opened.
fn open_for_upload(wish: &ProgramRequest, path: &str) -> Result<File, StartError> {
    let resolve = if is_absolute(path) {
        require_own_files(wish, path)?;
        ResolveFlags::NO_MAGICLINKS
    } else if wish.has(IsolationLayer::Files) {
        ResolveFlags::NO_MAGICLINKS
    } else {
        ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH
    };
    // Open without blocking, since a program may have created a pipe with that name.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened =
        openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).map_err(|error| match error {
            Errno::XDEV => StartError::Other(format!("{path} leads out of the work directory")),
            error => io::Error::from(error).into(),
        })?;
    let file = File::from(opened);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(StartError::Other(format!("{path} is not a file")))
    }
}

/// Makes the container's file system the root of this mount namespace.
fn enter_root(root: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // The bind mount of the directory on itself belongs to this namespace, so it can be moved.
    bind_recursive(root, root)?;
    std::env::set_current_dir(root)?;
    rustix::process::pivot_root(".", ".")
        .map_err(|error| with_operation("enter the file system of the container", error.into()))?;
    umount2(".", MntFlags::MNT_DETACH)
        .map_err(|error| with_operation("unmount the file system of the host", error.into()))?;
    std::env::set_current_dir("/")
}

/// Drops the capabilities that the execution of a file could grant.
fn drop_inheritable_capabilities(plan: &Plan) -> io::Result<()> {
    if !super::leaves_host(plan) {
        // A program that never was root has no such capabilities.
        return Ok(());
    }
    for right in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(right) {
            // This kernel does not know the capability.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(with_operation("drop inheritable capabilities", error.into())),
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
    become_it().map_err(|error| {
        with_operation(&format!("become user {} of group {}", user.id, user.group), error.into())
    })
}

fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)
        .map_err(|error| with_operation("drop capabilities", error.into()))
}

fn set_resource_limits(wish: &ProgramRequest) -> io::Result<()> {
    let to = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, to(0))?;
    if let Some(bytes) = wish.max_file_bytes {
        setrlimit(Resource::Fsize, to(bytes))?;
    }
    if let Some(most) = wish.nofile {
        setrlimit(Resource::Nofile, to(most)).map_err(|error| {
            let may = getrlimit(Resource::Nofile).maximum;
            let may = may.map_or_else(String::new, |may| format!(" (maximum of this cell: {may})"));
            with_operation(&format!("set the open file limit to {most}{may}"), error.into())
        })?;
    }
    Ok(())
}
