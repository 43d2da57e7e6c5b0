//! What this host says of itself.

/// Names the time since the host was started; none: it doesn't say.
pub(crate) fn boot() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(name.trim().to_owned())
}
