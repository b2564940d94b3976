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

    /// What `key`, in lower case, leads to.
    pub(super) fn content(self, key: &str) -> Content {
        match self {
            Self::Ec2 => ec2_content(key),
            Self::Gce => gce_content(key),
            Self::Azure => azure_content(key),
        }
    }
}

/// What somebody who reads a key gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Something about the machine.
    Fact,
    /// Something that its owner wrote there, secrets perhaps: scripts, user data, settings of a cluster.
    Custom,
    /// Something by which one is taken for the machine.
    Credential,
}

/// Below `latest/meta-data`, where user data is not.
fn ec2_content(key: &str) -> Content {
    if is_below(key, "iam/security-credentials") || is_below(key, "identity-credentials") {
        Content::Credential
    } else {
        Content::Fact
    }
}

/// Attributes have any name and any content: `kube-env`, `startup-script` and its kin, `user-data`,
/// `gce-container-declaration`, `ssh-keys`. Of service accounts only what is known to be harmless passes.
fn gce_content(key: &str) -> Content {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        ["instance", "service-accounts", _, "email" | "aliases" | "scopes"] => Content::Fact,
        ["instance", "service-accounts", _, ..] => Content::Credential,
        // Certificates and keys of managed workload identities, and of mTLS to the metadata server.
        ["instance", name, ..]
            if ["credential", "certificate", "workload"].iter().any(|it| name.contains(it)) =>
        {
            Content::Credential
        }
        ["oslogin", ..] => Content::Credential,
        ["instance" | "project", "attributes" | "guest-attributes" | "partner-attributes", ..] => {
            Content::Custom
        }
        _ => Content::Fact,
    }
}

fn azure_content(key: &str) -> Content {
    if is_below(key, "identity") {
        Content::Credential
    } else if is_below(key, "compute/userdata") || is_below(key, "compute/customdata") {
        Content::Custom
    } else {
        Content::Fact
    }
}

fn is_below(key: &str, folder: &str) -> bool {
    key.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cloud: Cloud, expected: Content, keys: &[&str]) {
        for key in keys {
            assert_eq!(cloud.content(key), expected, "{cloud:?} {key}");
        }
    }

    #[test]
    fn what_leads_to_credentials_is_known() {
        check(
            Cloud::Ec2,
            Content::Credential,
            &[
                "iam/security-credentials",
                "iam/security-credentials/role",
                "identity-credentials/ec2/security-credentials/ec2-instance",
                "identity-credentials/ec2/info",
            ],
        );
        check(
            Cloud::Gce,
            Content::Credential,
            &[
                "instance/service-accounts/default/token",
                "instance/service-accounts/a@b.iam.gserviceaccount.com/identity",
                "instance/service-accounts/default",
                "instance/service-accounts/default/new",
                "instance/gce-workload-certificates/workload-identities",
                "instance/gce-workload-certificates/config-status",
                "instance/workload-certificates-config-status",
                "instance/credentials/certs",
                "oslogin/users",
            ],
        );
        check(
            Cloud::Azure,
            Content::Credential,
            &["identity", "identity/oauth2/token", "identity/info"],
        );
    }

    #[test]
    fn what_an_owner_wrote_may_be_anything() {
        check(
            Cloud::Gce,
            Content::Custom,
            &[
                "instance/attributes/kube-env",
                "project/attributes/startup-script",
                "instance/attributes/startup-script-url",
                "instance/attributes/windows-startup-script-ps1",
                "instance/attributes/sysprep-specialize-script-ps1",
                "instance/attributes/gce-container-declaration",
                "instance/attributes/kubeconfig",
                "instance/attributes/configure-sh",
                "instance/attributes/team",
                "instance/guest-attributes/hostkeys/rsa",
                "project/attributes/ssh-keys",
            ],
        );
        check(Cloud::Azure, Content::Custom, &["compute/userdata", "compute/customdata"]);
    }

    #[test]
    fn facts_are_facts() {
        check(
            Cloud::Ec2,
            Content::Fact,
            &["iam/info", "placement/availability-zone", "instance-id"],
        );
        check(
            Cloud::Gce,
            Content::Fact,
            &[
                "instance/service-accounts/default/email",
                "instance/service-accounts/default/scopes",
                "instance/machine-type",
                "instance/network-interfaces/0/ip",
                "project/project-id",
            ],
        );
        check(Cloud::Azure, Content::Fact, &["compute/vmid", "identityless"]);
    }
}
