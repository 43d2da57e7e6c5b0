//! Landlock: the kernel holds a program in what it may read and write, whatever it becomes, and keeps it from the sockets
//! without a file that other programs of the host have.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::WORK;

/// What is known of it; an older kernel does less of that.
const KNOWN: ABI = ABI::V6;
/// Where programs may write, unless what is mounted there refuses it.
const WRITTEN: [&str; 6] = [WORK, "/tmp", "/var/tmp", "/run", "/dev", "/proc"];

/// What programs are held in: all that is known of it.
fn rules(level: CompatLevel) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::AbstractUnixSocket)?
        .create()
}

/// Whether this kernel has all of it.
pub(super) fn is_there() -> bool {
    rules(CompatLevel::HardRequirement).is_ok()
}

/// Holds this program and all that it starts or becomes, as far as this kernel can. It may write in `work` besides.
pub(super) fn hold(work: &Path) -> io::Result<()> {
    let (read, all) = (AccessFs::from_read(KNOWN), AccessFs::from_all(KNOWN));
    let mut rules = rules(CompatLevel::BestEffort).map_err(io::Error::other)?;
    let root = PathFd::new("/").map_err(io::Error::other)?;
    rules = rules.add_rule(PathBeneath::new(root, read)).map_err(io::Error::other)?;
    let written = WRITTEN.into_iter().map(Path::new).chain([work]);
    for path in written.filter(|path| path.exists()) {
        let beneath = PathBeneath::new(PathFd::new(path).map_err(io::Error::other)?, all);
        rules = rules.add_rule(beneath).map_err(io::Error::other)?;
    }
    rules.restrict_self().map_err(io::Error::other)?;
    Ok(())
}
