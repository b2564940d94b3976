//! Where a backend is, and paths below it.

use std::net::IpAddr;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::reach::{Reach, is_off_limits};
use crate::driver::{Call, FetchError};

/// All but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parameter of a class that lets credentials and values pass in the clear.
const ALLOW_PLAIN_HTTP: &str = "allowPlainHTTP";

/// The address of a backend: `https://host[:port][/path]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(String);

impl Address {
    /// Reads the parameter `name` of a class, whose value is `raw`.
    ///
    /// Without TLS anybody on the way could read values and keep the pod's token, so `http` is for
    /// this machine alone, or for a class that says so.
    pub(crate) fn parse(call: &Call, name: &str, raw: &str) -> Result<Self, FetchError> {
        let wrong = |what: &str| {
            let class = &call.class;
            FetchError::invalid(format!("parameter {name} of ProviderClass {class:?} {what}"))
        };
        let not_one = || wrong("is not an address like https://backend.example.com:8200");
        let uri: Uri = raw.parse().map_err(|_| not_one())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(not_one());
        };
        if authority.as_str().contains('@') || uri.query().is_some() || raw.contains('#') {
            return Err(wrong("must be an address without user, query or fragment"));
        }
        let allowed = || call.parameter(ALLOW_PLAIN_HTTP) == Some("true");
        match scheme {
            "https" => {}
            "http" if is_this_machine(authority.host()) || allowed() => {}
            "http" => {
                return Err(wrong(
                    "is not https; values would travel in the clear, which only allowPlainHTTP: \
                     \"true\" allows",
                ));
            }
            _ => return Err(not_one()),
        }
        Ok(Self(format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'))))
    }

    /// Whether this is how it was written.
    #[cfg(feature = "aws")]
    pub(crate) fn is(&self, raw: &str) -> bool {
        self.0 == raw
    }

    /// Scheme, host and port, written in one way.
    fn origin(&self) -> Option<String> {
        origin(&self.0)
    }

    /// Where a cloud answers questions of its machines. Nothing leaves the machine's own link on the way.
    #[cfg(feature = "metadata")]
    pub(crate) fn of_metadata() -> Self {
        Self("http://169.254.169.254".into())
    }

    /// The resource at `path`, every segment of it encoded, with a query.
    pub(crate) fn join(&self, path: &str, query: &[(&str, &str)]) -> Result<Uri, FetchError> {
        let segments = path.split('/').map(|segment| utf8_percent_encode(segment, RESERVED));
        let mut text = self.0.clone();
        for segment in segments {
            text.push('/');
            text.extend(segment);
        }
        for (at, (name, value)) in query.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.extend(utf8_percent_encode(name, RESERVED));
            text.push('=');
            text.extend(utf8_percent_encode(value, RESERVED));
        }
        text.parse().map_err(|_| FetchError::invalid("the key is too long for a URL"))
    }
}

/// Where a driver sends tokens and credentials, whatever classes say: with `https` to other machines, or where the
/// owner of the node says.
///
/// Whoever may change a class may change where tokens of its pods go, and what a driver asks on the node's behalf,
/// so the owner of the node can name the addresses. Nobody else can send a driver to what listens on the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedAddresses(Vec<String>);

impl AllowedAddresses {
    /// Only these: `https://host[:port]`. Paths do not count. None means that nobody has named any.
    pub fn only<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Self, NotAnAddress> {
        let origins = addresses.into_iter().map(|raw| {
            let uri: Option<Uri> = raw.parse().ok();
            let is_plain =
                uri.is_some_and(|uri| uri.query().is_none() && !raw.contains(['@', '#']));
            let origin = origin(raw).filter(|_| is_plain);
            origin.ok_or_else(|| NotAnAddress { raw: raw.to_owned() })
        });
        Ok(Self(origins.collect::<Result<_, _>>()?))
    }

    /// Refuses an address that is not on the list.
    pub(crate) fn check(&self, address: &Address) -> Result<(), FetchError> {
        let origin = address.origin().unwrap_or_default();
        let why = match self.reach() {
            Reach::Anywhere if self.0.contains(&origin) => return Ok(()),
            Reach::Anywhere => "",
            Reach::Elsewhere if is_this_link(address) => ": it is this machine or its link",
            Reach::Elsewhere if !origin.starts_with("https:") => ": it is not https",
            Reach::Elsewhere => return Ok(()),
        };
        Err(FetchError::denied(format!(
            "this driver sends nothing to {origin}{why}; the owner of the node allows it with \
             --allow-address"
        )))
    }

    /// How far names may lead.
    pub(super) fn reach(&self) -> Reach {
        if self.0.is_empty() { Reach::Elsewhere } else { Reach::Anywhere }
    }
}

/// Not what a driver can be limited to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{raw:?} is not an address like https://backend.example.com:8200")]
pub struct NotAnAddress {
    raw: String,
}

