//! Check of this host as a cell: the isolation that a rep would achieve, and the requirements of missing
//! isolation layers.

use schemas::isolation::{IsolationLayer, Level};

use super::super::check::Check;
use super::super::facts::{Fact, Host};
use super::unknown_fact;

pub(super) fn check(host: &Fact<Host>) -> Check {
    let host = match host {
        Ok(host) => host,
        Err(why) => return unknown_fact("host", why),
    };
    let as_whom = if host.is_root { "root" } else { "this user" };
    let found = format!("isolation of containers if {as_whom} runs a rep here: {}", host.isolation);
    if host.isolation.level() == Level::Full {
        return Check::ok("host", found);
    }
    let lacking: Vec<IsolationLayer> = host.isolation.missing().collect();
    let mut advice: Vec<String> = vec![];
    for wall in lacking {
        let needs = requirement(wall, host);
        match advice.iter().position(|one| one.ends_with(&needs)) {
            // Isolation layers with the same requirement share one line.
            Some(at) => advice[at] = format!("{wall}, {}", advice[at]),
            None => advice.push(format!("{wall}: {needs}")),
        }
    }
    advice.into_iter().fold(Check::warning("host", found), Check::advise)
}

/// Returns the requirement of an isolation layer that is missing on this host.
fn requirement(wall: IsolationLayer, host: &Host) -> String {
    match wall {
        IsolationLayer::Files
        | IsolationLayer::Processes
        | IsolationLayer::Ipc
        | IsolationLayer::Hostname => match (&host.namespace_restriction, host.is_root) {
            (Some(why), _) => why.clone(),
            (None, true) => "the host denies namespaces or mounts to root: run the rep outside of a \
                             container, or in a privileged one"
                .to_owned(),
            (None, false) => "run the rep as root, or see its log for what the host denies".to_owned(),
        },
        IsolationLayer::Users if host.is_root => "the host denies user namespaces to root: run the rep \
                                                  outside of a container, or in a privileged one"
            .to_owned(),
        IsolationLayer::Users => "run the rep as root".to_owned(),
        IsolationLayer::Syscalls => "a kernel with seccomp (CONFIG_SECCOMP_FILTER)".to_owned(),
        IsolationLayer::Landlock => "a kernel with Landlock version 6 (Linux 6.12), enabled by \
                                     lsm=landlock,.. on its command line (see /sys/kernel/security/lsm); an \
                                     older version isolates less"
            .to_owned(),
        IsolationLayer::Memory | IsolationLayer::Cpu | IsolationLayer::Pids => {
            let groups = if host.is_root {
                "with memory, pids and cpu that the rep may write: version 2, or mounted version 1"
            } else {
                "that the rep may use: run it as root, or by its systemd unit, which has Delegate=yes and \
                 DelegateSubgroup=rep, under systemd 254 or newer"
            };
            format!("control groups {groups} (here: {})", host.cgroups)
        }
        IsolationLayer::Disk => "no requirement: muster always limits it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use schemas::isolation::Isolation;

    fn host(isolation: Isolation, is_root: bool) -> Fact<Host> {
        Ok(Host { isolation, is_root, namespace_restriction: None, cgroups: "none mounted".into() })
    }

    #[test]
    fn requirement_shared_by_layers_is_listed_once() {
        assert_eq!(check(&host(Isolation::FULL, true)).outcome, Outcome::Ok);
        let lacking = [IsolationLayer::Users, IsolationLayer::Memory, IsolationLayer::Cpu]
            .iter()
            .fold(Isolation::FULL, |all, wall| all.without(*wall));
        let said = check(&host(lacking, false));
        assert_eq!(said.outcome, Outcome::Warning);
        assert_eq!(said.advice.len(), 2, "{said:?}");
        assert_eq!(said.advice[0], "users: run the rep as root");
        assert!(said.advice[1].starts_with("cpu, memory: control groups"), "{said:?}");
        assert!(said.advice[1].ends_with("(here: none mounted)"), "{said:?}");
    }
}
