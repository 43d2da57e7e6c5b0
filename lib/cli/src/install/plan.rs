//! Plan of an installation: the file contents, and the action for each existing file. All functions are pure:
//! they read and write no files.

use std::path::Path;

use serde::Serialize;

use super::UnitRole;

/// Program path in the unit files of the repository. The path of the installed program replaces it.
const PROGRAM: &str = "/usr/bin/muster";
/// Directory of the units that an administrator installs.
const UNITS_DIR: &str = "/etc/systemd/system";
/// Directory of the services' variables files.
const VARIABLES_DIR: &str = "/etc/muster";
/// Path of the sysusers file that declares the service users.
const USERS_FILE: &str = "/etc/sysusers.d/muster.conf";

/// Kind of an installed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unit,
    /// System users that the services run as.
    Users,
    /// Environment variables of a service. The operator owns this file; it may contain secrets.
    Variables,
}

/// A file to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) path: String,
    pub(super) content: String,
}

/// Action for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// The file does not exist and is created.
    Written,
    /// An identical file exists.
    Unchanged,
    /// A variables file exists and is left unchanged, because the operator owns it.
    Kept,
    /// A different file exists and is overwritten.
    Overwritten,
    /// A different file exists and is not overwritten.
    Differs,
}

impl Action {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Unchanged => "unchanged",
            Self::Kept => "kept",
            Self::Overwritten => "overwritten",
            Self::Differs => "differs",
        }
    }

    /// Returns `true` if the action writes the file.
    pub(super) const fn is_write(self) -> bool {
        match self {
            Self::Written | Self::Overwritten => true,
            Self::Unchanged | Self::Kept | Self::Differs => false,
        }
    }
}

impl UnitRole {
    /// Returns the name of the role in file names and commands.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Bbs => "bbs",
            Self::Auctioneer => "auctioneer",
            Self::Rep => "rep",
            Self::Projector => "projector",
        }
    }

    /// Returns the unit file of the repository.
    const fn text(self) -> &'static str {
        match self {
            Self::Bbs => include_str!("../../../../deploy/muster-bbs.service"),
            Self::Auctioneer => include_str!("../../../../deploy/muster-auctioneer.service"),
            Self::Rep => include_str!("../../../../deploy/muster-rep.service"),
            Self::Projector => include_str!("../../../../deploy/muster-projector.service"),
        }
    }

    /// Returns the lines that only the variables file of this role has.
    const fn variables(self) -> &'static str {
        match self {
            Self::Bbs => {
                "#MUSTER_NATS_MONITORING=http://127.0.0.1:8222\n#MUSTER_REPLICAS=3\n#MUSTER_SECRETS=/etc/muster/secrets.keys\n"
            }
            Self::Auctioneer => "#MUSTER_REPLICAS=3\n",
            Self::Rep => {
                "MUSTER_CELL=\nMUSTER_ZONE=\n#MUSTER_ADDRESS=\n#MUSTER_SECRETS=/etc/muster/secrets.keys\n"
            }
            Self::Projector => "MUSTER_DATABASE=\n",
        }
    }

    /// Returns a variables file for the operator to complete.
    fn template(self) -> String {
        let role = self.word();
        let other = match self {
            Self::Rep => "rep-CELL",
            Self::Bbs | Self::Auctioneer | Self::Projector => role,
        };
        format!(
            "# Environment variables of muster-{role}.service.\n\
             # Copy them from {other}.env, which muster auth creates, and adjust the paths to this host.\n\
             MUSTER_NATS_URL=nats://127.0.0.1:4222\n{}#MUSTER_METRICS=127.0.0.1:9464\n",
            self.variables()
        )
    }
}

/// Returns all files that `roles` need. `env` is the content of the variables file. The caller passes `env`
/// only for a single role.
pub(super) fn items(roles: &[UnitRole], program: &Path, env: Option<&str>) -> Vec<Item> {
    let program = program.display().to_string();
    let users = Item {
        kind: Kind::Users,
        path: USERS_FILE.to_owned(),
        content: include_str!("../../../../deploy/muster.sysusers").to_owned(),
    };
    let of = |role: &UnitRole| {
        let unit = Item {
            kind: Kind::Unit,
            path: format!("{UNITS_DIR}/muster-{}.service", role.word()),
            content: role.text().replace(PROGRAM, &program),
        };
        let variables = Item {
            kind: Kind::Variables,
            path: format!("{VARIABLES_DIR}/{}.env", role.word()),
            content: env.map_or_else(|| role.template(), str::to_owned),
        };
        [unit, variables]
    };
    let users = roles.iter().any(|role| *role != UnitRole::Rep).then_some(users);
    roles.iter().flat_map(of).chain(users).collect()
}