fn origin(raw: &str) -> Option<String> {
    let uri: Uri = raw.parse().ok()?;
    let default = match uri.scheme_str()? {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let (scheme, host) = (uri.scheme_str()?, uri.host()?.to_ascii_lowercase());
    Some(format!("{scheme}://{host}:{}", uri.port_u16().unwrap_or(default)))
}

/// Whether `path` is what it says: no empty segment and none that leads elsewhere, so that what an
/// allow-list was compared with is what the backend reads.
pub(crate) fn is_plain_path(path: &str) -> bool {
    path.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
        && !path.contains(|c: char| c.is_control() || matches!(c, '%' | '?' | '#' | '\\'))
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || literal(host).is_some_and(|address| address.is_loopback())
}

/// Names are followed when they are looked up.
fn is_this_link(address: &Address) -> bool {
    let uri: Option<Uri> = address.0.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    is_this_machine(&host.to_ascii_lowercase()) || literal(host).is_some_and(is_off_limits)
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::driver::PodIdentity;

    fn call(parameters: &[(&str, &str)]) -> Call {
        let pod = PodIdentity {
            namespace: "n".into(),
            service_account: "s".into(),
            name: "p".into(),
            uid: "u".into(),
            node: "m".into(),
        };
        let parameters = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Call { class: "c".into(), parameters, pod, tokens: BTreeMap::new() }
    }

    #[track_caller]
    fn check(raw: &str, expected: Result<&str, &str>) {
        let parsed = Address::parse(&call(&[]), "vaultAddr", raw);
        let parsed = parsed.as_ref().map(|address| address.0.as_str());
        match (parsed, expected) {
            (Ok(parsed), Ok(expected)) => assert_eq!(parsed, expected),
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (parsed, expected) => panic!("{raw}: {parsed:?} instead of {expected:?}"),
        }
    }

    /// CSI-49
    #[test]
    fn credentials_travel_in_tls_or_on_this_machine_csi_49() {
        check("https://vault.example.com", Ok("https://vault.example.com"));
        check("https://vault.example.com:8200/base/", Ok("https://vault.example.com:8200/base"));
        check("http://127.0.0.1:8200", Ok("http://127.0.0.1:8200"));
        check("http://[::1]:8200", Ok("http://[::1]:8200"));
        check("http://localhost:8200", Ok("http://localhost:8200"));
        check("http://vault.example.com", Err("is not https"));
        check("http://127.0.0.1.example.com", Err("is not https"));
        check("http://localhost.example.com", Err("is not https"));
        let open = call(&[(ALLOW_PLAIN_HTTP, "true")]);
        assert!(Address::parse(&open, "vaultAddr", "http://vault.example.com").is_ok());
        let odd = call(&[(ALLOW_PLAIN_HTTP, "yes")]);
        assert!(Address::parse(&odd, "vaultAddr", "http://vault.example.com").is_err());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        check("", Err("is not an address"));
        check("vault.example.com", Err("is not an address"));
        check("/var/run/vault.sock", Err("is not an address"));
        check("unix:///var/run/vault.sock", Err("is not an address"));
        check("ftp://vault.example.com", Err("is not an address"));
        check("https://user:secret@vault.example.com", Err("without user"));
        check("https://vault.example.com/?a=b", Err("without user, query"));
        check("https://vault.example.com/#f", Err("fragment"));
    }

    #[test]
    fn a_segment_stays_one_segment() {
        let address = Address("https://h".into());
        let joined = address.join("v1/a b/c%2fd?e", &[("version", "1&x=y")]).unwrap();
        assert_eq!(joined.to_string(), "https://h/v1/a%20b/c%252fd%3Fe?version=1%26x%3Dy");
    }

    /// CSI-45
    #[test]
    fn no_path_leads_elsewhere_csi_45() {
        for good in ["secret/data/app", "a", "instance-id", "ä/b c"] {
            assert!(is_plain_path(good), "{good}");
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            "a/../b",
            "..",
            "./a",
            "a/%2e%2e/b",
            "a?b",
            "a#b",
            "a\\b",
            "a\nb",
        ] {
            assert!(!is_plain_path(bad), "{bad}");
        }
    }

    #[test]
    fn only_addresses_on_the_list_are_asked() {
        let list = AllowedAddresses::only(["https://vault.example.com", "http://127.0.0.1:8200/x"]);
        let list = list.unwrap();
        let check = |raw: &str| {
            let address = Address::parse(&call(&[("allowPlainHTTP", "true")]), "vaultAddr", raw);
            list.check(&address.unwrap())
        };
        for good in [
            "https://vault.example.com",
            "https://VAULT.example.com:443/base",
            "http://127.0.0.1:8200",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for wrong in [
            "http://vault.example.com",
            "https://vault.example.com:8443",
            "https://vault.example.com.evil.example",
            "https://evil.example/vault.example.com",
            "http://127.0.0.1",
        ] {
            let refused = check(wrong).unwrap_err();
            assert!(refused.message.starts_with("this driver sends nothing to "), "{wrong}");
        }
        for wrong in ["", "vault", "ftp://a", "https://", "https://u@a", "https://a?x=1"] {
            assert!(AllowedAddresses::only([wrong]).is_err(), "{wrong}");
        }
    }

    /// CSI-46: a class must not send a driver to what trusts whoever is on the node.
    #[test]
    fn without_a_list_classes_name_other_machines_with_tls_csi_46() {
        #[track_caller]
        fn check(raw: &str, expected: Option<&str>) {
            let call = call(&[(ALLOW_PLAIN_HTTP, "true")]);
            let address = Address::parse(&call, "vaultAddr", raw).unwrap();
            let found = AllowedAddresses::default().check(&address).map_err(|error| error.message);
            let text = expected.map(|origin| {
                format!(
                    "this driver sends nothing to {origin}; the owner of the node allows it with \
                     --allow-address"
                )
            });
            assert_eq!(found.err(), text, "{raw}");
        }
        check("https://any.example", None);
        check("https://10.1.2.3:8200/base", None);
        check("https://[2001:db8::1]:8200", None);
        check("http://any.example", Some("http://any.example:80: it is not https"));
        for host in [
            "127.0.0.1",
            "localhost",
            "LOCALHOST",
            "[::1]",
            "169.254.169.254",
            "[fe80::1]",
            "0.0.0.0",
        ] {
            let origin = format!("https://{}:443", host.to_ascii_lowercase());
            let origin = format!("{origin}: it is this machine or its link");
            check(&format!("https://{host}"), Some(&origin));
            check(
                &format!("http://{host}"),
                Some(&origin.replace("https", "http").replace(":443", ":80")),
            );
        }
    }
}
