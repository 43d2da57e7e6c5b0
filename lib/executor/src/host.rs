//! Information about this host.

/// Returns the boot id of the host, which changes with every boot. `None` if it cannot be read.
pub(crate) fn boot_id() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(name.trim().to_owned())
}
