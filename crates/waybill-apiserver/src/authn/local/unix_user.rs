//! From a uid to a user of the API.
//!
//! Names come from `passwd` and `group` files as they are at the time of asking, and for those who are not there
//! from the name services of the machine. Whom nobody knows is known by number.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::name_service::{Database, NameService, NameServiceError};
use crate::request::User;

/// What the kernel shows for users of another user namespace that have no number here. It may stand
/// for anybody, so it stands for nobody.
const OVERFLOW_UID: u32 = 65_534;

/// Knows the users of this machine.
#[derive(Debug)]
pub(crate) struct UnixUsers {
    passwd: PathBuf,
    group: PathBuf,
    others: NameService,
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
    /// The users of `/etc/passwd` and `/etc/group`, and those of the name services.
    pub(crate) fn new(admins: AdminRule) -> Self {
        Self {
            passwd: "/etc/passwd".into(),
            group: "/etc/group".into(),
            others: NameService::new(),
            admins,
        }
    }

    /// The user with this uid, or none if the uid means nobody.
    ///
    /// Groups follow from the user, not from the calling process, which may have borrowed a group
    /// from a set-group-id program.
    pub(crate) async fn find(&self, uid: u32) -> Result<Option<User>, NameServiceError> {
        if uid == OVERFLOW_UID {
            return Ok(None);
        }
        let (name, gid) = self.user(uid).await?.unzip();
        // As sudo writes numbers; no name starts so.
        let name = name.unwrap_or_else(|| format!("#{uid}"));
        let mut groups = vec!["unix".to_owned()];
        if let Some(gid) = gid {
            let group = self.group(gid).await?.unwrap_or_else(|| format!("#{gid}"));
            groups.push(format!("unix:{group}"));
        }
        if uid == 0 || uid == self.admins.server_uid {
            groups.push(self.admins.group.clone());
        }
        let name = format!("unix:{name}");
        Ok(Some(User { name, uid: uid.to_string(), groups, ..User::default() }))
    }

    /// Name and primary group.
    async fn user(&self, uid: u32) -> Result<Option<(String, u32)>, NameServiceError> {
        if let Some(found) = passwd_entry(&read(&self.passwd), uid) {
            return Ok(Some(found));
        }
        let line = self.others.line(Database::Passwd, uid).await?;
        Ok(line.and_then(|line| passwd_entry(&line, uid)))
    }

    async fn group(&self, gid: u32) -> Result<Option<String>, NameServiceError> {
        if let Some(found) = group_name(&read(&self.group), gid) {
            return Ok(Some(found));
        }
        let line = self.others.line(Database::Group, gid).await?;
        Ok(line.and_then(|line| group_name(&line, gid)))
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

/// Directories know names with blanks and `@` in them; none that would confuse a log.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('#') && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What a directory service knows besides the files.
    const GETENT: &str = "#!/bin/sh
case \"$*\" in
    'passwd 5001') echo 'carol@example.com:*:5001:60::/home/carol:/bin/sh' ;;
    'passwd 5002') echo 'mallory:*:0:0::/:' ;;
    'passwd 5003') echo '#0:*:5003:0::/:' ;;
    'group 60') echo 'domain users:*:60:' ;;
    'passwd 5004') exit 3 ;;
    *) exit 2 ;;
esac
";

    /// `Err` if nobody can say who it is.
    async fn check(uid: u32, expected: Result<Option<(&str, &[&str])>, ()>) {
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
        let getent = dir.path().join("getent");
        fs::write(&getent, GETENT).unwrap();
        fs::set_permissions(&getent, fs::Permissions::from_mode(0o755)).unwrap();
        let others = NameService::with(Some(getent));
        let found = UnixUsers { passwd, group, others, admins }.find(uid).await;
        let found = found.map_err(drop).map(|found| {
            found.map(|user| {
                assert_eq!(user.uid, uid.to_string());
                (user.name, user.groups)
            })
        });
        let expected = expected.map(|expected| {
            expected.map(|(name, groups)| {
                (name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
            })
        });
        assert_eq!(found, expected, "{uid}");
    }

    #[tokio::test]
    async fn users_are_named_and_administrators_are_few() {
        check(0, Ok(Some(("unix:root", &["unix", "unix:root", "system:masters"])))).await;
        check(990, Ok(Some(("unix:waybill", &["unix", "unix:#990", "system:masters"])))).await;
        check(1000, Ok(Some(("unix:alice", &["unix", "unix:staff"])))).await;
        check(4242, Ok(Some(("unix:#4242", &["unix"])))).await;
        check(65_534, Ok(None)).await;
    }

    #[tokio::test]
    async fn users_of_a_directory_are_named_and_its_silence_names_nobody() {
        check(5001, Ok(Some(("unix:carol@example.com", &["unix", "unix:domain users"])))).await;
        check(5004, Err(())).await;
    }

    /// A directory that answers for another number, or with a name that looks like one, is not believed.
    #[tokio::test]
    async fn a_directory_makes_nobody_somebody_else() {
        check(5002, Ok(Some(("unix:#5002", &["unix"])))).await;
        check(5003, Ok(Some(("unix:#5003", &["unix"])))).await;
    }
}
