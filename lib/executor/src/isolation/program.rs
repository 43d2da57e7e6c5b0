//! The third of the three programs: it enters the file system of its container, gives up every right, and becomes the
//! program that the definition names.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use schemas::isolation::Wall;

use super::mounts::show;
use super::outer::named;
use super::plan::Plan;
use super::users::{self, User};
use super::{calls, landlock, tree};

/// How long a program may take to begin.
const LIMIT: Duration = Duration::from_secs(60);

/// What is to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wish {
    pub(crate) plan: Plan,
    pub(crate) path: String,
    pub(crate) args: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it begins, as it sees it.
    pub(crate) dir: PathBuf,
    /// Who runs it; empty: whoever runs programs that name nobody.
    pub(crate) user: String,
    /// Bytes of the largest file that it may write; none: any.
    pub(crate) file_bytes: Option<u64>,
}

/// Why a program could not be begun.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NotStarted {
    /// It can't begin where it should: the number of the system's error, if it has one, and its text.
    Dir(Option<i32>, String),
    /// Why else.
    Other(String),
}

/// Tells a program that was just started what to become, over the other end of its standard input, and waits until it is
/// that.
pub(crate) fn exchange(mut socket: UnixStream, wish: &Wish) -> io::Result<Result<(), NotStarted>> {
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    // If it is gone already, its end says so below.
    let told = socket.write_all(&serde_json::to_vec(wish)?).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut answer = vec![];
    socket.read_to_end(&mut answer)?;
    match (answer.as_slice(), told) {
        ([], Ok(())) => Ok(Ok(())),
        ([], Err(error)) => Err(error),
        (answer, _) => Ok(Err(serde_json::from_slice(answer)?)),
    }
}

/// Becomes what is wished on the standard input, or says there why not.
pub(crate) fn become_program() -> ExitCode {
    match obey() {
        Ok(never) => match never {},
        Err(error) => {
            crate::shim::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn obey() -> io::Result<Infallible> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut wish = vec![];
    socket.read_to_end(&mut wish)?;
    let wish: Wish = serde_json::from_slice(&wish)?;
    let why = match be(&wish) {
        Ok(never) => match never {},
        Err(why) => why,
    };
    socket.write_all(&serde_json::to_vec(&why)?)?;
    Err(io::Error::other("it was told why it is not the program"))
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<rustix::io::Errno> for NotStarted {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// The rights go in the order in which each may still be given up.
fn be(wish: &Wish) -> Result<Infallible, NotStarted> {
    let plan = &wish.plan;
    if plan.has(Wall::Files) {
        enter(Path::new(tree::ROOT))?;
    }
    if plan.has(Wall::Memory) {
        // What the container's first process is spared from, its programs are not.
        fs::write("/proc/self/oom_score_adj", "0").map_err(|error| named("be killed like others", error))?;
    }
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    let name = if wish.user.is_empty() { plan.user() } else { &wish.user };
    let user = plan.has(Wall::Files).then(|| users::find(Path::new("/etc"), name)).transpose()?;
    give_up_ways_to_rights(plan)?;
    if let Some(user) = user.as_ref().filter(|_| plan.first_id.is_some()) {
        become_user(user)?;
    }
    give_up_rights()?;
    std::env::set_current_dir(&wish.dir)
        .map_err(|error| NotStarted::Dir(error.raw_os_error(), error.to_string()))?;
    limit(wish)?;
    rustix::thread::set_no_new_privs(true)?;
    if plan.has(Wall::Landlock) {
        landlock::hold().map_err(|error| named("be held by Landlock", error))?;
    }
    if plan.has(Wall::Calls) {
        calls::refuse().map_err(|error| named("give up system calls", error))?;
    }
    let error = Command::new(&wish.path).args(&wish.args).env_clear().envs(&wish.environment).exec();
    Err(error.into())
}

/// Makes the file system of the container the only one there is.
fn enter(root: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Shown upon itself it is a mount of this namespace's, which may be moved.
    show(root, root)?;
    std::env::set_current_dir(root)?;
    rustix::process::pivot_root(".", ".").map_err(|error| named("enter the container", error.into()))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|error| named("leave the host", error.into()))?;
    std::env::set_current_dir("/")
}

/// What runs a file may give rights by is taken away first.
fn give_up_ways_to_rights(plan: &Plan) -> io::Result<()> {
    if !super::leaves_host(plan) {
        // Who never was root has none.
        return Ok(());
    }
    for right in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(right) {
            // This kernel doesn't know it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
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
    Ok(())
}
