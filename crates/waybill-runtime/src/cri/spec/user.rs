//! As whom a container runs: the request or the image says a number or a name, and `/etc/passwd` and
//! `/etc/group` of the image say the rest.

use waybill_proto::cri::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};

use crate::cri::error::{CriError, Result};

/// User, groups and home directory of a container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The primary group first: a process that lacked it could not be refused by it.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

/// Resolves the user of the request, or else the image's. `passwd` and `group` are the content of
/// the image's files, empty if it has none.
pub(crate) fn resolve(
    context: &LinuxContainerSecurityContext,
    image_user: &str,
    passwd: &str,
    group: &str,
) -> Result<User> {
    let (who, group_wanted) = wanted(context, image_user)?;
    let account = accounts(passwd).find(|account| who.is(account));
    let uid = match (&who, &account) {
        (_, Some(account)) => account.uid,
        (Who::Number(uid), None) => *uid,
        (Who::Name(name), None) => {
            let reason = format!("user {name:?} is not in the image's /etc/passwd");
            return Err(CriError::invalid(reason));
        }
    };
    let gid = match group_wanted {
        Some(Who::Number(gid)) => gid,
        Some(Who::Name(name)) => group_by_name(group, &name)?,
        None => account.as_ref().map_or(0, |account| account.gid),
    };
    let mut groups = vec![gid];
    if context.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge {
        let name = account.as_ref().map(|account| account.name);
        groups.extend(name.iter().flat_map(|name| memberships(group, name)));
    }
    for &id in &context.supplemental_groups {
        groups.push(number(id, "supplemental_groups")?);
    }
    let mut seen = Vec::with_capacity(groups.len());
    groups.retain(|id| {
        !seen.contains(id) && {
            seen.push(*id);
            true
        }
    });
    let home = account.map_or("", |account| account.home);
    Ok(User { uid, gid, groups, home: if home.is_empty() { "/" } else { home }.to_owned() })
}

/// A user or a group, as somebody named it.
enum Who {
    Number(u32),
    Name(String),
}

impl Who {
    fn parse(text: &str) -> Self {
        match id(text) {
            Some(number) => Self::Number(number),
            None => Self::Name(text.to_owned()),
        }
    }

    fn is(&self, account: &Account<'_>) -> bool {
        match self {
            Self::Number(uid) => account.uid == *uid,
            Self::Name(name) => account.name == name,
        }
    }
}

/// User and, if given, group, from the request or else the image.
fn wanted(context: &LinuxContainerSecurityContext, image_user: &str) -> Result<(Who, Option<Who>)> {
    let uid = context.run_as_user.as_ref().map(|uid| uid.value);
    let gid = context.run_as_group.as_ref().map(|gid| gid.value);
    let group = gid.map(|gid| number(gid, "run_as_group")).transpose()?.map(Who::Number);
    let name = context.run_as_username.as_str();
    match (uid, name) {
        (Some(_), name) if !name.is_empty() => {
            Err(CriError::invalid("run_as_user and run_as_username exclude each other"))
        }
        (Some(uid), _) => Ok((Who::Number(number(uid, "run_as_user")?), group)),
        (None, "") if group.is_some() => {
            Err(CriError::invalid("run_as_group needs run_as_user or run_as_username"))
        }
        (None, "") => Ok(image_user_and_group(image_user)),
        (None, name) => Ok((Who::Name(name.to_owned()), group)),
    }
}

/// `user`, `uid`, `user:group` and so on, as image configurations have it.
fn image_user_and_group(text: &str) -> (Who, Option<Who>) {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let who = if user.is_empty() { Who::Number(0) } else { Who::parse(user) };
    (who, (!group.is_empty()).then(|| Who::parse(group)))
}

/// A number of a user or group, as images have it.
///
/// The kernel takes 2^32 - 1 for "leave it as it is", so that a process with that user would stay root, and be taken for somebody
/// else by whoever asks for one that is not (the class of CVE-2024-40635).
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| i32::try_from(*id).is_ok())
}

/// The kernel takes more, but 2^31 and above are negative in too many programs.
fn number(id: i64, field: &str) -> Result<u32> {
    i32::try_from(id).ok().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
        CriError::invalid(format!("{field}: {id} is not a number from 0 to {}", i32::MAX))
    })
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// The lines of a passwd file that make sense; others are skipped, as libc does.
fn accounts(passwd: &str) -> impl Iterator<Item = Account<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = id(fields.nth(1)?)?;
        let gid = id(fields.next()?)?;
        let home = fields.nth(1).unwrap_or_default();
        Some(Account { name, uid, gid, home })
    })
}

