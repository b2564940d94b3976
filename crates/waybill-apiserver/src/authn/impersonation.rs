//! Acting as somebody else, by `Impersonate-*` headers.
//!
//! Here the headers are read. Whether the caller may be all that they ask to be is for authorization: each
//! part is a thing that somebody needs the verb `impersonate` on.

use http::{HeaderMap, HeaderName};

use super::{among_all, anonymous, front_proxy::unescape};
use crate::request::{Action, ResourceTarget, Target, User};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Somebody whom a caller wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Impersonation {
    pub(crate) user: User,
    /// What the caller must be allowed, all of it.
    pub(crate) needs: Vec<Action>,
}

/// Whom the headers ask for; `None` if they ask for nobody.
pub(crate) fn asked_for(headers: &HeaderMap) -> Result<Option<Impersonation>, ImpersonationError> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let name = text(headers, USER)?.ok_or(ImpersonationError::NoUser)?;
    let uid = text(headers, UID)?.unwrap_or_default();
    let groups = all(headers, &HeaderName::from_static(GROUP))?;
    let mut user = User { name, uid, groups, ..User::default() };
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            user.extra.insert(unescape(key), all(headers, name)?);
        }
    }
    let needs = needs(&user);
    Ok(Some(Impersonation { user: completed(user), needs }))
}

/// What is asked for, thing by thing.
fn needs(user: &User) -> Vec<Action> {
    const CORE: &str = "";
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let mut needs = vec![match service_account(&user.name) {
        Some((namespace, name)) => impersonate(CORE, "serviceaccounts", "", namespace, name),
        None => impersonate(CORE, "users", "", "", &user.name),
    }];
    needs.extend(user.groups.iter().map(|group| impersonate(CORE, "groups", "", "", group)));
    for (key, values) in &user.extra {
        let need = |value: &String| impersonate(AUTHENTICATION, "userextras", key, "", value);
        needs.extend(values.iter().map(need));
    }
    if !user.uid.is_empty() {
        needs.push(impersonate(AUTHENTICATION, "uids", "", "", &user.uid));
    }
    needs
}

fn impersonate(
    group: &str,
    resource: &str,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Action {
    let target = ResourceTarget {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Action { verb: "impersonate".to_owned(), target: Target::Resource(target) }
}

/// With the groups that go without saying, as if they had come by themselves.
fn completed(mut user: User) -> User {
    if user.name == anonymous::NAME {
        let all = anonymous::user().groups;
        user.groups.extend(all);
        return user;
    }
    if let (Some((namespace, _)), []) = (service_account(&user.name), user.groups.as_slice()) {
        user.groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    among_all(user)
}

fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

fn text(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, ImpersonationError> {
    let values = all(headers, &HeaderName::from_static(name))?;
    match <[String; 1]>::try_from(values) {
        Ok([value]) => Ok(Some(value)),
        Err(values) if values.is_empty() => Ok(None),
        Err(_) => Err(ImpersonationError::Repeated { name }),
    }
}

/// The values that are not empty.
fn all(headers: &HeaderMap, name: &HeaderName) -> Result<Vec<String>, ImpersonationError> {
    let mut values = Vec::new();
    for value in headers.get_all(name) {
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| ImpersonationError::NoText { name: name.to_string() })?;
        if !value.is_empty() {
            values.push(value.to_owned());
        }
    }
    Ok(values)
}

/// Why nobody can be acted for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImpersonationError {
    #[error("a group, uid or extra is to be impersonated and no user; send Impersonate-User too")]
    NoUser,
    #[error("the header {name} must be sent once")]
    Repeated { name: &'static str },
    #[error("the header {name} is not UTF-8")]
    NoText { name: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn asked(pairs: &[(&str, &str)]) -> Impersonation {
        asked_for(&headers(pairs)).unwrap().unwrap()
    }

    fn needed(impersonation: &Impersonation) -> Vec<String> {
        let told = |action: &Action| match &action.target {
            Target::Resource(it) => {
                format!(
                    "{}/{}/{}/{}/{}",
                    it.group, it.resource, it.subresource, it.namespace, it.name
                )
            }
            Target::Path(path) => path.clone(),
        };
        impersonation.needs.iter().map(told).collect()
    }

    #[test]
    fn without_headers_nobody_is_acted_for() {
        assert_eq!(asked_for(&headers(&[("accept", "x")])), Ok(None));
    }

    #[test]
    fn each_part_of_another_user_is_needed() {
        let anna = asked(&[
            ("Impersonate-User", "anna"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Example.com%2fproject", "a"),
        ]);
        assert_eq!(anna.user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(anna.user.extra["example.com/project"], ["a"]);
        assert_eq!(
            needed(&anna),
            [
                "/users///anna",
                "/groups///dev",
                "/groups///ops",
                "authentication.k8s.io/userextras/example.com/project//a",
                "authentication.k8s.io/uids///7",
            ]
        );
    }

    #[test]
    fn a_service_account_is_needed_as_one_and_has_its_groups() {
        let account = asked(&[("Impersonate-User", "system:serviceaccount:shop:web")]);
        assert_eq!(needed(&account), ["/serviceaccounts//shop/web"]);
        let groups =
            ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
        assert_eq!(account.user.groups, groups);
        let odd = asked(&[("Impersonate-User", "system:serviceaccount:shop")]);
        assert_eq!(needed(&odd), ["/users///system:serviceaccount:shop"]);
    }

    #[test]
    fn somebody_anonymous_is_not_authenticated() {
        let nobody = asked(&[("Impersonate-User", "system:anonymous")]);
        assert_eq!(nobody.user.groups, ["system:unauthenticated"]);
    }

    #[test]
    fn a_group_alone_or_two_users_are_an_error() {
        for group in [("Impersonate-Group", "system:masters"), ("Impersonate-Extra-a", "b")] {
            assert_eq!(asked_for(&headers(&[group])), Err(ImpersonationError::NoUser));
        }
        let empty = headers(&[("Impersonate-User", ""), ("Impersonate-Group", "x")]);
        assert_eq!(asked_for(&empty), Err(ImpersonationError::NoUser));
        let two = headers(&[("Impersonate-User", "a"), ("Impersonate-User", "b")]);
        assert!(matches!(asked_for(&two), Err(ImpersonationError::Repeated { .. })));
    }
}
