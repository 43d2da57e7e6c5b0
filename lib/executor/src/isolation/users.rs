//! Users of a container, looked up in `/etc/passwd` and `/etc/group` of its file system.

use std::fs;
use std::io;
use std::path::Path;

/// User that owns a container's work directory. If the container uses the host's file system, this user also
/// runs its programs. Applications for Cloud Foundry expect this name.
pub(crate) const OWNER: &str = "vcap";
/// Id of [`OWNER`] in the container.
const OWNER_ID: u32 = 2000;
/// Name of the superuser.
const ROOT: &str = "root";

/// User of a container. The ids are the ids inside the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) id: u32,
    pub(super) group: u32,
    /// Supplementary groups.
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

/// Returns the id map for the kernel. It maps the ids of a container to `count` ids of the host, starting
/// with `first`.
pub(super) fn id_map(first: u32, count: u32) -> String {
    format!("0 {first} {count}")
}

/// Finds a user by `NAME` or `ID`. Each form may be followed by `:GROUP`, the name or number of a group.
///
/// `etc` is the folder that contains the files `passwd` and `group`. Numeric ids and root need not be listed
/// in these files.
pub(super) fn find(etc: &Path, wanted: &str) -> io::Result<User> {
    let passwd = fs::read_to_string(etc.join("passwd")).unwrap_or_default();
    let group = fs::read_to_string(etc.join("group")).unwrap_or_default();
    find_in(&passwd, &group, wanted)
}

fn find_in(passwd: &str, groups: &str, wanted: &str) -> io::Result<User> {
    let (name, group) = wanted.split_once(':').map_or((wanted, None), |(name, group)| (name, Some(group)));
    let number: Option<u32> = name.parse().ok();
    let row = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|row| {
        row.len() >= 6
            && (row[0] == name
                || (number.is_some() && row[2].parse().ok() == number && !is_name(passwd, name)))
    });
    let unknown = || io::Error::other(format!("unknown user {name}: not in /etc/passwd of the container"));
    let (id, own_group, home) = match (row, number) {
        (Some(row), _) => (parse_id(row[2])?, parse_id(row[3])?, row[5].to_owned()),
        (None, Some(number)) => (number, 0, "/".to_owned()),
        (None, None) if name == ROOT => (0, 0, "/root".to_owned()),
        (None, None) => return Err(unknown()),
    };
    let known = |row: &&str| row.split(':').count() >= 3;
    let group_id = |row: &str| row.split(':').nth(2).map_or(Ok(0), parse_id);
    let group = match group {
        None => own_group,
        Some(group) => match groups.lines().filter(known).find(|row| row.split(':').next() == Some(group)) {
            Some(row) => group_id(row)?,
            None => group.parse().map_err(|_| {
                io::Error::other(format!("unknown group {group}: not in /etc/group of the container"))
            })?,
        },
    };
    let member =
        |row: &&str| row.split(':').nth(3).is_some_and(|members| members.split(',').any(|one| one == name));
    let others: io::Result<Vec<u32>> = groups.lines().filter(known).filter(member).map(group_id).collect();
    Ok(User { id, group, groups: others?, home })
}

fn is_name(passwd: &str, name: &str) -> bool {
    passwd.lines().any(|line| line.split(':').next() == Some(name))
}

fn parse_id(text: &str) -> io::Result<u32> {
    text.parse()
        .map_err(|_| io::Error::other(format!("invalid user or group id {text:?}: expected a number")))
}

/// Adds the owner of work directories to the contents of the host's files `passwd` and `group`. An existing
/// user with the same name is replaced. Its id differs from the owner's id, and no container uses it.
pub(super) fn add_owner(passwd: &str, group: &str) -> (String, String) {
    let with = |text: &str, owner: String| {
        let others = text.lines().filter(|line| line.split(':').next() != Some(OWNER));
        others.map(str::to_owned).chain([owner]).fold(String::new(), |all, line| all + &line + "\n")
    };
    let home = super::WORK_DIR;
    (
        with(passwd, format!("{OWNER}:x:{OWNER_ID}:{OWNER_ID}::{home}:/bin/sh")),
        with(group, format!("{OWNER}:x:{OWNER_ID}:")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33:www:/var/www:/x\n77:x:900:901::/n:/x\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:www-data,other\nwww-data:x:33:\ntape:x:26:www-data\n";

    #[test]
    fn user_is_found_by_name_and_by_number() {
        let found = |wanted: &str| {
            let user = find_in(PASSWD, GROUP, wanted).unwrap();
            (user.id, user.group, user.groups, user.home)
        };
        assert_eq!(found("www-data"), (33, 33, vec![4, 26], "/var/www".into()));
        assert_eq!(found("www-data:adm"), (33, 4, vec![4, 26], "/var/www".into()));
        assert_eq!(found("33:26").0, 33);
        assert_eq!(found("33:26").1, 26);
        assert_eq!(found("1234"), (1234, 0, vec![], "/".into()));
        assert_eq!(found("1234:99").1, 99);
        assert_eq!(found("77").0, 900, "a user name may consist of digits");
        assert_eq!(find_in("", "", "root").unwrap().id, 0);
    }

    #[test]
    fn unknown_user_or_group_error_names_it() {
        let said = |wanted: &str| find_in(PASSWD, GROUP, wanted).unwrap_err().to_string();
        assert_eq!(said("vcap"), "unknown user vcap: not in /etc/passwd of the container");
        assert_eq!(said("root:vcap"), "unknown group vcap: not in /etc/group of the container");
        let odd = find_in("odd:x:many:0::/:/x\n", "", "odd").unwrap_err().to_string();
        assert_eq!(odd, "invalid user or group id \"many\": expected a number");
    }

    #[test]
    fn owner_of_work_directories_is_always_defined() {
        let (passwd, group) = add_owner("root:x:0:0::/root:/bin/sh\nvcap:x:7:7::/:/x", GROUP);
        let owner = find_in(&passwd, &group, OWNER).unwrap();
        assert_eq!((owner.id, owner.group, owner.home.as_str()), (2000, 2000, "/home/vcap"));
        assert_eq!(find_in(&passwd, &group, "root").unwrap().id, 0);
    }
}
