//! Roles that are taken on with the token of a pod.

use std::time::Duration;

use aws_credential_types::Credentials;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use waybill_core::secret::SecretBytes;

use super::{
    api::AwsApi,
    class::{AwsClass, Service},
};
use crate::{
    driver::{FetchError, PodIdentity, PodToken},
    drivers::sessions::{Identity, Sessions, Timed},
};

/// What every role allows, unless its owner said less.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Longest name of a session.
const SESSION_BYTES: usize = 64;

/// All sessions.
pub(super) type AwsSessions = Sessions<Identity<AwsClass>, Credentials>;

/// Takes on the role of the class.
pub(super) async fn take_on(
    api: &AwsApi<'_>,
    pod: &PodIdentity,
    token: &PodToken,
) -> Result<Timed<Credentials>, FetchError> {
    let role = &api.class.role;
    let what = format!("the web identity of the pod for role {role}");
    let answer = api.form(Service::Sts, form(role, pod, token)?).await;
    let answer = answer.map_err(|error| error.about(&what))?;
    let credentials = str::from_utf8(answer.expose()).ok().and_then(credentials);
    let credentials =
        credentials.ok_or_else(|| FetchError::backend("the answer of STS holds no credentials"))?;
    Ok(Timed::new(credentials, LIFETIME))
}

/// Room for the whole is made first, because a vector that grows leaves copies behind.
fn form(role: &str, pod: &PodIdentity, token: &PodToken) -> Result<SecretBytes, FetchError> {
    let token = str::from_utf8(token.token.expose())
        .map_err(|_| FetchError::invalid("the token of the pod is not text"))?;
    let seconds = LIFETIME.as_secs().to_string();
    let name = session_name(pod);
    let fields = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("DurationSeconds", &seconds),
        ("RoleArn", role),
        ("RoleSessionName", &name),
        ("WebIdentityToken", token),
    ];
    let room = fields.iter().map(|(name, value)| name.len() + 3 * value.len() + 2).sum();
    let mut form = Vec::with_capacity(room);
    for (name, value) in fields {
        if !form.is_empty() {
            form.push(b'&');
        }
        form.extend_from_slice(name.as_bytes());
        form.push(b'=');
        for part in utf8_percent_encode(value, NON_ALPHANUMERIC) {
            form.extend_from_slice(part.as_bytes());
        }
    }
    Ok(form.into())
}

/// What CloudTrail shows: the account. Names of Kubernetes have no other characters than AWS allows here.
fn session_name(pod: &PodIdentity) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "+=,.@-".contains(c) { c } else { '-' };
    let name = format!("{}.{}", pod.namespace, pod.service_account);
    name.chars().map(allowed).take(SESSION_BYTES).collect()
}

fn credentials(answer: &str) -> Option<Credentials> {
    let part = |name| element(answer, name).filter(|text| !text.is_empty());
    Some(Credentials::new(
        part("AccessKeyId")?,
        part("SecretAccessKey")?,
        Some(part("SessionToken")?.to_owned()),
        None,
        "web identity",
    ))
}

/// The text of the first element `name` of an answer. Those that we want hold neither elements nor
/// entities, and are there once, so this is all of XML that we need.
pub(super) fn element<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = answer.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_or_not() {
        let answer = "<A><Code>Denied</Code><Token>a+b/c==\n</Token></A>";
        assert_eq!(element(answer, "Code"), Some("Denied"));
        assert_eq!(element(answer, "Token"), Some("a+b/c=="));
        assert_eq!(element(answer, "Cod"), None);
        assert_eq!(element("<Code>x", "Code"), None);
    }

    #[test]
    fn a_session_has_a_name_that_aws_takes() {
        let pod = |account: &str| PodIdentity {
            namespace: "shop".into(),
            service_account: account.into(),
            name: "p".into(),
            uid: "u".into(),
            node: "n".into(),
        };
        assert_eq!(session_name(&pod("web")), "shop.web");
        assert_eq!(session_name(&pod("a:b")), "shop.a-b");
        assert_eq!(session_name(&pod(&"w".repeat(100))).len(), 64);
    }
}
