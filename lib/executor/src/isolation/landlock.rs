//! Landlock restricts the files that a program and its descendants may read and write. It also restricts the
//! connections of these programs to the abstract sockets of other programs.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::WORK_DIR;

/// Landlock version whose restrictions are used. Older kernels support only some of them.
const KNOWN_ABI: ABI = ABI::V6;
/// Folders in which programs may write, except for read-only mounts in them.
const WRITABLE: [&str; 6] = [WORK_DIR, "/tmp", "/var/tmp", "/run", "/dev", "/proc"];

/// Returns the restrictions, which are all those of the known Landlock version.
fn ruleset(level: CompatLevel) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(KNOWN_ABI))?
        .scope(Scope::AbstractUnixSocket)?
        .create()
}

/// Returns `true` if this kernel supports all restrictions.
pub(super) fn is_supported() -> bool {
    ruleset(CompatLevel::HardRequirement).is_ok()
}

/// Restricts this program and everything that it starts or executes, as far as this kernel supports the
/// restrictions. In addition to the folders in `WRITABLE`, `work` is writable.
pub(super) fn restrict_self(work: &Path) -> io::Result<()> {
    let (read, all) = (AccessFs::from_read(KNOWN_ABI), AccessFs::from_all(KNOWN_ABI));
    let mut rules = ruleset(CompatLevel::BestEffort).map_err(io::Error::other)?;
    let root = PathFd::new("/").map_err(io::Error::other)?;
    rules = rules.add_rule(PathBeneath::new(root, read)).map_err(io::Error::other)?;
    let written = WRITABLE.into_iter().map(Path::new).chain([work]);
    for path in written.filter(|path| path.exists()) {
        let beneath = PathBeneath::new(PathFd::new(path).map_err(io::Error::other)?, all);
        rules = rules.add_rule(beneath).map_err(io::Error::other)?;
    }
    rules.restrict_self().map_err(io::Error::other)?;
    Ok(())
}
