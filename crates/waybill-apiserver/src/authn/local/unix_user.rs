//! From a uid to a user of the API.
//!
//! Names come from `passwd` and `group` files as they are at the time of asking; users of other name
//! services are known by their number.

use std::{fs, path::PathBuf};

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
    /// `gid` is the group of the calling process.
    pub(crate) fn find(&self, uid: u32, gid: u32) -> Option<User> {
        if uid == OVERFLOW_UID {
            return None;
        }
        let name = name_of(&self.passwd, uid).unwrap_or_else(|| uid.to_string());
        let group = name_of(&self.group, gid).unwrap_or_else(|| gid.to_string());
        let mut groups = vec!["unix".to_owned(), format!("unix:{group}")];
        if uid == 0 || uid == self.admins.server_uid {
            groups.push(self.admins.group.clone());
        }
        let name = format!("unix:{name}");
        Some(User { name, uid: uid.to_string(), groups, ..User::default() })
    }
}

/// The first name with number `id`: both files are `name:password:id:…`.
fn name_of(path: &PathBuf, id: u32) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
        let number: u32 = columns.nth(1)?.parse().ok()?;
        (number == id).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uid: u32, gid: u32, expected: Option<(&str, &[&str])>) {
        let dir = tempfile::tempdir().unwrap();
        let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
        fs::write(
            &passwd,
            "# users\nroot:x:0:0:root:/root:/bin/sh\nbroken\n:x:1000:1::\nalice:x:1000:1000::/:\n\
            alias:x:1000:1000::/:\nwaybill:x:990:990::/:\n",
        )
        .unwrap();
        fs::write(&group, "root:x:0:\nstaff:x:50:alice\n").unwrap();
        let admins = AdminRule { server_uid: 990, group: "system:masters".into() };
        let found = UnixUsers { passwd, group, admins }.find(uid, gid);
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
        check(0, 0, Some(("unix:root", &["unix", "unix:root", "system:masters"])));
        check(990, 50, Some(("unix:waybill", &["unix", "unix:staff", "system:masters"])));
        check(1000, 50, Some(("unix:alice", &["unix", "unix:staff"])));
        check(4242, 4243, Some(("unix:4242", &["unix", "unix:4243"])));
        check(65_534, 0, None);
    }
}
