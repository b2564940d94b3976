//! From a uid to a user of the API.
//!
//! Names come from `passwd` and `group` files as they are at the time of asking, and for those who are not there
//! from the name services of the machine. Whom nobody knows is known by number, and so is everybody whose name means
//! somebody else: `root` is user 0, and names of the files belong to whom the files give them first.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tracing::warn;

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
        let known = read(&self.passwd);
        if let Some(found) = passwd_entry(&known, uid) {
            return Ok(Some(found));
        }
        let line = self.others.line(Database::Passwd, uid).await?;
        let found = line.and_then(|line| passwd_entry(&line, uid));
        Ok(found.filter(|(name, _)| is_free(&known, name, uid, Database::Passwd)))
    }

    async fn group(&self, gid: u32) -> Result<Option<String>, NameServiceError> {
        let known = read(&self.group);
        if let Some(found) = group_name(&known, gid) {
            return Ok(Some(found));
        }
        let line = self.others.line(Database::Group, gid).await?;
        let found = line.and_then(|line| group_name(&line, gid));
        Ok(found.filter(|name| is_free(&known, name, gid, Database::Group)))
    }
}

/// A file that is not there knows nobody.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Name and primary group of the first line `name:password:uid:gid:…` for `uid`.
fn passwd_entry(passwd: &str, uid: u32) -> Option<(String, u32)> {
    passwd.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
        [name, _, number, gid, ..] if is_entry(passwd, name, number, uid) => {
            Some(((*name).to_owned(), gid.parse().ok()?))
        }
        _ => None,
    })
}

/// The name in the first line `name:password:gid:…` for `gid`.
fn group_name(group: &str, gid: u32) -> Option<String> {
    group.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
        [name, _, number, ..] if is_entry(group, name, number, gid) => Some((*name).to_owned()),
        _ => None,
    })
}

/// Whether a line is that of `id`, and its name means no other.
fn is_entry(file: &str, name: &str, number: &str, id: u32) -> bool {
    number.parse() == Ok(id) && is_name(name) && owner(file, name) == Some(id)
}

/// Whether a name of a service means nobody in the file.
fn is_free(file: &str, name: &str, id: u32, database: Database) -> bool {
    let free = owner(file, name).is_none_or(|owner| owner == id);
    if !free {
        warn!(%database, id, name, "a name service calls somebody as the files call another");
    }
    free
}

/// Whom a name means: user and group 0 if it is `root`, else the first who has it.
fn owner(file: &str, name: &str) -> Option<u32> {
    if name == "root" {
        return Some(0);
    }
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name);
        fields.nth(1).filter(|_| found)?.parse().ok()
    })
}

/// Directories know names with blanks and `@` in them; none that would confuse a log, and none that was not text, of which
/// many look alike.
fn is_name(text: &str) -> bool {
    let confuses = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'..='\u{ffff}')
    };
    !text.is_empty() && text.trim() == text && !text.starts_with('#') && !text.contains(confuses)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What a directory service knows besides the files.
    const GETENT: &str = "#!/bin/sh
case \"$*\" in
    'passwd 5001' | 'passwd carol@example.com') echo 'carol@example.com:*:5001:60::/home/carol:/bin/sh' ;;
    'passwd 5002' | 'passwd mallory') echo 'mallory:*:0:0::/:' ;;
    'passwd 5003' | 'passwd #0') echo '#0:*:5003:0::/:' ;;
    'group 60' | 'group domain users') echo 'domain users:*:60:' ;;
    'passwd 5004') exit 3 ;;
    # A service that stands before the files, and agrees with itself.
    'passwd 5010' | 'passwd root') echo 'root:*:5010:60::/:' ;;
    'passwd 5011' | 'passwd alice') echo 'alice:*:5011:60::/:' ;;
    'passwd 5012' | 'passwd toor') echo 'toor:*:5012:60::/:' ;;
    'passwd 5013' | 'passwd Root') echo 'Root:*:5013:61::/:' ;;
    'group 61' | 'group staff') echo 'staff:*:61:' ;;
    'passwd 5014') printf 'a\\033[2Jb:*:5014:60::/:\\n' ;;
    'passwd 5015') printf 'a\\377b:*:5015:60::/:\\n' ;;
    'passwd 5016' | 'passwd eve ') echo 'eve :*:5016:60::/:' ;;
    'passwd 5017') echo ':*:5017:60::/:' ;;
    'passwd 5018' | 'passwd carol@example.com') echo 'carol@example.com:*:5018:60::/:' ;;
    *) exit 2 ;;
esac
";

    /// `Err` if nobody can say who it is.
    async fn check(uid: u32, expected: Result<Option<(&str, &[&str])>, ()>) {
        let dir = tempfile::tempdir().unwrap();
        let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
        fs::write(
            &passwd,
            "# users\nroot:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\nbroken\n:x:1000:1::\nalice:x:1000:50::/:\n\
            alias:x:1000:1000::/:\nwaybill:x:990:990::/:\nalice:x:1001:50::/:\nroot:x:1002:50::/:\n",
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

    /// Hole: a directory that called another user `root` made them `unix:root`.
    #[tokio::test]
    async fn a_name_that_means_somebody_here_is_theirs_alone() {
        check(5010, Ok(Some(("unix:#5010", &["unix"])))).await;
        check(5011, Ok(Some(("unix:#5011", &["unix"])))).await;
        // One of the names of user 0, who is known by the first.
        check(5012, Ok(Some(("unix:#5012", &["unix"])))).await;
        // Names are compared letter by letter, as RBAC does it. The group is not that of the files.
        check(5013, Ok(Some(("unix:Root", &["unix", "unix:#61"])))).await;
        // Two of a directory with one name: it means the first.
        check(5018, Ok(Some(("unix:#5018", &["unix"])))).await;
    }

    /// One name for several numbers means the first; `root` means 0.
    #[tokio::test]
    async fn files_make_nobody_somebody_else() {
        check(1001, Ok(Some(("unix:#1001", &["unix"])))).await;
        check(1002, Ok(Some(("unix:#1002", &["unix"])))).await;
        assert_eq!(passwd_entry("root:x:1:1::/:\n", 1), None, "even if nobody else is root");
        assert_eq!(group_name("sudo:x:27:\nsudo:x:28:\n", 28), None);
        assert_eq!(passwd_entry("toor:x:0:0::/:\nroot:x:0:0::/:", 0), Some(("toor".into(), 0)));
    }

    #[tokio::test]
    async fn names_that_would_confuse_a_log_or_another_user_are_none() {
        for uid in 5014..=5017 {
            check(uid, Ok(Some((&format!("unix:#{uid}"), &["unix"])))).await;
        }
        assert!(!is_name("a\u{202e}b") && !is_name("a\nb") && !is_name(""));
        // The prefix keeps it apart from the names of the system.
        assert!(is_name("system") && is_name("domain users") && is_name("müller"));
    }
}
