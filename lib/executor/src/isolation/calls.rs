//! Seccomp filters: the system calls that programs of a container may not make.
//!
//! Every known call is allowed except for the calls below. No program in a container needs these calls. The
//! refused calls mount file systems, load code into the kernel, trace processes, create namespaces, or have
//! been used to escape from containers. Unknown calls, which belong to a newer kernel or to a different ABI,
//! fail as if the kernel did not support them.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter,
};

/// Exclusive upper bound of the numbers of the known calls.
const KNOWN_CALLS_END: i64 = 470;

/// Calls that the C library does not name yet. Numbers of 424 or higher are the same on every architecture.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;

/// Permitted arguments of `personality`: Linux itself, its variants for 32 bits or with an older version
/// number, and the value that only queries the current personality.
const ALLOWED_PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Refused calls.
const REFUSED: &[i64] = &[
    // File system administration, and file access by handles, which bypasses permissions.
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
    libc::SYS_unshare,
    libc::SYS_setns,
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Administration of the kernel.
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
    // Memory that not even root can inspect.
    libc::SYS_memfd_secret,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    // Keyrings, which are not separated by namespaces.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // System clock.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];

/// Refused calls that exist only on some architectures.
#[cfg(target_arch = "x86_64")]
const REFUSED_ON_ARCH: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_ON_ARCH: &[i64] = &[];

/// Flags of `clone` that create namespaces.
const NAMESPACE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned() as u64;

/// `ioctl` that injects input into a shared terminal.
const TIOCSTI: u64 = 0x5412;
/// `ioctl` that injects input through the selection of a console.
const TIOCLINUX: u64 = 0x541c;

/// Refuses these calls to this program and to all programs that it starts or executes.
pub(super) fn install_filters() -> io::Result<()> {
    let fails = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    // A filter cannot inspect the flags of `clone3`, which are in memory. The error ENOSYS makes the C
    // library fall back to `clone`.
    let mut without_clone3 = known_calls();
    without_clone3.remove(&libc::SYS_clone3);
    let filters = [
        (without_clone3, fails(libc::ENOSYS), SeccompAction::Allow),
        (calls_refused_by_argument().map_err(io::Error::other)?, SeccompAction::Allow, fails(libc::EPERM)),
        (refused_calls(), SeccompAction::Allow, fails(libc::EPERM)),
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

/// Returns all known calls.
fn known_calls() -> Rules {
    (0..KNOWN_CALLS_END).map(|number| (number, vec![])).collect()
}

/// Returns the refused calls.
fn refused_calls() -> Rules {
    REFUSED.iter().chain(REFUSED_ON_ARCH).map(|number| (*number, vec![])).collect()
}

/// Returns the calls that are refused for some arguments only: those that create namespaces, inject input
/// into a shared terminal, or open sockets of virtual machines.
fn calls_refused_by_argument() -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    let one = |at: u8, width, operator, value: u64| {
        SeccompRule::new(vec![SeccompCondition::new(at, width, operator, value)?])
    };
    let mut namespaces = vec![];
    for bit in (0..64).map(|bit| 1 << bit).filter(|bit| NAMESPACE_FLAGS & bit != 0) {
        namespaces.push(one(0, Qword, SeccompCmpOp::MaskedEq(bit), bit)?);
    }
    // Other personalities make memory executable or addresses predictable.
    let others = ALLOWED_PERSONALITIES.map(|known| SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, known));
    let personality = SeccompRule::new(others.into_iter().collect::<Result<_, _>>()?)?;
    let ioctl = |request: u64| one(1, Dword, SeccompCmpOp::Eq, request);
    Ok(BTreeMap::from([
        (libc::SYS_clone, namespaces),
        (libc::SYS_personality, vec![personality]),
        (libc::SYS_ioctl, vec![ioctl(TIOCSTI)?, ioctl(TIOCLINUX)?]),
        (libc::SYS_socket, vec![one(0, Dword, SeccompCmpOp::Eq, libc::AF_VSOCK.unsigned_abs().into())?]),
    ]))
}
