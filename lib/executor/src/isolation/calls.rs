//! Which system calls programs are refused.
//!
//! Every call whose number is known is allowed but for those below, which nothing in a container needs: they mount, load,
//! trace, make namespaces, or have been the way out of containers before. Calls that are unknown, of a later kernel or of
//! another way to count them, fail as those that a kernel doesn't have.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter,
};

/// The number behind the last call that is known.
const KNOWN: i64 = 470;

/// Calls that the C library has no name for yet. Numbers from 424 on are the same on every processor.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;

/// What a program may ask of `personality`: Linux itself, also for 32 bits or with an older version number, and what it has.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Calls that are refused.
const REFUSED: &[i64] = &[
    // The file system, from outside and by handles that pass over permissions.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    OPEN_TREE_ATTR,
    STATMOUNT,
    LISTMOUNT,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // The kernel itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Memory that nobody else can look into, root neither.
    libc::SYS_memfd_secret,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    // Keys, which no namespace divides.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The clock.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];

/// Calls that only some processors have, and that are refused there.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// The flags of `clone` that make namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned() as u64;

/// Types into the terminal of whoever shares it.
const TIOCSTI: u64 = 0x5412;
/// Does so by the selection of a console.
const TIOCLINUX: u64 = 0x541c;

/// Refuses them to this program and all that it starts or becomes.
pub(super) fn refuse() -> io::Result<()> {
    let fails = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    // What takes its flags from memory can't be looked at. Who is told that there is no such call uses the older one.
    let mut without_clone3 = allowed();
    without_clone3.remove(&libc::SYS_clone3);
    let filters = [
        (without_clone3, fails(libc::ENOSYS), SeccompAction::Allow),
        (by_argument().map_err(io::Error::other)?, SeccompAction::Allow, fails(libc::EPERM)),
        (refused(), SeccompAction::Allow, fails(libc::EPERM)),
    ];
    for (rules, otherwise, matched) in filters {
        let filter = SeccompFilter::new(rules, otherwise, matched, arch()?).map_err(io::Error::other)?;
        let program: seccompiler::BpfProgram = filter.try_into().map_err(io::Error::other)?;
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn arch() -> io::Result<TargetArch> {
    std::env::consts::ARCH.try_into().map_err(io::Error::other)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// All calls that are known.
fn allowed() -> Rules {
    (0..KNOWN).map(|number| (number, vec![])).collect()
}

/// Those that are refused.
fn refused() -> Rules {
    REFUSED.iter().chain(REFUSED_HERE).map(|number| (*number, vec![])).collect()
}

/// Those that are refused for what they ask: namespaces, the terminal of whoever shares it, sockets of virtual machines.
fn by_argument() -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    let one = |at: u8, width, operator, value: u64| {
        SeccompRule::new(vec![SeccompCondition::new(at, width, operator, value)?])
    };
    let mut namespaces = vec![];
    for bit in (0..64).map(|bit| 1 << bit).filter(|bit| NAMESPACES & bit != 0) {
        namespaces.push(one(0, Qword, SeccompCmpOp::MaskedEq(bit), bit)?);
    }
    // Others make memory executable or its places known.
    let others = PERSONALITIES.map(|known| SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, known));
    let personality = SeccompRule::new(others.into_iter().collect::<Result<_, _>>()?)?;
    let ioctl = |request: u64| one(1, Dword, SeccompCmpOp::Eq, request);
    Ok(BTreeMap::from([
        (libc::SYS_clone, namespaces),
        (libc::SYS_personality, vec![personality]),
        (libc::SYS_ioctl, vec![ioctl(TIOCSTI)?, ioctl(TIOCLINUX)?]),
        (libc::SYS_socket, vec![one(0, Dword, SeccompCmpOp::Eq, libc::AF_VSOCK.unsigned_abs().into())?]),
    ]))
}