/// Name, number and members of each group.
fn groups(group: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = id(fields.nth(1)?)?;
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

fn group_by_name(group: &str, wanted: &str) -> Result<u32> {
    groups(group).find(|(name, ..)| *name == wanted).map(|(_, gid, _)| gid).ok_or_else(|| {
        CriError::invalid(format!("group {wanted:?} is not in the image's /etc/group"))
    })
}

fn memberships<'a>(group: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    let is_member = move |members: &str| members.split(',').any(|member| member.trim() == user);
    groups(group).filter(move |(.., members)| is_member(members)).map(|(_, gid, _)| gid)
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::Int64Value;

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\n\
                          app:x:1000:1001::/srv/app:/bin/false\nbare:x:1002:1002\n";
    const GROUP: &str = "root:x:0:\napp:x:1001:\nvideo:x:44:app,other\naudio:x:29:app\n";

    fn context() -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext::default()
    }

    fn by_number(uid: i64, gid: Option<i64>) -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext {
            run_as_user: Some(Int64Value { value: uid }),
            run_as_group: gid.map(|value| Int64Value { value }),
            ..context()
        }
    }

    #[track_caller]
    fn check(context: &LinuxContainerSecurityContext, image: &str, expected: (u32, &[u32], &str)) {
        let (uid, groups, home) = expected;
        let user = resolve(context, image, PASSWD, GROUP).unwrap();
        let wanted = User { uid, gid: groups[0], groups: groups.to_vec(), home: home.to_owned() };
        assert_eq!(user, wanted);
    }

    #[track_caller]
    fn refused(context: &LinuxContainerSecurityContext, image: &str, expected: &str) {
        let error = resolve(context, image, PASSWD, GROUP).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn the_image_says_who_unless_the_request_does() {
        check(&context(), "", (0, &[0], "/root"));
        check(&context(), "app", (1000, &[1001, 44, 29], "/srv/app"));
        check(&context(), "1000", (1000, &[1001, 44, 29], "/srv/app"));
        check(&context(), "app:video", (1000, &[44, 29], "/srv/app"));
        check(&context(), "7:8", (7, &[8], "/"));
        check(&context(), "bare", (1002, &[1002], "/"));
        check(&by_number(0, None), "app", (0, &[0], "/root"));
    }

    #[test]
    fn a_number_needs_no_account() {
        check(&by_number(5000, None), "", (5000, &[0], "/"));
        check(&by_number(5000, Some(6000)), "", (5000, &[6000], "/"));
        check(&by_number(1000, Some(6000)), "", (1000, &[6000, 44, 29], "/srv/app"));
    }

    #[test]
    fn a_name_must_stand_in_the_image() {
        let named = LinuxContainerSecurityContext { run_as_username: "app".into(), ..context() };
        check(&named, "root", (1000, &[1001, 44, 29], "/srv/app"));
        let stranger = LinuxContainerSecurityContext { run_as_username: "x".into(), ..context() };
        refused(&stranger, "", "user \"x\" is not in the image's /etc/passwd");
        refused(&context(), "app:nobody", "group \"nobody\" is not in the image's /etc/group");
    }

    #[test]
    fn strict_groups_leave_out_those_of_the_image() {
        let merge = LinuxContainerSecurityContext {
            supplemental_groups: vec![7, 44],
            ..by_number(1000, None)
        };
        check(&merge, "", (1000, &[1001, 44, 29, 7], "/srv/app"));
        let policy = SupplementalGroupsPolicy::Strict.into();
        let strict = LinuxContainerSecurityContext { supplemental_groups_policy: policy, ..merge };
        check(&strict, "", (1000, &[1001, 7, 44], "/srv/app"));
    }

    /// CVE-2024-40635, and with 2^32 - 1 the kernel leaves a process the user that it has, which is root.
    #[test]
    fn an_image_names_nobody_by_a_number_that_is_none() {
        for user in ["4294967295", "4294967296", "2147483648", "-1", "99999999999999999999"] {
            refused(&context(), user, "is not in the image's /etc/passwd");
            refused(&context(), &format!("1:{user}"), "is not in the image's /etc/group");
        }
        let passwd = "evil:x:4294967295:0::/:\nworse:x:1:4294967295::/:\n";
        let group = "evil:x:4294967295:worse\n";
        for user in ["evil", "worse"] {
            assert!(resolve(&context(), user, passwd, group).is_err(), "{user}");
        }
        assert!(resolve(&context(), "1:evil", passwd, group).is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let group_only =
            LinuxContainerSecurityContext { run_as_user: None, ..by_number(0, Some(1)) };
        refused(&group_only, "", "run_as_group needs");
        let both =
            LinuxContainerSecurityContext { run_as_username: "a".into(), ..by_number(0, None) };
        refused(&both, "", "exclude each other");
        refused(&by_number(-1, None), "", "run_as_user: -1 is not a number");
        refused(&by_number(1 << 31, None), "", "run_as_user");
        let groups = LinuxContainerSecurityContext { supplemental_groups: vec![-2], ..context() };
        refused(&groups, "", "supplemental_groups: -2");
    }
}
