//! From a uid to a user of the API.
//!
//! Names come from `passwd` and `group` files as they are at the time of asking; users of other name
//! services are known by their number.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::request::User;

/// What the kernel shows for users of another user namespace that have no number here. It may stand
/// for anybody, so it stands for nobody.
const OVERFLOW_UID: u32 = 65_534;

/// Knows the users of this machine.
#[derive(Clone, Debug)]
pub(crate) struct UnixUsers {
    passwd: PathBuf,
    group: PathBuf,
    admins: AdminRule,
}

/// Who is an administrator.
#[derive(Clone, Debug)]
pub(crate) struct AdminRule {
    /// The uid that runs the server, which can read its keys anyway. Root always counts.
    pub(crate) server_uid: u32,
    /// Their group.
    pub(crate) group: String,
}

impl UnixUsers {
    /// The users of `/etc/passwd` and `/etc/group`.
    pub(crate) fn new(admins: AdminRule) -> Self {
        Self { passwd: "/etc/passwd".into(), group: "/etc/group".into(), admins }
    }

    /// The user with this uid, or none if the uid means nobody.
    ///
    /// Groups follow from the user, not from the calling process, which may have borrowed a group
    /// from a set-group-id program.
    pub(crate) fn find(&self, uid: u32) -> Option<User> {
        if uid == OVERFLOW_UID {
            return None;
        }
        let (name, gid) = passwd_entry(&read(&self.passwd), uid).unzip();
        // As sudo writes numbers; no name starts so.
        let name = name.unwrap_or_else(|| format!("#{uid}"));
        let mut groups = vec!["unix".to_owned()];
        if let Some(gid) = gid {
            let group = group_name(&read(&self.group), gid).unwrap_or_else(|| format!("#{gid}"));
            groups.push(format!("unix:{group}"));
        }
        if uid == 0 || uid == self.admins.server_uid {
            groups.push(self.admins.group.clone());
        }
        let name = format!("unix:{name}");
        Some(User { name, uid: uid.to_string(), groups, ..User::default() })
    }
}

/// A file that is not there knows nobody.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Name and primary group of the first line `name:password:uid:gid:…` for `uid`.
fn passwd_entry(passwd: &str, uid: u32) -> Option<(String, u32)> {
    passwd.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
        [name, _, number, gid, ..] if is_name(name) && number.parse() == Ok(uid) => {
            Some(((*name).to_owned(), gid.parse().ok()?))
        }
        _ => None,
    })
}

/// The name in the first line `name:password:gid:…` for `gid`.
fn group_name(group: &str, gid: u32) -> Option<String> {
    group.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
        [name, _, number, ..] if is_name(name) && number.parse() == Ok(gid) => {
            Some((*name).to_owned())
        }
        _ => None,
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uid: u32, expected: Option<(&str, &[&str])>) {
        let dir = tempfile::tempdir().unwrap();
        let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
        fs::write(
            &passwd,
            "# users\nroot:x:0:0:root:/root:/bin/sh\nbroken\n:x:1000:1::\nalice:x:1000:50::/:\n\
            alias:x:1000:1000::/:\nwaybill:x:990:990::/:\n",
        )
        .unwrap();
        fs::write(&group, "root:x:0:\nstaff:x:50:alice\n").unwrap();
        let admins = AdminRule { server_uid: 990, group: "system:masters".into() };
        let found = UnixUsers { passwd, group, admins }.find(uid);
        let found = found.map(|user| {
            assert_eq!(user.uid, uid.to_string());
            (user.name, user.groups)
        });
        let expected = expected.map(|(name, groups)| {
            (name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn users_are_named_and_administrators_are_few() {
        check(0, Some(("unix:root", &["unix", "unix:root", "system:masters"])));
        check(990, Some(("unix:waybill", &["unix", "unix:#990", "system:masters"])));
        check(1000, Some(("unix:alice", &["unix", "unix:staff"])));
        check(4242, Some(("unix:#4242", &["unix"])));
        check(65_534, None);
    }
}
