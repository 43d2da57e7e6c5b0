//! Kernel limits for the users of one container (`/proc/sys/user`), written in the container's user
//! namespace.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::outer::with_operation;

/// Namespaces that no program of a container may create. Mount namespaces are not in this list, since each
/// program starts with a new mount namespace.
const FORBIDDEN_NAMESPACES: [&str; 7] = ["user", "cgroup", "ipc", "net", "pid", "time", "uts"];
/// Limits that all containers of a host user share, and the files that contain the corresponding limits of
/// the host.
const SHARED_LIMITS: [(&str, &str); 4] = [
    ("max_inotify_instances", "inotify/max_user_instances"),
    ("max_inotify_watches", "inotify/max_user_watches"),
    ("max_fanotify_groups", "fanotify/max_user_groups"),
    ("max_fanotify_marks", "fanotify/max_user_marks"),
];
/// Divisor of the limits in [`SHARED_LIMITS`] for a container whose host user also runs other containers.
const SHARED_DIVISOR: u64 = 8;

/// Writes the limits of this program's user namespace. This program must have all rights in the namespace.
/// `owns_users` is `true` if no other container uses the same host ids. In this case, no other container
/// shares the limits.
pub(super) fn write_limits(owns_users: bool) -> io::Result<()> {
    for kind in FORBIDDEN_NAMESPACES {
        write_limit(&format!("max_{kind}_namespaces"), 0)?;
    }
    for (file, of_host) in SHARED_LIMITS {
        let text = fs::read_to_string(Path::new("/proc/sys/fs").join(of_host)).unwrap_or_default();
        if let Ok(most) = text.trim().parse::<u64>() {
            write_limit(file, if owns_users { most } else { (most / SHARED_DIVISOR).max(1) })?;
        }
    }
    Ok(())
}

fn write_limit(file: &str, value: u64) -> io::Result<()> {
    let path = Path::new("/proc/sys/user").join(file);
    match fs::OpenOptions::new().write(true).open(&path) {
        // Older kernels do not have this limit.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => opened
            .and_then(|mut opened| io::Write::write_all(&mut opened, value.to_string().as_bytes()))
            .map_err(|error| with_operation(&format!("write {}", path.display()), error)),
    }
}
