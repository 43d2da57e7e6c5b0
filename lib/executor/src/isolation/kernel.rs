//! Kernel limits for the users of one container (`/proc/sys/user`), written in the container's user
//! namespace.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::outer::named;

/// Namespaces that no program of a container may create. Mount namespaces are not among them, since each
/// program starts with a new one.
const NONE: [&str; 7] = ["user", "cgroup", "ipc", "net", "pid", "time", "uts"];
/// Limits that a host user shares with all its containers, and the files in which the kernel has the host's
/// own limits.
const SHARED: [(&str, &str); 4] = [
    ("max_inotify_instances", "inotify/max_user_instances"),
    ("max_inotify_watches", "inotify/max_user_watches"),
    ("max_fanotify_groups", "fanotify/max_user_groups"),
    ("max_fanotify_marks", "fanotify/max_user_marks"),
];
/// Divisor of those limits for a container whose host user has other containers.
const SHARE: u64 = 8;

/// Writes the limits of this program's user namespace, in which it must have all rights. `owns_users` is
/// `true` if no other container uses the same host ids, so that the limits are not shared.
pub(super) fn limit(owns_users: bool) -> io::Result<()> {
    for kind in NONE {
        write(&format!("max_{kind}_namespaces"), 0)?;
    }
    for (file, of_host) in SHARED {
        let text = fs::read_to_string(Path::new("/proc/sys/fs").join(of_host)).unwrap_or_default();
        if let Ok(most) = text.trim().parse::<u64>() {
            write(file, if owns_users { most } else { (most / SHARE).max(1) })?;
        }
    }
    Ok(())
}

fn write(file: &str, value: u64) -> io::Result<()> {
    let path = Path::new("/proc/sys/user").join(file);
    match fs::OpenOptions::new().write(true).open(&path) {
        // An older kernel does not have this limit.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => opened
            .and_then(|mut opened| io::Write::write_all(&mut opened, value.to_string().as_bytes()))
            .map_err(|error| named(&format!("write {}", path.display()), error)),
    }
}
