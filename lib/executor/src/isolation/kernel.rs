//! Limits of the kernel for the users of one container (`/proc/sys/user`), written in its own namespace of users.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::outer::named;

/// Namespaces that no program of a container makes. A namespace of mounts is not among them: each program starts with one.
const NONE: [&str; 7] = ["user", "cgroup", "ipc", "net", "pid", "time", "uts"];
/// Limits that a user of the host shares with all its containers, and where the kernel has the host's own.
const SHARED: [(&str, &str); 4] = [
    ("max_inotify_instances", "inotify/max_user_instances"),
    ("max_inotify_watches", "inotify/max_user_watches"),
    ("max_fanotify_groups", "fanotify/max_user_groups"),
    ("max_fanotify_marks", "fanotify/max_user_marks"),
];
/// Share of those that a container gets whose user of the host has others: one eighth.
const SHARE: u64 = 8;

/// Writes the limits of the namespace of users that this program is in, with every right there. `owns_users`: the container has
/// ids of the host for itself, so nobody else shares its limits.
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
        // An older kernel.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => opened
            .and_then(|mut opened| io::Write::write_all(&mut opened, value.to_string().as_bytes()))
            .map_err(|error| named(&format!("write {}", path.display()), error)),
    }
}
