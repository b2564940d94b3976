//! How clouds differ.

use http::{HeaderName, HeaderValue};

/// Whose metadata it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    Ec2,
    Gce,
    Azure,
}

impl Cloud {
    /// By the parameter `cloud` of a class.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "ec2" => Some(Self::Ec2),
            "gce" => Some(Self::Gce),
            "azure" => Some(Self::Azure),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "EC2",
            Self::Gce => "GCE",
            Self::Azure => "Azure",
        }
    }

    /// Headers that no browser can be made to send.
    pub(super) fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
        let header = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        match self {
            Self::Ec2 => Vec::new(),
            Self::Gce => vec![header("metadata-flavor", "Google")],
            Self::Azure => vec![header("metadata", "true")],
        }
    }

    /// The path and query of `key`.
    pub(super) fn path(self, key: &str) -> (String, &'static [(&'static str, &'static str)]) {
        match self {
            Self::Ec2 => (format!("latest/meta-data/{key}"), &[]),
            Self::Gce => (format!("computeMetadata/v1/{key}"), &[]),
            Self::Azure if is_below(key, "identity") => {
                (format!("metadata/{key}"), &[("api-version", "2018-02-01")])
            }
            Self::Azure => {
                let query = &[("api-version", "2021-02-01"), ("format", "text")];
                (format!("metadata/instance/{key}"), query)
            }
        }
    }

    /// Whether `key`, in lower case, leads to credentials or to what is known to hold some.
    pub(super) fn is_credential(self, key: &str) -> bool {
        match self {
            Self::Ec2 => {
                is_below(key, "iam/security-credentials") || is_below(key, "identity-credentials")
            }
            Self::Gce => {
                let account = key.strip_prefix("instance/service-accounts/");
                let part = account.and_then(|rest| rest.split('/').nth(1));
                let attribute = key.split_once("/attributes/").map(|(_, name)| name);
                matches!(part, Some("token" | "identity"))
                    || matches!(attribute, Some("kube-env" | "startup-script" | "user-data"))
            }
            Self::Azure => {
                is_below(key, "identity")
                    || is_below(key, "compute/userdata")
                    || is_below(key, "compute/customdata")
            }
        }
    }
}

fn is_below(key: &str, folder: &str) -> bool {
    key.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_to_credentials_are_known() {
        let credentials = [
            (Cloud::Ec2, "iam/security-credentials"),
            (Cloud::Ec2, "iam/security-credentials/role"),
            (Cloud::Ec2, "identity-credentials/ec2/security-credentials/ec2-instance"),
            (Cloud::Gce, "instance/service-accounts/default/token"),
            (Cloud::Gce, "instance/service-accounts/a@b.iam.gserviceaccount.com/identity"),
            (Cloud::Gce, "instance/attributes/kube-env"),
            (Cloud::Gce, "project/attributes/startup-script"),
            (Cloud::Azure, "identity/oauth2/token"),
            (Cloud::Azure, "compute/userdata"),
        ];
        for (cloud, key) in credentials {
            assert!(cloud.is_credential(key), "{cloud:?} {key}");
        }
        let facts = [
            (Cloud::Ec2, "iam/info"),
            (Cloud::Ec2, "placement/availability-zone"),
            (Cloud::Gce, "instance/service-accounts/default/email"),
            (Cloud::Gce, "instance/attributes/team"),
            (Cloud::Azure, "compute/vmid"),
            (Cloud::Azure, "identityless"),
        ];
        for (cloud, key) in facts {
            assert!(!cloud.is_credential(key), "{cloud:?} {key}");
        }
    }
}
