//! Users that a front proxy vouches for, in `X-Remote-*` headers.
//!
//! The headers count only from a peer whose certificate an authority of front proxies signed. The
//! same peers may choose audit ids (OP-11).

use http::{HeaderMap, HeaderName};

use super::certificate::CertificateIdentity;
use crate::request::User;

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// The common names of front proxies that are believed, and what those call the headers; for servers beside this one.
pub(crate) const PROXY_NAMES: &[&str] = &["front-proxy-client"];
pub(crate) const USER_HEADER: &str = "X-Remote-User";
pub(crate) const UID_HEADER: &str = "X-Remote-Uid";
pub(crate) const GROUP_HEADER: &str = "X-Remote-Group";
pub(crate) const EXTRA_HEADERS: &str = "X-Remote-Extra-";

/// Which certificates of the front proxy authority are front proxies.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyNames(Vec<String>);

impl ProxyNames {
    /// Common names that are accepted; none means all, as upstream. List them when the authority
    /// signs for others too.
    pub(crate) fn new(allowed: Vec<String>) -> Self {
        Self(allowed)
    }

    pub(super) fn allow(&self, identity: &CertificateIdentity) -> bool {
        self.0.is_empty() || self.0.contains(&identity.common_name)
    }
}

/// The user that a trusted proxy names, if it names one.
pub(super) fn user(headers: &HeaderMap) -> Option<User> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let name = text(USER).map(str::trim).filter(|name| !name.is_empty())?;
    let values = headers.get_all(GROUP).iter().filter_map(|value| value.to_str().ok());
    let mut user = User {
        name: name.to_owned(),
        uid: text(UID).unwrap_or_default().to_owned(),
        groups: values.filter(|group| !group.is_empty()).map(str::to_owned).collect(),
        ..User::default()
    };
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA_PREFIX), value.to_str()) {
            user.extra.entry(unescape(key)).or_default().push(value.to_owned());
        }
    }
    Some(user)
}

/// Removes everything that says who somebody is, so that nothing behind authentication sees it.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let remote = |name: &&HeaderName| name.as_str().starts_with("x-remote-");
    let names: Vec<HeaderName> = headers.keys().filter(remote).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    headers.remove(http::header::AUTHORIZATION);
}

/// Undoes percent-encoding; a key that is not properly encoded stays as it is, as upstream.
pub(super) fn unescape(key: &str) -> String {
    decode(key.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or(key.to_owned())
}

fn decode(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            decoded.push(*first);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::try_from(*name).unwrap(), (*value).try_into().unwrap())
        });
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append::<HeaderName>(name, value);
        }
        headers
    }

    #[test]
    fn others_are_told_of_the_headers_that_count_here() {
        let told = [USER_HEADER, UID_HEADER, GROUP_HEADER, EXTRA_HEADERS];
        assert_eq!(told.map(str::to_lowercase), [USER, UID, GROUP, EXTRA_PREFIX]);
    }

    #[test]
    fn headers_name_the_user() {
        let headers = headers(&[
            ("X-Remote-User", "alice"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", "ops"),
            ("X-Remote-Extra-Acme.com%2Fproject", "a"),
            ("X-Remote-Extra-Acme.com%2Fproject", "b"),
            ("X-Remote-Extra-bad%zz", "c"),
        ]);
        let extra = BTreeMap::from([
            ("acme.com/project".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("bad%zz".to_owned(), vec!["c".to_owned()]),
        ]);
        let groups = vec!["dev".to_owned(), "ops".to_owned()];
        let expected = User { name: "alice".into(), uid: "7".into(), groups, extra };
        assert_eq!(user(&headers), Some(expected));
    }

    #[test]
    fn without_a_name_there_is_no_user() {
        assert_eq!(user(&headers(&[("X-Remote-Group", "system:masters")])), None);
        assert_eq!(user(&headers(&[("X-Remote-User", " ")])), None);
    }

    #[test]
    fn credentials_are_stripped() {
        let mut headers = headers(&[
            ("X-Remote-User", "alice"),
            ("X-Remote-Extra-a", "b"),
            ("Authorization", "Bearer x"),
            ("Accept", "*/*"),
        ]);
        strip(&mut headers);
        assert_eq!(headers.len(), 1);
    }
}
