//! Check of this host as a cell: the isolation that a rep would achieve, and the requirements of missing
//! isolation layers.

use schemas::isolation::{Level, Wall};

use super::super::check::Check;
use super::super::facts::{Asked, Host};
use super::unknown;

pub(super) fn check(host: &Asked<Host>) -> Check {
    let host = match host {
        Ok(host) => host,
        Err(why) => return unknown("host", why),
    };
    let as_whom = if host.is_root { "root" } else { "this user" };
    let found = format!("a rep run here by {as_whom} keeps its containers apart: {}", host.isolation);
    if host.isolation.level() == Level::Full {
        return Check::ok("host", found);
    }
    let lacking: Vec<Wall> = host.isolation.lacking().collect();
    let mut advice: Vec<String> = vec![];
    for wall in lacking {
        let needs = needs(wall, host);
        match advice.iter().position(|one| one.ends_with(&needs)) {
            // Isolation layers with the same requirement share one line.
            Some(at) => advice[at] = format!("{wall}, {}", advice[at]),
            None => advice.push(format!("{wall}: {needs}")),
        }
    }
    advice.into_iter().fold(Check::warning("host", found), Check::advise)
}

/// Returns the requirement of an isolation layer that is missing on this host.
fn needs(wall: Wall, host: &Host) -> String {
    match wall {
        Wall::Files | Wall::Processes | Wall::Ipc | Wall::Hostname => match (&host.no_namespaces, host.is_root) {
            (Some(why), _) => why.clone(),
            (None, true) => "the host refuses namespaces or mounts to root: run the rep outside of a container, or in a privileged one".to_owned(),
            (None, false) => "run the rep as root, or see its log for what the host refuses".to_owned(),
        },
        Wall::Users if host.is_root => "the host refuses users of their own to root: run the rep outside of a container, or in a privileged one".to_owned(),
        Wall::Users => "run the rep as root".to_owned(),
        Wall::Calls => "a kernel with seccomp (CONFIG_SECCOMP_FILTER)".to_owned(),
        Wall::Landlock => "a kernel with Landlock of version 6 (Linux 6.12) that is switched on; what an older one has is used, too: lsm=landlock,.. on its command line; see /sys/kernel/security/lsm".to_owned(),
        Wall::Memory | Wall::Cpu | Wall::Forks => {
            let groups = if host.is_root {
                "with memory, pids and cpu that the rep may write: of version 2, or mounted of version 1"
            } else {
                "that the rep may use: run it as root, or by its systemd unit, which has Delegate=yes and DelegateSubgroup=rep, under systemd 254 or newer"
            };
            format!("control groups {groups} (here: {})", host.groups)
        }
        Wall::Disk => "nothing of the host: this program always limits it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use schemas::isolation::Isolation;

    fn host(isolation: Isolation, is_root: bool) -> Asked<Host> {
        Ok(Host { isolation, is_root, no_namespaces: None, groups: "none are mounted".into() })
    }

    #[test]
    fn requirement_shared_by_layers_is_listed_once() {
        assert_eq!(check(&host(Isolation::FULL, true)).outcome, Outcome::Ok);
        let lacking = [Wall::Users, Wall::Memory, Wall::Cpu]
            .iter()
            .fold(Isolation::FULL, |all, wall| all.without(*wall));
        let said = check(&host(lacking, false));
        assert_eq!(said.outcome, Outcome::Warning);
        assert_eq!(said.advice.len(), 2, "{said:?}");
        assert_eq!(said.advice[0], "users: run the rep as root");
        assert!(said.advice[1].starts_with("cpu, memory: control groups"), "{said:?}");
        assert!(said.advice[1].ends_with("(here: none are mounted)"), "{said:?}");
    }
}