/// Returns the action for a file, and the differences between the planned content and the existing content
/// `there`.
pub(super) fn action(item: &Item, there: Option<&str>, force: bool) -> (Action, Vec<String>) {
    match (there, item.kind) {
        (None, _) => (Action::Written, vec![]),
        (Some(there), _) if there == item.content => (Action::Unchanged, vec![]),
        (Some(_), Kind::Variables) => (Action::Kept, vec![]),
        (Some(there), Kind::Unit | Kind::Users) => {
            let did = if force { Action::Overwritten } else { Action::Differs };
            (did, differences(there, &item.content))
        }
    }
}

/// Returns the lines that occur in only one of two texts, prefixed with `-` (existing) or `+` (planned).
fn differences(there: &str, wanted: &str) -> Vec<String> {
    let only = |mark: &str, one: &str, other: &str| {
        let others: Vec<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !others.contains(line)).map(|line| format!("{mark} {line}"));
        lines.collect::<Vec<_>>()
    };
    let lines = [only("-", there, wanted), only("+", wanted, there)].concat();
    if lines.is_empty() { vec!["the same lines in a different order".to_owned()] } else { lines }
}

/// Returns the next steps for the operator.
pub(super) fn next(roles: &[UnitRole], elsewhere: bool, dry: bool) -> Vec<String> {
    if dry {
        return vec!["nothing was written".to_owned()];
    }
    if elsewhere {
        return vec![];
    }
    let files = roles
        .iter()
        .map(|role| format!("{VARIABLES_DIR}/{}.env", role.word()))
        .collect::<Vec<_>>()
        .join(", ");
    let units = roles.iter().map(|role| format!("muster-{}", role.word())).collect::<Vec<_>>().join(" ");
    let mut lines = vec!["next:".to_owned()];
    if roles.iter().any(|role| *role != UnitRole::Rep) {
        lines.push(format!("  systemd-sysusers {USERS_FILE}"));
    }
    lines.extend([
        format!("  fill in {files}; the user muster must be able to read the files that they name"),
        "  systemctl daemon-reload".to_owned(),
    ]);
    if roles.contains(&UnitRole::Bbs) {
        let found = "muster cluster found --nats URL --creds bbs-writer.nk";
        lines.push(format!("  once per cluster, before its first BBS starts: {found}"));
    }
    lines.extend([format!("  systemctl enable --now {units}"), "  muster doctor".to_owned()]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_reference_installed_program_and_variables_file() {
        let roles = [UnitRole::Bbs, UnitRole::Auctioneer, UnitRole::Rep, UnitRole::Projector];
        let items = items(&roles, Path::new("/opt/bin/muster"), None);
        assert_eq!(items.len(), 9);
        for role in roles {
            let unit = items
                .iter()
                .find(|item| item.path.ends_with(&format!("muster-{}.service", role.word())))
                .unwrap();
            let lines: Vec<&str> = unit.content.lines().collect();
            let starts = lines.iter().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
            assert!(starts.starts_with(&format!("/opt/bin/muster {}", role.word())), "{starts}");
            assert!(
                lines.contains(&&*format!("EnvironmentFile=/etc/muster/{}.env", role.word())),
                "{lines:?}"
            );
            assert!(
                lines.contains(&"Type=notify") && lines.iter().any(|line| line.starts_with("WatchdogSec="))
            );
        }
    }

    #[test]
    fn existing_files_are_overwritten_only_with_force_and_variables_never() {
        let item = |kind| Item { kind, path: "/a".into(), content: "one\ntwo\n".into() };
        let did = |kind, there, force| action(&item(kind), there, force).0;
        assert_eq!(did(Kind::Unit, None, false), Action::Written);
        assert_eq!(did(Kind::Unit, Some("one\ntwo\n"), true), Action::Unchanged);
        assert_eq!(did(Kind::Unit, Some("one\n"), false), Action::Differs);
        assert_eq!(did(Kind::Users, Some("one\n"), true), Action::Overwritten);
        assert_eq!(did(Kind::Variables, Some("mine\n"), true), Action::Kept);
        let (_, lines) = action(&item(Kind::Unit), Some("one\nthree\n"), false);
        assert_eq!(lines, ["- three", "+ two"]);
    }
}
